//! What workers share: what `/state` and `/readyz` show (each worker writes its part a few times a second, HTTP reads
//! them all), and when they have drained.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use crate::drain::Drain;

/// One place for each worker.
pub(crate) struct Board {
    node: String,
    ingress: Vec<SocketAddr>,
    workers: Vec<Mutex<WorkerState>>,
    pub(crate) drain: Drain,
}

/// One worker as `/state` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct WorkerState {
    pub(crate) worker: u8,
    pub(crate) draining: bool,
    pub(crate) flows: u64,
    pub(crate) flows_tentative: u64,
    pub(crate) flows_by_hint: u64,
    pub(crate) flows_by_downlink: u64,
    pub(crate) flows_expired: u64,
    pub(crate) flows_ended: u64,
    pub(crate) packets_up: u64,
    pub(crate) packets_down: u64,
    pub(crate) drops: u64,
    pub(crate) config_generation: u64,
    pub(crate) links: Vec<LinkView>,
}

/// One link as `/state` shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LinkView {
    pub(crate) relay: String,
    pub(crate) relay_worker: u8,
    pub(crate) region: String,
    pub(crate) up: bool,
    /// Whether the region's uplink goes here.
    pub(crate) carries_uplink: bool,
    pub(crate) draining: bool,
    pub(crate) rtt_us: u32,
    pub(crate) jitter_us: u32,
    /// From the relay to us.
    pub(crate) loss_ppm: u32,
    /// From us to the relay.
    pub(crate) peer_loss_ppm: u32,
}

#[derive(Serialize)]
struct View {
    node: String,
    ingress: Vec<SocketAddr>,
    workers: Vec<WorkerState>,
}

impl Board {
    pub(crate) fn new(node: &str, ingress: &[SocketAddr], workers: u8, now: Instant) -> Self {
        Self {
            node: node.to_owned(),
            ingress: ingress.to_vec(),
            workers: (0..workers)
                .map(|worker| {
                    Mutex::new(WorkerState {
                        worker,
                        ..WorkerState::default()
                    })
                })
                .collect(),
            drain: Drain::new(workers, now),
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

    /// Ready when every worker has a link: the kernel gives each of them its share of the clients.
    pub(crate) fn ready(&self) -> Result<(), String> {
        for worker in self.read() {
            if !worker.links.iter().any(|link| link.up) {
                return Err(format!("worker {} has no link that is up", worker.worker));
            }
        }
        Ok(())
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        let view = View {
            node: self.node.clone(),
            ingress: self.ingress.clone(),
            workers: self.read().collect(),
        };
        serde_json::to_value(view).unwrap_or_default()
    }

    fn read(&self) -> impl Iterator<Item = WorkerState> + '_ {
        self.workers
            .iter()
            .map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}
