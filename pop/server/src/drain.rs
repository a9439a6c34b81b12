//! When a draining PoP is done: its workers decide it together and end together. The kernel spreads clients over the
//! sockets of all workers by their number, so one that left early would move the clients of the others to workers that
//! do not have their flows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A draining PoP ends when nothing was forwarded for this long: two missed consent checks (RFC 7675 §5.1).
const DRAIN_IDLE: Duration = Duration::from_secs(10);
/// Flows of a worker that does not drain yet: some.
const FLOWS_UNKNOWN: u64 = u64::MAX;

/// What draining workers share.
pub(crate) struct Drain {
    /// What `forwarded_us` counts from.
    base: Instant,
    /// When any draining worker last forwarded anything, or began to drain.
    forwarded_us: AtomicU64,
    /// Flows of each worker.
    flows: Vec<AtomicU64>,
    /// A worker has found that the PoP is done; that holds for all.
    done: AtomicBool,
}

impl Drain {
    pub(crate) fn new(workers: u8, now: Instant) -> Self {
        Self {
            base: now,
            forwarded_us: AtomicU64::new(0),
            flows: (0..workers)
                .map(|_| AtomicU64::new(FLOWS_UNKNOWN))
                .collect(),
            done: AtomicBool::new(false),
        }
    }

    /// A draining worker's own figures. Returns when any worker last forwarded.
    pub(crate) fn note(&self, worker: u8, flows: u64, forwarded: Instant) -> Instant {
        if let Some(place) = self.flows.get(usize::from(worker)) {
            place.store(flows, Ordering::Relaxed);
        }
        let us = forwarded.saturating_duration_since(self.base).as_micros();
        let us = u64::try_from(us).unwrap_or(u64::MAX);
        let others_us = self.forwarded_us.fetch_max(us, Ordering::Relaxed);
        self.base + Duration::from_micros(others_us.max(us))
    }

    /// When the PoP is done if nothing is forwarded after `forwarded`.
    pub(crate) fn idle_at(forwarded: Instant) -> Instant {
        forwarded + DRAIN_IDLE
    }

    /// Whether every worker is to end: no worker has a flow, or none has forwarded anything for long. Once it is true it
    /// stays true.
    pub(crate) fn is_done(&self, now: Instant, forwarded: Instant) -> bool {
        let flows = |place: &AtomicU64| place.load(Ordering::Relaxed);
        let done = self.done.load(Ordering::Relaxed)
            || now >= Self::idle_at(forwarded)
            || self.flows.iter().map(flows).all(|flows| flows == 0);
        if done {
            self.done.store(true, Ordering::Relaxed);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_secs(1);

    #[test]
    fn a_worker_without_flows_waits_for_the_others() {
        let now = runtime::clock::now();
        let drain = Drain::new(2, now);
        let forwarded = drain.note(0, 0, now);
        assert!(!drain.is_done(now, forwarded), "1 does not drain yet");
        let forwarded = drain.note(1, 3, now);
        assert!(!drain.is_done(now, forwarded));
        drain.note(1, 0, now);
        assert!(drain.is_done(now, forwarded));
    }

    #[test]
    fn an_idle_worker_waits_for_one_that_forwards() {
        let now = runtime::clock::now();
        let drain = Drain::new(2, now);
        assert_eq!(drain.note(0, 1, now), now);
        assert_eq!(drain.note(1, 1, now + STEP), now + STEP);
        let forwarded = drain.note(0, 1, now);
        assert_eq!(forwarded, now + STEP);
        assert!(!drain.is_done(now + DRAIN_IDLE, forwarded));
        assert!(drain.is_done(now + STEP + DRAIN_IDLE, forwarded));
    }

    #[test]
    fn what_is_done_stays_done() {
        let now = runtime::clock::now();
        let drain = Drain::new(2, now);
        let forwarded = drain.note(0, 1, now);
        assert!(drain.is_done(now + DRAIN_IDLE, forwarded));
        let forwarded = drain.note(1, 1, now + DRAIN_IDLE);
        assert!(drain.is_done(now + DRAIN_IDLE, forwarded));
    }
}
