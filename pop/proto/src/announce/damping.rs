//! How long a PoP must be well before it announces: longer the more often it fell.

use std::time::{Duration, Instant};

/// Falls count for so long.
pub(super) const WINDOW: Duration = Duration::from_secs(3600);
/// Falls that are remembered: so many doublings are beyond every maximum.
pub(super) const FALLS_MAX: usize = 16;

#[derive(Debug)]
pub(super) struct Damping {
    /// Until when each of the latest falls counts, in a ring.
    falls: [Option<Instant>; FALLS_MAX],
    next: usize,
    ever: u64,
}

impl Damping {
    pub(super) const fn new() -> Self {
        Self {
            falls: [None; FALLS_MAX],
            next: 0,
            ever: 0,
        }
    }

    pub(super) fn fell(&mut self, now: Instant) {
        self.fell_ago(Duration::ZERO, now);
    }

    /// It fell before, perhaps in another process. Older falls first.
    pub(super) fn fell_ago(&mut self, age: Duration, now: Instant) {
        if let Some(place) = self.falls.get_mut(self.next) {
            *place = Some(now + WINDOW.saturating_sub(age));
        }
        self.next = (self.next + 1) % FALLS_MAX;
        self.ever += 1;
    }

    /// Falls since it was made, those before included.
    pub(super) const fn falls_ever(&self) -> u64 {
        self.ever
    }

    /// How long ago each fall was that counts.
    pub(super) fn ages(&self, now: Instant) -> impl Iterator<Item = Duration> + '_ {
        let counts = self
            .falls
            .iter()
            .flatten()
            .filter(move |until| now < **until);
        counts.map(move |until| WINDOW.saturating_sub(until.saturating_duration_since(now)))
    }

    /// `base`, doubled for each fall within the hour, `longest` at most.
    pub(super) fn need(&self, base: Duration, longest: Duration, now: Instant) -> Duration {
        let falls = self.ages(now).count();
        let doublings = u32::try_from(falls).unwrap_or(u32::MAX);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        base.saturating_mul(factor).min(longest.max(base))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::*;

    const BASE: Duration = Duration::from_secs(10);
    const LONGEST: Duration = Duration::from_secs(300);

    #[test]
    fn doubles_with_each_fall_of_the_hour_up_to_the_longest() {
        let start = start();
        let mut damping = Damping::new();
        let mut needs = Vec::new();
        for fall in 0..40u32 {
            let now = start + Duration::from_secs(fall.into());
            needs.push(damping.need(BASE, LONGEST, now).as_secs());
            damping.fell(now);
        }
        assert_eq!(needs[..7], [10, 20, 40, 80, 160, 300, 300]);
        assert!(needs[7..].iter().all(|need| *need == 300));
        let later = start + WINDOW + Duration::from_secs(40);
        assert_eq!(damping.need(BASE, LONGEST, later), BASE, "forgotten");
    }
}
