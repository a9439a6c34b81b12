//! Avoid: regions and PoPs that come last, but before those that are not usable.
//!
//! A rule's `avoid` and a region's `avoid_countries` both put a candidate last. An order of the administrator that names the same
//! candidate wins when it is at least as strong: `avoid_countries` is the word of a country.

use super::rules::{Matched, MatchedBy, Said};
use crate::facts::Country;
use crate::plan::{Plan, PopIx, RegionIx};

/// Regions that come last for a client.
pub(crate) fn regions(plan: &Plan, said: &Said, country: Option<Country>) -> Box<[RegionIx]> {
    let rules = &plan.rules;
    let named = rules.effect_of(said.regions).map(|effect| &effect.regions);
    let by_rule = rules
        .effect_of(said.avoid)
        .map(|effect| &effect.avoid_regions);
    let last = plan.regions().filter(|ix| {
        let order = said
            .regions
            .filter(|_| named.is_some_and(|named| named.contains(ix)));
        let avoided = by_rule.is_some_and(|avoided| avoided.contains(ix))
            && yields(order, said.avoid.map(|matched| matched.by));
        let of_country = country.is_some_and(|country| {
            plan.region(*ix)
                .is_some_and(|region| region.avoid_countries.contains(&country))
        });
        avoided || (of_country && yields(order, Some(MatchedBy::Country)))
    });
    last.collect()
}

/// PoPs that come last for a client.
pub(crate) fn pops(plan: &Plan, said: &Said) -> Box<[PopIx]> {
    let rules = &plan.rules;
    let Some(avoided) = rules.effect_of(said.avoid).map(|effect| &effect.avoid_pops) else {
        return Box::default();
    };
    let named = rules.effect_of(said.pops).map(|effect| &effect.pops);
    let last = avoided.iter().copied().filter(|ix| {
        let order = said
            .pops
            .filter(|_| named.is_some_and(|named| named.contains(ix)));
        yields(order, said.avoid.map(|matched| matched.by))
    });
    last.collect()
}

/// Whether the order that names a candidate yields to the word that avoids it.
fn yields(order: Option<Matched>, avoid: Option<MatchedBy>) -> bool {
    match (order, avoid) {
        (_, None) => false,
        (None, Some(_)) => true,
        (Some(order), Some(avoid)) => avoid < order.by,
    }
}
