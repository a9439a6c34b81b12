//! Judgement, without a clock: when a worker is stalled, and how even shares are.

use std::time::Duration;

use super::{LOOK_INTERVAL, STALLED_AFTER};

/// Time between two looks counts no more than this: what lies beyond, the watcher itself did not run, and perhaps nobody
/// did (a stopped process, a suspended machine).
const LOOK_MAX: Duration = LOOK_INTERVAL.saturating_mul(2);
/// Fewer packets in a window say nothing about how even shares are.
const PACKETS_MIN: u64 = 100;

/// What looking at one worker has shown so far.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    turns: u64,
    silent: Duration,
    stalled: bool,
}

/// What a look has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It makes no turn.
    Stalled,
    /// It does again.
    Moves {
        /// For how long it had not.
        silent: Duration,
    },
}

impl Pulse {
    /// `turns` so far, `elapsed` after the look before.
    pub(super) fn look(&mut self, turns: u64, elapsed: Duration) -> Option<Change> {
        if turns != self.turns || turns == 0 {
            self.turns = turns;
            let silent = std::mem::take(&mut self.silent) + elapsed.min(LOOK_MAX);
            let moves = std::mem::take(&mut self.stalled);
            return moves.then_some(Change::Moves { silent });
        }
        self.silent += elapsed.min(LOOK_MAX);
        let begins = !self.stalled && self.silent > STALLED_AFTER;
        self.stalled |= begins;
        begins.then_some(Change::Stalled)
    }

    pub(super) const fn is_stalled(&self) -> bool {
        self.stalled
    }
}

/// Packets of each worker in one window.
pub(super) struct Shares(Vec<u64>);

impl Shares {
    pub(super) const fn of(packets: Vec<u64>) -> Self {
        Self(packets)
    }

    /// The busiest over the mean.
    pub(super) fn skew(&self) -> f64 {
        let (total, max) = (self.total(), self.0.iter().max().copied().unwrap_or(0));
        if total < PACKETS_MIN {
            return 1.0;
        }
        float(max) * float(self.0.len() as u64) / float(total)
    }

    /// Each one's part of all.
    pub(super) fn each(&self) -> impl Iterator<Item = f64> + '_ {
        let total = float(self.total().max(1));
        self.0.iter().map(move |packets| float(*packets) / total)
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[expect(clippy::cast_precision_loss, reason = "packets of seconds: below 2^53")]
const fn float(packets: u64) -> f64 {
    packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = LOOK_INTERVAL;

    #[test]
    fn silence_of_more_than_a_second_is_a_stall_until_the_next_turn() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(7, LOOK), None);
        for _ in 0..4 {
            assert_eq!(pulse.look(7, LOOK), None);
        }
        assert_eq!(pulse.look(7, LOOK), Some(Change::Stalled));
        assert!(pulse.is_stalled());
        assert_eq!(pulse.look(7, LOOK), None, "said once");
        let silent = LOOK * 7;
        assert_eq!(pulse.look(8, LOOK), Some(Change::Moves { silent }));
        assert!(!pulse.is_stalled());
        for _ in 0..4 {
            assert_eq!(pulse.look(8, LOOK), None, "silence counts from there on");
        }
        assert_eq!(pulse.look(8, LOOK), Some(Change::Stalled));
    }

    #[test]
    fn a_worker_that_has_not_begun_is_not_stalled() {
        let mut pulse = Pulse::default();
        for _ in 0..100 {
            assert_eq!(pulse.look(0, LOOK), None);
        }
        assert_eq!(pulse.look(1, LOOK), None);
    }

    #[test]
    fn time_the_watcher_did_not_run_is_not_held_against_a_worker() {
        let mut pulse = Pulse::default();
        pulse.look(1, LOOK);
        let hour = Duration::from_secs(3600);
        assert_eq!(pulse.look(1, hour), None);
        assert_eq!(pulse.look(1, LOOK), None);
        assert_eq!(pulse.look(2, LOOK), None);
        assert_eq!(pulse.look(2, hour), None);
    }

    #[test]
    fn shares_and_skew() {
        let cases: [(&[u64], f64); 5] = [
            (&[], 1.0),
            (&[500], 1.0),
            (&[300, 300], 1.0),
            (&[900, 100], 1.8),
            (&[9, 0], 1.0),
        ];
        for (packets, skew) in cases {
            assert_eq!(Shares::of(packets.to_vec()).skew(), skew, "{packets:?}");
        }
        let shares = Shares::of(vec![900, 100, 0]);
        assert_eq!(shares.each().collect::<Vec<_>>(), [0.9, 0.1, 0.0]);
        assert_eq!(Shares::of(vec![0, 0]).each().sum::<f64>(), 0.0);
    }
}
