//! Sessions with an invented clock: checks, restart, reaping. What moves their paths is in `paths.rs`.

#![cfg(test)]
#![expect(clippy::cast_possible_truncation, reason = "a test fails loudly")]

mod guests;
mod paths;
mod world;

use std::time::Duration;

use transceiver_proto::stun::{Builder, Request, nominating_request};
use transceiver_proto::{Command, CreateError, DropReason, EndReason, SessionPhase, Slot, Verdict};

use crate::world::{PEER, RTP, SEED, World, client, media, start, via};

#[test]
fn a_good_check_binds_connects_and_is_answered() {
    let mut world = World::new();
    let (slot, local) = world.create();
    assert_eq!(
        world.packet(RTP, client(1), via(1)),
        Verdict::Drop(DropReason::UnboundAddress)
    );
    assert_eq!(
        world.check(&local, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: true
        }
    );
    let answer = world.sessions.answer().to_vec();
    assert_eq!(answer[..2], [1, 1]);
    assert_eq!(
        world.check(&local, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: false
        }
    );
    assert_eq!(world.packet(RTP, client(1), via(1)), media(slot));
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    assert_eq!(world.sessions.load().pending, 0);
}

#[test]
fn a_bad_check_gets_nothing_and_changes_nothing() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let username = format!("{}:{PEER}", local.ufrag.as_str());
    let mut wrong = Vec::new();
    nominating_request(&mut wrong, &[1; 12], &username, b"wrong password here....");
    let mut missing = Vec::new();
    nominating_request(&mut missing, &[1; 12], &username, local.password.as_bytes());
    missing.truncate(missing.len() - 32);
    missing[3] -= 32;
    let mut unknown = Vec::new();
    nominating_request(
        &mut unknown,
        &[1; 12],
        "AAAAAAAAAAAAAAAAAAAAAAA:peer",
        local.password.as_bytes(),
    );
    let mut peer = Vec::new();
    nominating_request(
        &mut peer,
        &[1; 12],
        &format!("{}:else", local.ufrag.as_str()),
        local.password.as_bytes(),
    );
    let mut fingerprint = Vec::new();
    nominating_request(
        &mut fingerprint,
        &[1; 12],
        &username,
        local.password.as_bytes(),
    );
    *fingerprint.last_mut().unwrap() ^= 1;
    let cases = [
        (wrong, DropReason::BadIntegrity),
        (missing, DropReason::BadIntegrity),
        (unknown, DropReason::UnknownUfrag),
        (peer, DropReason::WrongPeerUfrag),
        (fingerprint, DropReason::StunMalformed),
        (
            b"\0\x01\0\0\x21\x12\xa4\x42............".to_vec(),
            DropReason::StunMalformed,
        ),
        (
            b"\x01\x01\0\0\x21\x12\xa4\x42............".to_vec(),
            DropReason::UnexpectedStun,
        ),
        (vec![0, 1, 0], DropReason::UnexpectedStun),
    ];
    for (packet, reason) in cases {
        assert_eq!(
            world.packet(&packet, client(1), via(1)),
            Verdict::Drop(reason)
        );
        assert_eq!(
            world.sessions.phase(slot),
            Some(SessionPhase::Pending),
            "{reason:?}"
        );
        assert_eq!(world.sessions.load().addresses, 0);
    }
}

#[test]
fn a_bad_check_does_not_keep_a_session_alive() {
    let mut world = World::new();
    let (slot, local) = world.create();
    world.check(&local, client(1), via(1));
    let mut wrong = Vec::new();
    nominating_request(
        &mut wrong,
        &[1; 12],
        &format!("{}:{PEER}", local.ufrag.as_str()),
        b"wrong",
    );
    for _ in 0..25 {
        world.pass(Duration::from_secs(1));
        world.packet(&wrong, client(1), via(1));
    }
    assert_eq!(
        world.sessions.next_command(),
        Some(Command::Ended {
            slot,
            reason: EndReason::Vanished
        })
    );
}

#[test]
fn role_conflict_and_unknown_attributes_are_answered_only_when_authentic() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let username = format!("{}:{PEER}", local.ufrag.as_str());
    for (kind, code) in [(0x8029, (4, 87)), (0x7abc, (4, 20))] {
        for (password, answered) in [(local.password.as_bytes(), true), (b"wrong", false)] {
            let mut packet = Vec::new();
            Builder::new(&mut packet, 1, &[1; 12])
                .attribute(6, username.as_bytes())
                .attribute(kind, &[0; 8])
                .finish(password);
            let verdict = world.packet(&packet, client(1), via(1));
            if answered {
                assert_eq!(
                    verdict,
                    Verdict::Answer {
                        slot,
                        connected: false
                    }
                );
                let answer = world.sessions.answer();
                assert_eq!(
                    (answer[0], answer[1], answer[26], answer[27]),
                    (1, 0x11, code.0, code.1)
                );
            } else {
                assert_eq!(verdict, Verdict::Drop(DropReason::BadIntegrity));
            }
        }
    }
    assert_eq!(world.sessions.phase(slot), Some(SessionPhase::Pending));
}

#[test]
fn a_check_of_1472_bytes_is_answered() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let username = format!("{}:{PEER}", local.ufrag.as_str());
    let mut packet = Vec::new();
    let fill = 1472 - 20 - 4 - username.len().next_multiple_of(4) - 4 - 24 - 8;
    Builder::new(&mut packet, 1, &[1; 12])
        .attribute(6, username.as_bytes())
        .attribute(0xc070, &vec![5; fill])
        .finish(local.password.as_bytes());
    assert_eq!(packet.len(), 1472);
    assert_eq!(
        world.packet(&packet, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: false
        }
    );
}

#[test]
fn ice_restart_keeps_the_former_credentials_until_the_new_ones_are_used() {
    let mut world = World::new();
    let (slot, old) = world.create();
    world.check(&old, client(1), via(1));
    let new = world.restart(slot);
    assert_ne!(old, new);
    assert_eq!(
        world.check(&old, client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: false
        }
    );
    assert_eq!(
        world.check_as(&new, "fresh", client(1), via(1)),
        Verdict::Answer {
            slot,
            connected: false
        }
    );
    assert_eq!(
        world.check(&old, client(1), via(1)),
        Verdict::Drop(DropReason::UnknownUfrag)
    );
}

#[test]
fn ice_restart_that_is_never_used_ends_the_former_credentials_after_thirty_seconds() {
    let mut world = World::new();
    let (slot, old) = world.create();
    world.check(&old, client(1), via(1));
    world.restart(slot);
    for _ in 0..29 {
        world.pass(Duration::from_secs(1));
        assert_eq!(
            world.check(&old, client(1), via(1)),
            Verdict::Answer {
                slot,
                connected: false
            }
        );
    }
    world.pass(Duration::from_secs(2));
    assert_eq!(
        world.check(&old, client(1), via(1)),
        Verdict::Drop(DropReason::UnknownUfrag)
    );
}

#[test]
fn pending_and_vanished_sessions_are_reaped() {
    let mut world = World::new();
    let (first, _) = world.create();
    let (second, local) = world.create();
    world.check(&local, client(1), via(1));
    world.pass(Duration::from_millis(15_500));
    assert_eq!(
        world.sessions.next_command(),
        Some(Command::Ended {
            slot: first,
            reason: EndReason::NeverCame
        })
    );
    world
        .sessions
        .handle_authenticated(second, via(1), client(1), RTP, world.now);
    world.pass(Duration::from_secs(19));
    assert_eq!(world.sessions.next_command(), None);
    world.pass(Duration::from_secs(2));
    assert_eq!(
        world.sessions.next_command(),
        Some(Command::Ended {
            slot: second,
            reason: EndReason::Vanished
        })
    );
    assert_eq!(world.sessions.load(), transceiver_proto::Load::default());
    assert_eq!(world.sessions.poll_timeout(), None);
}

#[test]
fn sessions_are_bounded() {
    let mut world = World::new();
    for _ in 0..3 {
        world.create();
    }
    assert_eq!(world.try_create().unwrap_err(), CreateError::Pending);
    let (_, local) = {
        world.sessions.end(Slot(0));
        world.create()
    };
    world.check(&local, client(1), via(1));
    world.create();
    assert_eq!(world.try_create().unwrap_err(), CreateError::Full);
}

#[test]
fn corpus_and_seeded_scripts() {
    let start = start();
    let corpora = concat!(env!("CARGO_MANIFEST_DIR"), "/corpora/");
    for entry in std::fs::read_dir(format!("{corpora}request")).unwrap() {
        transceiver_proto::fuzz::request(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    for entry in std::fs::read_dir(format!("{corpora}dtls")).unwrap() {
        transceiver_proto::fuzz::dtls(&std::fs::read(entry.unwrap().path()).unwrap());
    }
    for entry in std::fs::read_dir(format!("{corpora}sessions")).unwrap() {
        transceiver_proto::fuzz::sessions(start, &std::fs::read(entry.unwrap().path()).unwrap());
    }
    println!("seed {SEED:#x}");
    let mut state = SEED;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    for _ in 0..300 {
        let script: Vec<u8> = (0..800).map(|_| next()).collect();
        transceiver_proto::fuzz::dtls(&script);
        transceiver_proto::fuzz::sessions(start, &script);
    }
    let mut good = Vec::new();
    nominating_request(&mut good, &[1; 12], "left:right", b"password");
    assert!(Request::parse(&good).is_ok());
    for _ in 0..50_000 {
        let mut bytes = good.clone();
        for _ in 0..1 + next() % 4 {
            let at = usize::from(next()) % bytes.len();
            bytes[at] = next();
        }
        transceiver_proto::fuzz::request(&bytes);
    }
}

#[test]
fn a_session_without_a_handshake_ends() {
    let mut world = World::new();
    let (slot, local) = world.create();
    let (talks, other) = world.create();
    world.sessions.handle_media_up(talks);
    for _ in 0..50 {
        world.check(&local, client(1), via(1));
        world.check(&other, client(2), via(1));
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(
        world.sessions.next_command(),
        Some(Command::Ended {
            slot,
            reason: EndReason::NoHandshake
        })
    );
    let released = Command::Released {
        client: client(1),
        via: via(1),
    };
    assert_eq!(world.sessions.next_command(), Some(released));
    assert_eq!(world.sessions.next_command(), None);
}
