//! One client packet on its way to a link: verdict, header, record.

use std::time::Instant;

use core_relay_link::Links;
use pop_proto::verdict::Drops;
use pop_proto::{DropReason, Flows, Now, Routes, Source, Uplink};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, Tag};

use crate::metrics::Traffic;
use crate::regions::Regions;

/// What a client's packet needs on its way to a link; apart from the receive batch it is in.
pub(crate) struct UplinkPath<'a> {
    pub(crate) flows: &'a mut Flows,
    pub(crate) routes: &'a Routes,
    pub(crate) regions: &'a Regions,
    pub(crate) links: &'a mut Links,
    pub(crate) totals: &'a mut WorkerTotals,
    pub(crate) last_forwarded: &'a mut Instant,
    pub(crate) tag: Tag,
}

impl UplinkPath<'_> {
    pub(crate) fn forward(&mut self, client: ClientAddr, packet: &[u8], at: Now) {
        let ingress = self.tag.ingress;
        let from = Source { client, ingress };
        let verdict = self.flows.handle_uplink(self.routes, from, packet, at);
        let mut way = Way {
            regions: self.regions,
            links: self.links,
            totals: self.totals,
            last_forwarded: self.last_forwarded,
        };
        way.carry(verdict, (self.tag, client), packet, at);
    }
}

/// From a verdict to the links.
pub(crate) struct Way<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) links: &'a mut Links,
    pub(crate) totals: &'a mut WorkerTotals,
    pub(crate) last_forwarded: &'a mut Instant,
}

impl Way<'_> {
    /// Carries out what was decided about a packet.
    pub(crate) fn carry(
        &mut self,
        verdict: Uplink,
        (tag, client): (Tag, ClientAddr),
        packet: &[u8],
        at: Now,
    ) {
        match verdict {
            Uplink::Forward { owner, also } => {
                for owner in [Some(owner), also].into_iter().flatten() {
                    self.put(owner, (tag, client), false, packet, at);
                }
            }
            Uplink::Offer { owners } => {
                for owner in owners.iter() {
                    self.put(owner, (tag, client), true, packet, at);
                }
            }
            // It comes back by `Flows::next_released`.
            Uplink::Hold => {}
            Uplink::Drop(reason) => self.totals.drops.count(reason),
        }
    }

    fn put(
        &mut self,
        owner: Owner,
        (tag, client): (Tag, ClientAddr),
        offered: bool,
        packet: &[u8],
        at: Now,
    ) {
        let Some(link) = self.regions.link_to(owner.region) else {
            self.totals.drops.count(DropReason::LinkDown);
            return;
        };
        let header = RecordHeader {
            owner,
            tag,
            client,
            hops: 0,
            fragment: None,
            offered,
        };
        // A refusal is counted by the link.
        if self.links.put_record(link, &header, packet).is_ok() {
            self.totals.up.count(packet.len());
            *self.last_forwarded = at.instant;
        }
    }
}

/// What a worker counts.
#[derive(Default)]
pub(crate) struct WorkerTotals {
    pub(crate) up: Traffic,
    pub(crate) down: Traffic,
    pub(crate) drops: Drops,
    pub(crate) backbone_lost: u64,
    pub(crate) unfinished: u64,
}
