//! Questions that programs ask a topology: who am I, whom do I talk to, which addresses are our own.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::dns::GeoDns;
use crate::model::{CoreRelay, Pop, Region, Topology, Transceiver};

/// What a node is, with the region it belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NodeRole<'a> {
    /// A PoP.
    Pop(&'a Pop),
    /// A core relay of a region.
    CoreRelay(&'a Region, &'a CoreRelay),
    /// A transceiver of a region.
    Transceiver(&'a Region, &'a Transceiver),
    /// A GeoDNS node.
    GeoDns(&'a GeoDns),
}

/// Addresses that packets of clients never come from: those of the network itself.
///
/// Of ingress and VIPs it is the socket address, because a machine that runs a PoP may run clients; of core relays and
/// transceivers every port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddresses {
    sockets: Box<[SocketAddr]>,
    ips: Box<[IpAddr]>,
}

impl OwnAddresses {
    /// Whether a packet from `source` would come from the network itself. Two binary searches, no hashing.
    #[must_use]
    pub fn contains(&self, source: SocketAddr) -> bool {
        let ip = source.ip().to_canonical();
        self.ips.binary_search(&ip).is_ok()
            || self
                .sockets
                .binary_search(&SocketAddr::new(ip, source.port()))
                .is_ok()
    }

    /// Ingress and VIP socket addresses, sorted.
    #[must_use]
    pub fn sockets(&self) -> &[SocketAddr] {
        &self.sockets
    }

    /// Core-relay and transceiver addresses, sorted.
    #[must_use]
    pub fn ips(&self) -> &[IpAddr] {
        &self.ips
    }
}

impl Pop {
    /// Its addresses as clients are told: the first of each family, then the others, each part in the order of the topology.
    #[must_use]
    pub fn advertised(&self) -> Vec<SocketAddr> {
        let first = |v4: bool| self.ingress.iter().position(|addr| addr.is_ipv4() == v4);
        let (v4, v6) = (first(true), first(false));
        let leads = |index: usize| Some(index) == v4 || Some(index) == v6;
        let indexed = || self.ingress.iter().enumerate();
        indexed()
            .filter(|(index, _)| leads(*index))
            .chain(indexed().filter(|(index, _)| !leads(*index)))
            .map(|(_, addr)| *addr)
            .collect()
    }
}

impl Topology {
    /// What the node of this name is.
    #[must_use]
    pub fn node_role(&self, name: &str) -> Option<NodeRole<'_>> {
        if let Some(pop) = self.pop_named(name) {
            return Some(NodeRole::Pop(pop));
        }
        if let Some((region, relay)) = self.core_relay_named(name) {
            return Some(NodeRole::CoreRelay(region, relay));
        }
        if let Some((region, node)) = self.transceiver_named(name) {
            return Some(NodeRole::Transceiver(region, node));
        }
        self.geodns_named(name).map(NodeRole::GeoDns)
    }

    /// The names of all nodes: per region core relays, then transceivers, then the PoPs, then GeoDNS.
    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        let regions = self.regions.iter().flat_map(|region| {
            let relays = region.core_relays.iter().map(|relay| relay.name.as_str());
            let transceivers = region.transceivers.nodes.iter();
            relays.chain(transceivers.map(|node| node.name.as_str()))
        });
        let pops = self.pops.iter().map(|pop| pop.name.as_str());
        let geodns = self.geodns.iter().map(|node| node.name.as_str());
        regions.chain(pops).chain(geodns)
    }

    /// The GeoDNS node of this name.
    #[must_use]
    pub fn geodns_named(&self, name: &str) -> Option<&GeoDns> {
        self.geodns.iter().find(|node| node.name == name)
    }

    /// The region of this name.
    #[must_use]
    pub fn region_named(&self, name: &str) -> Option<&Region> {
        self.regions.iter().find(|region| region.name == name)
    }

    /// PoPs that have links to `region`, in topology order: the order they are advertised in.
    pub fn pops_of_region<'a>(&'a self, region: &'a Region) -> impl Iterator<Item = &'a Pop> {
        self.pops.iter().filter(|pop| match &pop.regions {
            Some(names) => names.contains(&region.name),
            None => true,
        })
    }

    /// Regions that `pop` has links to, in its order of preference.
    #[must_use]
    pub fn regions_of_pop(&self, pop: &Pop) -> Vec<&Region> {
        match &pop.regions {
            Some(names) => names
                .iter()
                .filter_map(|name| self.region_named(name))
                .collect(),
            None => self.regions.iter().collect(),
        }
    }

    /// See [`OwnAddresses`].
    #[must_use]
    pub fn own_addresses(&self) -> OwnAddresses {
        let ingress = self.pops.iter().flat_map(|pop| &pop.ingress);
        let sockets: BTreeSet<_> = ingress.chain(&self.network.vips).copied().collect();
        let relays = self.regions.iter().flat_map(|region| &region.core_relays);
        let transceivers = self
            .regions
            .iter()
            .flat_map(|region| &region.transceivers.nodes);
        let ips: BTreeSet<_> = relays
            .map(|relay| relay.address)
            .chain(transceivers.map(|node| node.address))
            .collect();
        OwnAddresses {
            sockets: sockets.into_iter().collect(),
            ips: ips.into_iter().collect(),
        }
    }
}
