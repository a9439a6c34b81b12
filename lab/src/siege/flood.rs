//! A flood: each packet from a source of its own, sent at an even pace from a thread of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use runtime::clock;
use runtime::udp::{BindOptions, RecvBatch, SourceBatch, UdpSocket};
use wire::hint::Ufrag;

use super::pace::Pace;
use crate::raw::{Forger, Request};

/// Different packets that are sent in turn.
const PACKETS: usize = 4096;
/// Packets sent with one call.
const SLOTS: usize = 64;
/// Longest packet of a flood.
const PACKET_LEN_MAX: usize = 256;
/// Source addresses: 127.NET.128.0/17.
const ADDRESSES: u64 = 1 << 15;
const ADDRESSES_FROM: u8 = 128;
/// Ports of each address; a million sources in all.
const PORTS: usize = 32;
/// How long this thread sleeps while nothing is due.
const SLEEP: Duration = Duration::from_micros(300);

/// What a flood consists of.
#[derive(Clone, Debug)]
pub enum Weapon {
    /// Binding requests with ufrags that nobody has issued; one bit of this one is wrong in half of them.
    BadHints(Ufrag),
    /// RTP, DTLS, and what is neither, of clients nobody knows.
    NotStun,
    /// Datagrams without a byte in them.
    Empty,
    /// Binding requests with this ufrag, all of them.
    OneHint(Ufrag),
}

/// A flood that can be let loose.
pub struct Flood {
    ingress: SocketAddr,
    net: u8,
    sockets: Vec<UdpSocket>,
    packets: Vec<Vec<u8>>,
    out: SourceBatch,
    sources: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Flooded {
    /// Packets the kernel took.
    pub sent: u64,
    /// Packets it did not.
    pub refused: u64,
    /// Packets that came back to the sources.
    pub answered: u64,
    /// How long it took.
    pub took: Duration,
}

impl Flooded {
    /// Packets a second.
    #[must_use]
    pub fn per_s(&self) -> f64 {
        self.sent as f64 / self.took.as_secs_f64().max(1e-6)
    }
}

impl Flood {
    /// Prepares packets and sources.
    ///
    /// # Errors
    /// The ingress is not on loopback, or there are no sockets.
    pub fn new(weapon: &Weapon, ingress: SocketAddr) -> anyhow::Result<Self> {
        let SocketAddr::V4(v4) = ingress else {
            anyhow::bail!("floods come from IPv4 addresses");
        };
        let [_, net, _, _] = v4.ip().octets();
        let options = BindOptions::default();
        let open = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &options);
        Ok(Self {
            ingress,
            net,
            sockets: (0..PORTS).map(|_| open()).collect::<Result<_, _>>()?,
            packets: weapon.packets(),
            out: SourceBatch::new(SLOTS, PACKET_LEN_MAX),
            sources: 0,
        })
    }

    /// Sends `count` packets, `per_s` a second, or as fast as this processor can.
    pub fn run(&mut self, count: u64, per_s: Option<u64>) -> Flooded {
        let began = clock::now();
        let mut pace = per_s.map(|per_s| Pace::new(per_s, began));
        let (mut sent, mut refused) = (0, 0);
        while sent + refused < count {
            let due = match &mut pace {
                Some(pace) => pace.take(clock::now()),
                None => SLOTS as u64,
            };
            if due == 0 {
                thread::sleep(SLEEP);
            }
            let mut left = due.min(count - sent - refused);
            while left > 0 {
                let (took, not) = self.send(left);
                (sent, refused) = (sent + took, refused + not);
                left -= took + not;
            }
        }
        Flooded {
            sent,
            refused,
            answered: self.answered(),
            took: clock::now() - began,
        }
    }

    /// Sends one batch of at most `most`. How many the kernel took, and how many not.
    fn send(&mut self, most: u64) -> (u64, u64) {
        let most = most.min(SLOTS as u64);
        // One batch leaves through one socket, so through one port.
        let port = self.sources / ADDRESSES;
        for _ in 0..most {
            let index = self.sources;
            self.sources += 1;
            let packet = pick(&self.packets, index).map_or(&[][..], Vec::as_slice);
            let source = self.source(index);
            // The batch has room: it is empty before the first of at most as many as it holds.
            let _ = self.out.push(source, self.ingress, packet);
        }
        let Some(socket) = pick(&self.sockets, port) else {
            return (0, most);
        };
        let report = self.out.flush(socket);
        (report.sent as u64, most - report.sent as u64)
    }

    /// Walks through all addresses before it comes back to one, then by another port.
    fn source(&self, index: u64) -> Ipv4Addr {
        let [.., high, low] = (index % ADDRESSES).to_be_bytes();
        Ipv4Addr::new(127, self.net, ADDRESSES_FROM + high, low)
    }

    fn answered(&self) -> u64 {
        let mut batch = RecvBatch::new(SLOTS, 2048);
        let mut answered = 0;
        for socket in &self.sockets {
            while let Ok(filled @ 1..) = batch.recv(socket) {
                answered += filled as u64;
            }
            answered += socket.recv_drops();
        }
        answered
    }
}

fn pick<T>(all: &[T], index: u64) -> Option<&T> {
    let len = u64::try_from(all.len()).ok().filter(|len| *len > 0)?;
    all.get(usize::try_from(index % len).ok()?)
}

impl Weapon {
    fn packets(&self) -> Vec<Vec<u8>> {
        match self {
            Self::BadHints(ufrag) => {
                let mut forger = Forger::new(0x5ee_d0f, ufrag.as_str());
                let check = |index| Request::check(transaction(index), &forger.next_ufrag());
                (0..PACKETS).map(check).map(signed).collect()
            }
            Self::OneHint(ufrag) => {
                let check = |index| Request::check(transaction(index), ufrag.as_bytes());
                (0..PACKETS).map(check).map(signed).collect()
            }
            Self::NotStun => (0..PACKETS).map(not_stun).collect(),
            Self::Empty => vec![Vec::new()],
        }
    }
}

fn signed(check: Request) -> Vec<u8> {
    check.sign(b"a guess").bytes().to_vec()
}

/// First bytes of RFC 7983 §7 in turn: DTLS, RTP and RTCP, TURN channels, ZRTP, and nothing at all.
fn not_stun(index: usize) -> Vec<u8> {
    const FIRST: [u8; 6] = [20, 63, 128, 191, 64, 255];
    let first = FIRST.get(index % FIRST.len()).copied().unwrap_or(128);
    let len = 1 + index % 200;
    let mut packet = vec![0xa5; len];
    if let Some(slot) = packet.first_mut() {
        *slot = first;
    }
    packet
}

fn transaction(index: usize) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h] = index.to_be_bytes();
    [b'f', b'l', b'o', b'd', a, b, c, d, e, f, g, h]
}
