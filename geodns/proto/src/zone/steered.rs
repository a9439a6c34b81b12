//! Records of the steered name for one selection: regions in order, best first, and others that only give a family of addresses
//! which those lack. A client may take any address of an answer, so a region that is not among the best gives nothing else.
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

/// Regions (positions in the topology) that an answer carries. Equal ones have equal records.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Carried {
    /// With all their addresses.
    best: Vec<u16>,
    /// With addresses of a family that those before them lack, alone.
    fill: Vec<u16>,
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
    /// What an answer carries of rankings of regions (positions in the topology, best first): of `best` the first `dns.answers_max`
    /// that have addresses, then of `fill` the first with a family of addresses that those lack.
    #[must_use]
    pub fn carried(
        &self,
        best: impl IntoIterator<Item = u16>,
        fill: impl IntoIterator<Item = u16>,
    ) -> Carried {
        let most = usize::from(self.service.answers_max);
        let mut carried = Carried::default();
        let mut families = Families::default();
        for region in best {
            let addresses = self.service.addresses(region);
            if carried.best.len() < most && !addresses.is_empty() && !carried.has(region) {
                families.add(addresses);
                carried.best.push(region);
            }
        }
        for region in fill {
            let addresses = self.service.addresses(region);
            if families.lacks_one_of(addresses) {
                families.add(addresses);
                carried.fill.push(region);
            }
        }
        carried
    }

    /// The records of the steered name for these regions; unsigned.
    #[must_use]
    pub fn steered(&self, carried: &Carried) -> Steered {
        let service = &self.service;
        let mut families = Families::default();
        let mut addresses = Vec::new();
        for region in &carried.best {
            let of_region = service.addresses(*region);
            addresses.extend(of_region.iter().copied());
            families.add(of_region);
        }
        for region in &carried.fill {
            let of_region = service.addresses(*region);
            let missing = of_region.iter().filter(|address| families.lacks(address));
            addresses.extend(missing.copied());
            families.add(of_region);
        }
        let [a, aaaa] = address_sets(&service.name, service.ttl_s, addresses);
        let all = carried.best.iter().chain(&carried.fill);
        let all: Vec<_> = all.filter_map(|region| service.region(*region)).collect();
        Steered {
            a,
            aaaa,
            https: service.https(&all),
            nsec: None,
        }
    }
}

impl Carried {
    fn has(&self, region: u16) -> bool {
        self.best.contains(&region)
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

    fn addresses(&self, region: u16) -> &[IpAddr] {
        self.region(region)
            .map_or(&[][..], |region| &region.addresses)
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
