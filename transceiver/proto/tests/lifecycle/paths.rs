//! Client addresses of a session: which are kept, which one media leaves by, and the way back to each.

use std::net::SocketAddr;
use std::time::Duration;

use transceiver_proto::stun::nominating_request;
use transceiver_proto::{Command, DropReason, EndReason, ReturnPath, SessionPhase, Verdict};

use crate::world::{PEER, RTP, World, client, media, via};

#[test]
fn a_nominating_check_from_another_address_moves_the_session() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    assert_eq!(
        world.check(&local, client(2), via(2)),
        Verdict::Answer {
            slot,
            connected: false
        }
    );
    assert_eq!(world.sessions.selected(slot), Some((client(2), via(2))));
    assert_eq!(
        world.packet(RTP, client(1), via(1)),
        media(slot),
        "the former path is still bound"
    );
}

#[test]
fn only_authenticated_packets_move_the_return_path() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    world.packet(RTP, client(1), via(2));
    assert_eq!(
        world.sessions.selected(slot),
        Some((client(1), via(1))),
        "nobody vouched for it yet"
    );
    world
        .sessions
        .handle_authenticated(slot, via(2), client(1), RTP, world.now);
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(2))));
    world
        .sessions
        .handle_authenticated(slot, via(3), client(9), RTP, world.now);
    assert_eq!(
        world.sessions.selected(slot),
        Some((client(1), via(2))),
        "an address that is not bound"
    );
}

#[test]
fn a_check_without_nomination_moves_nothing_that_works() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    // The client probes another PoP from the same address, and another of its addresses.
    world.probe(&local, client(1), via(2));
    world.probe(&local, client(2), via(2));
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    // A relay of the same PoP takes over: any authenticated packet says so.
    let other_relay = ReturnPath {
        relay: SocketAddr::from(([127, 0, 1, 9], 7543)),
        ..via(1)
    };
    world.probe(&local, client(1), other_relay);
    assert_eq!(
        world.sessions.selected(slot),
        Some((client(1), other_relay))
    );
}

#[test]
fn a_way_back_that_fell_silent_follows_the_next_check() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    world.pass(Duration::from_secs(3));
    world.probe(&local, client(1), via(2));
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    world.pass(Duration::from_secs(2));
    world.probe(&local, client(1), via(2));
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(2))));
}

#[test]
fn a_client_that_never_nominates_again_is_followed_after_a_rebind() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    world.pass(Duration::from_millis(500));
    world.probe(&local, client(2), via(1));
    // Media from a path that is not selected, while the selected one was heard a moment ago: may be late packets.
    world
        .sessions
        .handle_authenticated(slot, via(1), client(2), RTP, world.now);
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    world.pass(Duration::from_millis(500));
    world
        .sessions
        .handle_authenticated(slot, via(1), client(2), RTP, world.now);
    assert_eq!(world.sessions.selected(slot), Some((client(2), via(1))));
    // Without media, checks alone do it after a longer silence.
    world.pass(Duration::from_secs(5));
    world.probe(&local, client(3), via(1));
    assert_eq!(world.sessions.selected(slot), Some((client(3), via(1))));
}

#[test]
fn before_nomination_no_path_is_selected() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.probe(&local, client(1), via(1));
    world.pass(Duration::from_secs(6));
    world.probe(&local, client(1), via(1));
    world
        .sessions
        .handle_authenticated(slot, via(1), client(1), RTP, world.now);
    assert_eq!(world.sessions.selected(slot), None);
    assert_eq!(world.sessions.phase(slot), Some(SessionPhase::Bound));
}

#[test]
fn a_spoofed_check_cannot_take_an_address_away() {
    let mut world = World::new();
    let (victim, local) = world.create();
    world.check(&local, client(1), via(1));
    let (attacker, other) = world.create();
    world.check(&other, client(1), via(1));
    assert_eq!(
        world.packet(RTP, client(1), via(1)),
        Verdict::Media {
            slot: victim,
            also: Some(attacker)
        }
    );
    world.sessions.end(victim);
    assert_eq!(
        world.packet(RTP, client(1), via(1)),
        media(attacker),
        "port reuse"
    );
    world.sessions.end(attacker);
    assert_eq!(world.sessions.load().addresses, 0);
}

#[test]
fn paths_are_bounded_and_the_selected_one_stays() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    for port in 2..200 {
        if port % 6 == 0 {
            world.pass(Duration::from_millis(100));
        }
        world.probe(&local, client(port), via(1));
    }
    assert_eq!(world.sessions.paths(slot).count(), 8);
    assert_eq!(world.sessions.load().addresses, 8);
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
}

/// Its PoP would keep the flow, and the flow cache its entry, until the client falls silent there.
#[test]
fn an_address_that_gives_way_to_a_ninth_is_released() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let (_, other) = world.create();
    world.check(&other, client(3), via(1));
    for port in 1..=8 {
        world.check(&local, client(port), via(port as u8));
        world.pass(Duration::from_millis(100));
    }
    assert_eq!(world.sessions.next_command(), None);
    let released = |port| Command::Released {
        client: client(port),
        via: via(port as u8),
    };
    for (port, oldest) in [(9, Some(1)), (10, Some(2)), (11, None), (12, Some(4))] {
        world.check(&local, client(port), via(1));
        world.pass(Duration::from_millis(100));
        let command = world.sessions.next_command();
        assert_eq!(command, oldest.map(released), "another session is at 3");
    }
    assert_eq!(world.sessions.paths(slot).count(), 8);
}

#[test]
fn a_replayed_check_from_another_address_moves_nothing() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let mut packet = Vec::new();
    let username = format!("{}:{PEER}", local.ufrag.as_str());
    nominating_request(&mut packet, &[9; 12], &username, local.password.as_bytes());
    assert_eq!(
        world.packet(&packet, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: true
        }
    );
    assert_eq!(
        world.packet(&packet, client(2), via(2)),
        Verdict::Drop(DropReason::ReplayedCheck)
    );
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    assert_eq!(
        world.packet(&packet, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: false
        },
        "a retransmission is answered (RFC 8489 §6.2.1)"
    );
}

#[test]
fn an_ended_session_releases_each_address_once_nobody_is_there() {
    let mut world = World::new();
    let (first, one) = world.create();
    let (second, two) = world.create();
    world.check(&one, client(1), via(1));
    world.check(&one, client(2), via(2));
    world.check(&two, client(1), via(1));
    let ended = |slot| Command::Ended {
        slot,
        reason: EndReason::Asked,
    };
    let released = |address, relay| Command::Released {
        client: client(address),
        via: via(relay),
    };
    let commands = |world: &mut World| -> Vec<_> {
        std::iter::from_fn(|| world.sessions.next_command()).collect()
    };
    world.sessions.end(first);
    assert_eq!(commands(&mut world), [ended(first), released(2, 2)]);
    world
        .sessions
        .handle_authenticated(second, via(3), client(1), RTP, world.now);
    world.sessions.end(second);
    assert_eq!(commands(&mut world), [ended(second), released(1, 3)]);
}

#[test]
fn a_third_claimant_does_not_displace_a_second_that_is_heard() {
    let mut world = World::new();
    let (first, one) = world.create();
    let (second, two) = world.create();
    world.check(&one, client(1), via(1));
    world.check(&two, client(1), via(1));
    let (third, three) = world.create();
    world.check(&three, client(1), via(1));
    let both = |also| Verdict::Media {
        slot: first,
        also: Some(also),
    };
    assert_eq!(world.packet(RTP, client(1), via(1)), both(second));
    world.pass(Duration::from_secs(6));
    world.check(&three, client(1), via(1));
    assert_eq!(world.packet(RTP, client(1), via(1)), both(third));
}
