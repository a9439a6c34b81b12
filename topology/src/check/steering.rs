//! Steering: rules that name what exists, and constants that make sense together.

use super::Findings;
use super::names::Names;
use super::ranges::country;
use crate::error::Problem;
use crate::model::Topology;
use crate::steering::{Rule, Steering};

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    constants(&topology.steering, findings);
    let mut names = Names::default();
    for (i, rule) in topology.steering.rules.iter().enumerate() {
        let at = format!("steering.rules[{i}]");
        names.take(format!("{at}.name"), &rule.name, findings);
        clients(&at, rule, findings);
        effect(&at, rule, topology, findings);
    }
    for (i, net) in topology
        .network
        .signaling
        .trusted_proxies
        .iter()
        .enumerate()
    {
        cidr(
            &format!("network.signaling.trusted_proxies[{i}]"),
            *net,
            findings,
        );
    }
    for (i, net) in topology
        .dns
        .iter()
        .flat_map(|dns| &dns.explain_from)
        .enumerate()
    {
        cidr(&format!("dns.explain_from[{i}]"), *net, findings);
    }
}

fn constants(steering: &Steering, findings: &mut Findings) {
    let at = |key| format!("steering.{key}");
    findings.range(at("equal_within_ms"), steering.equal_within_ms, 0, 100);
    findings.range(at("ttl_s"), steering.ttl_s, 1, 3_600);
    findings.range(at("timeout_ms"), steering.timeout_ms, 5, 1_000);
    findings.range(
        at("database_age_max_days"),
        steering.database_age_max_days,
        1,
        3_650,
    );
    let hysteresis = &steering.hysteresis;
    findings.range(
        at("hysteresis.better_by_ms"),
        hysteresis.better_by_ms,
        0,
        1_000,
    );
    findings.range(at("hysteresis.hold_s"), hysteresis.hold_s, 0, 86_400);
    let measured = &steering.measured;
    findings.range(at("measured.samples_min"), measured.samples_min, 1, 64);
    findings.range(at("measured.age_max_s"), measured.age_max_s, 60, 604_800);
    findings.range(
        at("measured.explore_permille"),
        measured.explore_permille,
        0,
        100,
    );
    let load = &steering.load;
    findings.range(at("load.soft_percent"), load.soft_percent, 0, 100);
    findings.range(at("load.full_percent"), load.full_percent, 1, 200);
    findings.range(at("load.penalty_ms"), load.penalty_ms, 0, 1_000);
    if load.full_percent <= load.soft_percent {
        let (found, soft) = (load.full_percent, load.soft_percent);
        findings.add(
            at("load.full_percent"),
            Problem::FullBelowSoft { found, soft },
        );
    }
}

fn clients(at: &str, rule: &Rule, findings: &mut Findings) {
    if rule.cidrs.is_empty()
        && rule.asns.is_empty()
        && rule.countries.is_empty()
        && rule.continents.is_empty()
    {
        findings.add(at, Problem::RuleWithoutClients);
    }
    for (i, net) in rule.cidrs.iter().enumerate() {
        cidr(&format!("{at}.cidrs[{i}]"), *net, findings);
    }
    for (i, code) in rule.countries.iter().enumerate() {
        country(&format!("{at}.countries[{i}]"), code, findings);
    }
}

fn effect(at: &str, rule: &Rule, topology: &Topology, findings: &mut Findings) {
    if rule.regions.is_empty()
        && rule.pops.is_empty()
        && rule.avoid.is_empty()
        && rule.residency.is_none()
    {
        findings.add(at, Problem::RuleWithoutEffect);
    }
    for (i, name) in rule.regions.iter().enumerate() {
        if topology.region_named(name).is_none() {
            let name = name.clone();
            findings.add(
                format!("{at}.regions[{i}]"),
                Problem::UnknownRegion { name },
            );
        }
    }
    for (i, name) in rule.pops.iter().enumerate() {
        if topology.pop_named(name).is_none() {
            let name = name.clone();
            findings.add(format!("{at}.pops[{i}]"), Problem::UnknownPop { name });
        }
    }
    for (i, name) in rule.avoid.iter().enumerate() {
        if topology.region_named(name).is_none() && topology.pop_named(name).is_none() {
            let name = name.clone();
            findings.add(format!("{at}.avoid[{i}]"), Problem::UnknownPlace { name });
        }
    }
    if let Some(name) = &rule.residency
        && !topology
            .regions
            .iter()
            .any(|region| region.residency.as_ref() == Some(name))
    {
        let name = name.clone();
        findings.add(
            format!("{at}.residency"),
            Problem::UnknownResidency { name },
        );
    }
}

fn cidr(field: &str, cidr: ipnet::IpNet, findings: &mut Findings) {
    let network = cidr.trunc();
    if network != cidr {
        findings.add(field, Problem::CidrHostBits { cidr, network });
    }
}
