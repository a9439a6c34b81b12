//! Clients whose address changes in the middle of a call, and others who send what they have overheard: real SRTP, under an
//! invented clock.

use std::collections::{BTreeMap, HashSet};
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
    sent.fold((0, 0), |(packets, bytes), sent| {
        (packets + 1, bytes + sent.3)
    })
}

#[test]
fn a_rebound_client_is_heard_and_hears_at_once() {
    let (mut world, client) = call();
    world.nodes[client].nat = REBOUND;
    assert_eq!(world.talk(client, 10), 10);
    assert_eq!(world.taken, [REBOUND], "said once: then its PoP knows");
    assert_eq!(world.core.sessions.load().guests, 1);
    // Its next check makes the address its own, long before the call could be given up.
    assert_eq!(world.talk(client, 500), 500);
    assert_eq!(world.core.sessions.load().guests, 0);
    let (before, _) = went_to(&world, HOME);
    assert_eq!(world.talk(client, 10), 10);
    assert_eq!(
        went_to(&world, HOME).0,
        before,
        "nothing goes there any more"
    );
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
    assert!(world.taken.is_empty());
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
    assert!(
        world
            .ends
            .iter()
            .any(|(_, header, _)| header.client.socket_addr() == VICTIM)
    );
}

/// One raced packet every few seconds is enough to be the guest again and again.
#[test]
fn whoever_races_a_roamed_client_does_not_silence_it() {
    let (mut world, client) = call();
    world.nodes[client].nat = REBOUND;
    for _ in 0..4 {
        // Before its next check: the call is where it was.
        for _ in 0..3 {
            let packet = next_packet(&mut world, client);
            world.uplink(VICTIM, INGRESS[0], &packet);
            world.exchange();
        }
        let before = world.nodes[client].client.heard.len();
        assert_eq!(world.talk(client, 20), 20);
        assert!(world.nodes[client].client.heard.len() >= before + 20);
    }
    assert!(went_to(&world, VICTIM).0 > 0, "the attack was made");
    let ended = |(_, header, _): &(SocketAddr, wire::record::RecordHeader, usize)| {
        header.client.socket_addr() == REBOUND
    };
    assert!(!world.ends.iter().any(ended));
}

/// The client's next sender report (RFC 3550 §6.4.1); it does not leave, and neither does what it says meanwhile.
fn next_report(world: &mut World, client: usize) -> Vec<u8> {
    for _ in 0..200 {
        world.now += super::world::FRAME;
        let now = world.now;
        let node = &mut world.nodes[client].client;
        node.speak(Bytes::from_static(b"a frame"), now);
        node.handle_timeout(now);
        while let Some((_, packet)) = node.next_datagram() {
            if packet[0] >> 6 == 2 && packet[1] == 200 {
                return packet.to_vec();
            }
        }
    }
    panic!("no report within four seconds")
}

/// Packets that the media engine of the first session was shown and did not refuse. It tells nothing more of a report.
fn shown(world: &World) -> u64 {
    let slot = *world.core.by_id.values().next().unwrap();
    world.core.live(slot).unwrap().packets_in
}

/// The first report that the media engine sees of a stream tells it where reports begin, authentic or not.
#[test]
fn a_forged_or_replayed_report_spoils_none_of_the_client() {
    let (mut world, client) = call();
    let report = next_report(&mut world, client);
    let mut forged = report.clone();
    // SRTCP's index ends the packet (RFC 7714 §9.1).
    let index = forged.len() - 4;
    forged[index..].copy_from_slice(&0xc000_0000_u32.to_be_bytes());
    let refusals = |world: &World| {
        let offered = world.core.drops.get(DropReason::OfferUnknown);
        offered + world.core.drops.get(DropReason::UnboundAddress)
    };
    let before = shown(&world);
    world.uplink(VICTIM, INGRESS[0], &forged);
    assert_eq!(refusals(&world), 1, "nobody is known by a report");
    assert_eq!(shown(&world), before);
    world.uplink(HOME, INGRESS[0], &report);
    assert_eq!(shown(&world), before + 1);
    world.uplink(VICTIM, INGRESS[0], &report);
    assert_eq!(refusals(&world), 2, "a replay is nobody's either");
    let next = next_report(&mut world, client);
    world.uplink(HOME, INGRESS[0], &next);
    assert_eq!(shown(&world), before + 2);
    assert_eq!(world.core.sessions.load().guests, 0);
    assert_eq!(went_to(&world, VICTIM), (0, 0));
}

/// Where its media comes from, its reports are taken too.
#[test]
fn a_report_of_a_guest_reaches_its_session() {
    let (mut world, client) = call();
    world.nodes[client].nat = REBOUND;
    assert_eq!(world.talk(client, 3), 3);
    let report = next_report(&mut world, client);
    let before = shown(&world);
    world.uplink(REBOUND, INGRESS[0], &report);
    assert_eq!(shown(&world), before + 1);
}

/// Somebody else's check, with a forged source, binds the address that the client has roamed to.
#[test]
fn an_address_that_another_session_has_bound_cuts_no_call() {
    let (mut world, client) = call();
    let other = world.connect(address(3, 4000));
    world.nominate(other, REBOUND);
    world.nodes[client].nat = REBOUND;
    assert_eq!(world.talk(client, 20), 20);
    assert_eq!(world.core.drops.get(DropReason::MediaRefused), 0);
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
    let mut came = BTreeMap::<SocketAddr, (usize, usize)>::new();
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
        let ledger = came.entry(from).or_default();
        *ledger = (ledger.0 + 1, ledger.1 + sent.len());
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
