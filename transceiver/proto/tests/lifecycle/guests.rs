//! Media from an address that no check has proved: whose it is, what it may get, and when the session moves there.

use std::time::Duration;

use transceiver_proto::{Command, DropReason, LocalCredentials, Slot, Verdict};

use crate::world::{RTP, World, client, media, via};

const SSRC: u8 = 9;
/// A report of that stream's sender.
const REPORT: &[u8] = &[0x80, 200, 0, 1, 0, 0, 0, SSRC, 0, 0, 0, 0];

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
    let unknown = Verdict::Drop(DropReason::OfferUnknown);
    assert_eq!(offer(&mut world, 2, REPORT), unknown);
    for packet in [&voice(SSRC + 1)[..], RTP, &[23; 100], &[0x80]] {
        assert_eq!(offer(&mut world, 2, packet), unknown);
    }
    let unbound = Verdict::Drop(DropReason::UnboundAddress);
    for packet in [&voice(SSRC + 1)[..], REPORT] {
        assert_eq!(world.packet(packet, client(2), via(1)), unbound);
    }
    assert_eq!(
        world.packet(&voice(SSRC), client(2), via(1)),
        tried(slot),
        "from wherever it comes"
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
    for (silence, packets, moves) in [(100, 10, false), (200, 9, false), (200, 10, true)] {
        let mut world = World::new();
        let (slot, local) = call(&mut world);
        // What came before the path was last heard says nothing.
        for from in [2; 10].into_iter().chain([1]) {
            hear(&mut world, slot, from);
        }
        assert_eq!(copies(&mut world, slot, LEN, 2), 10);
        world.pass(Duration::from_millis(silence));
        for _ in 0..packets {
            hear(&mut world, slot, 2);
        }
        world.probe(&local, client(2), via(1));
        let at = world.sessions.selected(slot).map(|(client, _)| client);
        assert_eq!(at, Some(client(if moves { 2 } else { 1 })));
        let guests = u32::from(!moves);
        assert_eq!(world.sessions.load().guests, guests);
        // Copies go on until it has all.
        let owed = if moves { 0 } else { packets };
        assert_eq!(copies(&mut world, slot, LEN, 2), owed);
        world.check(&local, client(2), via(1));
        assert_eq!(world.sessions.load().guests, 0);
        assert_eq!(world.sessions.next_command(), None, "it is no stranger");
    }
}

fn released(port: u16) -> Command {
    Command::Released {
        client: client(port),
        via: via(1),
    }
}

#[test]
fn a_guest_that_falls_silent_or_whose_session_ends_is_released() {
    let mut world = World::new();
    let (slot, local) = call(&mut world);
    hear(&mut world, slot, 3);
    world.pass(Duration::from_millis(5_300));
    assert_eq!(world.sessions.next_command(), Some(released(3)));
    assert_eq!(world.sessions.load().guests, 0);
    hear(&mut world, slot, 4);
    world.probe(&local, client(4), via(1));
    hear(&mut world, slot, 5);
    world.sessions.end(slot);
    let commands: Vec<_> = std::iter::from_fn(|| world.sessions.next_command()).collect();
    assert_eq!(commands.len(), 4, "{commands:?}");
    for port in [1, 4, 5] {
        let once = commands.iter().filter(|it| **it == released(port));
        assert_eq!(once.count(), 1, "{port}");
    }
    let load = world.sessions.load();
    assert_eq!((load.guests, load.streams, load.addresses), (0, 0, 0));
}

#[test]
fn whoever_displaces_a_guest_takes_its_copies_and_nothing_else() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    for _ in 0..100 {
        hear(&mut world, slot, 2);
        assert_eq!(copies(&mut world, slot, LEN, 2), 1);
        hear(&mut world, slot, 3);
        assert_eq!(copies(&mut world, slot, LEN, 3), 1);
        assert_eq!(world.sessions.next_command(), None, "2 is in a call");
        // Its PoP passes on what comes from there.
        assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(slot));
        world.pass(Duration::from_millis(100));
    }
    assert_eq!(world.sessions.load().guests, 1);
}

#[test]
fn reports_go_where_their_address_belongs() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    hear(&mut world, slot, 2);
    assert_eq!(world.packet(REPORT, client(2), via(1)), media(slot));
    assert_eq!(offer(&mut world, 2, REPORT), media(slot));
    let (other, local) = world.create();
    world.check(&local, client(2), via(1));
    let both = Verdict::Media {
        slot: other,
        also: Some(slot),
    };
    assert_eq!(world.packet(REPORT, client(2), via(1)), both);
    let mut refuse = |packet, refused| {
        let (from, now) = (client(2), world.now);
        let sessions = &mut world.sessions;
        sessions.handle_refused(from, packet, false, refused, now)
    };
    let nobody = Err(DropReason::MediaRefused);
    assert_eq!(refuse(REPORT, [Some(other), None]), nobody);
}

/// Port reuse, or a forged source of a check that is otherwise good.
#[test]
fn an_address_bound_to_another_session_hides_no_stream() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
    let (other, local) = world.create();
    world.check(&local, client(2), via(1));
    let refuse = |world: &mut World, offered, refused| {
        let (from, now) = (client(2), world.now);
        let sessions = &mut world.sessions;
        sessions.handle_refused(from, &voice(SSRC), offered, refused, now)
    };
    let nobody = Err(DropReason::MediaRefused);
    let by_stream = Ok([Some(slot), None, None]);
    for offered in [true, false] {
        assert_eq!(offer(&mut world, 2, &voice(SSRC)), media(other));
        let refused = [Some(other), None];
        assert_eq!(refuse(&mut world, offered, refused), by_stream);
        let refused = [Some(other), Some(slot)];
        assert_eq!(refuse(&mut world, offered, refused), nobody);
    }
    // Each is a try, until it is known that its media comes from there.
    let refused = [Some(other), None];
    let tries = |world: &mut World| {
        let tries = (0..200).map(|_| refuse(world, false, refused));
        tries.filter(|verdict| *verdict == by_stream).count()
    };
    assert_eq!(tries(&mut world), 23);
    let spent = Err(DropReason::OfferRate);
    assert_eq!(refuse(&mut world, false, refused), spent);
    hear(&mut world, slot, 2);
    assert_eq!(tries(&mut world), 200);
    // The other one leaves: the guest stays, and its PoP goes on.
    world.sessions.end(other);
    assert!(world.sessions.next_command().is_some());
    assert_eq!(world.sessions.next_command(), None);
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(slot));
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
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(two));
    world.sessions.end(two);
    assert!(world.sessions.next_command().is_some());
    assert_eq!(world.sessions.next_command(), None, "one is there");
    assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(one));
}

#[test]
fn a_guest_is_tried_for_nothing_by_its_own_session_and_by_no_other() {
    let mut world = World::new();
    let (one, _) = call(&mut world);
    let (two, _) = world.create();
    let now = world.now;
    world
        .sessions
        .handle_authenticated(two, via(1), client(9), &voice(SSRC + 1), now);
    hear(&mut world, one, 2);
    for _ in 0..1000 {
        assert_eq!(world.packet(&voice(SSRC), client(2), via(1)), tried(one));
    }
    // It names a stream of somebody else's.
    let mut count = |packet: &[u8], verdict| {
        let verdicts = (0..1000).map(|_| world.packet(packet, client(2), via(1)));
        verdicts.filter(|it| *it == verdict).count()
    };
    assert_eq!(count(&voice(SSRC + 1), tried(two)), 25);
    let refused = Verdict::Drop(DropReason::OfferRate);
    assert_eq!(count(&voice(SSRC + 1), refused), 1000);
}

/// Forged packets of one caller's streams use up that caller's tries. Each session that is asked is a try.
#[test]
fn tries_are_bounded_for_each_session() {
    let mut world = World::new();
    let (one, _) = call(&mut world);
    let (two, _) = world.create();
    hear(&mut world, two, 1);
    let now = world.now;
    world
        .sessions
        .handle_authenticated(two, via(1), client(1), &voice(SSRC + 1), now);
    let mut count = |packet: &[u8], verdict| {
        let verdicts = (0..600).map(|_| offer(&mut world, 2, packet));
        verdicts.filter(|it| *it == verdict).count()
    };
    assert_eq!(count(&voice(SSRC + 1), tried(two)), 25);
    assert_eq!(count(&voice(SSRC), tried(one)), 25, "two has no try left");
    let refused = Verdict::Drop(DropReason::OfferRate);
    assert_eq!(count(&voice(SSRC), refused), 600);
}

#[test]
fn streams_of_a_session_are_bounded() {
    let mut world = World::new();
    let (slot, _) = call(&mut world);
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

/// Its place among those of the SSRC comes free when another leaves.
#[test]
fn a_fourth_session_of_a_stream_finds_a_place_later() {
    let mut world = World::new();
    let mut sessions = Vec::new();
    for port in 1..=4 {
        let (slot, local) = world.create();
        world.check(&local, client(port), via(1));
        hear(&mut world, slot, port);
        sessions.push(slot);
    }
    let (first, fourth) = (sessions[0], sessions[3]);
    let has_place = |world: &mut World| match offer(world, 9, &voice(SSRC)) {
        Verdict::Try { slots } => slots.contains(&Some(fourth)),
        Verdict::Answer { .. } | Verdict::Media { .. } | Verdict::Drop(_) => false,
    };
    world.sessions.end(first);
    hear(&mut world, fourth, 4);
    assert!(!has_place(&mut world), "not with each packet");
    world.pass(Duration::from_secs(1));
    hear(&mut world, fourth, 4);
    assert!(has_place(&mut world));
    for slot in sessions {
        world.sessions.end(slot);
    }
    assert_eq!(world.sessions.load().streams, 0);
}
