//! Records of the steered name for one selection: regions in order, best first.
//!
//! One region answers from the name itself. Several answer with all their addresses, and with one HTTPS record each, whose
//! priority is the order and whose target is the region's own name: of addresses a client may take any, of service bindings it
//! takes the best that works (RFC 9460 §3).

use std::net::IpAddr;

use crate::name::Name;
use crate::record::{Endpoint, Rrset, Type, address_sets};
use crate::zone::Zone;

/// Records of the steered name for one selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steered {
    /// IPv4 addresses.
    pub a: Option<Rrset>,
    /// IPv6 addresses.
    pub aaaa: Option<Rrset>,
    /// Service bindings.
    pub https: Option<Rrset>,
    /// In a signed zone, the proof of which of these types the selection has.
    pub nsec: Option<Rrset>,
}

/// Signaling of the regions, as the steered name's records are made from it.
#[derive(Clone, Debug)]
pub(super) struct Service {
    /// The steered name.
    pub(super) name: Name,
    /// Protocols of HTTPS records; none: no such records.
    pub(super) alpn: Vec<String>,
    /// TTL of what depends on the client.
    pub(super) ttl_s: u32,
    /// TTL of what does not.
    pub(super) static_ttl_s: u32,
    pub(super) answers_max: u8,
    /// In the order of the topology.
    pub(super) regions: Vec<RegionService>,
}

/// Signaling of one region.
#[derive(Clone, Debug)]
pub(super) struct RegionService {
    /// The region's own name.
    pub(super) name: Name,
    pub(super) addresses: Vec<IpAddr>,
    /// `None`: it is not HTTPS.
    pub(super) endpoint: Option<Endpoint>,
}

impl Zone {
    /// What of a ranking of regions (positions in the topology, best first) an answer carries: the first `dns.answers_max` that
    /// have addresses, then the first with a family of addresses that those lack. Rankings with equal ones have equal answers.
    #[must_use]
    pub fn answered(&self, ranking: impl IntoIterator<Item = u16>) -> Vec<u16> {
        let most = usize::from(self.service.answers_max);
        let mut regions = Vec::new();
        let mut families = Families::default();
        for region in ranking {
            let Some(service) = self.service.region(region) else {
                continue;
            };
            let adds = families.lacks_one_of(&service.addresses);
            let has_place = regions.len() < most && !service.addresses.is_empty();
            if (has_place || adds) && !regions.contains(&region) {
                families.add(&service.addresses);
                regions.push(region);
            }
        }
        regions
    }

    /// The records of the steered name for a ranking, cut as [`Zone::answered`] does; unsigned. Beyond `dns.answers_max`, a region
    /// gives addresses of the family that is missing alone.
    #[must_use]
    pub fn steered(&self, ranking: impl IntoIterator<Item = u16>) -> Steered {
        let answered = self.answered(ranking);
        let regions: Vec<&RegionService> = answered
            .iter()
            .filter_map(|region| self.service.region(*region))
            .collect();
        let service = &self.service;
        let most = usize::from(service.answers_max);
        let mut families = Families::default();
        let mut addresses = Vec::new();
        for (at, region) in regions.iter().enumerate() {
            let missing = |address: &&IpAddr| at < most || families.lacks(address);
            addresses.extend(region.addresses.iter().filter(missing).copied());
            families.add(&region.addresses);
        }
        let [a, aaaa] = address_sets(&service.name, service.ttl_s, addresses);
        Steered {
            a,
            aaaa,
            https: service.https(&regions),
            nsec: None,
        }
    }
}

/// Which families of addresses there are.
#[derive(Clone, Copy, Default)]
struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn lacks(self, address: &IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(_) => !self.v4,
            IpAddr::V6(_) => !self.v6,
        }
    }

    fn lacks_one_of(self, addresses: &[IpAddr]) -> bool {
        addresses.iter().any(|address| self.lacks(address))
    }

    fn add(&mut self, addresses: &[IpAddr]) {
        for address in addresses {
            match address.to_canonical() {
                IpAddr::V4(_) => self.v4 = true,
                IpAddr::V6(_) => self.v6 = true,
            }
        }
    }
}

impl Steered {
    /// The first set there is: what a question for any type is answered with.
    #[must_use]
    pub fn first(&self) -> Option<&Rrset> {
        self.a
            .as_ref()
            .or(self.aaaa.as_ref())
            .or(self.https.as_ref())
    }
}

impl Service {
    fn region(&self, region: u16) -> Option<&RegionService> {
        self.regions.get(usize::from(region))
    }

    /// Whether the steered name has HTTPS records: where some regions are not HTTPS, a binding would send browsers away from them.
    pub(super) fn has_https(&self) -> bool {
        let mut with_addresses = self
            .regions
            .iter()
            .filter(|region| !region.addresses.is_empty());
        !self.alpn.is_empty() && with_addresses.all(|region| region.endpoint.is_some())
    }

    /// Types that the steered name has for any client.
    pub(super) fn types(&self) -> Vec<Type> {
        let addresses = || self.regions.iter().flat_map(|region| &region.addresses);
        let has = [
            (
                Type::A,
                addresses().any(|address| address.to_canonical().is_ipv4()),
            ),
            (
                Type::AAAA,
                addresses().any(|address| address.to_canonical().is_ipv6()),
            ),
            (Type::HTTPS, self.has_https()),
        ];
        has.iter()
            .filter(|(_, has)| *has)
            .map(|(rtype, _)| *rtype)
            .collect()
    }

    fn https(&self, regions: &[&RegionService]) -> Option<Rrset> {
        if !self.has_https() {
            return None;
        }
        let rdata: Vec<_> = (1..)
            .zip(regions)
            .filter_map(|(priority, region)| {
                let own = Name::root();
                let target = if regions.len() == 1 {
                    &own
                } else {
                    &region.name
                };
                let endpoint = region.endpoint.as_ref()?;
                Some(endpoint.rdata(priority, target, &self.alpn))
            })
            .collect();
        let name = self.name.clone();
        (!rdata.is_empty()).then(|| Rrset::new(name, Type::HTTPS, self.ttl_s, rdata))
    }
}

impl RegionService {
    /// The HTTPS set of the region's own name.
    pub(super) fn https(&self, alpn: &[String], ttl_s: u32) -> Option<Rrset> {
        let endpoint = self.endpoint.as_ref()?;
        if alpn.is_empty() || self.addresses.is_empty() {
            return None;
        }
        let rdata = vec![endpoint.rdata(1, &Name::root(), alpn)];
        Some(Rrset::new(self.name.clone(), Type::HTTPS, ttl_s, rdata))
    }
}
