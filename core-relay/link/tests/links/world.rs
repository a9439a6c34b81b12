//! Two or more `Links` joined by an in-memory wire with delay, loss and black holes, under an invented clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use core_relay_link::{
    Allowed, Congestion, DownReason, LinkDrop, LinkEvent, LinkId, Links, LinksConfig, Target, Tls,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use topology::Link;
use wire::record::{RecordHeader, Records};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

/// Wall clock of the tests: 2026-01-01.
pub(crate) const WALL_S: u64 = 1_767_225_600;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A certificate authority.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            der,
        }
    }

    pub(crate) fn tls(&self, names: &[&str]) -> Tls {
        self.tls_until(names, 2100, self)
    }

    /// Certificates of this CA for a node that trusts `trusted`.
    pub(crate) fn tls_until(&self, names: &[&str], until_year: i32, trusted: &Self) -> Tls {
        self.tls_between(names, (2020, until_year), &[trusted])
    }

    /// Certificates of this CA, valid from the first day of one year to that of another, for a node that trusts `trusted`.
    pub(crate) fn tls_between(
        &self,
        names: &[&str],
        (from_year, until_year): (i32, i32),
        trusted: &[&Self],
    ) -> Tls {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(from_year, 1, 1);
        params.not_after = rcgen::date_time_ymd(until_year, 1, 1);
        let leaf = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let trusted = trusted.iter().map(|ca| ca.der.clone()).collect();
        Tls::from_der(trusted, vec![leaf], key, || WALL_S).unwrap()
    }
}

pub(crate) fn config(link: &Link, seed: u8) -> LinksConfig {
    LinksConfig {
        worker: 0,
        link: link.clone(),
        seed: [seed; 32],
        congestion: Congestion::default(),
    }
}

pub(crate) fn allowed(name: &str, workers: u8) -> Allowed {
    Allowed {
        name: name.to_owned(),
        workers,
    }
}

pub(crate) fn target(name: &str, node: usize) -> Target {
    Target {
        name: name.to_owned(),
        worker: 0,
        address: address(node),
    }
}

pub(crate) fn address(node: usize) -> SocketAddr {
    let host = u8::try_from(node + 1).unwrap();
    SocketAddr::from(([10, 0, 0, host], 7443))
}

/// A record header for a client that does not matter.
pub(crate) fn header() -> RecordHeader {
    RecordHeader {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(10),
        },
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: 0,
        },
        client: ClientAddr::new(SocketAddr::from(([192, 0, 2, 1], 4000))),
        hops: 0,
        fragment: None,
        offered: false,
    }
}

/// One direction between two nodes.
#[derive(Clone, Copy)]
pub(crate) struct Wire {
    pub(crate) delay: Duration,
    pub(crate) loss_ppm: u64,
    pub(crate) black_hole: bool,
    pub(crate) len_max: usize,
}

pub(crate) struct Node {
    pub(crate) links: Option<Links>,
    /// Makes no turn: what arrives waits, and so do its timers.
    pub(crate) stopped: bool,
    waiting: Vec<(usize, Vec<u8>)>,
    pub(crate) received: Vec<(Duration, LinkId, Bytes)>,
    pub(crate) events: Vec<(Duration, LinkEvent)>,
}

type Packet = Reverse<(Duration, u64, usize, usize, Vec<u8>)>;

pub(crate) struct World {
    epoch: Instant,
    pub(crate) at: Duration,
    pub(crate) nodes: Vec<Node>,
    wires: Vec<Vec<Wire>>,
    air: BinaryHeap<Packet>,
    random: u64,
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    /// Lengths of what node 0 sent, however it fared.
    pub(crate) lens: Vec<usize>,
}

impl World {
    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary epoch for an invented clock"
    )]
    pub(crate) fn new(nodes: usize, delay: Duration) -> Self {
        let wire = Wire {
            delay,
            loss_ppm: 0,
            black_hole: false,
            len_max: 9000,
        };
        Self {
            epoch: Instant::now(),
            at: Duration::ZERO,
            nodes: (0..nodes)
                .map(|_| Node {
                    links: None,
                    stopped: false,
                    waiting: Vec::new(),
                    received: Vec::new(),
                    events: Vec::new(),
                })
                .collect(),
            wires: vec![vec![wire; nodes]; nodes],
            air: BinaryHeap::new(),
            random: 0x9e37_79b9_7f4a_7c15,
            sent: 0,
            lost: 0,
            lens: Vec::new(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.epoch + self.at
    }

    pub(crate) fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        &mut self.wires[from][to]
    }

    pub(crate) fn start(&mut self, node: usize, links: Links) {
        self.nodes[node].links = Some(links);
    }

    /// kill -9.
    pub(crate) fn kill(&mut self, node: usize) {
        self.nodes[node].links = None;
    }

    pub(crate) fn links(&mut self, node: usize) -> &mut Links {
        self.nodes[node].links.as_mut().unwrap()
    }

    /// SIGSTOP.
    pub(crate) fn stop(&mut self, node: usize) {
        self.nodes[node].stopped = true;
    }

    /// SIGCONT. Timers may come before the packets that waited, as when the process was stopped after it had looked for packets.
    pub(crate) fn resume(&mut self, node: usize, timers_first: bool) {
        let (now, node) = (self.now(), &mut self.nodes[node]);
        node.stopped = false;
        let links = node.links.as_mut().unwrap();
        if timers_first {
            links.handle_timeout(now);
        }
        for (from, packet) in node.waiting.drain(..) {
            links.handle_packet(address(from), &*packet, now);
        }
        links.handle_timeout(now);
        self.settle();
    }

    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.at + duration;
        self.settle();
        loop {
            let arrival = self.air.peek().map(|Reverse((at, ..))| *at);
            let turning = self.nodes.iter().filter(|node| !node.stopped);
            let timers = turning.filter_map(|node| {
                let timeout = node.links.as_ref()?.poll_timeout()?;
                Some(timeout.saturating_duration_since(self.epoch))
            });
            let next = timers.chain(arrival).min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.at = end;
                return;
            };
            self.at = next.max(self.at);
            self.deliver();
            let now = self.now();
            for node in self.nodes.iter_mut().filter(|node| !node.stopped) {
                if let Some(links) = node.links.as_mut()
                    && links.poll_timeout().is_some_and(|timeout| timeout <= now)
                {
                    links.handle_timeout(now);
                }
            }
            self.settle();
        }
    }

    /// Runs until `done`; panics after ten seconds.
    pub(crate) fn run_until(
        &mut self,
        what: &str,
        mut done: impl FnMut(&Self) -> bool,
    ) -> Duration {
        let start = self.at;
        while !done(self) {
            assert!(self.at < start + ms(10_000), "{what} does not happen");
            self.run(ms(1));
        }
        self.at - start
    }

    fn deliver(&mut self) {
        let now = self.now();
        while let Some(Reverse((at, ..))) = self.air.peek() {
            if *at > self.at {
                return;
            }
            let Some(Reverse((_, _, from, to, packet))) = self.air.pop() else {
                return;
            };
            let node = &mut self.nodes[to];
            if node.stopped {
                node.waiting.push((from, packet));
            } else if let Some(links) = node.links.as_mut() {
                links.handle_packet(address(from), &*packet, now);
            }
        }
    }

    /// Drains every node; what they send takes to the air.
    pub(crate) fn settle(&mut self) {
        let now = self.now();
        for from in 0..self.nodes.len() {
            if self.nodes[from].stopped {
                continue;
            }
            let mut buffer = Vec::new();
            while let Some(links) = self.nodes[from].links.as_mut()
                && let Some(transmit) = links.poll_transmit(now, &mut buffer)
            {
                assert_eq!(transmit.len, buffer.len());
                // What goes to nobody is lost.
                let Some(to) = (0..self.nodes.len()).find(|node| address(*node) == transmit.to)
                else {
                    continue;
                };
                for packet in buffer.chunks(transmit.segment.unwrap_or(transmit.len)) {
                    self.put(from, to, packet);
                }
            }
            let (at, node) = (self.at, &mut self.nodes[from]);
            while let Some((link, body)) = node.links.as_mut().and_then(Links::next_datagram) {
                node.received.push((at, link, body));
            }
            while let Some(event) = node.links.as_mut().and_then(Links::next_event) {
                node.events.push((at, event));
            }
        }
    }

    pub(crate) fn put(&mut self, from: usize, to: usize, packet: &[u8]) {
        self.sent += 1;
        if from == 0 {
            self.lens.push(packet.len());
        }
        let wire = self.wires[from][to];
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let unlucky = self.random % 1_000_000 < wire.loss_ppm;
        if wire.black_hole || unlucky || packet.len() > wire.len_max {
            self.lost += 1;
            return;
        }
        let arrival = self.at + wire.delay;
        self.air
            .push(Reverse((arrival, self.sent, from, to, packet.to_vec())));
    }

    /// The one link of a node that has one.
    pub(crate) fn only_link(&self, node: usize) -> LinkId {
        let links = self.nodes[node].links.as_ref().unwrap();
        let mut all = links.all_stats();
        let link = all.next().unwrap().id;
        assert!(all.next().is_none());
        link
    }

    pub(crate) fn is_up(&self, node: usize) -> bool {
        self.nodes[node]
            .links
            .as_ref()
            .is_some_and(|links| links.all_stats().any(|link| link.up_since.is_some()))
    }

    /// Payloads of all records a node received, in order.
    pub(crate) fn payloads(&self, node: usize) -> Vec<Vec<u8>> {
        self.nodes[node]
            .received
            .iter()
            .flat_map(|(_, _, body)| {
                Records::new(body)
                    .map(|record| record.unwrap().payload.to_vec())
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

/// A PoP `pop-a` (node 0) and a core relay `relay-a` (node 1) on a wire with this one-way delay.
pub(crate) fn pair(link: &Link, delay: Duration) -> (World, Ca) {
    let ca = Ca::new();
    let mut world = World::new(2, delay);
    let now = world.now();
    let relay = Links::acceptor(
        config(link, 1),
        ca.tls(&["relay-a"]),
        &[allowed("pop-a", 1)],
        now,
    );
    let pop = Links::dialer(
        config(link, 2),
        ca.tls(&["pop-a"]),
        &[target("relay-a", 1)],
        now,
    );
    world.start(0, pop);
    world.start(1, relay);
    (world, ca)
}

pub(crate) fn up(world: &mut World) {
    world.run_until("both ends up", |world| world.is_up(0) && world.is_up(1));
}

pub(crate) fn downs(world: &World, node: usize) -> Vec<DownReason> {
    let reason = |event: &LinkEvent| match event {
        LinkEvent::Down { reason, .. } => Some(*reason),
        LinkEvent::Up { .. }
        | LinkEvent::Suspect { .. }
        | LinkEvent::Draining { .. }
        | LinkEvent::DialFailed { .. }
        | LinkEvent::Refused { .. } => None,
    };
    let events = &world.nodes[node].events;
    events
        .iter()
        .filter_map(|(_, event)| reason(event))
        .collect()
}

/// When a node's link became suspect, and when it was so no longer; counted from `from`.
pub(crate) fn suspicions(world: &World, node: usize, from: Duration) -> Vec<(Duration, bool)> {
    let events = &world.nodes[node].events;
    let since = events.iter().filter(|(at, _)| *at >= from);
    let all = since.filter_map(|(at, event)| match event {
        LinkEvent::Suspect { suspect, .. } => Some((*at - from, *suspect)),
        LinkEvent::Up { .. }
        | LinkEvent::Down { .. }
        | LinkEvent::Draining { .. }
        | LinkEvent::DialFailed { .. }
        | LinkEvent::Refused { .. } => None,
    });
    all.collect()
}

pub(crate) fn failures(world: &World, node: usize) -> Vec<DownReason> {
    let reason = |event: &LinkEvent| match event {
        LinkEvent::DialFailed { reason, .. } | LinkEvent::Refused { reason, .. } => Some(*reason),
        LinkEvent::Up { .. }
        | LinkEvent::Down { .. }
        | LinkEvent::Suspect { .. }
        | LinkEvent::Draining { .. } => None,
    };
    let events = &world.nodes[node].events;
    events
        .iter()
        .filter_map(|(_, event)| reason(event))
        .collect()
}

pub(crate) fn send(world: &mut World, from: usize, payload: &[u8]) -> Result<(), LinkDrop> {
    let link = world.only_link(from);
    let links = world.links(from);
    let put = links.put_record(link, &header(), payload);
    links.flush();
    put
}
