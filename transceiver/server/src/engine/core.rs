//! Everything of the engine but the socket: sessions, their connections, timers, and what waits to be sent.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use runtime::clock;
use topology::{Region, Topology, Transceiver};
use transceiver_proto::{
    Claimants, Command, Config as SessionsConfig, DropReason, Drops, EndReason, Limits, ReturnPath,
    Sessions, Slot, Verdict,
};
use wire::hint::{KeyRing, Minute};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{DatagramKind, Record, Records, open_datagram};
use wire::sequence::ReceiptsBySender;
use wire::{ClientAddr, Owner};

use crate::backend::Voice;
use crate::engine::egress::Egress;
use crate::engine::handle::{EngineLoad, SessionKey};
use crate::engine::live::Live;
use crate::engine::random::Random;
use crate::engine::relays::Relays;
use crate::peer::{PeerFactory, Taken};

/// A session lives so long without an authenticated packet: several consent checks (RFC 7675 §5.1).
const VANISH_AFTER: Duration = Duration::from_secs(20);
/// Split packets that wait for their parts at most.
const REASSEMBLY_MAX: u16 = 256;
/// A timer that is due already fires after this: a connection that asks again and again cannot stop the others.
const TIMER_MIN: Duration = Duration::from_millis(1);
/// How long a part waits for the others.
const REASSEMBLY_TTL: Duration = Duration::from_millis(500);

pub(crate) struct Core {
    pub(crate) transceiver: String,
    pub(crate) region: String,
    pub(crate) owner: Owner,
    pub(crate) sessions: Sessions,
    /// By slot.
    live: Vec<Option<Box<Live>>>,
    pub(crate) by_key: HashMap<SessionKey, Slot>,
    pub(crate) by_id: BTreeMap<u64, Slot>,
    pub(crate) last_id: u64,
    timers: BinaryHeap<Reverse<(Instant, Slot, u64)>>,
    reassembler: Reassembler,
    /// Packets the reassembler gave up, as far as they are counted.
    given_up: u64,
    pub(crate) relays: Relays,
    /// By record address.
    pub(crate) receipts: ReceiptsBySender<SocketAddr>,
    pub(crate) egress: Egress,
    pub(crate) factory: PeerFactory,
    pub(crate) voice: Voice,
    pub(crate) random: Random,
    pub(crate) draining: bool,
    pub(crate) drops: Drops,
    pub(crate) ended: Ended,
    pub(crate) packets_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) media: Media,
    /// Offered packets that verified.
    pub(crate) offers_taken: u64,
    /// Packets sent to a second address beside the selected one.
    pub(crate) copies: u64,
}

/// Where a packet comes from.
#[derive(Clone, Copy)]
struct Arrival {
    via: ReturnPath,
    client: ClientAddr,
    /// Its PoP does not know whose client it is.
    offered: bool,
}

/// What connections count, of all sessions there were.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Media {
    pub(crate) rtp_in: u64,
    pub(crate) rtp_out: u64,
    pub(crate) rtp_lost: u64,
    pub(crate) messages_in: u64,
    pub(crate) messages_out: u64,
}

/// Sessions that ended, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) asked: u64,
    pub(crate) closed: u64,
    pub(crate) never_came: u64,
    pub(crate) vanished: u64,
    pub(crate) no_handshake: u64,
    pub(crate) failed: u64,
}

impl Ended {
    /// Each reason's label and total.
    pub(crate) const fn by_reason(&self) -> [(&'static str, u64); 6] {
        [
            ("asked", self.asked),
            ("closed", self.closed),
            ("never_came", self.never_came),
            ("vanished", self.vanished),
            ("no_handshake", self.no_handshake),
            ("failed", self.failed),
        ]
    }
}

impl Core {
    pub(crate) fn new(
        topology: &Topology,
        keys: &Arc<KeyRing>,
        (region, node): (&Region, &Transceiver),
        voice: Voice,
    ) -> anyhow::Result<Self> {
        let random = Random::new();
        let seed = |what| {
            random
                .bytes::<8>()
                .map(u64::from_be_bytes)
                .ok_or_else(|| anyhow::anyhow!("no random numbers for {what}"))
        };
        let transceiver = region
            .transceivers
            .id_of(node.address)
            .ok_or_else(|| anyhow::anyhow!("{} lies outside its region's CIDR", node.name))?;
        let owner = Owner {
            region: region.region_id(),
            transceiver,
        };
        let sessions = Sessions::new(SessionsConfig {
            owner,
            limits: limits(topology),
            keys: Arc::clone(keys),
            hash_seed: seed("the session table")?,
        });
        Ok(Self {
            transceiver: node.name.clone(),
            region: region.name.clone(),
            owner,
            sessions,
            live: Vec::new(),
            by_key: HashMap::new(),
            by_id: BTreeMap::new(),
            last_id: 0,
            timers: BinaryHeap::new(),
            reassembler: Reassembler::new(REASSEMBLY_MAX, REASSEMBLY_TTL, seed("reassembly")?),
            given_up: 0,
            relays: Relays::new(topology, region),
            receipts: ReceiptsBySender::new(),
            egress: Egress::new(owner, topology.network.link.datagram_len_max()),
            factory: PeerFactory::new()?,
            voice,
            random,
            draining: false,
            drops: Drops::default(),
            ended: Ended::default(),
            packets_in: 0,
            bytes_in: 0,
            media: Media::default(),
            offers_taken: 0,
            copies: 0,
        })
    }

    /// Takes over what a reload may change: limits, keys, core relays, names.
    pub(crate) fn reload(&mut self, topology: &Topology, keys: &Arc<KeyRing>, region: &Region) {
        self.sessions.set_limits(limits(topology));
        self.relays = Relays::new(topology, region);
        self.sessions.set_keys(Arc::clone(keys));
    }

    /// A datagram on the record socket.
    pub(crate) fn handle_datagram(&mut self, from: SocketAddr, datagram: &[u8], now: Instant) {
        if !self.relays.contains(from) {
            self.drops.count(DropReason::UnknownRelay);
            return;
        }
        let Ok((DatagramKind::Records, sequence, body)) = open_datagram(datagram) else {
            self.drops.count(DropReason::BadRecord);
            return;
        };
        self.receipts.received(from, sequence);
        for record in Records::new(body) {
            let Ok(record) = record else {
                self.drops.count(DropReason::BadRecord);
                return;
            };
            self.handle_record(from, &record, now);
        }
    }

    fn handle_record(&mut self, relay: SocketAddr, record: &Record<'_>, now: Instant) {
        if record.header.owner != self.owner {
            self.drops.count(DropReason::WrongOwner);
            return;
        }
        if record.payload.is_empty() {
            // Only a transceiver ends a session, or takes a client.
            self.drops.count(DropReason::BadRecord);
            return;
        }
        let via = ReturnPath {
            relay,
            tag: record.header.tag,
        };
        let client = record.header.client;
        let from = Arrival {
            via,
            client,
            offered: record.header.offered,
        };
        if record.header.fragment.is_none() {
            self.handle_packet(from, record.payload, now);
            return;
        }
        match self.reassembler.push(&record.header, record.payload, now) {
            Reassembled::Complete(packet) => {
                // Split packets are rare; the copy frees the reassembler.
                let packet = packet.to_vec();
                self.handle_packet(from, &packet, now);
            }
            Reassembled::Pending => self.count_given_up(),
            Reassembled::Dropped(_) => self.drops.count(DropReason::Reassembly),
        }
    }

    /// Packets whose parts never all came.
    fn count_given_up(&mut self) {
        let stats = self.reassembler.stats();
        let given_up = stats.expired + stats.evicted + stats.superseded;
        self.drops
            .add(DropReason::Reassembly, given_up - self.given_up);
        self.given_up = given_up;
    }

    fn handle_packet(&mut self, from: Arrival, packet: &[u8], now: Instant) {
        self.packets_in += 1;
        self.bytes_in += u64::try_from(packet.len()).unwrap_or_default();
        let Arrival {
            via,
            client,
            offered,
        } = from;
        match self
            .sessions
            .handle_packet(via, client, packet, offered, now)
        {
            Verdict::Answer { slot, connected } => {
                self.egress
                    .push(via, client, self.sessions.answer(), &mut self.drops);
                // An address of the session may have given way to this one.
                self.run_commands();
                if connected && let Some(live) = self.live_mut(slot) {
                    live.connect(now);
                    self.touched(slot, now);
                }
            }
            Verdict::Media { slot, also } => self.handle_media(slot, also, from, packet, now),
            Verdict::Try { slots } => self.try_media(slots, from, packet, now),
            Verdict::Drop(reason) => self.drops.count(reason),
        }
    }

    fn handle_media(
        &mut self,
        slot: Slot,
        also: Option<Slot>,
        from: Arrival,
        packet: &[u8],
        now: Instant,
    ) {
        let mut refused = Some(DropReason::MediaRefused);
        for slot in [Some(slot), also].into_iter().flatten() {
            match self.hand(slot, from, packet, now) {
                Ok(_) => refused = None,
                Err(refusal) => refused = refused.map(|_| refusal),
            }
        }
        let Some(reason) = refused else {
            return;
        };
        let tried = [Some(slot), also];
        let Arrival {
            client, offered, ..
        } = from;
        match self
            .sessions
            .handle_refused(client, packet, offered, tried, now)
        {
            Ok(slots) => self.try_media(slots, from, packet, now),
            Err(DropReason::MediaRefused) => self.drops.count(reason),
            Err(rate) => self.drops.count(rate),
        }
    }

    /// The first session that authenticates a packet has it. One that merely does not refuse it proves nothing.
    fn try_media(&mut self, slots: Claimants, from: Arrival, packet: &[u8], now: Instant) {
        let mut slots = slots.into_iter().flatten();
        if !slots.any(|slot| self.hand(slot, from, packet, now) == Ok(Taken::Authenticated)) {
            self.drops.count(DropReason::OfferRefused);
        }
    }

    /// Hands a packet to the connection of a session.
    fn hand(
        &mut self,
        slot: Slot,
        from: Arrival,
        packet: &[u8],
        now: Instant,
    ) -> Result<Taken, DropReason> {
        let live = self.live_mut(slot).ok_or(DropReason::MediaRefused)?;
        let outcome = live.handle_packet(packet, now);
        if outcome.up {
            self.sessions.handle_media_up(slot);
        }
        if outcome.taken == Taken::Authenticated {
            self.heard(slot, from, packet, now);
        }
        self.touched(slot, now);
        if outcome.closed {
            self.ended.closed += 1;
            self.sessions.end(slot);
            self.run_commands();
        }
        match outcome.taken {
            Taken::Refused => Err(outcome.refusal),
            taken @ (Taken::Authenticated | Taken::Processed) => Ok(taken),
        }
    }

    /// A packet of a session verified. Its PoP is told when it did not know whose it was.
    fn heard(&mut self, slot: Slot, from: Arrival, packet: &[u8], now: Instant) {
        self.sessions
            .handle_authenticated(slot, from.via, from.client, packet, now);
        if from.offered {
            self.offers_taken += 1;
            self.egress
                .push_taken(from.via, from.client, &mut self.drops);
        }
    }

    /// After every change to a connection: sends what it has and arms its timer.
    pub(crate) fn touched(&mut self, slot: Slot, now: Instant) {
        self.send_pending(slot);
        let Some(live) = self.live.get_mut(slot.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        live.count(&mut self.media, &mut self.drops);
        if live.peer.is_failed() {
            tracing::warn!(session = live.id, "the media engine gave the session up");
            self.ended.failed += 1;
            self.sessions.end(slot);
            self.run_commands();
            return;
        }
        let Some(due) = live.poll_timeout() else {
            return;
        };
        let due = due.max(now + TIMER_MIN);
        if live
            .deadline
            .is_none_or(|standing| due < standing || standing <= now)
        {
            live.deadline = Some(due);
            self.timers.push(Reverse((due, slot, live.id)));
        }
    }

    fn send_pending(&mut self, slot: Slot) {
        let path = self.sessions.selected(slot);
        let Some(live) = self.live.get_mut(slot.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        while let Some(datagram) = live.peer.next_datagram() {
            let Some((client, via)) = path else {
                self.drops.count(DropReason::NoPath);
                continue;
            };
            live.packets_out += 1;
            live.bytes_out += u64::try_from(datagram.len()).unwrap_or_default();
            self.egress.push(via, client, &datagram, &mut self.drops);
            if let Some((guest, via)) = self.sessions.copy_to(slot, datagram.len()) {
                self.copies += 1;
                self.egress.push(via, guest, &datagram, &mut self.drops);
            }
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.sessions.handle_timeout(now);
        self.run_commands();
        while let Some(Reverse((due, slot, id))) = self.timers.peek().copied() {
            if due > now {
                break;
            }
            self.timers.pop();
            let Some(live) = self.live_mut(slot) else {
                continue;
            };
            if live.id == id && live.deadline == Some(due) {
                live.deadline = None;
                live.handle_timeout(now);
                self.touched(slot, now);
            }
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.peek().map(|Reverse((due, ..))| *due);
        [timer, self.sessions.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Puts a new session in its slot.
    pub(crate) fn place(&mut self, slot: Slot, live: Live, now: Instant) {
        let index = slot.0 as usize;
        if self.live.len() <= index {
            self.live.resize_with(index + 1, || None);
        }
        self.by_key.insert(live.key, slot);
        self.by_id.insert(live.id, slot);
        if let Some(place) = self.live.get_mut(index) {
            *place = Some(Box::new(live));
        }
        self.touched(slot, now);
    }

    pub(crate) fn live(&self, slot: Slot) -> Option<&Live> {
        self.live.get(slot.0 as usize)?.as_deref()
    }

    pub(crate) fn live_mut(&mut self, slot: Slot) -> Option<&mut Live> {
        self.live.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    /// Ends a session with a word to its client.
    pub(crate) fn close(&mut self, slot: Slot, now: Instant) {
        if let Some(live) = self.live_mut(slot) {
            live.peer.close(now);
            self.send_pending(slot);
            self.ended.asked += 1;
            self.sessions.end(slot);
            self.run_commands();
        }
    }

    pub(crate) fn close_all(&mut self, now: Instant) {
        let slots: Vec<Slot> = self.by_id.values().copied().collect();
        for slot in slots {
            self.close(slot, now);
        }
    }

    pub(crate) fn run_commands(&mut self) {
        while let Some(command) = self.sessions.next_command() {
            match command {
                Command::Ended { slot, reason } => self.forget(slot, reason),
                Command::Released { client, via } => {
                    self.egress.push_end(via, client, &mut self.drops);
                }
            }
        }
    }

    fn forget(&mut self, slot: Slot, reason: EndReason) {
        let Some(live) = self.live.get_mut(slot.0 as usize).and_then(Option::take) else {
            return;
        };
        self.by_key.remove(&live.key);
        self.by_id.remove(&live.id);
        match reason {
            EndReason::Asked => {}
            EndReason::NeverCame => self.ended.never_came += 1,
            EndReason::Vanished => self.ended.vanished += 1,
            EndReason::NoHandshake => self.ended.no_handshake += 1,
        }
        tracing::debug!(session = live.id, ?reason, "session ended");
    }

    pub(crate) fn load(&self) -> EngineLoad {
        let load = self.sessions.load();
        EngineLoad {
            sessions: load.sessions,
            pending: load.pending,
            draining: self.draining,
        }
    }

    pub(crate) fn minute() -> Minute {
        Minute::from_unix_s(clock::unix_s())
    }
}

fn limits(topology: &Topology) -> Limits {
    let signaling = &topology.network.signaling;
    Limits {
        sessions_max: signaling.sessions_max,
        pending_max: signaling.pending_max,
        pending_ttl: Duration::from_secs(signaling.pending_ttl_s.into()),
        vanish_after: VANISH_AFTER,
    }
}
