//! Rules by country, in the order of the topology.

use std::collections::BTreeMap;

use topology::Rule;

use super::rules::RuleIx;
use crate::facts::Country;

#[derive(Clone, Debug, Default)]
pub(crate) struct CountryRules(BTreeMap<Country, Vec<RuleIx>>);

impl CountryRules {
    pub(crate) fn add(&mut self, rule: &Rule, ix: RuleIx) {
        for country in rule.countries.iter().filter_map(|code| Country::new(code)) {
            self.0.entry(country).or_default().push(ix);
        }
    }

    pub(crate) fn matching(&self, country: Option<Country>) -> impl Iterator<Item = RuleIx> {
        let rules = country.and_then(|country| self.0.get(&country));
        rules.into_iter().flatten().copied()
    }
}
