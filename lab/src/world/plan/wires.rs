//! Wires: who is joined with whom, and the addresses of both ends.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, ensure};
use ipnet::IpNet;
use topology::BgpSession;

use super::{Kind, Node, clients};
use crate::wan;
use crate::world::file::WorldFile;

/// Wires of one world at most: two IPv4 addresses each, of 10.254.0.0/16.
const WIRES_MAX: usize = 1 << 15;

/// A wire between two nodes. Packets for others leave `a` by it.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) a: String,
    pub(super) b: String,
    /// One pair for each family.
    pub(super) addresses: Vec<(IpAddr, IpAddr)>,
    takes: Takes,
}

#[derive(Clone, Debug)]
enum Takes {
    /// Half of the matrix each way.
    Between(String, String),
    /// So long each way.
    Ms(f64),
}

impl Wire {
    fn new(a: &str, b: &str, takes: Takes) -> Self {
        Self {
            a: a.to_owned(),
            b: b.to_owned(),
            addresses: Vec::new(),
            takes,
        }
    }

    pub(super) fn link(&self) -> wan::Link {
        let nets = |own: fn(&(IpAddr, IpAddr)) -> IpAddr| {
            let pairs = self.addresses.iter();
            pairs.map(move |pair| within(own(pair), pair)).collect()
        };
        let end = |node: &String, addresses: Vec<IpNet>| wan::End {
            node: node.clone(),
            device: None,
            addresses,
        };
        let (cities, delay_ms) = match &self.takes {
            Takes::Between(a, b) => (Some((a.clone(), b.clone())), None),
            Takes::Ms(ms) => (None, Some(*ms)),
        };
        wan::Link {
            a: end(&self.a, nets(|pair| pair.0)),
            b: end(&self.b, nets(|pair| pair.1)),
            cities,
            conditions: wan::Direction {
                delay_ms,
                ..wan::Direction::default()
            },
            back: None,
        }
    }

    /// By node and device, who is at the other end.
    pub(super) fn far_ends(&self) -> impl Iterator<Item = ((String, String), String)> + use<> {
        let (a, b) = (self.a.clone(), self.b.clone());
        let there = ((a.clone(), format!("to-{b}")), b.clone());
        [there, ((b, format!("to-{a}")), a)].into_iter()
    }
}

/// The network both ends are in, as an address of one of them.
fn within(own: IpAddr, pair: &(IpAddr, IpAddr)) -> IpNet {
    let common = match pair {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(*a) ^ u32::from(*b)).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(*a) ^ u128::from(*b)).leading_zeros(),
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => u32::MAX,
    };
    let host = IpNet::from(own);
    let len =
        u8::try_from(common).map_or_else(|_| host.prefix_len(), |len| len.min(host.prefix_len()));
    IpNet::new(own, len).unwrap_or(host)
}

/// Every wire.
pub(super) fn all(file: &WorldFile, nodes: &BTreeMap<String, Node>) -> anyhow::Result<Vec<Wire>> {
    let mut wires = Vec::new();
    let routers: Vec<&str> = file
        .routers
        .iter()
        .map(|router| router.city.as_str())
        .collect();
    for (at, a) in routers.iter().enumerate() {
        for b in routers.iter().skip(at + 1) {
            let takes = Takes::Between((*a).to_owned(), (*b).to_owned());
            wires.push(Wire::new(&format!("r-{a}"), &format!("r-{b}"), takes));
        }
    }
    for isp in &file.isps {
        let upstream = file.upstream_of(isp);
        let takes = Takes::Between(isp.city.clone(), upstream.to_owned());
        let name = format!("isp-{}", isp.city);
        wires.push(Wire::new(&name, &format!("r-{upstream}"), takes));
    }
    for (isp, name, _) in clients(file) {
        let isp = format!("isp-{}", isp.city);
        wires.push(Wire::new(&name, &isp, Takes::Ms(file.access_ms)));
    }
    for (name, node) in nodes {
        let upstreams = match file.topology.pop_named(name).map(|pop| pop.bgp.as_slice()) {
            Some(sessions @ [_, ..]) => wires_of(file, name, sessions)?,
            Some([]) | None => uplink(file, node),
        };
        for (city, addresses) in upstreams {
            let takes = Takes::Between(node.city.clone(), city.to_owned());
            wires.push(Wire {
                addresses,
                ..Wire::new(name, &format!("r-{city}"), takes)
            });
        }
    }
    ensure!(wires.len() <= WIRES_MAX, "more than {WIRES_MAX} wires");
    for (number, wire) in (0..).zip(&mut wires) {
        if wire.addresses.is_empty() {
            wire.addresses = numbered(number);
        }
    }
    Ok(wires)
}

/// City of a router, and the addresses of the wire that leads there; none: whichever are free.
type Upstream<'a> = (&'a str, Vec<(IpAddr, IpAddr)>);

/// A wire for each router that a PoP has sessions with.
fn wires_of<'a>(
    file: &'a WorldFile,
    pop: &str,
    sessions: &[BgpSession],
) -> anyhow::Result<Vec<Upstream<'a>>> {
    let mut upstreams: Vec<Upstream<'a>> = Vec::new();
    for session in sessions {
        let mut routers = file.routers.iter();
        let router = routers.find(|router| router.asn == session.asn);
        let name = &session.name;
        let router = router.with_context(|| {
            format!(
                "session {name} of {pop}: no router has the AS {}",
                session.asn
            )
        })?;
        let pair = (session.local, session.address);
        match upstreams.iter_mut().find(|(city, _)| *city == router.city) {
            Some((_, pairs)) => pairs.push(pair),
            None => upstreams.push((&router.city, vec![pair])),
        }
    }
    Ok(upstreams)
}

/// The nearest router, for a node with an address that clients reach.
fn uplink<'a>(file: &'a WorldFile, node: &Node) -> Vec<Upstream<'a>> {
    let public = match node.kind {
        Kind::Pop | Kind::Transceiver | Kind::GeoDns => !node.addresses.is_empty(),
        Kind::Client { .. } | Kind::Isp | Kind::Router | Kind::CoreRelay | Kind::Redis(_) => false,
    };
    let far = |city: &str| file.cities.rtt_ms(&node.city, city);
    let cities = file.routers.iter().map(|router| router.city.as_str());
    let nearest = cities.min_by(|a, b| far(a).total_cmp(&far(b)));
    let nearest = nearest.filter(|_| public);
    nearest.into_iter().map(|city| (city, Vec::new())).collect()
}

/// Addresses of a wire that nobody has said any of.
fn numbered(number: u32) -> Vec<(IpAddr, IpAddr)> {
    let v4 = |end: u32| IpAddr::V4(Ipv4Addr::from(0x0afe_0000 + 2 * number + end));
    let first = u128::from(Ipv6Addr::new(0xfd00, 0x254, 0, 0, 0, 0, 0, 0));
    let v6 = |end: u128| IpAddr::V6(Ipv6Addr::from(first + 2 * u128::from(number) + end));
    vec![(v4(0), v4(1)), (v6(0), v6(1))]
}

/// Where packets for nobody in particular leave a node: by its first wire.
pub(super) fn defaults(name: &str, kind: &Kind, wires: &[Wire]) -> Vec<IpAddr> {
    match kind {
        // They speak BGP.
        Kind::Isp | Kind::Router => Vec::new(),
        Kind::Client { .. }
        | Kind::Pop
        | Kind::CoreRelay
        | Kind::Transceiver
        | Kind::GeoDns
        | Kind::Redis(_) => {
            let mut own = wires.iter().filter(|wire| wire.a == name);
            let first = own.next().map(|wire| wire.addresses.as_slice());
            let far = first.unwrap_or_default().iter().map(|(_, far)| *far);
            far.collect()
        }
    }
}

/// By PoP, the cities of its routers.
pub(super) fn upstreams(wires: &[Wire]) -> BTreeMap<String, Vec<String>> {
    let mut upstreams: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for wire in wires {
        if let Some(city) = wire.b.strip_prefix("r-") {
            let cities = upstreams.entry(wire.a.clone()).or_default();
            cities.push(city.to_owned());
        }
    }
    upstreams
}
