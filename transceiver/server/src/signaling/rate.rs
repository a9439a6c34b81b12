//! A rate with a burst, as one instant (the generic cell rate algorithm). Time is an argument.

use std::time::{Duration, Instant};

/// The burst is what the rate lets through in as long.
const BURST: Duration = Duration::from_secs(1);

/// Lets `per_s` through each second, and a burst of as many.
#[derive(Debug)]
pub(super) struct Rate {
    /// When everything let through so far would be through at the sustained rate.
    through_at: Instant,
}

impl Rate {
    /// Nothing let through yet.
    #[must_use]
    pub(super) const fn new(now: Instant) -> Self {
        Self { through_at: now }
    }

    /// Takes one. `per_s` is passed each time because a reload may change it.
    ///
    /// # Errors
    /// How long to wait until there is one.
    pub(super) fn take(&mut self, per_s: u32, now: Instant) -> Result<(), Duration> {
        let through_at = self.through_at.max(now) + BURST / per_s.max(1);
        let ahead = through_at.saturating_duration_since(now);
        if ahead > BURST {
            return Err(ahead - BURST);
        }
        self.through_at = through_at;
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an origin for invented time")]
mod tests {
    use super::*;

    #[test]
    fn burst_then_sustained() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let passed = (0..50).filter(|_| rate.take(10, start).is_ok()).count();
        assert_eq!(passed, 10);
        let passed = (1..=500)
            .filter(|ms| {
                rate.take(10, start + Duration::from_millis(ms * 10))
                    .is_ok()
            })
            .count();
        assert_eq!(passed, 50);
        let wait = rate.take(10, start + Duration::from_secs(5)).unwrap_err();
        assert!(wait <= Duration::from_millis(100) && !wait.is_zero());
    }

    #[test]
    fn idle_time_does_not_pile_up_and_zero_is_one() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| rate.take(2, later).is_ok()).count(), 2);
        let mut rate = Rate::new(start);
        assert!(rate.take(0, start).is_ok());
        assert_eq!(rate.take(0, start), Err(Duration::from_secs(1)));
        assert!(rate.take(0, later).is_ok());
    }
}
