//! What workers share: what `/state` and `/readyz` show (each worker writes its part a few times a second, HTTP reads
//! them all), and when they have drained.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

use crate::announce::AnnounceView;
use crate::drain::Drain;
use crate::flow_cache::{CacheView, Status};
use crate::vitals::Vitals;

/// One place for each worker.
pub(crate) struct Board {
    node: String,
    ingress: Vec<SocketAddr>,
    workers: Vec<Mutex<WorkerState>>,
    cache: Option<Arc<Status>>,
    pub(crate) drain: Drain,
    pub(crate) vitals: Vitals,
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
    pub(crate) flows_by_cache: u64,
    pub(crate) flows_expired: u64,
    pub(crate) flows_ended: u64,
    /// Questions to the flow cache, so far and without an answer yet, and packets held meanwhile.
    pub(crate) questions: u64,
    pub(crate) questions_open: u64,
    pub(crate) packets_held: u64,
    /// Round trips of clients that were timed.
    pub(crate) rtt_samples: u64,
    pub(crate) owner_rtts: Vec<OwnerRtt>,
    pub(crate) packets_up: u64,
    pub(crate) packets_down: u64,
    pub(crate) drops: u64,
    pub(crate) config_generation: u64,
    pub(crate) links: Vec<LinkView>,
}

/// The least of the latest round trips to the transceivers of a region and back.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct OwnerRtt {
    pub(crate) region: String,
    pub(crate) rtt_us: u32,
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
    /// It is up, and one end does not hear the other lately.
    pub(crate) suspect: bool,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    announce: Option<AnnounceView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_cache: Option<CacheView>,
    workers: Vec<WorkerState>,
}

impl Board {
    pub(crate) fn new(
        node: &str,
        ingress: Vec<SocketAddr>,
        (workers, now): (u8, Instant),
        cache: Option<Arc<Status>>,
    ) -> Self {
        Self {
            node: node.to_owned(),
            ingress,
            workers: (0..workers)
                .map(|worker| {
                    Mutex::new(WorkerState {
                        worker,
                        ..WorkerState::default()
                    })
                })
                .collect(),
            cache,
            drain: Drain::new(workers, now),
            vitals: Vitals::new(workers),
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

    /// Ready when every worker has a link: the kernel gives each of them its share of the clients. A region that cannot be
    /// reached is told, but keeps nobody from the clients of the others.
    pub(crate) fn ready(&self) -> Result<String, String> {
        let mut cut_off = String::new();
        for worker in self.read() {
            if !worker.links.iter().any(|link| link.up) {
                return Err(format!("worker {} has no link that is up", worker.worker));
            }
            for region in unreachable(&worker.links) {
                cut_off.push_str(&format!(
                    "worker {} has no link to region {region}\n",
                    worker.worker
                ));
            }
        }
        Ok(cut_off)
    }

    pub(crate) fn to_json(&self, announce: Option<AnnounceView>) -> serde_json::Value {
        let view = View {
            node: self.node.clone(),
            ingress: self.ingress.clone(),
            announce,
            flow_cache: self.cache.as_ref().map(|cache| cache.view()),
            workers: self.read().collect(),
        };
        serde_json::to_value(view).unwrap_or_default()
    }

    pub(crate) fn read(&self) -> impl Iterator<Item = WorkerState> + '_ {
        self.workers
            .iter()
            .map(|place| place.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// Regions none of whose links is up, each once.
fn unreachable(links: &[LinkView]) -> BTreeSet<&str> {
    let regions = links.iter().map(|link| link.region.as_str());
    let reached = |region: &str| links.iter().any(|link| link.up && link.region == region);
    regions.filter(|region| !reached(region)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(region: &str, up: bool) -> LinkView {
        LinkView {
            relay: "r1".to_owned(),
            relay_worker: 0,
            region: region.to_owned(),
            up,
            carries_uplink: up,
            draining: false,
            suspect: false,
            rtt_us: 0,
            jitter_us: 0,
            loss_ppm: 0,
            peer_loss_ppm: 0,
        }
    }

    #[test]
    fn a_region_without_a_link_is_told_and_a_worker_without_any_is_not_ready() {
        let board = Board::new("p1", Vec::new(), (1, runtime::clock::now()), None);
        let show = |links| {
            let (worker, state) = (0, WorkerState::default());
            board.show(WorkerState {
                worker,
                links,
                ..state
            });
            board.ready()
        };
        assert!(show(Vec::new()).is_err());
        assert!(show(vec![link("eu", false), link("us", false)]).is_err());
        let all = vec![link("eu", false), link("eu", true), link("us", true)];
        assert_eq!(show(all), Ok(String::new()));
        let told = show(vec![link("eu", true), link("us", false), link("us", false)]);
        assert_eq!(told, Ok("worker 0 has no link to region us\n".to_owned()));
    }
}
