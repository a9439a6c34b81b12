//! What the zone holds at one moment: the sets that are the same for everybody, and those of each selection. Puts sections together
//! for the slow path, and renders all of them for the fast path.

use crate::answer::{Answer, Question, SetId, Signed, SteeredType};
use crate::record::{Class, Owner, Rrset, Type};
use crate::render::{
    self, AnswerId, Gap, Kind, Records, RenderError, Rendered, RenderedBuilder, Says,
};
use crate::zone::{Steered, Zone};

/// The zone and its selections.
#[derive(Clone, Debug)]
pub struct Content {
    zone: Zone,
    steered: Vec<Steered>,
}

/// Records or signatures of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Its records.
    Records(&'a Rrset),
    /// What signs them.
    Signatures(&'a Rrset),
}

/// Sections of an answer, without OPT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sections<'a> {
    /// Answer.
    pub answers: Vec<Part<'a>>,
    /// Authority.
    pub authority: Vec<Part<'a>>,
    /// Additional.
    pub additional: Vec<Part<'a>>,
}

impl Content {
    /// `steered` has the records of each selection, signed if the zone is, in the order of [`AnswerId`]s.
    #[must_use]
    pub const fn new(zone: Zone, steered: Vec<Steered>) -> Self {
        Self { zone, steered }
    }

    /// The zone.
    #[must_use]
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Sections of `answer`, which was given to a question for `name`. `selection` is the client's, `signed` whether signatures are
    /// wanted. What a server says of itself, and explanations, are the caller's.
    #[must_use]
    pub fn sections(
        &self,
        answer: Answer,
        name: &[u8],
        selection: AnswerId,
        signed: bool,
    ) -> Sections<'_> {
        let mut sections = Sections::default();
        match answer {
            Answer::Set(id) => {
                put(&mut sections.answers, self.zone.set(id), signed);
                for id in self.zone.additional(id) {
                    put(&mut sections.additional, self.zone.set(*id), signed);
                }
            }
            Answer::Steered(rtype) => {
                let steered = self.steered.get(usize::from(selection.0));
                match steered.and_then(|steered| steered.of_type(rtype)) {
                    Some(set) => put(&mut sections.answers, Some(set), signed),
                    None => {
                        let proof = steered.and_then(|steered| steered.nsec.as_ref());
                        let soa = self.zone.steered_soa();
                        self.put_denial(&mut sections.authority, soa, [proof, None], signed);
                    }
                }
            }
            Answer::Signatures(of) => {
                let set = match of {
                    Signed::Set(id) => self.zone.set(id),
                    Signed::Steered => self
                        .steered
                        .get(usize::from(selection.0))
                        .and_then(Steered::first),
                };
                sections.answers.extend(set.map(Part::Signatures));
            }
            Answer::NoData(_) | Answer::NoName => {
                let proofs = self.zone.denial(answer, name);
                let proofs = proofs.map(|id| id.and_then(|id| self.zone.set(id)));
                let soa = self.zone.negative_soa();
                self.put_denial(&mut sections.authority, soa, proofs, signed);
            }
            Answer::CutNoData | Answer::CutNoName => {
                let soa = self.zone.cut().and_then(|(_, soa)| self.zone.set(soa));
                put(&mut sections.authority, soa, signed);
            }
            Answer::Explain
            | Answer::Chaos(_)
            | Answer::Refused
            | Answer::NotImplemented
            | Answer::FormErr => {}
        }
        sections
    }

    /// Every answer as bytes. `seed` is random: it keys the hash of names.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn render(&self, seed: u64) -> Result<Rendered, RenderError> {
        let mut builder = RenderedBuilder::new(self.zone.apex().as_wire(), seed)?;
        for (id, name) in self.zone.names() {
            let absence = self.zone.absence(id);
            let nodata = self.fixed(absence, name.as_wire());
            let says = |kind| Some((kind, self.says(name.as_wire(), rtype_of(kind)?, absence)?));
            let says: Vec<_> = Kind::ALL.into_iter().filter_map(says).collect();
            builder.name(name.as_wire(), nodata, says)?;
        }
        let absent = self.absent([None, None], false);
        builder.absent(render::Answer {
            signed: (!self.zone.is_signed()).then(|| absent.clone()),
            plain: absent,
        })?;
        if let Some((name, _)) = self.zone.cut() {
            let sections = self.sections(Answer::CutNoName, name.as_wire(), AnswerId(0), false);
            let records = write_absent(&sections);
            builder.cut(name.as_wire(), render::Answer::unsigned(records))?;
        }
        for gap in self.zone.gaps() {
            let records = |list: Vec<[Option<SetId>; 2]>| {
                let records = list.into_iter().map(|proofs| self.absent(proofs, true));
                records.collect()
            };
            builder.gap(&Gap {
                name: gap.name.as_wire().to_vec(),
                begin: records(gap.begin),
                end: records(gap.end),
            })?;
        }
        Ok(builder.build())
    }

    /// `None`: what is said of types that the name does not have, `absence`.
    fn says(&self, name: &[u8], rtype: Type, absence: Answer) -> Option<Says> {
        let question = Question {
            name,
            rtype,
            class: Class::IN,
        };
        let answer = self.zone.answer_to_anybody(&question);
        match answer {
            Answer::Set(_) | Answer::Signatures(Signed::Set(_)) => {
                Some(Says::Fixed(self.fixed(answer, name)))
            }
            Answer::Steered(_) | Answer::Signatures(Signed::Steered) => {
                let ids = (0..).map(AnswerId).take(self.steered.len());
                let answers = ids.map(|id| self.rendered(answer, name, id));
                Some(Says::Steered(answers.collect()))
            }
            Answer::Explain => Some(Says::Slow),
            Answer::NoData(_) if answer != absence => Some(Says::Fixed(self.fixed(answer, name))),
            Answer::NoData(_)
            | Answer::NoName
            | Answer::CutNoData
            | Answer::CutNoName
            | Answer::Chaos(_)
            | Answer::Refused
            | Answer::NotImplemented
            | Answer::FormErr => None,
        }
    }

    fn fixed(&self, answer: Answer, name: &[u8]) -> render::Answer {
        self.rendered(answer, name, AnswerId(0))
    }

    fn rendered(&self, answer: Answer, name: &[u8], selection: AnswerId) -> render::Answer {
        let records = |signed| {
            let sections = self.sections(answer, name, selection, signed);
            sections.write(|set| Owner::of(&set.name, name))
        };
        render::Answer {
            plain: records(false),
            signed: Some(records(true)),
        }
    }

    /// The answer to a missing name.
    fn absent(&self, proofs: [Option<SetId>; 2], signed: bool) -> Records {
        let proofs = proofs.map(|id| id.and_then(|id| self.zone.set(id)));
        let mut sections = Sections::default();
        let soa = self.zone.negative_soa();
        self.put_denial(&mut sections.authority, soa, proofs, signed);
        write_absent(&sections)
    }

    fn put_denial<'a>(
        &'a self,
        section: &mut Vec<Part<'a>>,
        soa: SetId,
        proofs: [Option<&'a Rrset>; 2],
        signed: bool,
    ) {
        put(section, self.zone.set(soa), signed);
        if signed {
            for proof in proofs {
                put(section, proof, signed);
            }
        }
    }
}

impl Part<'_> {
    /// The set.
    #[must_use]
    pub const fn set(&self) -> &Rrset {
        match self {
            Self::Records(set) | Self::Signatures(set) => set,
        }
    }
}

impl Sections<'_> {
    /// In wire form, with the owner of each set in the form that `owner` gives.
    fn write(&self, mut owner: impl FnMut(&Rrset) -> Owner) -> Records {
        let mut records = Records::default();
        let counts = &mut records.counts;
        let sections = [
            (&self.answers, &mut counts.answers),
            (&self.authority, &mut counts.authority),
            (&self.additional, &mut counts.additional),
        ];
        for (parts, count) in sections {
            records.additional_len = records.bytes.len();
            for part in parts {
                let written = match part {
                    Part::Records(set) => set.write(owner(set), &mut records.bytes),
                    Part::Signatures(set) => set.write_signatures(owner(set), &mut records.bytes),
                };
                *count = count.saturating_add(u8::try_from(written).unwrap_or(u8::MAX));
            }
        }
        records.additional_len = records.bytes.len() - records.additional_len;
        records
    }
}

/// Of an answer to a missing name: its first owner is a pointer that is set for each question; others are written out.
fn write_absent(sections: &Sections<'_>) -> Records {
    let mut first = true;
    sections.write(|_| {
        if std::mem::take(&mut first) {
            Owner::At(0)
        } else {
            Owner::Whole
        }
    })
}

fn put<'a>(section: &mut Vec<Part<'a>>, set: Option<&'a Rrset>, signed: bool) {
    let Some(set) = set else { return };
    section.push(Part::Records(set));
    if signed && !set.signatures.is_empty() {
        section.push(Part::Signatures(set));
    }
}

/// The type a kind is, if it is one type.
const fn rtype_of(kind: Kind) -> Option<Type> {
    match kind {
        Kind::A => Some(Type::A),
        Kind::Aaaa => Some(Type::AAAA),
        Kind::Https => Some(Type::HTTPS),
        Kind::Txt => Some(Type::TXT),
        Kind::Soa => Some(Type::SOA),
        Kind::Ns => Some(Type::NS),
        Kind::Caa => Some(Type::CAA),
        Kind::Ds => Some(Type::DS),
        Kind::Any => Some(Type::ANY),
        Kind::Dnskey => Some(Type::DNSKEY),
        Kind::Nsec => Some(Type::NSEC),
        Kind::Cds => Some(Type::CDS),
        Kind::Cdnskey => Some(Type::CDNSKEY),
        Kind::Rrsig => Some(Type::RRSIG),
        Kind::Other => None,
    }
}

impl Steered {
    /// The set a question for `rtype` is answered with.
    #[must_use]
    pub fn of_type(&self, rtype: SteeredType) -> Option<&Rrset> {
        match rtype {
            SteeredType::A => self.a.as_ref(),
            SteeredType::Aaaa => self.aaaa.as_ref(),
            SteeredType::Https => self.https.as_ref(),
            SteeredType::First => self.first(),
        }
    }
}
