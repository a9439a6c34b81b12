//! Media: whose a packet is, what an authentic one changes, and where copies of what goes down may go.

use std::time::Instant;

use wire::ClientAddr;

use super::{Sessions, Slot};
use crate::session::Session;
use crate::streams::{Claimants, ssrc_of};
use crate::verdict::{DropReason, ReturnPath, Verdict};

impl Sessions {
    pub(super) fn media(
        &mut self,
        client: ClientAddr,
        packet: &[u8],
        offered: bool,
        now: Instant,
    ) -> Result<Verdict, DropReason> {
        let stream = ssrc_of(packet);
        // An engine may take the first report of a stream that it is shown as where that stream's reports begin, before it has
        // authenticated it. So a report is shown to whom its address belongs, and nobody is recognised by one.
        let guest = match stream {
            Some((_, true)) => self.guests.get(&client).copied(),
            Some((_, false)) | None => None,
        };
        if let Some(bound) = self.by_address.find(client) {
            let also = bound
                .second
                .or_else(|| guest.filter(|guest| *guest != bound.first));
            return Ok(Verdict::Media {
                slot: bound.first,
                also,
            });
        }
        match (guest, stream) {
            (Some(slot), _) => Ok(Verdict::Media { slot, also: None }),
            (None, Some((ssrc, false))) => {
                let claimants = self.streams.find(ssrc);
                let slots = self.candidates(client, claimants, offered, now);
                slots.map(|slots| Verdict::Try { slots })
            }
            (None, _) => Err(unknown(offered)),
        }
    }

    /// Neither session of a [`Verdict::Media`] accepted the packet: the address may be bound by somebody who left it, or who never was
    /// there, and the stream be of others. Who may try, as with [`Verdict::Try`].
    ///
    /// # Errors
    /// [`DropReason::MediaRefused`] when there is nobody else, [`DropReason::OfferRate`] when no try is left.
    pub fn handle_refused(
        &mut self,
        client: ClientAddr,
        packet: &[u8],
        offered: bool,
        refused: [Option<Slot>; 2],
        now: Instant,
    ) -> Result<Claimants, DropReason> {
        let Some((ssrc, false)) = ssrc_of(packet) else {
            return Err(DropReason::MediaRefused);
        };
        let others = |slot: &Slot| !refused.contains(&Some(*slot));
        let claimants = self.streams.find(ssrc).map(|slot| slot.filter(others));
        if claimants.iter().all(Option::is_none) {
            return Err(DropReason::MediaRefused);
        }
        self.candidates(client, claimants, offered, now)
    }

    /// Who of those that have the stream may try a packet. The session whose media comes from the address has it for nothing, as
    /// from an address that is its own; each other one costs a try of its own and of all.
    fn candidates(
        &mut self,
        client: ClientAddr,
        claimants: Claimants,
        offered: bool,
        now: Instant,
    ) -> Result<Claimants, DropReason> {
        if claimants.iter().all(Option::is_none) {
            return Err(unknown(offered));
        }
        let guest = self.guests.get(&client).copied();
        if !offered && guest.is_some() && claimants.contains(&guest) {
            return Ok([guest, None, None]);
        }
        let slots = claimants.map(|slot| slot.filter(|slot| self.take_try(*slot, now)));
        if slots.iter().all(Option::is_none) {
            return Err(DropReason::OfferRate);
        }
        Ok(slots)
    }

    fn take_try(&mut self, slot: Slot, now: Instant) -> bool {
        let of_session = self
            .session_mut(slot)
            .is_some_and(|session| session.tries.take(now));
        of_session && self.tries.take(now)
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
        if let Some((ssrc, false)) = ssrc_of(packet) {
            self.learn_stream(slot, ssrc, now);
        }
        // A displaced guest may be the client, and whoever displaced it may have raced one packet. Its PoP is told nothing: what comes
        // from there is tried by its stream as before.
        if let Some(displaced) = heard.displaced {
            self.forget_guest(slot, displaced);
        }
        if heard.guest {
            self.guests.entry(client).or_insert(slot);
        }
    }

    /// The session sends a stream of `ssrc`: it is found by it, if there is a place.
    fn learn_stream(&mut self, slot: Slot, ssrc: u32, now: Instant) {
        let wants = |session: &Session| session.wants_stream(ssrc, now);
        if !self.session(slot).is_some_and(wants) {
            return;
        }
        let placed = self.streams.add(ssrc, slot);
        let Some(session) = self.session_mut(slot) else {
            return;
        };
        if !placed {
            session.miss_stream(now);
        } else if let Some(oldest) = session.keep_stream(ssrc) {
            self.streams.remove(oldest, slot);
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
        self.forget_guest(slot, client);
        if !self.guests.contains_key(&client)
            && let Some(other) = self.guest_of(client)
        {
            self.guests.insert(client, other);
        }
        self.release(client, via);
    }

    /// A session whose guest is `client`. Looks at all sessions: for the rare case that a guest leaves.
    fn guest_of(&self, client: ClientAddr) -> Option<Slot> {
        let is_guest = |session: &Session| session.guest.is_some_and(|it| it.client == client);
        let index = self
            .slots
            .iter()
            .position(|slot| slot.as_ref().is_some_and(is_guest))?;
        u32::try_from(index).ok().map(Slot)
    }

    fn forget_guest(&mut self, slot: Slot, client: ClientAddr) {
        // Another session with the same guest may have been there first.
        if self.guests.get(&client) == Some(&slot) {
            self.guests.remove(&client);
        }
    }
}

/// Why a packet is dropped of which nothing says whose it is.
const fn unknown(offered: bool) -> DropReason {
    if offered {
        DropReason::OfferUnknown
    } else {
        DropReason::UnboundAddress
    }
}
