//! Who may be at the other end: names, authorities, dates, and their replacement while links stand.

use core_relay_link::{DownReason, Links};
use topology::Link;

use crate::world::{Ca, allowed, config, downs, failures, ms, pair, send, target, up};

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
