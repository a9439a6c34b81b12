//! Expiry without a sweep of the whole table: a hand passes over a bounded number of slots at a time, the more often the more
//! slots there are.

use std::time::{Duration, Instant};

use super::{Flows, Now};
use crate::flow::State;

/// How often the hand moves.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
/// In a very large table it moves more often, down to this.
const SWEEP_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Moves the hand needs to pass over the whole table.
const SWEEP_STEPS: u32 = 64;
/// Slots of a move, at least and at most.
const SWEEP_SLOTS_MIN: u32 = 64;
const SWEEP_SLOTS_MAX: u32 = 1024;

impl Flows {
    /// Moves the expiry hand by one bounded step when it is due, and lets go of what was held in vain.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.sweep_at.is_none_or(|at| at > now.instant) {
            return;
        }
        if let Some(recovery) = &mut self.recovery
            && !recovery.is_idle()
        {
            recovery.handle_timeout(now.instant);
        }
        let tick = self.tick(now.instant);
        for _ in 0..sweep_slots(self.table.slots()) {
            let slot = self.table.next_slot();
            let gone = self.update(slot, |flow| {
                flow.settle(tick);
                flow.expired(tick)
            });
            if gone == Some(true) {
                self.expire(slot);
            }
        }
        self.timing.sweep(tick);
        self.sweep_at = None;
        if self.table.len() > 0 || self.recovery.as_ref().is_some_and(|it| !it.is_idle()) {
            self.schedule_sweep(now.instant);
        }
    }

    /// When [`Self::handle_timeout`] is due next.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.sweep_at
    }

    pub(super) fn schedule_sweep(&mut self, now: Instant) {
        if self.sweep_at.is_none() {
            self.sweep_at = Some(now + sweep_interval(self.table.slots()));
        }
    }

    pub(super) fn expire(&mut self, slot: u32) {
        let ended = self.remove(slot).is_some_and(State::is_ended);
        self.totals.expired += u64::from(!ended);
    }
}

fn sweep_slots(slots: u32) -> u32 {
    (slots / SWEEP_STEPS)
        .clamp(SWEEP_SLOTS_MIN, SWEEP_SLOTS_MAX)
        .min(slots)
}

fn sweep_interval(slots: u32) -> Duration {
    let moves = (slots / (SWEEP_STEPS * SWEEP_SLOTS_MAX)).max(1);
    (SWEEP_INTERVAL / moves).max(SWEEP_INTERVAL_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_takes_seconds_and_a_move_is_bounded() {
        for (slots, seconds) in [
            (0, 0),
            (10, 1),
            (64, 1),
            (100_000, 2),
            (1 << 20, 2),
            (1 << 24, 17),
        ] {
            assert!(sweep_slots(slots) <= SWEEP_SLOTS_MAX);
            let moves = slots.div_ceil(sweep_slots(slots).max(1));
            let pass = sweep_interval(slots) * moves;
            assert!(pass <= Duration::from_secs(seconds), "{slots}: {pass:?}");
        }
    }
}
