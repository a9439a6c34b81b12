//! One harness per parser of what the network sends: bytes in, assertions inside. `cargo test` replays `corpora/<name>/` through them
//! and mutates it with a seed; a coverage-guided fuzzer can call the same functions.
//!
//! They assert what must hold for every input, never what one implementation happens to return.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use crate::content::Content;
use crate::cookie::Secrets;
use crate::ecs::Subnet;
use crate::query::{HEADER_BYTES, QUESTION_TAIL_BYTES, Query, Unread};
use crate::rate_limit::Limits;
use crate::render::AnswerId;
use crate::respond::{ANSWER_BYTES_MAX, ANSWER_BYTES_MIN, BUFFER_BYTES, Responder, Time, Verdict};
use crate::select::{Locate, Place, SLOTS, Selection, Served};
use crate::zone::Zone;

/// A harness.
pub type Target = fn(&[u8]);

/// Every harness by name; the name is also its corpus directory.
pub const TARGETS: [(&str, Target); 4] = [
    ("query", query),
    ("subnet", subnet),
    ("secrets", secrets),
    ("answer", answer),
];

/// A packet: what is read lies inside it, and what is echoed, too.
pub fn query(bytes: &[u8]) {
    match Query::parse(bytes) {
        Ok(query) => {
            assert!(query.question_end() <= bytes.len());
            let name = bytes.get(HEADER_BYTES..HEADER_BYTES + usize::from(query.name_len));
            assert!(name.is_some_and(|name| name.last() == Some(&0)));
            let rest = bytes.len() - query.question_end();
            assert_eq!(rest == 0, query.edns.is_none(), "no byte is passed over");
        }
        Err(Unread::Malformed { echo_len, .. }) => {
            assert!((HEADER_BYTES..=bytes.len()).contains(&usize::from(echo_len)));
        }
        Err(Unread::Drop(_) | Unread::Slow(_)) => {}
    }
}

/// A client subnet: what is taken is written as it was read, but for the scope.
pub fn subnet(bytes: &[u8]) {
    let Ok(subnet) = Subnet::parse(bytes) else {
        return;
    };
    let echoed = subnet.option(0);
    assert_eq!(echoed.get(..subnet.option_len()), Some(bytes));
}

/// A file of secrets: what is taken makes cookies it takes back.
pub fn secrets(bytes: &[u8]) {
    use crate::cookie::Standing;
    use crate::query::{Cookie, ServerCookie};
    let text = String::from_utf8_lossy(bytes);
    let Ok(secrets) = Secrets::parse(&text) else {
        return;
    };
    let source = IpAddr::from([192, 0, 2, 1]);
    let mut cookie = Cookie {
        client: [1; 8],
        server: ServerCookie::None,
    };
    let (_, server) = secrets.judge(&cookie, source, 7);
    cookie.server = ServerCookie::Ours(server);
    assert_eq!(secrets.judge(&cookie, source, 7).0, Standing::Valid);
}

/// A packet to the whole of the fast path, with the sample zone behind it: an answer is a message of the size allowed that says the
/// same id and question; a query that is handed over is as it came.
pub fn answer(bytes: &[u8]) {
    let served = &*SERVED;
    let len = bytes.len().min(BUFFER_BYTES);
    let packet = bytes.get(..len).unwrap_or_default();
    let mut buffer = [0xa5; BUFFER_BYTES];
    if let Some(slot) = buffer.get_mut(..len) {
        slot.copy_from_slice(packet);
    }
    let no_limits = Limits {
        responses_per_s: 0,
        slip: 0,
    };
    let secrets = Secrets::single([7; 16]);
    let mut responder = Responder::new("ns1", secrets, no_limits, 1);
    let source = SocketAddr::from(([203, 0, 113, 9], 4242));
    match responder.respond(served, &mut buffer, len, source, Time::default()) {
        Verdict::Answer { len } => check_answer(packet, buffer.get(..len).unwrap_or_default()),
        Verdict::Slow(_) => assert_eq!(buffer.get(..len), Some(packet)),
        Verdict::Drop(_) => {}
    }
}

fn check_answer(query: &[u8], answer: &[u8]) {
    let parsed = Query::parse(query);
    let edns = parsed.ok().and_then(|query| query.edns);
    let max = edns.map_or(ANSWER_BYTES_MIN, |edns| {
        usize::from(edns.payload_max).clamp(ANSWER_BYTES_MIN, ANSWER_BYTES_MAX)
    });
    assert!(answer.len() <= max, "{} of {max} bytes", answer.len());
    assert_eq!(answer.first_chunk::<2>(), query.first_chunk::<2>(), "id");
    assert!(answer.get(2).is_some_and(|flags| flags & 0x80 != 0), "QR");
    if let Ok(parsed) = parsed {
        let question = HEADER_BYTES..parsed.question_end();
        assert_eq!(answer.get(question.clone()), query.get(question));
    }
    assert_eq!(walk(answer), Some(answer.len()), "{answer:02x?}");
}

/// Where the last record ends; `None` when a part is not whole.
fn walk(message: &[u8]) -> Option<usize> {
    let [.., a, b, c, d, e, f, g, h] = *message.first_chunk::<HEADER_BYTES>()?;
    let count = |high, low| u16::from_be_bytes([high, low]);
    let mut at = HEADER_BYTES;
    for _ in 0..count(a, b) {
        at = name_end(message, at)? + QUESTION_TAIL_BYTES;
    }
    let records = [count(c, d), count(e, f), count(g, h)];
    for _ in 0..records.map(u32::from).iter().sum() {
        at = name_end(message, at)?;
        let fixed = message.get(at..)?.first_chunk::<RECORD_BYTES>()?;
        let [.., high, low] = *fixed;
        at += RECORD_BYTES + usize::from(count(high, low));
    }
    (at <= message.len()).then_some(at)
}

/// Type, class, TTL and length of a record's data.
const RECORD_BYTES: usize = 10;

/// Where a name that begins at `at` ends; a pointer must lead backwards.
fn name_end(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            label @ 1..=63 => at += 1 + usize::from(label),
            high @ 0xc0.. => {
                let low = *message.get(at + 1)?;
                let target = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                return (HEADER_BYTES..at).contains(&target).then_some(at + 2);
            }
            64..0xc0 => return None,
        }
    }
}

/// Places that depend on the first byte of an address.
#[derive(Debug)]
pub(crate) struct FirstByte;

impl Locate for FirstByte {
    fn locate_v4(&self, address: u32) -> Place {
        let [first, ..] = address.to_be_bytes();
        Place {
            list: u32::from(first) % 4,
            scope: 8 + first % 17,
        }
    }

    fn locate_v6(&self, address: u128) -> Place {
        let [first, second, ..] = address.to_be_bytes();
        Place {
            list: u32::from(first ^ second) % 4,
            scope: 16 + second % 33,
        }
    }

    fn first_word(&self, _: IpAddr) -> &u32 {
        &0
    }

    fn slot(&self, client: IpAddr) -> u8 {
        match client {
            IpAddr::V4(v4) => v4.octets()[1],
            IpAddr::V6(v6) => v6.octets()[4],
        }
    }
}

static SERVED: LazyLock<Served<FirstByte>> = LazyLock::new(|| {
    let text = include_str!("../../../topology/samples/world.yaml");
    let topology = topology::load(text, "world.yaml").expect("the sample is a topology");
    let zone = Zone::new(&topology).expect("the sample has a zone");
    served(zone)
});

/// Lists 0 to 2 have one region each, list 3 shares its clients between two.
pub(crate) fn served(zone: Zone) -> Served<FirstByte> {
    let steered = (0..3)
        .map(|region| zone.steered(&zone.carried([region], [])))
        .collect();
    served_of(&Content::new(zone, steered))
}

pub(crate) fn served_of(content: &Content) -> Served<FirstByte> {
    let mut selection = Selection::new();
    (0..3).for_each(|answer| selection.push(AnswerId(answer)));
    let mut slots = [AnswerId(0); SLOTS];
    for slot in slots.iter_mut().step_by(2) {
        *slot = AnswerId(2);
    }
    selection.push_shared(slots);
    Served {
        tables: Arc::new(FirstByte),
        selection: Arc::new(selection),
        rendered: Arc::new(content.render(7).expect("the sample fits")),
    }
}
