//! Sockets: every port real, every UDP and TCP socket of the network bound by one node only, but for an ingress that moves
//! between the PoPs of a failover group.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::{Findings, addresses};
use crate::dns::GeoDns;
use crate::error::Problem;
use crate::model::{CoreRelay, Topology, Transceiver};

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    let mut taken = Taken::default();
    for (i, region) in topology.regions.iter().enumerate() {
        for (j, relay) in region.core_relays.iter().enumerate() {
            let at = format!("regions[{i}].core_relays[{j}]");
            core_relay(&at, relay, &mut taken, findings);
        }
        let at = format!("regions[{i}].transceivers");
        let port = region.transceivers.port;
        not_zero(&format!("{at}.port"), port, findings);
        for (j, node) in region.transceivers.nodes.iter().enumerate() {
            let at = format!("{at}.nodes[{j}]");
            // Two nodes of one address are reported as such.
            let socket = SocketAddr::new(node.address, port);
            let field = format!("{at}.address");
            taken.udp.entry(socket).or_insert(field);
            transceiver(&at, node, &mut taken, findings);
        }
    }
    for (i, pop) in topology.pops.iter().enumerate() {
        for (j, socket) in pop.ingress.iter().enumerate() {
            let field = format!("pops[{i}].ingress[{j}]");
            not_zero(&field, socket.port(), findings);
            if !moves_to(topology, (i, j), *socket) {
                take(&mut taken.udp, field, *socket, findings);
            }
        }
        admin(&format!("pops[{i}]"), pop.admin, findings);
    }
    for (i, node) in topology.geodns.iter().enumerate() {
        geodns(&format!("geodns[{i}]"), node, &mut taken, findings);
    }
    let mut vips = BTreeMap::new();
    for (i, vip) in topology.network.vips.iter().enumerate() {
        let field = format!("network.vips[{i}]");
        not_zero(&field, vip.port(), findings);
        take(&mut vips, field, *vip, findings);
    }
}

/// Whether this ingress of a PoP is one that moves to it from an earlier PoP of its failover group.
fn moves_to(topology: &Topology, (pop, ingress): (usize, usize), socket: SocketAddr) -> bool {
    let Some(own) = topology.pops.get(pop) else {
        return false;
    };
    let has_it_already = own.ingress.iter().take(ingress).any(|had| *had == socket);
    let mut earlier = topology.pops.iter().take(pop);
    !has_it_already
        && own.failover_group.is_some()
        && earlier.any(|other| {
            other.failover_group == own.failover_group && other.ingress.contains(&socket)
        })
}

/// Sockets taken, and by which field.
#[derive(Default)]
struct Taken {
    udp: BTreeMap<SocketAddr, String>,
    tcp: BTreeMap<SocketAddr, String>,
}

fn core_relay(at: &str, relay: &CoreRelay, taken: &mut Taken, findings: &mut Findings) {
    for (key, port) in [
        ("link_port", relay.link_port),
        ("record_port", relay.record_port),
    ] {
        let field = format!("{at}.{key}");
        not_zero(&field, port, findings);
        ports(&field, relay.address, port, relay.workers, taken, findings);
    }
    admin(at, relay.admin, findings);
}

/// One port per worker, from `first` on. Only the first clash of the list is reported.
fn ports(
    field: &str,
    address: IpAddr,
    first: u16,
    workers: u8,
    taken: &mut Taken,
    findings: &mut Findings,
) {
    let mut clash = false;
    for worker in 0..u16::from(workers) {
        let Some(port) = first.checked_add(worker) else {
            return findings.add(field, Problem::PortsOverflow { first, workers });
        };
        let socket = SocketAddr::new(address, port);
        if !clash {
            clash = !take(&mut taken.udp, field.to_owned(), socket, findings);
        }
    }
}

fn transceiver(at: &str, node: &Transceiver, taken: &mut Taken, findings: &mut Findings) {
    let (whip, peer) = (format!("{at}.whip"), format!("{at}.peer"));
    not_zero(&whip, node.whip.port(), findings);
    not_zero(&peer, node.peer.port(), findings);
    admin(at, node.admin, findings);
    addresses::reachable(&peer, node.peer.ip(), findings);

    // On loopback or all addresses behind a balancer of its own machine, a WHIP address is nobody else's business.
    let whip_is_local = node.whip.ip().is_unspecified() || node.whip.ip().is_loopback();
    if !whip_is_local || node.whip == node.peer {
        take(&mut taken.tcp, whip, node.whip, findings);
    }
    take(&mut taken.tcp, peer, node.peer, findings);
    for (key, other) in [("whip", node.whip), ("peer", node.peer)] {
        if node.admin == other {
            let (socket, first) = (other, format!("{at}.{key}"));
            findings.add(
                format!("{at}.admin"),
                Problem::DuplicateSocket { socket, first },
            );
        }
    }
}

fn geodns(at: &str, node: &GeoDns, taken: &mut Taken, findings: &mut Findings) {
    for (key, sockets) in [("dns", &node.dns), ("dot", &node.dot), ("doh", &node.doh)] {
        for (i, socket) in sockets.iter().enumerate() {
            let field = format!("{at}.{key}[{i}]");
            not_zero(&field, socket.port(), findings);
            addresses::reachable(&field, socket.ip(), findings);
            if key == "dns" {
                take(&mut taken.udp, field.clone(), *socket, findings);
            }
            take(&mut taken.tcp, field, *socket, findings);
        }
    }
    let field = format!("{at}.steer");
    not_zero(&field, node.steer.port(), findings);
    addresses::reachable(&field, node.steer.ip(), findings);
    take(&mut taken.tcp, field, node.steer, findings);
    admin(at, node.admin, findings);
}

/// Whether `socket` was free.
fn take(
    taken: &mut BTreeMap<SocketAddr, String>,
    field: String,
    socket: SocketAddr,
    findings: &mut Findings,
) -> bool {
    if let Some(first) = taken.get(&socket) {
        let first = first.clone();
        findings.add(field, Problem::DuplicateSocket { socket, first });
        return false;
    }
    taken.insert(socket, field);
    true
}

fn admin(at: &str, address: SocketAddr, findings: &mut Findings) {
    let field = format!("{at}.admin");
    not_zero(&field, address.port(), findings);
    if !address.ip().is_loopback() {
        findings.add(field, Problem::NotLoopback { address });
    }
}

fn not_zero(field: &str, port: u16, findings: &mut Findings) {
    if port == 0 {
        findings.add(field, Problem::PortZero);
    }
}
