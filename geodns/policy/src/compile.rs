//! From databases, rules and measured prefixes to tables that a query reads once or twice.
//!
//! ```text
//! networks of every database --+
//! prefixes of rules, measured -+--sweep--> class --rank--> list    runs of equal lists --> Tables
//! special addresses -----------+           (facts, prefix)         maximal blocks: the scopes
//! ```
//!
//! A class is what decides: facts, and the longest prefix that a rule or a measurement names. All networks of a class have one
//! list, ranked once. Neighbours with equal lists are one run, and a run falls apart into the largest aligned blocks that fit: the
//! block an address lies in is the client subnet the answer holds for (RFC 7871 §7.2.1), exactly what merging equal siblings of a tree
//! bottom-up gives.
//!
//! Health, drains, load and weights are not here: they choose among a list's entries and change no table.

mod ranges;
mod sweep;
mod tables;
mod trie;

use std::hash::Hash;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use ipnet::IpNet;
use thiserror::Error;

pub use tables::{ListId, Located, Tables};
pub use trie::NODES_MAX;

use crate::Snapshot;
use crate::compile::sweep::{Family, NO_LIST, Segment, sweep};
use crate::compile::trie::TooManyNodes;
use crate::databases::Databases;
use crate::facts::{Client, Facts};
use crate::measured::GroupKey;
use crate::rank::{Ranking, classify, rank};

/// Lists at most: ids have 24 bits, and the last means none.
pub const LISTS_MAX: usize = (1 << 24) - 1;
/// Runs of equal lists at most, of one address family.
pub const RUNS_MAX: usize = 1 << 24;
/// Prefixes of rules and measurements at most.
pub const PREFIXES_MAX: usize = 1 << 20;

/// Clients that get the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// One of them: the same prefixes hold it as all others.
    pub client: IpAddr,
    /// What is known of each of them.
    pub facts: Facts,
}

/// What is compiled, and into what.
pub struct Inputs<'a> {
    /// Databases.
    pub databases: &'a Databases,
    /// Every prefix that a rule or a measurement names, in any order.
    pub prefixes: &'a [IpNet],
}

/// Tables, and the lists they lead to.
#[derive(Debug)]
pub struct Compiled<L> {
    /// Address to list.
    pub tables: Tables,
    /// By [`ListId`].
    pub lists: Vec<L>,
    /// What was seen.
    pub figures: Figures,
}

/// Sizes, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Classes that were ranked.
    pub classes: usize,
    /// Lists that differ.
    pub lists: usize,
    /// Runs of IPv4 addresses with equal lists.
    pub runs_v4: usize,
    /// Runs of IPv6 addresses with equal lists.
    pub runs_v6: usize,
    /// Memory of the tables.
    pub bytes: usize,
}

/// Why nothing was compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// More than [`LISTS_MAX`].
    #[error("more than {LISTS_MAX} lists")]
    Lists,
    /// More than [`RUNS_MAX`].
    #[error("more than {RUNS_MAX} networks with lists of their own")]
    Runs,
    /// More than [`PREFIXES_MAX`].
    #[error("more than {PREFIXES_MAX} prefixes of rules and measurements")]
    Prefixes,
    /// More than [`NODES_MAX`].
    #[error("more than {NODES_MAX} nodes in the table of one address family")]
    Nodes,
}

impl From<TooManyNodes> for CompileError {
    fn from(_: TooManyNodes) -> Self {
        Self::Nodes
    }
}

/// Compiles what DNS answers from: rankings of regions, for every network there is.
///
/// # Errors
/// See [`CompileError`].
pub fn compile(
    snapshot: &Snapshot,
    databases: &Databases,
) -> Result<Compiled<Ranking>, CompileError> {
    let plan = &snapshot.plan;
    let measured = &snapshot.measured;
    let prefixes = plan.rule_prefixes().chain(measured.prefixes());
    let prefixes: Vec<_> = prefixes.take(PREFIXES_MAX + 1).collect();
    let inputs = Inputs {
        databases,
        prefixes: &prefixes,
    };
    let speaks_of = |asn: u32, country| {
        let group = GroupKey::Asn { asn, country };
        plan.rules.names_asn(asn) || measured.group(&group).is_some()
    };
    let relevant = |facts: Facts| Facts {
        asn: facts.asn.filter(|asn| speaks_of(*asn, facts.country)),
        ..facts
    };
    build(inputs, relevant, |class| {
        let client = Client::new(class.client, class.facts);
        rank(&classify(&client, snapshot), snapshot).for_regions(plan)
    })
}

/// Compiles for any kind of list.
///
/// `relevant` takes from facts what `rank` does not look at (an ASN that nobody speaks of), so that fewer classes are told apart.
/// `rank` is asked once for every class.
///
/// # Errors
/// See [`CompileError`].
pub fn build<L: Eq + Hash>(
    inputs: Inputs<'_>,
    relevant: impl Fn(Facts) -> Facts,
    rank: impl FnMut(&Class) -> L,
) -> Result<Compiled<L>, CompileError> {
    if inputs.prefixes.len() > PREFIXES_MAX {
        return Err(CompileError::Prefixes);
    }
    let mut lists = Lists {
        relevant,
        rank,
        of_class: HashMap::default(),
        ids: HashMap::default(),
        of_facts: Vec::new(),
        last: None,
    };
    let v4 = sweep(
        Family::V4,
        inputs.databases,
        inputs.prefixes,
        &mut |segment: &Segment<'_>| lists.id(segment),
    )?;
    let v6 = sweep(
        Family::V6,
        inputs.databases,
        inputs.prefixes,
        &mut |segment: &Segment<'_>| lists.id(segment),
    )?;
    let tables = Tables {
        v4: trie::Table::new(Family::V4, &v4)?,
        v6: trie::Table::new(Family::V6, &v6)?,
    };
    let figures = Figures {
        classes: lists.of_class.len(),
        lists: lists.ids.len(),
        runs_v4: v4.len(),
        runs_v6: v6.len(),
        bytes: tables.bytes(),
    };
    Ok(Compiled {
        tables,
        lists: lists.in_order(),
        figures,
    })
}

/// The id of every list met so far.
struct Lists<L, K, R> {
    relevant: K,
    rank: R,
    of_class: HashMap<Key, u32, FixedState>,
    ids: HashMap<L, u32, FixedState>,
    /// By [`Segment::facts_id`], for segments without a prefix; [`NO_LIST`]: not met yet. A city database has millions of networks and few
    /// neighbours of one class, and what is looked up here stays in the processor's cache.
    of_facts: Vec<u32>,
    /// Neighbours are often of one class.
    last: Option<(Key, u32)>,
}

/// A class without the client that stands for it.
type Key = (Facts, Option<u32>);

impl<L, K, R> Lists<L, K, R>
where
    L: Eq + Hash,
    K: Fn(Facts) -> Facts,
    R: FnMut(&Class) -> L,
{
    fn id(&mut self, segment: &Segment<'_>) -> Result<u32, CompileError> {
        let facts_id = segment.facts_id.filter(|_| segment.prefix.is_none());
        let Some(at) = facts_id.and_then(|id| usize::try_from(id).ok()) else {
            return self.id_of_key(segment);
        };
        if let Some(id) = self.of_facts.get(at).filter(|id| **id != NO_LIST) {
            return Ok(*id);
        }
        let id = self.id_of_key(segment)?;
        if at >= self.of_facts.len() {
            self.of_facts.resize(at + 1, NO_LIST);
        }
        if let Some(place) = self.of_facts.get_mut(at) {
            *place = id;
        }
        Ok(id)
    }

    fn id_of_key(&mut self, segment: &Segment<'_>) -> Result<u32, CompileError> {
        let key = ((self.relevant)(segment.facts()), segment.prefix);
        if let Some((last, id)) = self.last
            && last == key
        {
            return Ok(id);
        }
        let id = match self.of_class.get(&key) {
            Some(id) => *id,
            None => self.rank(key, segment.client)?,
        };
        self.last = Some((key, id));
        Ok(id)
    }

    fn rank(&mut self, key: Key, client: IpAddr) -> Result<u32, CompileError> {
        let class = Class {
            client,
            facts: key.0,
        };
        let next = self.ids.len();
        let next = u32::try_from(next).ok().filter(|_| next < LISTS_MAX);
        let id = match self.ids.entry((self.rank)(&class)) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => *entry.insert(next.ok_or(CompileError::Lists)?),
        };
        self.of_class.insert(key, id);
        Ok(id)
    }

    fn in_order(self) -> Vec<L> {
        let mut lists: Vec<_> = self.ids.into_iter().collect();
        lists.sort_unstable_by_key(|(_, id)| *id);
        lists.into_iter().map(|(list, _)| list).collect()
    }
}
