//! The flow table of one PoP worker and the rules a packet meets there.

use std::time::{Duration, Instant};

use wire::hint::Minute;
use wire::record::{HOPS_MAX, PAYLOAD_LEN_MAX, RecordHeader};
use wire::stun::{self, Class, METHOD_BINDING, PacketKind};
use wire::{ClientAddr, Owner};

use crate::flow::{Flow, FlowKey, State, TICKS_PER_S, Tick};
use crate::routes::{Claim, Routes};
use crate::table::Table;
use crate::verdict::{Downlink, DropReason, Uplink};

/// Bounds of one worker's table.
#[derive(Clone, Copy, Debug)]
pub struct FlowsConfig {
    /// Flows at most.
    pub flows_max: u32,
    /// Seed of the index hash; must be unpredictable, because clients choose their ports.
    pub hash_seed: u64,
}

/// Of `flows_max`, the share tentative flows may take: one in this many.
const TENTATIVE_SHARE: u32 = 4;
/// How often the expiry hand moves.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);
/// Moves the hand needs to pass over the whole table.
const SWEEP_STEPS: usize = 64;
/// Slots the hand passes at least.
const SWEEP_MIN: usize = 64;

/// The moment a batch was received: one clock reading for all its packets.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic.
    pub instant: Instant,
    /// Wall clock, for the age of hints.
    pub minute: Minute,
}

/// Figures of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Flows that exist.
    pub flows: u64,
    /// Of them, tentative ones.
    pub tentative: u64,
    /// Flows made so far by a hint.
    pub created: u64,
    /// Flows made so far by a downlink record.
    pub learned: u64,
    /// Flows that expired so far.
    pub expired: u64,
    /// Flows whose owner ended them so far.
    pub ended: u64,
}

/// The flows of one worker.
pub struct Flows {
    table: Table,
    tentative_max: u32,
    epoch: Instant,
    sweep_at: Option<Instant>,
    draining: bool,
    created: u64,
    learned: u64,
    expired: u64,
    ended: u64,
}

impl Flows {
    /// An empty table.
    #[must_use]
    pub fn new(config: FlowsConfig, now: Instant) -> Self {
        Self {
            table: Table::new(config.flows_max, config.hash_seed),
            tentative_max: (config.flows_max / TENTATIVE_SHARE).max(1),
            epoch: now,
            sweep_at: None,
            draining: false,
            created: 0,
            learned: 0,
            expired: 0,
            ended: 0,
        }
    }

    /// From here on, no client that has no flow gets one from a hint.
    pub const fn drain(&mut self) {
        self.draining = true;
    }

    /// Decides on a packet from a client.
    pub fn handle_uplink(
        &mut self,
        routes: &Routes,
        from: ClientAddr,
        packet: &[u8],
        now: Now,
    ) -> Uplink {
        if packet.len() > PAYLOAD_LEN_MAX {
            return Uplink::Drop(DropReason::TooLong);
        }
        let verdict = match PacketKind::of(packet) {
            PacketKind::Stun => self.uplink_stun(routes, from, packet, now),
            PacketKind::Dtls | PacketKind::Rtp => self.uplink_other(from, now, DropReason::NoFlow),
            PacketKind::Other if packet.is_empty() => Err(DropReason::Empty),
            PacketKind::Other => self.uplink_other(from, now, DropReason::NoFlow),
        };
        verdict.unwrap_or_else(Uplink::Drop)
    }

    fn uplink_stun(
        &mut self,
        routes: &Routes,
        from: ClientAddr,
        packet: &[u8],
        now: Now,
    ) -> Result<Uplink, DropReason> {
        let Ok(header) = stun::parse(packet) else {
            return self.uplink_other(from, now, DropReason::StunMalformed);
        };
        if header.class != Class::Request || header.method != METHOD_BINDING {
            return self.uplink_other(from, now, DropReason::NoFlow);
        }
        let ufrag = header
            .local_ufrag()
            .map_err(|_| DropReason::StunNoUsername)?;
        let claim = match routes.claim(ufrag) {
            // A session may outlive its key. The owner of a committed address knows the ufrag and checks integrity.
            Err(unknown @ DropReason::HintUnknownKey) => {
                return self.uplink_other(from, now, unknown).map_err(|_| unknown);
            }
            claim => claim?,
        };
        self.uplink_claim(routes, from, claim, now)?;
        Ok(Uplink::Forward {
            owner: claim.owner,
            also: None,
        })
    }

    /// A Binding request is routed by its own hint; here only the flow is made or touched.
    fn uplink_claim(
        &mut self,
        routes: &Routes,
        from: ClientAddr,
        claim: Claim,
        now: Now,
    ) -> Result<(), DropReason> {
        let key = FlowKey::new(from);
        let tick = self.tick(now.instant);
        let Some(slot) = self.live_slot(&key, tick) else {
            routes.source(from)?;
            return self.create_tentative(routes, key, claim, now);
        };
        let owned = self
            .table
            .get(slot)
            .is_some_and(|flow| flow.is_owned_by(claim.owner));
        if !owned && !routes.admits(&claim, now.minute) {
            return Err(DropReason::HintExpired);
        }
        self.table.update(slot, |flow| {
            if flow.state == State::Tentative && flow.owner != claim.owner {
                // The latest claim wins: nothing but Binding requests has passed yet.
                flow.owner = claim.owner;
                flow.seen = tick;
            } else if owned {
                flow.seen = tick;
            }
        });
        Ok(())
    }

    fn create_tentative(
        &mut self,
        routes: &Routes,
        key: FlowKey,
        claim: Claim,
        now: Now,
    ) -> Result<(), DropReason> {
        if self.draining {
            return Err(DropReason::Draining);
        }
        if !routes.admits(&claim, now.minute) {
            return Err(DropReason::HintExpired);
        }
        if self.table.is_full() {
            return Err(DropReason::TableFull);
        }
        if self.table.tentative() >= self.tentative_max {
            return Err(DropReason::TentativeFull);
        }
        let tick = self.tick(now.instant);
        self.insert(
            Flow {
                key,
                state: State::Tentative,
                owner: claim.owner,
                seen: tick,
                heard: tick,
                second: None,
            },
            now,
        );
        self.created += 1;
        Ok(())
    }

    /// Everything but a Binding request passes only on a committed flow.
    fn uplink_other(
        &mut self,
        from: ClientAddr,
        now: Now,
        unknown: DropReason,
    ) -> Result<Uplink, DropReason> {
        let tick = self.tick(now.instant);
        let slot = self.live_slot(&FlowKey::new(from), tick).ok_or(unknown)?;
        let verdict = self.table.update(slot, |flow| {
            if flow.state == State::Tentative {
                return Err(DropReason::NotCommitted);
            }
            flow.settle(tick);
            flow.seen = tick;
            Ok(Uplink::Forward {
                owner: flow.owner,
                also: flow.second_owner(),
            })
        });
        verdict.unwrap_or(Err(unknown))
    }

    /// Decides on a downlink record that is already whole. The caller has checked tag and ingress.
    pub fn handle_downlink(&mut self, header: &RecordHeader, payload: &[u8], now: Now) -> Downlink {
        if header.hops > HOPS_MAX {
            return Downlink::Drop(DropReason::HopLimit);
        }
        let tick = self.tick(now.instant);
        let key = FlowKey::new(header.client);
        match self.live_slot(&key, tick) {
            Some(slot) => self.downlink_known(slot, header.owner, payload, tick),
            None => self.downlink_unknown(key, header.owner, payload, now),
        }
        Downlink::Deliver
    }

    fn downlink_known(&mut self, slot: u32, owner: Owner, payload: &[u8], tick: Tick) {
        self.table.update(slot, |flow| {
            let settled = flow.state == State::Committed && flow.owner == owner;
            if settled || proves_authenticated(payload) {
                flow.heard_from(owner, tick);
            }
        });
    }

    /// The backbone is authenticated and a transceiver sends only to addresses that proved themselves, so the
    /// record tells a PoP that has just restarted whose client this is.
    fn downlink_unknown(&mut self, key: FlowKey, owner: Owner, payload: &[u8], now: Now) {
        if self.table.is_full() || !proves_authenticated(payload) {
            return;
        }
        let tick = self.tick(now.instant);
        self.insert(
            Flow {
                key,
                state: State::Committed,
                owner,
                seen: tick,
                heard: tick,
                second: None,
            },
            now,
        );
        self.learned += 1;
    }

    /// An end record: the owner no longer serves the client. Nothing is sent to the client.
    pub fn handle_end(&mut self, header: &RecordHeader, now: Now) {
        let tick = self.tick(now.instant);
        let Some(slot) = self.live_slot(&FlowKey::new(header.client), tick) else {
            return;
        };
        let over = self
            .table
            .update(slot, |flow| flow.ended_by(header.owner))
            .unwrap_or(false);
        if over {
            self.table.remove(slot);
            self.ended += 1;
        }
    }

    fn insert(&mut self, flow: Flow, now: Now) {
        self.table.insert(flow);
        self.sweep_at.get_or_insert(now.instant + SWEEP_INTERVAL);
    }

    /// The slot of a flow that has not expired. One that has stays for the hand, or is begun anew in place.
    fn live_slot(&mut self, key: &FlowKey, tick: Tick) -> Option<u32> {
        let slot = self.table.find(key)?;
        if self.table.get(slot).is_some_and(|flow| flow.expired(tick)) {
            self.table.remove(slot);
            self.expired += 1;
            return None;
        }
        Some(slot)
    }

    /// Moves the expiry hand by one bounded step when it is due.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.sweep_at.is_none_or(|at| at > now.instant) {
            return;
        }
        let tick = self.tick(now.instant);
        let budget = (self.table.slots() / SWEEP_STEPS).max(SWEEP_MIN);
        self.expired += self.table.expire(budget, tick);
        self.sweep_at = (self.table.len() > 0).then(|| now.instant + SWEEP_INTERVAL);
    }

    /// When [`Self::handle_timeout`] is due next.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.sweep_at
    }

    /// Figures for metrics and `/state`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            flows: self.table.len() as u64,
            tentative: u64::from(self.table.tentative()),
            created: self.created,
            learned: self.learned,
            expired: self.expired,
            ended: self.ended,
        }
    }

    fn tick(&self, now: Instant) -> Tick {
        let tenths = now.saturating_duration_since(self.epoch).as_millis()
            / (1000 / u128::from(TICKS_PER_S));
        Tick(u32::try_from(tenths).unwrap_or(u32::MAX))
    }
}

/// Whether a payload is one a transceiver sends only to an address that proved itself: a Binding success, or
/// anything that is not STUN. An error response proves nothing.
fn proves_authenticated(payload: &[u8]) -> bool {
    match PacketKind::of(payload) {
        PacketKind::Stun => stun::parse(payload).is_ok_and(|header| header.class == Class::Success),
        PacketKind::Dtls | PacketKind::Rtp | PacketKind::Other => true,
    }
}
