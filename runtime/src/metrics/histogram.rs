//! Histograms: one counter per bucket and a running sum, written without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A distribution.
#[derive(Clone, Debug)]
pub struct Histogram(pub(super) Arc<Cells>);

impl Histogram {
    /// Counts one value, from any thread.
    pub fn record(&self, value: f64) {
        self.0.record(value);
    }
}

#[derive(Debug)]
pub(super) struct Cells {
    buckets: &'static [f64],
    /// One per bucket, and one for what lies above them all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Cells {
    pub(super) fn new(buckets: &'static [f64]) -> Self {
        debug_assert!(buckets.is_sorted(), "bucket bounds ascend");
        Self {
            buckets,
            counts: (0..=buckets.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0f64.to_bits()),
        }
    }

    fn record(&self, value: f64) {
        let index = self.buckets.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // The closure never answers `None`, so the update cannot fail.
        let _ = self
            .sum
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// The sum of several cells at one time; `counts` are per bucket, not cumulative.
pub(super) struct Snapshot {
    pub(super) buckets: &'static [f64],
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
}

impl Snapshot {
    pub(super) fn empty(buckets: &'static [f64]) -> Self {
        Self {
            buckets,
            counts: vec![0; buckets.len() + 1],
            sum: 0.0,
        }
    }

    pub(super) fn merge(&mut self, cells: &Cells) {
        for (count, cell) in self.counts.iter_mut().zip(&cells.counts) {
            *count += cell.load(Ordering::Relaxed);
        }
        self.sum += f64::from_bits(cells.sum.load(Ordering::Relaxed));
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
