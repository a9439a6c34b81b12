//! What lies between the sites: virtual time, the paths, the packets in the air, the ledger and the trace.
//!
//! Paths cannot look into QUIC, yet the ledger must know how many records a lost packet held. When all packets of clients
//! are equally long, the length of a QUIC packet tells, because everything else in it together is shorter than one record;
//! and the count is checked against what comes out at the other end, packet by packet.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use wire::record::{RECORD_HEADER_LEN_V4, Records, open_datagram};

use super::ledger::{Ledger, Way};
use super::packet::Packets;
use super::path::{Conditions, Fate, HEADERS_LEN, Path};
use super::random::Random;

/// A place in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// All clients.
    Clients,
    /// A PoP, by its place in the topology.
    Pop(usize),
    /// A core relay.
    Relay(usize),
    /// A transceiver.
    Transceiver(usize),
}

impl Site {
    fn code(self) -> u64 {
        let (kind, index) = match self {
            Self::Clients => (0, 0),
            Self::Pop(index) => (1, index),
            Self::Relay(index) => (2, index),
            Self::Transceiver(index) => (3, index),
        };
        kind << 16 | u64::try_from(index).unwrap_or(u64::MAX) & 0xffff
    }

    const fn way_to(self, to: Self) -> Way {
        match (self, to) {
            (Self::Clients, _) | (Self::Pop(_), Self::Relay(_)) | (_, Self::Transceiver(_)) => {
                Way::Up
            }
            (Self::Pop(_) | Self::Relay(_) | Self::Transceiver(_), _) => Way::Down,
        }
    }
}

/// A UDP payload and whose it is.
#[derive(Clone, Debug)]
pub enum Cargo {
    /// Between a client and a PoP.
    Client(u32, Vec<u8>),
    /// Between a PoP and a core relay, with the packets of clients in it.
    Quic(Vec<u8>, u64),
    /// Between a core relay and a transceiver.
    Records(Vec<u8>),
}

impl Cargo {
    const fn len(&self) -> usize {
        match self {
            Self::Client(_, bytes) | Self::Quic(bytes, _) | Self::Records(bytes) => bytes.len(),
        }
    }
}

impl Cargo {
    /// Packets of clients in it.
    fn records(&self) -> u64 {
        match self {
            Self::Client(..) => 1,
            Self::Quic(_, records) => *records,
            Self::Records(bytes) => {
                let records =
                    open_datagram(bytes).map_or(0, |(_, _, body)| Records::new(body).count());
                u64::try_from(records).unwrap_or(u64::MAX)
            }
        }
    }
}

/// A UDP payload in the air.
#[derive(Clone, Debug)]
pub struct Flight {
    /// Whence.
    pub from: Site,
    /// The address it came from.
    pub from_address: SocketAddr,
    /// Whither.
    pub to: Site,
    /// The address it goes to; a site that has another one by then does not get it.
    pub to_address: SocketAddr,
    /// What the path took.
    pub took: Duration,
    /// Packets of clients in it.
    pub records: u64,
    /// Whether the path made it of another one.
    pub copy: bool,
    /// The payload.
    pub cargo: Cargo,
}

/// Bytes of a QUIC packet with one datagram that are not records: short header with one byte of packet number, tag, frame
/// type, datagram header.
const QUIC_OVERHEAD_MIN: usize = 1 + 8 + 1 + 16 + 1 + 4;
/// Packets this long only prove that the path carries them.
const PROOF_MARGIN: usize = 12;

/// See the module head.
#[derive(Debug)]
pub struct Net {
    epoch: Instant,
    /// Since the beginning.
    pub at: Duration,
    paths: BTreeMap<(Site, Site), Path>,
    air: BTreeMap<(Duration, u64), Flight>,
    order: u64,
    /// Who holds which address of the backbone.
    pub directory: BTreeMap<SocketAddr, Site>,
    /// The books.
    pub ledger: Ledger,
    /// What clients send.
    pub packets: Packets,
    /// Bytes of every packet of a client, when all are equally long.
    payload_len: Option<usize>,
    mtu_bytes: usize,
    trace: (u64, u64),
    seed: u64,
}

impl Net {
    /// Nothing in the air. `payload_len`: of every packet of a client, when all are equally long.
    #[must_use]
    pub fn new(seed: u64, payload_len: Option<usize>, mtu_bytes: usize) -> Self {
        Self {
            epoch: runtime::clock::now(),
            at: Duration::ZERO,
            paths: BTreeMap::new(),
            air: BTreeMap::new(),
            order: 0,
            directory: BTreeMap::new(),
            ledger: Ledger::default(),
            packets: Packets::new(),
            payload_len,
            mtu_bytes,
            trace: (0, 0xcbf2_9ce4_8422_2325),
            seed,
        }
    }

    /// Virtual time as the programs see it.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.epoch + self.at
    }

    /// A moment of the programs' time, since the beginning.
    #[must_use]
    pub fn since_epoch(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.epoch)
    }

    /// Whether what is lost on links can be counted.
    #[must_use]
    pub const fn counts_records(&self) -> bool {
        self.payload_len.is_some()
    }

    /// How many packets were sent, and a number made of what became of each of them and when.
    #[must_use]
    pub const fn trace(&self) -> (u64, u64) {
        self.trace
    }

    /// What the path does to packets.
    pub fn conditions(&mut self, from: Site, to: Site) -> &mut Conditions {
        &mut self.path(from, to).conditions
    }

    fn path(&mut self, from: Site, to: Site) -> &mut Path {
        let seed = self.seed;
        self.paths.entry((from, to)).or_insert_with(|| {
            Path::new(Random::new(seed, from.code() << 32 | to.code() | 1 << 63))
        })
    }

    /// How many records the length of a QUIC packet speaks of.
    #[must_use]
    pub fn records_in_quic(&self, bytes: &[u8]) -> u64 {
        let Some(payload_len) = self.payload_len else {
            return 0;
        };
        let bytes = after_handshake(bytes).unwrap_or_default();
        if bytes.len() + PROOF_MARGIN >= self.mtu_bytes {
            return 0;
        }
        let records_len = bytes.len().saturating_sub(QUIC_OVERHEAD_MIN);
        u64::try_from(records_len / (RECORD_HEADER_LEN_V4 + payload_len)).unwrap_or(u64::MAX)
    }

    /// Sends a payload. Returns how many packets of clients are in it.
    pub fn send(
        &mut self,
        (from, from_address): (Site, SocketAddr),
        (to, to_address): (Site, SocketAddr),
        cargo: Cargo,
    ) {
        let (at, way) = (self.at, from.way_to(to));
        let records = cargo.records();
        // The length of a handshake depends on what TLS draws.
        let len = match &cargo {
            Cargo::Quic(bytes, _) if is_handshake(bytes) => self.mtu_bytes,
            Cargo::Client(..) | Cargo::Quic(..) | Cargo::Records(_) => cargo.len(),
        };
        let fate = self.path(from, to).send(at, len + HEADERS_LEN);
        self.note(from, to, len, fate);
        let flight = |took, copy, cargo| Flight {
            from,
            from_address,
            to,
            to_address,
            took,
            records,
            copy,
            cargo,
        };
        match fate {
            Fate::Lost(cause) => self.ledger.lost(way, cause, records),
            Fate::Arrives(took, again) => {
                if let Some(again) = again {
                    self.ledger.tally(way).copies += records;
                    self.launch(flight(again, true, cargo.clone()));
                }
                self.launch(flight(took, false, cargo));
            }
        }
    }

    /// Sends to whoever holds the address; where nobody does, the payload is not heard.
    pub fn send_to(&mut self, from: (Site, SocketAddr), to: SocketAddr, cargo: Cargo) {
        if let Some(site) = self.directory.get(&to).copied() {
            return self.send(from, (site, to), cargo);
        }
        let records = cargo.records();
        let way = match from.0 {
            Site::Clients | Site::Pop(_) => Way::Up,
            Site::Relay(_) | Site::Transceiver(_) => Way::Down,
        };
        self.ledger.tally(way).unheard += records;
    }

    fn launch(&mut self, flight: Flight) {
        self.order += 1;
        self.air.insert((self.at + flight.took, self.order), flight);
    }

    /// When the next payload arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Duration> {
        self.air.first_key_value().map(|((at, _), _)| *at)
    }

    /// A payload that arrives by now.
    pub fn arrival(&mut self) -> Option<Flight> {
        self.next_arrival().filter(|at| *at <= self.at)?;
        self.air.pop_first().map(|(_, flight)| flight)
    }

    /// Packets of clients that are in the air.
    #[must_use]
    pub fn in_air(&self, way: Way) -> u64 {
        let flights = self.air.values();
        let flights = flights.filter(|flight| flight.from.way_to(flight.to) == way);
        flights.map(|flight| flight.records).sum()
    }

    /// A payload arrived, and nobody took what was in it.
    pub fn unheard(&mut self, flight: &Flight) {
        let way = flight.from.way_to(flight.to);
        self.ledger.tally(way).unheard += flight.records;
    }

    fn note(&mut self, from: Site, to: Site, len: usize, fate: Fate) {
        let fate = match fate {
            Fate::Arrives(took, again) => {
                let nanos = took.as_nanos() << 32 ^ again.unwrap_or_default().as_nanos();
                u64::try_from(nanos & u128::from(u64::MAX)).unwrap_or_default()
            }
            Fate::Lost(_) => u64::MAX,
        };
        let at = u64::try_from(self.at.as_nanos()).unwrap_or(u64::MAX);
        let len = u64::try_from(len).unwrap_or(u64::MAX);
        self.trace.0 += 1;
        for word in [at, from.code(), to.code(), len, fate] {
            self.trace.1 = (self.trace.1 ^ word)
                .wrapping_mul(0x0000_0100_0000_01b3)
                .rotate_left(5);
        }
    }
}

/// A long header (RFC 9000 §17.2).
fn is_handshake(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|first| first & 0x80 != 0)
}

/// The packet with a short header that follows those of a handshake in one payload, if one does. Beside an Initial there is
/// only padding.
fn after_handshake(bytes: &[u8]) -> Option<&[u8]> {
    // The bit between form and type may have either value (RFC 9287).
    const TYPE: u8 = 0x30;
    const INITIAL: u8 = 0x00;
    if !is_handshake(bytes) {
        return Some(bytes);
    }
    let (first, rest) = bytes.split_first()?;
    if first & TYPE == INITIAL {
        return None;
    }
    let rest = rest.get(4..)?;
    let rest = after_connection_id(after_connection_id(rest)?)?;
    // The length of the rest, a variable-length integer (RFC 9000 §16) of one or two bytes.
    let (first, rest) = rest.split_first()?;
    let (len, rest) = match first >> 6 {
        0 => (usize::from(*first), rest),
        _ => {
            let (second, rest) = rest.split_first()?;
            (usize::from(first & 0x3f) << 8 | usize::from(*second), rest)
        }
    };
    after_handshake(rest.get(len..)?)
}

fn after_connection_id(bytes: &[u8]) -> Option<&[u8]> {
    let (len, rest) = bytes.split_first()?;
    rest.get(usize::from(*len)..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_handshake_in_one_payload_is_found() {
        let short = [0x40, 1, 2, 3];
        assert_eq!(after_handshake(&short), Some(&short[..]));
        // Handshake, version 1, connection ids of 2 and 1 bytes, lengths of 3 and of 64.
        let head = [0xe2, 0, 0, 0, 1, 2, 9, 9, 1, 9];
        let one = [&head[..], &[3, 7, 7, 7], &short].concat();
        assert_eq!(after_handshake(&one), Some(&short[..]));
        let two = [&head[..], &[0x40, 64], &[7; 64], &one].concat();
        assert_eq!(after_handshake(&two), Some(&short[..]));
        let initial = [&[0xc2], &one[1..]].concat();
        assert_eq!(after_handshake(&initial), None);
        let greased = [&[0x82], &one[1..]].concat();
        assert_eq!(after_handshake(&greased), None);
        for len in 0..one.len() - short.len() {
            assert_eq!(after_handshake(&one[..len]).unwrap_or_default(), [0; 0]);
        }
    }
}
