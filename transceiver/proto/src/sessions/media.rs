//! Media: whose a packet is, what an authentic one changes, and where copies of what goes down may go.

use std::time::Instant;

use wire::ClientAddr;

use super::{Sessions, Slot};
use crate::streams::ssrc_of;
use crate::verdict::{DropReason, ReturnPath, Verdict};

impl Sessions {
    pub(super) fn media(
        &mut self,
        client: ClientAddr,
        packet: &[u8],
        offered: bool,
        now: Instant,
    ) -> Result<Verdict, DropReason> {
        if let Some(bound) = self.by_address.find(client) {
            return Ok(Verdict::Media {
                slot: bound.first,
                also: bound.second,
            });
        }
        if !offered && !self.guests.contains_key(&client) {
            return Err(DropReason::UnboundAddress);
        }
        // The address says nothing, or nothing that a check has proved: the stream does.
        let slots = ssrc_of(packet).map(|(ssrc, _)| self.streams.find(ssrc));
        let slots = slots.unwrap_or_default();
        if slots.iter().all(Option::is_none) {
            return Err(DropReason::OfferUnknown);
        }
        if offered && !self.tries.take(now) {
            return Err(DropReason::OfferRate);
        }
        Ok(Verdict::Try { slots })
    }

    /// The media engine of `slot` accepted a packet that came from `client` by `via`: SRTP or SRTCP whose tag verified and that is no
    /// replay. It keeps the session alive. It moves the return path of an address that a check has proved; any other address
    /// becomes a guest, which gets no more than came from it.
    pub fn handle_authenticated(
        &mut self,
        slot: Slot,
        via: ReturnPath,
        client: ClientAddr,
        packet: &[u8],
        now: Instant,
    ) {
        let Some(session) = self.session_mut(slot) else {
            return;
        };
        let heard = session.authenticated(client, via, packet.len(), now);
        if let Some((ssrc, false)) = ssrc_of(packet)
            && let (true, oldest) = session.learn_stream(ssrc)
        {
            if let Some(oldest) = oldest {
                self.streams.remove(oldest, slot);
            }
            self.streams.add(ssrc, slot);
        }
        if let Some((client, via)) = heard.displaced {
            self.leave_guest(slot, client, via);
        }
        if heard.arrived {
            self.guests.insert(client, slot);
        }
    }

    /// Where a copy of a packet of `len` bytes for the client of `slot` may go beside [`Self::selected`]: to where its media comes
    /// from, as much as came from there. The caller sends it.
    pub fn copy_to(&mut self, slot: Slot, len: usize) -> Option<(ClientAddr, ReturnPath)> {
        self.session_mut(slot)?.copy_to(len)
    }

    /// Lets the guest go that fell silent or became the session's path.
    pub(super) fn dismiss_guest(&mut self, slot: Slot, now: Instant) {
        let past = self
            .session_mut(slot)
            .and_then(|session| session.take_past_guest(now));
        if let Some(guest) = past {
            self.leave_guest(slot, guest.client, guest.via);
        }
    }

    pub(super) fn leave_guest(&mut self, slot: Slot, client: ClientAddr, via: ReturnPath) {
        // Another session may have it as a guest by now.
        if self.guests.get(&client) == Some(&slot) {
            self.guests.remove(&client);
        }
        self.release(client, via);
    }
}
