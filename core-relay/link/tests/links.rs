//! Links over an in-memory wire: they come up, carry records, notice every way a path or a peer can fail, and heal.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share, where a panic is a failed test"
)]

#[path = "links/world.rs"]
mod world;

use std::time::Duration;

use core_relay_link::{DownReason, LinkDrop, LinkEvent, Links};
use topology::Link;
use wire::record::Records;

use world::{Ca, World, address, allowed, config, header, ms, pair, target};

fn up(world: &mut World) {
    world.run_until("both ends up", |world| world.is_up(0) && world.is_up(1));
}

fn downs(world: &World, node: usize) -> Vec<DownReason> {
    let reason = |event: &LinkEvent| match event {
        LinkEvent::Down { reason, .. } => Some(*reason),
        LinkEvent::Up { .. }
        | LinkEvent::Draining { .. }
        | LinkEvent::DialFailed { .. }
        | LinkEvent::Refused { .. } => None,
    };
    let events = &world.nodes[node].events;
    events
        .iter()
        .filter_map(|(_, event)| reason(event))
        .collect()
}

fn failures(world: &World, node: usize) -> Vec<DownReason> {
    let reason = |event: &LinkEvent| match event {
        LinkEvent::DialFailed { reason, .. } | LinkEvent::Refused { reason, .. } => Some(*reason),
        LinkEvent::Up { .. } | LinkEvent::Down { .. } | LinkEvent::Draining { .. } => None,
    };
    let events = &world.nodes[node].events;
    events
        .iter()
        .filter_map(|(_, event)| reason(event))
        .collect()
}

fn send(world: &mut World, from: usize, payload: &[u8]) -> Result<(), LinkDrop> {
    let link = world.only_link(from);
    let links = world.links(from);
    let put = links.put_record(link, &header(), payload);
    links.flush();
    put
}

#[test]
fn comes_up_in_two_and_a_half_round_trips_and_measures_the_path() {
    let (mut world, _) = pair(&Link::default(), ms(40));
    let took = world.run_until("dialer up", |world| world.is_up(0));
    assert!(took < ms(10 + 200), "{took:?}");
    world.run(ms(3000));
    for node in [0, 1] {
        let link = world.only_link(node);
        let stats = world.links(node).stats(link).unwrap();
        assert!((79_000..=82_000).contains(&stats.rtt_us), "{stats:?}");
        assert!(stats.jitter_us < 1000, "{stats:?}");
        assert_eq!((stats.loss_ppm, stats.peer_loss_ppm, stats.ups), (0, 0, 1));
    }
    assert!(downs(&world, 0).is_empty() && failures(&world, 0).is_empty());
}

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
fn another_ca_is_refused_at_both_ends() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let stranger = Ca::new();
    let now = world.now();
    // Trusts our relay, but its own certificate is of another CA.
    let tls = stranger.tls_until(&["pop-a"], 2100, &ca);
    world.start(
        0,
        Links::dialer(
            config(&Link::default(), 3),
            tls,
            &[target("relay-a", 1)],
            now,
        ),
    );
    world.run(ms(300));
    assert!(failures(&world, 1).contains(&DownReason::UnknownIssuer));
    assert!(failures(&world, 0).contains(&DownReason::UnknownIssuer));
    // Does not trust our relay.
    let tls = ca.tls_until(&["pop-a"], 2100, &stranger);
    let now = world.now();
    world.nodes[0].events.clear();
    world.start(
        0,
        Links::dialer(
            config(&Link::default(), 3),
            tls,
            &[target("relay-a", 1)],
            now,
        ),
    );
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::UnknownIssuer));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn another_name_is_refused_at_both_ends() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let now = world.now();
    let dial = |tls| {
        Links::dialer(
            config(&Link::default(), 3),
            tls,
            &[target("relay-a", 1)],
            now,
        )
    };
    // A node of our CA that is no PoP.
    world.start(0, dial(ca.tls(&["transceiver-a"])));
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Identity));
    assert!(failures(&world, 1).contains(&DownReason::Identity));
    assert!(world.links(1).refused().count(DownReason::Identity) >= 1);
    // A relay that is not the one we dial.
    let now = world.now();
    let relay = ca.tls(&["relay-b"]);
    let allowed = [allowed("pop-a", 1)];
    world.start(
        1,
        Links::acceptor(config(&Link::default(), 4), relay, &allowed, now),
    );
    world.start(0, dial(ca.tls(&["pop-a"])));
    world.nodes[0].events.clear();
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Identity));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn the_first_allowed_name_of_a_certificate_counts() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let now = world.now();
    let tls = ca.tls(&["host.example", "POP-A"]);
    world.start(
        0,
        Links::dialer(
            config(&Link::default(), 3),
            tls,
            &[target("relay-a", 1)],
            now,
        ),
    );
    up(&mut world);
    let link = world.only_link(1);
    assert_eq!(&*world.links(1).stats(link).unwrap().peer, "pop-a");
}

#[test]
fn a_worker_the_topology_does_not_know_is_refused() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let now = world.now();
    let mut other = config(&Link::default(), 3);
    other.worker = 1;
    world.start(
        0,
        Links::dialer(other, ca.tls(&["pop-a"]), &[target("relay-a", 1)], now),
    );
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Identity));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn an_expired_certificate_is_refused_at_both_ends() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let now = world.now();
    let dial = |tls| {
        Links::dialer(
            config(&Link::default(), 3),
            tls,
            &[target("relay-a", 1)],
            now,
        )
    };
    world.start(0, dial(ca.tls_until(&["pop-a"], 2025, &ca)));
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Expired));
    assert!(failures(&world, 1).contains(&DownReason::Expired));
    let now = world.now();
    let relay = ca.tls_until(&["relay-a"], 2025, &ca);
    let allowed = [allowed("pop-a", 1)];
    world.start(
        1,
        Links::acceptor(config(&Link::default(), 4), relay, &allowed, now),
    );
    world.start(0, dial(ca.tls(&["pop-a"])));
    world.nodes[0].events.clear();
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Expired));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn a_killed_peer_is_noticed_within_the_detection_time_and_dialed_until_it_is_back() {
    let link = Link::default();
    let (mut world, ca) = pair(&link, ms(20));
    up(&mut world);
    world.run(ms(6000));
    world.kill(1);
    // The last thing heard is at most one heartbeat and one delay old.
    let took = world.run_until("dialer down", |world| !world.is_up(0));
    assert!(took >= ms(380) && took <= ms(520), "{took:?}");
    assert_eq!(downs(&world, 0), [DownReason::Silent]);
    assert_eq!(send(&mut world, 0, b"lost"), Err(LinkDrop::NotUp));
    world.run(ms(10_000));
    assert!(
        failures(&world, 0)
            .iter()
            .all(|reason| *reason == DownReason::Unreachable)
    );
    let now = world.now();
    let relay = ca.tls(&["relay-a"]);
    world.start(
        1,
        Links::acceptor(config(&link, 9), relay, &[allowed("pop-a", 1)], now),
    );
    let took = world.run_until("dialer up", |world| world.is_up(0));
    assert!(took < ms(3500), "{took:?}");
}

#[test]
fn a_restarted_relay_with_the_same_key_is_noticed_at_once() {
    let link = Link::default();
    let (mut world, ca) = pair(&link, ms(20));
    let relay = ca.tls(&["relay-a"]);
    let now = world.now();
    let acceptor = |seed, now| {
        Links::acceptor(
            config(&link, seed),
            relay.clone(),
            &[allowed("pop-a", 1)],
            now,
        )
    };
    world.start(1, acceptor(5, now));
    up(&mut world);
    world.run(ms(6000));
    let now = world.now();
    world.start(1, acceptor(6, now));
    // The next heartbeat is answered with a stateless reset.
    let took = world.run_until("dialer down", |world| !world.is_up(0));
    assert!(took <= ms(160), "{took:?}");
    assert_eq!(downs(&world, 0), [DownReason::Reset]);
    let took = world.run_until("up again", |world| world.is_up(0) && world.is_up(1));
    assert!(took <= ms(200), "{took:?}");
}

#[test]
fn a_restarted_pop_gets_downlink_as_soon_as_its_link_is_up() {
    let link = Link::default();
    let (mut world, ca) = pair(&link, ms(20));
    up(&mut world);
    let before = world.only_link(1);
    world.run(ms(1000));
    let now = world.now();
    let tls = ca.tls(&["pop-a"]);
    world.start(
        0,
        Links::dialer(config(&link, 7), tls, &[target("relay-a", 1)], now),
    );
    world.nodes[0].received.clear();
    let took = world.run_until("dialer up", |world| world.is_up(0));
    assert!(took < ms(150), "{took:?}");
    // Same link, newer connection; the older one was not waited for.
    assert_eq!(world.only_link(1), before);
    assert_eq!(downs(&world, 1), [DownReason::Replaced]);
    send(&mut world, 1, b"downlink").unwrap();
    world.run(ms(21));
    assert_eq!(world.payloads(0), [b"downlink"]);
    world.run(ms(2000));
    assert!(world.is_up(0) && world.is_up(1) && downs(&world, 0).is_empty());
}

#[test]
fn a_black_hole_in_either_direction_takes_both_ends_down_and_heals() {
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut world, _) = pair(&Link::default(), ms(20));
        up(&mut world);
        world.run(ms(6000));
        world.wire(from, to).black_hole = true;
        let took = world.run_until("both down", |world| !world.is_up(0) && !world.is_up(1));
        assert!(took <= ms(560), "{from}: {took:?}");
        // The end that hears nothing finds out itself and tells the other over what works.
        assert_eq!(downs(&world, to), [DownReason::Silent]);
        assert_eq!(downs(&world, from), [DownReason::DeafPeer]);
        world.run(ms(3000));
        assert!(!world.is_up(0) && !world.is_up(1));
        world.wire(from, to).black_hole = false;
        let took = world.run_until("up again", |world| world.is_up(0) && world.is_up(1));
        assert!(took < ms(3500), "{took:?}");
    }
}

#[test]
fn no_echo_is_noticed_even_when_the_close_is_lost() {
    let (mut world, _) = pair(&Link::default(), ms(20));
    up(&mut world);
    world.run(ms(1000));
    world.wire(0, 1).black_hole = true;
    world.run_until("relay down", |world| !world.is_up(1));
    // The close on its way is lost, and so is everything after it.
    world.wire(1, 0).black_hole = true;
    world.run(ms(0));
    let took = world.run_until("dialer down", |world| !world.is_up(0));
    assert!(took <= ms(600), "{took:?}");
}

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
fn five_percent_loss_does_not_take_a_link_down() {
    let (mut world, _) = pair(&Link::default(), ms(40));
    up(&mut world);
    for (from, to) in [(0, 1), (1, 0)] {
        world.wire(from, to).loss_ppm = 50_000;
    }
    world.run(ms(600_000));
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

#[test]
fn a_draining_relay_says_so_and_keeps_the_link() {
    let (mut world, _) = pair(&Link::default(), ms(20));
    up(&mut world);
    world.run(ms(50));
    for draining in [true, false] {
        let now = world.now();
        world.links(1).drain(draining, now);
        world.run(ms(21));
        let link = world.only_link(0);
        assert_eq!(
            world.nodes[0].events.last().unwrap().1,
            LinkEvent::Draining { link, draining }
        );
        assert_eq!(world.links(0).stats(link).unwrap().draining, draining);
        send(&mut world, 1, b"still served").unwrap();
        world.run(ms(21));
        assert_eq!(world.payloads(0).pop().unwrap(), b"still served");
    }
    assert!(downs(&world, 0).is_empty());
}

#[test]
fn a_relay_that_already_drains_tells_a_link_that_comes_up() {
    let (mut world, _) = pair(&Link::default(), ms(20));
    let now = world.now();
    world.links(1).drain(true, now);
    up(&mut world);
    world.run(ms(50));
    let link = world.only_link(0);
    assert!(world.links(0).stats(link).unwrap().draining);
    assert!(world.nodes[0].events.iter().any(|(_, event)| *event
        == LinkEvent::Draining {
            link,
            draining: true
        }));
}

#[test]
fn closing_tells_the_peer() {
    let (mut world, _) = pair(&Link::default(), ms(20));
    up(&mut world);
    let now = world.now();
    world.links(1).close(now);
    world.run(ms(21));
    assert_eq!(downs(&world, 0), [DownReason::PeerStopped]);
    assert_eq!(downs(&world, 1), [DownReason::Closed]);
    world.run(ms(10_000));
    assert!(!world.is_up(0));
}

#[test]
fn certificates_rotate_without_losing_a_record() {
    let (mut world, ca) = pair(&Link::default(), ms(20));
    up(&mut world);
    let mut sent = Vec::new();
    for round in 0..200u8 {
        if round == 50 {
            world.links(0).reload(ca.tls(&["pop-a"]));
        }
        if round == 100 {
            world.links(1).reload(ca.tls(&["relay-a"]));
        }
        send(&mut world, 0, &[round; 100]).unwrap();
        sent.push(vec![round; 100]);
        world.run(ms(10));
    }
    world.run(ms(50));
    assert_eq!(world.payloads(1), sent);
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    // Another CA: those that stand stay, those that come need it.
    let (other, now) = (Ca::new(), world.now());
    world.links(1).reload(other.tls(&["relay-a"]));
    world.run(ms(2000));
    assert!(world.is_up(0));
    let old = ca.tls(&["pop-a"]);
    world.start(
        0,
        Links::dialer(
            config(&Link::default(), 8),
            old,
            &[target("relay-a", 1)],
            now,
        ),
    );
    world.run(ms(2000));
    assert!(!world.is_up(0));
    world.links(0).reload(other.tls(&["pop-a"]));
    world.run_until("up under the other CA", |world| world.is_up(0));
}

#[test]
fn a_pop_the_topology_drops_loses_its_link_and_others_keep_theirs() {
    let ca = Ca::new();
    let link = Link::default();
    let mut world = World::new(3, ms(10));
    let now = world.now();
    let both = [allowed("pop-a", 1), allowed("pop-b", 1)];
    world.start(
        2,
        Links::acceptor(config(&link, 1), ca.tls(&["relay-a"]), &both, now),
    );
    for (node, name) in [(0, "pop-a"), (1, "pop-b")] {
        let seed = u8::try_from(node).unwrap() + 2;
        let tls = ca.tls(&[name]);
        world.start(
            node,
            Links::dialer(config(&link, seed), tls, &[target("relay-a", 2)], now),
        );
    }
    world.run_until("both up", |world| world.is_up(0) && world.is_up(1));
    let now = world.now();
    world.links(2).set_allowed(&both[1..], now);
    world.run(ms(3000));
    assert_eq!(downs(&world, 0), [DownReason::Removed]);
    assert!(failures(&world, 0).contains(&DownReason::Identity));
    assert!(!world.is_up(0) && world.is_up(1));
    assert!(downs(&world, 1).is_empty());
    assert_eq!(world.links(2).all_stats().count(), 1);
    let now = world.now();
    world.links(2).set_allowed(&both, now);
    world.run_until("up again", |world| world.is_up(0));
}

#[test]
fn targets_that_stay_keep_their_links() {
    let ca = Ca::new();
    let link = Link::default();
    let mut world = World::new(3, ms(10));
    let now = world.now();
    for (node, name) in [(1, "relay-a"), (2, "relay-b")] {
        let tls = ca.tls(&[name]);
        world.start(
            node,
            Links::acceptor(config(&link, 4), tls, &[allowed("pop-a", 1)], now),
        );
    }
    let (a, b) = (target("relay-a", 1), target("relay-b", 2));
    let pop = Links::dialer(
        config(&link, 2),
        ca.tls(&["pop-a"]),
        std::slice::from_ref(&a),
        now,
    );
    world.start(0, pop);
    world.run_until("a up", |world| world.is_up(1));
    let first = world.only_link(0);
    let now = world.now();
    let ids = world.links(0).set_targets(&[b.clone(), a], now);
    assert_eq!(ids[1], first);
    world.run_until("b up", |world| world.is_up(2));
    let now = world.now();
    assert_eq!(world.links(0).set_targets(&[b], now), ids[..1]);
    assert!(world.links(0).stats(first).is_none());
    world.run(ms(100));
    assert!(!world.is_up(1) && world.is_up(2));
    assert_eq!(downs(&world, 1), [DownReason::Removed]);
}

#[test]
fn a_flood_of_initials_is_bounded_and_does_not_keep_a_pop_out() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    up(&mut world);
    // Initials of real dialers that never answer, from many connection ids.
    let (now, mut buffer) = (world.now(), Vec::new());
    let mut forged = Vec::new();
    for seed in 0..200 {
        let mut other = Links::dialer(
            config(&Link::default(), seed),
            ca.tls(&["pop-a"]),
            &[target("relay-a", 1)],
            now,
        );
        other.handle_timeout(now + ms(20));
        other.poll_transmit(now + ms(20), &mut buffer).unwrap();
        forged.push(buffer.clone());
    }
    let mut most = 0;
    for (at, packet) in forged.iter().cycle().take(20_000).enumerate() {
        let host = u8::try_from(at % 200 + 20).unwrap();
        let now = world.now();
        let from = std::net::SocketAddr::from(([10, 0, 9, host], 999));
        world.links(1).handle_packet(from, &**packet, now);
        while world.links(1).poll_transmit(now, &mut buffer).is_some() {}
        most = most.max(world.links(1).connections());
        if at % 100 == 0 {
            world.run(ms(1));
        }
    }
    assert!(most <= 70, "{most}");
    // In the middle of it a PoP restarts and is let in.
    let now = world.now();
    let tls = ca.tls(&["pop-a"]);
    world.start(
        0,
        Links::dialer(
            config(&Link::default(), 77),
            tls,
            &[target("relay-a", 1)],
            now,
        ),
    );
    world.run_until("dialer up", |world| world.is_up(0));
    world.run(ms(5000));
    assert!(
        world.links(1).connections() <= 2,
        "{}",
        world.links(1).connections()
    );
}

#[test]
fn garbage_and_stray_packets_change_nothing() {
    let (mut world, _) = pair(&Link::default(), ms(5));
    up(&mut world);
    let mut random = 1u64;
    let mut buffer = Vec::new();
    for len in (0..1500).cycle().take(30_000) {
        let packet: Vec<u8> = (0..len)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                random.to_be_bytes()[0]
            })
            .collect();
        let now = world.now();
        for node in [0, 1] {
            world.links(node).handle_packet(address(5), &*packet, now);
            world
                .links(node)
                .handle_packet(address(1 - node), &*packet, now);
            while world.links(node).poll_transmit(now, &mut buffer).is_some() {}
        }
    }
    world.run(ms(2000));
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    assert!(world.is_up(0) && world.is_up(1));
}
