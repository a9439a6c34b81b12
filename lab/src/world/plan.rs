//! What follows from a world file: every node with its addresses, routes and routing configuration, the wires between them, and who
//! serves whom. Nothing here touches the machine.
//!
//! ```text
//! c-lon ──4 ms── isp-lon ── r-lon ════ mesh of transit routers ════ r-fra ── fra (PoP)      to-X: the device that leads to X
//! 198.18.0.1     own AS     own AS     half of the matrix a way     own AS     │
//!                                                                   ├── eu-t1 (WHIP)       backbone: the device of the cloud
//!                                                                   └── ns1 (DNS)          that PoPs, relays, transceivers,
//!                                                                                          GeoDNS and Redis share
//! ```
//!
//! | addresses | of |
//! | --- | --- |
//! | of the topology | nodes: where clients reach them on `lo`, the others on `backbone` |
//! | 198.18.C.0/24, 2001:db8:f0CC::/48 | client number C; the first of each is its address |
//! | 10.254.0.0/16, fd00:254::/32 | wires that the topology says nothing of |
//! | 10.255.0.N | router ids of transit routers and ISPs |

mod sessions;
mod wires;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use topology::{RedisUrl, Topology};

use super::file::{Isp, WorldFile};
use crate::wan;
use wires::Wire;

/// Name of the cloud, and of its device in every member.
pub const BACKBONE: &str = "backbone";

/// See the module head.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By name.
    pub nodes: BTreeMap<String, Node>,
    /// What joins them.
    pub wan: wan::Plan,
    /// Anycast addresses.
    pub vips: Vec<SocketAddr>,
    /// By node and device: who is at the other end.
    pub(super) far_ends: BTreeMap<(String, String), String>,
    /// Transit routers by city, in the order of their ids.
    routers: Vec<String>,
    /// By PoP, the cities of the routers it has sessions with.
    upstreams: BTreeMap<String, Vec<String>>,
    /// Milliseconds from a router to each other one.
    rtt_ms: BTreeMap<(String, String), f64>,
}

/// What runs in a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whatever a test puts there.
    Client {
        /// Its ISP.
        isp: String,
        /// City of the router that its packets pass.
        upstream: String,
    },
    /// An access network.
    Isp,
    /// A transit network.
    Router,
    /// `pop`, and BIRD.
    Pop,
    /// `core-relay`.
    CoreRelay,
    /// `transceiver`.
    Transceiver,
    /// `geodns`.
    GeoDns,
    /// `redis-server` at this address.
    Redis(SocketAddr),
}

impl Kind {
    /// Whether a program runs there, beside BIRD.
    #[must_use]
    pub const fn runs(&self) -> bool {
        match self {
            Self::Client { .. } | Self::Isp | Self::Router => false,
            Self::Pop | Self::CoreRelay | Self::Transceiver | Self::GeoDns | Self::Redis(_) => true,
        }
    }
}

/// A namespace to be.
#[derive(Clone, Debug)]
pub struct Node {
    /// What runs there.
    pub kind: Kind,
    /// Where it is.
    pub city: String,
    /// Addresses of its loopback, beside 127.0.0.1.
    pub addresses: Vec<IpAddr>,
    /// Where packets go that are for nobody it knows, by family.
    pub(super) default_via: Vec<IpAddr>,
    /// What else is behind its wires.
    pub(super) routes: Vec<(IpNet, Via)>,
    /// `bird.conf`, for routers that are not ours.
    pub(super) bird: Option<String>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// Into the cloud.
    Backbone,
}

impl Plan {
    /// Works everything out.
    ///
    /// # Errors
    /// A node without a city, a Redis without an address, or a topology that cannot be joined to the world; the text says which.
    pub fn new(file: &WorldFile) -> anyhow::Result<Self> {
        let mut nodes = nodes_of(file)?;
        let wires = wires::all(file, &nodes)?;
        for (name, node) in &mut nodes {
            node.default_via = wires::defaults(name, &node.kind, &wires);
            node.bird = sessions::config(file, name, &node.kind, &wires);
        }
        let backbone = backbone_of(&file.topology)?;
        route_backbone(&mut nodes, &backbone);
        let wan = wan_plan(file, &nodes, &wires, backbone);
        let cities = || file.routers.iter().map(|router| router.city.clone());
        let pairs = cities().flat_map(|from| cities().map(move |to| (from.clone(), to)));
        let plan = Self {
            far_ends: wires.iter().flat_map(Wire::far_ends).collect(),
            vips: file.topology.network.vips.clone(),
            routers: cities().collect(),
            upstreams: wires::upstreams(&wires),
            rtt_ms: pairs
                .map(|(from, to)| ((from.clone(), to.clone()), file.cities.rtt_ms(&from, &to)))
                .collect(),
            nodes,
            wan,
        };
        Ok(plan)
    }

    /// Whether everything that the file says the place of is there. A scenario may take nodes away later.
    pub(super) fn check_places(&self, file: &WorldFile) -> anyhow::Result<()> {
        file.places.keys().try_for_each(|name| {
            let placed = self.nodes.get(name).is_some_and(|node| node.kind.runs())
                || file.topology.region_named(name).is_some();
            ensure!(
                placed,
                "places.{name}: the topology has no such region or node"
            );
            Ok(())
        })
    }

    /// A node of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn node(&self, name: &str) -> anyhow::Result<&Node> {
        let node = self.nodes.get(name);
        node.with_context(|| format!("there is no node `{name}`"))
    }

    /// Names of all nodes of which `want` is true.
    pub fn names(&self, want: impl Fn(&Kind) -> bool) -> impl Iterator<Item = &str> {
        let nodes = self.nodes.iter().filter(move |(_, node)| want(&node.kind));
        nodes.map(|(name, _)| name.as_str())
    }

    /// Clients.
    pub fn clients(&self) -> impl Iterator<Item = &str> {
        self.names(|kind| matches!(kind, Kind::Client { .. }))
    }

    /// PoPs.
    pub fn pops(&self) -> impl Iterator<Item = &str> {
        self.names(|kind| *kind == Kind::Pop)
    }

    /// The PoP of `alive` whose way from `client` is the shortest of the matrix; of equal ones, the one behind the router with the
    /// lowest id, as BGP decides.
    #[must_use]
    pub fn shortest<'a>(&self, client: &str, alive: &[&'a str]) -> Option<&'a str> {
        let Kind::Client { upstream, .. } = &self.nodes.get(client)?.kind else {
            return None;
        };
        let far = |pop: &str| {
            let cities = self.upstreams.get(pop)?.iter();
            let ways = cities.filter_map(|city| {
                let number = self.routers.iter().position(|router| router == city)?;
                let rtt_ms = self.rtt_ms.get(&(upstream.clone(), city.clone()))?;
                Some((*rtt_ms, number))
            });
            ways.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))
        };
        let ways = alive.iter().filter_map(|pop| Some((far(pop)?, *pop)));
        let nearest = ways.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        nearest.map(|(_, pop)| pop)
    }

    /// What a round trip from a client to a PoP takes, without what the machine adds.
    ///
    /// # Errors
    /// There is no such client or PoP.
    pub fn rtt_ms(&self, client: &str, pop: &str) -> anyhow::Result<f64> {
        let Kind::Client { isp, upstream } = &self.node(client)?.kind else {
            anyhow::bail!("{client} is no client");
        };
        let cities = self.upstreams.get(pop);
        let cities = cities.with_context(|| format!("{pop} has no upstream"))?;
        let far = |city: &String| self.rtt_ms.get(&(upstream.clone(), city.clone())).copied();
        let between = cities
            .iter()
            .filter_map(|city| Some((far(city)?, city.clone())))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let (between, city) = between.context("no way between their routers")?;
        let hop = |a: &str, b: &str| self.wire_ms(a, b);
        let access = hop(client, isp)? + hop(isp, &format!("r-{upstream}"))?;
        Ok(access + between + hop(&format!("r-{city}"), pop)?)
    }

    /// There and back over the wire between two nodes.
    fn wire_ms(&self, a: &str, b: &str) -> anyhow::Result<f64> {
        let links = self.wan.links.iter();
        let joins = |link: &&wan::Link| {
            (link.a.node == a && link.b.node == b) || (link.a.node == b && link.b.node == a)
        };
        let link = links.clone().find(joins);
        let link = link.with_context(|| format!("no wire joins {a} and {b}"))?;
        let directions = self.wan.link_directions(link)?;
        Ok(directions.iter().filter_map(|way| way.delay_ms).sum())
    }
}

/// Every node but its routes.
fn nodes_of(file: &WorldFile) -> anyhow::Result<BTreeMap<String, Node>> {
    let mut nodes = BTreeMap::new();
    let mut add = |name: String, node: Node| {
        let taken = nodes.insert(name.clone(), node).is_some();
        ensure!(!taken, "two nodes are named `{name}`");
        Ok(())
    };
    for (name, node) in of_topology(file)? {
        add(name, node)?;
    }
    for router in &file.routers {
        let name = format!("r-{}", router.city);
        add(name, Node::new(Kind::Router, &router.city, Vec::new()))?;
    }
    for (isp, name, number) in clients(file) {
        let kind = Kind::Client {
            isp: format!("isp-{}", isp.city),
            upstream: file.upstream_of(isp).to_owned(),
        };
        let (v4, v6) = client_prefixes(number);
        let first = vec![
            Ipv4Addr::from(u32::from(v4.addr()) + 1).into(),
            Ipv6Addr::from(u128::from(v6.addr()) + 1).into(),
        ];
        add(name, Node::new(kind, &isp.city, first))?;
    }
    for isp in &file.isps {
        let name = format!("isp-{}", isp.city);
        add(name, Node::new(Kind::Isp, &isp.city, Vec::new()))?;
    }
    Ok(nodes)
}

impl Node {
    fn new(kind: Kind, city: &str, addresses: Vec<IpAddr>) -> Self {
        Self {
            kind,
            city: city.to_owned(),
            addresses,
            default_via: Vec::new(),
            routes: Vec::new(),
            bird: None,
        }
    }

    /// Whether packets pass it that are for others.
    #[must_use]
    pub const fn forwards(&self) -> bool {
        matches!(self.kind, Kind::Isp | Kind::Router)
    }
}

/// Nodes of the topology, with the addresses that clients reach them at.
fn of_topology(file: &WorldFile) -> anyhow::Result<Vec<(String, Node)>> {
    let topology = &file.topology;
    let mut nodes = Vec::new();
    let mut add = |name: &str, region: Option<&str>, kind: Kind, addresses: Vec<IpAddr>| {
        let city = file.city_of(name, region);
        let city = city.with_context(|| format!("`places` does not say where {name} is"))?;
        nodes.push((name.to_owned(), Node::new(kind, city, addresses)));
        anyhow::Ok(())
    };
    for region in &topology.regions {
        let own = Some(region.name.as_str());
        for relay in &region.core_relays {
            add(&relay.name, own, Kind::CoreRelay, Vec::new())?;
        }
        for node in &region.transceivers.nodes {
            let public = Vec::from_iter((node.whip.ip() != node.address).then_some(node.whip.ip()));
            add(&node.name, own, Kind::Transceiver, public)?;
        }
    }
    let vips = topology.network.vips.iter();
    for pop in &topology.pops {
        let ingress = pop.ingress.iter().chain(vips.clone());
        let addresses: BTreeSet<IpAddr> = ingress.map(SocketAddr::ip).collect();
        add(&pop.name, None, Kind::Pop, Vec::from_iter(addresses))?;
    }
    for node in &topology.geodns {
        let public = node.dns.iter().chain(&node.dot).chain(&node.doh);
        let public: BTreeSet<IpAddr> = public.map(SocketAddr::ip).collect();
        let public = public
            .into_iter()
            .filter(|address| *address != node.steer.ip());
        add(&node.name, None, Kind::GeoDns, public.collect())?;
    }
    for (name, at) in redis_servers(topology)? {
        add(&name, None, Kind::Redis(at), Vec::new())?;
    }
    Ok(nodes)
}

/// Redis servers of the topology: `redis-GROUP`, `redis-state`, with a number where there are several. One that two share has the
/// first name.
fn redis_servers(topology: &Topology) -> anyhow::Result<Vec<(String, SocketAddr)>> {
    let groups = topology.failover_groups.iter();
    let groups = groups.map(|group| (group.name.as_str(), &group.redis));
    let state = topology.network.state.iter();
    let all = groups.chain(state.map(|state| ("state", &state.redis)));
    let mut servers: Vec<(String, SocketAddr)> = Vec::new();
    for (owner, urls) in all {
        for (number, url) in (1..).zip(urls) {
            let name = match urls.len() {
                1 => format!("redis-{owner}"),
                _ => format!("redis-{owner}-{number}"),
            };
            let at = redis_address(url)?;
            if servers.iter().all(|(_, taken)| *taken != at) {
                servers.push((name, at));
            }
        }
    }
    Ok(servers)
}

fn redis_address(url: &RedisUrl) -> anyhow::Result<SocketAddr> {
    ensure!(!url.tls, "{url}: Redis servers of a world speak no TLS");
    let ip = url.host.parse();
    let ip: IpAddr = ip.with_context(|| format!("{url}: a world knows addresses, not names"))?;
    Ok(SocketAddr::new(ip, url.port))
}

/// Addresses on the backbone, by node.
fn backbone_of(topology: &Topology) -> anyhow::Result<BTreeMap<String, BTreeSet<IpAddr>>> {
    let mut members: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
    let mut add = |name: &str, address: IpAddr| {
        let own = members.entry(name.to_owned()).or_default();
        let _new = own.insert(address);
    };
    for region in &topology.regions {
        for relay in &region.core_relays {
            add(&relay.name, relay.address);
        }
        for node in &region.transceivers.nodes {
            add(&node.name, node.address);
            add(&node.name, node.peer.ip());
        }
    }
    for pop in &topology.pops {
        let said = !pop.backbone.is_unspecified();
        ensure!(said, "{}: a world needs its `backbone` address", pop.name);
        add(&pop.name, pop.backbone);
    }
    for node in &topology.geodns {
        add(&node.name, node.steer.ip());
    }
    for (name, at) in redis_servers(topology)? {
        add(&name, at.ip());
    }
    Ok(members)
}

/// Every member's way to each other one.
fn route_backbone(
    nodes: &mut BTreeMap<String, Node>,
    members: &BTreeMap<String, BTreeSet<IpAddr>>,
) {
    for (name, own) in members {
        let others = members.iter().filter(|(other, _)| *other != name);
        let addresses = others.flat_map(|(_, addresses)| addresses);
        let families: BTreeSet<bool> = own.iter().map(IpAddr::is_ipv4).collect();
        let reachable = addresses.filter(|address| families.contains(&address.is_ipv4()));
        if let Some(node) = nodes.get_mut(name) {
            node.routes
                .extend(reachable.map(|to| (IpNet::from(*to), Via::Backbone)));
        }
    }
}

fn wan_plan(
    file: &WorldFile,
    nodes: &BTreeMap<String, Node>,
    wires: &[Wire],
    members: BTreeMap<String, BTreeSet<IpAddr>>,
) -> wan::Plan {
    let cities: BTreeSet<&str> = nodes.values().map(|node| node.city.as_str()).collect();
    let member = |(name, addresses): (String, BTreeSet<IpAddr>)| {
        let city = nodes.get(&name).map(|node| node.city.clone());
        wan::Member {
            city: city.unwrap_or_default(),
            node: name,
            addresses: addresses.into_iter().map(IpNet::from).collect(),
            prefixes: Vec::new(),
        }
    };
    wan::Plan {
        name: file.name.clone(),
        seed: file.seed,
        mtu_bytes: 1500,
        become_uid: None,
        real_time: true,
        awake_ms: wan::awake_ms(),
        rtt_ms: file.cities.matrix(cities.iter().copied()),
        nodes: nodes.keys().cloned().collect(),
        links: wires.iter().map(Wire::link).collect(),
        clouds: vec![wan::Cloud {
            name: BACKBONE.to_owned(),
            members: members.into_iter().map(member).collect(),
            conditions: wan::Direction::default(),
        }],
    }
}

/// Clients in order: their ISP, name and number.
fn clients(file: &WorldFile) -> impl Iterator<Item = (&Isp, String, u16)> {
    let all = file.isps.iter().flat_map(|isp| {
        (1..=isp.clients).map(move |number| match number {
            1 => (isp, format!("c-{}", isp.city)),
            _ => (isp, format!("c-{}-{number}", isp.city)),
        })
    });
    (0..)
        .zip(all)
        .map(|(number, (isp, name))| (isp, name, number))
}

/// Networks of a client, out of 198.18.0.0/15 and 2001:db8:f000::/36.
fn client_prefixes(number: u16) -> (Ipv4Net, Ipv6Net) {
    let v4 = Ipv4Addr::from(0xc612_0000 + (u32::from(number) << 8));
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0xf000 + number, 0, 0, 0, 0, 0);
    (Ipv4Net::new_assert(v4, 24), Ipv6Net::new_assert(v6, 48))
}

#[cfg(test)]
mod tests;
