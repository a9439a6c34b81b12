//! How many of each node a test wants, and the topology that comes of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use topology::{
    CoreRelay, Datagrams, Link, Network, Pop, Region, Signaling, Steering, Topology, Transceiver,
    TransceiverCluster, WorkerPacing,
};

/// One region, `eu`. Nodes are named `r1..`, `t1..`, `p1..`.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Core relays.
    pub core_relays: u8,
    /// Transceivers.
    pub transceivers: u8,
    /// PoPs.
    pub pops: u8,
    /// Worker threads of every PoP and core relay.
    pub workers: u8,
    /// Address of the first PoP's ingress in place of a loopback one: an address of a namespace.
    pub ingress: Option<IpAddr>,
    /// How many records share a datagram from a core relay to a transceiver.
    pub datagrams: Datagrams,
    /// Whether the voice of every transceiver measures ([`crate::meter`]) in place of an echo.
    pub meters: bool,
    /// The one processor all nodes run on; `None` leaves placement to the kernel.
    pub processor: Option<usize>,
    /// Geolocation databases of every GeoDNS node. The nodes themselves come with the adjusted topology.
    pub geo_databases: Vec<PathBuf>,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            core_relays: 2,
            transceivers: 1,
            pops: 1,
            workers: 1,
            ingress: None,
            datagrams: Datagrams::Packed,
            meters: false,
            processor: None,
            geo_databases: Vec::new(),
        }
    }
}

impl Shape {
    pub(super) fn topology(&self, octet: u8) -> Topology {
        let ip = |net: u8, host: u8| IpAddr::V4(Ipv4Addr::new(127, octet, net, host));
        let region = Region {
            name: "eu".to_owned(),
            id: 1,
            signaling_url: format!("http://{}:8080/whip", ip(11, 1)),
            signaling_addresses: vec![ip(11, 1)],
            location: None,
            residency: None,
            avoid_countries: Vec::new(),
            weight: 100,
            core_relays: (1..=self.core_relays)
                .map(|host| self.core_relay(host, ip(1, host)))
                .collect(),
            transceivers: TransceiverCluster {
                cidr: ipnet::IpNet::new_assert(ip(11, 0), 24),
                port: 5000,
                datagrams: self.datagrams,
                nodes: (1..=self.transceivers)
                    .map(|host| transceiver(host, ip(11, host)))
                    .collect(),
            },
        };
        Topology {
            version: 1,
            network: network(),
            regions: vec![region],
            failover_groups: Vec::new(),
            pops: (1..=self.pops)
                .map(|host| self.pop(host, ip(31, host)))
                .collect(),
            steering: Steering::default(),
            dns: None,
            geodns: Vec::new(),
        }
    }

    fn core_relay(&self, host: u8, address: IpAddr) -> CoreRelay {
        CoreRelay {
            name: format!("r{host}"),
            address,
            link_port: 7443,
            record_port: 7543,
            workers: self.workers,
            pin: false,
            admin: SocketAddr::new(address, 9100),
        }
    }

    fn pop(&self, host: u8, address: IpAddr) -> Pop {
        let first = if host == 1 { self.ingress } else { None };
        Pop {
            name: format!("p{host}"),
            id: u16::from(host),
            ingress: vec![SocketAddr::new(first.unwrap_or(address), 3478)],
            backbone: address,
            regions: None,
            workers: self.workers,
            pin: false,
            flows_max: 1 << 16,
            weight: 100,
            failover_group: None,
            router_id: None,
            bgp: Vec::new(),
            location: None,
            admin: SocketAddr::new(address, 9100),
        }
    }
}

fn transceiver(host: u8, address: IpAddr) -> Transceiver {
    Transceiver {
        name: format!("t{host}"),
        address,
        whip: SocketAddr::new(address, 8080),
        peer: SocketAddr::new(address, 8443),
        admin: SocketAddr::new(address, 9100),
    }
}

fn network() -> Network {
    Network {
        name: "lab".to_owned(),
        hint_age_max_min: 1440,
        drain_max_s: 2,
        link: Link::default(),
        worker: WorkerPacing::default(),
        offer_unknown: true,
        signaling: Signaling::default(),
        vips: Vec::new(),
        anycast: None,
        state: None,
    }
}
