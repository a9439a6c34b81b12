//! Hysteresis: a group of clients moves only when another ingress is better by `better_by_ms` for `hold_s`.
//!
//! What is held is the medians that decisions use. They stay as they are while fresh ones say about the same:
//!
//! | what fresh medians say | what is done |
//! | --- | --- |
//! | another PoP beats the chosen one by `better_by_ms`, for `hold_s` | all medians of the group are replaced: the clients move |
//! | a PoP's median is off by `better_by_ms`, for `hold_s`, and replacing it moves nobody | it is replaced |
//! | a PoP had no median | it has one at once: a guess was in its place |
//! | a median is missing | the held one stays until it is `age_max_s` old, then what it was is a floor for what is guessed |
//! | a median is of fewer reports, because the others grew too old | nothing else than of any other: what was fresh at the last look is held |
//! | anything else | nothing |
//!
//! A PoP that was found to be far is not tried often; were it forgotten, the guess that misled before would send everybody there again. So
//! the guess of a group is never below what was last measured, until it is measured again, for [`FLOOR_AGES`] ages.
//!
//! The chosen PoP is the one with the least round trip to the client and on to its nearest region. Live state does not enter:
//! health, drains and load move clients at once, and back.

use std::collections::BTreeMap;

use crate::live::Live;
use crate::measured::gather::{Fresh, Gathered};
use crate::measured::{GROUPS_MAX, GroupKey, Measured, Median};
use crate::plan::{Plan, PopIx};

/// How many times `age_max_s` a median that is too old to decide by stays as a floor.
pub const FLOOR_AGES: u64 = 7;

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
    /// Until when it counts unless it was fresh at the last look; then it is a floor.
    until_s: u64,
    /// Whether it was reported at the last look.
    is_fresh: bool,
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
        if self.groups.len() >= GROUPS_MAX {
            // Floors make way first.
            self.groups.retain(|_, group| group.counts(now_s));
        }
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
        self.measured(now_s)
    }

    /// What to decide by at `now_s`.
    #[must_use]
    pub fn measured(&self, now_s: u64) -> Measured {
        let of = |group: &Group, counts: bool| -> Vec<(PopIx, Median)> {
            let pops = group.pops.iter();
            let pops = pops.filter(|(_, held)| held.counts(now_s) == counts);
            pops.map(|(pop, held)| (*pop, held.median)).collect()
        };
        let groups = self.groups.iter();
        let medians = groups.clone().map(|(key, group)| (*key, of(group, true)));
        let floors = groups.map(|(key, group)| (*key, of(group, false)));
        Measured::with_floors(medians.collect(), floors)
    }

    /// The same for another plan, by name. What was measured at PoPs that are gone, or elsewhere than they were, is forgotten.
    #[must_use]
    pub fn carried(self, from: &Plan, to: &Plan) -> Self {
        let same: BTreeMap<PopIx, PopIx> = from
            .pops()
            .filter_map(|pop| Some((pop, to.same_pop(from, pop)?)))
            .collect();
        let carried = |(key, group): (GroupKey, Group)| {
            let pops = group.pops.into_iter();
            let pops = pops.filter_map(|(pop, held)| Some((*same.get(&pop)?, held)));
            let pops: BTreeMap<PopIx, Held> = pops.collect();
            (!pops.is_empty()).then_some((key, Group { pops, ..group }))
        };
        Self {
            groups: self.groups.into_iter().filter_map(carried).collect(),
            ..self
        }
    }

    /// Nothing was heard for a while: what has been so for some time must be so anew.
    pub fn begin_anew(&mut self) {
        for group in self.groups.values_mut() {
            group.better_since_s = None;
            for held in group.pops.values_mut() {
                held.off_since_s = None;
            }
        }
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
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
        self.on_us(pop) + u64::from(median.rtt_us)
    }

    /// From a PoP on to its nearest region.
    fn on_us(&self, pop: PopIx) -> u64 {
        u64::from(self.plan.backbone_least_ms(pop, self.live)) * 1_000
    }

    /// Until when a median of this age counts.
    fn until_s(&self, age_s: u32) -> u64 {
        let rest = self.age_max_s.saturating_sub(age_s.into());
        self.now_s.saturating_add(rest)
    }
}

impl Held {
    /// What is reported look after look counts all the time, however old the reports are that it loses in between.
    const fn counts(&self, now_s: u64) -> bool {
        self.is_fresh || now_s <= self.until_s
    }
}

impl Group {
    fn counts(&self, now_s: u64) -> bool {
        self.pops.values().any(|held| held.counts(now_s))
    }

    /// Takes fresh medians in. Whether the clients of the group move.
    fn hear(&mut self, fresh: &BTreeMap<PopIx, Fresh>, scale: &Scale<'_>) -> bool {
        for (pop, Fresh { median, age_s }) in fresh {
            let until_s = scale.until_s(*age_s);
            let held = self.pops.get(pop).filter(|held| held.counts(scale.now_s));
            let mut held = held.copied().unwrap_or(Held {
                median: *median,
                until_s,
                is_fresh: true,
                off_since_s: None,
            });
            (held.until_s, held.is_fresh) = (until_s, true);
            held.median.clients = median.clients;
            self.pops.insert(*pop, held);
        }
        for (_, held) in self.pops.iter_mut().filter(|it| !fresh.contains_key(it.0)) {
            held.is_fresh = false;
        }
        let current =
            |pop: &PopIx, held: &Held| fresh.get(pop).map_or(held.median, |fresh| fresh.median);
        let counting = || {
            let pops = self.pops.iter();
            pops.filter(|(_, held)| held.counts(scale.now_s))
        };
        let chosen = counting().min_by_key(|(pop, held)| {
            let cost = scale.cost_us(**pop, held.median);
            (cost, **pop)
        });
        let stays_us = chosen.map(|(pop, held)| scale.cost_us(*pop, current(pop, held)));
        let best_us = counting()
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

    /// Replaces medians that have long been off: as far as that moves nobody.
    fn correct(&mut self, fresh: &BTreeMap<PopIx, Fresh>, scale: &Scale<'_>) {
        for (pop, Fresh { median, .. }) in fresh {
            let Some(held) = self.pops.get_mut(pop) else {
                continue;
            };
            let off = u64::from(held.median.rtt_us.abs_diff(median.rtt_us));
            let is_off = off > 0 && off >= scale.better_by_us;
            held.off_since_s = scale.timed(held.off_since_s, is_off);
            if !(is_off && scale.is_due(held.off_since_s)) {
                continue;
            }
            let rtt_us = self.towards(*pop, *median, scale);
            if let Some(held) = self.pops.get_mut(pop) {
                held.median.rtt_us = rtt_us;
                held.off_since_s = None;
            }
        }
    }

    /// The round trip next to a fresh one with which the same PoPs share the clients.
    fn towards(&self, pop: PopIx, fresh: Median, scale: &Scale<'_>) -> u32 {
        let Some(held) = self.pops.get(&pop) else {
            return fresh.rtt_us;
        };
        let between = held.median.rtt_us.min(fresh.rtt_us)..=held.median.rtt_us.max(fresh.rtt_us);
        let (on_us, within) = (scale.on_us(pop), scale.equal_within_us);
        // Who shares changes only where one cost passes another, or that and what equals may differ by.
        let others = self.pops.iter().filter(|(other, _)| **other != pop);
        let edges = others.flat_map(|(other, held)| {
            let cost = scale.cost_us(*other, held.median);
            let (above, below) = (cost + within, cost.saturating_sub(within));
            [above, above + 1, below, below.saturating_sub(1)]
        });
        let edges = edges.filter_map(|cost| u32::try_from(cost.checked_sub(on_us)?).ok());
        let mut values: Vec<u32> = edges.filter(|value| between.contains(value)).collect();
        values.extend([fresh.rtt_us, held.median.rtt_us]);
        values.sort_unstable_by_key(|value| value.abs_diff(fresh.rtt_us));
        let equals = self.equals_with(pop, held.median.rtt_us, scale);
        let stays = |value: &u32| self.equals_with(pop, *value, scale) == equals;
        values.into_iter().find(stays).unwrap_or(held.median.rtt_us)
    }

    /// PoPs that share the group's clients, were the round trip of one of them `rtt_us`.
    fn equals_with(&self, pop: PopIx, rtt_us: u32, scale: &Scale<'_>) -> Vec<PopIx> {
        let counting = self
            .pops
            .iter()
            .filter(|(_, held)| held.counts(scale.now_s));
        let costs = counting.map(|(other, held)| {
            let with = Median {
                rtt_us,
                ..held.median
            };
            let median = if *other == pop { with } else { held.median };
            (*other, scale.cost_us(*other, median))
        });
        let Some(best) = costs.clone().map(|(_, cost)| cost).min() else {
            return Vec::new();
        };
        costs
            .filter(|(_, cost)| *cost <= best + scale.equal_within_us)
            .map(|(pop, _)| pop)
            .collect()
    }

    /// Drops medians nobody has reported for so long that they are no floor either.
    fn forget(&mut self, scale: &Scale<'_>) {
        let floor_s = scale.age_max_s.saturating_mul(FLOOR_AGES);
        self.pops
            .retain(|_, held| scale.now_s <= held.until_s.saturating_add(floor_s));
    }
}
