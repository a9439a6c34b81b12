//! Queries of unusual shape, made ordinary: what is unusual is noted and taken out, so that what is left is read by the one strict
//! parser there is.

use geodns_proto::query::{
    Edns, HEADER_BYTES, OPT_BYTES, QUESTION_TAIL_BYTES, Query, Unread, Unusual,
};
use geodns_proto::{Class, Rcode, Type};

/// Records a query may have beside its question: OPT, TSIG, the SOA of IXFR, and some for good measure.
const RECORDS_MAX: usize = 8;

/// A query that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// The query, with its own type and class taken out where they are unusual.
    pub(super) query: Query,
    pub(super) rtype: Type,
    pub(super) class: Class,
    /// Whether the query is padded (RFC 7830).
    pub(super) padded: bool,
}

/// Why a packet is no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No answer at all.
    Silent,
    /// There is no question; a cookie is asked for (RFC 7873 §5.4).
    CookieAlone(Edns),
    /// This code; `question` when it can be echoed. The answer carries an OPT record where the query has one, whose contents are those
    /// of an empty one where they cannot be read.
    Code {
        rcode: Rcode,
        question: bool,
        edns: Option<Edns>,
    },
}

impl Refusal {
    const fn bare(rcode: Rcode) -> Self {
        Self::Code {
            rcode,
            question: false,
            edns: None,
        }
    }
}

/// Reads any packet. A refusal says with an OPT record what it says to a query with one (RFC 6891 §6.1.1), as far as that can be seen.
pub(super) fn read(packet: &[u8]) -> Result<Asked, Refusal> {
    make_ordinary(packet).map_err(|refusal| match refusal {
        Refusal::Code {
            rcode, question, ..
        } if !is_read_by_all(packet) => with_opt(packet, rcode, question),
        Refusal::Silent | Refusal::CookieAlone(_) | Refusal::Code { .. } => refusal,
    })
}

/// A version that is not known is said before anything else (RFC 6891 §6.1.3).
fn with_opt(packet: &[u8], rcode: Rcode, question: bool) -> Refusal {
    let edns = opt_in(packet).map(|opt| edns_of(opt).unwrap_or_default());
    let rcode = match edns {
        Some(edns) if edns.version != 0 => Rcode::BadVers,
        Some(_) | None => rcode,
    };
    Refusal::Code {
        rcode,
        question,
        edns,
    }
}

/// Whether the strict parser says all there is to say: nothing is unusual, and the fast path answers the same.
fn is_read_by_all(packet: &[u8]) -> bool {
    !matches!(Query::parse(packet), Err(Unread::Slow(_)))
}

fn make_ordinary(packet: &[u8]) -> Result<Asked, Refusal> {
    let mut ordinary = packet.to_vec();
    let (mut rtype, mut class) = (None, None);
    // One turn for each kind of unusual there is.
    for _ in 0..=UNUSUALS {
        let unusual = match Query::parse(&ordinary) {
            Ok(query) => {
                return Ok(Asked {
                    rtype: rtype.unwrap_or(Type(query.qtype)),
                    class: class.unwrap_or(Class::IN),
                    padded: is_padded(&ordinary, &query),
                    query,
                });
            }
            Err(Unread::Drop(_)) => return Err(Refusal::Silent),
            Err(Unread::Malformed { echo_len, edns }) => {
                return Err(Refusal::Code {
                    rcode: Rcode::FormErr,
                    question: usize::from(echo_len) > HEADER_BYTES,
                    edns: edns.then(Edns::default),
                });
            }
            Err(Unread::Slow(unusual)) => unusual,
        };
        match unusual {
            Unusual::Opcode => return Err(Refusal::bare(Rcode::NotImp)),
            // A query that does not fit a datagram is a query all the same.
            Unusual::Truncated => clear_truncated(&mut ordinary),
            Unusual::Class => class = take(&mut ordinary, 2, Class::IN.0).map(Class),
            Unusual::MetaType => rtype = take(&mut ordinary, 0, Type::A.0).map(Type),
            Unusual::Counts | Unusual::Additional => ordinary = strip(&ordinary)?,
        }
    }
    Err(Refusal::bare(Rcode::FormErr))
}

/// Whether the options, which the parser found to be well formed, have padding.
fn is_padded(packet: &[u8], query: &Query) -> bool {
    let mut options = packet
        .get(query.question_end() + OPT_BYTES..)
        .unwrap_or_default();
    while let Some((&[c0, c1, l0, l1], rest)) = options.split_first_chunk() {
        if u16::from_be_bytes([c0, c1]) == PADDING {
            return true;
        }
        let len = usize::from(u16::from_be_bytes([l0, l1]));
        options = rest.get(len..).unwrap_or_default();
    }
    false
}

/// Option code of padding.
const PADDING: u16 = 12;

/// Kinds of [`Unusual`].
const UNUSUALS: usize = 6;

fn clear_truncated(packet: &mut [u8]) {
    if let Some(flags) = packet.get_mut(2) {
        *flags &= !0x02;
    }
}

/// Replaces a number behind the question's name, and says what it was.
fn take(packet: &mut [u8], offset: usize, by: u16) -> Option<u16> {
    let at = after_name(packet, HEADER_BYTES)? + offset;
    let field: &mut [u8; 2] = packet.get_mut(at..)?.first_chunk_mut()?;
    let was = u16::from_be_bytes(*field);
    *field = by.to_be_bytes();
    Some(was)
}

/// The same query with no record but its OPT.
fn strip(packet: &[u8]) -> Result<Vec<u8>, Refusal> {
    let refused = Refusal::bare(Rcode::FormErr);
    let header: &[u8; HEADER_BYTES] = packet.first_chunk().ok_or(refused)?;
    let [_, _, _, _, q0, q1, a0, a1, n0, n1, r0, r1] = *header;
    let count = |high, low| usize::from(u16::from_be_bytes([high, low]));
    let (questions, answers) = (count(q0, q1), count(a0, a1));
    let (authority, additional) = (count(n0, n1), count(r0, r1));
    if (questions, answers, authority, additional) == (0, 0, 0, 1) {
        return Err(cookie_alone(packet));
    }
    if questions != 1 || answers != 0 || authority + additional > RECORDS_MAX {
        return Err(refused);
    }
    let name_end = after_name(packet, HEADER_BYTES).ok_or(refused)?;
    let question_end = name_end + QUESTION_TAIL_BYTES;
    let rtype = packet.get(name_end..).and_then(<[u8]>::first_chunk);
    if authority > 0 && rtype != Some(&Type::IXFR.0.to_be_bytes()) {
        return Err(refused);
    }
    let with_question = |rcode| Refusal::Code {
        rcode,
        question: true,
        edns: None,
    };
    let refused = with_question(Rcode::FormErr);
    let mut opt = None;
    let mut at = question_end;
    for position in 0..authority + additional {
        let record = Record::read(packet, at).ok_or(refused)?;
        at = record.end;
        match record.rtype {
            // RFC 6891 §6.1.1.
            Type::OPT if position < authority || opt.is_some() => return Err(refused),
            Type::OPT => opt = packet.get(record.start..record.end),
            // We share no key with anybody (RFC 8945 §5.2.1).
            TSIG => return Err(with_question(Rcode::NotAuth)),
            Type(_) => {}
        }
    }
    if at != packet.len() {
        return Err(refused);
    }
    let mut ordinary = packet.get(..question_end).ok_or(refused)?.to_vec();
    for (to, from) in ordinary.iter_mut().skip(8).zip([0, 0, 0]) {
        *to = from;
    }
    if let Some(additional) = ordinary.get_mut(11) {
        *additional = u8::from(opt.is_some());
    }
    ordinary.extend_from_slice(opt.unwrap_or_default());
    Ok(ordinary)
}

/// A query without a question, and with one record.
fn cookie_alone(packet: &[u8]) -> Refusal {
    let opt = packet.get(HEADER_BYTES..).unwrap_or_default();
    match edns_of(opt) {
        Some(edns) if edns.cookie.is_some() => Refusal::CookieAlone(edns),
        Some(_) | None => Refusal::bare(Rcode::FormErr),
    }
}

/// What an OPT record says, read as that of an ordinary query. `None`: it is none, or not well formed.
fn edns_of(opt: &[u8]) -> Option<Edns> {
    let query = [&ORDINARY[..], opt].concat();
    Query::parse(&query).ok()?.edns
}

/// The question for A of the root, without the OPT record that follows it.
const ORDINARY: [u8; HEADER_BYTES + 1 + QUESTION_TAIL_BYTES] =
    [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 1];

/// The OPT record of the additional section. What cannot be walked through has none, and of two nothing is read.
fn opt_in(packet: &[u8]) -> Option<&[u8]> {
    let [_, _, _, _, counts @ ..] = *packet.first_chunk::<HEADER_BYTES>()?;
    let [q0, q1, a0, a1, n0, n1, r0, r1] = counts;
    let count = |high, low| usize::from(u16::from_be_bytes([high, low]));
    let (questions, before) = (count(q0, q1), count(a0, a1) + count(n0, n1));
    let additional = count(r0, r1);
    if questions + before + additional > SEARCHED_MAX {
        return None;
    }
    let mut at = HEADER_BYTES;
    for _ in 0..questions {
        at = after_name(packet, at)? + QUESTION_TAIL_BYTES;
    }
    let mut opt: Option<&[u8]> = None;
    for position in 0..before + additional {
        let Some(record) = Record::read(packet, at) else {
            break;
        };
        at = record.end;
        if position >= before && record.rtype == Type::OPT {
            let bytes = packet.get(record.start..record.end)?;
            opt = Some(opt.map_or(bytes, |_| &[]));
        }
    }
    opt
}

/// Questions and records among which an OPT record is looked for.
const SEARCHED_MAX: usize = 2 * RECORDS_MAX;

const TSIG: Type = Type(250);

/// Where a record lies.
struct Record {
    start: usize,
    end: usize,
    rtype: Type,
}

impl Record {
    fn read(packet: &[u8], start: usize) -> Option<Self> {
        let name_end = after_name(packet, start)?;
        let fixed: &[u8; OPT_BYTES - 1] = packet.get(name_end..)?.first_chunk()?;
        let [t0, t1, _, _, _, _, _, _, l0, l1] = *fixed;
        let end = name_end + fixed.len() + usize::from(u16::from_be_bytes([l0, l1]));
        (end <= packet.len()).then_some(Self {
            start,
            end,
            rtype: Type(u16::from_be_bytes([t0, t1])),
        })
    }
}

/// Where the name that begins at `at` ends. Its pointer, if it has one, is not followed.
fn after_name(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            len @ 1..=63 => at += 1 + usize::from(len),
            0xc0.. => return Some(at + 2),
            64..0xc0 => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"\x01a\x00";
    const OPT: &[u8] = &[0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0];

    fn packet(high: u8, counts: [u8; 4], tail: &[&[u8]]) -> Vec<u8> {
        let [q, a, n, r] = counts;
        let header = [7, 7, high, 0, 0, q, 0, a, 0, n, 0, r];
        [&header[..], &tail.concat()].concat()
    }

    fn record(rtype: u8) -> Vec<u8> {
        [&[0xc0, 12, 0, rtype][..], &[0, 1, 0, 0, 0, 0, 0, 1, 9]].concat()
    }

    /// With an OPT record of which nothing was read, if there is one.
    fn code(rcode: Rcode, question: bool, opt: bool) -> Refusal {
        Refusal::Code {
            rcode,
            question,
            edns: opt.then(Edns::default),
        }
    }

    /// With what [`OPT`] says.
    fn read_code(rcode: Rcode, question: bool) -> Refusal {
        let edns = Edns {
            payload_max: 1_232,
            dnssec_ok: true,
            ..Edns::default()
        };
        Refusal::Code {
            rcode,
            question,
            edns: Some(edns),
        }
    }

    #[test]
    fn what_is_unusual_is_noted_and_taken_out() {
        let a = [NAME, &[0, 1, 0, 1]].concat();
        let (a, opt) = (&a[..], OPT);
        let chaos = [NAME, &[0, 16, 0, 3]].concat();
        let axfr = [NAME, &[0, 252, 0, 1]].concat();
        let ixfr_chaos = [NAME, &[0, 251, 0, 3]].concat();
        for (packet, rtype, class, signed) in [
            (packet(0, [1, 0, 0, 0], &[a]), 1, 1, false),
            (packet(2, [1, 0, 0, 1], &[a, opt]), 1, 1, true),
            (packet(0, [1, 0, 0, 0], &[&chaos]), 16, 3, false),
            (packet(0, [1, 0, 0, 1], &[&axfr, opt]), 252, 1, true),
            (
                packet(2, [1, 0, 1, 1], &[&ixfr_chaos, &record(6), opt]),
                251,
                3,
                true,
            ),
            (packet(0, [1, 0, 0, 2], &[a, &record(1), opt]), 1, 1, true),
            (packet(0, [1, 0, 0, 1], &[a, &record(1)]), 1, 1, false),
        ] {
            let asked = read(&packet).unwrap();
            assert_eq!((asked.rtype, asked.class), (Type(rtype), Class(class)));
            assert_eq!(asked.query.edns.is_some_and(|edns| edns.dnssec_ok), signed);
        }
    }

    #[test]
    fn what_is_no_question_is_refused() {
        let a = [NAME, &[0, 1, 0, 1]].concat();
        let a = &a[..];
        let nine: Vec<u8> = (0..9).flat_map(|_| record(1)).collect();
        for (packet, refusal) in [
            (vec![0; 5], Refusal::Silent),
            (packet(0x80, [1, 0, 0, 0], &[a]), Refusal::Silent),
            (
                packet(0x20, [1, 0, 0, 0], &[a]),
                code(Rcode::NotImp, false, false),
            ),
            (
                packet(0x28, [0, 0, 0, 0], &[]),
                code(Rcode::NotImp, false, false),
            ),
            (
                packet(0, [0, 0, 0, 0], &[]),
                code(Rcode::FormErr, false, false),
            ),
            (
                packet(0, [2, 0, 0, 0], &[a, a]),
                code(Rcode::FormErr, false, false),
            ),
            (
                packet(0, [1, 1, 0, 0], &[a, &record(1)]),
                code(Rcode::FormErr, false, false),
            ),
            (
                packet(0, [1, 0, 1, 0], &[a, &record(6)]),
                code(Rcode::FormErr, false, false),
            ),
            (
                packet(0, [1, 0, 0, 9], &[a, &nine]),
                code(Rcode::FormErr, false, false),
            ),
            (
                packet(0, [1, 0, 0, 1], &[a, &record(1), b"x"]),
                code(Rcode::FormErr, true, false),
            ),
            (
                packet(0, [1, 0, 0, 1], &[a, &record(250)]),
                code(Rcode::NotAuth, true, false),
            ),
            (
                packet(0, [1, 0, 0, 0], &[b"\x40"]),
                code(Rcode::FormErr, false, false),
            ),
        ] {
            assert_eq!(read(&packet), Err(refusal), "{packet:?}");
        }
    }

    #[test]
    fn a_refusal_of_a_query_with_opt_has_opt() {
        let a = [NAME, &[0, 1, 0, 1]].concat();
        let (a, opt) = (&a[..], OPT);
        let broken = [&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4][..], &[0, 8, 0, 9]].concat();
        for (packet, refusal) in [
            (
                packet(0x20, [1, 0, 0, 1], &[a, opt]),
                read_code(Rcode::NotImp, false),
            ),
            (
                packet(
                    0x28,
                    [1, 1, 1, 2],
                    &[a, &record(1), &record(6), &record(1), opt],
                ),
                read_code(Rcode::NotImp, false),
            ),
            (
                packet(0, [0, 0, 0, 1], &[opt]),
                read_code(Rcode::FormErr, false),
            ),
            (
                packet(0, [2, 0, 0, 1], &[a, a, opt]),
                read_code(Rcode::FormErr, false),
            ),
            (
                packet(0, [1, 0, 1, 1], &[a, &record(6), opt]),
                read_code(Rcode::FormErr, false),
            ),
            (
                packet(0, [1, 0, 0, 2], &[a, opt, opt]),
                code(Rcode::FormErr, true, true),
            ),
            (
                packet(0, [1, 0, 0, 2], &[a, opt]),
                read_code(Rcode::FormErr, true),
            ),
            (
                packet(0, [1, 0, 0, 2], &[a, opt, &record(250)]),
                read_code(Rcode::NotAuth, true),
            ),
            (
                packet(0, [1, 0, 0, 1], &[a, &broken]),
                code(Rcode::FormErr, true, true),
            ),
        ] {
            assert_eq!(read(&packet), Err(refusal), "{packet:?}");
        }
    }

    /// An OPT record of this version with a cookie, and DO.
    fn opt_with_cookie(version: u8) -> Vec<u8> {
        let head = [0, 0, 41, 4, 208, 0, version, 0x80, 0, 0, 12, 0, 10, 0, 8];
        [&head[..], b"clientck"].concat()
    }

    #[test]
    fn a_refusal_keeps_what_the_opt_record_says() {
        let a = [NAME, &[0, 1, 0, 1]].concat();
        let (a, opt) = (&a[..], &opt_with_cookie(0)[..]);
        for (packet, expected) in [
            (packet(0x20, [1, 0, 0, 1], &[a, opt]), Rcode::NotImp),
            (packet(0, [2, 0, 0, 1], &[a, a, opt]), Rcode::FormErr),
            (packet(0, [1, 0, 0, 2], &[a, opt]), Rcode::FormErr),
            (
                packet(0, [1, 0, 0, 2], &[a, opt, &record(250)]),
                Rcode::NotAuth,
            ),
        ] {
            let refusal = read(&packet);
            let Err(Refusal::Code { rcode, edns, .. }) = refusal else {
                panic!("{refusal:?}");
            };
            assert_eq!(rcode, expected);
            let edns = edns.unwrap();
            assert!(edns.dnssec_ok, "{rcode:?}");
            assert_eq!(edns.cookie.unwrap().client, *b"clientck", "{rcode:?}");
        }
    }

    #[test]
    fn a_version_that_is_not_known_comes_first() {
        let a = [NAME, &[0, 1, 0, 1]].concat();
        let (a, opt) = (&a[..], &opt_with_cookie(1)[..]);
        for packet in [
            packet(0, [0, 0, 0, 1], &[opt]),
            packet(0x20, [1, 0, 0, 1], &[a, opt]),
            packet(0, [2, 0, 0, 1], &[a, a, opt]),
            packet(0, [1, 0, 0, 2], &[a, opt, &record(250)]),
        ] {
            let refusal = read(&packet);
            let Err(Refusal::Code { rcode, edns, .. }) = refusal else {
                panic!("{refusal:?}");
            };
            assert_eq!(rcode, Rcode::BadVers);
            let edns = edns.unwrap();
            assert!(edns.dnssec_ok && edns.cookie.is_none());
        }
    }

    #[test]
    fn a_cookie_may_be_asked_for_without_a_question() {
        let option = |data: &[u8]| {
            let len = u8::try_from(data.len()).unwrap();
            let head = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, len + 4, 0, 10, 0, len];
            [&head[..], data].concat()
        };
        let asked = read(&packet(0, [0, 0, 0, 1], &[&option(b"clientck")]));
        let Err(Refusal::CookieAlone(edns)) = asked else {
            panic!("{asked:?}");
        };
        assert_eq!(edns.cookie.unwrap().client, *b"clientck");
        // Malformed: seven bytes.
        let short = read(&packet(0, [0, 0, 0, 1], &[&option(b"clientc")]));
        assert_eq!(short, Err(code(Rcode::FormErr, false, true)));
    }
}
