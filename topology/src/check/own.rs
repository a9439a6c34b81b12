//! Addresses that the file gives to one node, or to a server that one machine is, with the field that says so: everything
//! that has an address but the VIPs. Ranges that clients come from are none.

use std::net::IpAddr;

use crate::dns::GeoDns;
use crate::failover::RedisUrl;
use crate::model::{Pop, Region, Topology};

/// An address, and the field that has it.
pub(super) type Own = (String, IpAddr);

/// Addresses that one node alone has, so that no VIP can be one of them.
pub(super) fn of_nodes(topology: &Topology) -> Vec<Own> {
    let mut own = Vec::new();
    for (i, of) in topology.regions.iter().enumerate() {
        region(&format!("regions[{i}]"), of, &mut own);
    }
    for (i, of) in topology.pops.iter().enumerate() {
        pop(&format!("pops[{i}]"), of, &mut own);
    }
    for (i, of) in topology.geodns.iter().enumerate() {
        own.push((format!("geodns[{i}].steer"), of.steer.ip()));
        own.push((format!("geodns[{i}].admin"), of.admin.ip()));
    }
    for (i, group) in topology.failover_groups.iter().enumerate() {
        redis(
            &format!("failover_groups[{i}].redis"),
            &group.redis,
            &mut own,
        );
    }
    if let Some(state) = &topology.network.state {
        redis("network.state.redis", &state.redis, &mut own);
    }
    own
}

/// Addresses of names: a VIP may be one, when every PoP has a server of them. Any other address of a prefix has nobody who answers.
pub(super) fn of_services(topology: &Topology) -> Vec<Own> {
    let mut own = Vec::new();
    for (i, of) in topology.geodns.iter().enumerate() {
        listeners(&format!("geodns[{i}]"), of, &mut own);
    }
    let Some(dns) = &topology.dns else { return own };
    for (i, server) in dns.nameservers.iter().enumerate() {
        list(
            &format!("dns.nameservers[{i}].addresses"),
            &server.addresses,
            &mut own,
        );
    }
    list("dns.apex", &dns.apex, &mut own);
    own
}

fn region(at: &str, region: &Region, own: &mut Vec<Own>) {
    own.extend(host_of(&region.signaling_url).map(|ip| (format!("{at}.signaling_url"), ip)));
    list(
        &format!("{at}.signaling_addresses"),
        &region.signaling_addresses,
        own,
    );
    for (j, relay) in region.core_relays.iter().enumerate() {
        let at = format!("{at}.core_relays[{j}]");
        own.push((format!("{at}.address"), relay.address));
        own.push((format!("{at}.admin"), relay.admin.ip()));
    }
    for (j, node) in region.transceivers.nodes.iter().enumerate() {
        let at = format!("{at}.transceivers.nodes[{j}]");
        own.push((format!("{at}.address"), node.address));
        own.push((format!("{at}.whip"), node.whip.ip()));
        own.push((format!("{at}.peer"), node.peer.ip()));
        own.push((format!("{at}.admin"), node.admin.ip()));
    }
}

fn pop(at: &str, pop: &Pop, own: &mut Vec<Own>) {
    for (j, socket) in pop.ingress.iter().enumerate() {
        own.push((format!("{at}.ingress[{j}]"), socket.ip()));
    }
    own.push((format!("{at}.backbone"), pop.backbone));
    own.push((format!("{at}.admin"), pop.admin.ip()));
    for (j, session) in pop.bgp.iter().enumerate() {
        own.push((format!("{at}.bgp[{j}].address"), session.address));
        own.push((format!("{at}.bgp[{j}].local"), session.local));
    }
}

fn listeners(at: &str, node: &GeoDns, own: &mut Vec<Own>) {
    for (key, sockets) in [("dns", &node.dns), ("dot", &node.dot), ("doh", &node.doh)] {
        for (j, socket) in sockets.iter().enumerate() {
            own.push((format!("{at}.{key}[{j}]"), socket.ip()));
        }
    }
}

fn list(field: &str, addresses: &[IpAddr], own: &mut Vec<Own>) {
    for (i, address) in addresses.iter().enumerate() {
        own.push((format!("{field}[{i}]"), *address));
    }
}

/// Those that are addresses: what a name means, the file does not say.
fn redis(field: &str, servers: &[RedisUrl], own: &mut Vec<Own>) {
    for (i, server) in servers.iter().enumerate() {
        let address = server.host.parse();
        own.extend(address.ok().map(|ip| (format!("{field}[{i}]"), ip)));
    }
}

/// The host of an `http` URL, if it is an address.
fn host_of(url: &str) -> Option<IpAddr> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0.parse().ok(),
        None => host.split(':').next()?.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_addresses() {
        for (url, host) in [
            ("http://192.0.2.55/whip", Some("192.0.2.55")),
            ("https://u:p@192.0.2.55:8443?x", Some("192.0.2.55")),
            ("https://[2001:db8::1]:8443/whip", Some("2001:db8::1")),
            ("https://[2001:db8::1", None),
            ("https://eu.example/192.0.2.55", None),
            ("192.0.2.55", None),
        ] {
            let host = host.map(|host| host.parse().unwrap());
            assert_eq!(host_of(url), host, "{url}");
        }
    }
}
