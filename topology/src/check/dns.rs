//! The DNS zone: names that DNS can carry, texts that fit, glue where it is needed.

use super::names::{is_label, is_name, not_a_name};
use super::{Findings, addresses};
use crate::dns::{Caa, Dns, NameServer};
use crate::error::Problem;
use crate::model::Topology;

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    for (i, node) in topology.geodns.iter().enumerate() {
        findings.range(format!("geodns[{i}].workers"), node.workers, 1, 64);
        let (found, min, max) = (node.dns.len(), 1, 16);
        if !(min..=max).contains(&found) {
            findings.add(
                format!("geodns[{i}].dns"),
                Problem::Count { found, min, max },
            );
        }
    }
    for (i, region) in topology.regions.iter().enumerate() {
        for (j, address) in region.signaling_addresses.iter().enumerate() {
            let field = format!("regions[{i}].signaling_addresses[{j}]");
            addresses::reachable(&field, *address, findings);
        }
    }
    match &topology.dns {
        Some(dns) => zone(dns, findings),
        None if topology.geodns.is_empty() => {}
        None => findings.add("geodns", Problem::NoZone),
    }
}

fn zone(dns: &Dns, findings: &mut Findings) {
    if !is_name(&dns.zone) {
        not_a_name("dns.zone", &dns.zone, findings);
    }
    for (field, label) in [
        ("dns.signaling", &dns.signaling),
        ("dns.ingress", &dns.ingress),
    ] {
        if !is_label(label) {
            not_a_name(field, label, findings);
        }
    }
    if dns.ingress == dns.signaling {
        let (name, first) = (dns.ingress.clone(), "dns.signaling");
        findings.add("dns.ingress", Problem::DuplicateLabel { name, first });
    }
    if !is_mailbox(&dns.hostmaster) {
        let text = dns.hostmaster.clone();
        findings.add("dns.hostmaster", Problem::NotAMailbox { text });
    }
    findings.range("dns.ttl_s", dns.ttl_s, 1, 86_400);
    findings.range("dns.static_ttl_s", dns.static_ttl_s, 1, 604_800);
    findings.range("dns.negative_ttl_s", dns.negative_ttl_s, 1, 86_400);
    findings.range("dns.answers_max", dns.answers_max, 1, 8);
    findings.range(
        "dns.rate_limit.responses_per_s",
        dns.rate_limit.responses_per_s,
        0,
        100_000,
    );
    findings.range("dns.rate_limit.slip", dns.rate_limit.slip, 0, 10);
    let (found, min, max) = (dns.nameservers.len(), 1, 13);
    if !(min..=max).contains(&found) {
        findings.add("dns.nameservers", Problem::Count { found, min, max });
    }
    for (i, server) in dns.nameservers.iter().enumerate() {
        name_server(
            &format!("dns.nameservers[{i}]"),
            server,
            &dns.zone,
            findings,
        );
    }
    for (i, address) in dns.apex.iter().enumerate() {
        addresses::reachable(&format!("dns.apex[{i}]"), *address, findings);
    }
    texts(dns, findings);
}

fn texts(dns: &Dns, findings: &mut Findings) {
    for (i, text) in dns.txt.iter().enumerate() {
        character_string(&format!("dns.txt[{i}]"), text, findings);
    }
    for (i, protocol) in dns.alpn.iter().enumerate() {
        let field = format!("dns.alpn[{i}]");
        // RFC 7301 §3.1: empty names are none, and a client refuses the whole record (RFC 9460 §7.1.1).
        if protocol.is_empty() {
            findings.add(field, Problem::NoProtocol);
        } else {
            character_string(&field, protocol, findings);
        }
    }
    for (i, Caa { tag, value, .. }) in dns.caa.iter().enumerate() {
        character_string(&format!("dns.caa[{i}].value"), value, findings);
        let is_tag =
            (1..=15).contains(&tag.len()) && tag.bytes().all(|byte| byte.is_ascii_alphanumeric());
        if !is_tag {
            let tag = tag.clone();
            findings.add(format!("dns.caa[{i}].tag"), Problem::NotACaaTag { tag });
        }
    }
}

fn name_server(at: &str, server: &NameServer, zone: &str, findings: &mut Findings) {
    if !is_name(&server.name) {
        not_a_name(&format!("{at}.name"), &server.name, findings);
    }
    for (i, address) in server.addresses.iter().enumerate() {
        addresses::reachable(&format!("{at}.addresses[{i}]"), *address, findings);
    }
    let inside = server
        .name
        .strip_suffix(zone)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let found = server.addresses.len();
    let glue = |place, expected| Problem::Glue {
        place,
        found,
        expected,
    };
    match (inside, found) {
        (true, 0) => findings.add(format!("{at}.addresses"), glue("inside", "at least one")),
        (false, 1..) => findings.add(format!("{at}.addresses"), glue("outside", "none")),
        (true, 1..) | (false, 0) => {}
    }
}

fn character_string(field: &str, text: &str, findings: &mut Findings) {
    let found = text.len();
    if found > 255 {
        findings.add(field, Problem::LongText { found });
    }
}

/// `user@host` with a user that is one DNS label after escaping its dots (RFC 1035 §8).
fn is_mailbox(text: &str) -> bool {
    let user = |user: &str| {
        (1..=63).contains(&user.len()) && user.bytes().all(|byte| byte.is_ascii_graphic())
    };
    text.split_once('@')
        .is_some_and(|(name, host)| user(name) && is_name(host))
}
