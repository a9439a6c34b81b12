//! Records: every size crosses, few packets carry many, and a path without the MTU carries nothing.

use topology::Link;
use wire::record::Records;

use crate::world::{header, ms, pair, send, up};

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
