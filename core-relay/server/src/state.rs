//! What `/state` shows: each worker writes its part a few times a second, HTTP reads them all.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// One place for each worker.
pub(crate) struct Board {
    node: String,
    region: String,
    workers: Vec<Mutex<WorkerState>>,
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
    pub(crate) fn new(node: &str, region: &str, workers: u8) -> Self {
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
