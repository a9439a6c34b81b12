//! The half of a decision that live state has no part in: from a client to its class, from a class to its ranking.
//!
//! ```text
//! client ──classify──► class ──rank──► ranking ──select (+ live state)──► regions per slot
//!            rules, groups       costs, order
//! ```
//!
//! Clients of one class have one ranking, and many classes share one: whoever compiles ranks each class once and keeps rankings
//! that differ.

use topology::Continent;

use crate::Snapshot;
use crate::facts::{Client, Country, Place};
use crate::measured::Median;
use crate::plan::{Plan, PopIx, RegionIx, ResidencyIx};
use crate::policy::measured::{Groups, MeasuredBy, floor_of, groups_of, is_measured, median_of};
use crate::policy::rules::Said;
use crate::policy::{avoid, continent, distance};

/// All that a ranking depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// What rules say.
    pub said: Said,
    /// Where the client is, if known.
    pub place: Option<Place>,
    /// Its continent, if known.
    pub continent: Option<Continent>,
    /// Its country, if known.
    pub country: Option<Country>,
    /// Groups it is measured in.
    pub groups: Groups,
}

/// What evidence the cost of a PoP rests on, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Evidence {
    /// Measured round trips.
    Measured(MeasuredBy),
    /// Measured longer ago than counts, and more than what is guessed.
    MeasuredBefore,
    /// Distance to the client's city or country.
    Distance(crate::facts::PlaceOf),
    /// Distance to the middle of the client's continent.
    Continent,
    /// None: the topology's order decides.
    Nothing,
}

/// Candidates of one class of clients before live state. Equal rankings are one list to whoever compiles.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ranking {
    /// Regions before all others, in this order.
    pub regions_first: Box<[RegionIx]>,
    /// Regions after all others that are usable.
    pub regions_last: Box<[RegionIx]>,
    /// PoPs before all others, in this order.
    pub pops_first: Box<[PopIx]>,
    /// PoPs after all others that are usable.
    pub pops_last: Box<[PopIx]>,
    /// Only regions of this residency.
    pub residency: Option<ResidencyIx>,
    /// Round trip to each PoP, quantised, in milliseconds; empty when it decides nothing.
    pub rtt_ms: Box<[u16]>,
}

/// Estimated round trip to a PoP without coordinates, when others have some: far, but not last for ever.
const UNPLACED_MS: u16 = 250;

/// What the decision for a client rests on.
#[must_use]
pub fn classify(client: &Client, snapshot: &Snapshot) -> Class {
    let facts = &client.facts;
    Class {
        said: snapshot.plan.rules.say(client),
        place: facts.location,
        continent: facts.continent,
        country: facts.country,
        groups: groups_of(
            &snapshot.measured,
            client.address(),
            facts.asn,
            facts.country,
        ),
    }
}

/// The candidates of a class.
#[must_use]
pub fn rank(class: &Class, snapshot: &Snapshot) -> Ranking {
    let plan = &snapshot.plan;
    let rules = &plan.rules;
    let (regions_first, regions_last) = regions_of(class, snapshot);
    let pops_last = avoid::pops(plan, &class.said);
    let pops_first = rules
        .effect_of(class.said.pops)
        .map(|effect| effect.pops.clone())
        .unwrap_or_default();
    let known = plan
        .pops()
        .any(|pop| cost_of(class, snapshot, pop).1 != Evidence::Nothing);
    let rtt_ms = plan
        .pops()
        .map(|pop| quantise(cost_of(class, snapshot, pop).0));
    Ranking {
        regions_first,
        regions_last,
        pops_first: without(&pops_first, &pops_last),
        pops_last,
        residency: rules
            .effect_of(class.said.residency)
            .and_then(|effect| effect.residency),
        rtt_ms: if known {
            rtt_ms.collect()
        } else {
            Box::default()
        },
    }
}

/// The round trip to a PoP and what it rests on.
#[must_use]
pub fn cost_of(class: &Class, snapshot: &Snapshot, pop: PopIx) -> (u16, Evidence) {
    if let Some((by, median)) = median_of(&snapshot.measured, &class.groups, pop) {
        return (median.rtt_ms(), Evidence::Measured(by));
    }
    let (guess_ms, evidence) = guess_of(class, snapshot, pop);
    let floor = floor_of(&snapshot.measured, &class.groups, pop).map(Median::rtt_ms);
    match floor.filter(|floor_ms| *floor_ms > guess_ms && evidence != Evidence::Nothing) {
        Some(floor_ms) => (floor_ms, Evidence::MeasuredBefore),
        None => (guess_ms, evidence),
    }
}

/// The round trip that geography suggests.
fn guess_of(class: &Class, snapshot: &Snapshot, pop: PopIx) -> (u16, Evidence) {
    let site = snapshot.plan.pop(pop).and_then(|pop| pop.place);
    match (class.place, class.continent, site) {
        (Some(place), _, Some(site)) => (
            distance::client_ms(place, site),
            Evidence::Distance(place.of),
        ),
        (None, Some(continent), Some(site)) => (
            distance::client_ms(continent::middle_of(continent), site),
            Evidence::Continent,
        ),
        (_, _, None) | (None, None, Some(_)) => (UNPLACED_MS, Evidence::Nothing),
    }
}

/// A cost as rankings carry it: steps grow with the cost (2 to 4 %), so that clients far away need not differ.
#[must_use]
pub const fn quantise(ms: u16) -> u16 {
    let step = match ms {
        0..50 => 1,
        50..100 => 2,
        100..200 => 4,
        200..400 => 8,
        400..=u16::MAX => 16,
    };
    (ms / step).saturating_mul(step)
}

impl Ranking {
    /// The ranking with everything cleared that the choice of a region does not depend on: when rules order all regions that may
    /// be chosen, no cost matters, and clients of all places share one list.
    #[must_use]
    pub fn for_regions(mut self, plan: &Plan) -> Self {
        let open = plan
            .regions()
            .filter(|region| {
                crate::policy::residency::allows(plan, self.residency, *region)
                    && !self.regions_first.contains(region)
            })
            .count();
        if open <= 1 {
            self.rtt_ms = Box::default();
            self.pops_first = Box::default();
            self.pops_last = Box::default();
        }
        self
    }
}

/// Regions that come first and last. Where nothing is known of a client, the topology's order stands in for costs.
fn regions_of(class: &Class, snapshot: &Snapshot) -> (Box<[RegionIx]>, Box<[RegionIx]>) {
    let plan = &snapshot.plan;
    let last = avoid::regions(plan, &class.said, class.country);
    let effect = plan.rules.effect_of(class.said.regions);
    let named = effect.map(|effect| effect.regions.clone());
    let mut first = without(&named.unwrap_or_default(), &last).into_vec();
    let nothing_known = class.place.is_none()
        && class.continent.is_none()
        && !is_measured(&snapshot.measured, &class.groups);
    if nothing_known {
        let others = plan.regions().filter(|region| {
            let weight = plan.region(*region).map_or(0, |region| region.weight);
            weight > 0 && !last.contains(region)
        });
        for region in others {
            if !first.contains(&region) {
                first.push(region);
            }
        }
    }
    (first.into(), last)
}

fn without<T: Copy + PartialEq>(list: &[T], others: &[T]) -> Box<[T]> {
    let kept = list.iter().filter(|item| !others.contains(item));
    kept.copied().collect()
}
