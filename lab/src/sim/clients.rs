//! The clients: each sends a check until it is answered, then media, and a check every few seconds (RFC 7675).
//!
//! Clients take turns: a slot is a moment in which seven of them send, because seven packets of a voice client fill a
//! datagram; all have had a slot after 20 ms. So the net adds no time by batching, and a PoP sees batches as under load.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use wire::ClientAddr;
use wire::hint::Ufrag;

use super::ledger::Way;
use super::net::{Cargo, Flight, Net, Site};
use super::packet::{Kind, Stamp};

/// Clients that share a slot.
const SLOT_CLIENTS: usize = 7;
/// In which every client has one slot: 50 packets a second.
const FRAME: Duration = Duration::from_millis(20);
/// A check that is not answered is sent again after this.
const CHECK_AGAIN: Duration = Duration::from_millis(250);
/// A check that was answered is followed by another after this, and up to half of it more.
const CONSENT: Duration = Duration::from_secs(2);
const FIRST_ADDRESS: u32 = 0x6440_0001;
const PORT: u16 = 40_000;

/// The address of a client.
#[must_use]
pub fn address(client: u32) -> ClientAddr {
    let ip = Ipv4Addr::from(FIRST_ADDRESS.wrapping_add(client));
    ClientAddr::new(SocketAddr::new(ip.into(), PORT))
}

/// The client at an address.
#[must_use]
pub fn index(address: ClientAddr) -> Option<u32> {
    let IpAddr::V4(ip) = address.ip() else {
        return None;
    };
    u32::from(ip).checked_sub(FIRST_ADDRESS)
}

/// One client.
#[derive(Clone, Debug)]
pub struct Client {
    /// The PoP it sends to.
    pub pop: usize,
    /// The transceiver that holds its session.
    pub transceiver: usize,
    /// The ufrag its session has.
    pub ufrag: Ufrag,
    /// Whether a check was answered.
    pub connected: bool,
    check_at: Duration,
}

impl Client {
    /// A client that sends its first check in its next slot.
    #[must_use]
    pub const fn new(pop: usize, transceiver: usize, ufrag: Ufrag) -> Self {
        Self {
            pop,
            transceiver,
            ufrag,
            connected: false,
            check_at: Duration::ZERO,
        }
    }
}

/// All clients.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// By index.
    pub list: Vec<Client>,
    check_len: usize,
    tick: u64,
}

impl Clients {
    /// None yet; their checks will be so long.
    #[must_use]
    pub const fn new(check_len: usize) -> Self {
        Self {
            list: Vec::new(),
            check_len,
            tick: 0,
        }
    }

    fn slots(&self) -> usize {
        self.list.len().div_ceil(SLOT_CLIENTS).max(1)
    }

    /// When the next slot is.
    #[must_use]
    pub fn next_slot(&self) -> Duration {
        let slots = u64::try_from(self.slots()).unwrap_or(u64::MAX);
        let nanos = u64::try_from(FRAME.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.tick / slots * nanos + self.tick % slots * nanos / slots)
    }

    /// Begins the next slot and says whose it is.
    pub fn begin_slot(&mut self) -> std::ops::Range<usize> {
        let slots = u64::try_from(self.slots()).unwrap_or(u64::MAX);
        let slot = usize::try_from(self.tick % slots).unwrap_or_default();
        self.tick += 1;
        let first = slot * SLOT_CLIENTS;
        first..(first + SLOT_CLIENTS).min(self.list.len())
    }

    /// Passes over slots before `at`, after clients were added.
    pub fn skip_to(&mut self, at: Duration) {
        while self.next_slot() < at {
            self.tick += 1;
        }
    }

    /// A client's turn: a check when one is due, else media of `media_len` bytes where clients talk.
    pub fn send(&mut self, index: usize, media_len: Option<usize>, net: &mut Net) {
        let check_len = self.check_len;
        let (Some(client), Ok(number)) = (self.list.get_mut(index), u32::try_from(index)) else {
            return;
        };
        let check = net.at >= client.check_at;
        let Some(len) = media_len
            .filter(|_| client.connected)
            .or_else(|| check.then_some(check_len))
        else {
            return;
        };
        let serial = net.ledger.sent(number, Way::Up, net.at);
        let stamp = Stamp {
            client: number,
            serial,
        };
        let packet = if check {
            client.check_at = net.at + CHECK_AGAIN;
            net.packets.check(stamp, &client.ufrag, check_len)
        } else {
            net.packets.media(stamp, len)
        };
        let from = (Site::Clients, address(number).socket_addr());
        // The ingress address does not matter: a PoP has one.
        let to = (Site::Pop(client.pop), from.1);
        net.send(from, to, Cargo::Client(number, packet));
    }

    /// A packet arrived at a client.
    ///
    /// # Panics
    /// It is not for that client, or not intact.
    pub fn arrived(&mut self, flight: &Flight, net: &mut Net) {
        let Cargo::Client(number, bytes) = &flight.cargo else {
            unreachable!("PoPs send packets to clients")
        };
        let (kind, stamp) = net.packets.read(bytes).expect("payloads arrive intact");
        net.ledger.passed(stamp.serial, flight.took);
        net.ledger.arrived(stamp.serial, *number, Way::Down, net.at);
        let index = usize::try_from(*number).unwrap_or(usize::MAX);
        let client = self.list.get_mut(index).expect("there is such a client");
        assert_eq!(
            flight.from,
            Site::Pop(client.pop),
            "answers come from where it asked"
        );
        if kind == Kind::Answer {
            let spread = Duration::from_micros(stamp.serial * 7919 % 1_000_000);
            client.connected = true;
            client.check_at = net.at + CONSENT + spread;
        }
    }
}
