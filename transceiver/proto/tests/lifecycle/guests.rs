//! Media from an address that no check has proved: whose it is, what it may get, and when the session moves there.

use std::time::Duration;

use transceiver_proto::{Command, DropReason, LocalCredentials, Slot, Verdict};

use crate::world::{RTP, World, client, media, via};

const SSRC: u8 = 9;

/// As long as a frame of voice.
const LEN: usize = 100;

fn voice(ssrc: u8) -> Vec<u8> {
    let mut packet = vec![0x80, 111, 0, 1, 0, 0, 0, 0, 0, 0, 0, ssrc];
    packet.resize(LEN, 0);
    packet
}

/// A session in a call: a check has proved client 1, and its voice has verified.
fn call(world: &mut World) -> (Slot, LocalCredentials) {
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    hear(world, slot, 1);
    (slot, local)
}

/// A packet of the session's voice from client `from` verified.
fn hear(world: &mut World, slot: Slot, from: u16) {
    let now = world.now;
    world
        .sessions
        .handle_authenticated(slot, via(1), client(from), &voice(SSRC), now);
}

fn offer(world: &mut World, from: u16, packet: &[u8]) -> Verdict {
    world
        .sessions
        .handle_packet(via(1), client(from), packet, true, world.now)
}

fn tried(slot: Slot) -> Verdict {
    Verdict::Try {
        slots: [Some(slot), None, None],
    }
}

/// Copies of packets of this length that go to client `to` until one does not.
fn copies(world: &mut World, slot: Slot, len: usize, to: u16) -> usize {
    let sent = std::iter::from_fn(|| world.sessions.copy_to(slot, len));
    sent.inspect(|copy| assert_eq!(*copy, (client(to), via(1))))
        .count()
}

#[test]
fn an_offered_packet_of_a_known_stream_is_tried_and_no_other() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    assert_eq!(offer(&mut world, 2, &voice(SSRC)), tried(slot));
    let report = [0x80, 200, 0, 1, 0, 0, 0, SSRC, 0, 0, 0, 0];
    assert_eq!(
        offer(&mut world, 2, &report),
        tried(slot),
        "RTCP of the sender"
    );
    let unknown = Verdict::Drop(DropReason::OfferUnknown);
    for packet in [&voice(SSRC + 1)[..], RTP, &[23; 100], &[0x80]] {
        assert_eq!(offer(&mut world, 2, packet), unknown);
    }
    let unbound = Verdict::Drop(DropReason::UnboundAddress);
    assert_eq!(
        world.packet(&voice(SSRC), client(2), via(1)),
        unbound,
        "not offered"
    );
    assert_eq!(offer(&mut world, 1, &voice(SSRC)), media(slot), "bound");
    world.sessions.end(slot);
    assert_eq!(offer(&mut world, 2, &voice(SSRC)), unknown, "over");
}

#[test]
fn a_guest_gets_as_much_as_came_and_moves_nothing() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    assert_eq!(copies(&mut world, slot, 1, 2), 0);
    hear(&mut world, slot, 2);
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(slot));
    assert_eq!(copies(&mut world, slot, LEN + 1, 2), 0, "too long");
    assert_eq!(copies(&mut world, slot, LEN, 2), 1);
    assert_eq!(copies(&mut world, slot, 1, 2), 0, "spent");
    for _ in 0..200 {
        world.pass(Duration::from_millis(100));
        hear(&mut world, slot, 2);
        assert_eq!(copies(&mut world, slot, LEN / 2, 2), 1, "as many packets");
    }
    let selected = world.sessions.selected(slot);
    assert_eq!(
        selected,
        Some((client(1), via(1))),
        "for ever, without a check"
    );
    assert_eq!(world.sessions.paths(slot).count(), 1);
}

#[test]
fn a_check_from_the_guest_moves_the_call_when_its_path_fell_silent() {
    for (silence, moves) in [(100, false), (200, true)] {
        let mut world = World::new();
        let (slot, local) = call(&mut world);
        world.pass(Duration::from_millis(silence));
        hear(&mut world, slot, 2);
        world.probe(&local, client(2), via(1));
        let at = world.sessions.selected(slot).map(|(client, _)| client);
        assert_eq!(at, Some(client(if moves { 2 } else { 1 })));
        let guests = u32::from(!moves);
        assert_eq!(world.sessions.load().guests, guests);
        // Copies go on until it has all.
        assert_eq!(copies(&mut world, slot, LEN, 2), usize::from(!moves));
        world.check(&local, client(2), via(1));
        assert_eq!(world.sessions.load().guests, 0);
        assert_eq!(world.sessions.next_command(), None, "it is no stranger");
    }
}

#[test]
fn a_guest_that_falls_silent_or_gives_way_is_released() {
    let mut world = World::new();
    let (slot, local) = call(&mut world);
    let released = |port| {
        Some(Command::Released {
            client: client(port),
            via: via(1),
        })
    };
    hear(&mut world, slot, 2);
    hear(&mut world, slot, 3);
    assert_eq!(world.sessions.next_command(), released(2));
    let unbound = Verdict::Drop(DropReason::UnboundAddress);
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), unbound);
    world.pass(Duration::from_millis(5_300));
    assert_eq!(world.sessions.next_command(), released(3));
    assert_eq!(world.sessions.load().guests, 0);
    hear(&mut world, slot, 4);
    world.probe(&local, client(4), via(1));
    hear(&mut world, slot, 5);
    assert_eq!(world.sessions.next_command(), None, "4 is bound");
    world.sessions.end(slot);
    let commands: Vec<_> = std::iter::from_fn(|| world.sessions.next_command()).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for port in [1, 4, 5] {
        let once = commands
            .iter()
            .filter(|command| Some(**command) == released(port));
        assert_eq!(once.count(), 1, "{port}");
    }
    let load = world.sessions.load();
    assert_eq!((load.guests, load.streams, load.addresses), (0, 0, 0));
}

#[test]
fn sessions_that_share_an_address_or_a_stream_each_get_their_try() {
    let mut world = World::new();
    let (one, _) = call(&mut world);
    let (two, _) = world.create();
    hear(&mut world, two, 2);
    let both = Verdict::Try {
        slots: [Some(one), Some(two), None],
    };
    assert_eq!(offer(&mut world, 7, &voice(SSRC)), both);
    // Both have the same guest: neither end cuts the other off.
    hear(&mut world, one, 2);
    world.sessions.end(two);
    assert!(world.sessions.next_command().is_some());
    assert_eq!(world.sessions.next_command(), None, "one is there");
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(one));
}

#[test]
fn tries_are_bounded_and_streams_of_a_session_too() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    let refused = Verdict::Drop(DropReason::OfferRate);
    let verdicts: Vec<_> = (0..600)
        .map(|_| offer(&mut world, 2, &voice(SSRC)))
        .collect();
    assert_eq!(
        verdicts
            .iter()
            .filter(|verdict| **verdict == refused)
            .count(),
        100
    );
    world.pass(Duration::from_secs(1));
    for ssrc in 100..200 {
        let now = world.now;
        world
            .sessions
            .handle_authenticated(slot, via(1), client(1), &voice(ssrc), now);
    }
    assert_eq!(world.sessions.load().streams, 4);
    assert_eq!(offer(&mut world, 2, &voice(199)), tried(slot));
    let unknown = Verdict::Drop(DropReason::OfferUnknown);
    assert_eq!(offer(&mut world, 2, &voice(195)), unknown);
}
