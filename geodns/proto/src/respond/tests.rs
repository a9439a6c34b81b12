//! Questions on the sample network, asked as bytes; answers are read by hickory-proto.

mod client_subnet;
mod limits;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::RecordType;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use proptest::prelude::*;
use ring::rand::SystemRandom;

use super::*;
use crate::content::Content;
use crate::dnssec::{Signer, Validity};
use crate::fuzz::{FirstByte, served, served_of};
use crate::zone::Zone;

const STEERED: &str = "signaling.rtc.example.com";
const NOW: Time = Time {
    monotonic_us: 5_000_000,
    unix_s: 1_700_000_000,
};
const NO_LIMITS: Limits = Limits {
    responses_per_s: 0,
    slip: 0,
};

fn zone() -> Zone {
    let text = include_str!("../../../../topology/samples/world.yaml");
    Zone::new(&topology::load(text, "world.yaml").unwrap()).unwrap()
}

fn unsigned() -> Served<FirstByte> {
    served(zone())
}

fn signed() -> Served<FirstByte> {
    let (zone, keys) = (zone(), crate::dnssec::tests::keys());
    let apex = zone.apex().clone();
    let random = SystemRandom::new();
    let signer = Signer {
        apex: &apex,
        keys: &keys,
        validity: Validity::at(1_700_000_000),
        random: &random,
    };
    let zone = zone.sign(&signer).unwrap();
    let steered = (0..3).map(|region| {
        let mut steered = zone.steered(&zone.carried([region], []));
        zone.sign_steered(&mut steered, &signer).unwrap();
        steered
    });
    let steered = steered.collect();
    served_of(&Content::new(zone, steered))
}

fn signed_once() -> &'static Served<FirstByte> {
    static SIGNED: std::sync::LazyLock<Served<FirstByte>> = std::sync::LazyLock::new(signed);
    &SIGNED
}

fn responder(limits: Limits) -> Responder {
    Responder::new("ns1", Secrets::single([9; 16]), limits, 3)
}

/// A query as bytes.
#[derive(Clone)]
struct Ask {
    name: Vec<u8>,
    qtype: u16,
    flags: [u8; 2],
    opt: Option<Opt>,
}

#[derive(Clone)]
struct Opt {
    payload: u16,
    version: u8,
    dnssec_ok: bool,
    options: Vec<u8>,
}

fn ask(name: &str, qtype: u16) -> Ask {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend(label.as_bytes());
    }
    wire.push(0);
    Ask {
        name: wire,
        qtype,
        flags: [1, 0],
        opt: None,
    }
}

impl Ask {
    fn opt(mut self, options: &[u8]) -> Self {
        let opt = self.opt.get_or_insert(Opt {
            payload: 1232,
            version: 0,
            dnssec_ok: false,
            options: Vec::new(),
        });
        opt.options.extend(options);
        self
    }

    fn with(self, change: impl FnOnce(&mut Opt)) -> Self {
        let mut ask = self.opt(&[]);
        change(ask.opt.as_mut().unwrap());
        ask
    }

    fn ecs(self, data: &str) -> Self {
        self.opt(&option(8, &hex(data)))
    }

    fn cookie(self, data: &[u8]) -> Self {
        self.opt(&option(10, data))
    }

    fn bytes(&self) -> Vec<u8> {
        let [high, low] = self.flags;
        let additional = u8::from(self.opt.is_some());
        let mut bytes = vec![0xab, 0xcd, high, low, 0, 1, 0, 0, 0, 0, 0, additional];
        bytes.extend(&self.name);
        bytes.extend(self.qtype.to_be_bytes());
        bytes.extend([0, 1]);
        if let Some(opt) = &self.opt {
            bytes.extend([0, 0, 41]);
            bytes.extend(opt.payload.to_be_bytes());
            bytes.extend([0, opt.version, u8::from(opt.dnssec_ok) << 7, 0]);
            bytes.extend(u16::try_from(opt.options.len()).unwrap().to_be_bytes());
            bytes.extend(&opt.options);
        }
        bytes
    }
}

fn option(code: u16, data: &[u8]) -> Vec<u8> {
    let len = u16::try_from(data.len()).unwrap();
    [&code.to_be_bytes()[..], &len.to_be_bytes(), data].concat()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn source() -> SocketAddr {
    // List 1, scope 8 + 1 % 17.
    "1.0.0.9:5353".parse().unwrap()
}

fn send(
    responder: &mut Responder,
    served: &Served<FirstByte>,
    query: &[u8],
    from: SocketAddr,
) -> Result<Vec<u8>, Verdict> {
    let mut buffer = [0xee; BUFFER_BYTES];
    buffer[..query.len()].copy_from_slice(query);
    match responder.respond(served, &mut buffer, query.len(), from, NOW) {
        Verdict::Answer { len } => Ok(buffer[..len].to_vec()),
        verdict @ (Verdict::Slow(_) | Verdict::Drop(_)) => Err(verdict),
    }
}

fn answered(served: &Served<FirstByte>, ask: &Ask) -> (Vec<u8>, Message) {
    let bytes = send(&mut responder(NO_LIMITS), served, &ask.bytes(), source()).unwrap();
    let message = Message::from_vec(&bytes).unwrap();
    (bytes, message)
}

fn code(message: &Message) -> ResponseCode {
    message.metadata.response_code
}

fn scope(message: &Message) -> Option<u8> {
    let edns = message.edns.as_ref()?;
    let option = edns.option(EdnsCode::Subnet)?;
    let EdnsOption::Subnet(subnet) = option else {
        panic!("{option:?}");
    };
    Some(subnet.scope_prefix())
}

fn addresses(message: &Message) -> Vec<String> {
    let records = message.answers.iter();
    records.map(|record| record.data.to_string()).collect()
}

fn cookie_of(message: &Message) -> Option<Vec<u8>> {
    let option = message.edns.as_ref()?.option(EdnsCode::Cookie)?;
    let EdnsOption::Unknown(_, data) = option else {
        panic!("{option:?}");
    };
    Some(data.clone())
}

const A: u16 = 1;
const AAAA: u16 = 28;

#[test]
fn every_name_and_type_has_its_answer() {
    use ResponseCode::{NXDomain, NoError, Refused};
    let served = unsigned();
    // Name, type, code, records of each section, authoritative.
    let table = [
        (STEERED, A, NoError, [1, 0, 0], true),
        (STEERED, AAAA, NoError, [1, 0, 0], true),
        (STEERED, 65, NoError, [1, 0, 0], true),
        (STEERED, 16, NoError, [0, 1, 0], true),
        (STEERED, 255, NoError, [1, 0, 0], true),
        ("rtc.example.com", 6, NoError, [1, 0, 0], true),
        ("rtc.example.com", 2, NoError, [2, 0, 3], true),
        ("rtc.example.com", 257, NoError, [1, 0, 0], true),
        ("rtc.example.com", 15, NoError, [0, 1, 0], true),
        ("rtc.example.com", 48, NoError, [0, 1, 0], true),
        ("eu.signaling.rtc.example.com", A, NoError, [1, 0, 0], true),
        ("ams.ingress.rtc.example.com", A, NoError, [1, 0, 0], true),
        ("ams.ingress.rtc.example.com", 33, NoError, [0, 1, 0], true),
        ("ingress.rtc.example.com", A, NoError, [0, 1, 0], true),
        ("nothing.rtc.example.com", A, NXDomain, [0, 1, 0], true),
        (
            "a.b.c.d.ams.ingress.rtc.example.com",
            65,
            NXDomain,
            [0, 1, 0],
            true,
        ),
        ("example.com", A, Refused, [0, 0, 0], false),
        ("xrtc.example.com", A, Refused, [0, 0, 0], false),
        ("org", 2, Refused, [0, 0, 0], false),
        (".", 2, Refused, [0, 0, 0], false),
    ];
    for (name, qtype, expected, counts, authoritative) in table {
        for ask in [ask(name, qtype), ask(name, qtype).opt(&[])] {
            let (bytes, message) = answered(&served, &ask);
            let what = format!("{name} {qtype}: {message:?}");
            assert_eq!(code(&message), expected, "{what}");
            let records = [&message.answers, &message.authorities, &message.additionals];
            assert_eq!(records.map(Vec::len), counts, "{what}");
            assert_eq!(message.metadata.authoritative, authoritative, "{what}");
            assert!(message.metadata.recursion_desired && !message.metadata.recursion_available);
            assert!(!message.metadata.truncation);
            assert_eq!(message.edns.is_some(), ask.opt.is_some(), "{what}");
            assert_eq!(bytes[..2], [0xab, 0xcd]);
            if expected == NXDomain || (expected == NoError && counts[0] == 0) {
                let soa = &message.authorities[0];
                assert_eq!(soa.record_type(), RecordType::SOA, "{what}");
                assert_eq!(soa.name.to_string(), "rtc.example.com.", "{what}");
            }
        }
    }
}

#[test]
fn letters_come_back_as_they_were_sent_and_flags_as_they_must() {
    let served = unsigned();
    let mut mixed = ask("SigNALing.rTC.example.COM", A);
    // AD, CD and the reserved bit are not echoed; RD is.
    mixed.flags = [0, 0x70];
    let (bytes, message) = answered(&served, &mixed);
    assert_eq!(bytes[2..4], [0x84, 0]);
    assert_eq!(bytes[12..12 + mixed.name.len()], mixed.name);
    assert_eq!(addresses(&message), ["192.0.2.132"]);
    mixed.flags = [0x05, 0];
    assert_eq!(answered(&served, &mixed).0[2..4], [0x85, 0]);
    let mut absent = ask("NoTHing.RTC.example.COM", A);
    absent.flags = [0, 0];
    let (_, message) = answered(&served, &absent);
    let owner = message.authorities[0].name.to_ascii();
    assert_eq!(owner, "RTC.example.COM.");
}

#[test]
fn another_version_of_edns_is_badvers_whatever_its_options() {
    let served = unsigned();
    let ask = ask(STEERED, A).ecs("ff").with(|opt| opt.version = 1);
    let (bytes, message) = answered(&served, &ask);
    // 16 has two names: BADVERS here, BADSIG with TSIG.
    assert_eq!(u16::from(code(&message)), 16);
    assert_eq!(message.edns.as_ref().unwrap().version(), 0);
    assert!(message.edns.as_ref().unwrap().options().as_ref().is_empty());
    assert!(message.answers.is_empty());
    assert_eq!(bytes.len(), ask.name.len() + 16 + 11);
}

#[test]
fn options_that_nobody_knows_change_nothing() {
    let served = unsigned();
    let plain = answered(&served, &ask(STEERED, A).opt(&[])).0;
    let options = [
        option(65_001, b"hello"),
        option(12, &[0; 400]),
        option(11, &[]),
    ]
    .concat();
    assert_eq!(answered(&served, &ask(STEERED, A).opt(&options)).0, plain);
}

#[test]
fn nsid_tells_the_name_of_the_node() {
    let served = unsigned();
    let asked = ask("example.com", A).opt(&option(3, &[]));
    let (bytes, message) = answered(&served, &asked);
    assert!(bytes.ends_with(&option(3, b"ns1")), "{message:?}");
    let long = "n".repeat(100);
    let mut responder = Responder::new(&long, Secrets::single([1; 16]), NO_LIMITS, 1);
    let bytes = send(&mut responder, &served, &asked.bytes(), source()).unwrap();
    assert!(bytes.ends_with(&option(3, &long.as_bytes()[..NSID_BYTES_MAX])));
}

#[test]
fn answers_longer_than_the_asker_takes_are_truncated() {
    let served = signed();
    let dnskey = |payload| {
        ask("nothing.rtc.example.com", A).with(|opt| {
            opt.payload = payload;
            opt.dnssec_ok = true;
        })
    };
    let (whole, message) = answered(&served, &dnskey(4096));
    assert!(
        whole.len() > 512 && whole.len() <= ANSWER_BYTES_MAX,
        "{}",
        whole.len()
    );
    assert!(!message.metadata.truncation);
    let exact = u16::try_from(whole.len()).unwrap();
    assert_eq!(answered(&served, &dnskey(exact)).0, whole);
    for payload in [exact - 1, 512, 0] {
        let (bytes, message) = answered(&served, &dnskey(payload));
        assert!(message.metadata.truncation, "{payload}");
        assert!(message.authorities.is_empty() && message.edns.is_some());
        assert_eq!(code(&message), ResponseCode::NXDomain);
        assert!(bytes.len() <= 512);
    }
}

#[test]
fn addresses_of_name_servers_are_left_out_before_an_answer_is_truncated() {
    let served = signed();
    let servers = |payload| {
        ask("rtc.example.com", 2).with(|opt| {
            opt.payload = payload;
            opt.dnssec_ok = true;
        })
    };
    let (whole, message) = answered(&served, &servers(1232));
    assert_eq!(
        message.additionals.len(),
        6,
        "three sets and their signatures"
    );
    let exact = u16::try_from(whole.len()).unwrap();
    let (short, message) = answered(&served, &servers(exact - 1));
    assert!(!message.metadata.truncation);
    assert_eq!((message.answers.len(), message.additionals.len()), (3, 0));
    assert!(message.edns.is_some() && short.len() < whole.len());
}

#[test]
fn signatures_come_to_those_who_want_them() {
    let served = signed();
    let count = |message: &Message, rtype| {
        let sections = [&message.answers, &message.authorities];
        let records = sections.into_iter().flatten();
        records
            .filter(|record| record.record_type() == rtype)
            .count()
    };
    for (name, qtype) in [
        (STEERED, A),
        (STEERED, 65),
        (STEERED, 16),
        ("rtc.example.com", 48),
        ("rtc.example.com", 2),
        ("ingress.rtc.example.com", A),
        ("nothing.rtc.example.com", A),
    ] {
        let with = ask(name, qtype).with(|opt| opt.dnssec_ok = true);
        let (_, message) = answered(&served, &with);
        assert!(count(&message, RecordType::RRSIG) > 0, "{name} {qtype}");
        assert!(message.edns.as_ref().unwrap().flags().dnssec_ok);
        let (_, message) = answered(&served, &ask(name, qtype).opt(&[]));
        assert_eq!(count(&message, RecordType::RRSIG), 0, "{name} {qtype}");
        assert!(!message.edns.as_ref().unwrap().flags().dnssec_ok);
    }
}

#[test]
fn each_reason_to_drop_or_hand_over_is_reached() {
    let served = unsigned();
    let good = ask(STEERED, A).bytes();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    let class_at = good.len() - 1;
    let mut tsig = ask(STEERED, A).opt(&[]).bytes();
    let type_at = good.len() + 2;
    tsig[type_at] = 250;
    let slow = [
        (changed(2, 0x28), SlowReason::Opcode),
        (changed(2, 0x02), SlowReason::Truncated),
        (changed(5, 2), SlowReason::Counts),
        (changed(5, 0), SlowReason::Counts),
        (changed(7, 1), SlowReason::Counts),
        (changed(11, 2), SlowReason::Counts),
        (changed(class_at, 3), SlowReason::Class),
        (ask("rtc.example.com", 252).bytes(), SlowReason::MetaType),
        (tsig, SlowReason::Additional),
        (
            ask("_explain.signaling.rtc.example.com", 16).bytes(),
            SlowReason::Name,
        ),
    ];
    let mut responder = responder(NO_LIMITS);
    for (query, reason) in slow {
        let verdict = send(&mut responder, &served, &query, source());
        assert_eq!(verdict, Err(Verdict::Slow(reason)), "{query:02x?}");
    }
    let zero = "1.0.0.9:0".parse().unwrap();
    let drops = [
        (good[..11].to_vec(), source(), DropReason::Short),
        (Vec::new(), source(), DropReason::Short),
        (changed(2, 0x80), source(), DropReason::Response),
        (good.clone(), zero, DropReason::SourcePort),
    ];
    for (query, from, reason) in drops {
        let verdict = send(&mut responder, &served, &query, from);
        assert_eq!(verdict, Err(Verdict::Drop(reason)), "{query:02x?}");
    }
    let counted = |reason| {
        responder
            .counts()
            .slow()
            .any(|(is, n)| is == reason && n > 0)
    };
    // What is signed is there from the beginning, so only a zone rendered in part hands over for it.
    let all = SlowReason::ALL.into_iter();
    assert!(
        all.filter(|reason| *reason != SlowReason::Signed)
            .all(counted)
    );
}

#[test]
fn an_answer_that_is_not_signed_yet_goes_the_slow_way() {
    use crate::render::{Answer, Records, RenderedBuilder};
    use std::sync::Arc;
    let mut builder = RenderedBuilder::new(b"\x01z\x00", 1).unwrap();
    let unsigned = Answer {
        plain: Records::default(),
        signed: None,
    };
    builder.name(b"\x01z\x00", unsigned, []).unwrap();
    let served = Served {
        rendered: Arc::new(builder.build()),
        ..self::unsigned()
    };
    let query = ask("z", A).with(|opt| opt.dnssec_ok = true).bytes();
    let verdict = send(&mut responder(NO_LIMITS), &served, &query, source());
    assert_eq!(verdict, Err(Verdict::Slow(SlowReason::Signed)));
}

#[test]
fn malformed_queries_are_formerr_with_as_much_of_the_question_as_there_is() {
    let served = unsigned();
    let good = ask(STEERED, A).opt(&[]).bytes();
    let question = ask(STEERED, A).bytes().len();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        bytes
    };
    let cases = [
        (with(&|q| q.push(0)), question, "a byte behind OPT"),
        (with(&|q| q.truncate(question + 5)), question, "half an OPT"),
        (
            with(&|q| q.truncate(question)),
            question,
            "no OPT, but counted",
        ),
        (with(&|q| q[question] = 1), question, "OPT of another name"),
        (
            with(&|q| q[question + 10] = 9),
            question,
            "OPT longer than the packet",
        ),
        (
            [ask(STEERED, A).bytes(), vec![0]].concat(),
            question,
            "a byte behind the question",
        ),
        (with(&|q| q[12] = 0xc0), 12, "a pointer"),
        (with(&|q| q[12] = 0x40), 12, "an unknown label"),
        (with(&|q| q.truncate(20)), 12, "half a name"),
        (with(&|q| q.truncate(question - 1)), 12, "half a question"),
        (
            ask(&vec!["a".repeat(63); 4].join("."), A).bytes(),
            12,
            "a name too long",
        ),
    ];
    for (query, echoed, why) in cases {
        let bytes = send(&mut responder(NO_LIMITS), &served, &query, source()).unwrap();
        assert_eq!(bytes[3] & 15, 1, "{why}");
        assert_eq!(bytes.len(), echoed, "{why}");
        assert_eq!(bytes[12..], query[12..echoed], "{why}");
        let message = Message::from_vec(&bytes).unwrap();
        assert_eq!(message.queries.len(), usize::from(echoed > 12), "{why}");
    }
}

#[test]
fn what_is_counted_adds_up() {
    let served = unsigned();
    let mut responder = responder(NO_LIMITS);
    for query in [
        ask(STEERED, A).bytes(),
        ask(STEERED, A).ecs("0001 18 00 080808").bytes(),
        ask(STEERED, AAAA).ecs("0002 00 00").cookie(&[1; 8]).bytes(),
        ask("nothing.rtc.example.com", A).bytes(),
        ask("example.com", A).bytes(),
        ask(STEERED, 252).bytes(),
        vec![0; 3],
    ] {
        let _ = send(&mut responder, &served, &query, source());
    }
    let counts = responder.counts();
    let answers: u64 = counts.outcomes().map(|(_, n)| n).sum();
    let drops: u64 = counts.drops().map(|(_, n)| n).sum();
    let slow: u64 = counts.slow().map(|(_, n)| n).sum();
    assert_eq!((counts.queries, answers, drops, slow), (7, 5, 1, 1));
    let cookies: Vec<u64> = counts.cookies().map(|(_, n)| n).collect();
    assert_eq!(cookies, [4, 1, 0, 0]);
    let bases: Vec<u64> = counts.bases().map(|(_, n)| n).collect();
    assert_eq!(bases, [1, 1, 0, 1]);
}

#[test]
fn nobody_is_sent_much_more_than_was_asked() {
    let served = signed();
    for name in [
        STEERED,
        "rtc.example.com",
        "nothing.rtc.example.com",
        "example.com",
    ] {
        for qtype in [A, AAAA, 2, 6, 16, 48, 65, 255] {
            let query = ask(name, qtype);
            let plain = answered(&served, &query).0.len();
            assert!(plain <= 8 * query.bytes().len(), "{name} {qtype}: {plain}");
            let query = query.with(|opt| opt.dnssec_ok = true);
            let signed = answered(&served, &query).0.len();
            assert!(
                signed <= 20 * query.bytes().len(),
                "{name} {qtype}: {signed}"
            );
        }
    }
}

/// The harness of the fuzzers, and hickory-proto's opinion.
fn hold(served: &Served<FirstByte>, query: &[u8]) {
    crate::fuzz::answer(query);
    if let Ok(bytes) = send(&mut responder(NO_LIMITS), served, query, source()) {
        let message = Message::from_vec(&bytes);
        assert!(
            message.is_ok(),
            "{query:02x?}: {:?}: {bytes:02x?}",
            message.err()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Any bytes, and any bytes behind a good question.
    #[test]
    fn nothing_makes_it_panic(noise in prop::collection::vec(any::<u8>(), 0..300), at in 0usize..80) {
        let served = signed_once();
        hold(served, &noise);
        let mut query = ask(STEERED, A).ecs("0001 18 00 080808").cookie(&[1; 8]).bytes();
        query.truncate(at.min(query.len()));
        query.extend(&noise);
        hold(served, &query);
    }

    /// Passes over a batch give what one packet at a time gives.
    #[test]
    fn batches_answer_as_single_packets_do(hosts in prop::collection::vec(any::<u8>(), 1..32)) {
        let served = unsigned();
        let queries: Vec<Vec<u8>> = hosts.iter().map(|host| match host % 4 {
            0 => ask(STEERED, A).ecs(&format!("0001 10 00 {host:02x}01")).bytes(),
            1 => ask(&format!("x{host}.rtc.example.com"), A).bytes(),
            2 => ask(STEERED, 255).cookie(&[*host; 8]).bytes(),
            _ => vec![*host; 20],
        }).collect();
        let mut buffers = vec![[0u8; BUFFER_BYTES]; queries.len()];
        let mut pending = vec![Pending::EMPTY; queries.len()];
        let mut batch = responder(NO_LIMITS);
        for ((buffer, query), pending) in buffers.iter_mut().zip(&queries).zip(&mut pending) {
            buffer[..query.len()].copy_from_slice(query);
            *pending = batch.read(&served.rendered, buffer, query.len(), source());
        }
        pending.iter_mut().for_each(|pending| pending.locate(&*served.tables));
        let mut single = responder(NO_LIMITS);
        for ((buffer, query), pending) in buffers.iter_mut().zip(&queries).zip(&pending) {
            let verdict = batch.answer(&served, pending, buffer, source().ip(), NOW);
            let alone = send(&mut single, &served, query, source());
            match verdict {
                Verdict::Answer { len } => prop_assert_eq!(&buffer[..len], &alone.unwrap()[..]),
                Verdict::Slow(_) | Verdict::Drop(_) => prop_assert_eq!(Err(verdict), alone),
            }
        }
        prop_assert_eq!(batch.counts(), single.counts());
    }
}
