//! A link that falls silent is suspect long before it is down, at both ends, and clear as soon as it is heard; a worker that stood still
//! suspects nobody.

use core_relay_link::{DownReason, LinkEvent, Links};
use topology::Link;

use crate::world::{Ca, World, allowed, config, downs, ms, pair, send, suspicions, target, up};

/// A pair that has been up for long, on a wire of 20 ms.
fn settled() -> World {
    let (mut world, _) = pair(&Link::default(), ms(20));
    up(&mut world);
    world.run(ms(6000));
    world
}

fn suspected(world: &mut World, node: usize) -> u64 {
    let link = world.only_link(node);
    world.links(node).stats(link).unwrap().suspected
}

#[test]
fn a_killed_peer_is_suspect_in_half_the_time_that_it_takes_to_be_down() {
    let mut world = settled();
    let from = world.at;
    world.kill(1);
    world.run_until("down", |world| !world.is_up(0));
    let seen = suspicions(&world, 0, from);
    let [(took, true)] = *seen else {
        panic!("suspect once, and down: {seen:?}")
    };
    // The last thing heard was on its way, or came up to a heartbeat before.
    assert!((ms(170)..=ms(270)).contains(&took), "{took:?}");
    assert_eq!(downs(&world, 0), [DownReason::Silent]);
    let stats = {
        let link = world.only_link(0);
        world.links(0).stats(link).unwrap()
    };
    assert_eq!((stats.suspect, stats.suspected), (false, 1));
}

#[test]
fn a_path_that_is_late_is_clear_again_and_has_lost_nothing() {
    let mut world = settled();
    let from = world.at;
    for (a, b) in [(0, 1), (1, 0)] {
        world.wire(a, b).delay = ms(320);
    }
    for _ in 0..30 {
        send(&mut world, 0, b"up").unwrap();
        send(&mut world, 1, b"down").unwrap();
        world.run(ms(10));
    }
    world.run(ms(3000));
    for node in [0, 1] {
        let seen = suspicions(&world, node, from);
        // That the other end heard nothing arrives late as well: suspect once more, until it says that it hears.
        let ([(began, true), (ended, false)]
        | [(began, true), (ended, false), (_, true), (_, false)]) = *seen
        else {
            panic!("{node}: suspect, and clear: {seen:?}")
        };
        assert!(ended - began <= ms(120), "{node}: {began:?} {ended:?}");
        assert!(downs(&world, node).is_empty());
        assert_eq!(world.payloads(node).len(), 30, "{node}");
        let link = world.only_link(node);
        let stats = world.links(node).stats(link).unwrap();
        assert_eq!((stats.suspect, stats.ups), (false, 1));
        assert_eq!(stats.drops.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

#[test]
fn the_end_that_is_not_heard_is_told_at_once_and_told_again_when_it_is() {
    for (from, to) in [(0, 1), (1, 0)] {
        let mut world = settled();
        let cut_at = world.at;
        world.wire(from, to).black_hole = true;
        world.run(ms(350));
        world.wire(from, to).black_hole = false;
        world.run(ms(1000));
        let [silent, told] = [to, from].map(|node| suspicions(&world, node, cut_at));
        let [(at_one, true), (clear_at_one, false)] = *silent else {
            panic!("{to} does not hear {from}: {silent:?}")
        };
        let [(at_other, true), (clear_at_other, false)] = *told else {
            panic!("{from} is told by {to}: {told:?}")
        };
        assert!(at_one <= ms(270), "{at_one:?}");
        assert_eq!(at_other - at_one, ms(20));
        assert_eq!(clear_at_other - clear_at_one, ms(20));
        assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    }
}

#[test]
fn a_worker_that_stood_still_suspects_nobody_and_believes_nobody_who_missed_it() {
    for timers_first in [true, false] {
        let mut world = settled();
        let from = world.at;
        world.stop(0);
        world.run(ms(420));
        assert_eq!(suspicions(&world, 1, from).len(), 1, "the relay misses it");
        world.resume(0, timers_first);
        world.run(ms(1000));
        assert_eq!(suspicions(&world, 0, from), [], "{timers_first}");
        assert_eq!(suspected(&mut world, 1), 1);
        assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    }
}

#[test]
fn a_worker_that_stood_still_for_longer_than_down_after_does_not_take_that_for_silence() {
    let mut world = settled();
    world.stop(0);
    world.run(ms(400));
    // The relay is gone meanwhile, so it tells nothing: only time decides.
    world.kill(1);
    world.run(ms(2000));
    world.resume(0, true);
    assert!(world.is_up(0));
    let took = world.run_until("down", |world| !world.is_up(0));
    assert!((ms(380)..=ms(501)).contains(&took), "{took:?}");
    assert_eq!(downs(&world, 0), [DownReason::Silent]);
}

#[test]
fn when_all_links_fall_silent_at_once_none_of_them_answers() {
    let ca = Ca::new();
    let link = Link::default();
    for phase_ms in (0..100).step_by(7) {
        let mut world = World::new(3, ms(20));
        world.wire(1, 0).delay = ms(30);
        world.wire(0, 1).delay = ms(30);
        for relay in [1, 2] {
            let name = format!("relay-{relay}");
            let (tls, now) = (ca.tls(&[&name]), world.now());
            let links = Links::acceptor(config(&link, 1), tls, &[allowed("pop-a", 1)], now);
            world.start(relay, links);
        }
        let targets = [target("relay-1", 1), target("relay-2", 2)];
        let now = world.now();
        let pop = Links::dialer(config(&link, 2), ca.tls(&["pop-a"]), &targets, now);
        world.start(0, pop);
        world.run(ms(3000 + phase_ms));
        for relay in [1, 2] {
            world.wire(relay, 0).black_hole = true;
        }
        let mut suspect = 0;
        for _ in 0..320 {
            world.run(ms(1));
            let now = world.now();
            let links = world.links(0);
            let stats: Vec<_> = links.all_stats().collect();
            suspect = stats.iter().filter(|link| link.suspect).count();
            let other = stats.iter().find(|link| !link.suspect);
            if let Some(other) = other.filter(|_| suspect == 1) {
                assert!(!links.answers(other.id, now), "{phase_ms}");
            }
        }
        assert_eq!(suspect, 2, "{phase_ms}");
    }
}

#[test]
fn loss_on_an_idle_link_makes_it_suspect_rarely_and_down_never() {
    let (mut world, _) = pair(&Link::default(), ms(40));
    up(&mut world);
    for (from, to) in [(0, 1), (1, 0)] {
        world.wire(from, to).loss_ppm = 10_000;
    }
    world.run(ms(600_000));
    let often = suspected(&mut world, 0) + suspected(&mut world, 1);
    assert!(often <= 2, "{often} times in ten minutes with 1 % loss");
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
}

#[test]
fn a_link_that_is_not_up_is_not_suspect() {
    let (mut world, _) = pair(&Link::default(), ms(20));
    // Full-size packets of the PoP do not pass: it is never up, and the relay never heard its Ping.
    world.wire(0, 1).len_max = 1400;
    world.run(ms(5000));
    let seen = |event: &LinkEvent| matches!(event, LinkEvent::Suspect { .. });
    for node in [0, 1] {
        assert!(
            !world.nodes[node]
                .events
                .iter()
                .any(|(_, event)| seen(event))
        );
    }
}
