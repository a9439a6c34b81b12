//! So many a second, evenly, without catching up on more than a moment that was missed.

use std::time::{Duration, Instant};

/// What was missed beyond this is not made up for: a process that did not run must not answer with a burst of its own.
const CATCH_UP_MAX: Duration = Duration::from_millis(10);

/// See the module head.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    per_s: u64,
    from: Instant,
    done: u64,
}

impl Pace {
    pub(super) const fn new(per_s: u64, now: Instant) -> Self {
        Self {
            per_s,
            from: now,
            done: 0,
        }
    }

    /// How many are due at `now`; the caller does them.
    pub(super) fn take(&mut self, now: Instant) -> u64 {
        let due = self
            .at(now.saturating_duration_since(self.from))
            .saturating_sub(self.done);
        let most = self.at(CATCH_UP_MAX).max(1);
        self.done += due;
        due.min(most)
    }

    fn at(&self, elapsed: Duration) -> u64 {
        let due = elapsed.as_micros() * u128::from(self.per_s) / 1_000_000;
        u64::try_from(due).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_and_without_a_burst_after_a_pause() {
        let start = runtime::clock::now();
        let mut pace = Pace::new(1000, start);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.take(at(0)), 0);
        assert_eq!(pace.take(at(3)), 3);
        assert_eq!(pace.take(at(3)), 0);
        assert_eq!(pace.take(at(1000)), 10, "of 997 that were due");
        assert_eq!(pace.take(at(1001)), 1);
    }
}
