//! Every verdict of the core relay, and the replay of the corpus.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails loudly"
)]

use std::net::SocketAddr;

use core_relay_proto::{Downlink, DropReason, Drops, Relay, Uplink};
use topology::Topology;
use wire::record::{HOPS_MAX, RecordHeader, datagram_header, put_record};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");
const SEED: u64 = 0x5eed_0002;

fn topology() -> Topology {
    topology::load(LOCAL, "local.yaml").unwrap()
}

fn relay() -> Relay {
    Relay::new(topology().region_named("eu").unwrap())
}

fn header(region: u16, transceiver: u32, hops: u8) -> RecordHeader {
    RecordHeader {
        owner: Owner {
            region: RegionId(region),
            transceiver: TransceiverId(transceiver),
        },
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: 0,
        },
        client: ClientAddr::new(([198, 51, 100, 1], 4000).into()),
        hops,
        fragment: None,
        offered: false,
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

#[test]
fn uplink_goes_to_the_address_the_cidr_gives() {
    let cases = [
        (
            header(1, 1, 0),
            Uplink::Forward {
                to: socket("127.0.11.1:5000"),
            },
        ),
        (
            header(1, 200, 0),
            Uplink::Forward {
                to: socket("127.0.11.200:5000"),
            },
        ),
        (header(1, 255, 0), Uplink::Drop(DropReason::OutsideCidr)),
        (header(1, 256, 0), Uplink::Drop(DropReason::OutsideCidr)),
        (
            header(1, u32::MAX, 0),
            Uplink::Drop(DropReason::OutsideCidr),
        ),
        (header(2, 1, 0), Uplink::Drop(DropReason::WrongRegion)),
        (
            header(1, 1, HOPS_MAX - 1),
            Uplink::Forward {
                to: socket("127.0.11.1:5000"),
            },
        ),
        (header(1, 1, HOPS_MAX), Uplink::Drop(DropReason::HopLimit)),
    ];
    for (header, verdict) in cases {
        assert_eq!(
            relay().handle_uplink(PopId(1), 0, &header),
            verdict,
            "{header:?}"
        );
    }
}

#[test]
fn a_pop_cannot_speak_for_another() {
    assert_eq!(
        relay().handle_uplink(PopId(2), 0, &header(1, 1, 0)),
        Uplink::Drop(DropReason::WrongPop)
    );
    assert_eq!(
        relay().handle_uplink(PopId(1), 1, &header(1, 1, 0)),
        Uplink::Drop(DropReason::WrongWorker)
    );
}

#[test]
fn downlink_comes_only_from_the_owner() {
    let relay = relay();
    for source in [
        "127.0.11.1:5001",
        "127.0.12.1:5000",
        "198.51.100.1:5000",
        "127.0.11.0:5000",
    ] {
        assert_eq!(
            relay.handle_source(socket(source)),
            Err(DropReason::UnknownSource),
            "{source}"
        );
    }
    let source = relay.handle_source(socket("127.0.11.2:5000")).unwrap();
    let to_link = Downlink::ToLink {
        pop: PopId(1),
        worker: 0,
    };
    assert_eq!(relay.handle_downlink(source, &header(1, 2, 0)), to_link);
    assert_eq!(
        relay.handle_downlink(source, &header(1, 1, 0)),
        Downlink::Drop(DropReason::SpoofedOwner)
    );
    assert_eq!(
        relay.handle_downlink(source, &header(2, 2, 0)),
        Downlink::Drop(DropReason::SpoofedOwner)
    );
    assert_eq!(
        relay.handle_downlink(source, &header(1, 2, HOPS_MAX)),
        Downlink::Drop(DropReason::HopLimit)
    );
}

#[test]
fn labels_are_distinct_and_every_reason_has_its_own_cell() {
    let mut labels: Vec<_> = DropReason::ALL
        .iter()
        .map(|reason| reason.as_str())
        .collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), DropReason::ALL.len());
    let mut drops = Drops::default();
    for reason in DropReason::ALL {
        drops.count(*reason);
        assert_eq!(drops.get(*reason), 1);
    }
}

#[test]
fn corpus_and_seeded_datagrams() {
    let topology = topology();
    for entry in
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/corpora/datagram")).unwrap()
    {
        core_relay_proto::fuzz::datagram(&topology, &std::fs::read(entry.unwrap().path()).unwrap());
    }
    let mut good = datagram_header(wire::record::DatagramKind::Records, 7).to_vec();
    for owner in 1..=6 {
        put_record(&mut good, &header(1, owner, 0), &[0x80; 160]);
    }
    core_relay_proto::fuzz::datagram(&topology, &good);
    println!("seed {SEED:#x}");
    let mut state = SEED;
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + state % 4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = state as usize % bytes.len();
            bytes[at] = (state >> 32) as u8;
        }
        bytes.truncate((state >> 40) as usize % (2 * good.len()));
        core_relay_proto::fuzz::datagram(&topology, &bytes);
    }
}
