//! Measured round trips, by group of clients: what the policy `measured` reads.

pub mod gather;

use std::collections::BTreeMap;

use ipnet::IpNet;

use crate::facts::Country;
use crate::plan::PopIx;

/// Groups that are kept, at most. Further ones are left out and counted.
pub const GROUPS_MAX: usize = 1 << 20;

/// A group of clients that are measured together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKey {
    /// A /24 or /48.
    Prefix(IpNet),
    /// The measured prefixes of a /20 or /40.
    Neighbours(IpNet),
    /// The measured prefixes of an autonomous system in a country.
    Asn {
        /// Number.
        asn: u32,
        /// Country, as the database says.
        country: Option<Country>,
    },
}

/// A group, in one [`Measured`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(u32);

/// A median round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Median {
    /// Microseconds.
    pub rtt_us: u32,
    /// Clients it was taken of.
    pub clients: u32,
}

/// What a PoP reports of one prefix: the median of its clients' round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The PoP.
    pub pop: PopIx,
    /// The prefix, a /24 or /48; anything else is cut or left out.
    pub prefix: IpNet,
    /// Median and number of clients.
    pub median: Median,
    /// Age, in seconds.
    pub age_s: u32,
}

/// Medians by group, immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    groups: BTreeMap<GroupKey, GroupId>,
    medians: Vec<Box<[(PopIx, Median)]>>,
    /// Medians that are too old to count, of the same groups.
    floors: Vec<Box<[(PopIx, Median)]>>,
    left_out: usize,
}

impl Measured {
    /// Of medians that are settled: one entry per group, PoPs in any order.
    #[must_use]
    pub fn new(groups: BTreeMap<GroupKey, Vec<(PopIx, Median)>>) -> Self {
        Self::with_floors(groups, [])
    }

    /// The same, with what is too old to count: floors of what is guessed. Those of groups without an entry are left out.
    #[must_use]
    pub fn with_floors(
        groups: BTreeMap<GroupKey, Vec<(PopIx, Median)>>,
        floors: impl IntoIterator<Item = (GroupKey, Vec<(PopIx, Median)>)>,
    ) -> Self {
        let mut measured = Self {
            left_out: groups.len().saturating_sub(GROUPS_MAX),
            ..Self::default()
        };
        for (key, medians) in groups.into_iter().take(GROUPS_MAX) {
            let id = GroupId(u32::try_from(measured.medians.len()).unwrap_or(u32::MAX));
            measured.groups.insert(key, id);
            measured.medians.push(sorted(medians));
        }
        measured.floors = vec![Box::default(); measured.medians.len()];
        for (key, floors) in floors {
            let id = measured.groups.get(&key).map(|id| id.0);
            let at = id.and_then(|id| usize::try_from(id).ok());
            if let Some(kept) = at.and_then(|at| measured.floors.get_mut(at)) {
                *kept = sorted(floors);
            }
        }
        measured
    }

    /// The group of this key.
    #[must_use]
    pub fn group(&self, key: &GroupKey) -> Option<GroupId> {
        self.groups.get(key).copied()
    }

    /// The median of a group at a PoP.
    #[must_use]
    pub fn median(&self, group: GroupId, pop: PopIx) -> Option<Median> {
        at_pop(&self.medians, group, pop)
    }

    /// What the median of a group at a PoP was when it last counted.
    #[must_use]
    pub fn floor(&self, group: GroupId, pop: PopIx) -> Option<Median> {
        at_pop(&self.floors, group, pop)
    }

    /// Whether any median of a group counts.
    #[must_use]
    pub fn has_median(&self, group: GroupId) -> bool {
        let at = usize::try_from(group.0).ok();
        let medians = at.and_then(|at| self.medians.get(at));
        medians.is_some_and(|medians| !medians.is_empty())
    }

    /// Whether the same is chosen by both: groups, their ids and round trips in milliseconds are the same, whatever clients they are of.
    #[must_use]
    pub fn chooses_as(&self, other: &Self) -> bool {
        let same = |a: &[Box<[(PopIx, Median)]>], b: &[Box<[(PopIx, Median)]>]| {
            let each = |(pop, median): &(PopIx, Median)| (*pop, median.rtt_ms());
            let pairs = a.iter().zip(b);
            a.len() == b.len()
                && pairs
                    .into_iter()
                    .all(|(a, b)| a.iter().map(each).eq(b.iter().map(each)))
        };
        self.groups == other.groups
            && same(&self.medians, &other.medians)
            && same(&self.floors, &other.floors)
    }

    /// Client prefixes that groups are of: networks to look at when everything is compiled.
    pub fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.groups.keys().filter_map(|key| match key {
            GroupKey::Prefix(net) | GroupKey::Neighbours(net) => Some(*net),
            GroupKey::Asn { .. } => None,
        })
    }

    /// How many groups there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether nothing is measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Groups beyond [`GROUPS_MAX`].
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }
}

impl Median {
    /// Milliseconds, as costs are counted.
    #[must_use]
    pub fn rtt_ms(self) -> u16 {
        let ms = self.rtt_us.saturating_add(500) / 1_000;
        u16::try_from(ms).unwrap_or(u16::MAX)
    }
}

fn at_pop(lists: &[Box<[(PopIx, Median)]>], group: GroupId, pop: PopIx) -> Option<Median> {
    let medians = lists.get(usize::try_from(group.0).ok()?)?;
    let at = medians.binary_search_by_key(&pop, |(pop, _)| *pop).ok()?;
    medians.get(at).map(|(_, median)| *median)
}

fn sorted(mut medians: Vec<(PopIx, Median)>) -> Box<[(PopIx, Median)]> {
    medians.sort_unstable_by_key(|(pop, _)| *pop);
    medians.dedup_by_key(|(pop, _)| *pop);
    medians.into()
}
