//! What the fast path counts: plain totals of one worker, by closed lists of labels. Publishing them is the shell's.

use crate::cookie::Standing;
use crate::query::{Garbage, Unusual};
use crate::render::Kind;

/// Response codes the fast path answers with, NODATA apart from NOERROR with records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Records.
    NoError,
    /// The name is there, the type is not.
    NoData,
    /// The name is not there.
    NxDomain,
    /// Malformed.
    FormErr,
    /// Not our zone.
    Refused,
    /// A version of EDNS we do not speak.
    BadVers,
}

impl Outcome {
    /// Every outcome, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::NoError,
        Self::NoData,
        Self::NxDomain,
        Self::FormErr,
        Self::Refused,
        Self::BadVers,
    ];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoError => "noerror",
            Self::NoData => "nodata",
            Self::NxDomain => "nxdomain",
            Self::FormErr => "formerr",
            Self::Refused => "refused",
            Self::BadVers => "badvers",
        }
    }
}

/// Why a packet gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Shorter than a header.
    Short,
    /// A response.
    Response,
    /// Port 0: no answer could arrive.
    SourcePort,
    /// Longer than any query.
    Oversize,
    /// Over the limit of its source prefix.
    RateLimited,
    /// The slow path has as much to do as it takes.
    SlowFull,
}

impl DropReason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 6] = [
        Self::Short,
        Self::Response,
        Self::SourcePort,
        Self::Oversize,
        Self::RateLimited,
        Self::SlowFull,
    ];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Response => "response",
            Self::SourcePort => "source_port",
            Self::Oversize => "oversize",
            Self::RateLimited => "rate_limited",
            Self::SlowFull => "slow_full",
        }
    }
}

impl From<Garbage> for DropReason {
    fn from(garbage: Garbage) -> Self {
        match garbage {
            Garbage::Short => Self::Short,
            Garbage::Response => Self::Response,
        }
    }
}

/// Why a query goes the slow way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlowReason {
    /// Another opcode than QUERY.
    Opcode,
    /// Counts of records that an ordinary query does not have.
    Counts,
    /// The truncation bit is set.
    Truncated,
    /// A class other than IN.
    Class,
    /// A type that is no record's.
    MetaType,
    /// An additional record that is not OPT.
    Additional,
    /// A name or type whose answer is not bytes yet: `_explain` ...
    Name,
    /// Its signed form is not bytes yet.
    Signed,
}

impl SlowReason {
    /// Every reason, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Opcode,
        Self::Counts,
        Self::Truncated,
        Self::Class,
        Self::MetaType,
        Self::Additional,
        Self::Name,
        Self::Signed,
    ];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Opcode => "opcode",
            Self::Counts => "counts",
            Self::Truncated => "truncated",
            Self::Class => "class",
            Self::MetaType => "meta_type",
            Self::Additional => "additional",
            Self::Name => "name",
            Self::Signed => "signed",
        }
    }
}

impl From<Unusual> for SlowReason {
    fn from(unusual: Unusual) -> Self {
        match unusual {
            Unusual::Opcode => Self::Opcode,
            Unusual::Counts => Self::Counts,
            Unusual::Truncated => Self::Truncated,
            Unusual::Class => Self::Class,
            Unusual::MetaType => Self::MetaType,
            Unusual::Additional => Self::Additional,
        }
    }
}

/// Which client a steered answer was chosen for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The resolver's address: no client subnet.
    Resolver,
    /// A client subnet of IPv4.
    SubnetV4,
    /// A client subnet of IPv6.
    SubnetV6,
    /// The resolver's address: the client asked not to be known.
    OptOut,
}

impl Basis {
    /// Every basis, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::Resolver, Self::SubnetV4, Self::SubnetV6, Self::OptOut];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolver => "resolver",
            Self::SubnetV4 => "subnet_v4",
            Self::SubnetV6 => "subnet_v6",
            Self::OptOut => "opt_out",
        }
    }
}

/// Totals of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets looked at.
    pub queries: u64,
    /// Answers truncated because they are longer than the asker takes.
    pub truncated: u64,
    /// Answers truncated because they were over a limit.
    pub slipped: u64,
    outcomes: [u64; Outcome::ALL.len()],
    kinds: [u64; Kind::ALL.len()],
    drops: [u64; DropReason::ALL.len()],
    slow: [u64; SlowReason::ALL.len()],
    cookies: [u64; Standing::ALL.len()],
    bases: [u64; Basis::ALL.len()],
}

macro_rules! cells {
    ($($field:ident, $one:ident: $label:ty;)+) => {
        impl Counts {
            $(
                /// Counts one.
                #[inline]
                pub fn $one(&mut self, label: $label) {
                    if let Some(cell) = self.$field.get_mut(label as usize) {
                        *cell += 1;
                    }
                }

                /// Every label with its total.
                pub fn $field(&self) -> impl Iterator<Item = ($label, u64)> + '_ {
                    <$label>::ALL.into_iter().zip(self.$field)
                }
            )+
        }
    };
}

cells! {
    outcomes, outcome: Outcome;
    kinds, kind: Kind;
    drops, dropped: DropReason;
    slow, handed_over: SlowReason;
    cookies, cookie: Standing;
    bases, basis: Basis;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_has_a_cell_of_its_own() {
        let mut counts = Counts::default();
        for reason in DropReason::ALL {
            counts.dropped(reason);
        }
        SlowReason::ALL
            .into_iter()
            .for_each(|reason| counts.handed_over(reason));
        Outcome::ALL
            .into_iter()
            .for_each(|outcome| counts.outcome(outcome));
        Kind::ALL.into_iter().for_each(|kind| counts.kind(kind));
        Standing::ALL
            .into_iter()
            .for_each(|standing| counts.cookie(standing));
        Basis::ALL.into_iter().for_each(|basis| counts.basis(basis));
        assert!(counts.drops().all(|(_, total)| total == 1));
        assert!(counts.slow().all(|(_, total)| total == 1));
        assert!(counts.outcomes().all(|(_, total)| total == 1));
        assert!(counts.kinds().all(|(_, total)| total == 1));
        assert!(counts.cookies().all(|(_, total)| total == 1));
        assert!(counts.bases().all(|(_, total)| total == 1));
    }
}
