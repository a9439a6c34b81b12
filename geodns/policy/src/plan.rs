//! The topology as steering uses it: sites by index, who is linked to whom, rules compiled. Immutable.
//!
//! It holds no live state and no address of a node.

use std::net::IpAddr;

use topology::{Location, Steering, Topology};

use crate::facts::{Country, Place, PlaceOf};
use crate::live::Live;
use crate::policy::distance;
use crate::policy::rules::Rules;
use crate::rendezvous::key_of;

/// Sites of one kind that steering tells apart, at most; the numbers in hints and records end there too.
pub const SITES_MAX: usize = 65_535;

/// A region, by its place in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct RegionIx(pub u16);

/// A PoP, by its place in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(transparent)]
pub struct PopIx(pub u16);

/// A residency, by the order in which regions name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResidencyIx(pub u16);

/// What steering keeps of a topology.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) regions: Box<[RegionPlan]>,
    pub(crate) pops: Box<[PopPlan]>,
    pub(crate) residencies: Box<[String]>,
    pub(crate) rules: Rules,
    pub(crate) steering: Steering,
    pub(crate) answers_max: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct RegionPlan {
    pub(crate) name: String,
    pub(crate) residency: Option<ResidencyIx>,
    pub(crate) avoid_countries: Box<[Country]>,
    pub(crate) weight: u16,
    pub(crate) key: u64,
    pub(crate) place: Option<Place>,
    /// PoPs with links to it.
    pub(crate) pops: Box<[PopIx]>,
    pub(crate) families: Families,
}

/// Which kinds of address a region's signaling has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Families {
    v4: bool,
    v6: bool,
}

impl Families {
    fn of(region: &topology::Region) -> Self {
        let has = |is: fn(&IpAddr) -> bool| {
            let mut addresses = region.signaling_addresses.iter().map(IpAddr::to_canonical);
            addresses.any(|address| is(&address))
        };
        Self {
            v4: has(IpAddr::is_ipv4),
            v6: has(IpAddr::is_ipv6),
        }
    }

    /// Takes in those of another region; whether that has any that were missing.
    pub(crate) fn add(&mut self, other: Self) -> bool {
        let before = *self;
        self.v4 |= other.v4;
        self.v6 |= other.v6;
        *self != before
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PopPlan {
    pub(crate) name: String,
    pub(crate) weight: u16,
    pub(crate) key: u64,
    pub(crate) place: Option<Place>,
    /// To each region, in milliseconds, until it is measured. `None`: no link.
    pub(crate) backbone_ms: Box<[Option<u16>]>,
}

impl Plan {
    /// What steering keeps of a topology that [`topology::load()`] returned.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let mut residencies: Vec<String> = Vec::new();
        let names = topology.regions.iter().filter_map(|r| r.residency.as_ref());
        for name in names {
            if !residencies.contains(name) {
                residencies.push(name.clone());
            }
        }
        let pops: Box<[_]> = topology
            .pops
            .iter()
            .take(SITES_MAX)
            .map(|pop| pop_plan(pop, topology))
            .collect();
        let regions = topology.regions.iter().take(SITES_MAX).enumerate();
        let regions: Box<[_]> = regions
            .map(|(i, region)| region_plan(i, region, &residencies, &pops))
            .collect();
        Self {
            rules: Rules::new(topology, &residencies),
            steering: topology.steering.clone(),
            answers_max: topology
                .dns
                .as_ref()
                .map_or(1, |dns| usize::from(dns.answers_max)),
            residencies: residencies.into(),
            regions,
            pops,
        }
    }

    /// The region of this name.
    #[must_use]
    pub fn region_named(&self, name: &str) -> Option<RegionIx> {
        let mut named = self.regions().filter(|ix| self.region_name(*ix) == name);
        named.next()
    }

    /// The PoP of this name.
    #[must_use]
    pub fn pop_named(&self, name: &str) -> Option<PopIx> {
        self.pops().find(|ix| self.pop_name(*ix) == name)
    }

    /// The residency of this name.
    #[must_use]
    pub fn residency_named(&self, name: &str) -> Option<ResidencyIx> {
        let at = self.residencies.iter().position(|known| known == name)?;
        Some(ResidencyIx(index(at)))
    }

    /// All regions, in the order of the topology.
    pub fn regions(&self) -> impl Iterator<Item = RegionIx> + use<> {
        (0..index(self.regions.len())).map(RegionIx)
    }

    /// All PoPs, in the order of the topology.
    pub fn pops(&self) -> impl Iterator<Item = PopIx> + use<> {
        (0..index(self.pops.len())).map(PopIx)
    }

    /// Name of a region; empty for an index of another plan.
    #[must_use]
    pub fn region_name(&self, ix: RegionIx) -> &str {
        self.region(ix).map_or("", |region| &region.name)
    }

    /// Name of a PoP; empty for an index of another plan.
    #[must_use]
    pub fn pop_name(&self, ix: PopIx) -> &str {
        self.pop(ix).map_or("", |pop| &pop.name)
    }

    /// Name of a residency; empty for an index of another plan.
    #[must_use]
    pub fn residency_name(&self, ix: ResidencyIx) -> &str {
        self.residencies
            .get(usize::from(ix.0))
            .map_or("", String::as_str)
    }

    /// Client prefixes that rules name: networks to look at when everything is compiled.
    pub fn rule_prefixes(&self) -> impl Iterator<Item = ipnet::IpNet> {
        self.rules.prefixes()
    }

    /// Constants of the score.
    #[must_use]
    pub const fn steering(&self) -> &Steering {
        &self.steering
    }

    /// From a PoP to a region it has links to, in milliseconds: as measured, or as planned.
    #[must_use]
    pub fn backbone_ms(&self, pop: PopIx, region: RegionIx, live: &Live) -> Option<u16> {
        let planned = self
            .pop(pop)?
            .backbone_ms
            .get(usize::from(region.0))
            .copied()??;
        Some(live.backbone_ms(pop, region).unwrap_or(planned))
    }

    /// From a PoP to the nearest region it has links to, in milliseconds.
    pub(crate) fn backbone_least_ms(&self, pop: PopIx, live: &Live) -> u16 {
        let regions = self.regions();
        let ways = regions.filter_map(|region| self.backbone_ms(pop, region, live));
        ways.min().unwrap_or_default()
    }

    pub(crate) fn region(&self, ix: RegionIx) -> Option<&RegionPlan> {
        self.regions.get(usize::from(ix.0))
    }

    pub(crate) fn region_place(&self, ix: RegionIx) -> Option<Place> {
        self.region(ix)?.place
    }

    pub(crate) fn pop_place(&self, ix: PopIx) -> Option<Place> {
        self.pop(ix)?.place
    }

    /// The PoP of another plan, in this one: of the same name, and where it was.
    pub(crate) fn same_pop(&self, other: &Self, ix: PopIx) -> Option<PopIx> {
        let here = self.pop_named(other.pop_name(ix))?;
        (self.pop_place(here) == other.pop_place(ix)).then_some(here)
    }

    /// Whether a PoP of this plan is in another one, at the same place.
    #[must_use]
    pub fn is_same_pop(&self, ix: PopIx, other: &Self) -> bool {
        other.same_pop(self, ix).is_some()
    }

    pub(crate) fn pop(&self, ix: PopIx) -> Option<&PopPlan> {
        self.pops.get(usize::from(ix.0))
    }
}

/// A place in a list of at most [`SITES_MAX`].
pub(crate) fn index(at: usize) -> u16 {
    u16::try_from(at).unwrap_or(u16::MAX)
}

fn region_plan(
    i: usize,
    region: &topology::Region,
    residencies: &[String],
    pops: &[PopPlan],
) -> RegionPlan {
    let linked = pops.iter().enumerate();
    let linked = linked.filter(|(_, pop)| pop.backbone_ms.get(i).copied().flatten().is_some());
    RegionPlan {
        name: region.name.clone(),
        residency: region
            .residency
            .as_ref()
            .and_then(|name| residencies.iter().position(|known| known == name))
            .map(|at| ResidencyIx(index(at))),
        avoid_countries: region
            .avoid_countries
            .iter()
            .filter_map(|code| Country::new(code))
            .collect(),
        weight: region.weight,
        key: key_of(&region.name),
        place: region.location.as_ref().and_then(place_of),
        pops: linked.map(|(at, _)| PopIx(index(at))).collect(),
        families: Families::of(region),
    }
}

fn pop_plan(pop: &topology::Pop, topology: &Topology) -> PopPlan {
    let place = pop.location.as_ref().and_then(place_of);
    let unplaced = u16::try_from(topology.network.link.rtt_ms / 2).unwrap_or(u16::MAX);
    let backbone_ms = topology.regions.iter().take(SITES_MAX).map(|region| {
        let linked = pop
            .regions
            .as_ref()
            .is_none_or(|names| names.contains(&region.name));
        let site = region.location.as_ref().and_then(place_of);
        linked.then(|| match (place, site) {
            (Some(a), Some(b)) => distance::backbone_ms(a, b),
            (None, _) | (_, None) => unplaced,
        })
    });
    PopPlan {
        name: pop.name.clone(),
        weight: pop.weight,
        key: key_of(&pop.name),
        place,
        backbone_ms: backbone_ms.collect(),
    }
}

fn place_of(location: &Location) -> Option<Place> {
    Place::new(location.latitude, location.longitude, PlaceOf::City)
}
