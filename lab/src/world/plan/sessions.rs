//! Who speaks BGP with whom: the configuration of every router that is not ours.

use std::net::IpAddr;

use ipnet::IpNet;

use super::wires::Wire;
use super::{Kind, client_prefixes, clients};
use crate::world::bird::{Bfd, Neighbour, Relation, Speaker, family_of};
use crate::world::file::{Router, WorldFile};

/// Router ids: 10.255.0.0 and up, transit routers first.
const ROUTER_IDS: u32 = 0x0aff_0000;
/// ASes of ISPs, in the order of the file (private use, RFC 6996).
const ISP_ASN: u32 = 4_200_000_000;

/// The `bird.conf` of a node, if it is a router that is not ours.
pub(super) fn config(file: &WorldFile, name: &str, kind: &Kind, wires: &[Wire]) -> Option<String> {
    let speaker = match kind {
        Kind::Router => router(file, name, wires)?,
        Kind::Isp => isp(file, name, wires)?,
        Kind::Client { .. }
        | Kind::Pop
        | Kind::CoreRelay
        | Kind::Transceiver
        | Kind::GeoDns
        | Kind::Redis(_) => return None,
    };
    Some(speaker.config())
}

fn router(file: &WorldFile, name: &str, wires: &[Wire]) -> Option<Speaker> {
    let is_it = |router: &Router| format!("r-{}", router.city) == name;
    let number = file.routers.iter().position(is_it)?;
    let own = file.routers.get(number)?;
    let mut neighbours = Vec::new();
    let mut statics = Vec::new();
    for end in ends(name, wires) {
        if let Some(city) = end.node.strip_prefix("r-") {
            let peer = file.routers.iter().find(|router| router.city == city)?;
            let is = Relation::Peer {
                rtt_ms: file.cities.rtt_ms(&own.city, city),
                near_first: own.prefers_customers,
            };
            neighbours.extend(end.neighbours(peer.asn, &is));
        } else if let Some(asn) = isp_asn(file, end.node) {
            neighbours.extend(end.neighbours(asn, &Relation::Isp));
        } else {
            neighbours.extend(pop_sessions(file, own, &end));
            statics.extend(behind(file, &end));
        }
    }
    Some(Speaker {
        router_id: ROUTER_IDS + u32::try_from(number).ok()? + 1,
        asn: own.asn,
        graceful_shutdown: own.graceful_shutdown,
        statics,
        neighbours,
        bfd: file.topology.network.anycast.as_ref().map(|anycast| Bfd {
            interval_ms: anycast.bfd.interval_ms,
            multiplier: u32::from(anycast.bfd.multiplier),
        }),
    })
}

fn isp(file: &WorldFile, name: &str, wires: &[Wire]) -> Option<Speaker> {
    let number = file
        .isps
        .iter()
        .position(|isp| format!("isp-{}", isp.city) == name)?;
    let mut neighbours = Vec::new();
    let mut statics = Vec::new();
    for end in ends(name, wires) {
        if let Some(city) = end.node.strip_prefix("r-") {
            let upstream = file.routers.iter().find(|router| router.city == city)?;
            neighbours.extend(end.neighbours(upstream.asn, &Relation::Upstream));
        } else if let Some((_, _, number)) = clients(file).find(|(_, client, _)| client == end.node)
        {
            let (v4, v6) = client_prefixes(number);
            statics.extend(end.via(&[v4.into(), v6.into()]));
        }
    }
    let routers = u32::try_from(file.routers.len()).ok()?;
    let number = u32::try_from(number).ok()?;
    Some(Speaker {
        router_id: ROUTER_IDS + routers + number + 1,
        asn: ISP_ASN + number,
        graceful_shutdown: true,
        statics,
        neighbours,
        bfd: None,
    })
}

fn isp_asn(file: &WorldFile, node: &str) -> Option<u32> {
    let number = file
        .isps
        .iter()
        .position(|isp| format!("isp-{}", isp.city) == node)?;
    Some(ISP_ASN + u32::try_from(number).ok()?)
}

/// Sessions with a PoP, as its own side of them is in the topology.
fn pop_sessions(file: &WorldFile, own: &Router, end: &End<'_>) -> Vec<Neighbour> {
    let topology = &file.topology;
    let pop = topology.pop_named(end.node);
    let (Some(pop), Some(anycast)) = (pop, &topology.network.anycast) else {
        return Vec::new();
    };
    let is = Relation::Pop {
        prefixes: anycast
            .prefixes
            .iter()
            .chain(&anycast.cover)
            .copied()
            .collect(),
        hold_s: u32::from(anycast.hold_s),
        preferred: own.prefers_customers,
    };
    let sessions = pop.bgp.iter().filter(|session| session.asn == own.asn);
    let neighbour = |session: &topology::BgpSession| Neighbour {
        node: end.node.to_owned(),
        asn: anycast.asn,
        local: session.address,
        address: session.local,
        is: is.clone(),
    };
    sessions.map(neighbour).collect()
}

/// Addresses of a node of the network that the router at its wire announces for it: all but VIPs.
fn behind(file: &WorldFile, end: &End<'_>) -> Vec<(IpNet, IpAddr)> {
    let topology = &file.topology;
    let mut own: Vec<IpAddr> = Vec::new();
    if let Some(pop) = topology.pop_named(end.node) {
        own.extend(pop.ingress.iter().map(std::net::SocketAddr::ip));
    }
    if let Some((_, node)) = topology.transceiver_named(end.node) {
        own.push(node.whip.ip());
    }
    if let Some(node) = topology.geodns_named(end.node) {
        let public = node.dns.iter().chain(&node.dot).chain(&node.doh);
        own.extend(public.map(std::net::SocketAddr::ip));
    }
    own.sort_unstable();
    own.dedup();
    let nets: Vec<IpNet> = own.into_iter().map(IpNet::from).collect();
    end.via(&nets)
}

/// A wire as one end sees it.
struct End<'a> {
    node: &'a str,
    /// Own address and the other one.
    pairs: Vec<(IpAddr, IpAddr)>,
}

fn ends<'a>(name: &'a str, wires: &'a [Wire]) -> impl Iterator<Item = End<'a>> {
    wires.iter().filter_map(move |wire| {
        let pairs = wire.addresses.iter();
        if wire.a == name {
            let pairs = pairs.copied().collect();
            Some(End {
                node: &wire.b,
                pairs,
            })
        } else if wire.b == name {
            let pairs = pairs.map(|(a, b)| (*b, *a)).collect();
            Some(End {
                node: &wire.a,
                pairs,
            })
        } else {
            None
        }
    })
}

impl End<'_> {
    fn neighbours(&self, asn: u32, is: &Relation) -> Vec<Neighbour> {
        let neighbour = |(local, address): &(IpAddr, IpAddr)| Neighbour {
            node: self.node.to_owned(),
            asn,
            local: *local,
            address: *address,
            is: is.clone(),
        };
        self.pairs.iter().map(neighbour).collect()
    }

    /// Routes to networks behind the other end.
    fn via(&self, nets: &[IpNet]) -> Vec<(IpNet, IpAddr)> {
        let next_hop = |net: &IpNet| {
            let mut far = self.pairs.iter().map(|(_, far)| *far);
            far.find(|far| family_of(*far) == family_of(net.addr()))
        };
        nets.iter()
            .filter_map(|net| Some((*net, next_hop(net)?)))
            .collect()
    }
}
