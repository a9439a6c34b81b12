//! Where a record goes. Pure functions of the record and the region; a relay of the same region decides the same.

use std::net::SocketAddr;

use topology::{Region, TransceiverCluster};
use wire::record::{HOPS_MAX, RecordHeader};
use wire::{PopId, RegionId};

use crate::verdict::{Downlink, DropReason, Uplink};

/// What a core relay knows: its region. Rebuilt when the topology changes.
#[derive(Clone, Debug)]
pub struct Relay {
    region: RegionId,
    cluster: TransceiverCluster,
}

impl Relay {
    /// For a relay of `region`.
    #[must_use]
    pub fn new(region: &Region) -> Self {
        Self {
            region: region.region_id(),
            cluster: region.transceivers.clone(),
        }
    }

    /// Decides on a record that came by the link of `pop`'s worker `worker`. The header's `hops` is what the record said; the
    /// caller writes it back with one added.
    #[must_use]
    pub fn handle_uplink(&self, pop: PopId, worker: u8, header: &RecordHeader) -> Uplink {
        let verdict = self.uplink(pop, worker, header);
        verdict.map_or_else(Uplink::Drop, |to| Uplink::Forward { to })
    }

    fn uplink(
        &self,
        pop: PopId,
        worker: u8,
        header: &RecordHeader,
    ) -> Result<SocketAddr, DropReason> {
        if header.tag.pop != pop {
            return Err(DropReason::WrongPop);
        }
        if header.tag.worker != worker {
            return Err(DropReason::WrongWorker);
        }
        if header.hops >= HOPS_MAX {
            return Err(DropReason::HopLimit);
        }
        if header.owner.region != self.region {
            return Err(DropReason::WrongRegion);
        }
        self.cluster
            .addr_of(header.owner.transceiver)
            .ok_or(DropReason::OutsideCidr)
    }

    /// Whether a datagram on the record socket may come from `source` at all: an address of the CIDR, at the cluster's port.
    ///
    /// # Errors
    /// [`DropReason::UnknownSource`].
    pub fn handle_source(&self, source: SocketAddr) -> Result<Source, DropReason> {
        let transceiver = (source.port() == self.cluster.port)
            .then(|| self.cluster.id_of(source.ip().to_canonical()))
            .flatten()
            .ok_or(DropReason::UnknownSource)?;
        Ok(Source {
            owner: wire::Owner {
                region: self.region,
                transceiver,
            },
        })
    }

    /// Decides on a record that came from the transceiver `source`.
    #[must_use]
    pub fn handle_downlink(&self, source: Source, header: &RecordHeader) -> Downlink {
        if header.owner != source.owner {
            return Downlink::Drop(DropReason::SpoofedOwner);
        }
        if header.hops >= HOPS_MAX {
            return Downlink::Drop(DropReason::HopLimit);
        }
        Downlink::ToLink {
            pop: header.tag.pop,
            worker: header.tag.worker,
        }
    }
}

/// A transceiver that a datagram came from, as its address says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    owner: wire::Owner,
}

impl Source {
    /// Which transceiver of the region it is.
    #[must_use]
    pub const fn transceiver(self) -> wire::TransceiverId {
        self.owner.transceiver
    }
}
