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
    pub(crate) groups: BTreeMap<GroupKey, BTreeMap<PopIx, Fresh>>,
    /// Reports that were left out.
    pub left_out: LeftOut,
}

/// A median as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fresh {
    pub(crate) median: Median,
    /// Of the middle one of the reports it is made of, in seconds: half of them are no older.
    pub(crate) age_s: u32,
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
    let mut groups: BTreeMap<GroupKey, BTreeMap<PopIx, Fresh>> = BTreeMap::new();
    let mut shared: BTreeMap<(GroupKey, PopIx), (Vec<Median>, Vec<u32>)> = BTreeMap::new();
    for ((prefix, pop), fresh) in prefixes {
        let address = prefix.addr();
        if fresh.median.clients >= constants.samples_min {
            let group = groups.entry(GroupKey::Prefix(prefix)).or_default();
            group.insert(pop, fresh);
        }
        let around = cut(address, SHARE_PREFIX_V4, SHARE_PREFIX_V6);
        let Facts { asn, country, .. } = facts(address);
        let asn = asn.map(|asn| GroupKey::Asn { asn, country });
        for key in [Some(GroupKey::Neighbours(around)), asn]
            .into_iter()
            .flatten()
        {
            let (medians, ages_s) = shared.entry((key, pop)).or_default();
            if medians.len() < nearest::PREFIXES_MAX {
                medians.push(fresh.median);
                ages_s.push(fresh.age_s);
            }
        }
    }
    for ((key, pop), (medians, ages_s)) in shared {
        let common = nearest::common(medians);
        if let Some(median) = common.filter(|median| median.clients >= constants.samples_min) {
            let group = groups.entry(key).or_default();
            let age_s = middle(ages_s);
            group.insert(pop, Fresh { median, age_s });
        }
    }
    Gathered { groups, left_out }
}

fn middle(mut ages_s: Vec<u32>) -> u32 {
    ages_s.sort_unstable();
    let at = ages_s.len().saturating_sub(1) / 2;
    ages_s.get(at).copied().unwrap_or_default()
}

type ByPrefix = BTreeMap<(ipnet::IpNet, PopIx), Fresh>;

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
            let fresh = Fresh {
                median: report.median,
                age_s: report.age_s,
            };
            let joined = prefixes.get(&key).map(|known| joined(*known, fresh));
            prefixes.insert(key, joined.unwrap_or(fresh));
        }
    }
    (prefixes, left_out)
}

/// The mean of two medians, each with the weight of its clients, as old as the one of more clients.
fn joined(a: Fresh, b: Fresh) -> Fresh {
    let [a_clients, b_clients] = [a, b].map(|fresh| u64::from(fresh.median.clients));
    let [a_us, b_us] = [a, b].map(|fresh| u64::from(fresh.median.rtt_us));
    let sum = a_us * a_clients + b_us * b_clients;
    Fresh {
        median: Median {
            rtt_us: u32::try_from(sum / (a_clients + b_clients).max(1)).unwrap_or(u32::MAX),
            clients: a.median.clients.saturating_add(b.median.clients),
        },
        age_s: if a_clients < b_clients {
            b.age_s
        } else {
            a.age_s
        },
    }
}
