//! Hysteresis: a group of clients moves only when another ingress is better by `better_by_ms` for `hold_s`.
//!
//! What is held is the medians that decisions use. They stay as they are while fresh ones say about the same:
//!
//! | what fresh medians say | what is done |
//! | --- | --- |
//! | another PoP beats the chosen one by `better_by_ms`, for `hold_s` | all medians of the group are replaced: the clients move |
//! | a PoP's median is off by `better_by_ms`, for `hold_s`, and replacing it moves nobody | it is replaced |
//! | a PoP had no median | it has one at once: a guess was in its place |
//! | a median is missing | the held one stays until it is `age_max_s` old |
//! | anything else | nothing |
//!
//! The chosen PoP is the one with the least round trip to the client and on to its nearest region. Live state does not enter:
//! health, drains and load move clients at once, and back.

use std::collections::BTreeMap;

use crate::live::Live;
use crate::measured::gather::Gathered;
use crate::measured::{GROUPS_MAX, GroupKey, Measured, Median};
use crate::plan::{Plan, PopIx};

/// What decisions use, held against noise. Kept by whoever compiles.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    groups: BTreeMap<GroupKey, Group>,
    moved: u64,
    left_out: u64,
}

/// One group of clients.
#[derive(Clone, Debug, Default)]
struct Group {
    pops: BTreeMap<PopIx, Held>,
    /// Since when another PoP has been better by enough.
    better_since_s: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    median: Median,
    heard_s: u64,
    /// Since when fresh medians have been off by enough.
    off_since_s: Option<u64>,
}

/// What `settle` compares by.
struct Scale<'a> {
    plan: &'a Plan,
    live: &'a Live,
    better_by_us: u64,
    equal_within_us: u64,
    hold_s: u64,
    age_max_s: u64,
    now_s: u64,
}

impl Memory {
    /// Takes fresh medians in and returns those to decide by. `now_s` is of any clock that does not go back.
    pub fn settle(&mut self, fresh: &Gathered, plan: &Plan, live: &Live, now_s: u64) -> Measured {
        let scale = Scale::new(plan, live, now_s);
        for key in fresh.groups.keys() {
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(key) {
                self.left_out += 1;
                continue;
            }
            self.groups.entry(*key).or_default();
        }
        let silence = BTreeMap::new();
        self.groups.retain(|key, group| {
            let medians = fresh.groups.get(key).unwrap_or(&silence);
            self.moved += u64::from(group.hear(medians, &scale));
            group.forget(&scale);
            !group.pops.is_empty()
        });
        let groups = self.groups.iter().map(|(key, group)| {
            let medians = group.pops.iter().map(|(pop, held)| (*pop, held.median));
            (*key, medians.collect())
        });
        Measured::new(groups.collect())
    }

    /// Groups that were moved because another PoP was better.
    #[must_use]
    pub const fn moved(&self) -> u64 {
        self.moved
    }

    /// Times a group was left out because there were [`GROUPS_MAX`].
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl<'a> Scale<'a> {
    fn new(plan: &'a Plan, live: &'a Live, now_s: u64) -> Self {
        let steering = plan.steering();
        Self {
            plan,
            live,
            better_by_us: u64::from(steering.hysteresis.better_by_ms) * 1_000,
            equal_within_us: u64::from(steering.equal_within_ms) * 1_000,
            hold_s: u64::from(steering.hysteresis.hold_s),
            age_max_s: u64::from(steering.measured.age_max_s),
            now_s,
        }
    }

    /// Whether something that has been so since `since` has been so for long enough.
    fn is_due(&self, since: Option<u64>) -> bool {
        since.is_some_and(|since| self.now_s.saturating_sub(since) >= self.hold_s)
    }

    /// Starts or stops a timer.
    const fn timed(&self, since: Option<u64>, holds: bool) -> Option<u64> {
        match (since, holds) {
            (_, false) => None,
            (Some(since), true) => Some(since),
            (None, true) => Some(self.now_s),
        }
    }

    /// From the client through a PoP to its nearest region, in microseconds.
    fn cost_us(&self, pop: PopIx, median: Median) -> u64 {
        let on = self.plan.backbone_least_ms(pop, self.live);
        u64::from(median.rtt_us) + u64::from(on) * 1_000
    }
}

impl Group {
    /// Takes fresh medians in. Whether the clients of the group move.
    fn hear(&mut self, fresh: &BTreeMap<PopIx, Median>, scale: &Scale<'_>) -> bool {
        for (pop, median) in fresh {
            let held = self.pops.entry(*pop).or_insert(Held {
                median: *median,
                heard_s: scale.now_s,
                off_since_s: None,
            });
            held.heard_s = scale.now_s;
            held.median.clients = median.clients;
        }
        let current = |pop: &PopIx, held: &Held| fresh.get(pop).copied().unwrap_or(held.median);
        let chosen = self.pops.iter().min_by_key(|(pop, held)| {
            let cost = scale.cost_us(**pop, held.median);
            (cost, **pop)
        });
        let stays_us = chosen.map(|(pop, held)| scale.cost_us(*pop, current(pop, held)));
        let best_us = self
            .pops
            .iter()
            .map(|(pop, held)| scale.cost_us(*pop, current(pop, held)))
            .min();
        let better = stays_us
            .zip(best_us)
            .is_some_and(|(stays, best)| stays > best && stays - best >= scale.better_by_us);
        self.better_since_s = scale.timed(self.better_since_s, better);
        let moves = better && scale.is_due(self.better_since_s);
        if moves {
            for (pop, held) in &mut self.pops {
                held.median = current(pop, held);
                held.off_since_s = None;
            }
            self.better_since_s = None;
        } else {
            self.correct(fresh, scale);
        }
        moves
    }

    /// Replaces medians that have long been off, where that moves nobody.
    fn correct(&mut self, fresh: &BTreeMap<PopIx, Median>, scale: &Scale<'_>) {
        for (pop, median) in fresh {
            let Some(held) = self.pops.get_mut(pop) else {
                continue;
            };
            let off = u64::from(held.median.rtt_us.abs_diff(median.rtt_us));
            let is_off = off > 0 && off >= scale.better_by_us;
            held.off_since_s = scale.timed(held.off_since_s, is_off);
            if !(is_off && scale.is_due(held.off_since_s)) {
                continue;
            }
            let before = *held;
            let equals = self.equals(scale);
            self.set(*pop, *median);
            if self.equals(scale) != equals {
                self.pops.insert(*pop, before);
            }
        }
    }

    fn set(&mut self, pop: PopIx, median: Median) {
        if let Some(held) = self.pops.get_mut(&pop) {
            held.median = median;
            held.off_since_s = None;
        }
    }

    /// PoPs that share the group's clients.
    fn equals(&self, scale: &Scale<'_>) -> Vec<PopIx> {
        let costs = self
            .pops
            .iter()
            .map(|(pop, held)| (*pop, scale.cost_us(*pop, held.median)));
        let Some(best) = costs.clone().map(|(_, cost)| cost).min() else {
            return Vec::new();
        };
        costs
            .filter(|(_, cost)| *cost <= best + scale.equal_within_us)
            .map(|(pop, _)| pop)
            .collect()
    }

    /// Drops medians nobody has reported for long.
    fn forget(&mut self, scale: &Scale<'_>) {
        self.pops
            .retain(|_, held| scale.now_s.saturating_sub(held.heard_s) <= scale.age_max_s);
    }
}
