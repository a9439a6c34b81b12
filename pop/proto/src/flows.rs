//! The flow table of one PoP worker and the rules a packet meets there. Recovery through the flow cache hooks in where a packet
//! finds no flow; how it holds and asks is `recovery`'s.

mod cache;
mod downlink;
mod expiry;
mod offer;
mod timed;

use std::time::Instant;

use wire::hint::Minute;
use wire::record::PAYLOAD_LEN_MAX;
use wire::stun::{self, Class, METHOD_BINDING, PacketKind};
use wire::{ClientAddr, Owner};

use crate::admission::{Admission, Refusal};
use crate::command::Commands;
use crate::flow::{Flow, FlowKey, State, TICKS_PER_S, Tick};
use crate::offers::Offers;
use crate::recovery::{Recovery, RecoveryConfig, Taken, Unknown};
use crate::routes::{Claim, Routes};
use crate::table::Table;
use crate::timing::{Timing, TimingStats};
use crate::verdict::{DropReason, Uplink};

/// Bounds of one worker's table.
#[derive(Clone, Copy, Debug)]
pub struct FlowsConfig {
    /// Flows at most.
    pub flows_max: u32,
    /// Seed of the index hash; must be unpredictable, because clients choose their ports.
    pub hash_seed: u64,
    /// With a flow cache: how it is used. Without one nothing is held and no command is given.
    pub recovery: Option<RecoveryConfig>,
}

/// The moment a batch was received: one clock reading for all its packets.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic.
    pub instant: Instant,
    /// Wall clock, for the age of hints.
    pub minute: Minute,
}

/// A client, and the ingress address of the PoP (by index) that it speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The client.
    pub client: ClientAddr,
    /// The ingress.
    pub ingress: u8,
}

/// Figures of one table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Flows that exist; ended ones, which are remembered for a few seconds, are not among them.
    pub flows: u64,
    /// Of them, tentative ones.
    pub tentative: u64,
    /// Flows made so far by a hint.
    pub created: u64,
    /// Flows made so far by a downlink record.
    pub learned: u64,
    /// Flows made so far by an answer of the flow cache.
    pub recovered: u64,
    /// Flows not made by a downlink record or an answer, because the table was full.
    pub unlearned: u64,
    /// Flows ended so far by their owner.
    pub ended: u64,
    /// Flows that expired so far.
    pub expired: u64,
    /// Questions asked so far.
    pub questions: u64,
    /// Answers that nobody waited for, so far.
    pub late_answers: u64,
    /// Commands refused so far because their queue was full. A store is said again later.
    pub commands_refused: u64,
    /// Questions open.
    pub open_questions: u64,
    /// Packets held.
    pub held_packets: u64,
    /// Packets of unknown clients offered to owners that may know them, so far.
    pub offered: u64,
    /// Records so far by which an owner said that it knows such a client.
    pub taken: u64,
    /// Round trips that were timed.
    pub timing: TimingStats,
}

/// The flows of one worker.
pub struct Flows {
    table: Table,
    admission: Admission,
    recovery: Option<Recovery>,
    offers: Option<Offers>,
    commands: Commands,
    timing: Timing,
    epoch: Instant,
    sweep_at: Option<Instant>,
    draining: bool,
    /// What was stored by then is stored again soon.
    store_again: Option<Tick>,
    flush: Option<cache::Flushing>,
    totals: Stats,
}

impl Flows {
    /// An empty table.
    #[must_use]
    pub fn new(config: FlowsConfig, now: Instant) -> Self {
        let seed = config.hash_seed;
        Self {
            table: Table::new(config.flows_max, seed),
            admission: Admission::new(config.flows_max, seed),
            recovery: config
                .recovery
                .map(|recovery| Recovery::new(recovery, seed, now)),
            offers: None,
            commands: Commands::new(config.recovery.is_some()),
            timing: Timing::new(),
            epoch: now,
            sweep_at: None,
            draining: false,
            store_again: None,
            flush: None,
            totals: Stats::default(),
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
        from: Source,
        packet: &[u8],
        now: Now,
    ) -> Uplink {
        if packet.len() > PAYLOAD_LEN_MAX {
            return Uplink::Drop(DropReason::TooLong);
        }
        let arrival = self.arrival(from, now);
        let verdict = match PacketKind::of(packet) {
            PacketKind::Stun => self.uplink_stun(routes, arrival, packet, now),
            PacketKind::Dtls | PacketKind::Rtp => self.uplink_media(routes, arrival, packet, now),
            PacketKind::Other if packet.is_empty() => Err(DropReason::Empty),
            PacketKind::Other => self.uplink_other(arrival, DropReason::NoFlow),
        };
        verdict.unwrap_or_else(Uplink::Drop)
    }

    fn arrival(&self, source: Source, now: Now) -> Arrival {
        let key = FlowKey::new(source.client);
        Arrival {
            source,
            hash: self.table.hash(&key),
            key,
            tick: self.tick(now.instant),
        }
    }

    fn uplink_stun(
        &mut self,
        routes: &Routes,
        from: Arrival,
        packet: &[u8],
        now: Now,
    ) -> Result<Uplink, DropReason> {
        let Ok(header) = stun::parse(packet) else {
            return self.uplink_other(from, DropReason::StunMalformed);
        };
        if header.class != Class::Request || header.method != METHOD_BINDING {
            return self.uplink_media(routes, from, packet, now);
        }
        let ufrag = header
            .local_ufrag()
            .map_err(|_| DropReason::StunNoUsername)?;
        let claim = match routes.claim(ufrag) {
            // A session may outlive its key. The owner of a committed address knows the ufrag and checks integrity.
            Err(unknown @ DropReason::HintUnknownKey) => {
                return self.uplink_other(from, unknown).map_err(|_| unknown);
            }
            claim => claim?,
        };
        if self.uplink_claim(routes, from, claim, ufrag, now)? {
            self.timing
                .request_up(self.passage(&from, now), header.transaction_id);
        }
        Ok(Uplink::Forward {
            owner: claim.owner,
            also: None,
        })
    }

    /// A Binding request is routed by its own hint; here only the flow is made or touched. Whether it is a committed one of that owner.
    fn uplink_claim(
        &mut self,
        routes: &Routes,
        from: Arrival,
        claim: Claim,
        ufrag: &[u8],
        now: Now,
    ) -> Result<bool, DropReason> {
        let live = self.live_slot(&from);
        let flow = live.and_then(|slot| Some((slot, self.table.get(slot)?)));
        let Some((slot, flow)) = flow.filter(|(_, flow)| !flow.state.is_ended()) else {
            routes.source(from.source.client)?;
            let created = self.create_tentative(routes, from, live, claim, ufrag, now);
            return created.map(|()| false);
        };
        let owned = flow.is_owned_by(claim.owner);
        if !owned && !routes.admits(&claim, now.minute) {
            return Err(DropReason::HintExpired);
        }
        let tick = from.tick;
        let hint = self.admission.hint(ufrag);
        let passes = self.update(slot, |flow| match flow.state {
            // The latest claim wins: nothing but Binding requests has passed yet.
            State::Tentative { .. } => {
                flow.owner = claim.owner;
                flow.seen = tick;
                false
            }
            State::Recovered | State::Committed { .. } if owned => {
                flow.claimed(claim.owner, hint, tick);
                true
            }
            State::Recovered | State::Committed { .. } | State::Ended { .. } => false,
        });
        Ok(passes == Some(true))
    }

    /// `ended` is the slot of a flow of the same address that is only remembered.
    fn create_tentative(
        &mut self,
        routes: &Routes,
        from: Arrival,
        ended: Option<u32>,
        claim: Claim,
        ufrag: &[u8],
        now: Now,
    ) -> Result<(), DropReason> {
        if self.draining {
            return Err(DropReason::Draining);
        }
        if !routes.admits(&claim, now.minute) {
            return Err(DropReason::HintExpired);
        }
        if ended.is_none() && self.table.is_full() {
            return Err(DropReason::TableFull);
        }
        let hint = self.admission.hint(ufrag);
        self.admission
            .take(hint, self.table.census().tentative)
            .map_err(|refusal| match refusal {
                Refusal::Tentative => DropReason::TentativeFull,
                Refusal::Hint => DropReason::TentativeHint,
            })?;
        if let Some(ended) = ended {
            self.table.remove(ended);
        }
        self.insert(from, State::Tentative { hint }, claim.owner, now);
        self.totals.created += 1;
        Ok(())
    }

    /// Everything but a Binding request passes only on a committed flow.
    fn uplink_other(&mut self, from: Arrival, unknown: DropReason) -> Result<Uplink, DropReason> {
        let slot = self.live_slot(&from).ok_or(unknown)?;
        let verdict = self.update(slot, |flow| match flow.state {
            State::Tentative { .. } => Err(DropReason::NotCommitted),
            State::Ended { .. } => Err(DropReason::Ended),
            State::Recovered | State::Committed { .. } => {
                flow.settle(from.tick);
                flow.seen = from.tick;
                Ok(Uplink::Forward {
                    owner: flow.owner,
                    also: flow.second_owner(),
                })
            }
        });
        verdict.unwrap_or(Err(unknown))
    }

    /// DTLS, RTP, STUN answers and indications: what a client in the middle of a call sends. If it has no flow here,
    /// the flow cache may know it; if that does not, owners of other clients at its IP address may.
    fn uplink_media(
        &mut self,
        routes: &Routes,
        from: Arrival,
        packet: &[u8],
        now: Now,
    ) -> Result<Uplink, DropReason> {
        let unknown = match self.uplink_other(from, DropReason::NoFlow) {
            Ok(verdict) => {
                self.time_uplink(&from, packet, now);
                return Ok(verdict);
            }
            Err(unknown @ (DropReason::NoFlow | DropReason::NotCommitted)) => unknown,
            refused @ Err(_) => return refused,
        };
        let held = match self.recovery {
            Some(_) => self.hold(routes, from, packet, now),
            None => Err(unknown),
        };
        match held {
            Err(
                unknown @ (DropReason::NoFlow
                | DropReason::NotCommitted
                | DropReason::Uncached
                | DropReason::Unanswered),
            ) => self.offer(routes, from, packet, unknown, now),
            settled => settled,
        }
    }

    fn insert(&mut self, from: Arrival, state: State, owner: Owner, now: Now) -> u32 {
        let flow = Flow::new(from.key, state, owner, from.tick);
        self.schedule_sweep(now.instant);
        self.table.insert(from.hash, flow)
    }

    /// Changes a flow. A hint gets its place back when its flow is tentative no more.
    fn update<R>(&mut self, slot: u32, change: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        let (before, after, result) = self.table.update(slot, change)?;
        if let State::Tentative { hint } = before
            && !matches!(after, State::Tentative { .. })
        {
            self.admission.release(hint);
        }
        Some(result)
    }

    /// Removes a flow; returns the state it was in.
    fn remove(&mut self, slot: u32) -> Option<State> {
        let state = self.table.remove(slot)?.state;
        if let State::Tentative { hint } = state {
            self.admission.release(hint);
        }
        Some(state)
    }

    /// The slot of a flow that has not expired. One that has is begun anew.
    fn live_slot(&mut self, from: &Arrival) -> Option<u32> {
        let slot = self.table.find(from.hash, &from.key)?;
        if self
            .table
            .get(slot)
            .is_some_and(|flow| flow.expired(from.tick))
        {
            self.expire(slot);
            return None;
        }
        Some(slot)
    }

    /// Figures for metrics and `/state`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let census = self.table.census();
        let recovery = self.recovery.as_ref();
        Stats {
            flows: u64::from(self.table.len() - census.ended),
            tentative: u64::from(census.tentative),
            open_questions: recovery.map_or(0, |recovery| recovery.open_questions().into()),
            held_packets: recovery.map_or(0, |recovery| recovery.held_packets().into()),
            timing: self.timing.totals,
            ..self.totals
        }
    }

    /// Bytes taken from the allocator for flows: slots, index, and the count of hints, and the tables that round
    /// trips are timed with and offers are counted by. Grows with the flows. Without [`crate::Neighbours`], which workers share.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let offers = self.offers.as_ref().map_or(0, Offers::bytes);
        self.table.bytes() + self.admission.bytes() + self.timing.bytes() + offers
    }

    fn tick(&self, now: Instant) -> Tick {
        let since = now.saturating_duration_since(self.epoch);
        let tenths = since.as_secs() * u64::from(TICKS_PER_S)
            + u64::from(since.subsec_millis() / (1000 / TICKS_PER_S));
        Tick(u32::try_from(tenths).unwrap_or(u32::MAX))
    }
}

/// A packet's client with what is worked out once: key, hash, time.
#[derive(Clone, Copy)]
struct Arrival {
    source: Source,
    key: FlowKey,
    hash: u64,
    tick: Tick,
}
