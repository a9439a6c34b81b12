//! What a hint must agree with before it may route: live keys, the regions this PoP serves, their CIDRs, the age limit.
//! Rebuilt when the topology or the keys change; flows live on.

use std::net::{IpAddr, SocketAddr};

use topology::{OwnAddresses, Pop, Topology, TransceiverCluster};
use wire::hint::{HintError, KeyRing, Minute, SKEW_MINUTES_MAX};
use wire::{ClientAddr, Owner, RegionId};

use crate::verdict::DropReason;

/// Everything a PoP knows about where packets may go.
#[derive(Debug)]
pub struct Routes {
    keys: KeyRing,
    regions: Vec<(RegionId, TransceiverCluster)>,
    own: OwnAddresses,
    hint_age_max_min: u16,
}

/// A hint that opened and names an owner this PoP can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) owner: Owner,
    issued: Minute,
}

impl Routes {
    /// For `pop` as the topology describes it.
    #[must_use]
    pub fn new(topology: &Topology, pop: &Pop, keys: KeyRing) -> Self {
        let regions = topology.regions_of_pop(pop);
        Self {
            keys,
            regions: regions
                .iter()
                .map(|region| (region.region_id(), region.transceivers.clone()))
                .collect(),
            own: topology.own_addresses(),
            hint_age_max_min: topology.network.hint_age_max_min,
        }
    }

    /// Opens the ufrag of a Binding request and checks that its owner exists as far as a PoP can tell.
    pub(crate) fn claim(&self, ufrag: &[u8]) -> Result<Claim, DropReason> {
        let hint = self.keys.open(ufrag).map_err(|error| match error {
            HintError::Malformed => DropReason::HintMalformed,
            HintError::UnknownKey => DropReason::HintUnknownKey,
            HintError::Forged => DropReason::HintForged,
        })?;
        let cluster = self
            .cluster(hint.owner.region)
            .ok_or(DropReason::UnknownRegion)?;
        if cluster.addr_of(hint.owner.transceiver).is_none() {
            return Err(DropReason::OutsideCidr);
        }
        Ok(Claim {
            owner: hint.owner,
            issued: hint.issued,
        })
    }

    /// Whether this owner exists as far as a PoP can tell.
    pub(crate) fn knows(&self, owner: Owner) -> bool {
        self.cluster(owner.region)
            .is_some_and(|cluster| cluster.addr_of(owner.transceiver).is_some())
    }

    fn cluster(&self, region: RegionId) -> Option<&TransceiverCluster> {
        self.regions
            .iter()
            .find(|(id, _)| *id == region)
            .map(|(_, cluster)| cluster)
    }

    /// Whether a claim may make a flow that does not exist yet. A live flow never asks.
    pub(crate) fn admits(&self, claim: &Claim, minute: Minute) -> bool {
        let age_min = claim.issued.age_at(minute);
        let ahead_max = -i32::from(SKEW_MINUTES_MAX);
        (ahead_max..=i32::from(self.hint_age_max_min) + i32::from(SKEW_MINUTES_MAX))
            .contains(&i32::from(age_min))
    }

    /// Whether a packet may come from `client`, or go to it, at all.
    ///
    /// # Errors
    /// [`DropReason::BadSource`], [`DropReason::OwnAddress`].
    pub fn source(&self, client: ClientAddr) -> Result<(), DropReason> {
        if client.port() == 0 || !is_unicast(client.ip()) {
            return Err(DropReason::BadSource);
        }
        if self
            .own
            .contains(SocketAddr::new(client.ip(), client.port()))
        {
            return Err(DropReason::OwnAddress);
        }
        Ok(())
    }
}

const fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast(),
    }
}
