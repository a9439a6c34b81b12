//! One flow: the soft state a PoP keeps for one client address. Small, because there may be a million.

use std::net::{IpAddr, Ipv6Addr};

use wire::{ClientAddr, Owner};

/// Time inside a flow table: tenths of a second since the table was made. Wraps after 13 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tick(pub(crate) u32);

/// Ticks in a second.
pub(crate) const TICKS_PER_S: u32 = 10;

impl Tick {
    /// Ticks since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A client address packed into 18 bytes: IPv4 as its mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    ip: [u8; 16],
    port: u16,
}

impl FlowKey {
    pub(crate) const fn new(client: ClientAddr) -> Self {
        let ip = match client.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self {
            ip: Ipv6Addr::octets(&ip),
            port: client.port(),
        }
    }
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A hint claimed it; only Binding requests pass.
    Tentative,
    /// Its owner has answered; everything passes.
    Committed,
}

/// A second owner of a committed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Second {
    pub(crate) owner: Owner,
    /// When it came.
    pub(crate) since: Tick,
    /// When it last sent something down.
    pub(crate) heard: Tick,
    /// Set once it has had its bounded time: it no longer gets copies, and keeps the place so that no
    /// claim renews it at once.
    pub(crate) barred: bool,
}

/// The soft state for one client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    pub(crate) state: State,
    pub(crate) owner: Owner,
    /// When the client or the owner last sent something that passed.
    pub(crate) seen: Tick,
    /// When the owner last sent something down.
    pub(crate) heard: Tick,
    pub(crate) second: Option<Second>,
}

/// A tentative flow that its owner has not answered by then is gone.
pub(crate) const TENTATIVE_TTL: u32 = 5 * TICKS_PER_S;
/// A committed flow idle in both directions for so long is gone. Consent checks come every few seconds (RFC 7675 §5.1).
pub(crate) const COMMITTED_IDLE: u32 = 60 * TICKS_PER_S;
/// An owner that sent nothing down for so long has lost a shared address to the other one.
pub(crate) const OWNER_IDLE: u32 = 10 * TICKS_PER_S;
/// Two owners share an address at most so long; for as long again the second stays barred.
pub(crate) const SHARED_MAX: u32 = 30 * TICKS_PER_S;

impl Flow {
    pub(crate) const fn expired(&self, now: Tick) -> bool {
        let idle = now.since(self.seen);
        match self.state {
            State::Tentative => idle > TENTATIVE_TTL,
            State::Committed => idle > COMMITTED_IDLE,
        }
    }

    /// Whether `owner` holds this flow, alone or as the second.
    pub(crate) fn is_owned_by(&self, owner: Owner) -> bool {
        self.state == State::Committed
            && (self.owner == owner || self.second_owner() == Some(owner))
    }

    /// The second owner while it gets copies.
    pub(crate) fn second_owner(&self) -> Option<Owner> {
        self.second
            .filter(|second| !second.barred)
            .map(|second| second.owner)
    }

    /// Settles a shared address: an idle owner gives way, a second one past its time is barred, a bar ends.
    pub(crate) fn settle(&mut self, now: Tick) {
        let Some(second) = self.second.as_mut() else {
            return;
        };
        if now.since(self.heard) > OWNER_IDLE && second.heard > self.heard {
            // A barred one too: its bar protects an owner that still answers.
            self.owner = second.owner;
            self.heard = second.heard;
            self.second = None;
        } else if second.barred {
            if now.since(second.since) > 2 * SHARED_MAX {
                self.second = None;
            }
        } else if now.since(second.heard) > OWNER_IDLE {
            self.second = None;
        } else if now.since(second.since) > SHARED_MAX {
            second.barred = true;
        }
    }

    /// `owner` no longer serves the address. Returns whether nobody does.
    pub(crate) fn ended_by(&mut self, owner: Owner) -> bool {
        if self.owner != owner {
            if self.second.is_some_and(|second| second.owner == owner) {
                self.second = None;
            }
            return false;
        }
        let Some(second) = self.second.take() else {
            return true;
        };
        self.owner = second.owner;
        self.heard = second.heard;
        false
    }

    /// The owner sent something down that only an authenticated client gets.
    pub(crate) fn heard_from(&mut self, owner: Owner, now: Tick) {
        if self.state == State::Tentative {
            self.state = State::Committed;
            self.owner = owner;
            self.heard = now;
        } else if self.owner == owner {
            self.heard = now;
        } else if let Some(second) = self.second.as_mut() {
            // A third owner waits until the second has gone.
            if second.owner == owner {
                second.heard = now;
            }
        } else {
            self.second = Some(Second {
                owner,
                since: now,
                heard: now,
                barred: false,
            });
        }
        self.seen = now;
    }
}
