//! One harness per parser: bytes in, assertions inside. `cargo test` replays `corpora/<name>/` through them and mutates
//! it with a seed; a coverage-guided fuzzer can call the same functions.
//!
//! They assert what must hold for every input, never what one implementation happens to return.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::hint::{Hint, HintError, KeyId, KeyRing, Minute, UFRAG_LEN};
use crate::ids::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};
use crate::reassembly::{Reassembled, Reassembler};
use crate::record::{
    DATAGRAM_HEADER_LEN, DatagramKind, Fragment, PAYLOAD_LEN_MAX, RecordHeader, Records,
    datagram_header, open_datagram, put_record, split,
};
use crate::stun;

/// A harness.
pub type Target = fn(&[u8]);

/// Every harness by name; the name is also its corpus directory.
pub const TARGETS: [(&str, Target); 5] = [
    ("stun", stun),
    ("hint", hint),
    ("key_file", key_file),
    ("datagram", datagram),
    ("reassembly", reassembly),
];

/// A client packet: parsed attributes account for every byte, and what is peeked lies inside.
pub fn stun(bytes: &[u8]) {
    let Ok(header) = stun::parse(bytes) else {
        return;
    };
    // Methods from 0x200 start above RFC 7983's range for STUN, so the classifier may say otherwise, but never RTP.
    assert_ne!(stun::PacketKind::of(bytes), stun::PacketKind::Rtp);
    assert_eq!(header.attributes.len() + stun::HEADER_LEN, bytes.len());
    let mut end = 0;
    let mut whole = true;
    for attribute in header.attributes() {
        let Ok(attribute) = attribute else {
            whole = false;
            break;
        };
        assert_eq!(attribute.offset, end, "attributes follow each other");
        end += 4 + attribute.value.len().next_multiple_of(4);
    }
    assert!(
        !whole || end == header.attributes.len(),
        "no byte is skipped"
    );
    if let Ok(ufrag) = header.local_ufrag() {
        assert!(!ufrag.contains(&b':'));
        assert!(header.username().is_ok_and(|name| name.starts_with(ufrag)));
    }
}

/// A ufrag: what opens is sealed by us, and nothing but our own 23 characters opens.
pub fn hint(bytes: &[u8]) {
    let ring = KeyRing::single(KEY_ID, KEY);
    match ring.open(bytes) {
        Ok(hint) => {
            assert_eq!(bytes.len(), UFRAG_LEN);
            let again = ring.seal(hint, [0; 3]);
            assert_eq!(ring.open(again.as_bytes()), Ok(hint));
        }
        Err(HintError::UnknownKey | HintError::Forged) => assert_eq!(bytes.len(), UFRAG_LEN),
        Err(HintError::Malformed) => {}
    }
    // The same bytes as the content of a hint: sealing and opening returns it, whatever it is.
    if let Some((content, _)) = bytes.split_first_chunk::<11>() {
        let [r0, r1, t0, t1, t2, t3, m0, m1, random @ ..] = *content;
        let hint = Hint {
            owner: Owner {
                region: RegionId(u16::from_be_bytes([r0, r1])),
                transceiver: TransceiverId(u32::from_be_bytes([t0, t1, t2, t3])),
            },
            issued: Minute(u16::from_be_bytes([m0, m1])),
        };
        assert_eq!(ring.open(ring.seal(hint, random).as_bytes()), Ok(hint));
    }
}

/// A key file: what parses can seal and open.
pub fn key_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(ring) = KeyRing::parse(text) else {
        return;
    };
    let hint = Hint {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        },
        issued: Minute(1),
    };
    assert_eq!(ring.open(ring.seal(hint, [0; 3]).as_bytes()), Ok(hint));
}

/// A datagram: what parses encodes to the same bytes.
pub fn datagram(bytes: &[u8]) {
    let Ok((kind, sequence, body)) = open_datagram(bytes) else {
        return;
    };
    let header = datagram_header(kind, sequence);
    assert!(bytes.starts_with(&header));
    assert_eq!(header.len() + body.len(), bytes.len());
    if kind != DatagramKind::Records {
        return;
    }
    let mut again = Vec::with_capacity(body.len());
    let mut broken = false;
    for record in Records::new(body) {
        assert!(!broken, "an error ends the walk");
        let Ok(record) = record else {
            broken = true;
            continue;
        };
        assert!(record.payload.len() <= PAYLOAD_LEN_MAX);
        assert!(!record.is_end() || record.header.fragment.is_none());
        let before = again.len();
        put_record(&mut again, &record.header, record.payload);
        assert_eq!(
            again.len() - before,
            record.header.encoded_len() + record.payload.len()
        );
    }
    assert!(body.starts_with(&again), "re-encoding gives the input");
    assert!(broken || again.len() == body.len(), "no byte is skipped");
}

/// Any sequence of fragments: never more than a packet, bounded, and an honest packet still gets through at the end.
///
/// Input: steps of 8 bytes `[client, id, index, count, length high, length low, fill, milliseconds]`.
pub fn reassembly(bytes: &[u8]) {
    const PACKETS_MAX: u16 = 4;
    const TTL: Duration = Duration::from_millis(500);
    let mut reassembler = Reassembler::new(PACKETS_MAX, TTL, 7);
    let mut now = origin();
    let (mut pushed, payload) = (0u64, [0u8; PAYLOAD_LEN_MAX + 64]);
    for step in bytes.chunks_exact(8) {
        let [client, id, index, count, l0, l1, fill, ms] = *step else {
            continue;
        };
        now += Duration::from_millis(u64::from(ms));
        let fragment = Fragment {
            id: u16::from(id % 8),
            index: index % 6,
            count: count % 6,
        };
        let len = usize::from(u16::from_be_bytes([l0, l1])) % payload.len();
        let mut part = payload;
        part.fill(fill);
        let part = part.get(..len).unwrap_or_default();
        pushed += 1;
        match reassembler.push(&fuzz_header(client % 4, Some(fragment)), part, now) {
            Reassembled::Complete(packet) => {
                assert!((2..=PAYLOAD_LEN_MAX).contains(&packet.len()));
                assert!(packet.ends_with(part) || packet.windows(part.len()).any(|w| w == part));
            }
            Reassembled::Pending | Reassembled::Dropped(_) => {}
        }
        assert!(reassembler.pending() <= usize::from(PACKETS_MAX));
        let stats = reassembler.stats();
        let ended = stats.completed + stats.expired + stats.evicted + stats.superseded;
        assert!(ended + reassembler.pending() as u64 <= pushed);
    }
    honest_packet(&mut reassembler, bytes, now);
}

fn honest_packet(reassembler: &mut Reassembler, bytes: &[u8], now: Instant) {
    let payload: Vec<u8> = bytes.iter().copied().take(PAYLOAD_LEN_MAX).collect();
    let header = fuzz_header(200, None);
    let room = header.encoded_len() + 4 + payload.len().div_ceil(3);
    let Some(parts) = split(header, &payload, room, 9) else {
        return;
    };
    let mut out = None;
    for part in parts {
        assert!(part.header.encoded_len() + part.payload.len() <= room);
        if let Reassembled::Complete(packet) = reassembler.push(&part.header, part.payload, now) {
            out = Some(packet.to_vec());
        }
    }
    assert_eq!(out.unwrap_or_default(), payload);
}

fn fuzz_header(client: u8, fragment: Option<Fragment>) -> RecordHeader {
    RecordHeader {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(2),
        },
        tag: Tag {
            pop: PopId(3),
            worker: 0,
            ingress: 0,
        },
        client: ClientAddr::new(([192, 0, 2, client], 4000).into()),
        hops: 0,
        fragment,
        offered: false,
    }
}

/// Some instant to count from, the same for the life of the process. Harnesses only ever add to it, so which one it is
/// does not matter.
#[expect(
    clippy::disallowed_methods,
    reason = "an Instant can be made in no other way, and its value has no effect"
)]
pub(crate) fn origin() -> Instant {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    *ORIGIN
}

const KEY_ID: KeyId = match KeyId::new(5) {
    Some(id) => id,
    None => unreachable!(),
};
const KEY: [u8; 16] = *b"harness key 16 B";
const _: () = assert!(DATAGRAM_HEADER_LEN == 4);
