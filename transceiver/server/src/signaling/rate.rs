//! A token bucket. Time is an argument.

use std::time::{Duration, Instant};

/// Lets `per_s` through each second, and a burst of as many.
#[derive(Debug)]
pub(super) struct Rate {
    tokens: f64,
    filled_at: Instant,
}

impl Rate {
    /// A full bucket.
    #[must_use]
    pub(super) fn new(per_s: u32, now: Instant) -> Self {
        Self {
            tokens: f64::from(per_s),
            filled_at: now,
        }
    }

    /// Takes one. `per_s` is passed each time because a reload may change it.
    ///
    /// # Errors
    /// How long to wait until there is one.
    pub(super) fn take(&mut self, per_s: u32, now: Instant) -> Result<(), Duration> {
        let per_s = f64::from(per_s.max(1));
        let elapsed = now.saturating_duration_since(self.filled_at);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * per_s).min(per_s);
        self.filled_at = now;
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - self.tokens) / per_s))
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "an origin for invented time")]
mod tests {
    use super::*;

    #[test]
    fn burst_then_sustained() {
        let start = Instant::now();
        let mut rate = Rate::new(10, start);
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
        let mut rate = Rate::new(2, start);
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| rate.take(2, later).is_ok()).count(), 2);
        let mut rate = Rate::new(0, start);
        assert!(rate.take(0, start).is_err());
        assert!(rate.take(0, later).is_ok());
    }
}
