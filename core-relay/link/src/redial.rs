//! When to dial again: capped exponential backoff with jitter, for ever.
//!
//! ```text
//!  lost after >= 5 s up   next dial within  50 ms
//!  1st failure            25..50 ms         2nd 50..100 ms   3rd 100..200 ms   ...   capped at 1..2 s
//!  duplicate name         30..60 s          two processes that take a link from each other do so rarely
//! ```

use std::time::{Duration, Instant};

const STEP_MIN_MS: u64 = 50;
const STEP_MAX_MS: u64 = 2000;
/// After another process of our name took the link.
const DUPLICATE_MS: u64 = 60_000;
/// A connection that stayed up this long was good: the count of failures starts over.
const STABLE: Duration = Duration::from_secs(5);

/// A small generator for jitter; not for secrets. SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Jitter(u64);

impl Jitter {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// The dialing state of one link.
#[derive(Clone, Debug)]
pub(crate) struct Redial {
    failures: u32,
    at: Option<Instant>,
}

impl Redial {
    /// First dial within the first step, so that a fleet that starts together does not dial together.
    pub(crate) fn first(now: Instant, jitter: &mut Jitter) -> Self {
        Self {
            failures: 0,
            at: Some(now + Duration::from_micros(jitter.next() % (STEP_MIN_MS * 200))),
        }
    }

    /// When to dial; `None` while a connection is being made or stands.
    pub(crate) const fn at(&self) -> Option<Instant> {
        self.at
    }

    /// A connection is being made.
    pub(crate) const fn dialing(&mut self) {
        self.at = None;
    }

    /// Another process with our name took the link.
    pub(crate) fn duplicate(&mut self, now: Instant, jitter: &mut Jitter) {
        let wait_us = DUPLICATE_MS * 500 + jitter.next() % (DUPLICATE_MS * 500);
        self.at = Some(now + Duration::from_micros(wait_us));
    }

    /// The connection failed or was lost; `up_since` when it had come up.
    pub(crate) fn lost(&mut self, up_since: Option<Instant>, now: Instant, jitter: &mut Jitter) {
        let stable = up_since.is_some_and(|up| now.saturating_duration_since(up) >= STABLE);
        self.failures = if stable {
            0
        } else {
            self.failures.saturating_add(1)
        };
        let step_ms = STEP_MIN_MS
            .saturating_mul(1 << self.failures.saturating_sub(1).min(16))
            .min(STEP_MAX_MS);
        let step_us = step_ms * 1000;
        let wait_us = if stable {
            jitter.next() % step_us
        } else {
            step_us / 2 + jitter.next() % (step_us / 2)
        };
        self.at = Some(now + Duration::from_micros(wait_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary epoch for an invented clock"
    )]
    fn epoch() -> Instant {
        Instant::now()
    }

    #[test]
    fn waits_double_up_to_the_cap_with_jitter() {
        let now = epoch();
        let mut jitter = Jitter::new(1);
        let mut redial = Redial::first(now, &mut jitter);
        assert!(redial.at().unwrap() - now < Duration::from_millis(10));
        for step_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000] {
            redial.dialing();
            assert_eq!(redial.at(), None);
            redial.lost(None, now, &mut jitter);
            let wait = redial.at().unwrap() - now;
            let step = Duration::from_millis(step_ms);
            assert!(wait >= step / 2 && wait < step, "{wait:?} for {step:?}");
        }
    }

    #[test]
    fn a_stable_connection_starts_over_but_a_flapping_one_does_not() {
        let now = epoch();
        let mut jitter = Jitter::new(2);
        let mut redial = Redial::first(now, &mut jitter);
        for _ in 0..100 {
            redial.lost(Some(now), now + Duration::from_secs(1), &mut jitter);
        }
        let flapping = redial.at().unwrap() - (now + Duration::from_secs(1));
        assert!(flapping >= Duration::from_secs(1));
        redial.lost(Some(now), now + Duration::from_secs(5), &mut jitter);
        let stable = redial.at().unwrap() - (now + Duration::from_secs(5));
        assert!(stable < Duration::from_millis(50));
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(Jitter::new(1).next(), Jitter::new(2).next());
    }
}
