//! Packets that go nowhere: each is counted by its reason.

use runtime::udp::{BindOptions, UdpSocket};
use serde_json::json;
use transceiver_proto::stun::{Builder, nominating_request};
use transceiver_proto::{DropReason, Drops, ReturnPath};
use wire::ClientAddr;

use super::SECOND;
use super::world::{INGRESS, World, address, line};
use crate::engine::egress::Egress;

/// Paths one session keeps.
const PATHS_MAX: u8 = 8;

/// USERNAME and password of a check for the session of `client`.
fn credentials(world: &World, client: usize) -> (String, String) {
    let node = &world.nodes[client];
    let answer = &node.session.as_ref().unwrap().answer;
    let (ours, theirs) = (
        line(answer, "a=ice-ufrag:"),
        line(&node.offer, "a=ice-ufrag:"),
    );
    let password = line(answer, "a=ice-pwd:");
    (format!("{ours}:{theirs}"), password.to_owned())
}

/// A check that nominates, with a transaction of its own for each address.
pub(super) fn nominate(world: &mut World, client: usize, host: u8) {
    let (username, password) = credentials(world, client);
    let mut packet = Vec::new();
    nominating_request(&mut packet, &[host; 12], &username, password.as_bytes());
    world.uplink(address(host, 4000), INGRESS[0], &packet);
}

#[test]
fn addresses_full_when_sessions_hold_more_than_a_smaller_bound_allows() {
    let mut world = World::with_signaling(&json!({ "sessions_max": 2 }));
    let (first, second) = (world.join(address(1, 4000)), world.join(address(2, 4000)));
    for host in 0..PATHS_MAX {
        nominate(&mut world, first, 10 + host);
    }
    nominate(&mut world, second, 30);
    assert_eq!(world.core.drops.total(), 0);
    world.reload(&json!({ "sessions_max": 1 }));
    nominate(&mut world, second, 31);
    assert_eq!(world.core.drops.get(DropReason::AddressesFull), 1);
    nominate(&mut world, second, 30);
    assert_eq!(world.core.drops.total(), 1, "a known address has its place");
}

#[test]
fn no_path_before_the_client_has_nominated() {
    let mut world = World::new();
    let client = world.join(address(1, 4000));
    let (username, password) = credentials(&world, client);
    let mut check = Vec::new();
    Builder::new(&mut check, 1, &[1; 12])
        .attribute(6, username.as_bytes())
        .finish(password.as_bytes());
    world.uplink(address(1, 4000), INGRESS[0], &check);
    let id = world.nodes[client].session.as_ref().unwrap().id;
    let slot = world.core.by_id[&id];
    // A connection has nothing to say by itself before nomination: the handshake is let begin without one.
    let now = world.now;
    world.core.live_mut(slot).unwrap().connect(now);
    let hello = client_hello();
    world.uplink(address(1, 4000), INGRESS[0], &hello);
    assert!(world.core.drops.get(DropReason::NoPath) > 0);
    world.core.egress.drain(|_, _, _| ());
    assert_eq!(world.core.egress.packets, 1, "the answer to the check");
}

/// The first DTLS datagram of a client.
fn client_hello() -> Vec<u8> {
    let mut world = World::new();
    let client = world.join(address(9, 4000));
    world.tap = Some(Vec::new());
    world.run(SECOND);
    let tapped = world.tap.unwrap_or_default();
    let hello = tapped.into_iter().find(|packet| packet[0] == 22);
    assert!(world.nodes[client].client.connected);
    hello.unwrap()
}

#[test]
fn oversize_when_a_link_carries_less_than_a_packet_in_fragments() {
    let mut world = World::new();
    let client = world.connect(address(1, 4000));
    world.core.egress = Egress::new(world.core.owner, 64);
    let before = world.core.drops.get(DropReason::Oversize);
    let now = world.now;
    world.nodes[client].client.send_binary(&[5; 60_000], now);
    world.run(SECOND);
    assert_eq!(before, 0);
    assert!(world.core.drops.get(DropReason::Oversize) > 0);
}

#[test]
fn send_failed_when_the_kernel_refuses() {
    let world = World::new();
    let mut egress = Egress::new(world.core.owner, world.datagram_len_max);
    let socket = UdpSocket::bind(([127, 0, 0, 1], 0).into(), &BindOptions::default()).unwrap();
    let mut drops = Drops::default();
    let client = ClientAddr::new(address(1, 4000));
    // No IPv6 leaves an IPv4 socket: one datagram to one relay, a train of two to another.
    let mut push = |port, packet: &[u8]| {
        let via = ReturnPath {
            relay: ([0, 0, 0, 0, 0, 0, 0, 1], port).into(),
            tag: world.header(address(1, 4000), 1).tag,
        };
        egress.push(via, client, packet, &mut drops);
    };
    push(1, &[1; 100]);
    push(2, &[1; 1000]);
    push(2, &[1; 1000]);
    egress.flush(&socket, &mut drops);
    assert_eq!(drops.get(DropReason::SendFailed), 3);
    assert_eq!(drops.total(), 3);
}

#[test]
fn relays_full_when_a_batch_is_for_more_core_relay_workers_than_are_kept_apart() {
    let world = World::new();
    let mut egress = Egress::new(world.core.owner, world.datagram_len_max);
    let mut drops = Drops::default();
    let client = ClientAddr::new(address(1, 4000));
    let tag = world.header(address(1, 4000), 1).tag;
    let via = |port| ReturnPath {
        relay: ([127, 0, 0, 1], port).into(),
        tag,
    };
    for port in 1..=256 {
        egress.push_end(via(port), client, &mut drops);
    }
    assert_eq!((egress.ends, drops.total()), (256, 0));
    egress.push_end(via(257), client, &mut drops);
    egress.push(via(258), client, b"packet", &mut drops);
    assert_eq!((egress.ends, drops.total()), (256, 2));
    assert_eq!(drops.get(DropReason::RelaysFull), 2);
}
