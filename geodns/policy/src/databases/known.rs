//! What a database knows, apart from its file: distinct facts, and runs of addresses that share them.
//!
//! ```text
//! firsts   first address of each run, ascending from 0        facts of an address: the last run that begins at or before it
//! ids      index of its facts
//! ```
//!
//! This is half the size of a file or less, is swept in milliseconds whenever tables are compiled, and holds nothing that could be
//! damaged: whatever was wrong with the bytes was found when they were walked.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::databases::database::{DatabaseError, Survey};
use crate::databases::networks::{Network, Networks};
use crate::databases::record::Record;
use crate::facts::Facts;

/// Index of facts; 0: nothing is known.
type FactsId = u32;

/// Runs of one address family.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    firsts: Firsts,
    ids: Vec<FactsId>,
}

/// An IPv4 address takes four bytes, an IPv6 address sixteen.
#[derive(Debug)]
enum Firsts {
    V4(Vec<u32>),
    V6(Vec<u128>),
}

impl Default for Firsts {
    fn default() -> Self {
        Self::V6(Vec::new())
    }
}

impl Runs {
    /// The run that holds an address: its place.
    pub(crate) fn find(&self, address: u128) -> usize {
        let after = match &self.firsts {
            Firsts::V4(firsts) => firsts.partition_point(|first| u128::from(*first) <= address),
            Firsts::V6(firsts) => firsts.partition_point(|first| *first <= address),
        };
        after.saturating_sub(1)
    }

    /// Facts of a run.
    pub(crate) fn id(&self, run: usize) -> FactsId {
        self.ids.get(run).copied().unwrap_or_default()
    }

    /// First address of a run; `None` after the last.
    pub(crate) fn first(&self, run: usize) -> Option<u128> {
        match &self.firsts {
            Firsts::V4(firsts) => firsts.get(run).map(|first| u128::from(*first)),
            Firsts::V6(firsts) => firsts.get(run).copied(),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        let firsts = match &self.firsts {
            Firsts::V4(firsts) => firsts.len() * size_of::<u32>(),
            Firsts::V6(firsts) => firsts.len() * size_of::<u128>(),
        };
        firsts + self.ids.len() * size_of::<FactsId>()
    }

    fn push(&mut self, first: u128, id: FactsId) {
        if self.ids.last() == Some(&id) {
            return;
        }
        match &mut self.firsts {
            Firsts::V4(firsts) => firsts.push(u32::try_from(first).unwrap_or(u32::MAX)),
            Firsts::V6(firsts) => firsts.push(first),
        }
        self.ids.push(id);
    }

    fn shrink(&mut self) {
        match &mut self.firsts {
            Firsts::V4(firsts) => firsts.shrink_to_fit(),
            Firsts::V6(firsts) => firsts.shrink_to_fit(),
        }
        self.ids.shrink_to_fit();
    }
}

/// What facts are of: kept beside their index, so that counting a network reads nothing else.
#[derive(Clone, Copy, Debug, Default)]
struct Kinds {
    located: bool,
    coordinates: bool,
    asn: bool,
}

impl Kinds {
    const fn of(facts: &Facts) -> Self {
        Self {
            located: facts.country.is_some() || facts.continent.is_some(),
            coordinates: facts.location.is_some(),
            asn: facts.asn.is_some(),
        }
    }
}

/// Takes what is known out of a walk.
pub(crate) struct Collector {
    /// Facts by where their record is in the file.
    of_record: HashMap<usize, (FactsId, Kinds), FixedState>,
    ids: HashMap<Facts, FactsId, FixedState>,
    pub(crate) facts: Vec<Facts>,
    pub(crate) survey: Survey,
}

impl Collector {
    pub(crate) fn new() -> Self {
        let nothing = Facts::default();
        Self {
            of_record: HashMap::default(),
            ids: HashMap::from_iter([(nothing, 0)]),
            facts: vec![nothing],
            survey: Survey::default(),
        }
    }

    pub(crate) fn v4(&mut self, networks: Networks<'_>) -> Result<Runs, DatabaseError> {
        let mut runs = Runs {
            firsts: Firsts::V4(Vec::new()),
            ids: Vec::new(),
        };
        self.survey.ipv4 = self.collect(networks, &mut runs)?;
        Ok(runs)
    }

    pub(crate) fn v6(&mut self, networks: Networks<'_>) -> Result<Runs, DatabaseError> {
        let mut runs = Runs::default();
        self.survey.ipv6 = self.collect(networks, &mut runs)?;
        Ok(runs)
    }

    /// How many networks something is known of.
    fn collect(&mut self, networks: Networks<'_>, runs: &mut Runs) -> Result<u64, DatabaseError> {
        let mut known = 0;
        let mut first = 0;
        for network in networks {
            let network = network?;
            let (id, kinds) = self.id(&network);
            if id != 0 {
                known += 1;
                self.survey.located += u64::from(kinds.located);
                self.survey.coordinates += u64::from(kinds.coordinates);
                self.survey.asn += u64::from(kinds.asn);
            }
            runs.push(first, id);
            first = network.last.wrapping_add(1);
        }
        runs.shrink();
        Ok(known)
    }

    fn id(&mut self, network: &Network<'_>) -> (FactsId, Kinds) {
        let nothing = (0, Kinds::default());
        let Some(found) = &network.found else {
            return nothing;
        };
        let Some(offset) = found.offset() else {
            return nothing;
        };
        if let Some(known) = self.of_record.get(&offset) {
            return *known;
        }
        self.survey.records += 1;
        let facts = match found.decode::<Record>() {
            Ok(Some(Record(facts))) => facts,
            Ok(None) | Err(_) => {
                self.survey.records_bad += 1;
                Facts::default()
            }
        };
        let next = u32::try_from(self.facts.len()).unwrap_or(u32::MAX);
        let id = match self.ids.entry(facts) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                self.facts.push(facts);
                *entry.insert(next)
            }
        };
        let known = (id, Kinds::of(&facts));
        self.of_record.insert(offset, known);
        known
    }
}
