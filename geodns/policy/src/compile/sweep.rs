//! One pass over all addresses of a family: every source is a partition in order, and where one changes a segment ends.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::compile::ranges::{Mark, flatten};
use crate::compile::{CompileError, RUNS_MAX};
use crate::databases::{Database, Databases, Runs, fill, placed, special};
use crate::facts::Facts;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// The last address; the first is 0.
    pub(crate) const fn last(self) -> u128 {
        match self {
            Self::V4 => u32::MAX as u128,
            Self::V6 => u128::MAX,
        }
    }

    /// What an address lacks of 128 bits.
    pub(crate) const fn bits_missing(self) -> u32 {
        match self {
            Self::V4 => 96,
            Self::V6 => 0,
        }
    }

    /// First and last address of a prefix of this family.
    pub(crate) fn bounds(self, net: IpNet) -> Option<(u128, u128)> {
        match (self, net) {
            (Self::V4, IpNet::V4(net)) => {
                let (first, last) = (u32::from(net.network()), u32::from(net.broadcast()));
                Some((first.into(), last.into()))
            }
            (Self::V6, IpNet::V6(net)) => Some((net.network().into(), net.broadcast().into())),
            (Self::V4, IpNet::V6(_)) | (Self::V6, IpNet::V4(_)) => None,
        }
    }

    fn address(self, bits: u128) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into()),
            Self::V6 => IpAddr::V6(bits.into()),
        }
    }

    fn special(self) -> Vec<Mark<Space>> {
        let v4 = special::V4
            .iter()
            .map(|(net, _)| (IpNet::V4(*net), Space::Special));
        let v6 = special::V6
            .iter()
            .map(|(net, _)| (IpNet::V6(*net), Space::Special));
        let carrying = special::CARRYING
            .iter()
            .map(|net| (IpNet::V6(*net), Space::Carrying));
        flatten(self, Space::Ordinary, v4.chain(v6).chain(carrying))
    }

    const fn runs(self, database: &Database) -> &Runs {
        match self {
            Self::V4 => database.v4(),
            Self::V6 => database.v6(),
        }
    }
}

/// Addresses that no source tells apart.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// The first of them.
    pub(crate) client: IpAddr,
    /// What databases say of them; `None`: they are nobody's.
    known: Option<&'a Known<'a>>,
    /// Where their facts are in the only database there is; `None`: they are of several, or of none.
    pub(crate) facts_id: Option<u32>,
    /// Index of the longest prefix of rules and measurements that holds them.
    pub(crate) prefix: Option<u32>,
}

impl Segment<'_> {
    /// What is known of them. Millions of segments of one database are told apart by where their facts are, and these are not read.
    pub(crate) fn facts(&self) -> Facts {
        self.known.map(Known::facts).unwrap_or_default()
    }
}

/// Neighbours with one list, up to the next run. Runs begin at 0, leave no gap, and differ from their neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u128,
    pub(crate) list: u32,
}

/// The list of addresses that are never looked up: they carry an IPv4 address.
pub(crate) const NO_LIST: u32 = (1 << 24) - 1;

/// Walks all addresses and asks for the list of every segment.
pub(crate) fn sweep(
    family: Family,
    databases: &Databases,
    prefixes: &[IpNet],
    list_of: &mut impl FnMut(&Segment<'_>) -> Result<u32, CompileError>,
) -> Result<Vec<Run>, CompileError> {
    let labelled = prefixes
        .iter()
        .zip(0_u32..)
        .map(|(net, index)| (*net, Some(index)));
    let prefix_marks = flatten(family, None, labelled);
    let special_marks = family.special();
    let mut prefix = Cursor::new(&prefix_marks, family);
    let mut space = Cursor::new(&special_marks, family);
    let mut known = Known::new(family, databases);
    let mut runs: Vec<Run> = Vec::new();
    let mut first = 0;
    loop {
        let last = prefix.last.min(space.last).min(known.last);
        let known_here = match space.label {
            Space::Ordinary => Some(&known),
            Space::Special | Space::Carrying => None,
        };
        let list = match space.label {
            Space::Carrying => NO_LIST,
            Space::Ordinary | Space::Special => list_of(&Segment {
                client: family.address(first),
                known: known_here,
                facts_id: known_here.and_then(Known::facts_id),
                prefix: prefix.label,
            })?,
        };
        if runs.last().is_none_or(|run| run.list != list) {
            if runs.len() >= RUNS_MAX {
                return Err(CompileError::Runs);
            }
            runs.push(Run { first, list });
        }
        if last >= family.last() {
            break;
        }
        first = last + 1;
        prefix.advance(first);
        space.advance(first);
        known.advance(first, family.last());
    }
    Ok(runs)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Ordinary,
    Special,
    Carrying,
}

/// Walks along marks.
struct Cursor<'a, T> {
    rest: &'a [Mark<T>],
    label: T,
    /// Last address of the label.
    last: u128,
    end: u128,
}

impl<'a, T: Copy> Cursor<'a, T> {
    /// `marks` begins with one at 0, as [`flatten`] makes it.
    fn new(marks: &'a [Mark<T>], family: Family) -> Self {
        let (&(_, label), rest) = marks
            .split_first()
            .expect("flatten marks the first address");
        let mut cursor = Self {
            rest,
            label,
            last: 0,
            end: family.last(),
        };
        cursor.measure();
        cursor
    }

    fn measure(&mut self) {
        self.last = self.rest.first().map_or(self.end, |(next, _)| next - 1);
    }

    fn advance(&mut self, to: u128) {
        if to > self.last
            && let Some((&(_, label), rest)) = self.rest.split_first()
        {
            (self.label, self.rest) = (label, rest);
            self.measure();
        }
    }
}

/// All databases side by side.
struct Known<'a> {
    sources: Vec<Source<'a>>,
    /// Last address their facts hold for.
    last: u128,
}

struct Source<'a> {
    database: &'a Database,
    runs: &'a Runs,
    run: usize,
    facts_id: u32,
    last: u128,
    end: u128,
}

impl<'a> Known<'a> {
    fn new(family: Family, databases: &'a Databases) -> Self {
        let sources = databases.as_slice().iter().map(|database| {
            let mut source = Source {
                database,
                runs: family.runs(database),
                run: 0,
                facts_id: 0,
                last: 0,
                end: family.last(),
            };
            source.read();
            source
        });
        let mut known = Self {
            sources: sources.collect(),
            last: 0,
        };
        known.join(family.last());
        known
    }

    fn advance(&mut self, to: u128, end: u128) {
        if to <= self.last {
            return;
        }
        for source in &mut self.sources {
            if to > source.last {
                source.run += 1;
                source.read();
            }
        }
        self.join(end);
    }

    fn join(&mut self, end: u128) {
        let lasts = self.sources.iter().map(|source| source.last);
        self.last = lasts.min().unwrap_or(end);
    }

    fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        for source in &self.sources {
            fill(&mut facts, &source.database.facts_of(source.facts_id));
        }
        placed(facts)
    }

    fn facts_id(&self) -> Option<u32> {
        match self.sources.as_slice() {
            [only] => Some(only.facts_id),
            _ => None,
        }
    }
}

impl Source<'_> {
    fn read(&mut self) {
        self.facts_id = self.runs.id(self.run);
        let next = self.runs.first(self.run + 1);
        self.last = next.map_or(self.end, |next| next - 1);
    }
}
