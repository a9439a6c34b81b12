//! The geodns program with the map of the comparison: six regions, some PoPs, one GeoDNS node. Nothing else of the network runs.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use anyhow::Context as _;
use serde_json::json;
use topology::{Location, Region, Topology};

use super::database::Database;
use super::map::{self, PLACES, Place};
use super::query::ZONE;
use super::servers::free_address;
use crate::bench::world::PATH;
use crate::net::{Network, Shape};

/// Name of the node.
pub const NODE: &str = "ns1";

/// Starts it on one processor, in a topology of so many PoPs.
pub(super) fn start(database: &Database, pops: u8) -> anyhow::Result<Network> {
    let shape = Shape {
        core_relays: 1,
        transceivers: 1,
        pops,
        processor: Some(PATH),
        geo_databases: vec![database.file().to_owned()],
        ..Shape::default()
    };
    let mut wrong = None;
    let mut network = Network::prepare(&shape, |topology| wrong = adjust(topology).err())?;
    wrong.map_or(Ok(()), Err)?;
    network.start_node(NODE)?;
    Ok(network)
}

/// Where it answers.
pub(super) fn address(network: &Network) -> anyhow::Result<SocketAddr> {
    let node = network.topology().geodns_named(NODE);
    let address = node.and_then(|node| node.dns.first());
    address.copied().context("a node has an address")
}

fn adjust(topology: &mut Topology) -> anyhow::Result<()> {
    let base = topology
        .regions
        .first()
        .context("a shape has a region")?
        .clone();
    let relay = base.core_relays.first().context("a region has a relay")?;
    let IpAddr::V4(v4) = relay.address else {
        anyhow::bail!("a shape is of IPv4");
    };
    let [_, octet, ..] = v4.octets();
    topology.regions = PLACES
        .iter()
        .map(|place| region(&base, place, octet))
        .collect();
    // Whoever is nowhere is nearest to the region of the first PoP.
    for (pop, place) in topology.pops.iter_mut().zip(PLACES.iter().cycle()) {
        pop.location = Some(location(place));
    }
    topology.steering.rules = map::rules();
    topology.dns = Some(serde_json::from_value(json!({
        "zone": ZONE,
        "nameservers": [{ "name": format!("ns1.{ZONE}"), "addresses": ["192.0.2.53"] }],
        "hostmaster": format!("hostmaster@{ZONE}"),
        // On, and high enough that the generator's sixteen networks stay below it.
        "rate_limit": { "responses_per_s": 100_000, "slip": 2 },
    }))?);
    topology.geodns = vec![serde_json::from_value(json!({
        "name": NODE,
        // Where the others are: of an address that no interface has, the kernel looks up whether it is local with each answer.
        "dns": [free_address()?],
        "steer": format!("127.{octet}.41.1:8444"),
        "admin": format!("127.{octet}.41.1:9100"),
        "workers": 1,
    }))?];
    Ok(())
}

fn region(base: &Region, place: &Place, octet: u8) -> Region {
    let mut region = base.clone();
    place.name.clone_into(&mut region.name);
    region.id = u16::from(place.number);
    region.location = Some(location(place));
    region.signaling_addresses = vec![place.v4().into(), place.v6().into()];
    let own = |net: u8, host: u8| IpAddr::V4(Ipv4Addr::new(127, octet, net, host));
    for relay in &mut region.core_relays {
        relay.name = format!("{}-r1", place.name);
        relay.address = own(1, place.number);
        relay.admin.set_ip(relay.address);
    }
    let net = 10 + place.number;
    region.transceivers.cidr = ipnet::IpNet::new_assert(own(net, 0), 24);
    for node in &mut region.transceivers.nodes {
        node.name = format!("{}-t1", place.name);
        node.address = own(net, 1);
        for address in [&mut node.whip, &mut node.peer, &mut node.admin] {
            address.set_ip(own(net, 1));
        }
    }
    region
}

/// What people are shown says little here; what counts is the distance.
fn location(place: &Place) -> Location {
    Location {
        city: place.name.to_owned(),
        country: "US".to_owned(),
        latitude: place.latitude,
        longitude: place.longitude,
    }
}
