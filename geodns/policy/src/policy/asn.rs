//! Rules by autonomous system, in the order of the topology.

use std::collections::BTreeMap;

use topology::Rule;

use super::rules::RuleIx;

#[derive(Clone, Debug, Default)]
pub(crate) struct AsnRules(BTreeMap<u32, Vec<RuleIx>>);

impl AsnRules {
    pub(crate) fn add(&mut self, rule: &Rule, ix: RuleIx) {
        for asn in &rule.asns {
            self.0.entry(*asn).or_default().push(ix);
        }
    }

    pub(crate) fn matching(&self, asn: Option<u32>) -> impl Iterator<Item = RuleIx> {
        let rules = asn.and_then(|asn| self.0.get(&asn));
        rules.into_iter().flatten().copied()
    }
}
