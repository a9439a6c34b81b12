//! The fast and the slow path say the same: they share what the zone says and how a query is read, and nothing of how an answer is
//! found and written. What differs is the form of names; both are read back and compared by meaning.

#![cfg(test)]

mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use geodns::slow::{Answerer, Current, Transport};
use geodns_proto::cookie::Secrets;
use geodns_proto::query::Query;
use geodns_proto::rate_limit::Limits;
use geodns_proto::respond::{
    ANSWER_BYTES_MAX, ANSWER_BYTES_MIN, BUFFER_BYTES, Responder, Time, Verdict,
};
use hickory_proto::op::Message;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use support::{NOW_S, Quarters, snapshot};

/// Queries, half of them as they come out of the generator and half with bytes changed.
const QUERIES: u32 = 100_000;
const NODE: &str = "ns1";

/// Both ways, over the same snapshot.
struct Both {
    current: Current<Quarters>,
    fast: Responder,
    slow: Answerer<Quarters>,
    counts: Counts,
}

/// How often each thing was seen: a test that compares nothing would be none.
#[derive(Debug, Default)]
struct Counts {
    answers: usize,
    dropped: usize,
    slow: usize,
    cut_once: usize,
}

impl Both {
    fn new(signed: bool) -> Self {
        let current: Current<_> = Arc::new(ArcSwap::from_pointee(snapshot(signed)));
        let unlimited = Limits {
            responses_per_s: 0,
            slip: 0,
        };
        Self {
            fast: Responder::new(NODE, Secrets::single([9; 16]), unlimited, 3),
            slow: Answerer::new(Arc::clone(&current), NODE, Arc::new(|_, _| Vec::new())),
            current,
            counts: Counts::default(),
        }
    }

    fn check(&mut self, query: &[u8], source: SocketAddr) {
        let mut buffer = [0; BUFFER_BYTES];
        let Some(slot) = buffer.get_mut(..query.len()) else {
            return;
        };
        slot.copy_from_slice(query);
        let served = self.current.load();
        let now = Time {
            monotonic_us: 0,
            unix_s: NOW_S,
        };
        let verdict = self
            .fast
            .respond(&served.served, &mut buffer, query.len(), source, now);
        let answer = |transport| self.slow.answer(query, source, transport, NOW_S);
        let slow = answer(Transport::Udp);
        match verdict {
            Verdict::Answer { len } => {
                self.counts.answers += 1;
                let slow = slow.expect("the fast path answers and the slow path does not");
                let whole = answer(Transport::Tcp).unwrap();
                self.counts.cut_once += compare(query, &buffer[..len], &slow, &whole);
            }
            Verdict::Drop(reason) => {
                self.counts.dropped += 1;
                assert_eq!(slow, None, "dropped by the fast path: {reason:?}");
            }
            Verdict::Slow(_) => {
                self.counts.slow += 1;
                if let Some(answer) = slow {
                    assert!(Message::from_vec(&answer).is_ok(), "{answer:02x?}");
                }
            }
        }
    }
}

/// Compares by meaning. 1: exactly one of both did not fit, which is right when it was close.
fn compare(query: &[u8], fast: &[u8], slow: &[u8], whole: &[u8]) -> usize {
    let read = |bytes: &[u8]| {
        Message::from_vec(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:02x?}"))
    };
    let (mut a, mut b) = (read(fast), read(slow));
    let limit = len_max(query);
    assert!(fast.len() <= limit && slow.len() <= limit, "{limit}");
    // Compression of names may save this much.
    let is_close = whole.len() + 256 > limit;
    let cut_once = a.metadata.truncation != b.metadata.truncation;
    if cut_once {
        assert!(is_close, "cut: {} {limit}", whole.len());
        for message in [&mut a, &mut b] {
            message.metadata.truncation = true;
            message.take_all_sections().for_each(drop);
        }
    }
    let shortened_once = a.additionals.is_empty() != b.additionals.is_empty();
    if shortened_once {
        assert!(is_close, "shortened: {} {limit}", whole.len());
        for message in [&mut a, &mut b] {
            message.additionals.clear();
        }
    }
    assert_eq!(a.metadata, b.metadata);
    assert_eq!(
        question(fast, &a),
        question(slow, &b),
        "the question is echoed"
    );
    assert!(query.starts_with(&fast[..2]));
    let lines = |message: &Message| {
        let line = |record: &_| format!("{record:?}").to_ascii_lowercase();
        [&message.answers, &message.authorities, &message.additionals]
            .map(|section| section.iter().map(line).collect::<Vec<_>>())
    };
    assert_eq!(lines(&a), lines(&b));
    assert_eq!(opt(&a), opt(&b));
    usize::from(cut_once)
}

/// Bytes an answer to the query may have.
fn len_max(query: &[u8]) -> usize {
    let edns = Query::parse(query).ok().and_then(|query| query.edns);
    edns.map_or(ANSWER_BYTES_MIN, |edns| {
        usize::from(edns.payload_max).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
    })
}

/// The bytes of the question.
fn question<'a>(bytes: &'a [u8], message: &Message) -> &'a [u8] {
    match message.queries.first() {
        Some(query) => &bytes[12..16 + query.name.len()],
        None => &[],
    }
}

fn opt(message: &Message) -> Option<String> {
    let edns = message.edns.as_ref()?;
    let mut options = edns.options().options.clone();
    options.sort_by_key(|(code, _)| u16::from(*code));
    let head = (edns.max_payload(), edns.version(), edns.flags());
    Some(format!("{head:?} {options:?}"))
}

/// The comparison itself: what fits must be there, however short the two answers are without it.
#[test]
#[should_panic(expected = "shortened")]
fn additional_records_that_fit_must_not_be_missing() {
    let both = Both::new(true);
    let mut query = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(b"\x03rtc\x07example\x03com\x00\x00\x02\x00\x01");
    query.extend([0, 0, 41, 4, 208, 0, 0, 0x80, 0, 0, 0]);
    let source = SocketAddr::from(([192, 0, 2, 1], 4_711));
    let answer = |transport| both.slow.answer(&query, source, transport, NOW_S).unwrap();
    let whole = answer(Transport::Tcp);
    let mut shortened = Message::from_vec(&whole).unwrap();
    assert!(!shortened.additionals.is_empty(), "addresses of servers");
    shortened.additionals.clear();
    let shortened = shortened.to_vec().unwrap();
    compare(&query, &shortened, &answer(Transport::Udp), &whole);
}

#[test]
fn both_ways_say_the_same_in_a_plain_zone() {
    agree(false);
}

#[test]
fn both_ways_say_the_same_in_a_signed_zone() {
    agree(true);
}

fn agree(signed: bool) {
    let mut both = Both::new(signed);
    let config = Config {
        cases: QUERIES / 2,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    let cell = std::cell::RefCell::new(&mut both);
    runner
        .run(
            &(query(), changes(), source()),
            |(query, changes, source)| {
                let mut both = cell.borrow_mut();
                both.check(&query, source);
                both.check(&changed(query, &changes), source);
                Ok(())
            },
        )
        .unwrap();
    let Counts {
        answers,
        dropped,
        slow,
        cut_once,
    } = both.counts;
    assert!(answers > 40_000, "{answers} answers compared");
    assert!(dropped > 100 && slow > 1_000, "{dropped} {slow}");
    assert!(cut_once < answers / 50, "{cut_once} of {answers}");
}

fn source() -> impl Strategy<Value = SocketAddr> {
    let v4 = any::<u32>().prop_map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let v6 = any::<u128>().prop_map(|bits| IpAddr::V6(bits.into()));
    prop_oneof![v4, v6].prop_map(|ip| SocketAddr::new(ip, 4_711))
}

/// A well-formed query, or nearly so.
fn query() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![
        6 => Just(0_u16),
        6 => Just(0x0100),
        1 => any::<u16>().prop_map(|bits| bits & 0x01ff),
        1 => any::<u16>(),
    ];
    let class = prop_oneof![20 => Just(1_u16), 1 => Just(3), 1 => Just(255), 1 => any::<u16>()];
    let parts = (any::<u16>(), flags, name(), rtype(), class, edns());
    parts.prop_map(|(id, flags, name, rtype, class, edns)| {
        let mut query = Vec::new();
        let additional = u16::from(!edns.is_empty());
        for number in [id, flags, 1, 0, 0, additional] {
            query.extend(number.to_be_bytes());
        }
        query.extend(name);
        query.extend(rtype.to_be_bytes());
        query.extend(class.to_be_bytes());
        query.extend(edns);
        query
    })
}

fn rtype() -> impl Strategy<Value = u16> {
    let known = vec![
        1_u16, 1, 28, 65, 16, 6, 2, 257, 255, 48, 47, 46, 43, 59, 60, 15, 5, 252, 128,
    ];
    prop_oneof![10 => prop::sample::select(known), 1 => any::<u16>()]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let known = vec![
        "rtc.example.com",
        "signaling.rtc.example.com",
        "signaling.rtc.example.com",
        "signaling.rtc.example.com",
        "_explain.signaling.rtc.example.com",
        "eu.signaling.rtc.example.com",
        "us-west.signaling.rtc.example.com",
        "ingress.rtc.example.com",
        "ams.ingress.rtc.example.com",
        "ns1.rtc.example.com",
        "ns2.rtc.example.com",
        "example.com",
        "com",
        "",
        "version.bind",
    ];
    let label = vec(any::<u8>(), 1..12);
    let known = prop::sample::select(known);
    (
        known,
        vec(label, 0..4),
        prop::bool::weighted(0.4),
        any::<u64>(),
    )
        .prop_map(|(known, labels, absent, cases)| {
            let mut wire = Vec::new();
            for label in labels.iter().filter(|_| absent) {
                wire.push(u8::try_from(label.len()).unwrap());
                wire.extend(label);
            }
            for label in known.split('.').filter(|label| !label.is_empty()) {
                wire.push(u8::try_from(label.len()).unwrap());
                let upper = |(at, byte): (usize, u8)| match cases >> (at % 64) & 1 {
                    0 => byte,
                    _ => byte.to_ascii_uppercase(),
                };
                wire.extend(label.bytes().enumerate().map(upper));
            }
            wire.push(0);
            wire
        })
}

fn edns() -> impl Strategy<Value = Vec<u8>> {
    let payload = prop_oneof![Just(1_232_u16), Just(512), Just(4_096), any::<u16>()];
    let version = prop_oneof![20 => Just(0_u8), 1 => any::<u8>()];
    let flags = prop_oneof![4 => Just(0x8000_u16), 3 => Just(0), 1 => any::<u16>()];
    let opt = (payload, version, flags, vec(option(), 0..4)).prop_map(
        |(payload, version, flags, options)| {
            let options = options.concat();
            let mut opt = vec![0, 0, 41];
            opt.extend(payload.to_be_bytes());
            opt.extend([0, version]);
            opt.extend(flags.to_be_bytes());
            opt.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
            opt.extend(options);
            opt
        },
    );
    prop_oneof![1 => Just(Vec::new()), 4 => opt]
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let nsid = Just((3_u16, Vec::new()));
    let cookie = prop_oneof![
        4 => vec(any::<u8>(), 8..9),
        2 => vec(any::<u8>(), 24..25),
        1 => vec(any::<u8>(), 0..50),
    ]
    .prop_map(|data| (10, data));
    let other = (any::<u16>(), vec(any::<u8>(), 0..20));
    prop_oneof![1 => nsid, 2 => cookie, 4 => subnet(), 1 => other].prop_map(|(code, data)| {
        let mut option = code.to_be_bytes().to_vec();
        option.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        option.extend(data);
        option
    })
}

/// A client subnet, mostly as RFC 7871 wants it.
fn subnet() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let strict = (any::<bool>(), any::<u128>(), 0..=128_u8).prop_map(|(v6, bits, source)| {
        let (family, max) = if v6 { (2, 128) } else { (1, 32) };
        let source = if source % 5 == 0 {
            0
        } else {
            source % (max + 1)
        };
        let cut = bits & !u128::MAX.checked_shr(source.into()).unwrap_or(0);
        let mut data = vec![0, family, source, 0];
        data.extend(
            cut.to_be_bytes()
                .iter()
                .take(usize::from(source).div_ceil(8)),
        );
        data
    });
    let any = vec(any::<u8>(), 0..24);
    prop_oneof![8 => strict, 1 => any].prop_map(|data| (8, data))
}

/// Bytes to change: where, and to what.
fn changes() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, u8)>> {
    vec((any::<prop::sample::Index>(), any::<u8>(), 0..6_u8), 1..4)
}

fn changed(mut query: Vec<u8>, changes: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    for (at, byte, kind) in changes {
        if query.is_empty() {
            break;
        }
        let at = at.index(query.len());
        match kind {
            0 => query[at] = *byte,
            1 => query[at] ^= 1 << (byte & 7),
            2 => query.insert(at, *byte),
            3 => drop(query.remove(at)),
            4 => query.truncate(at),
            _ => query.push(*byte),
        }
    }
    query
}
