//! Links come up, measure their path, notice every way a path or a peer can fail, and heal.

use core_relay_link::{DownReason, LinkDrop, Links};
use topology::Link;

use crate::world::{Ca, World, allowed, config, downs, failures, ms, pair, send, target, up};

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
fn a_path_that_shrinks_takes_the_link_down_for_its_own_reason() {
    for (from, to) in [(0, 1), (1, 0)] {
        let (mut world, _) = pair(&Link::default(), ms(20));
        up(&mut world);
        world.run(ms(6000));
        world.wire(from, to).len_max = 1400;
        let took = world.run_until("both down", |world| !world.is_up(0) && !world.is_up(1));
        // Small heartbeats went on all the time.
        assert!(took >= ms(1700) && took <= ms(2100), "{took:?}");
        assert_eq!(downs(&world, 0), [DownReason::Mtu]);
        assert_eq!(downs(&world, 1), [DownReason::Mtu]);
        world.run(ms(20_000));
        assert!(!world.is_up(0));
        world.wire(from, to).len_max = 1452;
        let took = world.run_until("up again", |world| world.is_up(0) && world.is_up(1));
        assert!(took < ms(3500), "{took:?}");
    }
}

#[test]
fn two_processes_of_one_name_take_the_link_from_each_other_rarely_and_say_so() {
    let ca = Ca::new();
    let link = Link::default();
    let mut world = World::new(3, ms(10));
    let now = world.now();
    let acceptor = Links::acceptor(
        config(&link, 1),
        ca.tls(&["relay-a"]),
        &[allowed("pop-a", 1)],
        now,
    );
    world.start(2, acceptor);
    for node in [0, 1] {
        let seed = u8::try_from(node).unwrap() + 2;
        let tls = ca.tls(&["pop-a"]);
        let now = world.now();
        let dialer = Links::dialer(config(&link, seed), tls, &[target("relay-a", 2)], now);
        world.start(node, dialer);
        world.run_until("up", |world| world.is_up(node));
    }
    world.run(ms(300_000));
    // Whoever is told to give way knows at once; the relay knows when the first one has come back.
    let seen = [0, 1].map(|node| downs(&world, node));
    for reasons in &seen {
        assert!(
            reasons
                .iter()
                .all(|reason| *reason == DownReason::Duplicate)
        );
        assert!((2..=6).contains(&reasons.len()), "{reasons:?}");
    }
    let at_relay = downs(&world, 2);
    assert_eq!(at_relay.len(), seen.concat().len());
    assert_eq!(at_relay[0], DownReason::Replaced);
    assert!(
        at_relay[1..]
            .iter()
            .all(|reason| *reason == DownReason::Duplicate)
    );
    // One of them has the link at any time.
    assert!(world.is_up(2) && (world.is_up(0) || world.is_up(1)));
}
