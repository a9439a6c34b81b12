//! The fast path: from a query in a buffer to its answer in the same buffer.
//!
//! ```text
//! 1 read     every packet of a batch: parse, find the name               touches packets only, and says what to fetch ahead
//! 2 locate   every steered one: the list of its client's network         one cache miss each, all under way at once
//! 3 answer   every packet: cookie, limit, bytes
//! ```
//!
//! Three passes over a batch, so that the loads of the second do not wait for one another. [`Responder::respond`] is all three for
//! one packet. No pass allocates, locks, logs or reads a clock.
//!
//! What it answers: questions of class IN for records, with an OPT record or without, inside the zone or outside. All else is
//! [`Verdict::Slow`] or [`Verdict::Drop`].

use std::net::{IpAddr, SocketAddr};

use crate::cookie::{self, Secrets, Standing};
use crate::counts::{Basis, Counts, DropReason, Outcome, SlowReason};
use crate::ecs::{self, Subnet};
use crate::query::{
    self, Edns, FLAG_RECURSION_DESIRED, HEADER_BYTES, NAME_BYTES_MAX, OPT_BYTES, Query, Unread,
};
use crate::rate_limit::{Allowance, Limits, RateLimiter};
use crate::render::{Body, Kind, NameMatch, Rendered, SectionCounts, Slot, Span};
use crate::select::{Locate, Place, Served};

/// The longest answer over UDP: what passes every path unfragmented (RFC 9715 §3).
pub const ANSWER_BYTES_MAX: usize = 1_232;
/// The longest answer to a query without OPT (RFC 1035 §4.2.1), and the least any asker takes (RFC 6891 §6.2.3).
pub const ANSWER_BYTES_MIN: usize = 512;
/// Bytes a buffer has: the longest answer, and room to write an option without counting its bytes first.
pub const BUFFER_BYTES: usize = 1_280;
/// Bytes of a server's name at most.
pub const NSID_BYTES_MAX: usize = 64;

/// When a batch is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Microseconds since any fixed moment.
    pub monotonic_us: u64,
    /// Seconds since the Unix epoch, modulo 2^32: what cookies tell.
    pub unix_s: u32,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first `len` bytes of the buffer are the answer.
    Answer {
        /// Bytes.
        len: usize,
    },
    /// The buffer holds the query as it came; another way answers it.
    Slow(SlowReason),
    /// No answer.
    Drop(DropReason),
}

/// A packet between the passes.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    step: Step,
    query: Query,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Drop(DropReason),
    Slow(SlowReason),
    /// Bytes of header and question, and whether an OPT record was read.
    Malformed(u16, bool),
    BadVersion,
    Foreign,
    /// Offset of the zone's or the cut's name in the question's.
    Absent(Body, u8),
    /// With the index of the name.
    Fixed(Body, u32),
    /// Index of the first answer, the client, and the index of the name.
    Steered(u32, IpAddr, u32),
}

/// Why there is nothing to write.
enum NoReply {
    Slow(SlowReason),
    Drop(DropReason),
}

/// What was decided about a packet's answer.
#[derive(Clone, Copy)]
struct Reply {
    outcome: Outcome,
    records: Span,
    /// What the pointer at the beginning of the records leads to, where it depends on the question.
    zone_at: Option<u8>,
    /// Scope of the client subnet in the answer; `None`: the answer has no options.
    scope: Option<u8>,
    /// What limits count it under: answers that an asker can swap for one another, by type, DO or the client it names, are one class.
    class: u32,
}

/// What answers one worker's queries. See the module head.
#[derive(Debug)]
pub struct Responder {
    secrets: Secrets,
    limiter: RateLimiter,
    nsid: Box<[u8]>,
    counts: Counts,
}

/// Classes of answers that limits distinguish, beside the names of the zone, which are numbered from 0.
const CLASS_SLOW: u32 = u32::MAX;
const CLASS_ERRORS: u32 = u32::MAX - 16;

/// All errors of a kind are one class; so are all missing names, whatever gap they lie in.
const fn class_of(error: Outcome) -> u32 {
    CLASS_ERRORS + error as u32
}

impl Pending {
    /// Before it is read.
    pub const EMPTY: Self = Self {
        step: Step::Drop(DropReason::Short),
        query: Query {
            name_len: 1,
            qtype: 0,
            recursion_desired: false,
            edns: None,
        },
        place: Place { list: 0, scope: 0 },
    };
}

impl Responder {
    /// `node`: the name of the server, which NSID tells; cut to [`NSID_BYTES_MAX`]. `seed` is random.
    #[must_use]
    pub fn new(node: &str, secrets: Secrets, limits: Limits, seed: u64) -> Self {
        let name = node.as_bytes();
        let name = name.get(..NSID_BYTES_MAX).unwrap_or(name);
        let mut nsid = query::CODE_NSID.to_be_bytes().to_vec();
        nsid.extend(u16::try_from(name.len()).unwrap_or(0).to_be_bytes());
        nsid.extend(name);
        Self {
            secrets,
            limiter: RateLimiter::new(limits, seed),
            nsid: nsid.into(),
            counts: Counts::default(),
        }
    }

    /// From here on these hold.
    pub fn set(&mut self, secrets: Secrets, limits: Limits) {
        self.secrets = secrets;
        self.limiter.set(limits);
    }

    /// Totals so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// For what the caller drops itself.
    pub const fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }

    /// Entries of the table of limits that were replaced too early.
    #[must_use]
    pub const fn limits_displaced(&self) -> u64 {
        self.limiter.displaced()
    }

    /// All passes for one packet: the first `len` bytes of `buffer`, which should have [`BUFFER_BYTES`].
    pub fn respond<L: Locate>(
        &mut self,
        served: &Served<L>,
        buffer: &mut [u8],
        len: usize,
        source: SocketAddr,
        now: Time,
    ) -> Verdict {
        let mut pending = self.read(&served.rendered, buffer, len, source);
        pending.locate(&*served.tables);
        self.answer(served, &pending, buffer, source.ip(), now)
    }

    /// First pass.
    pub fn read(
        &mut self,
        rendered: &Rendered,
        buffer: &[u8],
        len: usize,
        source: SocketAddr,
    ) -> Pending {
        self.counts.queries += 1;
        let packet = buffer.get(..len).unwrap_or_default();
        let step = |step| Pending {
            step,
            ..Pending::EMPTY
        };
        if source.port() == 0 {
            return step(Step::Drop(DropReason::SourcePort));
        }
        match Query::parse(packet) {
            Ok(query) => Pending {
                step: find(rendered, packet, &query, source.ip()),
                query,
                place: Place::default(),
            },
            Err(Unread::Drop(garbage)) => step(Step::Drop(garbage.into())),
            Err(Unread::Slow(unusual)) => step(Step::Slow(unusual.into())),
            Err(Unread::Malformed { echo_len, edns }) => step(Step::Malformed(echo_len, edns)),
        }
    }

    /// Third pass. `buffer` and `source` are those of the first.
    pub fn answer<L: Locate>(
        &mut self,
        served: &Served<L>,
        pending: &Pending,
        buffer: &mut [u8],
        source: IpAddr,
        now: Time,
    ) -> Verdict {
        let query = &pending.query;
        let reply = match self.reply(served, pending) {
            Ok(reply) => reply,
            Err(NoReply::Slow(reason)) => return self.hand_over(reason, source, now),
            Err(NoReply::Drop(reason)) => return self.dropped(reason),
        };
        let cookie = query.edns.and_then(|edns| edns.cookie);
        let cookie = cookie.filter(|_| reply.scope.is_some());
        let (standing, server) = match cookie {
            Some(cookie) => {
                let (standing, server) = self.secrets.judge(&cookie, source, now.unix_s);
                (standing, Some((cookie.client, server)))
            }
            None => (Standing::None, None),
        };
        self.counts.cookie(standing);
        let truncate = match standing {
            Standing::Valid => false,
            Standing::None | Standing::Client | Standing::Bad => {
                match self.limiter.allow(source, reply.class, now.monotonic_us) {
                    Allowance::Send => false,
                    Allowance::Truncate => true,
                    Allowance::Drop => return self.dropped(DropReason::RateLimited),
                }
            }
        };
        self.counts.slipped += u64::from(truncate);
        self.counts.outcome(reply.outcome);
        let options = Options {
            nsid: &self.nsid,
            cookie: server,
        };
        let records = served.rendered.records(reply.records);
        let written = write(buffer, pending, &reply, records, &options, truncate);
        match written {
            Some((len, cut)) => {
                self.counts.truncated += u64::from(cut && !truncate);
                Verdict::Answer { len }
            }
            None => self.dropped(DropReason::Oversize),
        }
    }

    fn reply<L: Locate>(
        &mut self,
        served: &Served<L>,
        pending: &Pending,
    ) -> Result<Reply, NoReply> {
        let query = &pending.query;
        let error = |outcome| Reply {
            outcome,
            records: Span::EMPTY,
            zone_at: None,
            scope: None,
            class: class_of(outcome),
        };
        let (body, zone_at, scope, class) = match pending.step {
            Step::Drop(reason) => return Err(NoReply::Drop(reason)),
            Step::Slow(reason) => return Err(NoReply::Slow(reason)),
            Step::Malformed(..) => return Ok(error(Outcome::FormErr)),
            Step::BadVersion => return Ok(error(Outcome::BadVers)),
            Step::Foreign => {
                return Ok(Reply {
                    scope: Some(0),
                    ..error(Outcome::Refused)
                });
            }
            Step::Absent(body, zone_at) => (body, Some(zone_at), 0, class_of(Outcome::NxDomain)),
            Step::Fixed(body, name) => (body, None, 0, name),
            Step::Steered(first, client, name) => {
                let (answer, scope) =
                    served
                        .selection
                        .answer(pending.place, client, &*served.tables);
                let body = served.rendered.steered(first, answer);
                let body = body.ok_or(NoReply::Slow(SlowReason::Name))?;
                let basis = basis(query.edns);
                self.counts.basis(basis);
                // What is answered to a client that wants not to be known holds for all of them (RFC 7871 §7.2.1).
                let scope = if basis == Basis::OptOut { 0 } else { scope };
                (body, None, scope, name)
            }
        };
        let wants_signed = query.edns.is_some_and(|edns| edns.dnssec_ok);
        let records = match body.signed {
            Some(signed) if wants_signed => signed,
            None if wants_signed => return Err(NoReply::Slow(SlowReason::Signed)),
            Some(_) | None => body.plain,
        };
        self.counts.kind(Kind::of(query.qtype));
        let outcome = match zone_at {
            Some(_) => Outcome::NxDomain,
            None if records.counts.answers == 0 => Outcome::NoData,
            None => Outcome::NoError,
        };
        Ok(Reply {
            outcome,
            records,
            zone_at,
            scope: Some(scope),
            class,
        })
    }

    fn hand_over(&mut self, reason: SlowReason, source: IpAddr, now: Time) -> Verdict {
        match self.limiter.allow(source, CLASS_SLOW, now.monotonic_us) {
            Allowance::Send => {
                self.counts.handed_over(reason);
                Verdict::Slow(reason)
            }
            Allowance::Truncate | Allowance::Drop => self.dropped(DropReason::RateLimited),
        }
    }

    fn dropped(&mut self, reason: DropReason) -> Verdict {
        self.counts.dropped(reason);
        Verdict::Drop(reason)
    }
}

impl Pending {
    /// What the second pass reads first, if it reads anything.
    #[inline]
    pub fn first_word<'a>(&self, tables: &'a impl Locate) -> Option<&'a u32> {
        match self.step {
            Step::Steered(_, client, _) => Some(tables.first_word(client)),
            Step::Drop(_)
            | Step::Slow(_)
            | Step::Malformed(..)
            | Step::BadVersion
            | Step::Foreign
            | Step::Absent(..)
            | Step::Fixed(..) => None,
        }
    }

    /// Second pass.
    #[inline]
    pub fn locate(&mut self, tables: &impl Locate) {
        if let Step::Steered(_, client, _) = self.step {
            self.place = match client {
                IpAddr::V4(v4) => tables.locate_v4(v4.to_bits()),
                IpAddr::V6(v6) => tables.locate_v6(v6.to_bits()),
            };
        }
    }
}

impl Reply {
    /// Lower and upper part of the response code (RFC 6891 §6.1.3).
    const fn code(&self) -> (u8, u8) {
        match self.outcome {
            Outcome::NoError | Outcome::NoData => (0, 0),
            Outcome::FormErr => (1, 0),
            Outcome::NxDomain => (3, 0),
            Outcome::Refused => (5, 0),
            Outcome::BadVers => (0, 1),
        }
    }

    const fn is_authoritative(&self) -> bool {
        match self.outcome {
            Outcome::NoError | Outcome::NoData | Outcome::NxDomain => true,
            Outcome::FormErr | Outcome::Refused | Outcome::BadVers => false,
        }
    }
}

/// What the question asks of the zone.
fn find(rendered: &Rendered, packet: &[u8], query: &Query, source: IpAddr) -> Step {
    if query.edns.is_some_and(|edns| edns.version != 0) {
        return Step::BadVersion;
    }
    let name = packet.get(HEADER_BYTES..).unwrap_or_default();
    let mut lower = [0; NAME_BYTES_MAX];
    let name = lower_case(name, usize::from(query.name_len), &mut lower);
    match rendered.find(name) {
        NameMatch::Known(index) => match rendered.slot(index, Kind::of(query.qtype)) {
            Some(Slot::Fixed(body)) => Step::Fixed(body, index),
            Some(Slot::Steered(first)) => Step::Steered(first, client(query.edns, source), index),
            Some(Slot::Slow) | None => Step::Slow(SlowReason::Name),
        },
        NameMatch::Absent { zone_at } => match rendered.absent() {
            Some(body) if query.edns.is_some_and(|edns| edns.dnssec_ok) => {
                let signed = rendered.absent_signed(name).or(body.signed);
                Step::Absent(Body { signed, ..body }, zone_at)
            }
            Some(body) => Step::Absent(body, zone_at),
            None => Step::Slow(SlowReason::Name),
        },
        NameMatch::BelowCut { cut_at } => match rendered.absent_below_cut() {
            Some(body) => Step::Absent(body, cut_at),
            None => Step::Slow(SlowReason::Name),
        },
        NameMatch::Foreign => Step::Foreign,
    }
}

/// The name with small letters. Bytes of length are below all letters, so they stay as they are.
fn lower_case<'a>(name: &[u8], len: usize, lower: &'a mut [u8; NAME_BYTES_MAX]) -> &'a [u8] {
    let name = name.get(..len).unwrap_or_default();
    let lower = lower.get_mut(..len).unwrap_or_default();
    for (to, from) in lower.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    lower
}

/// Whom an answer is chosen for: the client subnet, unless the client wants not to be known (RFC 7871 §7.1.2).
fn client(edns: Option<Edns>, source: IpAddr) -> IpAddr {
    let subnet = edns.and_then(|edns| edns.subnet);
    let subnet = subnet.filter(|subnet| !subnet.is_opt_out());
    subnet.map_or(source, Subnet::address)
}

fn basis(edns: Option<Edns>) -> Basis {
    match edns.and_then(|edns| edns.subnet) {
        None => Basis::Resolver,
        Some(subnet) if subnet.is_opt_out() => Basis::OptOut,
        Some(subnet) if subnet.address().is_ipv4() => Basis::SubnetV4,
        Some(_) => Basis::SubnetV6,
    }
}

/// Options of an answer, but for the client subnet.
struct Options<'a> {
    /// As it is written.
    nsid: &'a [u8],
    cookie: Option<([u8; 8], [u8; 16])>,
}

/// Writes the answer over the query. Its length, and whether it was truncated.
fn write(
    buffer: &mut [u8],
    pending: &Pending,
    reply: &Reply,
    records: &[u8],
    options: &Options<'_>,
    truncate: bool,
) -> Option<(usize, bool)> {
    let query = &pending.query;
    let (question_end, opt) = match pending.step {
        Step::Malformed(echo_len, edns) => (usize::from(echo_len), edns),
        Step::Drop(_)
        | Step::Slow(_)
        | Step::BadVersion
        | Step::Foreign
        | Step::Absent(..)
        | Step::Fixed(..)
        | Step::Steered(..) => (query.question_end(), query.edns.is_some()),
    };
    let tail = Tail::new(query, reply, options, opt);
    let max = answer_len_max(query.edns).min(buffer.len());
    let room = max.checked_sub(question_end + tail.len);
    let fitting = room.filter(|_| !truncate);
    let fitting = fitting.and_then(|room| fitting_in(room, records, reply.records));
    let cut = fitting.is_none();
    let (records, counts) = fitting.unwrap_or((&[], Span::EMPTY.counts));
    let (header, rest) = buffer.split_first_chunk_mut::<HEADER_BYTES>()?;
    let [_, _, high, low, fields @ ..] = header;
    let echoed = *high & FLAG_RECURSION_DESIRED;
    let authoritative = u8::from(reply.is_authoritative()) << 2;
    let (code, _) = reply.code();
    *high = FLAG_RESPONSE | authoritative | u8::from(cut) << 1 | echoed;
    *low = code;
    let questions = u8::from(question_end > HEADER_BYTES);
    let additional = counts.additional + u8::from(opt);
    *fields = [
        0,
        questions,
        0,
        counts.answers,
        0,
        counts.authority,
        0,
        additional,
    ];
    let (_, rest) = rest.split_at_mut_checked(question_end - HEADER_BYTES)?;
    let (slot, rest) = rest.split_at_mut_checked(records.len())?;
    slot.copy_from_slice(records);
    if let (Some(zone_at), Some(pointer)) = (reply.zone_at, slot.first_chunk_mut::<2>())
        && pointer.first().is_some_and(|byte| *byte >= POINTER)
    {
        *pointer = pointer_to(zone_at);
    }
    if opt {
        tail.write(rest, reply)?;
    }
    Some((question_end + records.len() + tail.len, cut))
}

/// All records, or all but the additional ones, which nobody misses (RFC 2181 §9). `None`: the answer has to be truncated.
fn fitting_in(room: usize, records: &[u8], span: Span) -> Option<(&[u8], SectionCounts)> {
    if records.len() <= room {
        return Some((records, span.counts));
    }
    let without = records
        .len()
        .checked_sub(span.additional_len.into())
        .filter(|len| *len <= room && span.additional_len > 0)?;
    let counts = SectionCounts {
        additional: 0,
        ..span.counts
    };
    Some((records.get(..without)?, counts))
}

const FLAG_RESPONSE: u8 = 0x80;
const FLAG_DO: u8 = 0x80;
/// Code and length of an option.
const OPTION_HEAD_BYTES: usize = 4;

/// From this on the first byte of a name is that of a pointer.
const POINTER: u8 = 0xc0;

/// A compression pointer (RFC 1035 §4.1.4) to a part of the question's name.
fn pointer_to(zone_at: u8) -> [u8; 2] {
    let offset = u16::from(zone_at) + 12;
    (offset | 0xc000).to_be_bytes()
}

fn answer_len_max(edns: Option<Edns>) -> usize {
    edns.map_or(ANSWER_BYTES_MIN, |edns| {
        usize::from(edns.payload_max).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
    })
}

/// The OPT record of an answer.
struct Tail<'a> {
    len: usize,
    dnssec_ok: bool,
    nsid: &'a [u8],
    subnet: Option<Subnet>,
    cookie: Option<([u8; 8], [u8; 16])>,
}

impl<'a> Tail<'a> {
    fn new(query: &Query, reply: &Reply, options: &Options<'a>, opt: bool) -> Self {
        let edns = query.edns.filter(|_| reply.scope.is_some());
        let mut tail = Self {
            len: 0,
            dnssec_ok: query.edns.is_some_and(|edns| edns.dnssec_ok),
            nsid: match edns {
                Some(edns) if edns.nsid => options.nsid,
                Some(_) | None => &[],
            },
            subnet: edns.and_then(|edns| edns.subnet),
            cookie: options.cookie,
        };
        if opt {
            let subnet = tail
                .subnet
                .map_or(0, |subnet| OPTION_HEAD_BYTES + subnet.option_len());
            let cookie = tail
                .cookie
                .map_or(0, |_| OPTION_HEAD_BYTES + cookie::OPTION_BYTES);
            tail.len = OPT_BYTES + tail.nsid.len() + subnet + cookie;
        }
        tail
    }

    /// Writes it at the beginning of `rest`.
    fn write(&self, rest: &mut [u8], reply: &Reply) -> Option<()> {
        let (fixed, mut rest) = rest.split_first_chunk_mut::<OPT_BYTES>()?;
        let [p0, p1] = PAYLOAD_MAX.to_be_bytes();
        let options_len = u16::try_from(self.len - OPT_BYTES).ok()?;
        let [l0, l1] = options_len.to_be_bytes();
        let (_, upper_code) = reply.code();
        let flags = if self.dnssec_ok { FLAG_DO } else { 0 };
        *fixed = [0, 0, 41, p0, p1, upper_code, 0, flags, 0, l0, l1];
        if !self.nsid.is_empty() {
            let (slot, behind) = rest.split_at_mut_checked(self.nsid.len())?;
            slot.copy_from_slice(self.nsid);
            rest = behind;
        }
        if let Some(subnet) = self.subnet {
            let len = subnet.option_len();
            // All of it, whatever its length; what follows is written over the rest.
            let (head, behind) = rest.split_first_chunk_mut::<OPTION_HEAD_BYTES>()?;
            *head = option_head(ecs::CODE, len)?;
            // Who asks not to be known is told nothing of whom the answer is for (RFC 7871 §7.1.2).
            let scope = reply.scope.filter(|_| !subnet.is_opt_out());
            *behind.first_chunk_mut()? = subnet.option(scope.unwrap_or(0));
            rest = behind.get_mut(len..)?;
        }
        if let Some((client, server)) = self.cookie {
            let (head, behind) = rest.split_first_chunk_mut::<OPTION_HEAD_BYTES>()?;
            *head = option_head(cookie::CODE, cookie::OPTION_BYTES)?;
            let (first, behind) = behind.split_first_chunk_mut()?;
            *first = client;
            *behind.first_chunk_mut()? = server;
        }
        Some(())
    }
}

/// UDP payload we take, as an OPT record says it.
const PAYLOAD_MAX: u16 = 1_232;
const _: () = assert!(PAYLOAD_MAX as usize == ANSWER_BYTES_MAX);

fn option_head(code: u16, len: usize) -> Option<[u8; OPTION_HEAD_BYTES]> {
    let ([c0, c1], [l0, l1]) = (code.to_be_bytes(), u16::try_from(len).ok()?.to_be_bytes());
    Some([c0, c1, l0, l1])
}

#[cfg(test)]
mod tests;
