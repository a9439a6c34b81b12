//! How late packets left the emulator: a histogram of fixed size, so that it costs nothing to keep.

use std::time::Duration;

use serde::Serialize;

/// Width of a bucket.
const BUCKET: Duration = Duration::from_micros(10);
/// Buckets; the last one holds whatever is later.
const BUCKETS: usize = 1024;

/// See the module head.
#[derive(Clone, Debug)]
pub struct Lateness {
    buckets: Box<[u64]>,
    count: u64,
}

/// What a histogram says, in microseconds: upper bounds of 10 µs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Packets.
    pub count: u64,
    /// Half of them were no later.
    pub p50_us: u64,
    /// 99 % were no later.
    pub p99_us: u64,
    /// 99.9 % were no later.
    pub p999_us: u64,
    /// Share that was no more than 0.3 ms late.
    pub within_300_us: f64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            buckets: vec![0; BUCKETS].into(),
            count: 0,
        }
    }
}

impl Lateness {
    /// A packet left so long after it was due.
    pub fn add(&mut self, late: Duration) {
        let bucket = late.as_nanos() / BUCKET.as_nanos();
        let bucket = usize::try_from(bucket).unwrap_or(usize::MAX);
        if let Some(count) = self.buckets.get_mut(bucket.min(BUCKETS - 1)) {
            *count += 1;
        }
        self.count += 1;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets.fill(0);
        self.count = 0;
    }

    /// Packets counted.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The time that `per_mille` of the packets did not exceed, rounded up to a bucket; zero without packets.
    #[must_use]
    pub fn quantile(&self, per_mille: u32) -> Duration {
        let wanted = (self.count * u64::from(per_mille)).div_ceil(1000);
        let mut seen = 0;
        let full = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        match full {
            Some(bucket) if wanted > 0 => {
                BUCKET.saturating_mul(u32::try_from(bucket + 1).unwrap_or(u32::MAX))
            }
            Some(_) | None => Duration::ZERO,
        }
    }

    /// Share of packets no later than `time`; all without packets.
    #[must_use]
    pub fn share_within(&self, time: Duration) -> f64 {
        if self.count == 0 {
            return 1.0;
        }
        let whole = usize::try_from(time.as_nanos() / BUCKET.as_nanos()).unwrap_or(usize::MAX);
        let within: u64 = self.buckets.iter().take(whole).sum();
        within as f64 / self.count as f64
    }

    /// The figures people look at.
    #[must_use]
    pub fn summary(&self) -> Summary {
        let us =
            |per_mille| u64::try_from(self.quantile(per_mille).as_micros()).unwrap_or(u64::MAX);
        Summary {
            count: self.count,
            p50_us: us(500),
            p99_us: us(990),
            p999_us: us(999),
            within_300_us: self.share_within(Duration::from_micros(300)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_bounds_and_the_last_bucket_holds_the_rest() {
        let mut lateness = Lateness::default();
        assert_eq!(lateness.quantile(500), Duration::ZERO);
        for us in 0..1000 {
            lateness.add(Duration::from_micros(us));
        }
        let us = Duration::from_micros;
        assert_eq!(lateness.quantile(500), us(500));
        assert_eq!(lateness.quantile(991), us(1000));
        assert!((lateness.share_within(us(300)) - 0.3).abs() < 1e-9);
        lateness.add(Duration::from_secs(9));
        assert_eq!(lateness.quantile(1000), us(10_240));
        lateness.clear();
        assert_eq!(lateness.count(), 0);
    }
}
