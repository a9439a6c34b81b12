//! Traffic on a path that loses packets, and more traffic than the link's rate.

use std::time::Duration;

use core_relay_link::LinkDrop;
use topology::Link;
use wire::record::Records;

use crate::world::{downs, header, ms, pair, send, up};

#[test]
fn one_percent_loss_at_eighty_milliseconds_delivers_what_the_path_delivers() {
    let (mut world, _) = pair(&Link::default(), ms(40));
    up(&mut world);
    world.run(ms(200));
    for (from, to) in [(0, 1), (1, 0)] {
        world.wire(from, to).loss_ppm = 10_000;
    }
    let (id, start) = (world.only_link(0), world.at);
    let mut offered = 0u64;
    // 50 packets/ms x 160 bytes for 5 s.
    for _ in 0..5000 {
        let stamp = (world.at - start).as_micros().to_string();
        let mut payload = [b' '; 160];
        payload[..stamp.len()].copy_from_slice(stamp.as_bytes());
        for _ in 0..50 {
            world.links(0).put_record(id, &header(), &payload).unwrap();
            offered += 1;
        }
        world.links(0).flush();
        world.run(ms(1));
    }
    world.run(ms(500));
    let mut late = Duration::ZERO;
    for (at, _, body) in &world.nodes[1].received {
        for record in Records::new(body) {
            let text = std::str::from_utf8(record.unwrap().payload).unwrap();
            let sent = start + Duration::from_micros(text.trim().parse().unwrap());
            late = late.max(*at - sent - ms(40));
        }
    }
    let delivered = u64::try_from(world.payloads(1).len()).unwrap();
    let ppm = delivered * 1_000_000 / offered;
    assert!((987_000..=993_000).contains(&ppm), "{ppm}");
    assert!(late <= ms(1), "added latency {late:?}");
    assert_eq!(
        world
            .links(0)
            .stats(id)
            .unwrap()
            .drops
            .count(LinkDrop::QueueFull),
        0
    );
    let told = world.links(0).stats(id).unwrap().peer_loss_ppm;
    assert!((5_000..=15_000).contains(&told), "{told}");
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
}

#[test]
fn more_than_the_rate_waits_ten_milliseconds_at_most_and_the_oldest_is_dropped_and_counted() {
    let link = Link {
        rate_mbps: 20,
        rtt_ms: 40,
        ..Link::default()
    };
    let (mut world, _) = pair(&link, ms(20));
    up(&mut world);
    let (id, start) = (world.only_link(0), world.at);
    let mut offered = 0u64;
    // 100 Mbit/s for a second.
    for index in 0..1000u32 {
        for _ in 0..12 {
            let mut payload = [0; 1000];
            payload[..4].copy_from_slice(&index.to_be_bytes());
            world.links(0).put_record(id, &header(), &payload).unwrap();
            offered += 1;
        }
        world.links(0).flush();
        world.run(ms(1));
    }
    world.run(ms(200));
    let stats = world.links(0).stats(id).unwrap();
    let received = u64::try_from(world.payloads(1).len()).unwrap();
    assert_eq!(stats.drops.count(LinkDrop::QueueFull) + received, offered);
    // The window allows 1.25 of the rate.
    assert!((2400..=3200).contains(&received), "{received}");
    let mut late = Duration::ZERO;
    for (at, _, body) in &world.nodes[1].received {
        for record in Records::new(body) {
            let index = u32::from_be_bytes(record.unwrap().payload[..4].try_into().unwrap());
            late = late.max(*at - start - ms(20) - ms(index.into()));
        }
    }
    assert!(late <= ms(16), "{late:?}");
    // Heartbeats overtake what waits, so a full link is not a dead one.
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
}

#[test]
fn a_burst_of_more_than_the_queue_holds_leaves_as_it_comes() {
    let link = Link {
        rate_mbps: 100,
        ..Link::default()
    };
    // The queue holds 93 of these, and as many may leave at once.
    let burst = |looks: bool| {
        let (mut world, _) = pair(&link, ms(5));
        up(&mut world);
        world.run(ms(100));
        let id = world.only_link(0);
        for _ in 0..170 {
            let links = world.links(0);
            links.put_record(id, &header(), &[0; 1300]).unwrap();
            if looks && links.wants_sending() {
                links.flush();
                world.settle();
                assert!(!world.links(0).wants_sending());
            }
        }
        world.links(0).flush();
        world.run(ms(100));
        let drops = world.links(0).stats(id).unwrap().drops;
        drops.count(LinkDrop::QueueFull)
    };
    assert!(burst(false) > 50);
    assert_eq!(burst(true), 0);
}

#[test]
fn what_quic_had_taken_when_the_link_went_down_is_counted() {
    let link = Link {
        rate_mbps: 20,
        rtt_ms: 40,
        ..Link::default()
    };
    let (mut world, _) = pair(&link, ms(20));
    up(&mut world);
    let id = world.only_link(0);
    world.wire(0, 1).black_hole = true;
    world.lens.clear();
    // Nothing is acknowledged any more, so the window fills, then the buffer of the connection, then the queue. Two such records
    // fill no packet, and heartbeats are far shorter or longer.
    let mut offered = 0;
    while world.is_up(0) {
        assert!(offered < 20_000, "the link goes down");
        for _ in 0..4 {
            send(&mut world, 0, &[0; 700]).unwrap();
            offered += 1;
        }
        world.run(ms(1));
    }
    let left = world.lens.iter().filter(|len| (700..900).contains(*len));
    let left = u64::try_from(left.count()).unwrap();
    let drops = world.links(0).stats(id).unwrap().drops;
    let (full, down) = (
        drops.count(LinkDrop::QueueFull),
        drops.count(LinkDrop::NotUp),
    );
    assert!(left > 100 && full > 0 && down > 0);
    assert_eq!(left + full + down, offered);
}
