//! What breaks, and what becomes of calls meanwhile: nodes that die and start again, paths that fail one way or for large
//! packets only, keys that rotate.

#![cfg(test)]

use std::time::Duration;

use lab::sim::{DownReason, LinkEvent, Plan, Site, Talk, Way, World, seed};

const MS: Duration = Duration::from_millis(1);

/// Two core relays in one region, and clients that talk both ways.
fn talking(number: u64, clients: usize) -> World {
    let mut world = World::new(Plan {
        clients,
        relays: 2,
        ..Plan::new(seed(number))
    });
    world.connect();
    world.start_talking(Talk::Both);
    world.run(500 * MS);
    world
}

/// Everything that was on its way has arrived, and the books balance.
fn settle(world: &mut World) {
    world.start_talking(Talk::Nobody);
    world.run(1000 * MS);
    world.assert_balanced();
}

/// Media flows both ways, none of it lost.
fn assert_whole(world: &mut World) {
    settle(world);
    let (up, down) = world.talk(Talk::Both, 500 * MS);
    assert!(up.sent > 0 && down.sent > 0);
    assert_eq!(
        (up.delivered, down.delivered),
        (up.sent, down.sent),
        "{up}\n{down}"
    );
    world.assert_balanced();
}

/// Time since `from` until the PoP's link went down, and why.
fn went_down(world: &World, from: Duration) -> (Duration, DownReason) {
    let downs = world.pop(0).events.iter().filter(|(at, _)| *at >= from);
    let mut downs = downs.filter_map(|(at, event)| match event {
        LinkEvent::Down { reason, .. } => Some((*at - from, *reason)),
        LinkEvent::Up { .. }
        | LinkEvent::Suspect { .. }
        | LinkEvent::Draining { .. }
        | LinkEvent::DialFailed { .. }
        | LinkEvent::Refused { .. } => None,
    });
    downs.next().expect("a link went down")
}

#[test]
fn when_one_of_two_core_relays_dies_calls_go_on_within_a_second() {
    let mut world = talking(21, 140);
    let from = world.net.at;
    let dies = carrier(&world);
    world.kill_relay(dies);
    let before = world.tally(Way::Up).delivered;
    world.run(1000 * MS);
    let (took, reason) = went_down(&world, from);
    assert_eq!(reason, DownReason::Silent);
    assert!(took <= 600 * MS, "{took:?}");
    // 140 clients send 7000 packets a second: after the first 300 ms they arrive again.
    assert!(world.tally(Way::Up).delivered - before > 2000);
    assert_whole(&mut world);
    world.start_relay(dies);
    world.run_until("the other link is back", |world| world.links_up() == 2);
    assert_whole(&mut world);
}

/// The longest time in which nothing of a way arrived, of so long from here on.
fn longest_silence(world: &mut World, way: Way, duration: Duration) -> Duration {
    let (begin, mut last) = (world.net.at, world.net.at);
    let (mut longest, mut delivered) = (Duration::ZERO, world.tally(way).delivered);
    while world.net.at < begin + duration {
        world.run(MS);
        let so_far = world.tally(way).delivered;
        if so_far > std::mem::replace(&mut delivered, so_far) {
            longest = longest.max(world.net.at - last);
            last = world.net.at;
        }
    }
    longest.max(world.net.at - last)
}

/// How often a link was suspect since `from`.
fn suspicions(world: &World, from: Duration) -> usize {
    let events = world.pop(0).events.iter().filter(|(at, _)| *at >= from);
    let began = |event: &LinkEvent| matches!(event, LinkEvent::Suspect { suspect: true, .. });
    events.filter(|(_, event)| began(event)).count()
}

/// The core relay that carries uplink.
fn carrier(world: &World) -> usize {
    world.pop(0).carrier().expect("a link is up")
}

/// How often uplink moved since `from`.
fn moves(world: &World, from: Duration) -> usize {
    let carriers = world.pop(0).carriers.iter();
    carriers.filter(|(at, _)| *at >= from).count()
}

#[test]
fn a_core_relay_that_dies_is_left_after_what_makes_its_link_suspect() {
    for way in [Way::Up, Way::Down] {
        for phase in [0, 31, 67] {
            let mut world = talking(29, 140);
            world.run(phase * MS);
            let from = world.net.at;
            let carrier = carrier(&world);
            world.kill_relay(carrier);
            let silence = longest_silence(&mut world, way, 1500 * MS);
            println!("{way:?}, {phase}: {silence:?}");
            // 250 ms, twice 40 ms of path, and a packet of a client that makes downlink follow.
            assert!(silence <= 355 * MS, "{way:?}: {silence:?}");
            let (took, reason) = went_down(&world, from);
            assert_eq!(reason, DownReason::Silent);
            assert!(took <= 600 * MS, "{took:?}");
            assert_eq!((suspicions(&world, from), moves(&world, from)), (1, 1));
            assert_whole(&mut world);
        }
    }
}

#[test]
fn a_path_that_fails_one_way_is_left_as_soon_as_one_end_does_not_hear() {
    for way in [Way::Up, Way::Down] {
        let mut world = talking(30, 140);
        let (pop, relay) = (Site::Pop(0), Site::Relay(carrier(&world)));
        let (from, to) = match way {
            Way::Up => (pop, relay),
            Way::Down => (relay, pop),
        };
        world.net.conditions(from, to).cut = true;
        let silence = longest_silence(&mut world, way, 1500 * MS);
        println!("{from:?} to {to:?}: {silence:?}");
        assert!(silence <= 420 * MS, "{from:?} to {to:?}: {silence:?}");
        assert_whole(&mut world);
    }
}

#[test]
fn a_core_relay_that_is_late_is_passed_by_meanwhile_and_nothing_is_lost() {
    let mut world = talking(31, 140);
    let from = world.net.at;
    let late_one = carrier(&world);
    let (pop, relay) = (Site::Pop(0), Site::Relay(late_one));
    let both = [(pop, relay), (relay, pop)];
    for late in [340 * MS, 40 * MS] {
        for (a, b) in both {
            world.net.conditions(a, b).delay = late;
        }
        world.run(340 * MS);
    }
    world.run(1000 * MS);
    // That the relay heard nothing arrives late as well, and may be one more.
    let often = suspicions(&world, from);
    assert!((1..=2).contains(&often), "{often}");
    assert_eq!(moves(&world, from), 2 * often, "there and back");
    assert_eq!(world.pop(0).carrier(), Some(late_one));
    let ended = world.pop(0).events.iter().filter(|(at, _)| *at >= from);
    let ended = ended.filter(|(_, event)| matches!(event, LinkEvent::Down { .. }));
    assert_eq!(ended.count(), 0);
    settle(&mut world);
    for way in [Way::Up, Way::Down] {
        let tally = world.tally(way);
        assert_eq!(tally.delivered, tally.sent, "{way:?}: {tally}");
    }
}

#[test]
fn when_no_core_relay_is_heard_for_a_moment_uplink_moves_to_none() {
    for phase in (0..100).step_by(9) {
        let mut world = talking(32, 7);
        world.run(phase * MS);
        let from = world.net.at;
        world.backbone(|path| path.cut = true);
        world.run(330 * MS);
        world.backbone(|path| path.cut = false);
        let back = world.net.at;
        world.run(1000 * MS);
        assert!(suspicions(&world, from) >= 2, "{phase}");
        // Afterwards whichever is heard first may carry for the moment until both are.
        let carriers = &world.pop(0).carriers;
        let meanwhile = |at: Duration| at >= from && at < back;
        assert!(!carriers.iter().any(|(at, _)| meanwhile(*at)), "{phase}");
        let home = carriers.iter().rfind(|(at, _)| *at < from);
        assert_eq!(carriers.last().map(|last| last.1), home.map(|home| home.1));
        assert_whole(&mut world);
    }
}

#[test]
fn a_path_that_fails_one_way_is_found_within_a_second_and_left() {
    for (number, up) in [(22, true), (23, false)] {
        let mut world = talking(number, 140);
        let (pop, relay) = (Site::Pop(0), Site::Relay(carrier(&world)));
        let (from, to) = if up { (pop, relay) } else { (relay, pop) };
        let cut_at = world.net.at;
        world.net.conditions(from, to).cut = true;
        world.run(1000 * MS);
        let (took, _) = went_down(&world, cut_at);
        assert!(took <= 1000 * MS, "{from:?} to {to:?}: {took:?}");
        assert_whole(&mut world);
        world.net.conditions(from, to).cut = false;
        world.run_until("the link is back", |world| world.links_up() == 2);
        assert_whole(&mut world);
    }
}

#[test]
fn a_path_that_loses_large_packets_carries_no_link() {
    let mut world = World::new(Plan {
        relays: 2,
        ..Plan::new(seed(24))
    });
    for (from, to) in [
        (Site::Pop(0), Site::Relay(0)),
        (Site::Relay(0), Site::Pop(0)),
    ] {
        world.net.conditions(from, to).packet_len_max = 1428;
    }
    world.run(5000 * MS);
    assert_eq!(
        world.links_up(),
        1,
        "the link that would lose large packets"
    );
    assert_whole(&mut world);
    world.backbone(|path| path.packet_len_max = usize::MAX);
    world.run_until("both links are up", |world| world.links_up() == 2);
    assert_whole(&mut world);
}

/// The transceivers talk, so the PoP learns a thousand flows from what they send before it knows a single client.
#[test]
fn a_pop_that_starts_again_learns_its_flows_from_downlink() {
    let mut world = talking(25, 1001);
    world.kill_pop(0);
    world.run(100 * MS);
    world.start_pop(0);
    let up_at = world.run_until("a link is up", |world| world.links_up() > 0);
    let took = world.run_until("all flows are known", |world| {
        world.pop(0).flows.stats().flows == 1001
    });
    println!("a link after {up_at:?}, 1001 flows after {took:?} more");
    assert!(took <= 250 * MS, "{took:?}");
    let stats = world.pop(0).flows.stats();
    assert!(stats.learned > stats.created, "{stats:?}");
    assert_whole(&mut world);
}

/// Nobody sends anything down, so the next check of each client brings its flow back.
#[test]
fn a_pop_that_starts_again_learns_its_flows_from_checks() {
    let mut world = talking(26, 1001);
    settle(&mut world);
    world.kill_pop(0);
    world.start_pop(0);
    world.start_talking(Talk::Clients);
    world.run_until("a link is up", |world| world.links_up() > 0);
    let took = world.run_until("all flows are known", |world| {
        let stats = world.pop(0).flows.stats();
        (stats.flows, stats.tentative) == (1001, 0)
    });
    assert!(took <= 4000 * MS, "{took:?}");
    assert_whole(&mut world);
}

#[test]
fn hint_keys_rotate_under_traffic_and_nobody_notices() {
    let mut world = talking(27, 70);
    for _ in 0..4 {
        world.rotate_keys();
        world.add_client();
        world.run(3500 * MS);
        assert!(world.clients.list.iter().all(|client| client.connected));
    }
    settle(&mut world);
    for way in [Way::Up, Way::Down] {
        let tally = world.tally(way);
        assert_eq!(
            tally.delivered + tally.in_air,
            tally.sent,
            "{way:?}: {tally}"
        );
    }
}

/// Packets of any length a client may send, over a path of 1,280-byte packets: split, whole at the other end, none lost.
#[test]
fn packets_of_any_length_arrive_whole() {
    let mut world = World::new(Plan {
        clients: 70,
        mtu_bytes: 1252,
        any_length: true,
        ..Plan::new(seed(28))
    });
    world.backbone(|path| path.packet_len_max = 1280);
    world.connect();
    let (up, down) = world.talk(Talk::Both, 1000 * MS);
    assert!(up.sent > 3000);
    assert_eq!(
        (up.delivered, down.delivered),
        (up.sent, down.sent),
        "{up}\n{down}"
    );
}
