//! The flow rules, one test each, with an invented clock.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "a test fails loudly"
)]

#[path = "support/flows.rs"]
mod support;

use std::time::Duration;

use pop_proto::fuzz::binding_request;
use pop_proto::{Downlink, DropReason, Flows, FlowsConfig, Now, Routes, Source, Uplink};
use wire::hint::{Hint, KeyId, KeyRing, Minute};
use wire::record::{HOPS_MAX, RecordHeader};
use wire::{ClientAddr, Owner};

use crate::support::{A, B, DTLS, MINUTE, RTP, client, dropped, owner, record, routes, start, to};

const KEY: [u8; 16] = [7; 16];

const C: Owner = owner(2, 1);

struct World {
    flows: Flows,
    routes: Routes,
    now: Now,
    random: u8,
}

impl World {
    fn new(flows_max: u32) -> Self {
        let instant = start();
        Self {
            flows: Flows::new(
                FlowsConfig {
                    flows_max,
                    hash_seed: 42,
                    recovery: None,
                },
                instant,
            ),
            routes: routes(KeyRing::single(key_id(1), KEY)),
            now: Now {
                instant,
                minute: MINUTE,
            },
            random: 0,
        }
    }

    fn ufrag(&mut self, owner: Owner, issued: Minute) -> Vec<u8> {
        self.random = self.random.wrapping_add(1);
        KeyRing::single(key_id(1), KEY)
            .seal(Hint { owner, issued }, [self.random; 3])
            .as_bytes()
            .to_vec()
    }

    fn check(&mut self, from: ClientAddr, owner: Owner) -> Uplink {
        let ufrag = self.ufrag(owner, MINUTE);
        self.up(from, &binding_request(&ufrag))
    }

    fn up(&mut self, client: ClientAddr, packet: &[u8]) -> Uplink {
        let from = Source { client, ingress: 0 };
        self.flows
            .handle_uplink(&self.routes, from, packet, self.now)
    }

    fn down(&mut self, owner: Owner, to: ClientAddr, payload: &[u8]) -> Downlink {
        self.flows
            .handle_downlink(&record(owner, to), payload, self.now)
    }

    fn end(&mut self, owner: Owner, client: ClientAddr) {
        self.flows.handle_end(&record(owner, client), self.now);
    }

    fn commit(&mut self, client: ClientAddr, owner: Owner) {
        assert_eq!(self.check(client, owner), to(owner));
        assert_eq!(self.down(owner, client, &success()), Downlink::Deliver);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while self.now.instant < end {
            self.now.instant += Duration::from_millis(20).min(end - self.now.instant);
            self.flows.handle_timeout(self.now);
        }
    }
}

fn key_id(id: u8) -> KeyId {
    KeyId::new(id).unwrap()
}

fn success() -> Vec<u8> {
    let mut packet = binding_request(b"abcd");
    packet[0] = 1;
    packet[1] = 1;
    packet
}

fn error_response() -> Vec<u8> {
    let mut packet = success();
    packet[1] = 0x11;
    packet
}

#[test]
fn rule_1_a_bad_hint_makes_no_state() {
    let mut world = World::new(8);
    let other_key = KeyRing::single(key_id(1), [8; 16]).seal(
        Hint {
            owner: A,
            issued: MINUTE,
        },
        [1; 3],
    );
    let other_id = KeyRing::single(key_id(2), KEY).seal(
        Hint {
            owner: A,
            issued: MINUTE,
        },
        [1; 3],
    );
    let cases: [(Vec<u8>, DropReason); 9] = [
        (b"short".to_vec(), DropReason::HintMalformed),
        (
            b"-----------------------".to_vec(),
            DropReason::HintMalformed,
        ),
        (other_key.as_bytes().to_vec(), DropReason::HintForged),
        (other_id.as_bytes().to_vec(), DropReason::HintUnknownKey),
        (world.ufrag(owner(9, 1), MINUTE), DropReason::UnknownRegion),
        (world.ufrag(owner(1, 256), MINUTE), DropReason::OutsideCidr),
        (world.ufrag(owner(1, 255), MINUTE), DropReason::OutsideCidr),
        (
            world.ufrag(A, Minute(MINUTE.0 - 1451)),
            DropReason::HintExpired,
        ),
        (
            world.ufrag(A, Minute(MINUTE.0 + 11)),
            DropReason::HintExpired,
        ),
    ];
    for (ufrag, reason) in cases {
        assert_eq!(
            world.up(client(1), &binding_request(&ufrag)),
            dropped(reason)
        );
        assert_eq!(world.flows.stats().flows, 0, "{reason:?}");
    }
}

#[test]
fn rule_1_clock_skew_of_ten_minutes_is_harmless() {
    for issued in [MINUTE.0 + 10, MINUTE.0 - 1450] {
        let mut world = World::new(8);
        let ufrag = world.ufrag(A, Minute(issued));
        assert_eq!(world.up(client(1), &binding_request(&ufrag)), to(A));
    }
}

#[test]
fn rule_1_a_bare_request_is_dropped_even_on_a_committed_flow() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    let mut bare = binding_request(b"x");
    bare.truncate(20);
    bare[2] = 0;
    bare[3] = 0;
    assert_eq!(
        world.up(client(1), &bare),
        dropped(DropReason::StunNoUsername)
    );
    assert_eq!(
        world.up(client(2), &bare),
        dropped(DropReason::StunNoUsername)
    );
}

#[test]
fn age_gates_only_new_flows() {
    let mut world = World::new(8);
    let ufrag = world.ufrag(A, MINUTE);
    assert_eq!(world.up(client(1), &binding_request(&ufrag)), to(A));
    world.down(A, client(1), &success());
    world.now.minute = Minute(MINUTE.0 + 2000);
    assert_eq!(
        world.up(client(1), &binding_request(&ufrag)),
        to(A),
        "a live flow"
    );
    assert_eq!(
        world.up(client(2), &binding_request(&ufrag)),
        dropped(DropReason::HintExpired)
    );
}

#[test]
fn rules_2_and_3_a_flow_commits_when_its_owner_answers() {
    let mut world = World::new(8);
    assert_eq!(world.up(client(1), DTLS), dropped(DropReason::NoFlow));
    assert_eq!(world.check(client(1), A), to(A));
    assert_eq!(world.up(client(1), DTLS), dropped(DropReason::NotCommitted));
    assert_eq!(
        world.down(A, client(1), &error_response()),
        Downlink::Deliver
    );
    assert_eq!(
        world.up(client(1), DTLS),
        dropped(DropReason::NotCommitted),
        "an error response proves nothing"
    );
    assert_eq!(world.down(A, client(1), &success()), Downlink::Deliver);
    for packet in [DTLS, RTP, &[64, 1][..], &[2, 2, 2]] {
        assert_eq!(world.up(client(1), packet), to(A), "opaque");
    }
    assert_eq!(
        world.up(client(2), RTP),
        dropped(DropReason::NoFlow),
        "another port is another client"
    );
}

#[test]
fn rule_2_a_tentative_flow_ends_unanswered() {
    let mut world = World::new(8);
    world.check(client(1), A);
    world.pass(Duration::from_secs(6));
    assert_eq!(world.flows.stats().flows, 0);
    assert_eq!(
        world.flows.poll_timeout(),
        None,
        "an empty table needs no timer"
    );
}

#[test]
fn a_committed_flow_outlives_silence_between_consent_checks() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.pass(Duration::from_secs(59));
    assert_eq!(world.up(client(1), RTP), to(A));
    world.pass(Duration::from_secs(62));
    assert_eq!(world.flows.stats().flows, 0);
    assert_eq!(world.flows.stats().expired, 1);
}

#[test]
fn rule_4_a_spoofed_check_cannot_cut_a_call() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    assert_eq!(world.check(client(1), B), to(B), "routed by its own hint");
    assert_eq!(world.up(client(1), RTP), to(A), "B has not answered");
}

#[test]
fn rule_4_two_owners_get_copies_until_one_goes_idle() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.commit(client(1), B);
    assert_eq!(
        world.up(client(1), RTP),
        Uplink::Forward {
            owner: A,
            also: Some(B)
        }
    );
    for _ in 0..11 {
        world.pass(Duration::from_secs(1));
        world.down(B, client(1), RTP);
    }
    assert_eq!(world.up(client(1), RTP), to(B), "A went idle: port reuse");
}

#[test]
fn rule_4_the_newcomer_that_goes_idle_leaves() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.commit(client(1), C);
    for _ in 0..11 {
        world.pass(Duration::from_secs(1));
        world.down(A, client(1), RTP);
    }
    assert_eq!(world.up(client(1), RTP), to(A));
}

#[test]
fn rule_4_sharing_is_bounded_in_time() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.commit(client(1), B);
    for second in 0..59 {
        world.pass(Duration::from_secs(1));
        world.down(A, client(1), RTP);
        world.down(B, client(1), &success());
        let expected = if second < 30 { Some(B) } else { None };
        assert_eq!(
            world.up(client(1), RTP),
            Uplink::Forward {
                owner: A,
                also: expected
            },
            "second {second}"
        );
    }
}

#[test]
fn rule_5_a_full_table_refuses_new_flows_and_keeps_committed_ones() {
    let mut world = World::new(8);
    for port in 1..=8 {
        world.commit(client(port), A);
    }
    assert_eq!(world.check(client(9), A), dropped(DropReason::TableFull));
    for port in 1..=8 {
        assert_eq!(world.up(client(port), RTP), to(A));
    }
}

#[test]
fn rule_5_a_tentative_flood_leaves_room() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    assert_eq!(world.check(client(2), A), to(A));
    assert_eq!(world.check(client(3), A), to(A));
    assert_eq!(
        world.check(client(4), A),
        dropped(DropReason::TentativeFull)
    );
    assert_eq!(world.up(client(1), RTP), to(A));
    world.pass(Duration::from_secs(6));
    assert_eq!(world.check(client(4), A), to(A), "the flood ended");
}

#[test]
fn rule_5_one_hint_from_many_sources_leaves_room_for_other_hints() {
    let mut world = World::new(4096);
    let known = world.ufrag(A, MINUTE);
    let spoofed = binding_request(&known);
    for port in 1..=16 {
        assert_eq!(world.up(client(port), &spoofed), to(A));
    }
    for port in 17..=2000 {
        let verdict = world.up(client(port), &spoofed);
        assert_eq!(verdict, dropped(DropReason::TentativeHint));
    }
    assert_eq!(world.flows.stats().tentative, 16);
    assert_eq!(world.check(client(3000), A), to(A), "another session");
    // One that is answered gives its place to the next address of the same client.
    world.down(A, client(1), &success());
    assert_eq!(world.up(client(17), &spoofed), to(A));
    world.end(A, client(2));
    assert_eq!(world.up(client(18), &spoofed), to(A));
    let verdict = world.up(client(19), &spoofed);
    assert_eq!(verdict, dropped(DropReason::TentativeHint));
    world.pass(Duration::from_secs(6));
    assert_eq!(world.flows.stats().tentative, 0);
    assert_eq!(world.up(client(19), &spoofed), to(A), "the flood ended");
    assert_eq!(world.up(client(1), RTP), to(A), "committed");
}

#[test]
fn rule_5_a_table_full_of_tentative_flows_is_not_full_for_those_an_owner_answers() {
    let mut world = World::new(64);
    for port in 1..=16 {
        assert_eq!(world.check(client(port), A), to(A));
    }
    let refused = world.check(client(17), A);
    assert_eq!(refused, dropped(DropReason::TentativeFull));
    for port in 1..=16 {
        world.down(A, client(port), &success());
    }
    for port in 17..=64 {
        world.commit(client(port), A);
    }
    assert_eq!(world.check(client(65), A), dropped(DropReason::TableFull));
    assert_eq!(world.flows.stats().flows, 64);
    world.down(A, client(65), RTP);
    assert_eq!(world.flows.stats().unlearned, 1, "and delivered");
}

#[test]
fn rule_7_own_and_impossible_sources_make_no_flow() {
    let mut world = World::new(8);
    let cases = [
        ("127.0.31.1:3478", DropReason::OwnAddress),
        ("127.0.1.1:9", DropReason::OwnAddress),
        ("127.0.11.2:5000", DropReason::OwnAddress),
        ("198.51.100.7:0", DropReason::BadSource),
        ("0.0.0.0:4000", DropReason::BadSource),
        ("224.0.0.1:4000", DropReason::BadSource),
        ("255.255.255.255:4000", DropReason::BadSource),
        ("[ff02::1]:4000", DropReason::BadSource),
    ];
    for (source, reason) in cases {
        let source = ClientAddr::new(source.parse().unwrap());
        assert_eq!(world.check(source, A), dropped(reason), "{source:?}");
        assert_eq!(world.flows.stats().flows, 0);
    }
    assert_eq!(
        world.check(ClientAddr::new("127.0.31.1:50000".parse().unwrap()), A),
        to(A),
        "a client on a PoP's machine"
    );
}

#[test]
fn rule_7_hops_are_bounded() {
    let mut world = World::new(8);
    let with_hops = |hops| RecordHeader {
        hops,
        ..record(A, client(1))
    };
    let at_limit = with_hops(HOPS_MAX);
    assert_eq!(
        world.flows.handle_downlink(&at_limit, RTP, world.now),
        Downlink::Deliver
    );
    let over = with_hops(HOPS_MAX + 1);
    assert_eq!(
        world.flows.handle_downlink(&over, RTP, world.now),
        Downlink::Drop(DropReason::HopLimit)
    );
}

#[test]
fn rule_8_mapped_addresses_are_the_same_client() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    let mapped = ClientAddr::new("[::ffff:198.51.100.7]:1".parse().unwrap());
    assert_eq!(world.up(mapped, RTP), to(A));
}

#[test]
fn a_restarted_pop_learns_a_flow_from_downlink() {
    let mut world = World::new(8);
    assert_eq!(
        world.down(A, client(1), &error_response()),
        Downlink::Deliver
    );
    assert_eq!(world.flows.stats().flows, 0);
    assert_eq!(world.down(A, client(1), RTP), Downlink::Deliver);
    assert_eq!(world.up(client(1), RTP), to(A));
    assert_eq!(world.flows.stats().learned, 1);
}

#[test]
fn an_end_record_of_the_owner_ends_the_flow() {
    let mut world = World::new(16);
    world.commit(client(1), A);
    world.end(B, client(1));
    assert_eq!(world.up(client(1), RTP), to(A), "not from another owner");
    world.end(A, client(1));
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Ended));
    world.down(A, client(1), RTP);
    assert_eq!(
        world.up(client(1), RTP),
        dropped(DropReason::Ended),
        "what was under way does not bring it back"
    );
    world.end(A, client(1));
    let stats = world.flows.stats();
    assert_eq!((stats.flows, stats.ended, stats.expired), (0, 1, 0));
    assert_eq!(world.check(client(2), A), to(A));
    world.end(A, client(2));
    assert_eq!(world.flows.stats().tentative, 0);
    world.commit(client(2), A);
}

/// The next session's first check is under way to the owner while the end of the former one comes down.
#[test]
fn an_end_record_that_races_another_session_of_the_same_client_costs_nothing() {
    let mut world = World::new(16);
    let first = world.ufrag(A, MINUTE);
    let next = world.ufrag(A, MINUTE);
    world.up(client(1), &binding_request(&first));
    world.down(A, client(1), &success());
    world.up(client(1), &binding_request(&next));
    world.end(A, client(1));
    world.down(A, client(1), RTP);
    let over = dropped(DropReason::Ended);
    assert_eq!(world.up(client(1), RTP), over, "of the former session");
    world.down(A, client(1), &success());
    assert_eq!(world.up(client(1), RTP), to(A), "without another check");
    world.end(A, client(1));
    world.down(A, client(1), &success());
    assert_eq!(world.up(client(1), RTP), over, "both are over");
    // The same when the former session's flow was elsewhere.
    world.up(client(2), &binding_request(&next));
    world.end(A, client(2));
    world.down(A, client(2), &success());
    assert_eq!(world.up(client(2), RTP), to(A));
}

#[test]
fn an_answer_under_way_when_its_session_ends_brings_nothing_back() {
    let mut world = World::new(16);
    let (first, restarted) = (world.ufrag(A, MINUTE), world.ufrag(A, MINUTE));
    for ufrag in [&first, &first, &restarted, &restarted] {
        world.up(client(1), &binding_request(ufrag));
        world.down(A, client(1), &success());
    }
    world.end(A, client(1));
    world.down(A, client(1), &success());
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Ended));
}

#[test]
fn an_end_record_leaves_a_shared_address_to_the_other_owner() {
    for (ends, stays) in [(A, B), (B, A)] {
        let mut world = World::new(16);
        world.commit(client(1), A);
        world.commit(client(1), B);
        let both = Uplink::Forward {
            owner: A,
            also: Some(B),
        };
        assert_eq!(world.up(client(1), RTP), both);
        world.end(ends, client(1));
        assert_eq!(world.up(client(1), RTP), to(stays));
        world.end(stays, client(1));
        assert_eq!(world.up(client(1), RTP), dropped(DropReason::Ended));
        world.pass(Duration::from_secs(6));
        assert_eq!(world.up(client(1), RTP), dropped(DropReason::NoFlow));
    }
}

#[test]
fn downlink_passes_when_the_table_is_full() {
    let mut world = World::new(1);
    world.down(A, client(1), RTP);
    assert_eq!(world.down(A, client(2), RTP), Downlink::Deliver);
    assert_eq!(world.flows.stats().flows, 1);
}

#[test]
fn a_draining_pop_serves_what_it_has() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.flows.drain();
    assert_eq!(world.check(client(2), A), dropped(DropReason::Draining));
    assert_eq!(world.check(client(1), A), to(A));
    assert_eq!(world.up(client(1), RTP), to(A));
}

#[test]
fn sizes() {
    let mut world = World::new(8);
    assert_eq!(world.up(client(1), &[]), dropped(DropReason::Empty));
    assert_eq!(
        world.up(client(1), &[0x80; 1473]),
        dropped(DropReason::TooLong)
    );
    world.commit(client(1), A);
    for len in [1, 2, 1471, 1472] {
        assert_eq!(world.up(client(1), &vec![0x80; len]), to(A));
    }
}

#[test]
fn looks_like_stun_but_is_not() {
    let mut world = World::new(8);
    assert_eq!(
        world.up(client(1), &[0, 1, 0, 0]),
        dropped(DropReason::StunMalformed)
    );
    world.commit(client(1), A);
    assert_eq!(
        world.up(client(1), &[0, 1, 0, 0]),
        to(A),
        "opaque on a committed flow"
    );
}

#[test]
fn rotation_of_keys_loses_no_flow() {
    let mut world = World::new(8);
    let ufrag = world.ufrag(A, MINUTE);
    let request = binding_request(&ufrag);
    assert_eq!(world.up(client(1), &request), to(A));
    world.down(A, client(1), &success());
    let ring =
        "previous 1 07070707070707070707070707070707\ncurrent 2 08080808080808080808080808080808\n";
    world.routes = routes(KeyRing::parse(ring).unwrap());
    assert_eq!(world.up(client(1), &request), to(A));
    assert_eq!(
        world.up(client(2), &request),
        to(A),
        "the previous key still makes flows"
    );
}

#[test]
fn a_session_that_outlives_its_key_goes_on() {
    let mut world = World::new(8);
    let ufrag = world.ufrag(A, MINUTE);
    let request = binding_request(&ufrag);
    assert_eq!(world.up(client(1), &request), to(A));
    world.down(A, client(1), &success());
    assert_eq!(world.up(client(2), &request), to(A));
    let ring = "current 9 09090909090909090909090909090909\n";
    world.routes = routes(KeyRing::parse(ring).unwrap());
    assert_eq!(world.up(client(1), &request), to(A), "committed");
    for other in [client(2), client(3)] {
        let verdict = world.up(other, &request);
        assert_eq!(verdict, dropped(DropReason::HintUnknownKey));
    }
}

#[test]
fn rule_4_a_barred_owner_takes_over_when_the_older_one_falls_silent() {
    let mut world = World::new(8);
    world.commit(client(1), A);
    world.commit(client(1), B);
    for _ in 0..31 {
        world.pass(Duration::from_secs(1));
        world.down(A, client(1), RTP);
        world.down(B, client(1), &success());
        world.up(client(1), RTP);
    }
    assert_eq!(world.up(client(1), RTP), to(A), "barred");
    for _ in 0..11 {
        world.pass(Duration::from_secs(1));
        world.down(B, client(1), &success());
    }
    assert_eq!(world.up(client(1), RTP), to(B));
}

#[test]
fn random_ufrags_never_pass_and_make_no_flow() {
    let mut world = World::new(1024);
    let good = world.ufrag(A, MINUTE);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut request = binding_request(&good);
    for round in 0..200_000u32 {
        request[24..47].copy_from_slice(&good);
        if round % 2 == 0 {
            let bit = next() as usize % (23 * 8);
            request[24 + bit / 8] ^= 1 << (bit % 8);
        } else {
            let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            request[24..47]
                .iter_mut()
                .for_each(|c| *c = alphabet[next() as usize % 64]);
        }
        let from = client((round % 60_000) as u16 + 1);
        assert!(
            matches!(world.up(from, &request), Uplink::Drop(_)),
            "round {round}"
        );
    }
    assert_eq!(world.flows.stats(), pop_proto::Stats::default());
}
