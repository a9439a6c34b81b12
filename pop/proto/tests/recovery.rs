//! Recovery through a flow cache: what is held, asked, stored and forgotten, with an invented clock.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/flows.rs"]
mod support;

use std::time::Duration;

use pop_proto::fuzz::binding_request;
use pop_proto::{
    Answer, Command, Downlink, DropReason, Flows, FlowsConfig, Now, RecoveryConfig, Routes, Source,
    Uplink,
};
use wire::hint::{Hint, KeyId, KeyRing};
use wire::{ClientAddr, Owner};

use crate::support::{A, B, DTLS, MINUTE, RTP, client, dropped, owner, record, routes, start, to};

const TTL: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

struct World {
    flows: Flows,
    routes: Routes,
    ring: KeyRing,
    now: Now,
}

impl World {
    fn new() -> Self {
        Self::with(64, Some(RecoveryConfig::new(TTL)))
    }

    fn with(flows_max: u32, recovery: Option<RecoveryConfig>) -> Self {
        let ring = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let instant = start();
        let config = FlowsConfig {
            flows_max,
            hash_seed: 42,
            recovery,
        };
        Self {
            flows: Flows::new(config, instant),
            routes: routes(ring.clone()),
            ring,
            now: Now {
                instant,
                minute: MINUTE,
            },
        }
    }

    fn up(&mut self, client: ClientAddr, packet: &[u8]) -> Uplink {
        self.up_at(client, 0, packet)
    }

    fn up_at(&mut self, client: ClientAddr, ingress: u8, packet: &[u8]) -> Uplink {
        let from = Source { client, ingress };
        self.flows
            .handle_uplink(&self.routes, from, packet, self.now)
    }

    fn check(&mut self, client: ClientAddr, owner: Owner) -> Uplink {
        let hint = Hint {
            owner,
            issued: MINUTE,
        };
        let ufrag = self.ring.seal(hint, [1; 3]);
        self.up(client, &binding_request(ufrag.as_bytes()))
    }

    fn down(&mut self, owner: Owner, client: ClientAddr, ingress: u8) {
        let mut header = record(owner, client);
        header.tag.ingress = ingress;
        let verdict = self.flows.handle_downlink(&header, RTP, self.now);
        assert_eq!(verdict, Downlink::Deliver);
    }

    fn end(&mut self, owner: Owner, client: ClientAddr) {
        self.flows.handle_end(&record(owner, client), self.now);
    }

    fn answer(&mut self, client: ClientAddr, answer: Answer) {
        self.flows
            .handle_answer(&self.routes, client, 0, answer, self.now);
    }

    fn commands(&mut self) -> Vec<Command> {
        std::iter::from_fn(|| self.flows.next_command()).collect()
    }

    fn released(&mut self) -> Vec<(ClientAddr, Vec<u8>, Uplink)> {
        let mut all = Vec::new();
        while let Some(packet) = self.flows.next_released(&self.routes, self.now) {
            all.push((packet.client, packet.packet.to_vec(), packet.verdict));
        }
        all
    }

    fn verdicts(&mut self) -> Vec<Uplink> {
        let released = self.released();
        released
            .into_iter()
            .map(|(_, _, verdict)| verdict)
            .collect()
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while self.now.instant < end {
            self.now.instant += (20 * MS).min(end - self.now.instant);
            self.flows.handle_timeout(self.now);
        }
    }
}

fn ask(client: ClientAddr) -> Command {
    Command::Ask { client, ingress: 0 }
}

fn store(client: ClientAddr, ingress: u8, owner: Owner) -> Command {
    Command::Store {
        client,
        ingress,
        owner,
    }
}

fn forget(client: ClientAddr, ingress: u8, owner: Owner) -> Command {
    Command::Forget {
        client,
        ingress,
        owner,
    }
}

#[test]
fn rule_6_packets_are_held_asked_about_once_and_released_in_order() {
    let mut world = World::new();
    let stun_answer = {
        let mut packet = binding_request(b"abcd");
        packet[..2].copy_from_slice(&[1, 1]);
        packet
    };
    for packet in [DTLS, RTP, &stun_answer] {
        assert_eq!(world.up(client(1), packet), Uplink::Hold);
    }
    assert_eq!(world.commands(), [ask(client(1))]);
    world.answer(client(1), Answer::Owner(A));
    let expected = [DTLS, RTP, &stun_answer].map(|packet| (client(1), packet.to_vec(), to(A)));
    assert_eq!(world.released(), expected);
    assert_eq!(world.up(client(1), RTP), to(A));
    assert_eq!(world.commands(), [], "the owner has not been heard");
    world.down(A, client(1), 0);
    assert_eq!(world.commands(), [store(client(1), 0, A)]);
    let stats = world.flows.stats();
    assert_eq!(
        (stats.recovered, stats.questions, stats.held_packets),
        (1, 1, 0)
    );
}

#[test]
fn without_a_cache_nothing_is_held_or_commanded() {
    let mut world = World::with(64, None);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::NoFlow));
    world.check(client(1), A);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::NotCommitted));
    world.down(A, client(1), 0);
    world.end(A, client(1));
    world.answer(client(1), Answer::Owner(A));
    assert_eq!((world.commands(), world.released()), (vec![], vec![]));
}

#[test]
fn of_one_client_only_a_few_packets_are_held() {
    let mut world = World::new();
    for _ in 0..8 {
        assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    }
    let ninth = world.up(client(1), RTP);
    assert_eq!(ninth, dropped(DropReason::HoldClientFull));
    assert_eq!(world.commands(), [ask(client(1))]);
    assert_eq!(world.flows.stats().held_packets, 8);
}

#[test]
fn all_places_taken_the_question_is_asked_nevertheless() {
    let config = RecoveryConfig {
        held_max: 2,
        ..RecoveryConfig::new(TTL)
    };
    let mut world = World::with(64, Some(config));
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    assert_eq!(world.up(client(2), RTP), dropped(DropReason::HoldFull));
    assert_eq!(world.commands(), [ask(client(1)), ask(client(2))]);
    world.answer(client(2), Answer::Owner(B));
    assert_eq!(world.up(client(2), RTP), to(B));
    world.answer(client(1), Answer::Unknown);
    assert_eq!(world.verdicts(), [dropped(DropReason::Uncached); 2]);
    assert_eq!(world.up(client(3), RTP), Uplink::Hold, "places come back");
}

#[test]
fn open_questions_and_waiting_commands_are_bounded() {
    let config = RecoveryConfig {
        questions_max: 2,
        ..RecoveryConfig::new(TTL)
    };
    let mut world = World::with(64, Some(config));
    world.up(client(1), RTP);
    world.up(client(2), RTP);
    let third = world.up(client(3), RTP);
    assert_eq!(third, dropped(DropReason::QuestionsFull));
    assert_eq!(world.flows.stats().open_questions, 2);
    world.answer(client(1), Answer::Unknown);
    assert_eq!(world.up(client(3), RTP), Uplink::Hold);

    // Nobody takes commands: 3072 stores fit, then 1024 that cannot be said again.
    let mut world = World::with(8192, Some(RecoveryConfig::new(TTL)));
    for port in 1..=3072 {
        world.down(A, client(port), 0);
    }
    assert_eq!(world.flows.stats().commands_refused, 0);
    world.down(A, client(3073), 0);
    assert_eq!(world.flows.stats().commands_refused, 1);
    for port in 1..=1024 {
        world.end(A, client(port));
    }
    assert_eq!(world.flows.stats().commands_refused, 1);
    let unasked = world.up(client(4000), RTP);
    assert_eq!(unasked, dropped(DropReason::QuestionsFull));
    world.end(A, client(1025));
    assert_eq!(world.flows.stats().commands_refused, 2);
    assert_eq!(world.commands().len(), 4096);
    world.down(A, client(3073), 0);
    let store = store(client(3073), 0, A);
    assert_eq!(world.commands(), [store], "a store is said again");
}

#[test]
fn questions_have_a_rate_per_prefix_and_in_all() {
    let config = RecoveryConfig {
        per_prefix_per_s: 10,
        per_prefix_burst: 2,
        per_s: 20,
        burst: 3,
        ..RecoveryConfig::new(TTL)
    };
    let mut world = World::with(64, Some(config));
    let other = |host: u8| ClientAddr::new(([203, 0, host, 9], 4000).into());
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    assert_eq!(world.up(client(2), RTP), Uplink::Hold);
    let prefix = dropped(DropReason::QuestionPrefixRate);
    assert_eq!(world.up(client(3), RTP), prefix);
    assert_eq!(world.up(other(1), RTP), Uplink::Hold);
    assert_eq!(world.up(other(2), RTP), dropped(DropReason::QuestionRate));
    world.pass(100 * MS);
    assert_eq!(world.up(client(3), RTP), Uplink::Hold);
    assert_eq!(world.up(client(4), RTP), prefix);
}

#[test]
fn a_client_the_cache_does_not_know_is_not_asked_about_again_for_a_while() {
    let mut world = World::new();
    world.up(client(1), RTP);
    world.answer(client(1), Answer::Unknown);
    assert_eq!(world.verdicts(), [dropped(DropReason::Uncached)]);
    world.commands();
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Uncached));
    assert_eq!(world.commands(), []);
    assert_eq!(
        world.up_at(client(1), 1, RTP),
        Uplink::Hold,
        "another ingress"
    );
    world.answer(client(1), Answer::Owner(A));
    assert_eq!(world.flows.stats().late_answers, 1, "of the other ingress");
    world.pass(Duration::from_secs(6));
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
}

#[test]
fn an_answer_that_comes_late_still_makes_the_flow() {
    let mut world = World::new();
    world.up(client(1), RTP);
    world.pass(220 * MS);
    assert_eq!(world.verdicts(), [dropped(DropReason::Unanswered)]);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Unanswered));
    world.pass(Duration::from_secs(1));
    world.answer(client(1), Answer::Owner(A));
    assert_eq!(world.released(), []);
    assert_eq!(world.up(client(1), RTP), to(A));
    assert_eq!(world.commands(), [ask(client(1))]);
}

#[test]
fn an_answer_that_never_comes_closes_the_question() {
    let mut world = World::new();
    world.up(client(1), RTP);
    world.pass(2020 * MS);
    assert_eq!(world.flows.stats().open_questions, 0);
    assert_eq!(world.flows.poll_timeout(), None);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Unanswered));
    world.answer(client(1), Answer::Owner(A));
    let stats = world.flows.stats();
    assert_eq!((stats.late_answers, stats.flows), (1, 0));
    assert_eq!(world.commands(), [ask(client(1))]);
    world.now.instant += Duration::from_secs(1);
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
}

#[test]
fn a_cache_that_cannot_be_asked_is_asked_again_after_300_ms() {
    let mut world = World::new();
    world.up(client(1), RTP);
    world.answer(client(1), Answer::Unavailable);
    assert_eq!(world.verdicts(), [dropped(DropReason::Unanswered)]);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Unanswered));
    assert_eq!(world.commands(), [ask(client(1))]);
    world.pass(280 * MS);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Unanswered));
    world.pass(40 * MS);
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    assert_eq!(world.commands(), [ask(client(1))]);
    world.answer(client(1), Answer::Unavailable);
    assert_eq!(world.verdicts(), [dropped(DropReason::Unanswered)]);
    world.check(client(1), A);
    world.down(A, client(1), 0);
    assert_eq!(world.up(client(1), RTP), to(A), "STUN works as ever");
}

#[test]
fn a_flow_that_commits_meanwhile_takes_what_was_held() {
    let mut world = World::new();
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    assert_eq!(world.check(client(1), A), to(A));
    assert_eq!(world.up(client(1), DTLS), Uplink::Hold, "tentative");
    world.down(A, client(1), 0);
    assert_eq!(world.verdicts(), [to(A); 2]);
    world.answer(client(1), Answer::Owner(B));
    assert_eq!(world.up(client(1), RTP), to(A), "the answer is too late");
    assert_eq!(world.flows.stats().late_answers, 1);
    // The same by downlink alone.
    assert_eq!(world.up(client(2), RTP), Uplink::Hold);
    world.down(B, client(2), 0);
    assert_eq!(world.verdicts(), [to(B)]);
}

#[test]
fn an_answer_shares_the_address_with_a_claim_that_nobody_has_answered() {
    let mut world = World::new();
    world.check(client(1), A);
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    let both = |owner, other| Uplink::Forward {
        owner,
        also: Some(other),
    };
    world.answer(client(1), Answer::Owner(B));
    assert_eq!(world.verdicts(), [both(B, A)], "which of them answers?");
    assert_eq!(world.up(client(1), RTP), both(B, A));
    assert_eq!(world.check(client(1), A), to(A), "routed by its own hint");
    world.down(A, client(1), 0);
    let both = both(A, B);
    assert_eq!(world.up(client(1), RTP), both, "until B goes idle");
    assert_eq!(world.flows.stats().tentative, 0);
}

#[test]
fn of_a_claim_and_an_answer_the_one_that_is_heard_stays() {
    let shared = || {
        let mut world = World::new();
        world.check(client(1), A);
        world.up(client(1), RTP);
        world.answer(client(1), Answer::Owner(B));
        world
    };
    let mut world = shared();
    world.down(B, client(1), 0);
    assert_eq!(world.up(client(1), RTP), to(B));
    let mut world = shared();
    world.end(A, client(1));
    assert_eq!(world.up(client(1), RTP), to(B));
    // Nobody has answered for A, so it does not succeed.
    let mut world = shared();
    world.end(B, client(1));
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Ended));
    world.down(A, client(1), 0);
    assert_eq!(world.up(client(1), RTP), to(A));
}

#[test]
fn a_session_that_ends_while_the_question_is_open_does_not_come_back() {
    for claim in [false, true] {
        let mut world = World::new();
        world.up(client(1), RTP);
        world.end(A, client(1));
        if claim {
            // The client's next check makes a flow of what is remembered as ended.
            assert_eq!(world.check(client(1), A), to(A));
        }
        world.answer(client(1), Answer::Owner(A));
        assert_eq!(world.verdicts(), [dropped(DropReason::Ended)]);
        let after = world.up(client(1), RTP);
        assert!(matches!(after, Uplink::Drop(_)), "{after:?}");
        assert_eq!(world.flows.stats().recovered, 0);
        assert_eq!(
            world.commands(),
            [ask(client(1)), forget(client(1), 0, A)],
            "nothing is stored"
        );
    }
    let mut world = World::new();
    world.up(client(1), RTP);
    world.end(A, client(1));
    world.answer(client(1), Answer::Owner(B));
    assert_eq!(world.up(client(1), RTP), to(B), "another session");
    // Nobody's, or nobody says: what was held is of the session that ended.
    for answer in [Some(Answer::Unknown), Some(Answer::Unavailable), None] {
        let mut world = World::new();
        world.up(client(1), RTP);
        world.end(A, client(1));
        match answer {
            Some(answer) => world.answer(client(1), answer),
            None => world.pass(220 * MS),
        }
        assert_eq!(world.verdicts(), [dropped(DropReason::Ended)]);
    }
}

#[test]
fn what_an_ended_session_has_under_way_stores_nothing() {
    let mut world = World::new();
    world.down(A, client(1), 0);
    world.end(A, client(1));
    world.down(A, client(1), 0);
    assert_eq!(world.up(client(1), RTP), dropped(DropReason::Ended));
    let expected = [store(client(1), 0, A), forget(client(1), 0, A)];
    assert_eq!(world.commands(), expected);
    assert_eq!(world.flows.stats().flows, 0);
    world.down(B, client(1), 0);
    assert_eq!(world.commands(), [store(client(1), 0, B)], "a new session");
    // An end for a client that only the cache knows.
    world.end(A, client(2));
    world.down(A, client(2), 0);
    assert_eq!(world.commands(), [forget(client(2), 0, A)]);
    world.pass(Duration::from_secs(6));
    assert_eq!(world.flows.stats().expired, 0, "what ended does not expire");
}

#[test]
fn an_entry_is_renewed_while_its_owner_is_heard_and_not_by_the_client() {
    let mut world = World::new();
    let mut stored = Vec::new();
    for second in 0..60 {
        world.down(A, client(1), 0);
        world.up(client(1), RTP);
        stored.extend(world.commands().iter().map(|_| second));
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(stored, [0, 20, 40]);
    for _ in 0..120 {
        world.up(client(1), RTP);
        world.pass(Duration::from_secs(1));
    }
    assert_eq!(world.up(client(1), RTP), to(A));
    assert_eq!(world.commands(), []);
}

#[test]
fn what_the_cache_may_have_lost_is_stored_again_once_soon_and_evenly() {
    const CLIENTS: u16 = 60;
    let mut world = World::new();
    let mut stored = vec![Vec::new(); usize::from(CLIENTS)];
    let mut of_first_second = 0;
    for second in 0..60 {
        if second == 7 {
            world.flows.store_again(world.now);
        }
        for port in 0..CLIENTS {
            world.down(A, client(port), 0);
            let stores = world.commands().len();
            of_first_second += if second == 7 { stores } else { 0 };
            stored[usize::from(port)].extend((0..stores).map(|_| second));
        }
        world.pass(Duration::from_secs(1));
    }
    for times in stored {
        let [0, again, second, third] = times.as_slice() else {
            panic!("{times:?}")
        };
        assert!((7..=12).contains(again), "{again}");
        assert_eq!([second - again, third - again], [20, 40], "as ever");
    }
    assert!(of_first_second < usize::from(CLIENTS) / 2);
}

#[test]
fn a_flush_stores_flows_whose_owner_is_heard_and_no_other() {
    let mut world = World::new();
    assert_eq!(world.flows.flush_step(world.now), None, "nobody asked");
    world.down(A, client(1), 0);
    world.pass(Duration::from_secs(11));
    world.down(B, client(2), 3);
    world.check(client(3), A);
    world.commands();
    world.flows.flush();
    assert_eq!(world.flows.flush_step(world.now), Some(0));
    assert_eq!(world.commands(), [store(client(2), 3, B)]);
    assert_eq!(world.flows.flush_step(world.now), None, "it is over");
}

#[test]
fn every_ingress_a_client_speaks_to_is_stored_and_forgotten() {
    let mut world = World::new();
    for ingress in [0, 3, 0, 3] {
        world.down(A, client(1), ingress);
    }
    let expected = [store(client(1), 0, A), store(client(1), 3, A)];
    assert_eq!(world.commands(), expected);
    world.pass(Duration::from_secs(20));
    world.down(A, client(1), 3);
    assert_eq!(world.commands(), expected, "both are renewed");
    world.end(A, client(1));
    let expected = [forget(client(1), 0, A), forget(client(1), 3, A)];
    assert_eq!(world.commands(), expected);
}

#[test]
fn a_shared_address_is_stored_for_the_owner_that_keeps_it() {
    let mut world = World::new();
    world.down(A, client(1), 0);
    assert_eq!(world.commands(), [store(client(1), 0, A)]);
    for _ in 0..12 {
        world.down(B, client(1), 0);
        world.pass(Duration::from_secs(1));
    }
    world.down(B, client(1), 0);
    assert_eq!(world.commands(), [store(client(1), 0, B)], "A went idle");
    // The owner ends, and the second one lives on.
    world.down(A, client(1), 0);
    world.end(B, client(1));
    assert_eq!(world.commands(), [forget(client(1), 0, B)]);
    world.down(A, client(1), 0);
    assert_eq!(world.commands(), [store(client(1), 0, A)]);
}

#[test]
fn a_recovered_flow_whose_owner_is_silent_goes_however_much_the_client_sends() {
    let mut world = World::new();
    world.up(client(1), RTP);
    world.answer(client(1), Answer::Owner(A));
    for _ in 0..10 {
        assert_eq!(world.up(client(1), RTP), to(A));
        world.pass(Duration::from_secs(1));
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(world.flows.stats().flows, 0);
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
}

#[test]
fn an_answer_of_another_topology_is_none() {
    let mut world = World::new();
    for owner in [owner(9, 1), owner(1, 255)] {
        let client = client(u16::try_from(owner.transceiver.0).unwrap());
        world.up(client, RTP);
        world.answer(client, Answer::Owner(owner));
        assert_eq!(world.verdicts(), [dropped(DropReason::Uncached)]);
        assert_eq!(world.flows.stats().flows, 0);
    }
}

#[test]
fn a_full_table_takes_no_answer_and_evicts_nothing() {
    let mut world = World::with(1, Some(RecoveryConfig::new(TTL)));
    world.down(A, client(1), 0);
    world.up(client(2), RTP);
    world.answer(client(2), Answer::Owner(B));
    assert_eq!(world.verdicts(), [dropped(DropReason::TableFull)]);
    world.down(B, client(3), 0);
    assert_eq!(world.flows.stats().unlearned, 2);
    assert_eq!(world.up(client(1), RTP), to(A));
}

#[test]
fn nothing_else_is_asked_about() {
    let mut world = World::new();
    let unknown_key = KeyRing::single(KeyId::new(9).unwrap(), [7; 16]);
    let hint = Hint {
        owner: A,
        issued: MINUTE,
    };
    let unknown_key = binding_request(unknown_key.seal(hint, [1; 3]).as_bytes());
    for (packet, reason) in [
        (&[][..], DropReason::Empty),
        (&[64, 1, 0, 0], DropReason::NoFlow),
        (&[0, 1, 0, 0], DropReason::StunMalformed),
        (&unknown_key, DropReason::HintUnknownKey),
    ] {
        assert_eq!(world.up(client(1), packet), dropped(reason));
    }
    for (address, reason) in [
        ("127.0.31.1:3478", DropReason::OwnAddress),
        ("198.51.100.7:0", DropReason::BadSource),
    ] {
        let client = ClientAddr::new(address.parse().unwrap());
        assert_eq!(world.up(client, RTP), dropped(reason));
    }
    assert_eq!(world.commands(), []);
}

#[test]
fn a_draining_pop_recovers_what_exists() {
    let mut world = World::new();
    world.flows.drain();
    assert_eq!(world.check(client(1), A), dropped(DropReason::Draining));
    assert_eq!(world.up(client(1), RTP), Uplink::Hold);
    world.answer(client(1), Answer::Owner(A));
    assert_eq!(world.check(client(1), A), to(A));
}
