//! What was sent, what arrived, and where the rest went: every packet of a client or transceiver has a line here.
//!
//! ```text
//!   sent + copies  =  delivered + lost on paths + unheard + counted drops + waiting + in the air      each way, exactly
//! ```
//! *copies*: what a path duplicated, and what a PoP sent to two owners. *unheard*: arrived where nobody was, at a connection
//! that is over, or twice at one that takes a packet once. *waiting*: in the send queue of a link.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::path::Cause;

/// Which way a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// From a client.
    Up,
    /// To a client.
    Down,
}

/// Where the packets of one way have gone, in records on links and in packets elsewhere, which is the same unless packets
/// are split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By clients, or by transceivers.
    pub sent: u64,
    /// More of them, made on the way.
    pub copies: u64,
    /// To transceivers, or to clients.
    pub delivered: u64,
    /// By paths.
    pub lost: BTreeMap<Cause, u64>,
    /// See the module head.
    pub unheard: u64,
    /// By the programs' own reasons.
    pub drops: BTreeMap<&'static str, u64>,
    /// See the module head.
    pub waiting: u64,
    /// On paths at this moment.
    pub in_air: u64,
}

impl Tally {
    /// Lost by paths, whatever the cause.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost.values().sum()
    }

    /// Dropped and counted by programs.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops.values().sum()
    }

    /// Whether every packet is accounted for.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        let gone = self.lost_total() + self.unheard + self.dropped_total();
        self.sent + self.copies == self.delivered + gone + self.waiting + self.in_air
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sent,
            copies,
            delivered,
            unheard,
            waiting,
            in_air,
            ..
        } = self;
        write!(
            f,
            "sent {sent} copies {copies} delivered {delivered} lost {:?}",
            self.lost
        )?;
        write!(
            f,
            " unheard {unheard} dropped {:?} waiting {waiting} in the air {in_air}",
            self.drops
        )
    }
}

/// One packet.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The client it is from or for.
    pub client: u32,
    /// Which way.
    pub way: Way,
    /// When it was sent.
    pub sent_at: Duration,
    /// What paths took of the time it was on the way, their bottlenecks' queues included.
    pub on_paths: Duration,
    /// When it first arrived.
    pub arrived_at: Option<Duration>,
    /// How often it arrived.
    pub arrivals: u8,
}

/// See the module head.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    lines: Vec<Line>,
    up: Tally,
    down: Tally,
}

impl Ledger {
    /// A packet is sent. Returns its serial.
    pub fn sent(&mut self, client: u32, way: Way, sent_at: Duration) -> u64 {
        let serial = self.next_serial();
        self.lines.push(Line {
            client,
            way,
            sent_at,
            on_paths: Duration::ZERO,
            arrived_at: None,
            arrivals: 0,
        });
        self.tally(way).sent += 1;
        serial
    }

    /// A path took so long with it.
    pub fn passed(&mut self, serial: u64, took: Duration) {
        if let Some(line) = self.line(serial) {
            line.on_paths += took;
        }
    }

    /// It arrived at its end.
    ///
    /// # Panics
    /// No such packet goes this way to or from this client.
    pub fn arrived(&mut self, serial: u64, client: u32, way: Way, at: Duration) {
        let line = self.line(serial).expect("only what was sent arrives");
        assert_eq!(
            (line.client, line.way),
            (client, way),
            "the wrong one got it"
        );
        line.arrived_at.get_or_insert(at);
        line.arrivals = line.arrivals.saturating_add(1);
        self.tally(way).delivered += 1;
    }

    /// A program dropped something for a reason.
    pub fn dropped(&mut self, way: Way, reason: &'static str, packets: u64) {
        if packets > 0 {
            *self.tally(way).drops.entry(reason).or_default() += packets;
        }
    }

    /// A path lost something.
    pub fn lost(&mut self, way: Way, cause: Cause, packets: u64) {
        if packets > 0 {
            *self.tally(way).lost.entry(cause).or_default() += packets;
        }
    }

    /// The account of one way.
    pub const fn tally(&mut self, way: Way) -> &mut Tally {
        match way {
            Way::Up => &mut self.up,
            Way::Down => &mut self.down,
        }
    }

    /// The serial of the next packet.
    #[must_use]
    pub fn next_serial(&self) -> u64 {
        u64::try_from(self.lines.len()).unwrap_or(u64::MAX)
    }

    /// Every packet from `serial` on.
    #[must_use]
    pub fn since(&self, serial: u64) -> &[Line] {
        let at = usize::try_from(serial).unwrap_or(usize::MAX);
        self.lines.get(at..).unwrap_or_default()
    }

    fn line(&mut self, serial: u64) -> Option<&mut Line> {
        self.lines.get_mut(usize::try_from(serial).ok()?)
    }
}
