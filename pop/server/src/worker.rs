//! One worker: a pinned thread with its own sockets, links and flows. Its loop lists its sources in order of priority:
//!
//! 1. what the node is told: stop, drain, another configuration;
//! 2. clients: up to [`BATCHES_MAX`] batches of each ingress address; their records leave when all are taken;
//! 3. the backbone: up to [`BATCHES_MAX`] batches; what is for clients leaves in batches;
//! 4. timers of links and flows; what the flow cache answered, and what it is told;
//! 5. what the links have to send;
//! 6. figures, a few times a second.
//!
//! Then it waits for a socket, a waker or the next timer ([`Pace`]), or not at all while a source had more than its share. It looks only
//! at sockets that the wait said are readable.

mod recover;
mod report;
mod timers;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use core_relay_link::{Congestion, Links, LinksConfig, Tls};
use pop_proto::{Flows, FlowsConfig, Neighbours, Now, RecoveryConfig, Routes};
use runtime::clock;
use runtime::metrics::Registry;
use runtime::node::{Config, ConfigHandle, NodeContext, Shutdown, State};
use runtime::pace::Pace;
use runtime::poll::{Ready, Waker};
use runtime::random;
use runtime::udp::{BindOptions, GRO_SLOT_BYTES, RecvBatch, UdpSocket, send_segments};
use runtime::watch::{Heart, IDLE_TURN_MAX};
use topology::Pop;
use wire::hint::Minute;
use wire::reassembly::Reassembler;
use wire::{ClientAddr, PopId, Tag};

use crate::downlink::DownlinkPath;
use crate::drain::Drain;
use crate::evidence::Samples;
use crate::flow_cache::{FlowCache, Port};
use crate::ingress::Ingress;
use crate::metrics::Metrics;
use crate::regions::{Plan, Regions};
use crate::state::Board;
use crate::uplink::{UplinkPath, WorkerTotals};
use crate::worker::timers::Timers;

/// Places in a wait: the waker, the backbone socket, and from there on the ingress sockets in their order.
const WAKER: usize = 0;
const BACKBONE: usize = 1;
const INGRESS: usize = 2;
/// Batches taken from one socket in a turn.
const BATCHES_MAX: usize = 4;
/// GRO buffers of the backbone socket.
const BACKBONE_SLOTS: usize = 16;
/// Split downlink packets that may be unfinished.
const REASSEMBLY_PACKETS_MAX: u16 = 256;
/// How long a split packet may lack a part: far more than the parts of one packet are ever apart.
const REASSEMBLY_TTL: Duration = Duration::from_millis(250);

/// Between two steps of a flush.
const FLUSH_PAUSE: Duration = Duration::from_millis(1);
/// An idle worker makes so many turns in the time after which a worker that makes none is taken for stalled.
const TURNS_UNTIL_STALLED: u32 = 4;

/// See the module head.
pub(crate) struct Worker {
    name: String,
    index: u8,
    pop: PopId,
    config: ConfigHandle,
    generation: u64,
    shutdown: Shutdown,
    waker: Waker,
    pace: Pace,
    cache: Option<Port>,
    ingress: Ingress,
    backbone: UdpSocket,
    backbone_batch: RecvBatch,
    transmit: Vec<u8>,
    links: Links,
    regions: Regions,
    routes: Routes,
    flows: Flows,
    reassembler: Reassembler,
    totals: WorkerTotals,
    metrics: Metrics,
    registry: Registry,
    board: Arc<Board>,
    samples: Arc<Samples>,
    publish_at: Instant,
    draining: bool,
    last_forwarded: Instant,
    log_limits: report::LogLimits,
    heart: Heart,
    /// An idle worker makes a turn at least so often.
    turn_max: Duration,
    /// The latest flush that was done, and the one under way.
    flushed: u64,
    flushing: Option<u64>,
    /// Flows that flush could not store.
    unstored: u64,
    /// Packets of clients that came to VIPs and were forwarded.
    vip_packets: u64,
}

/// What all workers of a PoP have in common.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    pub(crate) board: &'a Arc<Board>,
    pub(crate) samples: &'a Arc<Samples>,
    pub(crate) cache: Option<&'a FlowCache>,
    pub(crate) neighbours: &'a Arc<Neighbours>,
}

impl Worker {
    pub(crate) fn new(
        context: &NodeContext,
        config: &Config,
        pop: &Pop,
        index: u8,
        ingress: Ingress,
        shared: Shared<'_>,
    ) -> anyhow::Result<Self> {
        let now = clock::now();
        let plan = Plan::new(&config.topology, pop, index);
        let links_config = LinksConfig {
            worker: index,
            link: config.topology.network.link.clone(),
            seed: random::bytes()?,
            congestion: Congestion::default(),
        };
        let mut links = Links::dialer(links_config, tls(config)?, &plan.targets, now);
        let mut regions = Regions::none();
        regions.apply(&plan, &mut links, now);
        let waker = Waker::new().context("waker")?;
        let heart = context.watch.heart(&index.to_string());
        shared.board.vitals.set_turns(index, heart.turns());
        context.shutdown.register(&waker);
        let flows = FlowsConfig {
            flows_max: pop.flows_max,
            hash_seed: random::number()?,
            recovery: recovery(config, pop),
        };
        let mut flows = Flows::new(flows, now).with_neighbours(
            Arc::clone(shared.neighbours),
            pop.workers,
            random::number()?,
            now,
        );
        flows.set_offers(config.topology.network.offer_unknown);
        Ok(Self {
            name: context.name.clone(),
            index,
            pop: pop.pop_id(),
            generation: config.generation,
            config: context.config.clone(),
            shutdown: context.shutdown.clone(),
            cache: shared.cache.map(|cache| cache.port(index, &waker)),
            waker,
            pace: Pace::new((&config.topology.network.worker).into(), now),
            ingress,
            backbone: bind_backbone(pop, &context.metrics)?,
            backbone_batch: RecvBatch::new(BACKBONE_SLOTS, GRO_SLOT_BYTES),
            transmit: Vec::new(),
            links,
            regions,
            routes: routes(config, pop),
            flows,
            reassembler: Reassembler::new(
                REASSEMBLY_PACKETS_MAX,
                REASSEMBLY_TTL,
                random::number()?,
            ),
            totals: WorkerTotals::default(),
            metrics: Metrics::new(&context.metrics),
            registry: context.metrics.clone(),
            board: Arc::clone(shared.board),
            samples: Arc::clone(shared.samples),
            publish_at: now,
            draining: false,
            last_forwarded: now,
            log_limits: report::LogLimits::new(),
            heart,
            turn_max: turn_max(config, pop),
            flushed: 0,
            flushing: None,
            unstored: 0,
            vip_packets: 0,
        })
    }

    /// Runs until the node has stopped, or all its workers have drained.
    pub(crate) fn run(mut self) {
        let mut ready = Ready::ALL;
        loop {
            self.heart.beat();
            let at = moment();
            // 1. what the node is told
            if self.ends(at.instant) {
                break;
            }
            self.follow_config(at.instant);
            // 2. clients
            let mut more = self.take_clients(ready, at);
            // 3. the backbone
            if ready.is_ready(BACKBONE) {
                more |= self.take_backbone(at);
            }
            // 4. timers
            self.timers(at);
            self.recover(at);
            // 5. what the links have to send
            self.send_links(at.instant);
            // 6. figures
            self.publish(at.instant);
            ready = if more {
                Ready::ALL
            } else {
                self.wait(at.instant)
            };
        }
        // Those that wait learn at once that the PoP has drained.
        self.shutdown.wake_all();
        let now = clock::now();
        self.links.close(now);
        self.send_links(now);
        self.publish_at = now;
        self.publish(now);
    }

    fn ends(&mut self, now: Instant) -> bool {
        match self.shutdown.state() {
            State::Running => return false,
            State::Stopped => return true,
            State::Draining { deadline } if now >= deadline => return true,
            State::Draining { .. } if self.board.vitals.is_held() => return false,
            State::Draining { .. } => {}
        }
        if !self.draining {
            self.draining = true;
            // So that a PoP that was quiet when it was told still waits for its clients' next checks.
            self.last_forwarded = now;
            self.flows.drain();
            self.links.drain(true, now);
            tracing::info!(worker = self.index, "draining: no client is taken on");
        }
        let (drain, flows) = (&self.board.drain, self.flows.stats().flows);
        self.last_forwarded = drain.note(self.index, flows, self.last_forwarded);
        drain.is_done(now, self.last_forwarded)
    }

    /// Takes over a reloaded topology, keys and certificates. Flows and links that stay are not touched.
    fn follow_config(&mut self, now: Instant) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        let Some(pop) = config.topology.pop_named(&self.name) else {
            // The node refuses such a topology before it is published.
            tracing::warn!("the topology no longer names this PoP: it goes on as it was");
            return;
        };
        self.routes = routes(&config, pop);
        self.flows.set_offers(config.topology.network.offer_unknown);
        self.pace.set((&config.topology.network.worker).into());
        match tls(&config) {
            Ok(tls) => self.links.reload(tls, now),
            Err(error) => tracing::warn!(%error, "certificates: the old ones stay"),
        }
        let plan = Plan::new(&config.topology, pop, self.index);
        self.regions.apply(&plan, &mut self.links, now);
        let regions = &self.regions;
        self.metrics
            .retire_regions(|name| regions.reachable().any(|(region, _)| region == name));
        self.metrics.retire_links(|relay, worker| {
            let names =
                |target: &core_relay_link::Target| target.name == relay && target.worker == worker;
            plan.targets.iter().any(names)
        });
    }

    /// Whether a socket had more than its share.
    fn take_clients(&mut self, ready: Ready, at: Now) -> bool {
        let mut more = false;
        for index in 0..self.ingress.len() {
            if ready.is_ready(INGRESS + index) {
                more |= self.take_ingress(index, at);
            }
        }
        self.links.flush();
        self.send_links(at.instant);
        more
    }

    fn take_ingress(&mut self, index: usize, at: Now) -> bool {
        let vip = self.ingress.is_vip(index);
        for _ in 0..BATCHES_MAX {
            let full = self.ingress.recv(index, &mut self.totals.drops);
            let before = self.totals.up.packets;
            let mut uplink = UplinkPath {
                flows: &mut self.flows,
                routes: &self.routes,
                regions: &self.regions,
                links: &mut self.links,
                totals: &mut self.totals,
                last_forwarded: &mut self.last_forwarded,
                tag: Tag {
                    pop: self.pop,
                    worker: self.index,
                    ingress: u8::try_from(index).unwrap_or(u8::MAX),
                },
            };
            for (from, packet) in self.ingress.batch.iter() {
                uplink.forward(ClientAddr::new(from), packet, at);
                if uplink.links.wants_sending() {
                    uplink.links.flush();
                    let (socket, buffer) = (&self.backbone, &mut self.transmit);
                    let lost = send_links(uplink.links, socket, buffer, at.instant);
                    uplink.totals.backbone_lost += lost;
                }
            }
            if vip {
                self.vip_packets += self.totals.up.packets - before;
            }
            if !full {
                return false;
            }
        }
        true
    }

    fn take_backbone(&mut self, at: Now) -> bool {
        for _ in 0..BATCHES_MAX {
            let filled = match self.backbone_batch.recv(&self.backbone) {
                Ok(filled) => filled,
                Err(error) => {
                    tracing::debug!(%error, "backbone socket");
                    0
                }
            };
            for (from, packet) in self.backbone_batch.drain() {
                self.links.handle_packet(from, packet, at.instant);
            }
            self.take_datagrams(at);
            if filled < self.backbone_batch.slots() {
                return false;
            }
        }
        true
    }

    fn take_datagrams(&mut self, at: Now) {
        // Before the datagrams, so that what a link brings right after it came up finds its region.
        self.take_events(at.instant);
        let mut downlink = DownlinkPath {
            flows: &mut self.flows,
            routes: &self.routes,
            regions: &self.regions,
            ingress: &mut self.ingress,
            reassembler: &mut self.reassembler,
            totals: &mut self.totals,
            last_forwarded: &mut self.last_forwarded,
            pop: self.pop,
            worker: self.index,
        };
        while let Some((link, body)) = self.links.next_datagram() {
            downlink.deliver(link, &body, at);
            if let Some(cache) = &self.cache
                && downlink.flows.has_many_commands()
            {
                cache.tell(downlink.flows, at);
            }
        }
        self.ingress.flush(&mut self.totals.drops);
    }

    fn timers(&mut self, at: Now) {
        let due = |timeout: Option<Instant>| timeout.is_some_and(|due| due <= at.instant);
        let timers = self.poll_timers();
        if due(timers.links) {
            self.links.handle_timeout(at.instant);
        }
        if due(timers.flows) {
            self.flows.handle_timeout(at);
        }
        if due(timers.regions) {
            self.regions.handle_timeout(&self.links, at.instant);
        }
        self.take_events(at.instant);
    }

    fn poll_timers(&self) -> Timers {
        Timers {
            links: self.links.poll_timeout(),
            flows: self.flows.poll_timeout(),
            regions: self.regions.poll_timeout(),
        }
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.links.next_event() {
            self.regions.handle_event(&event, &self.links, now);
            self.log(&event, now);
        }
    }

    fn send_links(&mut self, now: Instant) {
        let lost = send_links(&mut self.links, &self.backbone, &mut self.transmit, now);
        self.totals.backbone_lost += lost;
    }

    /// Waits until there is something to do, and says where.
    fn wait(&mut self, began: Instant) -> Ready {
        let end = match self.shutdown.state() {
            State::Draining { deadline } => Some(deadline.min(Drain::idle_at(self.last_forwarded))),
            State::Running | State::Stopped => None,
        };
        let flush = self.flushing.map(|_| began + FLUSH_PAUSE);
        let end = end.into_iter().chain(flush).min();
        let timeout = self.poll_timers().rest(end, began).min(self.turn_max);
        let own = [self.waker.as_fd(), self.backbone.as_fd()];
        let mut fds = [self.waker.as_fd(); runtime::poll::FDS_MAX];
        let sockets = self.ingress.sockets().map(UdpSocket::as_fd);
        let mut len = 0;
        for (slot, fd) in fds.iter_mut().zip(own.into_iter().chain(sockets)) {
            *slot = fd;
            len += 1;
        }
        let fds = fds.get(..len).unwrap_or_default();
        let packets = self.totals.up.packets + self.totals.down.packets;
        let ready = self.pace.wait(fds, began, timeout, packets);
        let ready = ready.unwrap_or_else(|error| {
            tracing::warn!(%error, "waiting for sockets");
            Ready::ALL
        });
        if ready.is_ready(WAKER) {
            self.waker.drain();
        }
        ready
    }
}

/// Sends what the links have; returns how many UDP payloads the kernel refused.
fn send_links(links: &mut Links, socket: &UdpSocket, buffer: &mut Vec<u8>, now: Instant) -> u64 {
    let mut lost = 0;
    while let Some(transmit) = links.poll_transmit(now, buffer) {
        let bytes = buffer.get(..transmit.len).unwrap_or_default();
        let segment = transmit.segment.unwrap_or(transmit.len);
        if let Err(unsent) = send_segments(socket, transmit.to, bytes, segment) {
            lost += u64::try_from(unsent.datagrams).unwrap_or(u64::MAX);
        }
    }
    lost
}

fn moment() -> Now {
    Now {
        instant: clock::now(),
        minute: Minute::from_unix_s(clock::unix_s()),
    }
}

fn turn_max(config: &Config, pop: &Pop) -> Duration {
    let anycast = config.topology.anycast_of(pop);
    anycast.map_or(IDLE_TURN_MAX, |anycast| {
        let stalled_after = Duration::from_millis(anycast.stalled_after_ms.into());
        (stalled_after / TURNS_UNTIL_STALLED).min(IDLE_TURN_MAX)
    })
}

fn routes(config: &Config, pop: &Pop) -> Routes {
    let keys = (*config.credentials.hint_keys).clone();
    Routes::new(&config.topology, pop, keys)
}

fn recovery(config: &Config, pop: &Pop) -> Option<RecoveryConfig> {
    let group = config.topology.failover_group_of(pop)?;
    let ttl = Duration::from_secs(group.ttl_s.into());
    Some(RecoveryConfig::new(ttl))
}

fn tls(config: &Config) -> anyhow::Result<Tls> {
    let credentials = &config.credentials;
    let (ca, chain) = (credentials.ca.to_vec(), credentials.chain.to_vec());
    Tls::from_der(ca, chain, credentials.key.der(), clock::unix_s).context("certificates")
}

fn bind_backbone(pop: &Pop, metrics: &Registry) -> anyhow::Result<UdpSocket> {
    let options = BindOptions {
        gro: true,
        dont_fragment: true,
        ..BindOptions::default()
    };
    let socket = UdpSocket::bind((pop.backbone, 0).into(), &options).context("backbone")?;
    socket.observe(metrics, &[("socket", "backbone")]);
    Ok(socket)
}
