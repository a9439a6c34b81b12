//! How long to wait before Redis is tried again: doubling, capped, with jitter, for ever.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
/// A connection that served so long was a good one: the next wait is the first again.
const GOOD: Duration = Duration::from_secs(10);

/// See the module head.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    longest: Duration,
    random: u64,
}

impl Backoff {
    /// No wait is longer than `longest`, before jitter. `seed` tells nodes apart.
    #[must_use]
    pub const fn new(longest: Duration, seed: u64) -> Self {
        Self {
            next: FIRST,
            longest,
            random: seed | 1,
        }
    }

    /// The wait after a connection that served for `served`, zero when there was none: between half and one and a half of the
    /// nominal one, so that nodes do not come back together.
    pub fn wait(&mut self, served: Duration) -> Duration {
        if served >= GOOD {
            self.next = FIRST;
        }
        let nominal = self.next;
        self.next = (nominal * 2).min(self.longest);
        // xorshift64: this decides nothing but when we knock.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let per_mille = u32::try_from(self.random % 1000).unwrap_or_default();
        nominal * (500 + per_mille) / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(5);

    #[test]
    fn doubles_to_the_cap_with_jitter_and_starts_again_after_a_good_connection() {
        let mut backoff = Backoff::new(LONGEST, 7);
        let mut nominal = FIRST;
        for _ in 0..20 {
            let wait = backoff.wait(Duration::from_secs(1));
            assert!(wait >= nominal / 2 && wait < nominal * 3 / 2, "{wait:?}");
            nominal = (nominal * 2).min(LONGEST);
        }
        assert_eq!(nominal, LONGEST);
        assert!(backoff.wait(GOOD) < FIRST * 2);
        let mut other = Backoff::new(LONGEST, 8);
        assert_ne!(other.wait(GOOD), Backoff::new(LONGEST, 7).wait(GOOD));
    }
}
