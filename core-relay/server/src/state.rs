//! What workers share: what `/state` shows (each worker writes its part a few times a second, HTTP reads them all), and
//! when any of them last forwarded anything.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// One place for each worker.
pub(crate) struct Board {
    node: String,
    region: String,
    workers: Vec<Mutex<WorkerState>>,
    pub(crate) activity: Activity,
}

/// When any worker last forwarded anything, so that draining workers end together: a PoP spreads its clients over all
/// workers, and as long as one of them is needed, each may be.
pub(crate) struct Activity {
    base: Instant,
    last_us: AtomicU64,
}

impl Activity {
    pub(crate) const fn new(now: Instant) -> Self {
        Self {
            base: now,
            last_us: AtomicU64::new(0),
        }
    }

    /// A worker last forwarded at `at`. Returns when any did.
    pub(crate) fn note(&self, at: Instant) -> Instant {
        let at_us = at.saturating_duration_since(self.base).as_micros();
        let at_us = u64::try_from(at_us).unwrap_or(u64::MAX);
        let others_us = self.last_us.fetch_max(at_us, Ordering::Relaxed);
        self.base + Duration::from_micros(others_us.max(at_us))
    }
}

/// One worker as `/state` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WorkerState {
    pub(crate) worker: u8,
    pub(crate) draining: bool,
    pub(crate) records_up: u64,
    pub(crate) records_down: u64,
    pub(crate) drops: u64,
    pub(crate) links_refused: u64,
    pub(crate) config_generation: u64,
    pub(crate) links: Vec<LinkView>,
}

/// One link as `/state` shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LinkView {
    pub(crate) pop: String,
    /// Worker of the PoP.
    pub(crate) worker: u8,
    pub(crate) up: bool,
    pub(crate) draining: bool,
    pub(crate) rtt_us: u32,
    pub(crate) jitter_us: u32,
    /// From the PoP to us.
    pub(crate) loss_ppm: u32,
    /// From us to the PoP.
    pub(crate) peer_loss_ppm: u32,
    /// How often it came up.
    pub(crate) ups: u64,
    pub(crate) datagrams_up: u64,
    pub(crate) datagrams_down: u64,
}

#[derive(Serialize)]
struct View {
    node: String,
    region: String,
    workers: Vec<WorkerState>,
}

impl Board {
    pub(crate) fn new(node: &str, region: &str, workers: u8, now: Instant) -> Self {
        let place = |worker| {
            Mutex::new(WorkerState {
                worker,
                ..WorkerState::default()
            })
        };
        Self {
            node: node.to_owned(),
            region: region.to_owned(),
            workers: (0..workers).map(place).collect(),
            activity: Activity::new(now),
        }
    }

    /// Shows a worker's state. A reader at the same moment wins, and the worker shows its state next time: it never waits.
    pub(crate) fn show(&self, state: WorkerState) {
        if let Some(place) = self.workers.get(usize::from(state.worker))
            && let Ok(mut place) = place.try_lock()
        {
            *place = state;
        }
    }

    /// Links that are up.
    pub(crate) fn links_up(&self) -> u64 {
        let up = |place: &Mutex<WorkerState>| {
            let state = place.lock().unwrap_or_else(PoisonError::into_inner);
            state.links.iter().filter(|link| link.up).count()
        };
        let up: usize = self.workers.iter().map(up).sum();
        u64::try_from(up).unwrap_or(u64::MAX)
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        let read = |place: &Mutex<WorkerState>| {
            place.lock().unwrap_or_else(PoisonError::into_inner).clone()
        };
        let view = View {
            node: self.node.clone(),
            region: self.region.clone(),
            workers: self.workers.iter().map(read).collect(),
        };
        serde_json::to_value(view).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_is_the_latest_of_all_workers() {
        let now = runtime::clock::now();
        let activity = Activity::new(now);
        let later = now + Duration::from_millis(5);
        assert_eq!(activity.note(now), now);
        assert_eq!(activity.note(later), later);
        assert_eq!(activity.note(now), later);
    }
}
