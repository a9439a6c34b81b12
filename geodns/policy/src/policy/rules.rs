//! The administrator's rules, compiled: which rule says what to a client.
//!
//! A rule can give four things: an order of regions, an order of PoPs, what to avoid, a residency. Each is taken from the
//! strongest rule that matches the client and gives it: by CIDR before ASN before country before continent; of one kind the most
//! specific, then the first. So a rule for one office that orders PoPs does not lift the residency of its country.

use serde::Serialize;
use topology::{Rule, Topology};

use super::{asn::AsnRules, cidr::CidrRules, continent::ContinentRules, country::CountryRules};
use crate::facts::Client;
use crate::plan::{PopIx, RegionIx, ResidencyIx, index};

/// A rule, by its place in the topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct RuleIx(pub u32);

/// What of a client a rule matched by, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// Its address.
    Cidr,
    /// Its autonomous system.
    Asn,
    /// Its country.
    Country,
    /// Its continent.
    Continent,
}

/// A rule that matched and what it matched by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Matched {
    /// What of the client.
    pub by: MatchedBy,
    /// Which rule.
    pub rule: RuleIx,
}

/// What the rules say to one client, each thing with the rule that says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Said {
    /// An order of regions.
    pub regions: Option<Matched>,
    /// An order of PoPs.
    pub pops: Option<Matched>,
    /// What to avoid.
    pub avoid: Option<Matched>,
    /// A residency.
    pub residency: Option<Matched>,
}

/// All rules of a topology.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    effects: Box<[Effect]>,
    cidr: CidrRules,
    asn: AsnRules,
    country: CountryRules,
    continent: ContinentRules,
}

/// What a rule gives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effect {
    pub(crate) name: String,
    pub(crate) regions: Box<[RegionIx]>,
    pub(crate) pops: Box<[PopIx]>,
    pub(crate) avoid_regions: Box<[RegionIx]>,
    pub(crate) avoid_pops: Box<[PopIx]>,
    pub(crate) residency: Option<ResidencyIx>,
}

impl Rules {
    pub(crate) fn new(topology: &Topology, residencies: &[String]) -> Self {
        let mut rules = Self::default();
        let mut effects = Vec::new();
        for (i, rule) in topology.steering.rules.iter().enumerate() {
            let ix = RuleIx(u32::try_from(i).unwrap_or(u32::MAX));
            rules.cidr.add(rule, ix);
            rules.asn.add(rule, ix);
            rules.country.add(rule, ix);
            rules.continent.add(rule, ix);
            effects.push(effect(rule, topology, residencies));
        }
        rules.effects = effects.into();
        rules
    }

    /// What the rules say to a client.
    #[must_use]
    pub fn say(&self, client: &Client) -> Said {
        self.said(self.matching(client))
    }

    /// What the rules but one would say to a client.
    pub(crate) fn say_without(&self, client: &Client, rule: RuleIx) -> Said {
        self.said(self.matching(client).filter(|matched| matched.rule != rule))
    }

    fn said(&self, matching: impl Iterator<Item = Matched>) -> Said {
        let mut said = Said::default();
        for matched in matching {
            let Some(effect) = self.effect(matched.rule) else {
                continue;
            };
            let gives = [
                (&mut said.regions, !effect.regions.is_empty()),
                (&mut said.pops, !effect.pops.is_empty()),
                (
                    &mut said.avoid,
                    !(effect.avoid_regions.is_empty() && effect.avoid_pops.is_empty()),
                ),
                (&mut said.residency, effect.residency.is_some()),
            ];
            for (thing, given) in gives {
                if given && thing.is_none() {
                    *thing = Some(matched);
                }
            }
        }
        said
    }

    /// Rules that match a client, the strongest first.
    fn matching(&self, client: &Client) -> impl Iterator<Item = Matched> {
        let by = |by| move |rule| Matched { by, rule };
        let facts = &client.facts;
        self.cidr
            .matching(client.address())
            .map(by(MatchedBy::Cidr))
            .chain(self.asn.matching(facts.asn).map(by(MatchedBy::Asn)))
            .chain(
                self.country
                    .matching(facts.country)
                    .map(by(MatchedBy::Country)),
            )
            .chain(
                self.continent
                    .matching(facts.continent)
                    .map(by(MatchedBy::Continent)),
            )
    }

    pub(crate) fn effect(&self, rule: RuleIx) -> Option<&Effect> {
        self.effects.get(usize::try_from(rule.0).ok()?)
    }

    pub(crate) fn effect_of(&self, matched: Option<Matched>) -> Option<&Effect> {
        self.effect(matched?.rule)
    }

    /// Whether any rule is by this autonomous system.
    pub(crate) fn names_asn(&self, asn: u32) -> bool {
        self.asn.matching(Some(asn)).next().is_some()
    }

    pub(crate) fn prefixes(&self) -> impl Iterator<Item = ipnet::IpNet> {
        self.cidr.prefixes()
    }
}

fn effect(rule: &Rule, topology: &Topology, residencies: &[String]) -> Effect {
    let region = |name: &String| {
        let at = topology.regions.iter().position(|r| r.name == *name)?;
        Some(RegionIx(index(at)))
    };
    let pop = |name: &String| {
        let at = topology.pops.iter().position(|p| p.name == *name)?;
        Some(PopIx(index(at)))
    };
    let residency = |name: &String| {
        let at = residencies.iter().position(|known| known == name)?;
        Some(ResidencyIx(index(at)))
    };
    Effect {
        name: rule.name.clone(),
        regions: rule.regions.iter().filter_map(region).collect(),
        pops: rule.pops.iter().filter_map(pop).collect(),
        avoid_regions: rule.avoid.iter().filter_map(region).collect(),
        avoid_pops: rule.avoid.iter().filter_map(pop).collect(),
        residency: rule.residency.as_ref().and_then(residency),
    }
}
