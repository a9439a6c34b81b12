//! Records: every size crosses, few packets carry many, and a path without the MTU carries nothing.

use std::net::SocketAddr;

use core_relay_link::LinkDrop;
use topology::Link;
use wire::ClientAddr;
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{FRAGMENT_HEADER_LEN, Fragment, PAYLOAD_LEN_MAX, Record, RecordHeader, Records};

use crate::world::{World, downs, header, ms, pair, send, up};

#[test]
fn records_of_every_size_cross_both_ways() {
    for mtu_bytes in [1200, 1452, 8900] {
        let link = Link {
            mtu_bytes,
            ..Link::default()
        };
        let (mut world, _) = pair(&link, ms(5));
        up(&mut world);
        for (from, to) in [(0, 1), (1, 0)] {
            let id = world.only_link(from);
            assert_eq!(
                world.links(from).room(id),
                link.datagram_len_max() - wire::record::DATAGRAM_HEADER_LEN
            );
            let whole_max = (world.links(from).room(id) - header().encoded_len()).min(1472);
            let payloads: Vec<Vec<u8>> = (1..=whole_max)
                .map(|len| {
                    (0..len)
                        .map(|at| u8::try_from((at + len) % 251).unwrap())
                        .collect()
                })
                .collect();
            for batch in payloads.chunks(50) {
                for payload in batch {
                    world
                        .links(from)
                        .put_record(id, &header(), payload)
                        .unwrap();
                }
                world.links(from).flush();
                world.run(ms(1));
            }
            world.run(ms(50));
            assert_eq!(world.payloads(to), payloads, "mtu {mtu_bytes}");
        }
    }
}

#[test]
fn a_packet_larger_than_a_datagram_is_split_and_arrives_whole() {
    let link = Link {
        mtu_bytes: 1200,
        ..Link::default()
    };
    let (mut world, _) = pair(&link, ms(5));
    up(&mut world);
    let payload: Vec<u8> = (0..1472u32).map(|at| at.to_be_bytes()[3]).collect();
    send(&mut world, 0, &payload).unwrap();
    world.run(ms(20));
    let bodies: Vec<_> = world.nodes[1]
        .received
        .iter()
        .map(|(_, _, body)| body)
        .collect();
    let parts: Vec<_> = bodies
        .iter()
        .flat_map(|body| Records::new(body))
        .map(Result::unwrap)
        .collect();
    assert_eq!(parts.len(), 2);
    assert!(
        parts
            .iter()
            .all(|part| part.header.fragment.unwrap().count == 2)
    );
    assert_eq!(world.payloads(1).concat(), payload);
}

#[test]
fn records_are_packed_into_few_packets() {
    let (mut world, _) = pair(&Link::default(), ms(5));
    up(&mut world);
    world.run(ms(500));
    let (id, before) = (world.only_link(0), world.sent);
    for _ in 0..64 {
        world.links(0).put_record(id, &header(), &[7; 160]).unwrap();
    }
    world.links(0).flush();
    world.settle();
    // 64 x 180 bytes at 7 a datagram.
    assert_eq!(world.sent - before, 10);
    assert_eq!(world.links(0).stats(id).unwrap().datagrams_sent, 10);
}

#[test]
fn a_path_that_does_not_carry_the_mtu_does_not_come_up() {
    let (mut world, _) = pair(&Link::default(), ms(5));
    world.wire(0, 1).len_max = 1400;
    world.run(ms(5000));
    assert!(!world.is_up(0));
    let (mut world, _) = pair(
        &Link {
            mtu_bytes: 1200,
            ..Link::default()
        },
        ms(5),
    );
    world.wire(0, 1).len_max = 1200;
    world.wire(1, 0).len_max = 1200;
    up(&mut world);
    send(&mut world, 0, &[1; 1472]).unwrap();
    world.run(ms(10));
    assert_eq!(world.payloads(1).concat(), [1; 1472]);
}

/// Clients of either family; the header of an IPv6 one is longer.
fn headers() -> [RecordHeader; 2] {
    let v6 = SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 4000));
    [
        header(),
        RecordHeader {
            client: ClientAddr::new(v6),
            ..header()
        },
    ]
}

/// Whole packets that a node received, in order.
fn packets(world: &mut World, node: usize) -> Vec<Vec<u8>> {
    let now = world.now();
    let mut reassembler = Reassembler::new(16, ms(1000), 1);
    let mut packets = Vec::new();
    for (_, _, body) in world.nodes[node].received.drain(..) {
        for record in Records::new(&body) {
            let Record { header, payload } = record.unwrap();
            match reassembler.push(&header, payload, now) {
                Reassembled::Complete(packet) => packets.push(packet.to_vec()),
                Reassembled::Pending => {}
                Reassembled::Dropped(reason) => panic!("{reason:?}"),
            }
        }
    }
    packets
}

/// Lengths at which a record, or one of its parts, just fits what is left of a datagram or just does not.
fn boundaries(room: usize, header_len: usize, before: usize) -> Vec<usize> {
    let left = room - before;
    let split = header_len + FRAGMENT_HEADER_LEN;
    let exact = [
        left.saturating_sub(header_len),
        room - header_len,
        left.saturating_sub(split),
        room - split,
        2 * (room - split),
        PAYLOAD_LEN_MAX,
    ];
    exact
        .into_iter()
        .flat_map(|len| len.saturating_sub(2)..=len + 2)
        .filter(|len| (1..=PAYLOAD_LEN_MAX).contains(len))
        .collect()
}

/// 1,232 and 1,252: what 1,280-byte packets carry over IPv6 and IPv4.
#[test]
fn every_boundary_is_crossed_whole_beside_other_records() {
    for mtu_bytes in [1200, 1232, 1252, 1320, 1452, 1472] {
        let link = Link {
            mtu_bytes,
            ..Link::default()
        };
        let (mut world, _) = pair(&link, ms(1));
        up(&mut world);
        world.run(ms(10));
        for (from, to) in [(0, 1), (1, 0)] {
            let id = world.only_link(from);
            let room = world.links(from).room(id);
            for (header, before) in headers()
                .into_iter()
                .flat_map(|header| [0usize, 1, 60, 160, 700].map(|before| (header, before)))
            {
                let header_len = header.encoded_len();
                let taken = if before == 0 { 0 } else { header_len + before };
                for len in boundaries(room, header_len, taken) {
                    let fill = |len: usize, salt: usize| -> Vec<u8> {
                        let bytes = (0..len).map(|at| (at * 7 + len + salt) % 251);
                        bytes.map(|byte| u8::try_from(byte).unwrap()).collect()
                    };
                    // Small ones before and after it, in one batch.
                    let mut sent = vec![fill(before, 1), fill(len, 2), fill(9, 3)];
                    sent.retain(|payload| !payload.is_empty());
                    let count = world.links(from).stats(id).unwrap().datagrams_sent;
                    for payload in &sent {
                        let links = world.links(from);
                        links.put_record(id, &header, payload).unwrap();
                    }
                    world.links(from).flush();
                    world.run(ms(3));
                    let what = format!("{mtu_bytes}: {before} then {len}, from {from}");
                    assert_eq!(packets(&mut world, to), sent, "{what}");
                    let sent_bytes: usize = sent.iter().map(|one| one.len() + header_len).sum();
                    let count = world.links(from).stats(id).unwrap().datagrams_sent - count;
                    assert_eq!(count == 1, sent_bytes <= room, "{what}: {count}");
                }
            }
        }
        for node in [0, 1] {
            let drops = world.links(node).drops();
            assert!(drops.iter().all(|(_, count)| count == 0), "{drops:?}");
        }
        assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    }
}

#[test]
fn a_record_that_fits_nowhere_harms_no_other_of_its_batch() {
    let link = Link {
        mtu_bytes: 1232,
        ..Link::default()
    };
    let (mut world, _) = pair(&link, ms(1));
    up(&mut world);
    world.run(ms(10));
    let id = world.only_link(0);
    let room = world.links(0).room(id);
    // A part that a record was split into elsewhere cannot be split again.
    let part = RecordHeader {
        fragment: Some(Fragment {
            id: 1,
            index: 0,
            count: 2,
        }),
        ..header()
    };
    let links = world.links(0);
    for _ in 0..10 {
        links.put_record(id, &header(), &[1; 160]).unwrap();
        let refused = links.put_record(id, &part, &vec![2; room]);
        assert_eq!(refused, Err(LinkDrop::TooLarge));
        links.put_record(id, &header(), &[3; 1472]).unwrap();
    }
    links.flush();
    world.run(ms(5));
    let expected: Vec<Vec<u8>> = (0..10)
        .flat_map(|_| [vec![1; 160], vec![3; 1472]])
        .collect();
    assert_eq!(packets(&mut world, 1), expected);
    assert_eq!(world.links(0).drops().count(LinkDrop::TooLarge), 10);
}
