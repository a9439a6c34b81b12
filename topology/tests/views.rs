//! What programs ask of a topology, answered for the local sample.

#![cfg(test)]

use topology::{NodeRole, Topology, load};
use wire::{Owner, RegionId, TransceiverId};

fn local() -> Topology {
    load(include_str!("../samples/local.yaml"), "local.yaml").unwrap()
}

fn world() -> Topology {
    load(include_str!("../samples/world.yaml"), "world.yaml").unwrap()
}

#[test]
fn a_name_has_one_role() {
    let topology = local();
    let role = |name| match topology.node_role(name) {
        Some(NodeRole::Pop(pop)) => format!("pop {}", pop.id),
        Some(NodeRole::CoreRelay(region, relay)) => format!("{} {}", region.name, relay.address),
        Some(NodeRole::Transceiver(region, node)) => format!("{} {}", region.name, node.address),
        Some(NodeRole::GeoDns(node)) => format!("geodns {}", node.steer),
        None => "none".to_owned(),
    };
    assert_eq!(role("sin"), "pop 3");
    assert_eq!(role("us-r2"), "us 127.0.2.2");
    assert_eq!(role("eu-t2"), "eu 127.0.11.2");
    assert_eq!(role("eu"), "none");
}

#[test]
fn a_pop_prefers_its_regions_and_a_region_has_its_pops_in_topology_order() {
    let topology = world();
    let names = |pop: &str| {
        let regions = topology.regions_of_pop(topology.pop_named(pop).unwrap());
        regions
            .iter()
            .map(|region| region.name.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("syd"), ["ap", "us-west"]);
    assert_eq!(names("sin"), ["ap", "eu", "us-west"]);
    let ap = topology.region_named("ap").unwrap();
    let pops: Vec<_> = topology
        .pops_of_region(ap)
        .map(|pop| pop.name.as_str())
        .collect();
    assert_eq!(pops, ["ams", "lhr", "lax", "nrt", "sin", "syd"]);

    let mut all = local();
    all.pops[0].regions = None;
    assert_eq!(all.regions_of_pop(&all.pops[0]).len(), 2);
    assert_eq!(all.pops_of_region(&all.regions[1]).count(), 3);
}

#[test]
fn own_addresses_spare_clients_on_the_same_machine() {
    let own = local().own_addresses();
    for (source, is_own) in [
        ("127.0.31.1:3478", true),
        ("127.0.31.1:3479", false),
        ("127.0.1.2:7443", true),
        ("127.0.1.2:40000", true),
        ("127.0.12.1:5000", true),
        ("[::ffff:127.0.12.1]:5000", true),
        ("127.0.12.2:5000", false),
        ("127.0.0.1:50000", false),
        ("[::1]:3478", false),
    ] {
        assert_eq!(own.contains(source.parse().unwrap()), is_own, "{source}");
    }
    assert!(
        world()
            .own_addresses()
            .contains("[2001:db8:100::100]:3478".parse().unwrap())
    );
}

#[test]
fn a_hint_names_the_transceiver_at_its_offset() {
    let topology = local();
    let owner = |region, transceiver| {
        let owner = Owner {
            region: RegionId(region),
            transceiver: TransceiverId(transceiver),
        };
        topology.owner(owner).map(|node| node.name.as_str())
    };
    assert_eq!(owner(1, 2), Some("eu-t2"));
    assert_eq!(owner(1, 3), None, "inside the CIDR, not listed");
    assert_eq!(owner(3, 1), None);

    let eu = &topology.regions[0];
    let address = |id| {
        eu.transceiver_addr(TransceiverId(id))
            .map(|addr| addr.to_string())
    };
    assert_eq!(address(254).as_deref(), Some("127.0.11.254:5000"));
    assert_eq!(address(0), None, "the network address");
    assert_eq!(address(255), None, "the broadcast address");
    assert_eq!(address(256), None, "outside");
    assert_eq!(address(u32::MAX), None);
    for node in &eu.transceivers.nodes {
        let id = eu.transceivers.id_of(node.address).unwrap();
        assert_eq!(eu.transceiver_addr(id).unwrap().ip(), node.address);
    }
}

#[test]
fn yaml_survives_a_round_trip() {
    for topology in [local(), world()] {
        let yaml = topology::to_yaml(&topology).unwrap();
        assert_eq!(load(&yaml, "again.yaml").unwrap(), topology);
    }
}
