//! What holds for every hint, every record and every way to split a packet.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use wire::hint::{Hint, HintError, KeyRing, Minute, UFRAG_LEN};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{Fragment, PAYLOAD_LEN_MAX, RecordHeader, Records, put_record, split};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

const KEYS: &str = "previous 1 8f0e2ab93c55d1760a4b9e1f23c4d5e6\n\
    current 2 5b7c1a0d9e8f34621b2c3d4e5f607182\nnext 3 c3d4e5f60718293a4b5c6d7e8f901a2b";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hints_round_trip(hint in any_hint(), random in any::<[u8; 3]>()) {
        let ring = keys();
        let ufrag = ring.seal(hint, random);
        prop_assert_eq!(ring.open(ufrag.as_bytes()), Ok(hint));
    }

    #[test]
    fn a_flipped_bit_never_opens(hint in any_hint(), random in any::<[u8; 3]>(), bit in 0..UFRAG_LEN * 8) {
        let ring = keys();
        let mut ufrag = *<&[u8; UFRAG_LEN]>::try_from(ring.seal(hint, random).as_bytes()).unwrap();
        ufrag[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(ring.open(&ufrag).is_err());
    }

    #[test]
    fn records_round_trip(mut records in vec((any_header(), vec(any::<u8>(), 0..200)), 0..8)) {
        let mut body = Vec::new();
        for (header, payload) in &mut records {
            if payload.is_empty() {
                header.fragment = None;
            }
            put_record(&mut body, header, payload);
        }
        let back: Vec<_> = Records::new(&body)
            .map(|record| record.map(|record| (record.header, record.payload.to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        prop_assert_eq!(back, records);
    }

    #[test]
    fn flow_records_round_trip(hint in any_hint(), client in any_client(), port in any::<u16>()) {
        use wire::flow_record::{FlowId, FlowRecord};
        let ring = keys();
        let flow = FlowId { client, vip: ([198, 51, 100, 1], port).into() };
        let record = FlowRecord { owner: hint.owner, seen: hint.issued };
        let value = ring.seal_flow(flow, record);
        prop_assert_eq!(ring.open_flow(flow, &value.0), Ok(record));
    }

    #[test]
    fn harnesses_take_noise(bytes in vec(any::<u8>(), 0..1600)) {
        for (_, target) in wire::fuzz::TARGETS {
            target(&bytes);
        }
    }
}

/// Every payload length against every room a path can have would be 10^6 splits a family; all lengths are taken against
/// rooms that cover each number of parts, and all rooms against lengths that cover each remainder.
#[test]
fn every_size_and_every_room_comes_back_whole() {
    let payload: Vec<u8> = (0..PAYLOAD_LEN_MAX)
        .map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1])
        .collect();
    let mut reassembler = Reassembler::new(4, std::time::Duration::from_secs(1), 3);
    for header in [whole("203.0.113.7:5000"), whole("[2001:db8::7]:5000")] {
        let base = header.encoded_len();
        for len in 1..=PAYLOAD_LEN_MAX {
            for room in [
                372, 373, 400, 495, 500, 735, 741, 900, 1162, 1414, 1472, 1508,
            ] {
                split_and_join(&mut reassembler, header, &payload[..len], base + room - 20);
            }
        }
        for room in 0..=base + PAYLOAD_LEN_MAX + 1 {
            for len in [
                1, 2, 3, 4, 5, 99, 367, 368, 369, 1000, 1414, 1470, 1471, 1472,
            ] {
                split_and_join(&mut reassembler, header, &payload[..len], room);
            }
        }
    }
    assert_eq!(reassembler.pending(), 0);
}

fn split_and_join(
    reassembler: &mut Reassembler,
    header: RecordHeader,
    payload: &[u8],
    room: usize,
) {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(start);
    let (base, part_room) = (
        header.encoded_len(),
        room.saturating_sub(header.encoded_len() + 4),
    );
    let expected = match payload.len() {
        len if base + len <= room => Some(1),
        len if part_room > 0 && len.div_ceil(part_room) <= 4 => Some(len.div_ceil(part_room)),
        _ => None,
    };
    let parts = split(header, payload, room, 77);
    assert_eq!(
        parts.clone().map(Iterator::count),
        expected,
        "{} bytes in {room}",
        payload.len()
    );
    let mut complete = false;
    for part in parts.into_iter().flatten() {
        assert!(!complete, "nothing follows the last part");
        assert!(part.header.encoded_len() + part.payload.len() <= room);
        if let Reassembled::Complete(packet) = reassembler.push(&part.header, part.payload, *START)
        {
            assert_eq!(packet, payload);
            complete = true;
        }
    }
    assert_eq!(complete, expected.is_some());
}

#[test]
fn a_million_ufrags_are_ice_characters_and_distinct() {
    let ring = keys();
    let mut seen = HashSet::with_capacity(1_000_000);
    let mut rng = rng(*b"a million generated ufrags, seed");
    for i in 0..1_000_000u32 {
        let [a, b, c, d] = rng.next_u32().to_le_bytes();
        let hint = hint_of(1 + (i % 7) as u16, 1 + i % 4000, u16::from_le_bytes([a, b]));
        let ufrag = ring.seal(hint, [c, d, i.to_le_bytes()[1]]);
        let text = ufrag.as_bytes();
        assert!((4..=32).contains(&text.len()));
        assert!(
            text.iter()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/'))
        );
        seen.insert(ufrag);
    }
    // Equal content and equal random bytes give equal ufrags: rare, and never by chance of the cipher.
    assert!(seen.len() > 999_000, "{}", seen.len());
}

#[test]
fn ten_million_forgeries_open_nothing() {
    let ring = keys();
    let mut rng = rng(*b"ten million forged ufrags, seed1");
    let good = ring.seal(hint_of(1, 9, 4711), [1, 2, 3]);
    let good: [u8; UFRAG_LEN] = good.as_bytes().try_into().unwrap();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut reached_the_cipher = 0u32;
    for round in 0..10_000_000u32 {
        let mut ufrag = good;
        if round % 2 == 0 {
            // Random characters behind a live key id: the forger who knows the format.
            let mut noise = [0; UFRAG_LEN];
            rng.fill_bytes(&mut noise);
            for (slot, noise) in ufrag.iter_mut().zip(noise) {
                *slot = alphabet[usize::from(noise) % 64];
            }
            ufrag[0] = b'B' + noise[0] % 3;
            ufrag[UFRAG_LEN - 1] = alphabet[usize::from(noise[1] % 4) * 16];
        } else {
            for _ in 0..=rng.next_u32() % 3 {
                let bit = rng.next_u32() as usize % (UFRAG_LEN * 8);
                ufrag[bit / 8] ^= 1 << (bit % 8);
            }
            if ufrag == good {
                continue;
            }
        }
        let outcome = ring.open(&ufrag);
        assert!(outcome.is_err(), "round {round} opened");
        reached_the_cipher += u32::from(outcome == Err(HintError::Forged));
    }
    assert!(reached_the_cipher > 5_000_000, "{reached_the_cipher}");
}

fn keys() -> KeyRing {
    KeyRing::parse(KEYS).expect("the key file above is well formed")
}

fn rng(seed: [u8; 32]) -> TestRng {
    TestRng::from_seed(RngAlgorithm::ChaCha, &seed)
}

#[expect(
    clippy::disallowed_methods,
    reason = "an Instant can be made in no other way; only its identity matters"
)]
fn start() -> std::time::Instant {
    std::time::Instant::now()
}

fn hint_of(region: u16, transceiver: u32, minute: u16) -> Hint {
    Hint {
        owner: Owner {
            region: RegionId(region),
            transceiver: TransceiverId(transceiver),
        },
        issued: Minute(minute),
    }
}

fn whole(client: &str) -> RecordHeader {
    RecordHeader {
        owner: hint_of(2, 77, 0).owner,
        tag: Tag {
            pop: PopId(5),
            worker: 0,
            ingress: 1,
        },
        client: ClientAddr::new(client.parse().expect("an address literal")),
        hops: 0,
        fragment: None,
        offered: false,
    }
}

fn any_hint() -> impl Strategy<Value = Hint> {
    (1..=u16::MAX, 1..=u32::MAX, any::<u16>())
        .prop_map(|(region, transceiver, minute)| hint_of(region, transceiver, minute))
}

fn any_client() -> impl Strategy<Value = ClientAddr> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(std::net::IpAddr::from),
        any::<[u8; 16]>().prop_map(std::net::IpAddr::from)
    ];
    (ip, 1..=u16::MAX).prop_map(|(ip, port)| ClientAddr::new((ip, port).into()))
}

fn any_header() -> impl Strategy<Value = RecordHeader> {
    let fragment = (any::<u16>(), 2..=4u8, any::<u8>()).prop_map(|(id, count, index)| Fragment {
        id,
        index: index % count,
        count,
    });
    let tag = (1..=u16::MAX, any::<u8>(), any::<u8>());
    (
        any_hint(),
        tag,
        any_client(),
        any::<u8>(),
        proptest::option::of(fragment),
        any::<bool>(),
    )
        .prop_map(
            |(hint, (pop, worker, ingress), client, hops, fragment, offered)| RecordHeader {
                owner: hint.owner,
                tag: Tag {
                    pop: PopId(pop),
                    worker,
                    ingress,
                },
                client,
                hops,
                fragment,
                offered,
            },
        )
}
