//! Packets of a client that nobody here knows, and what becomes of it when an owner does: its NAT may have given it another port.
//!
//! An offer makes no flow and nothing else that lasts. A flow is there once an owner has authenticated such a packet and says so, as it is
//! after a check.

use std::sync::Arc;
use std::time::Instant;

use wire::Owner;
use wire::record::RecordHeader;
use wire::stun::PacketKind;

use super::{Arrival, Flows, Now};
use crate::neighbours::Neighbours;
use crate::offers::Offers;
use crate::routes::Routes;
use crate::verdict::{Downlink, DropReason, Uplink};

/// The shortest SRTP and SRTCP there is: header, or header and index, and a tag of ten bytes (RFC 3711 §3).
const SRTP_LEN_MIN: usize = 22;

impl Flows {
    /// Packets of unknown clients are offered to owners that the `workers` of this PoP know in common. What one source prefix may
    /// have of them is divided by the workers.
    #[must_use]
    pub fn with_neighbours(
        mut self,
        neighbours: Arc<Neighbours>,
        workers: u8,
        seed: u64,
        now: Instant,
    ) -> Self {
        self.offers = Some(Offers::new(neighbours, workers, seed, now));
        self
    }

    /// Whether unknown clients' packets are offered at all.
    pub const fn set_offers(&mut self, enabled: bool) {
        if let Some(offers) = &mut self.offers {
            offers.enabled = enabled;
        }
    }

    /// A packet of a client that has no flow which lets it pass, and that the flow cache does not know.
    pub(super) fn offer(
        &mut self,
        routes: &Routes,
        from: Arrival,
        packet: &[u8],
        unknown: DropReason,
        now: Now,
    ) -> Result<Uplink, DropReason> {
        if !may_be_srtp(packet) {
            return Err(unknown);
        }
        self.offer_media(routes, from, unknown, now)
    }

    /// The same for a packet that [`may_be_srtp`].
    pub(super) fn offer_media(
        &mut self,
        routes: &Routes,
        from: Arrival,
        unknown: DropReason,
        now: Now,
    ) -> Result<Uplink, DropReason> {
        let Some(offers) = self.offers.as_mut().filter(|offers| offers.enabled) else {
            return Err(unknown);
        };
        let client = from.source.client;
        let owners = offers.neighbours.owners(client.ip(), now.instant);
        let owners = owners.only(|owner| routes.knows(owner));
        if owners.is_empty() {
            return Err(unknown);
        }
        routes.source(client)?;
        offers.take(from.hash, client, now.instant)?;
        self.totals.offered += 1;
        Ok(Uplink::Offer { owners })
    }

    /// An owner has authenticated a packet that it was offered: the client is its own. The caller has checked tag and ingress.
    ///
    /// # Errors
    /// [`DropReason::HopLimit`].
    pub fn handle_taken(&mut self, header: &RecordHeader, now: Now) -> Result<(), DropReason> {
        // An empty packet of an owner proves what any of its packets but STUN does, and there is nothing to deliver.
        match self.handle_downlink(header, &[], now) {
            Downlink::Deliver => {
                self.totals.taken += 1;
                Ok(())
            }
            Downlink::Drop(reason) => Err(reason),
        }
    }

    /// `owner` has answered a check of a client: others at its IP address may be at home there too.
    pub(super) fn note_neighbour(&self, to: &Arrival, owner: Owner, now: Now) {
        if let Some(offers) = &self.offers {
            let ip = to.source.client.ip();
            offers.neighbours.note(ip, owner, now.instant);
        }
    }
}

/// What nothing but a client in a call sends, and what its owner can tell a session by.
pub(super) fn may_be_srtp(packet: &[u8]) -> bool {
    PacketKind::of(packet) == PacketKind::Rtp && packet.len() >= SRTP_LEN_MIN
}
