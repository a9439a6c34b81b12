//! One flow: the soft state a PoP keeps for one client address. One cache line, because there may be a million.

use std::hash::{Hash, Hasher};
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

    pub(crate) const fn after(self, ticks: u32) -> Self {
        Self(self.0.saturating_add(ticks))
    }
}

/// A client address packed into 18 bytes: IPv4 as its mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl FlowKey {
    /// The client it was made of.
    pub(crate) fn client(&self) -> ClientAddr {
        ClientAddr::new((Ipv6Addr::from(self.ip), self.port).into())
    }
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(u128::from_ne_bytes(self.ip));
        state.write_u16(self.port);
    }
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// A hint claimed it; only Binding requests pass.
    Tentative {
        /// Names the share of the hint that made it.
        hint: u32,
    },
    /// The flow cache named its owner, who has not been heard yet; everything passes.
    Recovered,
    /// Its owner has answered; everything passes.
    Committed {
        /// When the flow cache is to be told next.
        store_due: Tick,
        /// Which session of its owner it is.
        claim: Claim,
    },
    /// Its owner said that the session is over. Nothing passes; what that owner still has under way makes no flow.
    Ended {
        /// Another session of that owner was claimed before: the owner's answer to the claim brings the flow back.
        claimed: bool,
    },
}

impl State {
    /// Its owner has just answered; the flow cache does not know.
    pub(crate) const COMMITTED: Self = Self::committed(Claim::NONE);

    const fn committed(claim: Claim) -> Self {
        Self::Committed {
            store_due: Tick(0),
            claim,
        }
    }

    /// Whether packets other than Binding requests pass.
    pub(crate) const fn passes(self) -> bool {
        match self {
            Self::Recovered | Self::Committed { .. } => true,
            Self::Tentative { .. } | Self::Ended { .. } => false,
        }
    }

    pub(crate) const fn is_ended(self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

/// Which hint the checks of a committed flow bear. A client that begins another session with the same owner from the same
/// address checks with another one, and the end of its former session may arrive between that check and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// The hint, as far as these bits tell; 0: none was seen yet.
    hint: u16,
    /// Its owner has not answered since it was first seen.
    unanswered: bool,
}

impl Claim {
    pub(crate) const NONE: Self = Self {
        hint: 0,
        unanswered: false,
    };

    const fn of(hint: u32) -> Self {
        Self {
            hint: Self::bits(hint),
            unanswered: false,
        }
    }

    const fn bits(hint: u32) -> u16 {
        let [_, _, high, low] = hint.to_be_bytes();
        u16::from_be_bytes([high, low]) | 1
    }

    const fn check(&mut self, hint: u32) {
        let bits = Self::bits(hint);
        if self.hint != bits {
            // Also the first one: an owner that took the client by its media, or was heard first, has answered none.
            self.unanswered = true;
            self.hint = bits;
        }
    }
}

/// A set of ingress addresses of one PoP, by index. A topology has 16 at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ingresses(u16);

impl Ingresses {
    pub(crate) const fn contains(self, ingress: u8) -> bool {
        self.0 & Self::bit(ingress) != 0
    }

    pub(crate) const fn with(self, ingress: u8) -> Self {
        Self(self.0 | Self::bit(ingress))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = u8> {
        (0..16).filter(move |ingress| self.contains(*ingress))
    }

    const fn bit(ingress: u8) -> u16 {
        if ingress < 16 { 1 << ingress } else { 0 }
    }
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

impl Second {
    const fn new(owner: Owner, now: Tick) -> Self {
        Self {
            owner,
            since: now,
            heard: now,
            barred: false,
        }
    }
}

/// The soft state for one client address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) key: FlowKey,
    /// Ingress addresses under which the flow cache knows the flow.
    pub(crate) stored_at: Ingresses,
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
/// A recovered flow whose owner has sent nothing down by then is gone.
pub(crate) const RECOVERED_TTL: u32 = 10 * TICKS_PER_S;
/// A committed flow idle in both directions for so long is gone. Consent checks come every few seconds (RFC 7675 §5.1).
pub(crate) const COMMITTED_IDLE: u32 = 60 * TICKS_PER_S;
/// So long after its end a flow is remembered as ended: far longer than packets and answers are under way.
pub(crate) const ENDED_TTL: u32 = 5 * TICKS_PER_S;
/// An owner that sent nothing down for so long has lost a shared address to the other one.
pub(crate) const OWNER_IDLE: u32 = 10 * TICKS_PER_S;
/// Two owners share an address at most so long; for as long again the second stays barred.
pub(crate) const SHARED_MAX: u32 = 30 * TICKS_PER_S;

impl Flow {
    pub(crate) const fn new(key: FlowKey, state: State, owner: Owner, now: Tick) -> Self {
        Self {
            key,
            stored_at: Ingresses(0),
            state,
            owner,
            seen: now,
            heard: now,
            second: None,
        }
    }

    pub(crate) const fn expired(&self, now: Tick) -> bool {
        match self.state {
            State::Tentative { .. } => now.since(self.seen) > TENTATIVE_TTL,
            State::Recovered => now.since(self.heard) > RECOVERED_TTL,
            State::Committed { .. } => now.since(self.seen) > COMMITTED_IDLE,
            State::Ended { .. } => now.since(self.seen) > ENDED_TTL,
        }
    }

    /// Whether `owner` holds this flow, alone or as the second.
    pub(crate) fn is_owned_by(&self, owner: Owner) -> bool {
        self.state.passes() && (self.owner == owner || self.second_owner() == Some(owner))
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
            let second = *second;
            self.succeed(second);
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

    /// The second owner is the only one from here on.
    fn succeed(&mut self, second: Second) {
        self.owner = second.owner;
        self.heard = second.heard;
        self.second = None;
        self.state = State::COMMITTED;
    }

    /// The flow cache names `owner`. Whoever was claimed meanwhile gets copies until one of the two is heard.
    pub(crate) fn recovered(&mut self, owner: Owner, now: Tick) {
        let claimed = match self.state {
            State::Tentative { .. } if self.owner != owner => Some(Second::new(self.owner, now)),
            State::Tentative { .. }
            | State::Recovered
            | State::Committed { .. }
            | State::Ended { .. } => None,
        };
        *self = Self::new(self.key, State::Recovered, owner, now);
        self.second = claimed;
    }

    /// A check with a hint of `owner` passed on a flow that is its own.
    pub(crate) fn claimed(&mut self, owner: Owner, hint: u32, now: Tick) {
        self.seen = now;
        if let State::Committed { claim, .. } = &mut self.state
            && self.owner == owner
        {
            claim.check(hint);
        }
    }

    /// Whether a check of another session of the owner awaits its answer.
    pub(crate) const fn awaits_answer(&self) -> bool {
        match self.state {
            State::Committed { claim, .. } => claim.unanswered,
            State::Ended { claimed } => claimed,
            State::Tentative { .. } => true,
            State::Recovered => false,
        }
    }

    /// `owner` answered a check.
    pub(crate) fn answered(&mut self, owner: Owner) {
        if let State::Committed { claim, .. } = &mut self.state
            && self.owner == owner
        {
            claim.unanswered = false;
        }
    }

    /// The owner sent something down that only an authenticated client gets.
    pub(crate) fn heard_from(&mut self, owner: Owner, now: Tick) {
        match self.state {
            State::Tentative { .. } | State::Ended { .. } => {
                self.state = match self.state {
                    State::Tentative { hint } if self.owner == owner => {
                        State::committed(Claim::of(hint))
                    }
                    State::Tentative { .. }
                    | State::Ended { .. }
                    | State::Recovered
                    | State::Committed { .. } => State::COMMITTED,
                };
                self.owner = owner;
                self.heard = now;
                self.second = None;
            }
            State::Recovered => {
                // The cache named another one: it keeps its copies for as long as a second owner does.
                self.second = (self.owner != owner).then(|| Second::new(self.owner, now));
                self.state = State::COMMITTED;
                self.owner = owner;
                self.heard = now;
            }
            State::Committed { .. } => self.committed_heard_from(owner, now),
        }
        self.seen = now;
    }

    fn committed_heard_from(&mut self, owner: Owner, now: Tick) {
        if self.owner == owner {
            self.heard = now;
        } else if let Some(second) = self.second.as_mut() {
            // A third owner waits until the second has gone.
            if second.owner == owner {
                second.heard = now;
            }
        } else {
            self.second = Some(Second::new(owner, now));
        }
    }

    /// `owner` says that its session with this client is over. A second owner goes on.
    pub(crate) fn end(&mut self, owner: Owner, now: Tick) {
        let second = self.second.filter(|second| second.owner != owner);
        match (self.owner == owner, second) {
            (true, Some(second)) if matches!(self.state, State::Committed { .. }) => {
                self.succeed(second);
            }
            (true, _) => {
                self.state = State::Ended {
                    claimed: self.awaits_answer(),
                };
                self.stored_at = Ingresses::default();
                self.second = None;
                self.seen = now;
            }
            (false, second) => self.second = second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_is_one_cache_line() {
        assert_eq!(size_of::<Flow>(), 64);
        assert_eq!(size_of::<Option<Flow>>(), 64);
    }

    #[test]
    fn sixteen_ingresses_are_told_apart() {
        let set = Ingresses::default().with(0).with(15).with(16);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 15]);
        assert!(!set.contains(16), "no topology has that many");
    }
}
