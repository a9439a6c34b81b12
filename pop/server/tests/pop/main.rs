//! The PoP with real sockets: clients on one side, core relays on the other, as a test says.

#![cfg(test)]
#![expect(
    clippy::disallowed_methods,
    reason = "a test with real sockets waits for real time"
)]

mod cache;
#[path = "../../../../runtime/tests/support/redis_server.rs"]
mod redis_server;
mod world;

use std::time::{Duration, Instant};

use wire::record::RecordHeader;
use wire::{Owner, RegionId, TransceiverId};
use world::{KEYS, OWNER, RTP, World, binding_request, binding_success, ufrag};

/// A path of 1500 bytes.
const MTU: u16 = 1452;

#[test]
fn packets_go_both_ways_once_the_owner_has_answered() {
    let mut world = World::new(1, 1, MTU);
    let client = world.client();
    let request = binding_request(ufrag(KEYS, OWNER).as_bytes());
    client.send(RTP);
    client.send(&request);
    let (relay, header, payload) = world.next_record();
    assert_eq!(payload, request, "and not the RTP before it");
    assert_eq!(header, world.header_for(&client, 0));

    client.send(RTP);
    world.until("counted", |world| world.drops("not_committed") == 1);
    world.down(relay, &header, &binding_success());
    let (from, packet) = world.next_packet(&client);
    assert_eq!((from, packet), (world.ingress(), binding_success()));
    client.send(RTP);
    assert_eq!(world.next_record(), (relay, header, RTP.to_vec()));
    world.down(1 - relay, &header, RTP);
    assert_eq!(world.next_packet(&client).1, RTP, "downlink by any link");
    assert_eq!(world.drops("no_flow"), 1);
}

#[test]
fn nothing_comes_back_and_nothing_passes_for_bad_input() {
    let mut world = World::new(2, 1, MTU);
    let client = world.client();
    let owner = |region, transceiver| Owner {
        region: RegionId(region),
        transceiver: TransceiverId(transceiver),
    };
    let good = ufrag(KEYS, OWNER);
    let other_key = "current 1 ffffffffffffffffffffffffffffffff\n";
    let unknown_key = "current 9 000102030405060708090a0b0c0d0e0f\n";
    let cases = [
        (
            "stun_no_username",
            b"\x00\x01\x00\x00\x21\x12\xa4\x42transaction1".to_vec(),
        ),
        ("hint_malformed", binding_request(b"abcd")),
        (
            "hint_forged",
            binding_request(ufrag(other_key, OWNER).as_bytes()),
        ),
        (
            "hint_unknown_key",
            binding_request(ufrag(unknown_key, OWNER).as_bytes()),
        ),
        (
            "unknown_region",
            binding_request(ufrag(KEYS, owner(2, 1)).as_bytes()),
        ),
        (
            "outside_cidr",
            binding_request(ufrag(KEYS, owner(1, 256)).as_bytes()),
        ),
        (
            "stun_malformed",
            binding_request(good.as_bytes())[..40].to_vec(),
        ),
        ("no_flow", b"\x16\xfe\xfd a ClientHello".to_vec()),
        ("too_long", vec![0x80; 1473]),
    ];
    for (reason, packet) in &cases {
        client.send(packet);
        world.until(reason, |world| world.drops(reason) == 1);
    }
    world.pass(Duration::from_millis(50));
    assert!(client.recv().is_none(), "amplification is zero");
    assert!(world.relays.iter().all(|relay| relay.records.is_empty()));
    let state = world.get("/state").1;
    assert!(state.contains("\"flows\":0"), "{state}");
}

#[test]
fn packets_of_every_size_arrive_whole_on_a_narrow_path() {
    let mut world = World::new(3, 1, 1200);
    let (client, header) = world.committed(KEYS);
    for len in [1, 100, 1100, 1134, 1139, 1160, 1200, 1471, 1472] {
        let packet: Vec<u8> = (0..len)
            .map(|i| 0x80 | u8::try_from(i % 63).unwrap())
            .collect();
        let before: usize = world.relays.iter().map(|relay| relay.parts).sum();
        client.send(&packet);
        let (relay, got, payload) = world.next_record();
        assert_eq!(payload, packet, "{len} bytes up");
        let after: usize = world.relays.iter().map(|relay| relay.parts).sum();
        assert_eq!(
            after - before,
            if len > 1138 { 2 } else { 1 },
            "{len} bytes"
        );
        assert_eq!((got.owner, got.client), (header.owner, header.client));
        world.down(relay, &header, &packet);
        assert_eq!(world.next_packet(&client).1, packet, "{len} bytes down");
    }
}

#[test]
fn a_restarted_pop_delivers_downlink_before_it_knows_a_flow() {
    let mut world = World::new(4, 1, MTU);
    let (client, header) = world.committed(KEYS);
    world.stop();
    world.restart();
    world.until("links are up again", |world| {
        world
            .relays
            .iter()
            .all(|relay| relay.ups == 2 && relay.up.len() == 1)
    });
    world.down(0, &header, RTP);
    assert_eq!(world.next_packet(&client).1, RTP);
    client.send(RTP);
    assert_eq!(
        world.next_record().2,
        RTP,
        "the downlink said whose client it is"
    );
}

#[test]
fn an_end_record_ends_the_flow_and_reaches_no_client() {
    let mut world = World::new(16, 1, MTU);
    let (client, header) = world.committed(KEYS);
    world.down(0, &header, b"");
    world.until("ended", |world| {
        world.get("/state").1.contains("\"flows_ended\":1")
    });
    client.send(RTP);
    world.until("forgotten", |world| world.drops("ended") == 1);
    assert!(client.recv().is_none(), "it is not for the client");
}

#[test]
fn uplink_moves_when_a_relay_falls_silent_and_comes_back_when_the_other_does() {
    let mut world = World::impatient(5, 1, MTU, 300);
    let (client, _) = world.committed(KEYS);
    let (first, other) = (world.carrier, 1 - world.carrier);
    world.relays[first].dead = true;
    let silent = Instant::now();
    world.until("the other relay carries", |world| {
        client.send(RTP);
        !world.relays[other].records.is_empty()
    });
    assert!(
        silent.elapsed() < Duration::from_secs(1),
        "{:?}",
        silent.elapsed()
    );
    assert_eq!(world.get("/readyz").0, 200);
    world.relays[first].dead = false;
    world.until("both links are up", |world| {
        world.get("/state").1.matches("\"up\":true").count() == 2
    });
    world.relays[other].records.clear();
    client.send(RTP);
    assert_eq!(world.next_record().0, other, "no change without need");
    world.relays[other].dead = true;
    world.until("the first relay carries", |world| {
        client.send(RTP);
        !world.relays[first].records.is_empty()
    });
}

#[test]
fn a_draining_relay_gets_no_uplink_and_still_gives_downlink() {
    let mut world = World::new(6, 1, MTU);
    let (client, header) = world.committed(KEYS);
    let (first, other) = (world.carrier, 1 - world.carrier);
    world.relays[first].links.drain(true, Instant::now());
    world.until("uplink moved", |world| {
        client.send(RTP);
        !world.relays[other].records.is_empty()
    });
    world.down(first, &header, RTP);
    assert_eq!(world.next_packet(&client).1, RTP);
    assert_eq!(world.relays[first].ups, 1, "the link stayed");
}

#[test]
fn three_rotations_of_the_key_lose_no_flow_and_no_link() {
    let mut world = World::new(7, 1, MTU);
    let request = binding_request(ufrag(KEYS, OWNER).as_bytes());
    let (client, _) = world.committed(KEYS);
    let key = |id: u8| format!("{id} {:032x}", u128::from(id) * 7 + 1);
    let first = "1 000102030405060708090a0b0c0d0e0f".to_owned();
    let second = "2 101112131415161718191a1b1c1d1e1f".to_owned();
    let steps = [
        [first, second.clone(), key(3)],
        [second, key(3), key(4)],
        [key(3), key(4), key(5)],
    ];
    for (step, [previous, current, next]) in steps.into_iter().enumerate() {
        let keys = format!("previous {previous}\ncurrent {current}\nnext {next}\n");
        world.publish_keys(&keys);
        let generation = format!("\"config_generation\":{}", step + 2);
        world.until("reloaded", |world| {
            world.get("/state").1.contains(&generation)
        });
        client.send(&request);
        assert_eq!(
            world.next_record().2,
            request,
            "step {step}: the consent check"
        );
        client.send(RTP);
        assert_eq!(world.next_record().2, RTP, "step {step}");
        world.committed(&keys);
    }
    assert!(world.relays.iter().all(|relay| relay.ups == 1));
    world.client().send(&request);
    world.until("the first key is gone", |world| {
        world.drops("hint_unknown_key") == 1
    });
}

#[test]
fn a_draining_pop_serves_what_it_has_and_stops_at_once_when_told() {
    let mut world = World::new(8, 1, MTU);
    let (client, header) = world.committed(KEYS);
    world.context.shutdown.drain(Duration::from_secs(60));
    world.until("not ready", |world| world.get("/readyz").0 == 503);
    world.until("draining", |world| {
        world.get("/state").1.contains("\"draining\":true")
    });
    let other = world.client();
    other.send(&binding_request(ufrag(KEYS, OWNER).as_bytes()));
    world.until("refused", |world| world.drops("draining") == 1);
    client.send(RTP);
    assert_eq!(world.next_record().2, RTP);
    world.down(0, &header, RTP);
    assert_eq!(world.next_packet(&client).1, RTP);
    assert!(!world.has_ended());
    let told = Instant::now();
    world.stop();
    // And not when the drain would end.
    assert!(
        told.elapsed() < Duration::from_secs(5),
        "{:?}",
        told.elapsed()
    );
}

#[test]
fn a_pop_without_flows_drains_at_once() {
    let mut world = World::new(9, 1, MTU);
    world.context.shutdown.drain(Duration::from_secs(60));
    world.join();
}

#[test]
fn draining_workers_end_together() {
    // One client fewer than workers: at least one worker has no flow.
    for (net, workers) in [(14, 2), (15, 3)] {
        let mut world = World::new(net, workers, MTU);
        let clients: Vec<_> = (1..workers).map(|_| world.committed(KEYS)).collect();
        let time = Duration::from_secs(4);
        let told = Instant::now();
        world.context.shutdown.drain(time);
        world.until("draining", |world| {
            let draining = world
                .get("/state")
                .1
                .matches("\"draining\":true,\"drops\"")
                .count();
            draining == usize::from(workers)
        });
        while told.elapsed() < time / 2 {
            for (client, header) in &clients {
                client.send(RTP);
                let (relay, got, payload) = world.next_record();
                assert_eq!((got.tag, payload), (header.tag, RTP.to_vec()));
                world.down(relay, header, RTP);
                assert_eq!(world.next_packet(client).1, RTP);
            }
            let all = usize::from(workers);
            assert!(
                world.relays.iter().all(|relay| relay.up.len() == all),
                "every worker keeps its links"
            );
        }
        world.join();
        assert!(told.elapsed() >= time, "{:?}", told.elapsed());
    }
}

#[test]
fn every_worker_serves_its_clients() {
    let mut world = World::new(10, 2, MTU);
    let mut by_worker = [0, 0];
    for _ in 0..32 {
        let (client, header) = world.committed(KEYS);
        by_worker[usize::from(header.tag.worker)] += 1;
        client.send(RTP);
        assert_eq!(world.next_record().1.tag, header.tag);
    }
    assert!(
        by_worker.iter().all(|clients| *clients > 0),
        "{by_worker:?}"
    );
}

#[test]
fn a_taken_ingress_is_one_clear_error_for_one_worker_and_for_several() {
    for (net, workers) in [(11, 1), (12, 2)] {
        let mut world = World::without_pop(net, workers, MTU);
        let taken = std::net::UdpSocket::bind(world.ingress()).unwrap();
        let error = world.start().expect_err("the address is taken");
        let line = format!("{error:#}");
        assert!(line.contains(&world.ingress().to_string()), "{line}");
        assert_eq!(world.get("/healthz").0, 0, "nothing runs");
        drop(taken);
        world.start().unwrap();
    }
}

#[test]
fn records_that_are_not_for_this_worker_are_dropped() {
    let mut world = World::new(13, 1, MTU);
    let client = world.client();
    let good = world.header_for(&client, 0);
    let mut cases = [good; 4];
    cases[0].tag.pop = wire::PopId(2);
    cases[1].owner.region = RegionId(2);
    cases[2].tag.ingress = 1;
    cases[3].hops = 5;
    for (header, reason) in
        cases
            .iter()
            .zip(["wrong_tag", "wrong_region", "bad_ingress", "hop_limit"])
    {
        world.down(0, header, RTP);
        world.until(reason, |world| world.drops(reason) == 1);
    }
    let mut own = good;
    own.client = wire::ClientAddr::new(world.ingress());
    world.down(0, &own, RTP);
    world.until("own address", |world| world.drops("own_address") == 1);
    assert!(client.recv().is_none());
    world.down(0, &good, RTP);
    assert_eq!(world.next_packet(&client).1, RTP);
}

/// As long as the shortest SRTP.
const SRTP: &[u8] = &[0x80; 22];

#[test]
fn media_from_another_port_is_offered_and_passes_once_the_owner_takes_it() {
    // Ports fall to workers as chance has it: what one knows, the others offer by.
    let mut world = World::new(40, 3, MTU);
    let (_client, header) = world.committed(KEYS);
    let up = |world: &mut World, client: &world::Client, packet: &[u8]| {
        client.send(packet);
        let (relay, header, payload) = world.next_record();
        assert_eq!((header.owner, header.client), (OWNER, client.addr()));
        assert_eq!(payload, packet);
        (relay, header)
    };
    for _ in 0..6 {
        let rebound = world.client();
        let (relay, offered) = up(&mut world, &rebound, SRTP);
        assert!(offered.offered);
        let taken = |world: &World| world.metric("firsthop_pop_offers_taken_total", &[]);
        let before = taken(&world);
        world.down(relay, &offered, b"");
        world.until("the answer to be counted", |world| taken(world) > before);
        let (_, passed) = up(&mut world, &rebound, RTP);
        assert!(!passed.offered);
        assert!(rebound.recv().is_none(), "nobody sent it anything");
    }
    let offered = RecordHeader {
        offered: true,
        ..header
    };
    let relay = world.carrier;
    world.down(relay, &offered, RTP);
    world.until("no offer comes down", |world| {
        world.drops("bad_record") == 1
    });
}
