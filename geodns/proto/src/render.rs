//! All answers of the zone as bytes, made before the first question: for each name, type and choice of regions what follows the
//! question, without and with signatures.
//!
//! ```text
//! name ──► 15 kinds of type ──► Fixed ───────────────► bytes
//!                               Steered ──► AnswerId ──► bytes          AnswerId = Selection[ListId of the client]
//!                               Slow
//! absent name below the zone ──► NXDOMAIN, one for all; another below the zone of explanations
//! ```
//!
//! It does not know what the records are: the zone writes them ([`RenderedBuilder`]). It only holds, finds and bounds them.

use std::hash::BuildHasher as _;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::name::{SortKey, labels_in_common};
use crate::query::{HEADER_BYTES, NAME_BYTES_MAX, QUESTION_TAIL_BYTES};

/// Names at most.
pub const NAMES_MAX: usize = 65_536;
/// Bytes one answer may have behind the question. Longer ones go to a client as truncated, whatever it says it takes.
pub const RECORDS_BYTES_MAX: usize = 16_384;
/// Answers of a steered name at most: orders of regions that are in use at one time.
pub const ANSWERS_MAX: usize = 65_536;

/// Classes of types that answers and counters distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A.
    A,
    /// AAAA.
    Aaaa,
    /// HTTPS (RFC 9460).
    Https,
    /// TXT.
    Txt,
    /// SOA.
    Soa,
    /// NS.
    Ns,
    /// CAA.
    Caa,
    /// DS: at a cut, the one type that the zone above answers for.
    Ds,
    /// ANY (RFC 8482).
    Any,
    /// DNSKEY.
    Dnskey,
    /// NSEC.
    Nsec,
    /// CDS (RFC 7344).
    Cds,
    /// CDNSKEY.
    Cdnskey,
    /// RRSIG.
    Rrsig,
    /// All others, of which the zone has no records.
    Other,
}

impl Kind {
    /// Every kind, in the order of declaration.
    pub const ALL: [Self; 15] = [
        Self::A,
        Self::Aaaa,
        Self::Https,
        Self::Txt,
        Self::Soa,
        Self::Ns,
        Self::Caa,
        Self::Ds,
        Self::Any,
        Self::Dnskey,
        Self::Nsec,
        Self::Cds,
        Self::Cdnskey,
        Self::Rrsig,
        Self::Other,
    ];

    /// Of a type.
    #[must_use]
    pub const fn of(qtype: u16) -> Self {
        match qtype {
            1 => Self::A,
            2 => Self::Ns,
            6 => Self::Soa,
            16 => Self::Txt,
            28 => Self::Aaaa,
            43 => Self::Ds,
            46 => Self::Rrsig,
            47 => Self::Nsec,
            48 => Self::Dnskey,
            59 => Self::Cds,
            60 => Self::Cdnskey,
            65 => Self::Https,
            255 => Self::Any,
            257 => Self::Caa,
            _ => Self::Other,
        }
    }

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::Aaaa => "aaaa",
            Self::Https => "https",
            Self::Txt => "txt",
            Self::Soa => "soa",
            Self::Ns => "ns",
            Self::Caa => "caa",
            Self::Ds => "ds",
            Self::Any => "any",
            Self::Dnskey => "dnskey",
            Self::Nsec => "nsec",
            Self::Cds => "cds",
            Self::Cdnskey => "cdnskey",
            Self::Rrsig => "rrsig",
            Self::Other => "other",
        }
    }
}

/// One choice of regions in order, as an index of the answers of steered names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AnswerId(pub u16);

/// What follows the question of an answer, in wire format.
///
/// Names may be compressed against the question, whose name lies at offset 12, and against these bytes, of which the first lies at
/// [`records_start`] of the name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// Answer, authority and additional records, in this order, without OPT.
    pub bytes: Vec<u8>,
    /// Records of each section.
    pub counts: SectionCounts,
    /// Bytes of the additional section, the last ones: an answer that is too long goes without them first.
    pub additional_len: usize,
}

/// Records of each section; OPT is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SectionCounts {
    /// Answer.
    pub answers: u8,
    /// Authority.
    pub authority: u8,
    /// Additional.
    pub additional: u8,
}

/// What one question is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// To a query without DO, or when the zone is not signed.
    pub plain: Records,
    /// To a query with DO; `None`: the slow path answers it.
    pub signed: Option<Records>,
}

impl Answer {
    /// Of a zone that is not signed: the same with and without DO.
    #[must_use]
    pub fn unsigned(records: Records) -> Self {
        Self {
            signed: Some(records.clone()),
            plain: records,
        }
    }
}

/// What a name answers to one kind of type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// The same for everybody.
    Fixed(Answer),
    /// One answer for each [`AnswerId`], in their order.
    Steered(Vec<Answer>),
    /// The slow path knows.
    Slow,
}

/// Where the first byte of [`Records`] lies in an answer to a question for `name`.
#[must_use]
pub const fn records_start(name: &[u8]) -> usize {
    HEADER_BYTES + name.len() + QUESTION_TAIL_BYTES
}

/// Why answers cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// More than [`NAMES_MAX`], [`ANSWERS_MAX`], [`RECORDS_BYTES_MAX`], or 4 GiB in all.
    #[error("more answers than can be held")]
    TooMany,
    /// Not a lower-case name in wire format.
    #[error("not a name")]
    BadName,
    /// The same name twice.
    #[error("a name is given twice")]
    Duplicate,
    /// Steered names of one zone differ in how many answers they have.
    #[error("steered names do not have the same number of answers")]
    Uneven,
}

/// Gathers answers, then becomes [`Rendered`].
#[derive(Debug)]
pub struct RenderedBuilder {
    rendered: Rendered,
}

/// Every answer of a zone. Immutable.
#[derive(Debug)]
pub struct Rendered {
    zone: Box<[u8]>,
    hasher: FixedState,
    index: HashTable<u32>,
    names: Vec<Name>,
    steered: Vec<Body>,
    answers: Option<u32>,
    absent: Option<Body>,
    cut: Option<Cut>,
    gaps: Vec<GapSpans>,
    bytes: Vec<u8>,
}

/// Signed answers to all names that are missing between one name and the next, in canonical order (RFC 4034 §6.1).
///
/// Which wildcard is denied, too, depends on the longest name above the missing one that exists. That is what the missing name has
/// in common with either end of the gap, so there is one answer for each end and number of labels in common.
#[derive(Clone, Debug)]
pub struct Gap {
    /// Where the gap begins, in lower-case wire format.
    pub name: Vec<u8>,
    /// For names that have as many labels in common with its beginning as with its end, or more; the first of them for names
    /// that have only the zone's name.
    pub begin: Vec<Records>,
    /// For names that have more in common with its end.
    pub end: Vec<Records>,
}

/// A name where a zone of its own begins.
#[derive(Debug)]
struct Cut {
    wire: Box<[u8]>,
    /// What missing names below it are answered with.
    absent: Body,
}

#[derive(Debug)]
struct GapSpans {
    key: Box<[u8]>,
    begin: Vec<Span>,
    end: Vec<Span>,
}

#[derive(Debug)]
struct Name {
    wire: Box<[u8]>,
    slots: [Slot; Kind::ALL.len()],
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Fixed(Body),
    /// Index of the first of the answers.
    Steered(u32),
    Slow,
}

/// One answer in both forms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    pub(crate) plain: Span,
    pub(crate) signed: Option<Span>,
}

/// A part of all bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) len: u16,
    /// Of these, bytes of the additional section, which are the last.
    pub(crate) additional_len: u16,
    pub(crate) counts: SectionCounts,
}

/// What a name in a question is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameMatch {
    /// One of the zone's, by index.
    Known(u32),
    /// Below the zone, but not there. The offset of the zone's name in it.
    Absent {
        /// Bytes in front of the zone's name.
        zone_at: u8,
    },
    /// Below the cut, where nothing is. The offset of the cut's name in it.
    BelowCut {
        /// Bytes in front of the cut's name.
        cut_at: u8,
    },
    /// Not in the zone.
    Foreign,
}

impl Span {
    /// No records.
    pub(crate) const EMPTY: Self = Self {
        start: 0,
        len: 0,
        additional_len: 0,
        counts: SectionCounts {
            answers: 0,
            authority: 0,
            additional: 0,
        },
    };
}

impl RenderedBuilder {
    /// For the zone of this lower-case name in wire format. `seed` is random: it keys the hash of names.
    ///
    /// # Errors
    /// The name is not one.
    pub fn new(zone: &[u8], seed: u64) -> Result<Self, RenderError> {
        if !is_wire_name(zone) {
            return Err(RenderError::BadName);
        }
        Ok(Self {
            rendered: Rendered {
                zone: zone.into(),
                hasher: FixedState::with_seed(seed),
                index: HashTable::new(),
                names: Vec::new(),
                steered: Vec::new(),
                answers: None,
                absent: None,
                cut: None,
                gaps: Vec::new(),
                bytes: Vec::new(),
            },
        })
    }

    /// Adds a name in lower-case wire format, also one without records of its own (an empty non-terminal). Kinds that are not
    /// given are answered with `nodata`.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn name(
        &mut self,
        name: &[u8],
        nodata: Answer,
        says: impl IntoIterator<Item = (Kind, Says)>,
    ) -> Result<(), RenderError> {
        if !is_wire_name(name) {
            return Err(RenderError::BadName);
        }
        if self.rendered.position(name).is_some() {
            return Err(RenderError::Duplicate);
        }
        let nodata = self.add(nodata)?;
        let mut slots = [Slot::Fixed(nodata); Kind::ALL.len()];
        for (kind, says) in says {
            let slot = self.slot(says)?;
            if let Some(cell) = slots.get_mut(kind as usize) {
                *cell = slot;
            }
        }
        let rendered = &mut self.rendered;
        let index = fits(rendered.names.len(), NAMES_MAX)?;
        rendered.names.push(Name {
            wire: name.into(),
            slots,
        });
        let Rendered { hasher, names, .. } = rendered;
        let hash = |index: &u32| {
            let name = usize::try_from(*index).ok().and_then(|at| names.get(at));
            hasher.hash_one(name.map_or(&[][..], |name| &name.wire))
        };
        let key = hasher.hash_one(name);
        rendered.index.insert_unique(key, index, hash);
        Ok(())
    }

    /// The answer to names below the zone that are not there. When it begins with a compression pointer, that is set to the zone's
    /// name in each question; otherwise nothing in it may be compressed against the question.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn absent(&mut self, nxdomain: Answer) -> Result<(), RenderError> {
        self.rendered.absent = Some(self.add(nxdomain)?);
        Ok(())
    }

    /// The same for names below `name`, a cut in the zone.
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn cut(&mut self, name: &[u8], nxdomain: Answer) -> Result<(), RenderError> {
        if !is_wire_name(name) {
            return Err(RenderError::BadName);
        }
        self.rendered.cut = Some(Cut {
            wire: name.into(),
            absent: self.add(nxdomain)?,
        });
        Ok(())
    }

    /// The next gap, in canonical order; the first begins at the zone's name. Their answers are as that of [`Self::absent`].
    ///
    /// # Errors
    /// See [`RenderError`].
    pub fn gap(&mut self, gap: &Gap) -> Result<(), RenderError> {
        if !is_wire_name(&gap.name) {
            return Err(RenderError::BadName);
        }
        let mut spans = |list: &[Records]| {
            let spans = list.iter().map(|records| self.span(records));
            spans.collect::<Result<Vec<_>, _>>()
        };
        let (begin, end) = (spans(&gap.begin)?, spans(&gap.end)?);
        self.rendered.gaps.push(GapSpans {
            key: SortKey::of(&gap.name).as_bytes().into(),
            begin,
            end,
        });
        Ok(())
    }

    /// Done.
    #[must_use]
    pub fn build(self) -> Rendered {
        self.rendered
    }

    fn slot(&mut self, says: Says) -> Result<Slot, RenderError> {
        match says {
            Says::Fixed(answer) => Ok(Slot::Fixed(self.add(answer)?)),
            Says::Slow => Ok(Slot::Slow),
            Says::Steered(answers) => {
                let count = fits(answers.len(), ANSWERS_MAX)?;
                if *self.rendered.answers.get_or_insert(count) != count {
                    return Err(RenderError::Uneven);
                }
                let first = fits(self.rendered.steered.len(), usize::MAX)?;
                for answer in answers {
                    let body = self.add(answer)?;
                    self.rendered.steered.push(body);
                }
                Ok(Slot::Steered(first))
            }
        }
    }

    fn add(&mut self, answer: Answer) -> Result<Body, RenderError> {
        let same = answer.signed.as_ref() == Some(&answer.plain);
        let plain = self.span(&answer.plain)?;
        let signed = match answer.signed {
            Some(_) if same => Some(plain),
            Some(records) => Some(self.span(&records)?),
            None => None,
        };
        Ok(Body { plain, signed })
    }

    fn span(&mut self, records: &Records) -> Result<Span, RenderError> {
        let start = fits(self.rendered.bytes.len(), usize::MAX)?;
        if records.bytes.len() > RECORDS_BYTES_MAX {
            return Err(RenderError::TooMany);
        }
        let short = |len| u16::try_from(len).map_err(|_| RenderError::TooMany);
        let len = short(records.bytes.len())?;
        let additional_len = short(records.additional_len)?.min(len);
        self.rendered.bytes.extend_from_slice(&records.bytes);
        Ok(Span {
            start,
            len,
            additional_len,
            counts: records.counts,
        })
    }
}

impl Rendered {
    /// Finds a lower-case name in wire format.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> NameMatch {
        match self.position(name) {
            Some(index) => NameMatch::Known(index),
            None => self.place(name),
        }
    }

    /// How many answers steered names have.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.answers
            .and_then(|count| usize::try_from(count).ok())
            .unwrap_or(0)
    }

    /// Names there are.
    #[must_use]
    pub fn names(&self) -> usize {
        self.names.len()
    }

    /// Bytes of all answers.
    #[must_use]
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn slot(&self, name: u32, kind: Kind) -> Option<Slot> {
        let name = self.names.get(usize::try_from(name).ok()?)?;
        name.slots.get(kind as usize).copied()
    }

    pub(crate) fn steered(&self, first: u32, answer: AnswerId) -> Option<Body> {
        let at = usize::try_from(first).ok()? + usize::from(answer.0);
        self.steered.get(at).copied()
    }

    pub(crate) const fn absent(&self) -> Option<Body> {
        self.absent
    }

    pub(crate) fn absent_below_cut(&self) -> Option<Body> {
        self.cut.as_ref().map(|cut| cut.absent)
    }

    /// The signed answer to a name below the zone that is not there.
    pub(crate) fn absent_signed(&self, name: &[u8]) -> Option<Span> {
        let key = SortKey::of(name);
        let key = key.as_bytes();
        let next = self.gaps.partition_point(|gap| *gap.key <= *key);
        let begin = self.gaps.get(next.checked_sub(1)?)?;
        let end = self.gaps.get(next).or_else(|| self.gaps.first())?;
        let of_zone = labels_in_common(&self.gaps.first()?.key, key);
        let with_begin = labels_in_common(&begin.key, key);
        let with_end = labels_in_common(&end.key, key);
        let (list, common) = if with_begin >= with_end {
            (&begin.begin, with_begin)
        } else {
            (&begin.end, with_end)
        };
        list.get(common.checked_sub(of_zone)?).copied()
    }

    pub(crate) fn records(&self, span: Span) -> &[u8] {
        let start = usize::try_from(span.start).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::from(span.len));
        self.bytes.get(start..end).unwrap_or_default()
    }

    fn position(&self, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        let is_it = |index: &u32| {
            let known = usize::try_from(*index)
                .ok()
                .and_then(|at| self.names.get(at));
            known.is_some_and(|known| *known.wire == *name)
        };
        self.index.find(hash, is_it).copied()
    }

    /// Where an unknown name lies.
    fn place(&self, name: &[u8]) -> NameMatch {
        let offset = |rest: &[u8]| u8::try_from(name.len() - rest.len());
        let mut rest = name;
        while rest.len() > self.zone.len() {
            let label = rest.first().map_or(0, |len| usize::from(*len));
            rest = rest.get(label + 1..).unwrap_or_default();
            if self.cut.as_ref().is_some_and(|cut| *rest == *cut.wire)
                && let Ok(cut_at) = offset(rest)
            {
                return NameMatch::BelowCut { cut_at };
            }
        }
        match offset(rest) {
            Ok(zone_at) if *rest == *self.zone => NameMatch::Absent { zone_at },
            Ok(_) | Err(_) => NameMatch::Foreign,
        }
    }
}

fn fits(len: usize, max: usize) -> Result<u32, RenderError> {
    match u32::try_from(len) {
        Ok(len_u32) if len <= max => Ok(len_u32),
        Ok(_) | Err(_) => Err(RenderError::TooMany),
    }
}

fn is_wire_name(name: &[u8]) -> bool {
    if name.len() > NAME_BYTES_MAX || name.iter().any(u8::is_ascii_uppercase) {
        return false;
    }
    let mut rest = name;
    while let Some((label, behind)) = rest.split_first() {
        if *label == 0 {
            return behind.is_empty();
        }
        match behind.get(usize::from(*label)..) {
            Some(behind) if *label <= 63 => rest = behind,
            Some(_) | None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests;
