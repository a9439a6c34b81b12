//! Continents: rules by continent, the weakest word of an administrator; and the middle of a continent as the place of a client
//! of whom nothing finer is known, the weakest evidence.

use std::collections::BTreeMap;

use topology::{Continent, Rule};

use super::rules::RuleIx;
use crate::facts::{Place, PlaceOf};

#[derive(Clone, Debug, Default)]
pub(crate) struct ContinentRules(BTreeMap<Continent, Vec<RuleIx>>);

impl ContinentRules {
    pub(crate) fn add(&mut self, rule: &Rule, ix: RuleIx) {
        for continent in &rule.continents {
            self.0.entry(*continent).or_default().push(ix);
        }
    }

    pub(crate) fn matching(&self, continent: Option<Continent>) -> impl Iterator<Item = RuleIx> {
        let rules = continent.and_then(|continent| self.0.get(&continent));
        rules.into_iter().flatten().copied()
    }
}

/// Where most of a continent's people and cables are, roughly; not its geometric centre.
pub(crate) const fn middle_of(continent: Continent) -> Place {
    let (latitude_tenths, longitude_tenths) = match continent {
        Continent::Af => (60, 200),
        Continent::An => (-800, 0),
        Continent::As => (260, 900),
        Continent::Eu => (500, 100),
        Continent::Na => (390, -900),
        Continent::Oc => (-300, 1450),
        Continent::Sa => (-150, -550),
    };
    Place {
        latitude_tenths,
        longitude_tenths,
        of: PlaceOf::Country,
    }
}
