//! What is said to a question: the vocabulary between the zone and those who write messages.
//!
//! An [`Answer`] names sets, it holds none: the fast path looks up bytes by it, the slow path builds messages from it.

use crate::record::{Class, Type};

/// The question of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The name in wire form, uncompressed and lower case.
    pub name: &'a [u8],
    /// The type.
    pub rtype: Type,
    /// The class.
    pub class: Class,
}

/// A set of the zone that is the same for every client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SetId(pub(crate) u16);

/// A name of the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(pub(crate) u16);

/// What is said to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These records.
    Set(SetId),
    /// The records of this type that the selection for the client has; no data where it has none.
    Steered(SteeredType),
    /// The signatures of what the same question for any type would be answered with, alone.
    Signatures(Signed),
    /// A text on why the client is sent where it is sent.
    Explain,
    /// What the server says of itself.
    Chaos(Chaos),
    /// The name exists, records of the type do not.
    NoData(NodeId),
    /// The name does not exist.
    NoName,
    /// The name of explanations has no records of the type. It is a zone of its own, which is not signed, so there is no proof.
    CutNoData,
    /// No name there is below it.
    CutNoName,
    /// Not ours to answer.
    Refused,
    /// A kind of question this server does not know.
    NotImplemented,
    /// No question anybody may ask.
    FormErr,
}

/// Types at the steered name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeredType {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Service bindings.
    Https,
    /// The first of A, AAAA and HTTPS that there is: one set is enough for a question for any type (RFC 8482 §4.1).
    First,
}

/// Whose signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// Of a set that is the same for every client.
    Set(SetId),
    /// Of the first set of the selection for the client.
    Steered,
}

/// Questions in class CH (RFC 4892).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chaos {
    /// `id.server`, `hostname.bind`: which node this is, as NSID says (RFC 5001).
    Identity,
    /// `version.bind`, `version.server`: the name of the program.
    Version,
}

/// Response codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rcode {
    /// No error.
    NoError,
    /// Format error.
    FormErr,
    /// Server failure.
    ServFail,
    /// The name does not exist.
    NxDomain,
    /// Not implemented.
    NotImp,
    /// Refused.
    Refused,
    /// Not ours to verify: a transaction signature (RFC 8945).
    NotAuth,
    /// EDNS version not known; its upper bits are in the OPT record.
    BadVers,
    /// The server cookie is wrong (RFC 7873 §8).
    BadCookie,
}

impl Rcode {
    /// All twelve bits.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::NoError => 0,
            Self::FormErr => 1,
            Self::ServFail => 2,
            Self::NxDomain => 3,
            Self::NotImp => 4,
            Self::Refused => 5,
            Self::NotAuth => 9,
            Self::BadVers => 16,
            Self::BadCookie => 23,
        }
    }
}

impl Answer {
    /// The response code that goes with it.
    #[must_use]
    pub const fn rcode(self) -> Rcode {
        match self {
            Self::Set(_)
            | Self::Steered(_)
            | Self::Signatures(_)
            | Self::Explain
            | Self::Chaos(_)
            | Self::NoData(_)
            | Self::CutNoData => Rcode::NoError,
            Self::NoName | Self::CutNoName => Rcode::NxDomain,
            Self::Refused => Rcode::Refused,
            Self::NotImplemented => Rcode::NotImp,
            Self::FormErr => Rcode::FormErr,
        }
    }

    /// Whether the server speaks with authority (bit AA).
    #[must_use]
    pub const fn is_authoritative(self) -> bool {
        match self {
            Self::Set(_)
            | Self::Steered(_)
            | Self::Signatures(_)
            | Self::Explain
            | Self::Chaos(_)
            | Self::NoData(_)
            | Self::NoName
            | Self::CutNoData
            | Self::CutNoName => true,
            Self::Refused | Self::NotImplemented | Self::FormErr => false,
        }
    }
}
