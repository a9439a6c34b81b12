//! One way from clients to a far end and back, whatever forwards in between: what a benchmark drives. All forwarders run on
//! [`world::PATH`], both ends in this thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use runtime::clock;
use runtime::udp::{BindOptions, RecvBatch, SendBatch, UdpSocket};
use topology::Datagrams;
use wire::record::RecordHeader;

use super::clients::Clients;
use super::far_end::FarEnd;
use super::forwarder::{Forwarder, Hop};
use super::world::{self, World};
use super::{packet, plain, processor, tunnel};
use crate::net::Network;

/// What may forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// One plain forwarder.
    PlainOneHop,
    /// Two plain forwarders.
    PlainTwoHop,
    /// A plain tunnel, two hops.
    GsoTunnel,
    /// PoP and core relay, one record a datagram between core relay and far end, both ways.
    PerPacketEgress,
    /// PoP and core relay, records share datagrams to the last hop.
    Encapsulated,
}

impl Variant {
    /// All, in the order of tables.
    pub const ALL: [Self; 5] = [
        Self::PlainOneHop,
        Self::PlainTwoHop,
        Self::GsoTunnel,
        Self::PerPacketEgress,
        Self::Encapsulated,
    ];

    /// For people.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::PlainOneHop => "plain, one hop",
            Self::PlainTwoHop => "plain, two hops",
            Self::GsoTunnel => "plain GSO tunnel",
            Self::PerPacketEgress => "firsthop, per-packet egress",
            Self::Encapsulated => "firsthop, encapsulated",
        }
    }
}

/// See the module head.
pub struct Path {
    /// What forwards.
    pub variant: Variant,
    /// Its clients, known to everybody on the way.
    pub clients: Clients,
    far: Far,
    pids: Vec<u32>,
    /// What runs; stopped when dropped.
    _network: Option<Network>,
    _forwarders: Vec<Forwarder>,
}

/// How long the far end may take to hear of every client.
const INTRODUCTION_MAX: Duration = Duration::from_secs(10);
/// Length of the packet that introduces a client.
const INTRODUCTION_LEN: usize = 64;

impl Path {
    /// Starts what forwards, and has the far end hear of `clients` clients, so that it can answer each. Our own workers poll for
    /// `busy_poll_us`.
    ///
    /// # Errors
    /// Something does not start, or a client is not heard.
    pub fn start(variant: Variant, clients: usize, busy_poll_us: u32) -> anyhow::Result<Self> {
        let ours = |datagrams| Self::ours(variant, clients, datagrams, busy_poll_us);
        let mut path = match variant {
            Variant::PlainOneHop => Self::plain(variant, clients, &[Hop::PlainEdge]),
            Variant::PlainTwoHop => {
                Self::plain(variant, clients, &[Hop::PlainCore, Hop::PlainEdge])
            }
            Variant::GsoTunnel => Self::tunnel(clients),
            Variant::PerPacketEgress => ours(Datagrams::Single),
            Variant::Encapsulated => ours(Datagrams::Packed),
        }
        .with_context(|| format!("starting {}", variant.label()))?;
        path.introduce()?;
        Ok(path)
    }

    fn ours(
        variant: Variant,
        clients: usize,
        datagrams: Datagrams,
        busy_poll_us: u32,
    ) -> anyhow::Result<Self> {
        let mut world = World::start(datagrams, |topology| {
            topology.network.worker.busy_poll_us = busy_poll_us;
        })?;
        let mut clients = Clients::open(clients, world.ingress())?;
        world.commit(&mut clients)?;
        let pids = vec![world.network.pid("p1")?, world.network.pid("r1")?];
        Ok(Self {
            variant,
            far: Far::records(world.far_end, clients.len()),
            clients,
            pids,
            _network: Some(world.network),
            _forwarders: Vec::new(),
        })
    }

    fn tunnel(clients: usize) -> anyhow::Result<Self> {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        let end = FarEnd::bind_at(address, Datagrams::Packed, tunnel::DATAGRAM_LEN_MAX)?;
        let hops = start_hops(&[Hop::TunnelCore, Hop::TunnelEdge], end.address())?;
        let far = Far::records(end, clients);
        Self::baseline(Variant::GsoTunnel, clients, far, hops)
    }

    /// `hops` from the far end on.
    fn plain(variant: Variant, clients: usize, hops: &[Hop]) -> anyhow::Result<Self> {
        let end = PlainEnd::bind(clients)?;
        let hops = start_hops(hops, end.socket.local_addr())?;
        Self::baseline(variant, clients, Far::Plain(Box::new(end)), hops)
    }

    fn baseline(
        variant: Variant,
        clients: usize,
        far: Far,
        hops: Vec<Forwarder>,
    ) -> anyhow::Result<Self> {
        let edge = hops.last().context("a path has a hop")?;
        Ok(Self {
            variant,
            clients: Clients::open(clients, edge.address())?,
            far,
            // From the client's side on, as with our own.
            pids: hops.iter().rev().map(Forwarder::pid).collect(),
            _network: None,
            _forwarders: hops,
        })
    }

    fn introduce(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + INTRODUCTION_MAX;
        let mut packet = [0; INTRODUCTION_LEN];
        for client in 0..self.clients.len() {
            packet::write(&mut packet, u32::try_from(client)?, 0);
            self.clients.send(client, &packet, INTRODUCTION_LEN);
            while !self.far.knows(client) {
                anyhow::ensure!(clock::now() < end, "client {client} is not heard");
                self.receive_far(INTRODUCTION_LEN, |_| {})?;
            }
        }
        Ok(())
    }

    /// Processor time of each hop so far, from the client's side on.
    ///
    /// # Errors
    /// A hop has ended.
    pub fn time(&self) -> anyhow::Result<Vec<Duration>> {
        self.pids.iter().map(|pid| processor::time(*pid)).collect()
    }

    /// Takes a batch at the far end, without waiting; `take` hears when each packet that is whole had left. Returns whether
    /// more may be waiting.
    ///
    /// # Errors
    /// A socket's.
    pub fn receive_far(&mut self, len: usize, take: impl FnMut(u64)) -> anyhow::Result<bool> {
        match &mut self.far {
            Far::Plain(end) => end.receive(len, take),
            Far::Records { end, returns } => receive_records(end, returns, len, take),
        }
    }

    /// Queues a packet from the far end to a client.
    pub fn send_far(&mut self, client: usize, packet: &[u8]) {
        match &mut self.far {
            Far::Plain(end) => end.send(client, packet),
            Far::Records { end, returns } => {
                if let Some(Some((relay, header))) = returns.get(client) {
                    end.egress().send(*relay, header, packet);
                }
            }
        }
    }

    /// Sends what the far end has queued.
    pub fn flush_far(&mut self) {
        match &mut self.far {
            Far::Plain(end) => {
                end.sends.flush(&end.socket);
            }
            Far::Records { end, .. } => end.egress().flush(),
        }
    }
}

fn start_hops(hops: &[Hop], end: SocketAddr) -> anyhow::Result<Vec<Forwarder>> {
    let mut started: Vec<Forwarder> = Vec::new();
    for hop in hops {
        let next = started.last().map_or(end, Forwarder::address);
        started.push(Forwarder::start(*hop, next, world::PATH)?);
    }
    Ok(started)
}

/// The far end, and how it answers each client.
enum Far {
    Plain(Box<PlainEnd>),
    Records {
        end: Box<FarEnd>,
        returns: Vec<Option<(SocketAddr, RecordHeader)>>,
    },
}

impl Far {
    fn records(end: FarEnd, clients: usize) -> Self {
        let returns = vec![None; clients];
        Self::Records {
            end: Box::new(end),
            returns,
        }
    }

    fn knows(&self, client: usize) -> bool {
        match self {
            Self::Plain(end) => end.returns.get(client).is_some_and(Option::is_some),
            Self::Records { returns, .. } => returns.get(client).is_some_and(Option::is_some),
        }
    }
}

fn receive_records(
    end: &mut FarEnd,
    returns: &mut [Option<(SocketAddr, RecordHeader)>],
    len: usize,
    mut take: impl FnMut(u64),
) -> anyhow::Result<bool> {
    end.receive(|_, relay, header, packet| {
        if let Some((client, left_ns)) = packet::read(packet, len) {
            learn(returns, client, || (relay, *header));
            take(left_ns);
        }
    })
}

/// The far end of plain forwarders.
struct PlainEnd {
    socket: UdpSocket,
    batch: RecvBatch,
    sends: SendBatch,
    returns: Vec<Option<(SocketAddr, u32)>>,
}

impl PlainEnd {
    fn bind(clients: usize) -> anyhow::Result<Self> {
        let options = BindOptions {
            recv_buffer_bytes: 16 << 20,
            ..BindOptions::default()
        };
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Ok(Self {
            socket: UdpSocket::bind(address, &options)?,
            batch: RecvBatch::new(plain::SLOTS, plain::DATAGRAM_LEN_MAX),
            sends: SendBatch::new(plain::SLOTS, plain::DATAGRAM_LEN_MAX),
            returns: vec![None; clients],
        })
    }

    fn receive(&mut self, len: usize, mut take: impl FnMut(u64)) -> anyhow::Result<bool> {
        let filled = self.batch.recv(&self.socket)?;
        for (hop, datagram) in self.batch.iter() {
            let Some((flow, packet)) = plain::open(datagram) else {
                continue;
            };
            if let Some((client, left_ns)) = packet::read(packet, len) {
                learn(&mut self.returns, client, || (hop, flow));
                take(left_ns);
            }
        }
        Ok(filled == self.batch.slots())
    }

    fn send(&mut self, client: usize, packet: &[u8]) {
        if let Some(Some((hop, flow))) = self.returns.get(client) {
            plain::push(&mut self.sends, &self.socket, *hop, *flow, packet);
        }
    }
}

fn learn<T>(returns: &mut [Option<T>], client: u32, way: impl FnOnce() -> T) {
    let index = usize::try_from(client).unwrap_or(usize::MAX);
    if let Some(slot) = returns.get_mut(index)
        && slot.is_none()
    {
        *slot = Some(way());
    }
}
