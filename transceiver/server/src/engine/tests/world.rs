//! A region in memory: one engine, two core relays, two PoPs, clients behind NATs, and an invented clock.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes};
use serde_json::json;
use tokio::sync::oneshot;
use topology::Topology;
use transceiver_proto::stun::nominating_request;
use wire::hint::{KeyId, KeyRing};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{self, DatagramKind, RecordHeader, Records, open_datagram};
use wire::stun::PacketKind;
use wire::{ClientAddr, PopId, Tag};

use crate::backend::echo::Echo;
use crate::engine::core::Core;
use crate::engine::handle::{Created, OfferError, Reply, Request, SessionSnapshot};
use crate::peer::PeerFactory;
use crate::peer::client::Client;

pub(super) const FRAME: Duration = Duration::from_millis(20);
/// Ingress of PoP 1 and PoP 2.
pub(super) const INGRESS: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)), 3478),
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 2)), 3478),
];

/// So long a PoP remembers that a session is over, and passes only checks.
const ENDED: Duration = Duration::from_secs(5);

pub(super) struct World {
    pub(super) core: Core,
    pub(super) now: Instant,
    pub(super) nodes: Vec<Node>,
    /// The core relay that uplink takes: 1 or 2.
    pub(super) relay: u8,
    /// Every n-th packet is lost, either way.
    pub(super) lose_every: Option<u64>,
    /// Downlink packets as they left: relay, PoP, client, length.
    pub(super) sent: Vec<(u8, u16, SocketAddr, usize)>,
    /// End records as they left, with how many packets had left before: relay, header.
    pub(super) ends: Vec<(SocketAddr, RecordHeader, usize)>,
    /// Addresses that the PoPs know, when they offer what comes from others.
    pub(super) known: Option<HashSet<SocketAddr>>,
    /// Addresses whose sessions the engine said are over, and until when nothing but checks passes from there.
    ended: HashMap<SocketAddr, Instant>,
    /// Addresses of which the engine said that they are its own.
    pub(super) taken: Vec<SocketAddr>,
    /// What clients send, when somebody listens.
    pub(super) tap: Option<Vec<Vec<u8>>>,
    /// Longest datagram towards a relay.
    pub(super) datagram_len_max: usize,
    factory: PeerFactory,
    reassembler: Reassembler,
    fragment_id: u16,
    packets: u64,
}

/// A client and its NAT.
pub(super) struct Node {
    pub(super) client: Client,
    /// Its address as the network sees it.
    pub(super) nat: SocketAddr,
    pub(super) online: bool,
    pub(super) session: Option<Created>,
    pub(super) offer: String,
}

pub(super) const fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(203, 0, 113, host)), port)
}

pub(super) fn relay_address(relay: u8) -> SocketAddr {
    SocketAddr::from(([127, 0, 1, relay], 7543))
}

fn topology(signaling: &serde_json::Value) -> Topology {
    let relay = |number: u8| json!({ "name": format!("eu-r{number}"), "address": format!("127.0.1.{number}"), "record_port": 7543 });
    let pop = |number: usize| json!({ "name": format!("pop-{number}"), "id": number, "ingress": [INGRESS[number - 1]] });
    let node = json!({ "name": "eu-t1", "address": "127.9.0.1", "whip": "127.0.0.1:1", "peer": "127.0.0.1:2" });
    let value = json!({
        "version": 1,
        "network": { "name": "test", "signaling": signaling },
        "regions": [{
            "name": "eu", "id": 1, "signaling_url": "http://test/whip",
            "core_relays": [relay(1), relay(2)],
            "transceivers": { "cidr": "127.9.0.0/24", "port": 5000, "nodes": [node] },
        }],
        "pops": [pop(1), pop(2)],
    });
    serde_json::from_value(value).unwrap()
}

fn keys() -> Arc<KeyRing> {
    Arc::new(KeyRing::single(KeyId::new(1).unwrap(), [7; 16]))
}

impl World {
    pub(super) fn new() -> Self {
        Self::with_signaling(&json!({}))
    }

    pub(super) fn with_signaling(signaling: &serde_json::Value) -> Self {
        let topology = topology(signaling);
        let (region, node) = topology.transceiver_named("eu-t1").unwrap();
        Self {
            core: Core::new(&topology, &keys(), (region, node), || Box::new(Echo)).unwrap(),
            now: runtime::clock::now(),
            nodes: Vec::new(),
            relay: 1,
            lose_every: None,
            sent: Vec::new(),
            ends: Vec::new(),
            known: None,
            ended: HashMap::new(),
            taken: Vec::new(),
            tap: None,
            datagram_len_max: topology.network.link.datagram_len_max(),
            factory: PeerFactory::new().unwrap(),
            reassembler: Reassembler::new(64, Duration::from_secs(1), 1),
            fragment_id: 0,
            packets: 0,
        }
    }

    /// The engine takes other bounds over.
    pub(super) fn reload(&mut self, signaling: &serde_json::Value) {
        let topology = topology(signaling);
        let (region, _) = topology.transceiver_named("eu-t1").unwrap();
        self.core.reload(&topology, &keys(), region);
    }

    /// A client with a session, a data channel and nothing sent yet.
    pub(super) fn join(&mut self, nat: SocketAddr) -> usize {
        let index = self.arrive(nat);
        self.nodes[index].client.open_channel();
        let offer = self.nodes[index].client.offer(false, self.now);
        self.nodes[index].offer.clone_from(&offer);
        let created = self.create(&offer).unwrap();
        let now = self.now;
        self.nodes[index].client.answer(&created.answer, now);
        self.nodes[index].session = Some(created);
        index
    }

    /// A client without a session.
    pub(super) fn arrive(&mut self, nat: SocketAddr) -> usize {
        let index = self.nodes.len();
        let local = SocketAddr::from(([10, 0, 0, u8::try_from(index + 1).unwrap()], 50_000));
        let ssrc = 0x1000 + u32::try_from(index).unwrap() * 16;
        self.nodes.push(Node {
            client: Client::new(&self.factory, local, ssrc, self.now),
            nat,
            online: true,
            session: None,
            offer: String::new(),
        });
        index
    }

    /// A client whose data channel is open.
    pub(super) fn connect(&mut self, nat: SocketAddr) -> usize {
        let index = self.join(nat);
        self.run_until(Duration::from_secs(10), |world| {
            world.nodes[index].client.channel_open
        });
        index
    }

    pub(super) fn create(&mut self, offer: &str) -> Result<Created, OfferError> {
        self.ask(|reply| Request::Create {
            offer: offer.to_owned(),
            ingress: INGRESS.to_vec(),
            reply,
        })
    }

    pub(super) fn ask<T>(&mut self, request: impl FnOnce(Reply<T>) -> Request) -> T {
        let (reply, mut answer) = oneshot::channel();
        self.core.handle_request(request(reply), self.now);
        answer.try_recv().unwrap()
    }

    pub(super) fn snapshot(&mut self, index: usize) -> Option<SessionSnapshot> {
        let id = self.nodes[index].session.as_ref()?.id;
        self.ask(|reply| Request::Get { id, reply }).ok()
    }

    /// Lets `time` pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.exchange();
        while self.now < end {
            let timers = self.nodes.iter_mut().filter(|node| node.online);
            let next = timers
                .filter_map(|node| node.client.poll_timeout())
                .chain(self.core.poll_timeout())
                .min()
                .unwrap_or(end);
            self.now = next.max(self.now + Duration::from_millis(1)).min(end);
            let now = self.now;
            if self.core.poll_timeout().is_some_and(|due| due <= now) {
                self.core.handle_timeout(now);
            }
            for node in self.nodes.iter_mut().filter(|node| node.online) {
                if node.client.poll_timeout().is_some_and(|due| due <= now) {
                    node.client.handle_timeout(now);
                }
            }
            self.exchange();
        }
    }

    pub(super) fn run_until(&mut self, at_most: Duration, done: impl Fn(&Self) -> bool) {
        let deadline = self.now + at_most;
        while !done(self) {
            assert!(self.now < deadline, "not within {at_most:?}");
            self.run(Duration::from_millis(10));
        }
    }

    /// The client speaks for `frames` frames. Returns how many came back.
    pub(super) fn talk(&mut self, index: usize, frames: usize) -> usize {
        let before = self.nodes[index].client.heard.len();
        for frame in 0..frames {
            let payload = Bytes::from(format!("frame {frame}"));
            let now = self.now;
            self.nodes[index].client.speak(payload, now);
            self.run(FRAME);
        }
        self.nodes[index].client.heard.len() - before
    }

    /// Moves packets until nobody has any.
    pub(super) fn exchange(&mut self) {
        loop {
            let mut moved = self.downlink();
            for index in 0..self.nodes.len() {
                while let Some((to, packet)) = self.nodes[index].client.next_datagram() {
                    moved = true;
                    if let Some(tap) = &mut self.tap {
                        tap.push(packet.to_vec());
                    }
                    let (nat, online) = (self.nodes[index].nat, self.nodes[index].online);
                    if online && !self.loses() {
                        self.uplink(nat, to, &packet);
                    }
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn loses(&mut self) -> bool {
        self.packets += 1;
        self.lose_every
            .is_some_and(|every| self.packets.is_multiple_of(every))
    }

    /// A packet of `from` reaches the ingress `to`, if that is one.
    pub(super) fn uplink(&mut self, from: SocketAddr, to: SocketAddr, packet: &[u8]) {
        let Some(pop) = INGRESS.iter().position(|ingress| *ingress == to) else {
            return;
        };
        let ended = self.ended.get(&from).is_some_and(|until| self.now < *until);
        if ended && PacketKind::of(packet) != PacketKind::Stun {
            return;
        }
        let header = RecordHeader {
            offered: self.offers(from, packet),
            ..self.header(from, u16::try_from(pop + 1).unwrap())
        };
        self.fragment_id = self.fragment_id.wrapping_add(1);
        let parts = record::split(
            header,
            packet,
            self.datagram_len_max - record::DATAGRAM_HEADER_LEN,
            self.fragment_id,
        );
        let relay = relay_address(self.relay);
        for part in parts.unwrap() {
            let datagram = datagram(&part.header, part.payload);
            self.core.handle_datagram(relay, &datagram, self.now);
        }
    }

    /// What is no check passes as an offer, with a PoP that knows its clients, until the engine has said something to that address.
    fn offers(&self, from: SocketAddr, packet: &[u8]) -> bool {
        let unknown = self
            .known
            .as_ref()
            .is_some_and(|known| !known.contains(&from));
        unknown && PacketKind::of(packet) != PacketKind::Stun
    }

    pub(super) fn header(&self, client: SocketAddr, pop: u16) -> RecordHeader {
        RecordHeader {
            owner: self.core.owner,
            tag: Tag {
                pop: PopId(pop),
                worker: 0,
                ingress: 0,
            },
            client: ClientAddr::new(client),
            hops: 1,
            fragment: None,
            offered: false,
        }
    }

    fn downlink(&mut self) -> bool {
        let mut datagrams = Vec::new();
        self.core.egress.drain(|to, bytes, segment_bytes| {
            for datagram in bytes.chunks(segment_bytes) {
                datagrams.push((to, datagram.to_vec()));
            }
        });
        for (to, datagram) in &datagrams {
            assert!(datagram.len() <= self.datagram_len_max);
            let (kind, _, body) = open_datagram(datagram).unwrap();
            assert_eq!(kind, DatagramKind::Records);
            for record in Records::new(body) {
                let record = record.unwrap();
                let client = record.header.client.socket_addr();
                if record.is_end() {
                    self.ends.push((*to, record.header, self.sent.len()));
                    if let Some(known) = &mut self.known {
                        known.remove(&client);
                    }
                    self.ended.insert(client, self.now + ENDED);
                    continue;
                }
                if PacketKind::of(record.payload) == PacketKind::Stun {
                    self.ended.remove(&client);
                }
                if let Some(known) = &mut self.known
                    && self
                        .ended
                        .get(&client)
                        .is_none_or(|until| self.now >= *until)
                {
                    known.insert(client);
                }
                if record.is_taken() {
                    self.taken.push(client);
                    continue;
                }
                let whole = self
                    .reassembler
                    .push(&record.header, record.payload, self.now);
                if let Reassembled::Complete(packet) = whole {
                    let packet = packet.to_vec();
                    self.deliver(*to, &record.header, &packet);
                }
            }
        }
        !datagrams.is_empty()
    }

    fn deliver(&mut self, relay: SocketAddr, header: &RecordHeader, packet: &[u8]) {
        let IpAddr::V4(ip) = relay.ip() else {
            panic!("relays are IPv4")
        };
        let (pop, client) = (header.tag.pop.0, header.client.socket_addr());
        self.sent.push((ip.octets()[3], pop, client, packet.len()));
        let from = INGRESS[usize::from(pop) - 1];
        let (now, lost) = (self.now, self.loses());
        for node in &mut self.nodes {
            if node.online && node.nat == client && !lost {
                node.client.handle_packet(from, packet, now);
            }
        }
    }

    /// A check from `from` that nominates, made with the credentials of the session of `index`.
    pub(super) fn nominate(&mut self, index: usize, from: SocketAddr) {
        let packet = self.check(index);
        self.uplink(from, INGRESS[0], &packet);
        self.exchange();
    }

    pub(super) fn check(&self, index: usize) -> Vec<u8> {
        let node = &self.nodes[index];
        let answer = &node.session.as_ref().unwrap().answer;
        let username = format!(
            "{}:{}",
            line(answer, "a=ice-ufrag:"),
            line(&node.offer, "a=ice-ufrag:")
        );
        let mut packet = Vec::new();
        let password = line(answer, "a=ice-pwd:");
        nominating_request(&mut packet, &[9; 12], &username, password.as_bytes());
        packet
    }
}

pub(super) fn datagram(header: &RecordHeader, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_slice(&record::datagram_header(DatagramKind::Records, 0));
    record::put_record(&mut out, header, payload);
    out
}

/// What follows `prefix` on its first line.
pub(super) fn line<'a>(sdp: &'a str, prefix: &str) -> &'a str {
    sdp.lines()
        .find_map(|line| line.strip_prefix(prefix))
        .unwrap()
}
