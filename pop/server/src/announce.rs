//! Announcing the VIPs, and draining: one thread that looks at the workers, lets two state machines decide, and makes it so.
//!
//! ```text
//!  workers ──turns, links, packets (no lock)──► ┌───────────────────────────┐ ──route, metric──► kernel ──► BIRD
//!  control runtime: permits, order, flow cache ─► announce thread, 50 times  │ ──flush, hold────► workers
//!  SIGTERM ─────────────────────────────────────► a second                   │ ──status─────────► admin HTTP, metrics
//!                                               └───────────────────────────┘
//! ```
//!
//! The thread waits for nobody: it reads cells, and takes a lock only when it is free. A control runtime that hangs cannot keep a dead
//! data plane announced. Should this thread end by a fault, the process does, and with it device and routes.
//!
//! What is not here: when to announce and what a drain waits for (`pop_proto`), and what BIRD makes of a route (`topology::bird`).

mod clerk;
mod keeper;
mod metrics;
mod orders;
mod permit;
mod plane;
mod signpost;
mod status;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pop_proto::announce::Announce;
use pop_proto::drain::{Drain, DrainConfig, Flush, Sight, Step};
use runtime::clock;
use runtime::node::{ConfigHandle, NodeContext, Shutdown, State};
use runtime::poll::{Poller, Waker};
use runtime::thread::spawn_worker;
use runtime::watch::Heart;
use topology::Pop;

use crate::flow_cache::{FlowCache, State as CacheState, Status as CacheStatus, StoresSeen};
use crate::ingress::Addresses;
use crate::state::Board;

use metrics::Metrics;
use plane::{Plane, linger};

pub(crate) use orders::{Orders, routes};
pub(crate) use status::{AnnounceView, Status};

/// How often it looks: often enough that a stall is noticed not much later than it counts.
const LOOK: Duration = Duration::from_millis(20);
/// A PoP that announces nothing only drains.
const LOOK_RARELY: Duration = Duration::from_millis(100);
/// How long a drained PoP without anycast waits for what comes late.
const LINGER: Duration = Duration::from_secs(5);

/// What the announcements of a PoP are made with, before its thread runs.
pub(crate) struct Announcing {
    thread: Thread,
}

struct Thread {
    /// Without it nobody withdraws, so the service manager is not to believe that the process lives.
    heart: Heart,
    config: ConfigHandle,
    /// Of the configuration that is in use here.
    generation: u64,
    board: Arc<Board>,
    status: Arc<Status>,
    orders: Arc<Orders>,
    shutdown: Shutdown,
    waker: Waker,
    metrics: Metrics,
    drain: Drain,
    /// What this process has ordered to be flushed.
    cache: Option<Cache>,
    /// The step the drain was in.
    step: Step,
    anycast: Option<Plane>,
}

struct Cache {
    status: Arc<CacheStatus>,
    stores: StoresSeen,
    failed_before: u64,
    /// Stores that had been said when every worker had flushed: later ones are of traffic that goes on.
    noted: Option<u64>,
}

impl Announcing {
    /// Makes the device, with nothing announced.
    ///
    /// # Errors
    /// [`runtime::node::Refused`] when this process may not change routes; or the device is taken.
    pub(crate) fn prepare(
        context: &NodeContext,
        pop: &Pop,
        addresses: &Addresses,
        board: &Arc<Board>,
        cache: Option<&FlowCache>,
    ) -> anyhow::Result<Self> {
        let config = context.config.load();
        let now = clock::now();
        let anycast = config.topology.anycast_of(pop);
        let plane = anycast
            .map(|anycast| Plane::new(context, (pop, anycast), addresses, now))
            .transpose()?;
        let waker = Waker::new().context("waker")?;
        context.shutdown.register(&waker);
        let census = plane.as_ref().map(|plane| plane.office.census());
        let orders = Arc::new(Orders::open(context, census, waker.clone())?);
        let linger = anycast.map_or(LINGER, linger);
        let mut drain = Drain::new(
            DrainConfig {
                anycast: plane.is_some(),
                linger,
            },
            now,
        );
        if orders.drains() {
            tracing::warn!(
                "an order to drain is in force: nothing is announced until `firsthop undrain`"
            );
            drain.handle_resumed(now);
        }
        board.vitals.hold(plane.is_some());
        let thread = Thread {
            heart: context.watch.part("announce"),
            config: context.config.clone(),
            generation: config.generation,
            status: Arc::new(Status::new(anycast, addresses, now)),
            board: Arc::clone(board),
            orders,
            shutdown: context.shutdown.clone(),
            waker,
            metrics: Metrics::new(&context.metrics, plane.is_some()),
            step: drain.step(),
            drain,
            cache: cache.map(|cache| Cache {
                status: cache.status(),
                stores: cache.stores(),
                failed_before: 0,
                noted: None,
            }),
            anycast: plane,
        };
        Ok(Self { thread })
    }

    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.thread.status)
    }

    pub(crate) fn orders(&self) -> Arc<Orders> {
        Arc::clone(&self.thread.orders)
    }

    /// Runs until the node has stopped, or all its workers have ended.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(crate) fn start(self) -> std::io::Result<JoinHandle<()>> {
        spawn_worker("announce", None, move || self.thread.run())
    }
}

impl Cache {
    /// `None` while nobody can tell.
    fn is_up(&self) -> Option<bool> {
        let state = self.status.state_now()?;
        Some(state == CacheState::Up)
    }
}

impl Thread {
    fn run(mut self) {
        let mut poller = Poller::new();
        let look = if self.anycast.is_some() {
            LOOK
        } else {
            LOOK_RARELY
        };
        while !self.ends() {
            self.heart.beat();
            self.look(clock::now());
            let ready = poller.wait(&[self.waker.as_fd()], Some(look));
            if ready.is_ok_and(|ready| !ready.is_none()) {
                self.waker.drain();
            }
        }
        let as_told = self.shutdown.state() != State::Running;
        if let Some(plane) = self.anycast.take() {
            plane.end(as_told, clock::now());
        }
    }

    fn ends(&self) -> bool {
        self.shutdown.state() == State::Stopped || self.board.vitals.ended()
    }

    fn look(&mut self, now: Instant) {
        self.follow_config(now);
        self.follow_orders(now);
        let sight = self.sight();
        self.drain.handle_sight(sight, now);
        if let Some(plane) = &mut self.anycast {
            plane.look(&self.board, self.cache.as_ref(), &self.drain, now);
        }
        self.note_step(now);
        self.metrics.show(
            &self.drain,
            self.anycast
                .as_ref()
                .map(|it| (&it.announcer, it.signpost.shown())),
            now,
        );
        self.status.show(
            &self.drain,
            self.anycast.as_ref(),
            self.orders.drains(),
            now,
        );
    }

    /// Takes over what a reload may change.
    fn follow_config(&mut self, now: Instant) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        if let (Some(plane), Some(anycast)) = (&mut self.anycast, &config.topology.network.anycast)
        {
            plane.follow(anycast, now);
            self.drain.set_linger(linger(anycast));
        }
    }

    /// What an operator orders, and the end of the process, which is the same but for its being undone.
    fn follow_orders(&mut self, now: Instant) {
        let ends = match self.shutdown.state() {
            State::Running => false,
            State::Draining { .. } | State::Stopped => self.anycast.is_some(),
        };
        let was = self.drain.step();
        if ends || self.orders.drains() {
            self.drain.handle_drain(now);
        } else {
            self.drain.handle_undrain(now);
        }
        if was == Step::Serving && self.drain.step() == Step::Flush {
            self.board.vitals.order_flush();
            if let Some(cache) = &mut self.cache {
                cache.failed_before = cache.stores.ended().1;
                cache.noted = None;
            }
        }
        self.orders
            .show_draining(self.drain.step() != Step::Serving);
        // A process that ends does so in its own way, once the drain is over.
        self.board
            .vitals
            .hold(self.anycast.is_some() && self.drain.step() != Step::Done);
    }

    fn sight(&mut self) -> Sight {
        let flush = self.flush();
        let figures = self.board.vitals.figures();
        let announce = self
            .anycast
            .as_ref()
            .map_or(Announce::Withdrawn, |plane| plane.signpost.shown());
        Sight {
            flush,
            announce,
            vip_packets: figures.vip_packets,
            lost: figures.lost,
            flows: figures.flows,
        }
    }

    fn flush(&mut self) -> Flush {
        let Some(cache) = &mut self.cache else {
            return Flush::NoCache;
        };
        let Some(unstored) = self.board.vitals.flush_over() else {
            return Flush::Running { left: 0 };
        };
        let noted = *cache.noted.get_or_insert_with(|| cache.stores.said());
        let (ended, failed) = cache.stores.ended();
        match noted.saturating_sub(ended) {
            0 => Flush::Over {
                unstored: unstored + failed.saturating_sub(cache.failed_before),
            },
            left => Flush::Running {
                left: left + unstored,
            },
        }
    }

    fn note_step(&mut self, now: Instant) {
        let step = self.drain.step();
        if std::mem::replace(&mut self.step, step) == step {
            return;
        }
        let after = self.drain.passed().last();
        let effect = after.map_or("", |passed| passed.effect.as_str());
        let (before_pps, now_pps) = self.drain.traffic_pps(now);
        tracing::info!(
            step = step.as_str(),
            effect,
            before_pps,
            now_pps,
            lost = self.drain.lost(),
            flows_left = self.drain.flows_left(),
            "drain"
        );
    }
}
