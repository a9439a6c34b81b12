//! What comes from an owner: packets for a client, which also commit its flow, and the end of a session.

use wire::Owner;
use wire::record::{HOPS_MAX, RecordHeader};
use wire::stun::{self, Class, PacketKind};

use super::{Arrival, Flows, Now, Source};
use crate::flow::State;
use crate::verdict::{Downlink, DropReason};

impl Flows {
    /// Decides on a downlink record that is already whole. The caller has checked tag and ingress.
    pub fn handle_downlink(&mut self, header: &RecordHeader, payload: &[u8], now: Now) -> Downlink {
        if header.hops > HOPS_MAX {
            return Downlink::Drop(DropReason::HopLimit);
        }
        let to = self.arrival(source(header), now);
        match self.live_slot(&to) {
            Some(slot) => self.downlink_known(slot, to, header.owner, payload, now),
            None => self.downlink_unknown(to, header.owner, payload, now),
        }
        Downlink::Deliver
    }

    fn downlink_known(&mut self, slot: u32, to: Arrival, owner: Owner, payload: &[u8], now: Now) {
        let Some(flow) = self.table.get(slot) else {
            return;
        };
        let settled = flow.owner == owner;
        let heard = match flow.state {
            State::Committed { .. } | State::Recovered if settled => true,
            // Still under way when the session ended, unless it answers the check that began another one.
            State::Ended { claimed } if settled => claimed && is_success(payload),
            State::Tentative { .. }
            | State::Recovered
            | State::Committed { .. }
            | State::Ended { .. } => proves_authenticated(payload),
        };
        if !heard {
            return;
        }
        let commits = !matches!(flow.state, State::Committed { .. });
        let success = is_success(payload);
        let answers = success && flow.awaits_answer();
        self.update(slot, |flow| {
            flow.heard_from(owner, to.tick);
            if answers {
                flow.answered(owner);
            }
        });
        self.time_downlink(&to, owner, payload, now);
        self.keep_stored(slot, to, owner);
        if success {
            self.note_neighbour(&to, owner, now);
        }
        if commits {
            self.release_to_owner(slot, to);
        }
    }

    /// The backbone is authenticated and a transceiver sends only to addresses that proved themselves, so the
    /// record tells a PoP that has just restarted whose client this is.
    fn downlink_unknown(&mut self, to: Arrival, owner: Owner, payload: &[u8], now: Now) {
        if !proves_authenticated(payload) {
            return;
        }
        if self.table.is_full() {
            self.totals.unlearned += 1;
            return;
        }
        let slot = self.insert(to, State::COMMITTED, owner, now);
        self.totals.learned += 1;
        self.note_neighbour(&to, owner, now);
        self.keep_stored(slot, to, owner);
        self.release_to_owner(slot, to);
    }

    /// The owner says that its session with a client is over. The flow goes, and so does what the flow cache knows of it;
    /// for a few seconds nothing that is still under way brings it back, but the answer to a check with another hint that came
    /// before: the client has begun another session with this owner.
    pub fn handle_end(&mut self, header: &RecordHeader, now: Now) {
        let to = self.arrival(source(header), now);
        let owner = header.owner;
        self.forget_stored(to, owner);
        match self.live_slot(&to) {
            Some(slot) => {
                let ended = self.update(slot, |flow| {
                    let before = flow.state;
                    flow.end(owner, to.tick);
                    !before.is_ended() && flow.state.is_ended()
                });
                self.totals.ended += u64::from(ended == Some(true));
            }
            None if self.table.is_full() => {}
            None => {
                self.insert(to, State::Ended { claimed: false }, owner, now);
            }
        }
    }
}

const fn source(header: &RecordHeader) -> Source {
    Source {
        client: header.client,
        ingress: header.tag.ingress,
    }
}

/// Whether a payload is one a transceiver sends only to an address that proved itself: a Binding success, or
/// anything that is not STUN. An error response proves nothing.
fn proves_authenticated(payload: &[u8]) -> bool {
    match PacketKind::of(payload) {
        PacketKind::Stun => is_success(payload),
        PacketKind::Dtls | PacketKind::Rtp | PacketKind::Other => true,
    }
}

fn is_success(payload: &[u8]) -> bool {
    PacketKind::of(payload) == PacketKind::Stun
        && stun::parse(payload).is_ok_and(|header| header.class == Class::Success)
}
