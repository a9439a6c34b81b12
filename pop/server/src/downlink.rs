//! One datagram of a link on its way to clients: its records, each admitted, made whole and sent from its ingress.

use std::time::Instant;

use core_relay_link::LinkId;
use pop_proto::{Downlink, DropReason, Flows, Now, Routes};
use wire::PopId;
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{Record, RecordHeader, Records};

use crate::ingress::Ingress;
use crate::regions::Regions;
use crate::uplink::WorkerTotals;

/// What a record needs on its way to a client; apart from the links it comes from.
pub(crate) struct DownlinkPath<'a> {
    pub(crate) flows: &'a mut Flows,
    pub(crate) routes: &'a Routes,
    pub(crate) regions: &'a Regions,
    pub(crate) ingress: &'a mut Ingress,
    pub(crate) reassembler: &'a mut Reassembler,
    pub(crate) totals: &'a mut WorkerTotals,
    pub(crate) last_forwarded: &'a mut Instant,
    pub(crate) pop: PopId,
    pub(crate) worker: u8,
}

impl DownlinkPath<'_> {
    /// Queues every record of a datagram for its client; the ingress sends them when its batch is full or flushed.
    pub(crate) fn deliver(&mut self, link: LinkId, body: &[u8], at: Now) {
        for record in Records::new(body) {
            match record {
                Ok(record) => self.deliver_record(link, record, at),
                Err(_) => self.totals.drops.count(DropReason::BadRecord),
            }
        }
    }

    fn deliver_record(&mut self, link: LinkId, record: Record<'_>, at: Now) {
        if let Err(reason) = self.admit(link, &record.header) {
            self.totals.drops.count(reason);
            return;
        }
        if record.is_end() {
            self.flows.handle_end(&record.header, at);
            return;
        }
        if record.header.offered {
            if let Err(reason) = self.take(&record, at) {
                self.totals.drops.count(reason);
            }
            return;
        }
        let Record { header, payload } = record;
        let packet = match self.reassembler.push(&header, payload, at.instant) {
            Reassembled::Complete(packet) => packet,
            Reassembled::Pending => return,
            Reassembled::Dropped(_) => {
                self.totals.drops.count(DropReason::Reassembly);
                return;
            }
        };
        match self.flows.handle_downlink(&header, packet, at) {
            Downlink::Deliver => {
                let to = header.client.socket_addr();
                let drops = &mut self.totals.drops;
                self.ingress.send(header.tag.ingress, to, packet, drops);
                self.totals.down.count(packet.len());
                *self.last_forwarded = at.instant;
            }
            Downlink::Drop(reason) => self.totals.drops.count(reason),
        }
    }

    /// The answer to an offer; there are no offers to a PoP.
    fn take(&mut self, record: &Record<'_>, at: Now) -> Result<(), DropReason> {
        if !record.is_taken() {
            return Err(DropReason::BadRecord);
        }
        self.flows.handle_taken(&record.header, at)
    }

    /// Whether a record may come by this link and leave by this worker.
    fn admit(&self, link: LinkId, header: &RecordHeader) -> Result<(), DropReason> {
        if header.tag.pop != self.pop || header.tag.worker != self.worker {
            return Err(DropReason::WrongTag);
        }
        if self.regions.region_of(link) != Some(header.owner.region) {
            return Err(DropReason::WrongRegion);
        }
        if !self.ingress.reaches(header.tag.ingress, header.client) {
            return Err(DropReason::BadIngress);
        }
        self.routes.source(header.client)
    }
}
