//! Identities: names that certificates carry, numbers that hints and records carry, and references by name.

use std::collections::BTreeMap;

use super::Findings;
use crate::error::Problem;
use crate::model::{Pop, Topology};

pub(super) fn check(topology: &Topology, findings: &mut Findings) {
    if !is_name(&topology.network.name) {
        not_a_name("network.name", &topology.network.name, findings);
    }
    region_names(topology, findings);
    node_names(topology, findings);
    failover_groups(topology, findings);
    ids(topology, findings);
    for (i, pop) in topology.pops.iter().enumerate() {
        regions_of(&format!("pops[{i}].regions"), pop, topology, findings);
    }
}

fn region_names(topology: &Topology, findings: &mut Findings) {
    let mut names = Names::default();
    for (i, region) in topology.regions.iter().enumerate() {
        names.take(format!("regions[{i}].name"), &region.name, findings);
    }
}

/// One name space for all kinds of node: a name is what a certificate proves.
fn node_names(topology: &Topology, findings: &mut Findings) {
    let mut names = Names::default();
    for (i, region) in topology.regions.iter().enumerate() {
        for (j, relay) in region.core_relays.iter().enumerate() {
            let field = format!("regions[{i}].core_relays[{j}].name");
            names.take(field, &relay.name, findings);
        }
        for (j, node) in region.transceivers.nodes.iter().enumerate() {
            let field = format!("regions[{i}].transceivers.nodes[{j}].name");
            names.take(field, &node.name, findings);
        }
    }
    for (i, pop) in topology.pops.iter().enumerate() {
        names.take(format!("pops[{i}].name"), &pop.name, findings);
    }
    for (i, node) in topology.geodns.iter().enumerate() {
        names.take(format!("geodns[{i}].name"), &node.name, findings);
    }
}

fn failover_groups(topology: &Topology, findings: &mut Findings) {
    let mut names = Names::default();
    for (i, group) in topology.failover_groups.iter().enumerate() {
        names.take(format!("failover_groups[{i}].name"), &group.name, findings);
    }
    for (i, pop) in topology.pops.iter().enumerate() {
        if let Some(name) = &pop.failover_group
            && !topology
                .failover_groups
                .iter()
                .any(|group| group.name == *name)
        {
            let name = name.clone();
            let field = format!("pops[{i}].failover_group");
            findings.add(field, Problem::UnknownFailoverGroup { name });
        }
    }
}

fn ids(topology: &Topology, findings: &mut Findings) {
    let regions = topology.regions.iter().map(|region| region.id);
    let pops = topology.pops.iter().map(|pop| pop.id);
    unique_ids("regions", regions, findings);
    unique_ids("pops", pops, findings);
}

fn unique_ids(list: &str, ids: impl Iterator<Item = u16>, findings: &mut Findings) {
    let mut taken = BTreeMap::new();
    for (i, id) in ids.enumerate() {
        let field = format!("{list}[{i}].id");
        if let Some(first) = taken.get(&id) {
            let first = String::clone(first);
            findings.add(field, Problem::DuplicateId { id, first });
        } else {
            taken.insert(id, field);
        }
    }
}

fn regions_of(at: &str, pop: &Pop, topology: &Topology, findings: &mut Findings) {
    let Some(names) = &pop.regions else { return };
    if names.is_empty() {
        let (found, min, max) = (0, 1, topology.regions.len());
        findings.add(at, Problem::Count { found, min, max });
    }
    for (i, name) in names.iter().enumerate() {
        let field = format!("{at}[{i}]");
        let name_again = || name.clone();
        if !topology.regions.iter().any(|region| region.name == *name) {
            findings.add(field, Problem::UnknownRegion { name: name_again() });
        } else if names.iter().take(i).any(|earlier| earlier == name) {
            findings.add(field, Problem::RegionListedTwice { name: name_again() });
        }
    }
}

/// Names taken, and by which field.
#[derive(Default)]
pub(super) struct Names<'a> {
    taken: BTreeMap<&'a str, String>,
}

impl<'a> Names<'a> {
    pub(super) fn take(&mut self, field: String, name: &'a str, findings: &mut Findings) {
        if !is_name(name) {
            not_a_name(&field, name, findings);
        } else if let Some(first) = self.taken.get(name) {
            let problem = Problem::DuplicateName {
                name: name.to_owned(),
                first: first.clone(),
            };
            findings.add(field, problem);
        } else {
            self.taken.insert(name, field);
        }
    }
}

pub(super) fn not_a_name(field: &str, name: &str, findings: &mut Findings) {
    let name = name.to_owned();
    findings.add(field, Problem::NotAName { name });
}

/// A dNSName as certificates carry it (RFC 1123 §2.1), in lower case so that equal means same.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_label)
}

pub(super) fn is_label(label: &str) -> bool {
    let characters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(characters)
        && !label.starts_with('-')
        && !label.ends_with('-')
}
