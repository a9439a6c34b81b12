//! Who may send us records, and what the places a record names are called.

use std::net::{IpAddr, SocketAddr};

use topology::{Region, Topology};
use transceiver_proto::ReturnPath;

/// Record addresses of the region's core relays, and names for snapshots. Rebuilt when the topology changes.
pub(crate) struct Relays {
    relays: Vec<Relay>,
    pops: Vec<Pop>,
}

struct Relay {
    name: String,
    address: IpAddr,
    first_port: u16,
    workers: u8,
}

struct Pop {
    id: u16,
    name: String,
    ingress: Vec<SocketAddr>,
}

/// A return path in the words of the topology.
pub(crate) struct Place {
    pub(crate) pop: Option<String>,
    pub(crate) ingress: Option<SocketAddr>,
    pub(crate) core_relay: Option<String>,
}

impl Relays {
    pub(crate) fn new(topology: &Topology, region: &Region) -> Self {
        let relays = region.core_relays.iter().map(|relay| Relay {
            name: relay.name.clone(),
            address: relay.address.to_canonical(),
            first_port: relay.record_port,
            workers: relay.workers,
        });
        let pops = topology.pops.iter().map(|pop| Pop {
            id: pop.id,
            name: pop.name.clone(),
            ingress: pop.ingress.clone(),
        });
        Self {
            relays: relays.collect(),
            pops: pops.collect(),
        }
    }

    /// Whether a datagram from `source` can be a core relay's. A region has a handful of relays.
    pub(crate) fn contains(&self, source: SocketAddr) -> bool {
        self.find(source).is_some()
    }

    fn find(&self, source: SocketAddr) -> Option<&Relay> {
        let ip = source.ip().to_canonical();
        self.relays.iter().find(|relay| {
            let worker = source.port().checked_sub(relay.first_port);
            relay.address == ip && worker.is_some_and(|worker| worker < u16::from(relay.workers))
        })
    }

    pub(crate) fn place(&self, via: ReturnPath) -> Place {
        let pop = self.pops.iter().find(|pop| pop.id == via.tag.pop.0);
        Place {
            pop: pop.map(|pop| pop.name.clone()),
            ingress: pop.and_then(|pop| pop.ingress.get(usize::from(via.tag.ingress)).copied()),
            core_relay: self.find(via.relay).map(|relay| relay.name.clone()),
        }
    }
}
