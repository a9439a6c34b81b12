//! Measured: what PoPs timed for clients of the same prefix, of its neighbours, or of the same autonomous system and country.
//!
//! Each PoP is judged by the strongest group that measured it: the client's own prefix, then its neighbourhood, then its
//! autonomous system. What no group measured is left to distance.

use std::net::IpAddr;

use serde::Serialize;

use crate::facts::{Country, PREFIX_V4, PREFIX_V6, cut};
use crate::measured::{GroupId, GroupKey, Measured, Median};
use crate::plan::PopIx;
use crate::rendezvous::{SHARE_PREFIX_V4, SHARE_PREFIX_V6};

/// The groups of a client, strongest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Groups {
    /// Its /24 or /48.
    pub prefix: Option<GroupId>,
    /// Measured prefixes of its /20 or /40.
    pub neighbours: Option<GroupId>,
    /// Measured prefixes of its autonomous system and country.
    pub asn: Option<GroupId>,
}

/// Which group measured a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MeasuredBy {
    /// The client's own prefix.
    Prefix,
    /// Prefixes next to it.
    Neighbours,
    /// Its autonomous system and country.
    Asn,
}

/// The groups of a client that hold anything.
#[must_use]
pub fn groups_of(
    measured: &Measured,
    address: IpAddr,
    asn: Option<u32>,
    country: Option<Country>,
) -> Groups {
    let prefix = cut(address, PREFIX_V4, PREFIX_V6);
    let around = cut(address, SHARE_PREFIX_V4, SHARE_PREFIX_V6);
    Groups {
        prefix: measured.group(&GroupKey::Prefix(prefix)),
        neighbours: measured.group(&GroupKey::Neighbours(around)),
        asn: asn.and_then(|asn| measured.group(&GroupKey::Asn { asn, country })),
    }
}

/// The strongest measured round trip to a PoP.
#[must_use]
pub fn median_of(measured: &Measured, groups: &Groups, pop: PopIx) -> Option<(MeasuredBy, Median)> {
    let of = |group: Option<GroupId>, by| Some((by, measured.median(group?, pop)?));
    of(groups.prefix, MeasuredBy::Prefix)
        .or_else(|| of(groups.neighbours, MeasuredBy::Neighbours))
        .or_else(|| of(groups.asn, MeasuredBy::Asn))
}

/// What the strongest measured round trip to a PoP was, before it was too old.
#[must_use]
pub fn floor_of(measured: &Measured, groups: &Groups, pop: PopIx) -> Option<Median> {
    let of = |group: Option<GroupId>| measured.floor(group?, pop);
    of(groups.prefix)
        .or_else(|| of(groups.neighbours))
        .or_else(|| of(groups.asn))
}

/// Whether anything that counts was measured for a client.
#[must_use]
pub fn is_measured(measured: &Measured, groups: &Groups) -> bool {
    let mut groups = [groups.prefix, groups.neighbours, groups.asn].into_iter();
    groups.any(|group| group.is_some_and(|group| measured.has_median(group)))
}
