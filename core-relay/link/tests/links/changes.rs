//! What an operator changes while links stand: drains, ends, peers that come and go.

use core_relay_link::{DownReason, LinkEvent, Links};
use topology::Link;

use crate::world::{Ca, World, allowed, config, downs, failures, ms, pair, send, target, up};

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
