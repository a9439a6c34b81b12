//! One worker: a pinned thread with its own link socket, record socket and links. Its loop lists its sources in order of
//! priority:
//!
//! 1. what the node is told: stop, drain, another configuration;
//! 2. links: up to [`BATCHES_MAX`] batches; the records of a batch leave for the transceivers at its end;
//! 3. transceivers: up to [`BATCHES_MAX`] batches; their records leave for the PoPs when all are taken;
//! 4. timers of the links;
//! 5. what the links have to send;
//! 6. figures, a few times a second.
//!
//! Then it waits for a socket, the waker or the next timer ([`Pace`]), or not at all while a source had more than its share. It looks
//! only at sockets that the wait said are readable.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use core_relay_link::{Congestion, LinkId, Links, LinksConfig, Tls};
use core_relay_proto::verdict::Drops;
use core_relay_proto::{Downlink, DropReason, Relay, Uplink};
use runtime::clock;
use runtime::node::{Config, ConfigHandle, NodeContext, Shutdown, State};
use runtime::pace::{Pace, Pacing};
use runtime::poll::{Ready, Waker};
use runtime::random;
use runtime::udp::{BindOptions, GRO_SLOT_BYTES, RecvBatch, UdpSocket, send_segments};
use runtime::watch::Heart;
use topology::{CoreRelay, Region};
use wire::TransceiverId;
use wire::record::{DatagramKind, RecordHeader, Records, open_datagram};
use wire::sequence::ReceiptsBySender;

use crate::egress::Egress;
use crate::log::LinkLog;
use crate::metrics::{Metrics, Totals, Traffic};
use crate::pops::Pops;
use crate::state::{Board, LinkView, WorkerState};

/// Places in a wait.
const WAKER: usize = 0;
const LINK: usize = 1;
const RECORD: usize = 2;
/// Batches taken from one socket in a turn.
const BATCHES_MAX: usize = 4;
/// GRO buffers of each socket.
const SLOTS: usize = 16;
/// How often figures are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// A draining relay ends when nothing was forwarded either way for this long. Uplink has moved to another relay within one heartbeat
/// then, and each transceiver has moved its way back with the next packet of its client.
const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// See the module head.
pub(crate) struct Worker {
    name: String,
    index: u8,
    config: ConfigHandle,
    generation: u64,
    shutdown: Shutdown,
    waker: Waker,
    pace: Pace,
    link_socket: UdpSocket,
    link_batch: RecvBatch,
    record_socket: UdpSocket,
    record_batch: RecvBatch,
    transmit: Vec<u8>,
    links: Links,
    pops: Pops,
    relay: Relay,
    egress: Egress,
    receipts: ReceiptsBySender<TransceiverId>,
    up: Traffic,
    down: Traffic,
    drops: Drops,
    link_send_failures: u64,
    metrics: Metrics,
    board: Arc<Board>,
    publish_at: Instant,
    draining: bool,
    last_forwarded: Instant,
    log: LinkLog,
    heart: Heart,
}

impl Worker {
    /// Binds the worker's sockets. The kernel queues what arrives until it runs.
    pub(crate) fn new(
        context: &NodeContext,
        config: &Config,
        (region, relay): (&Region, &CoreRelay),
        index: u8,
        board: &Arc<Board>,
    ) -> anyhow::Result<Self> {
        let now = clock::now();
        let link = &config.topology.network.link;
        let link_socket = bind(context, relay, relay.link_port, index, true)?;
        let record_socket = bind(context, relay, relay.record_port, index, false)?;
        let links_config = LinksConfig {
            worker: index,
            link: link.clone(),
            seed: random::bytes()?,
            congestion: Congestion::default(),
        };
        let mut pops = Pops::none();
        let allowed = pops.apply(&config.topology, region);
        let waker = Waker::new().context("waker")?;
        context.shutdown.register(&waker);
        Ok(Self {
            name: context.name.clone(),
            index,
            generation: config.generation,
            config: context.config.clone(),
            shutdown: context.shutdown.clone(),
            waker,
            pace: Pace::new(pacing(config), now),
            link_socket,
            link_batch: RecvBatch::new(SLOTS, GRO_SLOT_BYTES),
            record_socket,
            record_batch: RecvBatch::new(SLOTS, GRO_SLOT_BYTES),
            transmit: Vec::new(),
            links: Links::acceptor(links_config, tls(config)?, &allowed, now),
            pops,
            relay: Relay::new(region),
            egress: Egress::of(region, link),
            receipts: ReceiptsBySender::new(),
            up: Traffic::default(),
            down: Traffic::default(),
            drops: Drops::default(),
            link_send_failures: 0,
            metrics: Metrics::new(&context.metrics, index),
            board: Arc::clone(board),
            publish_at: now,
            draining: false,
            last_forwarded: now,
            log: LinkLog::new(index),
            heart: context.watch.heart(&index.to_string()),
        })
    }

    /// Runs until the node has stopped, or has drained.
    pub(crate) fn run(mut self) {
        let mut ready = Ready::ALL;
        loop {
            self.heart.beat();
            let now = clock::now();
            // 1. what the node is told
            if self.ends(now) {
                break;
            }
            self.follow_config(now);
            // 2. links
            let mut more = ready.is_ready(LINK) && self.take_links(now);
            // 3. transceivers
            more |= ready.is_ready(RECORD) && self.take_transceivers(now);
            // 4. timers
            if self.links.poll_timeout().is_some_and(|due| due <= now) {
                self.links.handle_timeout(now);
                self.take_events(now);
            }
            // 5. what the links have to send
            self.send_links(now);
            // 6. figures
            self.publish(now);
            ready = if more { Ready::ALL } else { self.wait(now) };
        }
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
            State::Draining { .. } => {}
        }
        if !self.draining {
            self.draining = true;
            self.last_forwarded = now;
            self.links.drain(true, now);
            tracing::info!(
                worker = self.index,
                "draining: PoPs are told to use another relay"
            );
        }
        self.last_forwarded = self.board.activity.note(self.last_forwarded);
        now.saturating_duration_since(self.last_forwarded) >= DRAIN_IDLE
    }

    /// Takes over a reloaded topology and certificates. Links of PoPs that stay are not touched.
    fn follow_config(&mut self, now: Instant) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        let Some((region, _)) = config.topology.core_relay_named(&self.name) else {
            // The node refuses such a topology before it is published.
            tracing::warn!("the topology no longer names this core relay: it goes on as it was");
            return;
        };
        match tls(&config) {
            Ok(tls) => self.links.reload(tls, now),
            Err(error) => tracing::warn!(%error, "certificates: the old ones stay"),
        }
        self.pace.set(pacing(&config));
        self.relay = Relay::new(region);
        self.egress.follow(region, &config.topology.network.link);
        let allowed = self.pops.apply(&config.topology, region);
        self.links.set_allowed(&allowed, now);
        self.take_events(now);
        self.metrics.retire_links(|pop, worker| {
            let names = |peer: &core_relay_link::Allowed| {
                peer.name.eq_ignore_ascii_case(pop) && worker < peer.workers
            };
            allowed.iter().any(names)
        });
    }

    /// Uplink. Returns whether the socket had more than its share.
    fn take_links(&mut self, now: Instant) -> bool {
        for _ in 0..BATCHES_MAX {
            let filled = receive(&mut self.link_batch, &self.link_socket);
            for (from, packet) in self.link_batch.drain() {
                self.links.handle_packet(from, packet, now);
            }
            // Before the datagrams, so that what a link brings right after it came up finds its PoP.
            self.take_events(now);
            self.take_datagrams(now);
            if filled < self.link_batch.slots() {
                return false;
            }
        }
        true
    }

    fn take_datagrams(&mut self, now: Instant) {
        while let Some((link, body)) = self.links.next_datagram() {
            self.forward_up(link, &body);
            self.last_forwarded = now;
        }
        self.egress.flush(&self.record_socket, &mut self.drops);
    }

    fn forward_up(&mut self, link: LinkId, body: &[u8]) {
        let Some((pop, worker)) = self.pops.of_link(link) else {
            // It went down in this very batch.
            self.drops.count(DropReason::NoLink);
            return;
        };
        for record in Records::new(body) {
            let Ok(record) = record else {
                self.drops.count(DropReason::BadRecord);
                return;
            };
            match self.relay.handle_uplink(pop, worker, &record.header) {
                Uplink::Forward { to } => {
                    let header = forwarded(record.header);
                    let socket = &self.record_socket;
                    self.egress
                        .push(to, &header, record.payload, socket, &mut self.drops);
                    self.up.count(record.payload.len());
                }
                Uplink::Drop(reason) => self.drops.count(reason),
            }
        }
    }

    /// Downlink. Returns whether the socket had more than its share.
    fn take_transceivers(&mut self, now: Instant) -> bool {
        let more = (0..BATCHES_MAX).all(|_| self.take_records(now));
        self.links.flush();
        self.send_links(now);
        more
    }

    /// One batch. Returns whether it was full.
    fn take_records(&mut self, now: Instant) -> bool {
        let filled = receive(&mut self.record_batch, &self.record_socket);
        let mut downlink = DownlinkPath {
            relay: &self.relay,
            pops: &self.pops,
            links: &mut self.links,
            receipts: &mut self.receipts,
            traffic: &mut self.down,
            drops: &mut self.drops,
        };
        for (from, datagram) in self.record_batch.iter() {
            if let Err(reason) = downlink.forward(from, datagram) {
                downlink.drops.count(reason);
            } else {
                self.last_forwarded = now;
            }
            if downlink.links.wants_sending() {
                downlink.links.flush();
                let (socket, buffer) = (&self.link_socket, &mut self.transmit);
                self.link_send_failures += send_links(downlink.links, socket, buffer, now);
            }
        }
        filled == self.record_batch.slots()
    }

    fn take_events(&mut self, now: Instant) {
        while let Some(event) = self.links.next_event() {
            self.pops.handle_event(&event);
            self.log.log(&event, now);
        }
    }

    fn send_links(&mut self, now: Instant) {
        let lost = send_links(&mut self.links, &self.link_socket, &mut self.transmit, now);
        self.link_send_failures += lost;
    }

    /// Waits until there is something to do, and says where.
    fn wait(&mut self, began: Instant) -> Ready {
        let deadline = match self.shutdown.state() {
            State::Draining { deadline } => Some(deadline.min(self.last_forwarded + DRAIN_IDLE)),
            State::Running | State::Stopped => None,
        };
        let next = self.links.poll_timeout().into_iter().chain(deadline).min();
        let timeout = next.map_or(PUBLISH_INTERVAL, |next| {
            next.saturating_duration_since(began).min(PUBLISH_INTERVAL)
        });
        let fds = [
            self.waker.as_fd(),
            self.link_socket.as_fd(),
            self.record_socket.as_fd(),
        ];
        let packets = self.up.records + self.down.records;
        let ready = self.pace.wait(&fds, began, timeout, packets);
        let ready = ready.unwrap_or_else(|error| {
            tracing::warn!(%error, "waiting for sockets");
            Ready::ALL
        });
        if ready.is_ready(WAKER) {
            self.waker.drain();
        }
        ready
    }

    fn publish(&mut self, now: Instant) {
        if now < self.publish_at {
            return;
        }
        self.publish_at = now + PUBLISH_INTERVAL;
        let link_drops = self.links.drops();
        self.metrics.publish(&Totals {
            up: self.up,
            down: self.down,
            drops: &self.drops,
            link_drops: &link_drops,
            downs: self.links.downs(),
            refused: self.links.refused(),
            link_send_failures: self.link_send_failures,
            transceivers: self.receipts.arrivals(),
        });
        let mut links = Vec::new();
        for link in self.links.all_stats() {
            self.metrics.publish_link(&link);
            links.push(LinkView {
                pop: link.peer.to_string(),
                worker: link.worker,
                up: link.up_since.is_some(),
                draining: link.draining,
                rtt_us: link.rtt_us,
                jitter_us: link.jitter_us,
                loss_ppm: link.loss_ppm,
                peer_loss_ppm: link.peer_loss_ppm,
                ups: link.ups,
                datagrams_up: link.datagrams_received,
                datagrams_down: link.datagrams_sent,
            });
        }
        let own: u64 = DropReason::ALL.iter().map(|r| self.drops.get(*r)).sum();
        let in_links: u64 = link_drops.iter().map(|(_, count)| count).sum();
        self.heart.packets(self.up.records + self.down.records);
        self.board.show(WorkerState {
            worker: self.index,
            draining: self.draining,
            records_up: self.up.records,
            records_down: self.down.records,
            drops: own + in_links,
            links_refused: self.links.refused().iter().map(|(_, count)| count).sum(),
            config_generation: self.generation,
            links,
        });
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

/// What a datagram of a transceiver meets, borrowed apart from the batch it lies in.
struct DownlinkPath<'a> {
    relay: &'a Relay,
    pops: &'a Pops,
    links: &'a mut Links,
    receipts: &'a mut ReceiptsBySender<TransceiverId>,
    traffic: &'a mut Traffic,
    drops: &'a mut Drops,
}

impl DownlinkPath<'_> {
    /// An error means that the datagram, or its rest, is of no use.
    fn forward(&mut self, from: SocketAddr, datagram: &[u8]) -> Result<(), DropReason> {
        let source = self.relay.handle_source(from)?;
        let (kind, sequence, body) = open_datagram(datagram).map_err(|_| DropReason::BadRecord)?;
        if kind != DatagramKind::Records {
            return Err(DropReason::UnexpectedKind);
        }
        self.receipts.received(source.transceiver(), sequence);
        for record in Records::new(body) {
            let record = record.map_err(|_| DropReason::BadRecord)?;
            match self.relay.handle_downlink(source, &record.header) {
                Downlink::ToLink { pop, worker } => match self.pops.link_of(pop, worker) {
                    Some(link) => self.put(link, record.header, record.payload),
                    None => self.drops.count(DropReason::NoLink),
                },
                Downlink::Drop(reason) => self.drops.count(reason),
            }
        }
        Ok(())
    }

    fn put(&mut self, link: LinkId, header: RecordHeader, payload: &[u8]) {
        // A refusal is counted by the links.
        if self
            .links
            .put_record(link, &forwarded(header), payload)
            .is_ok()
        {
            self.traffic.count(payload.len());
        }
    }
}

/// The header of a record that is passed on: one hop more. Whoever decided has checked the limit.
const fn forwarded(header: RecordHeader) -> RecordHeader {
    RecordHeader {
        hops: header.hops.saturating_add(1),
        ..header
    }
}

fn receive(batch: &mut RecvBatch, socket: &UdpSocket) -> usize {
    batch.recv(socket).unwrap_or_else(|error| {
        tracing::debug!(%error, socket = %socket.local_addr(), "receiving");
        0
    })
}

fn bind(
    context: &NodeContext,
    relay: &CoreRelay,
    first_port: u16,
    index: u8,
    quic: bool,
) -> anyhow::Result<UdpSocket> {
    let port = first_port
        .checked_add(index.into())
        .context("port beyond 65535")?;
    let options = BindOptions {
        gro: true,
        dont_fragment: quic,
        ..BindOptions::default()
    };
    let socket = UdpSocket::bind(SocketAddr::new(relay.address, port), &options)?;
    let kind = if quic { "link" } else { "record" };
    let worker = index.to_string();
    socket.observe(
        &context.metrics,
        &[("socket", kind), ("worker", worker.as_str())],
    );
    Ok(socket)
}

/// A core relay has no tick: what gathers at the PoPs arrives together, and a tick of its own would only add delay.
fn pacing(config: &Config) -> Pacing {
    Pacing {
        tick: Duration::ZERO,
        ..Pacing::from(&config.topology.network.worker)
    }
}

fn tls(config: &Config) -> anyhow::Result<Tls> {
    let credentials = &config.credentials;
    let (ca, chain) = (credentials.ca.to_vec(), credentials.chain.to_vec());
    Tls::from_der(ca, chain, credentials.key.der(), clock::unix_s).context("certificates")
}
