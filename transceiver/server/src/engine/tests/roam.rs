//! Clients whose address changes in the middle of a call, and others who send what they have overheard: real SRTP, under an
//! invented clock.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use transceiver_proto::DropReason;

use super::world::{INGRESS, World, address};

const HOME: SocketAddr = address(1, 4000);
const REBOUND: SocketAddr = address(1, 4001);
/// Who never asked for anything.
const VICTIM: SocketAddr = address(1, 666);

/// A call whose PoP offers what it does not know.
fn call() -> (World, usize) {
    let mut world = World::new();
    world.known = Some(HashSet::from([HOME]));
    let client = world.connect(HOME);
    assert_eq!(world.talk(client, 5), 5);
    (world, client)
}

/// The packet of the client's next frame, which does not leave.
fn next_packet(world: &mut World, client: usize) -> Vec<u8> {
    let now = world.now;
    let frame = Bytes::from_static(b"a frame of some length");
    world.nodes[client].client.speak(frame, now);
    let (_, packet) = world.nodes[client].client.next_datagram().unwrap();
    packet.to_vec()
}

/// Packets and bytes that went to an address.
fn went_to(world: &World, to: SocketAddr) -> (usize, usize) {
    let sent = world.sent.iter().filter(|(_, _, client, _)| *client == to);
    sent.fold((0, 0), |(packets, bytes), sent| (packets + 1, bytes + sent.3))
}

#[test]
fn a_rebound_client_is_heard_and_hears_at_once() {
    let (mut world, client) = call();
    world.nodes[client].nat = REBOUND;
    assert_eq!(world.talk(client, 10), 10);
    assert_eq!(world.taken, [REBOUND], "said once: then its PoP knows");
    assert_eq!(world.core.drops.get(DropReason::UnboundAddress), 0);
    assert_eq!(world.core.sessions.load().guests, 1);
    // Its next check makes the address its own, long before the call could be given up.
    assert_eq!(world.talk(client, 500), 500);
    assert_eq!(world.core.sessions.load().guests, 0);
    let (before, _) = went_to(&world, HOME);
    assert_eq!(world.talk(client, 10), 10);
    assert_eq!(went_to(&world, HOME).0, before, "nothing goes there any more");
}

#[test]
fn without_offers_it_waits_for_its_next_check() {
    let (mut world, client) = call();
    world.known = None;
    world.nodes[client].nat = REBOUND;
    assert_eq!(world.talk(client, 3), 0);
    assert_eq!(world.core.drops.get(DropReason::UnboundAddress), 3);
}

#[test]
fn a_replay_from_elsewhere_gets_nothing() {
    let (mut world, client) = call();
    world.tap = Some(Vec::new());
    assert_eq!(world.talk(client, 10), 10);
    let overheard = world.tap.take().unwrap();
    for packet in &overheard {
        world.uplink(VICTIM, INGRESS[0], packet);
    }
    world.exchange();
    assert_eq!(went_to(&world, VICTIM), (0, 0));
    assert_eq!(world.taken, []);
    assert!(world.core.drops.get(DropReason::OfferRefused) >= 10);
    assert_eq!(world.talk(client, 10), 10);
}

#[test]
fn a_forged_packet_gets_nothing() {
    let (mut world, client) = call();
    let packet = next_packet(&mut world, client);
    for at in 0..packet.len() {
        let mut forged = packet.clone();
        forged[at] ^= 1;
        world.uplink(VICTIM, INGRESS[0], &forged);
    }
    world.exchange();
    assert_eq!(went_to(&world, VICTIM), (0, 0));
    let drops = &world.core.drops;
    let counted = drops.get(DropReason::OfferRefused)
        + drops.get(DropReason::OfferUnknown)
        + drops.get(DropReason::OfferRate);
    assert_eq!(counted, packet.len() as u64, "each by its reason");
    world.uplink(HOME, INGRESS[0], &packet);
    world.exchange();
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), 0, "unhurt");
}

#[test]
fn whoever_is_faster_than_the_client_gets_what_he_sent_and_moves_nothing() {
    let (mut world, client) = call();
    let (mut came_packets, mut came_bytes) = (0, 0);
    let (mut heard, before) = (0, world.nodes[client].client.heard.len());
    for _ in 0..200 {
        // The client's own packet comes second: it is the replay.
        let packet = next_packet(&mut world, client);
        world.uplink(VICTIM, INGRESS[0], &packet);
        world.uplink(HOME, INGRESS[0], &packet);
        (came_packets, came_bytes) = (came_packets + 1, came_bytes + packet.len());
        world.run(super::world::FRAME);
        heard += 1;
    }
    let (packets, bytes) = went_to(&world, VICTIM);
    assert!(packets > 0, "the attack was made");
    assert!(packets <= came_packets && bytes <= came_bytes);
    let selected = world.snapshot(client).unwrap();
    assert_eq!(selected.paths, 1, "{selected:?}");
    let got = world.nodes[client].client.heard.len() - before;
    assert_eq!(got, heard, "the call goes on where it was");
    // Then he tires, and within seconds is forgotten at his PoP too.
    world.run(Duration::from_secs(6));
    assert_eq!(world.core.sessions.load().guests, 0);
    assert!(world.ends.iter().any(|(_, header, _)| header.client.socket_addr() == VICTIM));
}

/// Whatever mix of fresh, old, and altered packets comes from wherever: no address gets more than came from it, and the calls go on.
#[test]
fn nobody_gets_more_than_came_from_him() {
    let (mut world, client) = call();
    let other = world.connect(address(3, 4000));
    let mut state = 0x5eed_u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut overheard: Vec<Vec<u8>> = Vec::new();
    let mut came = std::collections::HashMap::<SocketAddr, (usize, usize)>::new();
    for _ in 0..1500 {
        let speaker = if random(2) == 0 { client } else { other };
        let packet = next_packet(&mut world, speaker);
        let from = address(1, 700 + u16::try_from(random(3)).unwrap());
        let mut sent = match random(4) {
            0 if !overheard.is_empty() => {
                let at = usize::try_from(random(overheard.len() as u64)).unwrap();
                overheard[at].clone()
            }
            _ => packet.clone(),
        };
        if random(4) == 0 {
            let at = usize::try_from(random(sent.len() as u64)).unwrap();
            sent[at] ^= 0x10;
        }
        let came = came.entry(from).or_default();
        *came = (came.0 + 1, came.1 + sent.len());
        world.uplink(from, INGRESS[0], &sent);
        let home = world.nodes[speaker].nat;
        world.uplink(home, INGRESS[0], &packet);
        overheard.push(packet);
        if random(8) == 0 {
            world.run(super::world::FRAME);
        }
        world.exchange();
        for (address, (packets, bytes)) in &came {
            let went = went_to(&world, *address);
            assert!(went.0 <= *packets && went.1 <= *bytes, "{address}");
        }
    }
    assert!(came.keys().any(|address| went_to(&world, *address).0 > 0));
    for speaker in [client, other] {
        assert_eq!(world.snapshot(speaker).unwrap().paths, 1);
        assert_eq!(world.talk(speaker, 20), 20);
    }
}
