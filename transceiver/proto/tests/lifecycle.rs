//! Sessions with an invented clock: checks, paths, return paths, restart, reaping.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails loudly"
)]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use transceiver_proto::stun::{Builder, Request, nominating_request};
use transceiver_proto::{
    Command, Config, CreateError, DropReason, EndReason, Limits, LocalCredentials, ReturnPath,
    SessionPhase, Sessions, Slot, Verdict,
};
use wire::hint::{KeyId, KeyRing, Minute};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

const RTP: &[u8] = &[0x80, 111, 0, 1];
const PEER: &str = "peer";
const SEED: u64 = 0x5eed_0003;

struct World {
    sessions: Sessions,
    now: Instant,
    counter: u8,
    checks: u32,
}

impl World {
    fn new() -> Self {
        let limits = Limits {
            sessions_max: 4,
            pending_max: 3,
            pending_ttl: Duration::from_secs(15),
            vanish_after: Duration::from_secs(20),
        };
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        };
        let keys = std::sync::Arc::new(KeyRing::single(KeyId::new(1).unwrap(), [7; 16]));
        Self {
            sessions: Sessions::new(Config {
                owner,
                limits,
                keys,
                hash_seed: 3,
            }),
            now: start(),
            counter: 0,
            checks: 0,
        }
    }

    fn create(&mut self) -> (Slot, LocalCredentials) {
        self.try_create().unwrap()
    }

    fn try_create(&mut self) -> Result<(Slot, LocalCredentials), CreateError> {
        self.counter += 1;
        self.sessions
            .create(PEER, [self.counter; 27], self.now, Minute(1))
    }

    fn restart(&mut self, slot: Slot) -> LocalCredentials {
        self.counter += 1;
        self.sessions
            .restart(slot, "fresh", [self.counter; 27], self.now, Minute(1))
            .unwrap()
    }

    fn check(&mut self, local: &LocalCredentials, client: ClientAddr, via: ReturnPath) -> Verdict {
        self.check_as(local, PEER, client, via)
    }

    fn check_as(
        &mut self,
        local: &LocalCredentials,
        peer: &str,
        client: ClientAddr,
        via: ReturnPath,
    ) -> Verdict {
        let mut packet = Vec::new();
        let username = format!("{}:{peer}", local.ufrag.as_str());
        let transaction = self.transaction();
        nominating_request(
            &mut packet,
            &transaction,
            &username,
            local.password.as_bytes(),
        );
        self.packet(&packet, client, via)
    }

    /// One that no check has had.
    fn transaction(&mut self) -> [u8; 12] {
        self.checks += 1;
        let [a, b, c, d] = self.checks.to_be_bytes();
        [a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 1]
    }

    /// A good check that does not nominate.
    fn probe(&mut self, local: &LocalCredentials, client: ClientAddr, via: ReturnPath) {
        let mut packet = Vec::new();
        let username = format!("{}:{PEER}", local.ufrag.as_str());
        let transaction = self.transaction();
        Builder::new(&mut packet, 1, &transaction)
            .attribute(6, username.as_bytes())
            .finish(local.password.as_bytes());
        let verdict = self.packet(&packet, client, via);
        assert!(matches!(verdict, Verdict::Answer { .. }));
    }

    fn packet(&mut self, packet: &[u8], client: ClientAddr, via: ReturnPath) -> Verdict {
        self.sessions.handle_packet(via, client, packet, self.now)
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += Duration::from_millis(100);
            self.sessions.handle_timeout(self.now);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
fn start() -> Instant {
    Instant::now()
}

fn client(port: u16) -> ClientAddr {
    ClientAddr::new(SocketAddr::from(([198, 51, 100, 7], port)))
}

fn via(relay: u8) -> ReturnPath {
    let tag = Tag {
        pop: PopId(u16::from(relay)),
        worker: 0,
        ingress: 0,
    };
    ReturnPath {
        relay: SocketAddr::from(([127, 0, 1, relay], 7543)),
        tag,
    }
}

fn media(slot: Slot) -> Verdict {
    Verdict::Media { slot, also: None }
}

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
        .handle_authenticated(slot, via(2), client(1), world.now);
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(2))));
    world
        .sessions
        .handle_authenticated(slot, via(3), client(9), world.now);
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
        .handle_authenticated(slot, via(1), client(2), world.now);
    assert_eq!(world.sessions.selected(slot), Some((client(1), via(1))));
    world.pass(Duration::from_millis(500));
    world
        .sessions
        .handle_authenticated(slot, via(1), client(2), world.now);
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
        .handle_authenticated(slot, via(1), client(1), world.now);
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
        .handle_authenticated(second, via(1), client(1), world.now);
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
        .handle_authenticated(second, via(3), client(1), world.now);
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
