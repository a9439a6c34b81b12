//! Addresses: reachable at all, inside their CIDR, of one family with whom they talk to, and nobody else's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Findings, own};
use crate::error::Problem;
use crate::model::{CoreRelay, Pop, Region, Topology, TransceiverCluster};

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    for (i, region) in topology.regions.iter().enumerate() {
        let at = format!("regions[{i}]");
        cidr(&at, topology.regions.iter().take(i), region, findings);
        transceivers(
            &format!("{at}.transceivers"),
            &region.transceivers,
            findings,
        );
        for (j, relay) in region.core_relays.iter().enumerate() {
            core_relay(
                &format!("{at}.core_relays[{j}]"),
                &at,
                relay,
                region,
                findings,
            );
        }
    }
    for (i, pop) in topology.pops.iter().enumerate() {
        ingress(&format!("pops[{i}].ingress"), pop, topology, findings);
        backbone(&format!("pops[{i}].backbone"), pop, topology, findings);
    }
    vips(topology, findings);
}

fn cidr<'a>(
    at: &str,
    earlier: impl Iterator<Item = &'a Region>,
    region: &Region,
    findings: &mut Findings,
) {
    let field = format!("{at}.transceivers.cidr");
    let cidr = region.transceivers.cidr;
    if cidr.trunc() != cidr {
        let network = cidr.trunc();
        findings.add(&field, Problem::CidrHostBits { cidr, network });
    }
    for other_region in earlier {
        let other = other_region.transceivers.cidr;
        if other.contains(&cidr.network()) || cidr.contains(&other.network()) {
            let region = other_region.name.clone();
            let problem = Problem::CidrOverlap {
                cidr,
                other,
                region,
            };
            findings.add(&field, problem);
        }
    }
}

fn transceivers(at: &str, cluster: &TransceiverCluster, findings: &mut Findings) {
    let mut taken = BTreeMap::new();
    for (i, node) in cluster.nodes.iter().enumerate() {
        let field = format!("{at}.nodes[{i}].address");
        reachable(&field, node.address, findings);
        if let Some(problem) = outside(node.address, cluster) {
            findings.add(&field, problem);
        }
        let (address, first) = (node.address, taken.get(&node.address));
        if let Some(first) = first {
            let first = String::clone(first);
            findings.add(field, Problem::DuplicateAddress { address, first });
        } else {
            taken.insert(address, field);
        }
    }
}

/// Why the cluster has no transceiver id for `address`, if so.
fn outside(address: IpAddr, cluster: &TransceiverCluster) -> Option<Problem> {
    let cidr = cluster.cidr;
    if !cidr.contains(&address) {
        Some(Problem::OutsideCidr { address, cidr })
    } else if address == cidr.network() {
        Some(Problem::NetworkAddress { address, cidr })
    } else if matches!(cidr, IpNet::V4(_)) && address == cidr.broadcast() {
        Some(Problem::BroadcastAddress { address, cidr })
    } else if cluster.id_of(address).is_none() {
        Some(Problem::BeyondHint { address, cidr })
    } else {
        None
    }
}

fn core_relay(
    at: &str,
    region_at: &str,
    relay: &CoreRelay,
    region: &Region,
    findings: &mut Findings,
) {
    let field = format!("{at}.address");
    reachable(&field, relay.address, findings);
    let cidr = region.transceivers.cidr.network();
    let other_field = || format!("{region_at}.transceivers.cidr");
    same_family(&field, relay.address, cidr, other_field, findings);
}

fn ingress(at: &str, pop: &Pop, topology: &Topology, findings: &mut Findings) {
    for (i, socket) in pop.ingress.iter().enumerate() {
        let (field, address) = (format!("{at}[{i}]"), socket.ip());
        reachable(&field, address, findings);
        inside_cidr(&field, address, topology, findings);
    }
}

/// Links leave from `backbone`, which may be unspecified but has a family all the same.
fn backbone(field: &str, pop: &Pop, topology: &Topology, findings: &mut Findings) {
    if !pop.backbone.is_unspecified() {
        reachable(field, pop.backbone, findings);
    }
    for (i, region) in topology.regions.iter().enumerate() {
        let linked = match &pop.regions {
            Some(names) => names.contains(&region.name),
            None => true,
        };
        if !linked {
            continue;
        }
        for (j, relay) in region.core_relays.iter().enumerate() {
            let other_field = || format!("regions[{i}].core_relays[{j}].address");
            same_family(field, pop.backbone, relay.address, other_field, findings);
        }
    }
}

fn vips(topology: &Topology, findings: &mut Findings) {
    let mut owners = BTreeMap::new();
    for (field, ip) in own::of_nodes(topology) {
        owners.entry(ip).or_insert(field);
    }
    for (i, vip) in topology.network.vips.iter().enumerate() {
        let (field, address) = (format!("network.vips[{i}]"), vip.ip());
        reachable(&field, address, findings);
        inside_cidr(&field, address, topology, findings);
        if let Some(first) = owners.get(&address) {
            let first = first.clone();
            findings.add(&field, Problem::VipClash { address, first });
        }
    }
}

/// Core relays send records to any address of a transceiver CIDR, so nothing that clients reach may be in one.
fn inside_cidr(field: &str, address: IpAddr, topology: &Topology, findings: &mut Findings) {
    let mut regions = topology.regions.iter();
    if let Some(region) = regions.find(|region| region.transceivers.cidr.contains(&address)) {
        let problem = Problem::InsideCidr {
            address,
            cidr: region.transceivers.cidr,
            region: region.name.clone(),
        };
        findings.add(field, problem);
    }
}

pub(super) fn same_family(
    field: &str,
    address: IpAddr,
    other: IpAddr,
    other_field: impl FnOnce() -> String,
    findings: &mut Findings,
) {
    if address.is_ipv4() != other.is_ipv4() {
        let problem = Problem::FamilyMismatch {
            address,
            other,
            other_field: other_field(),
        };
        findings.add(field, problem);
    }
}

pub(super) fn reachable(field: &str, address: IpAddr, findings: &mut Findings) {
    let kind = match address {
        _ if address.is_unspecified() => "unspecified",
        _ if address.is_multicast() => "multicast",
        IpAddr::V4(ip) if ip.is_broadcast() => "broadcast",
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => "IPv4-mapped (write it as IPv4)",
        IpAddr::V6(ip) if ip.is_unicast_link_local() => "link-local",
        IpAddr::V4(_) | IpAddr::V6(_) => return,
    };
    findings.add(field, Problem::Unreachable { address, kind });
}
