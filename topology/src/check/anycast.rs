//! Anycast: prefixes that hold the VIPs and nothing else, and sessions that BIRD can have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::addresses::{reachable, same_family};
use super::names::{Names, is_label};
use super::{Findings, own};
use crate::anycast::{Anycast, BgpSession, Community, GRACEFUL_SHUTDOWN, POP_ADDRESSES_MAX};
use crate::bird::DRAIN_MED_ADDED;
use crate::error::Problem;
use crate::model::{Pop, Topology};

/// Whoever announces more than this draws the traffic of others.
const V4_LENGTH_MIN: u8 = 8;
const V6_LENGTH_MIN: u8 = 16;

/// Entries of a list of prefixes, and sessions of a PoP.
const LIST_MAX: usize = 16;
/// Characters of a session's name: BIRD takes 64, and some are ours.
const NAME_LEN_MAX: usize = 32;
/// Entries of a list of communities.
const COMMUNITIES_MAX: usize = 32;

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    if let Some(anycast) = &topology.network.anycast {
        ranges(anycast, findings);
        // Each is compared with everything, so a list that is too long is that and nothing more.
        if counts(anycast, findings) {
            prefixes(anycast, findings);
            covers(anycast, findings);
            vips(anycast, topology, findings);
            unicast(anycast, topology, findings);
        }
    }
    let mut router_ids = BTreeMap::new();
    for (i, pop) in topology.pops.iter().enumerate() {
        let at = format!("pops[{i}]");
        if let Some(id) = pop.router_id {
            let field = format!("{at}.router_id");
            reachable(&field, id.into(), findings);
            take(&mut router_ids, field, id.into(), findings);
        }
        if !pop.bgp.is_empty() {
            sessions(&at, pop, topology, findings);
        }
    }
}

fn ranges(anycast: &Anycast, findings: &mut Findings) {
    let at = |key| format!("network.anycast.{key}");
    asn(&at("asn"), anycast.asn, findings);
    findings.range(at("min_announced"), anycast.min_announced, 1, 1_000);
    findings.range(at("up_after_s"), anycast.up_after_s, 0, 3_600);
    findings.range(at("up_after_max_s"), anycast.up_after_max_s, 0, 86_400);
    let (found, min) = (anycast.up_after_max_s, anycast.up_after_s);
    if found < min {
        findings.add(at("up_after_max_s"), Problem::UnderUpAfter { found, min });
    }
    findings.range(at("stalled_after_ms"), anycast.stalled_after_ms, 50, 60_000);
    findings.range(at("linger_s"), anycast.linger_s, 0, 3_600);
    let table = anycast.table;
    // RT_TABLE_UNSPEC; RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL.
    if matches!(table, 0 | 253..=255) {
        findings.add(at("table"), Problem::KernelTable { table });
    }
    findings.range(at("hold_s"), anycast.hold_s, 3, 240);
    findings.range(at("bfd.interval_ms"), anycast.bfd.interval_ms, 10, 5_000);
    findings.range(at("bfd.multiplier"), anycast.bfd.multiplier, 2, 50);
    findings.range(at("drain_prepend"), anycast.drain_prepend, 0, 10);
}

/// Whether neither list is too long.
fn counts(anycast: &Anycast, findings: &mut Findings) -> bool {
    let at = |key| format!("network.anycast.{key}");
    let (prefixes, covers) = (anycast.prefixes.len(), anycast.cover.len());
    count(&at("prefixes"), prefixes, 1..=LIST_MAX, findings);
    count(&at("cover"), covers, 0..=LIST_MAX, findings);
    prefixes.max(covers) <= LIST_MAX
}

fn prefixes(anycast: &Anycast, findings: &mut Findings) {
    let at = "network.anycast.prefixes";
    for (i, prefix) in anycast.prefixes.iter().copied().enumerate() {
        let field = format!("{at}[{i}]");
        announceable(&field, prefix, findings);
        let mut earlier = anycast.prefixes.iter().copied().take(i).enumerate();
        if let Some((j, other)) = earlier.find(|(_, other)| overlap(prefix, *other)) {
            let first = format!("{at}[{j}]");
            let problem = Problem::PrefixOverlap {
                prefix,
                other,
                first,
            };
            findings.add(field, problem);
        }
    }
}

fn covers(anycast: &Anycast, findings: &mut Findings) {
    let at = "network.anycast.cover";
    for (i, cover) in anycast.cover.iter().copied().enumerate() {
        let field = format!("{at}[{i}]");
        announceable(&field, cover, findings);
        let around = |prefix: &IpNet| cover.contains(prefix) && cover != *prefix;
        if !anycast.prefixes.iter().any(around) {
            findings.add(&field, Problem::CoverOfNothing { cover });
        }
        let mut earlier = anycast.cover.iter().take(i);
        if let Some(j) = earlier.position(|other| *other == cover) {
            let problem = Problem::PrefixOverlap {
                prefix: cover,
                other: cover,
                first: format!("{at}[{j}]"),
            };
            findings.add(field, problem);
        }
    }
}

/// Each VIP in a prefix, each prefix with a VIP.
fn vips(anycast: &Anycast, topology: &Topology, findings: &mut Findings) {
    let vips = || topology.network.vips.iter().map(|vip| vip.ip());
    for (i, address) in vips().enumerate() {
        let mut prefixes = anycast.prefixes.iter();
        if !prefixes.any(|prefix| prefix.contains(&address)) {
            findings.add(
                format!("network.vips[{i}]"),
                Problem::VipNotAnnounced { address },
            );
        }
    }
    for (i, prefix) in anycast.prefixes.iter().copied().enumerate() {
        if !vips().any(|vip| prefix.contains(&vip)) {
            findings.add(
                format!("network.anycast.prefixes[{i}]"),
                Problem::PrefixWithoutVip { prefix },
            );
        }
    }
}

/// What one node alone has must not be announced by all.
fn unicast(anycast: &Anycast, topology: &Topology, findings: &mut Findings) {
    let vips: Vec<IpAddr> = topology.network.vips.iter().map(|vip| vip.ip()).collect();
    let mut services = own::of_services(topology);
    services.retain(|(_, address)| !vips.contains(&address.to_canonical()));
    let mut own = own::of_nodes(topology);
    own.extend(services);
    for (i, prefix) in anycast.prefixes.iter().copied().enumerate() {
        let field = format!("network.anycast.prefixes[{i}]");
        for (other_field, address) in own.iter().cloned() {
            if prefix.contains(&address.to_canonical()) {
                let problem = Problem::UnicastAnnounced {
                    address,
                    other_field,
                    prefix,
                };
                findings.add(&field, problem);
            }
        }
        for region in &topology.regions {
            let other = region.transceivers.cidr;
            if overlap(prefix, other) {
                let problem = Problem::CidrOverlap {
                    cidr: prefix,
                    other,
                    region: region.name.clone(),
                };
                findings.add(&field, problem);
            }
        }
    }
}

fn sessions(at: &str, pop: &Pop, topology: &Topology, findings: &mut Findings) {
    let field = format!("{at}.bgp");
    count(&field, pop.bgp.len(), 0..=LIST_MAX, findings);
    if pop.bgp_id().is_none() {
        findings.add(format!("{at}.router_id"), Problem::NoRouterId);
    }
    let anycast = topology.network.anycast.as_ref();
    if anycast.is_none() {
        findings.add(&field, Problem::NoAnycast);
    }
    let (ingress, vips) = (pop.ingress.len(), topology.network.vips.len());
    if anycast.is_some() && ingress <= POP_ADDRESSES_MAX && ingress + vips > POP_ADDRESSES_MAX {
        let max = POP_ADDRESSES_MAX;
        let problem = Problem::AddressesAndVips { ingress, vips, max };
        findings.add(format!("{at}.ingress"), problem);
    }
    let (mut names, mut neighbours) = (Names::default(), BTreeMap::new());
    for (j, of) in pop.bgp.iter().enumerate() {
        let at = format!("{field}[{j}]");
        if is_label(&of.name) && of.name.len() <= NAME_LEN_MAX {
            names.take(format!("{at}.name"), &of.name, findings);
        } else {
            let name = of.name.clone();
            findings.add(format!("{at}.name"), Problem::NotASessionName { name });
        }
        ends(&at, of, &mut neighbours, findings);
        session(&at, of, findings);
        if let Some(anycast) = anycast {
            announces(&at, of, anycast, findings);
        }
    }
}

fn ends(
    at: &str,
    session: &BgpSession,
    neighbours: &mut BTreeMap<IpAddr, String>,
    findings: &mut Findings,
) {
    let (address, local) = (format!("{at}.address"), format!("{at}.local"));
    reachable(&local, session.local, findings);
    reachable(&address, session.address, findings);
    same_family(
        &address,
        session.address,
        session.local,
        || local.clone(),
        findings,
    );
    if session.address == session.local {
        let problem = Problem::DuplicateAddress {
            address: session.address,
            first: local,
        };
        findings.add(address, problem);
    } else {
        take(neighbours, address, session.address, findings);
    }
}

fn session(at: &str, session: &BgpSession, findings: &mut Findings) {
    asn(&format!("{at}.asn"), session.asn, findings);
    if let Some(hops) = session.multihop {
        findings.range(format!("{at}.multihop"), hops, 2, 255);
    }
    findings.range(
        format!("{at}.max_prefixes"),
        session.max_prefixes,
        1,
        100_000,
    );
    findings.range(format!("{at}.prepend"), session.prepend, 0, 10);
    if let Some(med) = session.med {
        // A drain makes it higher.
        let max = u32::MAX - DRAIN_MED_ADDED;
        findings.range(format!("{at}.med"), med, 0, max.into());
    }
    communities(&format!("{at}.communities"), &session.communities, findings);
    let field = format!("{at}.drain_communities");
    count(
        &field,
        session.drain_communities.len(),
        0..=COMMUNITIES_MAX,
        findings,
    );
    if let Some(path) = &session.password_file
        && !is_file_path(path)
    {
        findings.add(format!("{at}.password_file"), Problem::NotAFilePath);
    }
}

fn communities(at: &str, communities: &[Community], findings: &mut Findings) {
    count(at, communities.len(), 0..=COMMUNITIES_MAX, findings);
    for (i, community) in communities.iter().enumerate() {
        if *community == GRACEFUL_SHUTDOWN {
            findings.add(format!("{at}[{i}]"), Problem::AlwaysDraining);
        }
    }
}

/// Whether the session has something to say, to somebody else.
fn announces(at: &str, session: &BgpSession, anycast: &Anycast, findings: &mut Findings) {
    let asn = session.asn;
    if asn == anycast.asn {
        findings.add(format!("{at}.asn"), Problem::OwnAsn { asn });
    }
    let v4 = session.address.is_ipv4();
    let mut prefixes = anycast.prefixes.iter();
    if !prefixes.any(|prefix| prefix.addr().is_ipv4() == v4) {
        let family = if v4 { "IPv4" } else { "IPv6" };
        findings.add(at, Problem::NothingToAnnounce { family });
    }
}

/// Numbers that name no network: 0 (RFC 7607), AS_TRANS (RFC 6793), the last ones (RFC 7300).
fn asn(field: &str, asn: u32, findings: &mut Findings) {
    if matches!(asn, 0 | 23_456 | 65_535 | u32::MAX) {
        findings.add(field, Problem::ReservedAsn { asn });
    }
}

fn announceable(field: &str, prefix: IpNet, findings: &mut Findings) {
    let network = prefix.trunc();
    if network != prefix {
        let cidr = prefix;
        findings.add(field, Problem::CidrHostBits { cidr, network });
    }
    let min = match prefix {
        IpNet::V4(_) => V4_LENGTH_MIN,
        IpNet::V6(_) => V6_LENGTH_MIN,
    };
    if prefix.prefix_len() < min {
        findings.add(field, Problem::PrefixTooShort { prefix, min });
    }
}

fn overlap(a: IpNet, b: IpNet) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

fn count(
    field: &str,
    found: usize,
    allowed: std::ops::RangeInclusive<usize>,
    findings: &mut Findings,
) {
    if !allowed.contains(&found) {
        let (min, max) = allowed.into_inner();
        findings.add(field, Problem::Count { found, min, max });
    }
}

fn take(
    taken: &mut BTreeMap<IpAddr, String>,
    field: String,
    address: IpAddr,
    findings: &mut Findings,
) {
    if let Some(first) = taken.get(&address) {
        let first = first.clone();
        findings.add(field, Problem::DuplicateAddress { address, first });
    } else {
        taken.insert(address, field);
    }
}

/// A path that means itself inside quotes of bird.conf, where `include` takes patterns.
fn is_file_path(path: &str) -> bool {
    let characters = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    path.len() <= 255
        && path.starts_with('/')
        && !path.ends_with('/')
        && path.bytes().all(characters)
}
