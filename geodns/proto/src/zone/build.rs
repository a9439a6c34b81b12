//! Making the zone of a topology.

use std::collections::BTreeMap;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use topology::{Dns, Topology};

use super::denial::Chain;
use super::steered::{RegionService, Service};
use super::{Kind, Node, Zone};
use crate::answer::{NodeId, SetId};
use crate::name::{Name, NameError, is_within};
use crate::record::{Endpoint, Rdata, Rrset, Type, address_sets};

/// Label in front of the steered name that explanations are asked at.
const EXPLAIN: &str = "_explain";

/// Why there is no zone of a topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// The topology has no section `dns`.
    #[error("the topology has no `dns`")]
    Missing,
    /// A name of the topology is none of DNS.
    #[error("`{text}`: {error}")]
    Name {
        /// The name, or the labels in front of another.
        text: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// Two things of the topology would have one name.
    #[error("the name {0} is wanted twice")]
    Taken(String),
    /// More names or sets than ids have bits for.
    #[error("more than 65535 names or record sets")]
    TooMany,
}

/// Names with their sets as they are found; canonical order is that of the map.
#[derive(Default)]
struct Draft {
    nodes: BTreeMap<Name, (Kind, Vec<Rrset>)>,
}

pub(super) fn zone(topology: &Topology) -> Result<Zone, ZoneError> {
    let dns = topology.dns.as_ref().ok_or(ZoneError::Missing)?;
    let apex = name(&dns.zone)?;
    let service = service(topology, dns, &apex)?;
    let mut draft = Draft::default();
    draft.apex(dns, &apex)?;
    draft.name_servers(dns, &apex)?;
    draft.signaling(dns, &service)?;
    draft.ingress(topology, dns, &apex)?;
    draft.names_between(&apex);
    draft.finish(dns, apex, service)
}

impl Draft {
    fn apex(&mut self, dns: &Dns, apex: &Name) -> Result<(), ZoneError> {
        let ttl_s = dns.static_ttl_s;
        let [a, aaaa] = address_sets(apex, ttl_s, dns.apex.iter().copied());
        let list = |rtype, rdata: Vec<Vec<u8>>| {
            (!rdata.is_empty()).then(|| Rrset::new(apex.clone(), rtype, ttl_s, rdata))
        };
        let txt = dns.txt.iter().map(|text| Rdata::txt(text)).collect();
        let caa = dns.caa.iter().map(Rdata::caa).collect();
        let sets = [
            a,
            aaaa,
            Some(soa(dns, apex, ttl_s)?),
            list(Type::NS, servers(dns)?),
            list(Type::TXT, txt),
            list(Type::CAA, caa),
        ];
        self.add(apex, Kind::Static, sets)
    }

    fn name_servers(&mut self, dns: &Dns, apex: &Name) -> Result<(), ZoneError> {
        for server in &dns.nameservers {
            let name = name(&server.name)?;
            if is_within(name.as_wire(), apex.as_wire()) {
                self.addresses(&name, dns.static_ttl_s, &server.addresses)?;
            }
        }
        Ok(())
    }

    fn signaling(&mut self, dns: &Dns, service: &Service) -> Result<(), ZoneError> {
        for region in &service.regions {
            self.addresses(&region.name, dns.static_ttl_s, &region.addresses)?;
            let https = region.https(&service.alpn, dns.static_ttl_s);
            self.add(&region.name, Kind::Static, [https])?;
        }
        if service.regions.iter().all(|r| r.addresses.is_empty()) {
            return Ok(());
        }
        self.special(&service.name, Kind::Steered)?;
        if !dns.explain_from.is_empty() {
            let name = below(&service.name, EXPLAIN)?;
            self.special(&name, Kind::Explain)?;
            // Explanations cannot be signed before they are asked for. A cut says so to whoever validates (RFC 4035 §5.2): a zone of
            // its own, at the same name servers, without a DS.
            let soa = soa(dns, &name, dns.static_ttl_s)?;
            let servers = Rrset::new(name.clone(), Type::NS, dns.static_ttl_s, servers(dns)?);
            self.add(&name, Kind::Explain, [Some(soa), Some(servers)])?;
        }
        Ok(())
    }

    fn ingress(&mut self, topology: &Topology, dns: &Dns, apex: &Name) -> Result<(), ZoneError> {
        let ingress = below(apex, &dns.ingress)?;
        for pop in &topology.pops {
            let addresses: Vec<IpAddr> = pop.ingress.iter().map(|socket| socket.ip()).collect();
            self.addresses(&below(&ingress, &pop.name)?, dns.static_ttl_s, &addresses)?;
        }
        Ok(())
    }

    fn addresses(
        &mut self,
        name: &Name,
        ttl_s: u32,
        addresses: &[IpAddr],
    ) -> Result<(), ZoneError> {
        let sets = address_sets(name, ttl_s, addresses.iter().copied());
        self.add(name, Kind::Static, sets)
    }

    /// A name whose records depend on the client; it can have no others.
    fn special(&mut self, name: &Name, kind: Kind) -> Result<(), ZoneError> {
        if self.nodes.contains_key(name) {
            return Err(ZoneError::Taken(name.to_string()));
        }
        self.nodes.insert(name.clone(), (kind, Vec::new()));
        Ok(())
    }

    /// Adds the sets there are. A type the name has already gets the records it lacks: a name server may be a region, too.
    fn add<const N: usize>(
        &mut self,
        name: &Name,
        kind: Kind,
        sets: [Option<Rrset>; N],
    ) -> Result<(), ZoneError> {
        for set in sets.into_iter().flatten() {
            let (found, list) = self
                .nodes
                .entry(name.clone())
                .or_insert_with(|| (kind, Vec::new()));
            if *found != kind {
                return Err(ZoneError::Taken(name.to_string()));
            }
            match list.iter_mut().find(|other| other.rtype == set.rtype) {
                None => list.push(set),
                Some(other) => {
                    for rdata in set.rdata {
                        if !other.rdata.contains(&rdata) {
                            other.rdata.push(rdata);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A name exists when one below it does (RFC 8020).
    fn names_between(&mut self, apex: &Name) {
        let names: Vec<Name> = self.nodes.keys().cloned().collect();
        for name in names {
            let mut at = name.parent();
            while let Some(name) = at.filter(|name| is_within(name.as_wire(), apex.as_wire())) {
                at = name.parent();
                self.nodes
                    .entry(name)
                    .or_insert_with(|| (Kind::Static, Vec::new()));
            }
        }
    }

    fn finish(self, dns: &Dns, apex: Name, service: Service) -> Result<Zone, ZoneError> {
        let mut sets = Vec::new();
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let mut index = HashMap::with_capacity_and_hasher(self.nodes.len(), FixedState::default());
        for (name, (kind, own)) in self.nodes {
            let id = u16::try_from(nodes.len()).map_err(|_| ZoneError::TooMany)?;
            index.insert(name.as_wire().into(), NodeId(id));
            let mut ids = Vec::with_capacity(own.len());
            for set in own {
                ids.push(push(&mut sets, set)?);
            }
            nodes.push(Node {
                name,
                kind,
                sets: ids,
            });
        }
        let negative_ttl_s = dns.negative_ttl_s.min(dns.static_ttl_s);
        let explain = nodes.iter().find(|node| node.kind == Kind::Explain);
        let cut = explain.map(|node| {
            let soa = soa(dns, &node.name, negative_ttl_s)?;
            Ok((node.name.clone(), push(&mut sets, soa)?))
        });
        let cut = cut.transpose()?;
        let negative = soa(dns, &apex, negative_ttl_s)?;
        let negative_soa = push(&mut sets, negative)?;
        let steered = soa(dns, &apex, dns.negative_ttl_s.min(dns.ttl_s))?;
        let steered_soa = push(&mut sets, steered)?;
        let mut zone = Zone {
            apex,
            nodes,
            index,
            sets,
            negative_soa,
            steered_soa,
            cut,
            glue: Vec::new(),
            chain: Chain::default(),
            service,
            explain_from: dns.explain_from.clone(),
        };
        zone.glue = glue(&zone, dns)?;
        Ok(zone)
    }
}

fn servers(dns: &Dns) -> Result<Vec<Vec<u8>>, ZoneError> {
    let names = dns.nameservers.iter().map(|server| name(&server.name));
    names.map(|name| Ok(Rdata::ns(&name?))).collect()
}

fn push(sets: &mut Vec<Rrset>, set: Rrset) -> Result<SetId, ZoneError> {
    let id = u16::try_from(sets.len()).map_err(|_| ZoneError::TooMany)?;
    sets.push(set);
    Ok(SetId(id))
}

fn glue(zone: &Zone, dns: &Dns) -> Result<Vec<SetId>, ZoneError> {
    let mut glue = Vec::new();
    for server in &dns.nameservers {
        let name = name(&server.name)?;
        for rtype in [Type::A, Type::AAAA] {
            let found = zone
                .sets()
                .find(|(_, set)| set.name == name && set.rtype == rtype);
            glue.extend(found.map(|(id, _)| id).filter(|id| !glue.contains(id)));
        }
    }
    Ok(glue)
}

fn service(topology: &Topology, dns: &Dns, apex: &Name) -> Result<Service, ZoneError> {
    let steered = below(apex, &dns.signaling)?;
    let mut regions = Vec::with_capacity(topology.regions.len());
    for region in &topology.regions {
        regions.push(RegionService {
            name: below(&steered, &region.name)?,
            addresses: region.signaling_addresses.clone(),
            endpoint: Endpoint::of(&region.signaling_url, &region.signaling_addresses),
        });
    }
    Ok(Service {
        name: steered,
        alpn: dns.alpn.clone(),
        ttl_s: dns.ttl_s,
        static_ttl_s: dns.static_ttl_s,
        answers_max: dns.answers_max,
        regions,
    })
}

fn soa(dns: &Dns, apex: &Name, ttl_s: u32) -> Result<Rrset, ZoneError> {
    let primary = dns
        .nameservers
        .first()
        .map_or_else(|| Ok(apex.clone()), |server| name(&server.name))?;
    let (user, host) = dns
        .hostmaster
        .split_once('@')
        .unwrap_or(("hostmaster", &dns.zone));
    // Dots of the user part are no ends of labels (RFC 1035 §8).
    let mailbox = name(host)?
        .below_labels([user.as_bytes()])
        .map_err(|error| named(&dns.hostmaster, error))?;
    let rdata = Rdata::soa(&primary, &mailbox, dns.serial, dns.negative_ttl_s);
    Ok(Rrset::new(apex.clone(), Type::SOA, ttl_s, vec![rdata]))
}

fn name(text: &str) -> Result<Name, ZoneError> {
    Name::parse(text).map_err(|error| named(text, error))
}

fn below(name: &Name, labels: &str) -> Result<Name, ZoneError> {
    name.below(labels).map_err(|error| named(labels, error))
}

fn named(text: &str, error: NameError) -> ZoneError {
    ZoneError::Name {
        text: text.to_owned(),
        error,
    }
}
