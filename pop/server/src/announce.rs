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

mod metrics;
mod orders;
mod permit;
mod signpost;
mod status;

use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pop_proto::announce::{Announce, AnnounceConfig, Announcer, Stalls};
use pop_proto::drain::{Drain, DrainConfig, Flush, Sight, Step};
use runtime::clock;
use runtime::log_limit::LogLimit;
use runtime::node::{NodeContext, Refused, Shutdown, State};
use runtime::poll::{Poller, Waker};
use runtime::thread::spawn_worker;
use topology::{Anycast, Pop};

use crate::flow_cache::{FlowCache, State as CacheState, Status as CacheStatus, StoresSeen};
use crate::ingress::Addresses;
use crate::state::Board;

use metrics::Metrics;
use permit::Office;
use signpost::Signpost;

pub(crate) use orders::{Orders, routes};
pub(crate) use status::{AnnounceView, Status};

/// How often it looks: often enough that a stall is noticed not much later than it counts.
const LOOK: Duration = Duration::from_millis(20);
/// A PoP that announces nothing only drains.
const LOOK_RARELY: Duration = Duration::from_millis(100);
/// How long a drained PoP without anycast waits for what comes late.
const LINGER: Duration = Duration::from_secs(5);
/// How often it looks whether each VIP is on an interface.
const VIPS_INTERVAL: Duration = Duration::from_secs(1);
/// Lines about a device or route that could not be made in [`LOG_INTERVAL`].
const LOG_LINES_MAX: u32 = 3;
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What the announcements of a PoP are made with, before its thread runs.
pub(crate) struct Announcing {
    thread: Thread,
}

struct Thread {
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

/// Of a PoP that announces.
struct Plane {
    announcer: Announcer,
    stalls: Stalls,
    office: Office,
    signpost: Signpost,
    addresses: Addresses,
    vip_missing: bool,
    vips_at: Instant,
    log: LogLimit,
    told: Announce,
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
    /// [`Refused`] when this process may not change routes; or the device is taken.
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
        let orders = Arc::new(Orders::open(context, waker.clone()));
        let linger = anycast.map_or(LINGER, |it| Duration::from_secs(it.linger_s.into()));
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

impl Plane {
    fn new(
        context: &NodeContext,
        (pop, anycast): (&Pop, &Anycast),
        addresses: &Addresses,
        now: Instant,
    ) -> anyhow::Result<Self> {
        let config = AnnounceConfig {
            up_after: Duration::from_secs(anycast.up_after_s.into()),
            up_after_max: Duration::from_secs(anycast.up_after_max_s.into()),
            min_announced: anycast.min_announced.into(),
            cover: !anycast.cover.is_empty(),
        };
        let signpost = Signpost::raise(anycast).map_err(not_raised)?;
        let stalled_after = Duration::from_millis(anycast.stalled_after_ms.into());
        Ok(Self {
            announcer: Announcer::new(config, now),
            stalls: Stalls::new(stalled_after, 2 * LOOK, now),
            office: Office::open(context, pop)?,
            signpost,
            addresses: addresses.clone(),
            vip_missing: false,
            vips_at: now,
            log: LogLimit::new(LOG_LINES_MAX, LOG_INTERVAL),
            told: Announce::Withdrawn,
        })
    }

    /// Looks at everything, decides, and makes it so.
    fn look(&mut self, board: &Board, cache: Option<&Cache>, drain: &Drain, now: Instant) {
        self.look_for_vips(now);
        let announcer = &mut self.announcer;
        let stalled = self.stalls.look(board.vitals.turns(), now);
        announcer.handle_stalled(stalled.is_some(), now);
        announcer.handle_reach(board.vitals.reach(), now);
        announcer.handle_order(drain.order(), now);
        if let Some(up) = cache.and_then(Cache::is_up) {
            announcer.handle_flow_cache(up, now);
        }
        if let Some(said) = self.office.said() {
            announcer.handle_permit(said.permit, now);
            announcer.handle_peers(said.peers, now);
        }
        announcer.handle_timeout(now);
        self.show(now);
        let announcer = &self.announcer;
        self.office.tell(
            announcer.wants_permit(),
            self.signpost.shown(),
            announcer.is_ready(),
        );
    }

    /// Makes the routes what has been decided, and hears whether they are.
    fn show(&mut self, now: Instant) {
        let wanted = self.announcer.announce();
        let shown = self.signpost.show(wanted, now);
        if let Err(error) = &shown
            && let Some(unlogged) = self.log.admit(now)
        {
            tracing::warn!(%error, unlogged, "routes to BIRD: nothing is announced, it is tried again later");
        }
        if shown.is_err() || wanted != Announce::Withdrawn {
            self.announcer.handle_shown(shown.is_ok(), now);
        }
        self.say(self.signpost.shown());
    }

    /// What came for a VIP that is on no interface would be answered by nobody.
    fn look_for_vips(&mut self, now: Instant) {
        if now < self.vips_at {
            return;
        }
        self.vips_at = now + VIPS_INTERVAL;
        let missing = self.addresses.vips_missing().next();
        let was = std::mem::replace(&mut self.vip_missing, missing.is_some());
        self.announcer.handle_vip_missing(missing.is_some(), now);
        if let Some(vip) = missing.filter(|_| !was)
            && let Some(unlogged) = self.log.admit(now)
        {
            tracing::warn!(%vip, unlogged, "this VIP is on no interface of this host, so nothing is announced: put it on lo");
        }
    }

    /// What is announced, and why, as often as it changes. Damping bounds how often that is.
    fn say(&mut self, announce: Announce) {
        if self.told == announce {
            return;
        }
        self.told = announce;
        let reason = self
            .announcer
            .reason()
            .map_or("well", |reason| reason.as_str());
        let announce = announce.as_str();
        match self.told {
            Announce::Up => tracing::info!(announce, reason, "VIPs"),
            Announce::Draining | Announce::Withdrawn => tracing::warn!(announce, reason, "VIPs"),
        }
    }
}

/// Why a PoP cannot begin.
fn not_raised(error: std::io::Error) -> anyhow::Error {
    let device = signpost::DEVICE;
    if error.kind() == ErrorKind::PermissionDenied {
        let text = "network.anycast needs the right to make a device and routes (CAP_NET_ADMIN, /dev/net/tun)";
        return anyhow::Error::new(Refused(format!("{text}: {error}")));
    }
    let why = if error.kind() == ErrorKind::ResourceBusy {
        ": it is there already, held by another process or made to outlive one, and routes through it would outlive this one"
    } else {
        ""
    };
    anyhow::Error::new(error).context(format!("device {device} for routes to BIRD{why}"))
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
            self.look(clock::now());
            let ready = poller.wait(&[self.waker.as_fd()], Some(look));
            if ready.is_ok_and(|ready| !ready.is_none()) {
                self.waker.drain();
            }
        }
        // With the device, which this thread owns, the routes go.
    }

    fn ends(&self) -> bool {
        self.shutdown.state() == State::Stopped || self.board.vitals.ended()
    }

    fn look(&mut self, now: Instant) {
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
