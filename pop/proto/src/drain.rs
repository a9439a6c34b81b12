//! A drain, step by step: each step has an effect, and the next begins when it is seen, or when waiting for it has no point.
//!
//! ```text
//!  serving ─order─► flush ────► shift ─────► withdraw ────► linger ──────► done
//!    ▲              flows are   a last       the VIPs are   what comes     │
//!    │              stored      resort; own  withdrawn;     late is        │
//!    │                          traffic on   traffic ends   served         │
//!    │                          VIPs falls                                 │
//!    └────────────────────────────── undrain, from any step ───────────────┘
//! ```
//!
//! Nothing is refused meanwhile: packets that still come are served in every step. What is not here: how flows are stored, routes, and
//! when a process that drains ends.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::announce::{Announce, Order};

/// Flows that are not stored by then are told as left over.
const FLUSH_MAX: Duration = Duration::from_secs(5);
/// Upstream routers get so long to prefer others, traffic or not.
const SHIFT_MIN: Duration = Duration::from_secs(2);
/// Traffic that has not fallen by then does not fall by preference: upstream ignores it.
const SHIFT_MAX: Duration = Duration::from_secs(15);
/// Traffic that goes on so long after the withdrawal comes another way.
const WITHDRAW_MAX: Duration = Duration::from_secs(10);
/// Late packets are waited for so long, at most, beyond the time that is set.
const LINGER_MORE_MAX: Duration = Duration::from_secs(30);
/// Nothing came for so long: nothing is late any more.
const LATE: Duration = Duration::from_secs(5);
/// Traffic has moved when no more than this part of it is left.
const LEFT_PERCENT: u64 = 5;
/// Fewer packets in [`RATE_WINDOW`] are strays.
const STRAYS: u64 = 2;
/// Over how long traffic is measured, while it falls and before.
const RATE_WINDOW: Duration = Duration::from_millis(500);
/// Counts that are kept, one for each [`RATE_WINDOW`] / 5.
const COUNTS_MAX: usize = 32;
const COUNT_INTERVAL: Duration = Duration::from_millis(100);

/// Where a drain is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// There is none.
    #[default]
    Serving,
    /// Flows are written to the flow cache.
    Flush,
    /// Upstream routers are told to prefer others.
    Shift,
    /// Nothing is announced.
    Withdraw,
    /// What comes late is served.
    Linger,
    /// It is over.
    Done,
}

impl Step {
    /// All of them, in their order.
    pub const ALL: [Self; 6] = [
        Self::Serving,
        Self::Flush,
        Self::Shift,
        Self::Withdraw,
        Self::Linger,
        Self::Done,
    ];

    /// Its name in metrics and state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Flush => "flush",
            Self::Shift => "shift",
            Self::Withdraw => "withdraw",
            Self::Linger => "linger",
            Self::Done => "done",
        }
    }
}

/// What was seen of a step's effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Every flow of a session that goes on is in the flow cache.
    Stored,
    /// Not every one is.
    NotStored,
    /// There is no flow cache.
    NoFlowCache,
    /// Clients go elsewhere.
    Moved,
    /// There were no clients on the VIPs.
    Quiet,
    /// They still come: upstream does not care.
    Ignored,
    /// Nothing was announced to begin with.
    NotAnnounced,
    /// Nothing comes any more.
    Silent,
    /// Packets come although nothing is announced.
    StillArrives,
    /// It was undone, or the process came to its end.
    Cut,
}

impl Effect {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Stored,
        Self::NotStored,
        Self::NoFlowCache,
        Self::Moved,
        Self::Quiet,
        Self::Ignored,
        Self::NotAnnounced,
        Self::Silent,
        Self::StillArrives,
        Self::Cut,
    ];

    /// Its name in state and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::NotStored => "not_stored",
            Self::NoFlowCache => "no_flow_cache",
            Self::Moved => "moved",
            Self::Quiet => "quiet",
            Self::Ignored => "ignored",
            Self::NotAnnounced => "not_announced",
            Self::Silent => "silent",
            Self::StillArrives => "still_arrives",
            Self::Cut => "cut",
        }
    }

    /// Whether the step did what it is for.
    #[must_use]
    pub const fn is_good(self) -> bool {
        match self {
            Self::Stored
            | Self::NoFlowCache
            | Self::Moved
            | Self::Quiet
            | Self::NotAnnounced
            | Self::Silent => true,
            Self::NotStored | Self::Ignored | Self::StillArrives | Self::Cut => false,
        }
    }
}

/// A step that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Which.
    pub step: Step,
    /// How long it took.
    pub took: Duration,
    /// What was seen.
    pub effect: Effect,
}

/// How far flows are written to the flow cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flush {
    /// There is no flow cache.
    NoCache,
    /// They are being written.
    Running {
        /// Those that are known to be left.
        left: u64,
    },
    /// All that could be were; so many were not.
    Over {
        /// Flows that are not in it.
        unstored: u64,
    },
}

/// What the PoP looks like at one moment. Packets are totals.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// See [`Flush`].
    pub flush: Flush,
    /// What upstream is told.
    pub announce: Announce,
    /// Packets of clients on VIPs.
    pub vip_packets: u64,
    /// Packets of sessions that were dropped.
    pub lost: u64,
    /// Flows there are.
    pub flows: u64,
}

/// Settings of a [`Drain`].
#[derive(Clone, Copy, Debug)]
pub struct DrainConfig {
    /// Whether the PoP announces VIPs; without, nothing is shifted or withdrawn.
    pub anycast: bool,
    /// How long what comes late is served, at least.
    pub linger: Duration,
}

/// See the module head.
#[derive(Debug)]
pub struct Drain {
    config: DrainConfig,
    step: Step,
    since: Instant,
    began: Instant,
    withdrawn_at: Instant,
    passed: Vec<Passed>,
    traffic: Traffic,
    /// Packets per [`RATE_WINDOW`] when the drain began.
    before: u64,
    lost_before: u64,
    sight: Sight,
    unstored: u64,
}

impl Drain {
    /// None.
    #[must_use]
    pub const fn new(config: DrainConfig, now: Instant) -> Self {
        Self {
            config,
            step: Step::Serving,
            since: now,
            began: now,
            withdrawn_at: now,
            passed: Vec::new(),
            traffic: Traffic::new(now),
            before: 0,
            lost_before: 0,
            sight: Sight {
                flush: Flush::NoCache,
                announce: Announce::Withdrawn,
                vip_packets: 0,
                lost: 0,
                flows: 0,
            },
            unstored: 0,
        }
    }

    /// Another such time, also for a drain that is under way.
    pub const fn set_linger(&mut self, linger: Duration) {
        self.config.linger = linger;
    }

    /// Begins; nothing when it has begun already.
    pub fn handle_drain(&mut self, now: Instant) {
        if self.step != Step::Serving {
            return;
        }
        self.began = now;
        self.passed.clear();
        self.unstored = 0;
        self.before = self.traffic.lately(now);
        self.lost_before = self.sight.lost;
        self.enter(Step::Flush, now);
    }

    /// Goes on after a restart: nothing is announced yet, so nothing has to be shifted.
    pub fn handle_resumed(&mut self, now: Instant) {
        self.began = now;
        self.withdrawn_at = now;
        self.enter(Step::Withdraw, now);
    }

    /// Ends it, wherever it is; nothing when there is none.
    pub fn handle_undrain(&mut self, now: Instant) {
        match self.step {
            Step::Serving => return,
            Step::Flush | Step::Shift | Step::Withdraw | Step::Linger => {
                self.pass(Effect::Cut, now);
            }
            Step::Done => {}
        }
        self.enter(Step::Serving, now);
    }

    /// Looks around, and goes on when there is nothing to wait for.
    pub fn handle_sight(&mut self, sight: Sight, now: Instant) {
        self.sight = sight;
        self.traffic.note(sight.vip_packets, now);
        // Each pass leads to another step: no more than there are.
        for _ in Step::ALL {
            let Some(effect) = self.effect(now) else {
                return;
            };
            self.pass(effect, now);
            let next = self.next();
            if next == Step::Withdraw {
                self.withdrawn_at = now;
            }
            self.enter(next, now);
        }
    }

    /// What the announcement is to be.
    #[must_use]
    pub const fn order(&self) -> Order {
        match self.step {
            Step::Serving | Step::Flush => Order::Serve,
            Step::Shift => Order::Drain,
            Step::Withdraw | Step::Linger | Step::Done => Order::Withdraw,
        }
    }

    /// Where it is.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// How long it has been there.
    #[must_use]
    pub fn in_step(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// The steps that are over, of this drain or the last.
    #[must_use]
    pub fn passed(&self) -> &[Passed] {
        &self.passed
    }

    /// Packets of sessions that were dropped since it began.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sight.lost.saturating_sub(self.lost_before)
    }

    /// Flows that are not in the flow cache.
    #[must_use]
    pub const fn unstored(&self) -> u64 {
        self.unstored
    }

    /// Flows there still are.
    #[must_use]
    pub const fn flows_left(&self) -> u64 {
        self.sight.flows
    }

    /// Packets a second on VIPs: when it began, and lately.
    #[must_use]
    pub fn traffic_pps(&self, now: Instant) -> (u64, u64) {
        let a_second = |packets: u64| packets * 1000 / 500;
        (a_second(self.before), a_second(self.traffic.lately(now)))
    }

    fn enter(&mut self, step: Step, now: Instant) {
        self.step = step;
        self.since = now;
    }

    fn pass(&mut self, effect: Effect, now: Instant) {
        if self.step == Step::Flush && effect != Effect::Cut {
            self.unstored = match self.sight.flush {
                Flush::NoCache => 0,
                Flush::Over { unstored } => unstored,
                // Whatever has not been counted: not all are stored.
                Flush::Running { left } => left.max(1),
            };
        }
        if self.passed.len() < Step::ALL.len() {
            self.passed.push(Passed {
                step: self.step,
                took: self.in_step(now),
                effect,
            });
        }
    }

    const fn next(&self) -> Step {
        match self.step {
            Step::Flush if self.config.anycast => Step::Shift,
            Step::Flush | Step::Withdraw => Step::Linger,
            Step::Shift => Step::Withdraw,
            Step::Linger | Step::Done => Step::Done,
            Step::Serving => Step::Serving,
        }
    }

    /// What is seen of the step's effect, once that is to be seen or there is no use in waiting.
    fn effect(&self, now: Instant) -> Option<Effect> {
        let took = self.in_step(now);
        match self.step {
            Step::Serving | Step::Done => None,
            Step::Flush => match self.sight.flush {
                Flush::NoCache => Some(Effect::NoFlowCache),
                Flush::Over { unstored: 0 } => Some(Effect::Stored),
                Flush::Over { unstored: _ } => Some(Effect::NotStored),
                Flush::Running { left: _ } => (took >= FLUSH_MAX).then_some(Effect::NotStored),
            },
            Step::Shift => self.shifted(took, now),
            Step::Withdraw => self.withdrawn(took, now),
            Step::Linger => self.lingered(now),
        }
    }

    fn shifted(&self, took: Duration, now: Instant) -> Option<Effect> {
        if self.sight.announce == Announce::Withdrawn {
            return Some(Effect::NotAnnounced);
        }
        if self.sight.announce != Announce::Draining || took < SHIFT_MIN {
            return None;
        }
        if self.before <= STRAYS && self.traffic.lately(now) <= STRAYS {
            return Some(Effect::Quiet);
        }
        if self.has_fallen(now) {
            return Some(Effect::Moved);
        }
        (took >= SHIFT_MAX).then_some(Effect::Ignored)
    }

    fn withdrawn(&self, took: Duration, now: Instant) -> Option<Effect> {
        if self.sight.announce == Announce::Withdrawn && took >= RATE_WINDOW && self.has_fallen(now)
        {
            return Some(Effect::Silent);
        }
        (took >= WITHDRAW_MAX).then_some(Effect::StillArrives)
    }

    fn lingered(&self, now: Instant) -> Option<Effect> {
        let from = if self.config.anycast {
            self.withdrawn_at
        } else {
            self.since
        };
        let took = now.saturating_duration_since(from);
        if took < self.config.linger {
            return None;
        }
        if !self.config.anycast || self.traffic.quiet_for(now) >= LATE {
            return Some(Effect::Silent);
        }
        (took >= self.config.linger + LINGER_MORE_MAX).then_some(Effect::StillArrives)
    }

    fn has_fallen(&self, now: Instant) -> bool {
        self.traffic.lately(now) <= STRAYS.max(self.before * LEFT_PERCENT / 100)
    }
}

/// Packets of clients on VIPs, lately.
#[derive(Debug)]
struct Traffic {
    counts: VecDeque<(Instant, u64)>,
    total: u64,
    /// When more than strays came last.
    busy_at: Instant,
}

impl Traffic {
    const fn new(now: Instant) -> Self {
        Self {
            counts: VecDeque::new(),
            total: 0,
            busy_at: now,
        }
    }

    fn note(&mut self, total: u64, now: Instant) {
        self.total = total;
        let due = self
            .counts
            .back()
            .is_none_or(|(at, _)| now.saturating_duration_since(*at) >= COUNT_INTERVAL);
        if due {
            if self.counts.len() >= COUNTS_MAX {
                self.counts.pop_front();
            }
            self.counts.push_back((now, total));
        }
        if self.lately(now) > STRAYS {
            self.busy_at = now;
        }
    }

    /// Packets of a [`RATE_WINDOW`], by those of the last one or a little more.
    fn lately(&self, now: Instant) -> u64 {
        let age = |at: &Instant| now.saturating_duration_since(*at);
        let mut old = self
            .counts
            .iter()
            .rev()
            .filter(|(at, _)| age(at) >= RATE_WINDOW);
        let Some((at, then)) = old.next().or_else(|| self.counts.front()) else {
            return 0;
        };
        let packets = u128::from(self.total.saturating_sub(*then));
        let elapsed_us = age(at).max(RATE_WINDOW).as_micros();
        u64::try_from(packets * RATE_WINDOW.as_micros() / elapsed_us).unwrap_or(u64::MAX)
    }

    fn quiet_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.busy_at)
    }
}

#[cfg(test)]
mod tests;
