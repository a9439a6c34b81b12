//! Rules by client prefix: the strongest word. The longest prefix that holds the address comes first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use topology::Rule;

use super::rules::RuleIx;
use crate::facts::cut;

/// Rules by prefix. A look-up costs one search per prefix length that is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct CidrRules {
    rules: BTreeMap<IpNet, Vec<RuleIx>>,
    /// Prefix lengths in use, longest first.
    lengths_v4: Vec<u8>,
    lengths_v6: Vec<u8>,
}

impl CidrRules {
    pub(crate) fn add(&mut self, rule: &Rule, ix: RuleIx) {
        for net in &rule.cidrs {
            self.rules.entry(net.trunc()).or_default().push(ix);
            let lengths = match net {
                IpNet::V4(_) => &mut self.lengths_v4,
                IpNet::V6(_) => &mut self.lengths_v6,
            };
            if !lengths.contains(&net.prefix_len()) {
                lengths.push(net.prefix_len());
                lengths.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
    }

    pub(crate) fn matching(&self, address: IpAddr) -> impl Iterator<Item = RuleIx> {
        let lengths = match address {
            IpAddr::V4(_) => &self.lengths_v4,
            IpAddr::V6(_) => &self.lengths_v6,
        };
        let nets = lengths.iter().map(move |len| cut(address, *len, *len));
        nets.filter_map(|net| self.rules.get(&net))
            .flatten()
            .copied()
    }

    pub(crate) fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.rules.keys().copied()
    }
}
