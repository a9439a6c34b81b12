//! From what PoPs report of prefixes to medians of groups.
//!
//! ```text
//! reports (PoP, /24 or /48, median, clients)
//!   ├─ own prefix       at least `samples_min` clients
//!   ├─ neighbours       /20 or /40: at least three measured prefixes that agree, outliers dropped
//!   └─ ASN + country    the same, over all prefixes of the autonomous system in the country
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{GROUPS_MAX, GroupKey, Median, Report};
use crate::facts::{Facts, PREFIX_V4, PREFIX_V6, cut};
use crate::plan::PopIx;
use crate::policy::nearest;
use crate::rendezvous::{SHARE_PREFIX_V4, SHARE_PREFIX_V6};

/// Medians of groups as they are reported, before hysteresis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gathered {
    pub(crate) groups: BTreeMap<GroupKey, BTreeMap<PopIx, Median>>,
    /// Reports that were left out.
    pub left_out: LeftOut,
}

/// Reports that were left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Older than `age_max_s`.
    pub old: usize,
    /// Of no client, or of no round trip.
    pub empty: usize,
    /// Beyond [`GROUPS_MAX`] pairs of PoP and prefix.
    pub many: usize,
}

/// Groups reports. `facts` says what databases know of an address.
#[must_use]
pub fn gather(
    reports: impl IntoIterator<Item = Report>,
    facts: impl Fn(IpAddr) -> Facts,
    constants: &topology::steering::Measured,
) -> Gathered {
    let (prefixes, left_out) = by_prefix(reports, constants);
    let mut groups: BTreeMap<GroupKey, BTreeMap<PopIx, Median>> = BTreeMap::new();
    let mut shared: BTreeMap<(GroupKey, PopIx), Vec<Median>> = BTreeMap::new();
    for ((prefix, pop), median) in prefixes {
        let address = prefix.addr();
        if median.clients >= constants.samples_min {
            let group = groups.entry(GroupKey::Prefix(prefix)).or_default();
            group.insert(pop, median);
        }
        let around = cut(address, SHARE_PREFIX_V4, SHARE_PREFIX_V6);
        let Facts { asn, country, .. } = facts(address);
        let asn = asn.map(|asn| GroupKey::Asn { asn, country });
        for key in [Some(GroupKey::Neighbours(around)), asn]
            .into_iter()
            .flatten()
        {
            let medians = shared.entry((key, pop)).or_default();
            if medians.len() < nearest::PREFIXES_MAX {
                medians.push(median);
            }
        }
    }
    for ((key, pop), medians) in shared {
        let common = nearest::common(medians);
        if let Some(median) = common.filter(|median| median.clients >= constants.samples_min) {
            groups.entry(key).or_default().insert(pop, median);
        }
    }
    Gathered { groups, left_out }
}

type ByPrefix = BTreeMap<(ipnet::IpNet, PopIx), Median>;

/// One median for each pair of prefix and PoP; processes of one PoP that report the same prefix are joined.
fn by_prefix(
    reports: impl IntoIterator<Item = Report>,
    constants: &topology::steering::Measured,
) -> (ByPrefix, LeftOut) {
    let mut prefixes = ByPrefix::new();
    let mut left_out = LeftOut::default();
    for report in reports {
        let Median { rtt_us, clients } = report.median;
        let key = (
            cut(report.prefix.addr().to_canonical(), PREFIX_V4, PREFIX_V6),
            report.pop,
        );
        if report.age_s > constants.age_max_s {
            left_out.old += 1;
        } else if rtt_us == 0 || clients == 0 {
            left_out.empty += 1;
        } else if prefixes.len() >= GROUPS_MAX && !prefixes.contains_key(&key) {
            left_out.many += 1;
        } else {
            let joined = prefixes
                .get(&key)
                .map(|known| joined(*known, report.median));
            prefixes.insert(key, joined.unwrap_or(report.median));
        }
    }
    (prefixes, left_out)
}

/// The mean of two medians, each with the weight of its clients.
fn joined(a: Median, b: Median) -> Median {
    let [a_clients, b_clients] = [a, b].map(|median| u64::from(median.clients));
    let sum = u64::from(a.rtt_us) * a_clients + u64::from(b.rtt_us) * b_clients;
    Median {
        rtt_us: u32::try_from(sum / (a_clients + b_clients).max(1)).unwrap_or(u32::MAX),
        clients: a.clients.saturating_add(b.clients),
    }
}
