//! Signing the zone, and the proof that a name or a type does not exist.
//!
//! ```text
//! rtc.example.com ─► ns1.rtc.. ─► ams.ingress.rtc.. ─► .. ─► signaling.rtc.. ─► eu.signaling.rtc.. ─► (rtc.example.com)
//!                 NSEC: the next name that has records, and the types of this one
//! ```
//!
//! Absence is proven by a plain NSEC chain (RFC 4034 §4), made and signed with the zone. A question for a name nobody thought of
//! costs two binary searches and no signature, so a flood of random names under DNSSEC is as cheap as without, the key is never
//! on the way of a query, and resolvers may answer such floods themselves (RFC 8198). What others hide by signing on demand (RFC
//! 9824 and white lies) are here the names of regions and PoPs, which clients are told anyway.

use crate::answer::{Answer, NodeId, SetId};
use crate::dnssec::{SignError, Signer};
use crate::name::{self, Name};
use crate::record::{Rdata, Rrset, Type};
use crate::zone::{Kind, Node, Steered, Zone};

/// Why a zone is not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DenialError {
    /// See [`SignError`].
    #[error(transparent)]
    Sign(#[from] SignError),
    /// More sets than ids have bits for.
    #[error("more than 65535 record sets")]
    TooMany,
}

/// The chain: names that have records, in canonical order, and their NSEC sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    links: Vec<(NodeId, SetId)>,
}

/// Proofs for all names that are missing between one name and the next: see `render::Gap`.
pub(crate) struct GapProofs<'a> {
    pub(crate) name: &'a Name,
    pub(crate) begin: Vec<[Option<SetId>; 2]>,
    pub(crate) end: Vec<[Option<SetId>; 2]>,
}

impl Zone {
    /// The same zone with its keys, proofs of absence and signatures.
    ///
    /// # Errors
    /// See [`DenialError`].
    pub fn sign(mut self, signer: &Signer<'_>) -> Result<Self, DenialError> {
        self.add_keys(signer)?;
        self.add_chain()?;
        let cut = self.cut.as_ref().map(|(name, _)| name);
        for set in &mut self.sets {
            // What is at a cut is the other zone's to sign, but for the proof that there is no DS (RFC 4035 §2.2).
            if set.rtype == Type::NSEC || Some(&set.name) != cut {
                signer.sign(set)?;
            }
        }
        Ok(self)
    }

    /// Signs the records of a selection and adds the proof of which types it has. Does nothing in an unsigned zone.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn sign_steered(
        &self,
        steered: &mut Steered,
        signer: &Signer<'_>,
    ) -> Result<(), SignError> {
        if !self.is_signed() {
            return Ok(());
        }
        steered.nsec = self.steered_nsec(steered);
        let sets = [
            &mut steered.a,
            &mut steered.aaaa,
            &mut steered.https,
            &mut steered.nsec,
        ];
        for set in sets.into_iter().flatten() {
            signer.sign(set)?;
        }
        Ok(())
    }

    /// NSEC sets that prove `answer`, which was given to a question for `name`; none in an unsigned zone, or when nothing is absent.
    /// For a type that the selection for a client lacks it is `Steered::nsec`.
    #[must_use]
    pub fn denial(&self, answer: Answer, name: &[u8]) -> [Option<SetId>; 2] {
        match answer {
            Answer::NoData(id) => {
                let name = self.node(id).map_or(name, |node| node.name.as_wire());
                [self.covering(name), None]
            }
            Answer::NoName => {
                let first = self.covering(name);
                let wildcard = self.wildcard(name);
                let second = wildcard.and_then(|name| self.covering(name.as_wire()));
                [first, second.filter(|id| Some(*id) != first)]
            }
            Answer::Set(_)
            | Answer::Steered(_)
            | Answer::Signatures(_)
            | Answer::Explain
            | Answer::Chaos(_)
            | Answer::CutNoData
            | Answer::CutNoName
            | Answer::Refused
            | Answer::NotImplemented
            | Answer::FormErr => [None, None],
        }
    }

    /// Every gap of the chain.
    pub(crate) fn gaps(&self) -> impl Iterator<Item = GapProofs<'_>> {
        let next = self.chain.links.iter().cycle().skip(1);
        self.chain
            .links
            .iter()
            .zip(next)
            .filter_map(|(link, next)| {
                let (name, end) = (&self.node(link.0)?.name, &self.node(next.0)?.name);
                Some(GapProofs {
                    name,
                    begin: self.proofs_by_encloser(link.1, name),
                    end: self.proofs_by_encloser(link.1, end),
                })
            })
    }

    /// What proves a missing name whose gap has the NSEC `first`, for each name from the zone's down to `lowest` that may be the
    /// longest one there is above it.
    fn proofs_by_encloser(&self, first: SetId, lowest: &Name) -> Vec<[Option<SetId>; 2]> {
        let mut proofs = Vec::new();
        let mut at = Some(lowest.as_wire());
        while let Some(name) = at.filter(|name| name::is_within(name, self.apex.as_wire())) {
            let wildcard = self
                .node_of(name)
                .and_then(|node| node.name.below("*").ok());
            let second = wildcard.and_then(|name| self.covering(name.as_wire()));
            proofs.push([Some(first), second.filter(|id| *id != first)]);
            at = name::parent(name);
        }
        proofs.reverse();
        proofs
    }

    /// The NSEC of `name`, or the one whose gap `name` lies in.
    fn covering(&self, name: &[u8]) -> Option<SetId> {
        let after = self.chain.links.partition_point(|(id, _)| {
            self.node(*id)
                .is_some_and(|node| name::canonical_order(node.name.as_wire(), name).is_le())
        });
        let link = self.chain.links.get(after.checked_sub(1)?)?;
        Some(link.1)
    }

    /// The wildcard that would have answered: below the longest name there is (RFC 4035 §3.1.3.2). `None` when it is too long to exist.
    fn wildcard(&self, name: &[u8]) -> Option<Name> {
        let mut at = name::parent(name);
        while let Some(name) = at {
            if let Some(node) = self.node_of(name) {
                return node.name.below("*").ok();
            }
            at = name::parent(name);
        }
        None
    }

    fn add_keys(&mut self, signer: &Signer<'_>) -> Result<(), DenialError> {
        let ttl_s = self.service.static_ttl_s;
        let dnskeys = signer.keys.dnskeys();
        let sets = [
            (Type::DNSKEY, dnskeys.clone()),
            (Type::CDNSKEY, dnskeys),
            (Type::CDS, signer.keys.ds(&self.apex)),
        ];
        for (rtype, rdata) in sets {
            let id = self.push(Rrset::new(self.apex.clone(), rtype, ttl_s, rdata))?;
            let apex = self.index.get(self.apex.as_wire()).copied();
            if let Some(node) = apex.and_then(|id| self.nodes.get_mut(usize::from(id.0))) {
                node.sets.push(id);
            }
        }
        Ok(())
    }

    fn add_chain(&mut self) -> Result<(), DenialError> {
        let chained: Vec<NodeId> = (0..)
            .map(NodeId)
            .zip(&self.nodes)
            .filter(|(_, node)| !node.sets.is_empty() || node.kind != Kind::Static)
            .map(|(id, _)| id)
            .collect();
        let next = chained.iter().copied().cycle().skip(1);
        for (id, next) in chained.iter().copied().zip(next) {
            let (Some(node), Some(next)) = (self.node(id), self.node(next)) else {
                continue;
            };
            let rdata = Rdata::nsec(&next.name, &self.types(node));
            let ttl_s = self.negative_ttl_s();
            let set = self.push(Rrset::new(
                node.name.clone(),
                Type::NSEC,
                ttl_s,
                vec![rdata],
            ))?;
            if let Some(node) = self.nodes.get_mut(usize::from(id.0)) {
                node.sets.push(set);
            }
            self.chain.links.push((id, set));
        }
        Ok(())
    }

    /// Types of a name, without those that a signed name has for being signed.
    fn types(&self, node: &Node) -> Vec<Type> {
        match node.kind {
            Kind::Static => {
                let sets = node.sets.iter().filter_map(|id| self.set(*id));
                sets.map(|set| set.rtype).collect()
            }
            Kind::Steered => self.service.types(),
            // A cut without a DS: what is below is not signed.
            Kind::Explain => vec![Type::NS],
        }
    }

    fn steered_nsec(&self, steered: &Steered) -> Option<Rrset> {
        let (id, _) = self.chain.links.iter().find(|(id, _)| {
            self.node(*id)
                .is_some_and(|node| node.kind == Kind::Steered)
        })?;
        let at = self.chain.links.iter().position(|link| link.0 == *id)?;
        let next = self.chain.links.iter().cycle().nth(at + 1)?;
        let types: Vec<Type> = [&steered.a, &steered.aaaa, &steered.https]
            .into_iter()
            .flatten()
            .map(|set| set.rtype)
            .collect();
        let rdata = Rdata::nsec(&self.node(next.0)?.name, &types);
        let name = self.service.name.clone();
        // It holds for this client alone. A resolver that kept it would deny the type to others (RFC 8198 §5.2, which looks at no client).
        Some(Rrset::new(name, Type::NSEC, 0, vec![rdata]))
    }

    /// RFC 9077.
    fn negative_ttl_s(&self) -> u32 {
        self.set(self.negative_soa).map_or(0, |set| set.ttl_s)
    }

    fn node_of(&self, name: &[u8]) -> Option<&Node> {
        self.index.get(name).and_then(|id| self.node(*id))
    }

    fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(id.0))
    }

    fn push(&mut self, set: Rrset) -> Result<SetId, DenialError> {
        let id = u16::try_from(self.sets.len()).map_err(|_| DenialError::TooMany)?;
        self.sets.push(set);
        Ok(SetId(id))
    }
}
