//! Floods and garbage from strangers.

use core_relay_link::Links;
use topology::Link;

use crate::world::{address, config, downs, ms, pair, target, up};

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
