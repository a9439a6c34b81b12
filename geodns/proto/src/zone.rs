//! The zone: which names there are, which records they have, and what is said to a question. The one semantic core of the
//! fast and the slow path.
//!
//! ```text
//! ZONE                         SOA, NS, A, AAAA, TXT, CAA
//! NAMESERVER inside the zone   A, AAAA
//! SIGNALING.ZONE               A, AAAA, HTTPS of the selection for the client: see `steered`
//! _explain.SIGNALING.ZONE      TXT, for those who may ask; SOA, NS: a zone of its own, which is not signed
//! REGION.SIGNALING.ZONE        A, AAAA, HTTPS
//! POP.INGRESS.ZONE             A, AAAA
//! names between these          exist, have nothing (RFC 8020)
//! ```
//!
//! The cut at `_explain` is there for validators: what is said from it down, that there is nothing included, has that zone's SOA and
//! no proof; the absence of a DS alone is the parent's to say (RFC 4035 §3.1.4.1).
//!
//! There is no wildcard, alias or delegation to others, so every answer is one lookup. It reads no message and writes none, and does
//! not decide which regions a client gets.

use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use topology::Topology;

use crate::answer::{Answer, Chaos, NodeId, Question, SetId, Signed, SteeredType};
use crate::name::{self, Name};
use crate::record::{Class, Rrset, Type};

mod build;
mod denial;
mod steered;

pub use build::ZoneError;
use denial::Chain;
pub use denial::DenialError;
use steered::Service;
pub use steered::{Carried, Steered};

/// Names and records of the zone.
#[derive(Clone, Debug)]
pub struct Zone {
    apex: Name,
    /// In canonical order.
    nodes: Vec<Node>,
    /// Holds the names of the topology alone, so nobody outside can fill a bucket, and needs no secret seed.
    index: HashMap<Box<[u8]>, NodeId, FixedState>,
    sets: Vec<Rrset>,
    /// The SOA as it stands in negative answers.
    negative_soa: SetId,
    /// The same where the absence is the client's alone.
    steered_soa: SetId,
    /// The name of explanations, and the SOA of negative answers from there down.
    cut: Option<(Name, SetId)>,
    /// Addresses of name servers inside the zone.
    glue: Vec<SetId>,
    /// Empty when the zone is not signed.
    chain: Chain,
    service: Service,
    explain_from: Vec<ipnet::IpNet>,
}

/// A name of the zone.
#[derive(Clone, Debug)]
struct Node {
    name: Name,
    kind: Kind,
    /// In the order of preference for questions for any type; none: the name lies between others.
    sets: Vec<SetId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The same for every client.
    Static,
    /// The steered name.
    Steered,
    /// Explanations of it.
    Explain,
}

/// Names in class CH that are answered.
const CHAOS: [(&[u8], Chaos); 4] = [
    (b"\x02id\x06server\x00", Chaos::Identity),
    (b"\x08hostname\x04bind\x00", Chaos::Identity),
    (b"\x07version\x04bind\x00", Chaos::Version),
    (b"\x07version\x06server\x00", Chaos::Version),
];

impl Zone {
    /// The zone of a topology, unsigned.
    ///
    /// # Errors
    /// See [`ZoneError`]; a topology that `topology::load` accepted and that has a zone gives none.
    pub fn new(topology: &Topology) -> Result<Self, ZoneError> {
        build::zone(topology)
    }

    /// What is said to `question` from `source`, the address its packet came from.
    #[must_use]
    pub fn answer(&self, question: &Question<'_>, source: IpAddr) -> Answer {
        match question.class {
            Class::IN => {}
            Class::CH => return chaos(question),
            Class(_) => return Answer::Refused,
        }
        if !name::is_within(question.name, self.apex.as_wire()) {
            return Answer::Refused;
        }
        if let Some(answer) = meta(question.rtype) {
            return answer;
        }
        let answer = self.of_name(question);
        if answer == Answer::Explain && !self.explains_to(source) {
            return Answer::Refused;
        }
        answer
    }

    /// The same for one who may ask anything.
    pub(crate) fn answer_to_anybody(&self, question: &Question<'_>) -> Answer {
        self.of_name(question)
    }

    /// Names there are.
    pub(crate) fn names(&self) -> impl Iterator<Item = (NodeId, &Name)> {
        (0..)
            .map(NodeId)
            .zip(self.nodes.iter().map(|node| &node.name))
    }

    /// A set an [`Answer`] named.
    #[must_use]
    pub fn set(&self, id: SetId) -> Option<&Rrset> {
        self.sets.get(usize::from(id.0))
    }

    /// All sets that are the same for every client.
    pub fn sets(&self) -> impl Iterator<Item = (SetId, &Rrset)> {
        (0..).map(SetId).zip(&self.sets)
    }

    /// What stands in the additional section of an answer with this set.
    #[must_use]
    pub fn additional(&self, id: SetId) -> &[SetId] {
        if self.set(id).is_some_and(|set| set.rtype == Type::NS) {
            &self.glue
        } else {
            &[]
        }
    }

    /// The SOA for the authority section of answers that have no data or no name: its TTL is how long the absence counts
    /// (RFC 2308 §3).
    #[must_use]
    pub const fn negative_soa(&self) -> SetId {
        self.negative_soa
    }

    /// The same for a type that the selection for one client lacks: that counts no longer than a selection does.
    #[must_use]
    pub const fn steered_soa(&self) -> SetId {
        self.steered_soa
    }

    /// The name of explanations, where a zone of its own begins, and the SOA of its negative answers.
    pub(crate) fn cut(&self) -> Option<(&Name, SetId)> {
        self.cut.as_ref().map(|(name, soa)| (name, *soa))
    }

    /// What is said of a type that a name does not have, DS at a cut excepted.
    pub(crate) fn absence(&self, id: NodeId) -> Answer {
        match self.nodes.get(usize::from(id.0)).map(|node| node.kind) {
            Some(Kind::Explain) => Answer::CutNoData,
            Some(Kind::Static | Kind::Steered) | None => Answer::NoData(id),
        }
    }

    /// The zone's own name.
    #[must_use]
    pub const fn apex(&self) -> &Name {
        &self.apex
    }

    /// The name that is answered with the selection for the client; `None` when no region has an address.
    #[must_use]
    pub fn steered_name(&self) -> Option<&Name> {
        self.nodes
            .iter()
            .find(|node| node.kind == Kind::Steered)
            .map(|node| &node.name)
    }

    fn of_name(&self, question: &Question<'_>) -> Answer {
        let Some(&id) = self.index.get(question.name) else {
            let below = |(cut, _): &(Name, _)| name::is_within(question.name, cut.as_wire());
            return if self.cut.as_ref().is_some_and(below) {
                Answer::CutNoName
            } else {
                Answer::NoName
            };
        };
        let Some(node) = self.nodes.get(usize::from(id.0)) else {
            return Answer::NoName;
        };
        match (node.kind, question.rtype) {
            (Kind::Steered, rtype) => self.of_steered(id, node, rtype),
            (Kind::Explain, Type::TXT | Type::ANY) => Answer::Explain,
            (Kind::Explain, Type::DS) => Answer::NoData(id),
            (Kind::Static, rtype) | (Kind::Explain, rtype @ (Type::SOA | Type::NS)) => {
                self.of_static(id, node, rtype)
            }
            (Kind::Explain, Type(_)) => Answer::CutNoData,
        }
    }

    fn of_static(&self, id: NodeId, node: &Node, rtype: Type) -> Answer {
        let found = if rtype == Type::ANY || rtype == Type::RRSIG {
            self.first(node)
        } else {
            self.typed(node, rtype)
        };
        match found {
            None => Answer::NoData(id),
            Some(set) if rtype == Type::RRSIG => self.signatures(id, Signed::Set(set)),
            Some(set) => Answer::Set(set),
        }
    }

    fn of_steered(&self, id: NodeId, node: &Node, rtype: Type) -> Answer {
        match rtype {
            Type::A => Answer::Steered(SteeredType::A),
            Type::AAAA => Answer::Steered(SteeredType::Aaaa),
            Type::HTTPS if self.service.has_https() => Answer::Steered(SteeredType::Https),
            Type::ANY => Answer::Steered(SteeredType::First),
            Type::RRSIG => self.signatures(id, Signed::Steered),
            Type(_) => self.of_static(id, node, rtype),
        }
    }

    fn signatures(&self, id: NodeId, signed: Signed) -> Answer {
        let is_signed = match signed {
            Signed::Set(set) => self.set(set).is_some_and(|set| !set.signatures.is_empty()),
            Signed::Steered => self.is_signed(),
        };
        if is_signed {
            Answer::Signatures(signed)
        } else {
            Answer::NoData(id)
        }
    }

    /// What a question for any type is answered with: never an NSEC, which would stand for "nothing".
    fn first(&self, node: &Node) -> Option<SetId> {
        node.sets
            .iter()
            .copied()
            .find(|id| self.set(*id).is_some_and(|set| set.rtype != Type::NSEC))
    }

    fn typed(&self, node: &Node, rtype: Type) -> Option<SetId> {
        node.sets
            .iter()
            .copied()
            .find(|id| self.set(*id).is_some_and(|set| set.rtype == rtype))
    }

    fn explains_to(&self, source: IpAddr) -> bool {
        let source = source.to_canonical();
        self.explain_from.iter().any(|net| net.contains(&source))
    }

    /// Whether it has signatures.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.set(self.negative_soa)
            .is_some_and(|set| !set.signatures.is_empty())
    }
}

/// What is said to questions for types that no name has.
const fn meta(rtype: Type) -> Option<Answer> {
    match rtype {
        // RFC 6891 §6.1.1; RFC 9824 §4.
        Type::OPT | Type::NXNAME => Some(Answer::FormErr),
        // Nobody transfers the zone: every node makes it from the topology.
        Type::AXFR | Type::IXFR => Some(Answer::Refused),
        Type::ANY => None,
        // RFC 6895 §3.1.
        Type(129..=254) => Some(Answer::NotImplemented),
        Type(_) => None,
    }
}

fn chaos(question: &Question<'_>) -> Answer {
    let known = CHAOS
        .iter()
        .find(|(name, _)| *name == question.name)
        .map(|(_, chaos)| *chaos);
    match (known, question.rtype) {
        (Some(chaos), Type::TXT | Type::ANY) => Answer::Chaos(chaos),
        (Some(_) | None, Type(_)) => Answer::Refused,
    }
}

#[cfg(test)]
mod tests;
