//! What this PoP tells those who steer clients: whether it is ready or drains, its load, its way to each region, and how far its clients are.
//!
//! ```text
//!  worker 0 ─┐ samples (lock-free, bounded)
//!  worker n ─┴──────────────────────────────► one task: medians by prefix ──► state store
//!  board ──── figures, a few times a second ─────────────────────────────────►
//! ```
//!
//! What is not here: how round trips are timed (`pop_proto`), and how the store is reached (`runtime::store`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use ipnet::IpNet;
use pop_proto::{Median, Medians, Sample};
use runtime::clock;
use runtime::metrics::Registry;
use runtime::node::{ConfigHandle, NodeContext, Shutdown, State};
use runtime::store::{
    LinkState, MEDIANS_MAX, PopState, PrefixMedian, Publication, Role, Tell, Told, publish,
};
use tokio::task::JoinHandle;
use topology::Pop;

use crate::announce::Orders;
use crate::state::{Board, WorkerState};

/// Samples of all workers that wait for the task.
const SAMPLES_MAX: usize = 1 << 14;
/// How often they are taken.
const TAKE_INTERVAL: Duration = Duration::from_millis(250);

/// Where workers put the round trips of their clients.
pub(crate) struct Samples {
    queue: ArrayQueue<Sample>,
    dropped: AtomicU64,
}

/// The PoP tells its state, and medians are made, until this is dropped.
pub(crate) struct Evidence {
    task: JoinHandle<()>,
    _publication: Publication,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self {
            queue: ArrayQueue::new(SAMPLES_MAX),
            dropped: AtomicU64::new(0),
        }
    }

    /// Never waits; what finds no place is counted.
    pub(crate) fn push(&self, sample: Sample) {
        if self.queue.push(sample).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Evidence {
    /// Begins to tell.
    ///
    /// # Errors
    /// No random number is left.
    pub(crate) fn start(
        context: &NodeContext,
        pop: &Pop,
        board: &Arc<Board>,
        (samples, orders): (&Arc<Samples>, &Arc<Orders>),
    ) -> anyhow::Result<Self> {
        let medians: Arc<Mutex<Medians>> = Arc::default();
        observe(&context.metrics, &medians, samples);
        let own = Own {
            board: Arc::clone(board),
            shutdown: context.shutdown.clone(),
            orders: Arc::clone(orders),
            config: context.config.clone(),
            flows_max: u64::from(pop.flows_max) * u64::from(pop.workers),
            medians: Arc::clone(&medians),
        };
        let task = context.control.spawn(take(Arc::clone(samples), medians));
        Ok(Self {
            task,
            _publication: publish(context, own)?,
        })
    }
}

impl Drop for Evidence {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn take(samples: Arc<Samples>, medians: Arc<Mutex<Medians>>) {
    loop {
        tokio::time::sleep(TAKE_INTERVAL).await;
        let now = clock::now();
        let mut medians = medians.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than there is place for: workers go on meanwhile.
        for sample in std::iter::from_fn(|| samples.queue.pop()).take(SAMPLES_MAX) {
            medians.take(sample, now);
        }
    }
}

struct Own {
    board: Arc<Board>,
    shutdown: Shutdown,
    orders: Arc<Orders>,
    config: ConfigHandle,
    flows_max: u64,
    medians: Arc<Mutex<Medians>>,
}

impl Tell for Own {
    fn state(&mut self) -> Told {
        let workers: Vec<WorkerState> = self.board.read().collect();
        Told {
            ready: self.board.ready().is_ok(),
            draining: match self.shutdown.state() {
                State::Running => self.orders.is_draining(),
                State::Draining { .. } | State::Stopped => true,
            },
            role: Role::Pop(PopState {
                flows: workers.iter().map(|worker| worker.flows).sum(),
                flows_max: self.flows_max,
                links: links(&workers),
            }),
        }
    }

    fn medians(&mut self) -> Option<Vec<PrefixMedian>> {
        let age_max_s = self.config.load().topology.steering.measured.age_max_s;
        let mut medians = self.medians.lock().unwrap_or_else(PoisonError::into_inner);
        let told = medians.tell(MEDIANS_MAX, age_max_s, clock::now());
        Some(told.into_iter().filter_map(told_median).collect())
    }
}

fn told_median(median: Median) -> Option<PrefixMedian> {
    let (address, len) = median.prefix.network();
    Some(PrefixMedian {
        prefix: IpNet::new(address, len).ok()?,
        rtt_us: median.rtt_us,
        clients: median.clients,
        age_s: median.age_s,
    })
}

/// The way to each region, of what the workers show.
fn links(workers: &[WorkerState]) -> Vec<LinkState> {
    let mut regions: BTreeMap<&str, (bool, Vec<u32>)> = BTreeMap::new();
    for link in workers.iter().flat_map(|worker| &worker.links) {
        let (up, rtts) = regions.entry(&link.region).or_default();
        *up |= link.up;
        if link.up && link.carries_uplink && link.rtt_us > 0 {
            rtts.push(link.rtt_us);
        }
    }
    let owner_rtt_us = |region: &str| {
        let told = workers.iter().flat_map(|worker| &worker.owner_rtts);
        told.filter(|told| told.region == region)
            .map(|told| told.rtt_us)
            .min()
    };
    let each = regions.into_iter().map(|(region, (up, mut rtts))| {
        rtts.sort_unstable();
        LinkState {
            region: region.to_owned(),
            up,
            rtt_us: rtts.get(rtts.len().saturating_sub(1) / 2).copied(),
            owner_rtt_us: owner_rtt_us(region),
        }
    });
    each.collect()
}

fn observe(registry: &Registry, medians: &Arc<Mutex<Medians>>, samples: &Arc<Samples>) {
    let own = Arc::clone(medians);
    registry.observe_gauge(
        "pop.rtt.prefixes",
        "{prefix}",
        "Client prefixes whose round trips are kept.",
        &[],
        move || {
            let kept = own.lock().unwrap_or_else(PoisonError::into_inner).len();
            u32::try_from(kept).map_or(f64::MAX, f64::from)
        },
    );
    let own = Arc::clone(medians);
    registry.observe_counter(
        "pop.rtt.prefixes_evicted",
        "{prefix}",
        "Client prefixes that were forgotten because others came.",
        &[],
        move || own.lock().unwrap_or_else(PoisonError::into_inner).evicted(),
    );
    let own = Arc::clone(samples);
    registry.observe_counter(
        "pop.rtt.samples_dropped",
        "{sample}",
        "Round trips that found no place between workers and the medians.",
        &[("queue", "medians")],
        move || own.dropped.load(Ordering::Relaxed),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{LinkView, OwnerRtt};

    fn link(region: &str, (up, carries_uplink): (bool, bool), rtt_us: u32) -> LinkView {
        LinkView {
            relay: "r1".to_owned(),
            relay_worker: 0,
            region: region.to_owned(),
            up,
            carries_uplink,
            draining: false,
            suspect: false,
            rtt_us,
            jitter_us: 0,
            loss_ppm: 0,
            peer_loss_ppm: 0,
        }
    }

    #[test]
    fn a_region_is_as_far_as_the_links_in_use() {
        let worker = |links, owner_rtt_us| WorkerState {
            links,
            owner_rtts: vec![OwnerRtt {
                region: "eu".to_owned(),
                rtt_us: owner_rtt_us,
            }],
            ..WorkerState::default()
        };
        let first = worker(
            vec![
                link("eu", (true, true), 900),
                link("eu", (true, false), 1),
                link("us", (false, false), 5),
            ],
            950,
        );
        let second = worker(
            vec![link("eu", (true, true), 800), link("us", (true, true), 0)],
            840,
        );
        let third = worker(vec![link("eu", (true, true), 5000)], 5000);
        let told = links(&[first, second, third]);
        let of = |region: &str, up, rtt_us, owner_rtt_us| LinkState {
            region: region.to_owned(),
            up,
            rtt_us,
            owner_rtt_us,
        };
        assert_eq!(
            told,
            [
                of("eu", true, Some(900), Some(840)),
                of("us", true, None, None)
            ]
        );
    }

    #[test]
    fn samples_without_a_place_are_counted() {
        let samples = Samples::new();
        let sample = Sample::of(wire::ClientAddr::new(([192, 0, 2, 1], 1).into()), 5);
        for _ in 0..SAMPLES_MAX + 2 {
            samples.push(sample);
        }
        assert_eq!(samples.dropped.load(Ordering::Relaxed), 2);
    }
}
