//! Who may be at the other end: names, authorities, dates, and their replacement while links stand.

use core_relay_link::{DownReason, Links, Tls};
use topology::Link;

use crate::world::{Ca, World, allowed, config, downs, failures, ms, pair, send, target, up};

/// A PoP with these certificates, in the place of the one there is.
fn start_pop(world: &mut World, tls: Tls) {
    let (now, targets) = (world.now(), [target("relay-a", 1)]);
    let pop = Links::dialer(config(&Link::default(), 3), tls, &targets, now);
    world.start(0, pop);
}

#[test]
fn another_ca_is_refused_at_both_ends() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let stranger = Ca::new();
    // Trusts our relay, but its own certificate is of another CA.
    let tls = stranger.tls_until(&["pop-a"], 2100, &ca);
    start_pop(&mut world, tls);
    world.run(ms(300));
    assert!(failures(&world, 1).contains(&DownReason::UnknownIssuer));
    assert!(failures(&world, 0).contains(&DownReason::UnknownIssuer));
    // Does not trust our relay.
    let tls = ca.tls_until(&["pop-a"], 2100, &stranger);
    world.nodes[0].events.clear();
    start_pop(&mut world, tls);
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::UnknownIssuer));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn another_name_is_refused_at_both_ends() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    // A node of our CA that is no PoP.
    start_pop(&mut world, ca.tls(&["transceiver-a"]));
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
    start_pop(&mut world, ca.tls(&["pop-a"]));
    world.nodes[0].events.clear();
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Identity));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn the_first_allowed_name_of_a_certificate_counts() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let tls = ca.tls(&["host.example", "POP-A"]);
    start_pop(&mut world, tls);
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
    start_pop(&mut world, ca.tls_until(&["pop-a"], 2025, &ca));
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
    start_pop(&mut world, ca.tls(&["pop-a"]));
    world.nodes[0].events.clear();
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Expired));
    assert!(!world.is_up(0) && !world.is_up(1));
}

#[test]
fn a_certificate_of_the_future_is_refused() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    let tls = ca.tls_between(&["pop-a"], (2050, 2100), &[&ca]);
    start_pop(&mut world, tls);
    world.run(ms(300));
    assert!(failures(&world, 0).contains(&DownReason::Expired));
    assert!(failures(&world, 1).contains(&DownReason::Expired));
    assert!(!world.is_up(0) && !world.is_up(1));
}

/// Sends a record each way every 10 ms for a second.
fn traffic(world: &mut World, sent: &mut usize) {
    for _ in 0..100 {
        send(world, 0, b"up").unwrap();
        send(world, 1, b"down").unwrap();
        *sent += 1;
        world.run(ms(10));
    }
}

#[test]
fn certificates_and_then_the_ca_rotate_without_losing_a_record() {
    let (mut world, old) = pair(&Link::default(), ms(20));
    up(&mut world);
    world.run(ms(50));
    let new = Ca::new();
    let mut sent = 0;
    let both = [&old, &new];
    let names = [&["pop-a"][..], &["relay-a"][..]];
    // Other certificates of the same CA; both CAs; certificates of the new one; the new one alone.
    for step in 0..4 {
        // In either order.
        for node in if step % 2 == 0 { [0, 1] } else { [1, 0] } {
            let tls = match step {
                0 => old.tls(names[node]),
                1 => old.tls_between(names[node], (2020, 2100), &both),
                2 => new.tls_between(names[node], (2020, 2100), &both),
                _ => new.tls(names[node]),
            };
            let now = world.now();
            world.links(node).reload(tls, now);
            traffic(&mut world, &mut sent);
        }
    }
    world.run(ms(50));
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    assert_eq!(world.payloads(1).len(), sent);
    assert_eq!(world.payloads(0).len(), sent);
    // Whoever has a certificate of the old CA only is not let in any more.
    let now = world.now();
    let dialer = Links::dialer(
        config(&Link::default(), 8),
        old.tls_between(&["pop-a"], (2020, 2100), &both),
        &[target("relay-a", 1)],
        now,
    );
    world.start(0, dialer);
    world.run(ms(2000));
    assert!(failures(&world, 0).contains(&DownReason::UnknownIssuer));
    assert!(!world.is_up(0));
}

/// At whatever point of the first renewal the certificates change again.
#[test]
fn certificates_that_change_twice_in_a_moment_cost_nothing() {
    for apart in (1..=50).map(|step| ms(step * 10)) {
        let (mut world, ca) = pair(&Link::default(), ms(100));
        up(&mut world);
        world.run(ms(200));
        let mut sent = 0;
        let run = |world: &mut World, time, sent: &mut usize| {
            let end = world.at + time;
            while world.at < end {
                send(world, 0, b"up").unwrap();
                send(world, 1, b"down").unwrap();
                *sent += 1;
                world.run(ms(10));
            }
        };
        let reload = |world: &mut World| {
            let (tls, now) = (ca.tls(&["pop-a"]), world.now());
            world.links(0).reload(tls, now);
        };
        reload(&mut world);
        run(&mut world, apart, &mut sent);
        reload(&mut world);
        run(&mut world, ms(1500), &mut sent);
        world.run(ms(3000));
        for node in [0, 1] {
            assert!(downs(&world, node).is_empty(), "{apart:?}");
            assert_eq!(world.payloads(node).len(), sent, "{apart:?}");
            // Renewed twice, and nothing of that is left.
            assert_eq!(world.links(node).connections(), 1, "{apart:?}");
        }
    }
}

/// At whatever point of a link's coming up the other end ceases to trust what it is made with.
#[test]
fn a_ca_that_ceases_to_be_trusted_during_a_handshake_makes_no_link() {
    for node in [0, 1] {
        for after in (0..=60).map(|step| ms(step * 10)) {
            let (mut world, ca) = pair(&Link::default(), ms(100));
            world.run(after);
            let other = Ca::new();
            let name = ["pop-a", "relay-a"][node];
            let (tls, now) = (
                ca.tls_between(&[name], (2020, 2100), &[&other]),
                world.now(),
            );
            world.links(node).reload(tls, now);
            world.run(ms(4000));
            assert!(!world.is_up(0) && !world.is_up(1), "{node} {after:?}");
        }
    }
}

/// At whatever point of a link's coming up its certificate is replaced.
#[test]
fn a_certificate_that_changes_while_a_link_is_dialed_is_the_one_it_ends_with() {
    for after in (0..=60).map(|step| ms(step * 10)) {
        let (old, new) = (Ca::new(), Ca::new());
        let mut world = World::new(2, ms(100));
        let now = world.now();
        let relay = |trusted: &[&Ca]| new.tls_between(&["relay-a"], (2020, 2100), trusted);
        let pop = |ca: &Ca| ca.tls_between(&["pop-a"], (2020, 2100), &[&old, &new]);
        let (tls, peers) = (relay(&[&old, &new]), [allowed("pop-a", 1)]);
        let acceptor = Links::acceptor(config(&Link::default(), 1), tls, &peers, now);
        let targets = [target("relay-a", 1)];
        let dialer = Links::dialer(config(&Link::default(), 2), pop(&old), &targets, now);
        world.start(0, dialer);
        world.start(1, acceptor);
        world.run(after);
        let now = world.now();
        world.links(0).reload(pop(&new), now);
        world.run(ms(3000));
        up(&mut world);
        // What the old CA signed is closed.
        let now = world.now();
        world.links(1).reload(relay(&[&new]), now);
        world.run(ms(1000));
        assert!(downs(&world, 0).is_empty(), "{after:?}");
        assert!(downs(&world, 1).is_empty(), "{after:?}");
    }
}

/// The relay takes a link over, and the PoP gives the renewal up: nobody else has the PoP's name.
#[test]
fn a_renewal_given_up_after_it_was_taken_over_is_no_duplicate() {
    let (mut world, ca) = pair(&Link::default(), ms(100));
    up(&mut world);
    world.run(ms(200));
    let (tls, now) = (ca.tls(&["pop-a"]), world.now());
    world.links(0).reload(tls, now);
    // Its Ping arrives, no Pong does.
    world.run(ms(250));
    world.wire(1, 0).len_max = 1300;
    world.run(ms(3000));
    world.wire(1, 0).len_max = 9000;
    let took = world.run_until("up", |world| world.is_up(0) && world.is_up(1));
    assert!(took < ms(5000), "{took:?}");
    assert!(!downs(&world, 0).contains(&DownReason::Duplicate));
}

#[test]
fn a_ca_that_is_no_longer_trusted_closes_what_it_made() {
    for node in [0, 1] {
        let (mut world, ca) = pair(&Link::default(), ms(20));
        up(&mut world);
        world.run(ms(1000));
        let other = Ca::new();
        let name = ["pop-a", "relay-a"][node];
        let (tls, now) = (
            ca.tls_between(&[name], (2020, 2100), &[&other]),
            world.now(),
        );
        world.links(node).reload(tls, now);
        let took = world.run_until("both down", |world| !world.is_up(0) && !world.is_up(1));
        assert!(took <= ms(1400), "{took:?}");
        assert_eq!(downs(&world, 0), [DownReason::UnknownIssuer]);
        assert_eq!(downs(&world, 1), [DownReason::UnknownIssuer]);
        world.run(ms(5000));
        assert!(!world.is_up(0) && !world.is_up(1));
    }
}

/// The relay learns of the other CA only after the PoP has been refused with its new certificate.
#[test]
fn a_renewal_that_was_refused_is_tried_again() {
    let (mut world, ca) = pair(&Link::default(), ms(5));
    up(&mut world);
    let next = Ca::new();
    let validity = (2020, 2100);
    let now = world.now();
    let tls = next.tls_between(&["pop-a"], validity, &[&ca, &next]);
    world.links(0).reload(tls, now);
    world.run(ms(1000));
    assert!(world.links(1).refused().count(DownReason::UnknownIssuer) > 0);
    let now = world.now();
    let tls = ca.tls_between(&["relay-a"], validity, &[&ca, &next]);
    world.links(1).reload(tls, now);
    world.run(ms(10_000));
    // Whoever still has the old certificate is refused from here on.
    let now = world.now();
    let tls = ca.tls_between(&["relay-a"], validity, &[&next]);
    world.links(1).reload(tls, now);
    world.run(ms(1000));
    assert!(downs(&world, 0).is_empty() && downs(&world, 1).is_empty());
    assert!(world.is_up(0) && world.is_up(1));
}
