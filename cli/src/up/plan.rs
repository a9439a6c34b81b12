//! What `up` is going to run: the topology, with an ingress per PoP on an address of the host where there is one.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use runtime::node::Start;
use topology::{POP_ADDRESSES_MAX, Topology};

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A GeoDNS node.
    GeoDns,
    /// A core relay.
    CoreRelay,
    /// A transceiver.
    Transceiver,
    /// A PoP.
    Pop,
}

impl Kind {
    /// For people.
    pub(crate) const fn noun(self) -> &'static str {
        match self {
            Self::GeoDns => "GeoDNS",
            Self::CoreRelay => "core relay",
            Self::Transceiver => "transceiver",
            Self::Pop => "PoP",
        }
    }

    /// Its program, also as `firsthop node` has it.
    pub(crate) const fn command(self) -> &'static str {
        match self {
            Self::GeoDns => "geodns",
            Self::CoreRelay => "core-relay",
            Self::Transceiver => "transceiver",
            Self::Pop => "pop",
        }
    }

    /// What starts it.
    pub(crate) fn start(self) -> Start {
        match self {
            Self::GeoDns => geodns::start,
            Self::CoreRelay => core_relay::start,
            Self::Transceiver => transceiver::start,
            Self::Pop => pop::start,
        }
    }
}

/// A node to run.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// What it is.
    pub(crate) kind: Kind,
    /// Its name.
    pub(crate) name: String,
    /// Where its admin HTTP listens.
    pub(crate) admin: SocketAddr,
}

/// Every node, in the order to start them: a PoP's dials, and a transceiver's questions, find somebody.
pub(crate) fn nodes(topology: &Topology) -> Vec<Node> {
    let node = |kind, name: &str, admin| Node {
        kind,
        name: name.to_owned(),
        admin,
    };
    let mut nodes = Vec::new();
    for geodns in &topology.geodns {
        nodes.push(node(Kind::GeoDns, &geodns.name, geodns.admin));
    }
    for region in &topology.regions {
        for relay in &region.core_relays {
            nodes.push(node(Kind::CoreRelay, &relay.name, relay.admin));
        }
    }
    for region in &topology.regions {
        for transceiver in &region.transceivers.nodes {
            nodes.push(node(
                Kind::Transceiver,
                &transceiver.name,
                transceiver.admin,
            ));
        }
    }
    for pop in &topology.pops {
        nodes.push(node(Kind::Pop, &pop.name, pop.admin));
    }
    nodes
}

/// First port of the PoPs on the host's address: STUN's.
const HOST_PORT: u16 = 3478;
/// Ports tried for one PoP.
const HOST_PORT_TRIES: u16 = 200;

/// Gives each PoP that has none but loopback ingress another one on `host`, each its own port. A PoP that finds no
/// free port goes without.
pub(super) fn add_host_ingress(topology: &mut Topology, host: IpAddr) {
    let is_free = |at: SocketAddr| UdpSocket::bind(at).is_ok();
    let mut port = HOST_PORT;
    for pop in &mut topology.pops {
        let loopback = pop.ingress.iter().all(|at| at.ip().is_loopback());
        if !loopback || pop.ingress.len() >= POP_ADDRESSES_MAX {
            continue;
        }
        let mut tries = port..port.saturating_add(HOST_PORT_TRIES);
        if let Some(free) = tries.find(|port| is_free(SocketAddr::new(host, *port))) {
            pop.ingress.push(SocketAddr::new(host, free));
            port = free.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");

    #[test]
    fn each_pop_gets_a_port_of_its_own_and_the_result_is_a_topology() {
        let mut topology = topology::load(LOCAL, "local.yaml").unwrap();
        let host: IpAddr = "127.0.99.1".parse().unwrap();
        let taken = UdpSocket::bind((host, HOST_PORT + 1)).unwrap();
        add_host_ingress(&mut topology, host);
        let ports: Vec<_> = topology
            .pops
            .iter()
            .map(|pop| pop.ingress[1].port())
            .collect();
        assert_eq!(ports, [3478, 3480, 3481]);
        drop(taken);
        let text = topology::to_yaml(&topology).unwrap();
        assert_eq!(topology::load(&text, "written").unwrap(), topology);
    }

    #[test]
    fn pops_start_last() {
        let topology = topology::load(LOCAL, "local.yaml").unwrap();
        let kinds: Vec<_> = nodes(&topology).iter().map(|node| node.kind).collect();
        assert_eq!(kinds.len(), 11);
        assert!(kinds.is_sorted_by_key(|kind| *kind as u8));
    }
}
