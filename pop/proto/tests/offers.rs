//! Packets of a client that nobody knows: to whom they are offered, how many, and what an owner's answer does.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "support/flows.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use pop_proto::fuzz::binding_request;
use pop_proto::{
    Answer, Command, Downlink, DropReason, Flows, FlowsConfig, Neighbours, Now, RecoveryConfig,
    Routes, Source, Uplink,
};
use wire::hint::{Hint, KeyId, KeyRing};
use wire::record::{HOPS_MAX, RecordHeader};
use wire::{ClientAddr, Owner};

use crate::support::{A, B, DTLS, MINUTE, RTP, client, dropped, owner, record, routes, start, to};

/// As long as the shortest SRTP.
const MEDIA: &[u8] = &[0x80; 22];
const SECOND: Duration = Duration::from_secs(1);

struct World {
    flows: Flows,
    neighbours: Arc<Neighbours>,
    routes: Routes,
    ring: KeyRing,
    now: Now,
}

impl World {
    fn new(recovery: Option<RecoveryConfig>) -> Self {
        Self::with_workers(1, recovery)
    }

    fn with_workers(workers: u8, recovery: Option<RecoveryConfig>) -> Self {
        let ring = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let instant = start();
        let neighbours = Arc::new(Neighbours::new(1 << 16, 5, instant));
        let config = FlowsConfig {
            flows_max: 64,
            hash_seed: 42,
            recovery,
        };
        let flows = Flows::new(config, instant);
        Self {
            flows: flows.with_neighbours(Arc::clone(&neighbours), workers, 6, instant),
            neighbours,
            routes: routes(ring.clone()),
            ring,
            now: Now {
                instant,
                minute: MINUTE,
            },
        }
    }

    fn up(&mut self, client: ClientAddr, packet: &[u8]) -> Uplink {
        let from = Source { client, ingress: 0 };
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

    /// A check and its answer.
    fn commit(&mut self, client: ClientAddr, owner: Owner) {
        assert_eq!(self.check(client, owner), to(owner));
        self.answer(client, owner);
    }

    fn answer(&mut self, client: ClientAddr, owner: Owner) {
        let mut success = binding_request(b"abcd");
        success.splice(..2, [1, 1]);
        let verdict = self
            .flows
            .handle_downlink(&record(owner, client), &success, self.now);
        assert_eq!(verdict, Downlink::Deliver);
    }

    fn take(&mut self, owner: Owner, client: ClientAddr) -> Result<(), DropReason> {
        let header = RecordHeader {
            offered: true,
            ..record(owner, client)
        };
        self.flows.handle_taken(&header, self.now)
    }

    fn offered(&mut self, client: ClientAddr) -> Vec<Owner> {
        match self.up(client, MEDIA) {
            Uplink::Offer { owners } => owners.iter().collect(),
            Uplink::Forward { .. } | Uplink::Hold | Uplink::Drop(_) => Vec::new(),
        }
    }

    fn answer_cache(&mut self, client: ClientAddr, answer: Answer) {
        self.flows
            .handle_answer(&self.routes, client, 0, answer, self.now);
    }

    /// What becomes of packets that were held.
    fn released(&mut self) -> Vec<(ClientAddr, Fate)> {
        let mut all = Vec::new();
        while let Some(packet) = self.flows.next_released(&self.routes, self.now) {
            let fate = match packet.verdict {
                Uplink::Offer { owners } => Fate::Offered(owners.iter().collect()),
                verdict @ (Uplink::Forward { .. } | Uplink::Hold | Uplink::Drop(_)) => {
                    Fate::Is(verdict)
                }
            };
            all.push((packet.client, fate));
        }
        all
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.instant + time;
        while self.now.instant < end {
            self.now.instant += Duration::from_millis(20).min(end - self.now.instant);
            self.flows.handle_timeout(self.now);
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Fate {
    Offered(Vec<Owner>),
    Is(Uplink),
}

fn offer_to(owners: &[Owner]) -> Fate {
    Fate::Offered(owners.to_vec())
}

fn at(address: &str) -> ClientAddr {
    ClientAddr::new(address.parse().unwrap())
}

#[test]
fn media_from_another_port_is_offered_to_the_owner_at_that_address() {
    let mut world = World::new(None);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::NoFlow));
    world.commit(client(1), A);
    assert_eq!(world.offered(client(2)), [A]);
    // What only a client in a call sends, and no more than its owner can tell a session by.
    for packet in [RTP, DTLS, &[0x80; 21], &[23; 60]] {
        assert_eq!(world.up(client(2), packet), dropped(DropReason::NoFlow));
    }
    let elsewhere = at("198.51.100.8:2");
    assert_eq!(world.up(elsewhere, MEDIA), dropped(DropReason::NoFlow));
    let stats = world.flows.stats();
    assert_eq!(
        (stats.offered, stats.flows),
        (1, 1),
        "an offer makes no flow"
    );
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.up(client(2), MEDIA), to(A));
    assert_eq!(world.up(client(2), DTLS), to(A));
    let stats = world.flows.stats();
    assert_eq!((stats.taken, stats.learned, stats.flows), (1, 1, 2));
}

#[test]
fn owners_come_latest_first_and_are_forgotten() {
    let mut world = World::new(None);
    let owners = [1, 2, 3].map(|transceiver| owner(1, transceiver));
    for (port, owner) in (10..).zip(owners) {
        world.commit(client(port), owner);
        world.pass(SECOND);
    }
    let [one, two, three] = owners;
    assert_eq!(world.offered(client(2)), [three, two, one]);
    world.pass(28 * SECOND);
    assert_eq!(world.offered(client(2)), [three, two]);
    world.commit(client(10), one);
    assert_eq!(world.offered(client(2)), [one, three, two]);
    world.pass(31 * SECOND);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::NoFlow));
}

#[test]
fn an_owner_that_left_the_topology_is_offered_nothing() {
    let mut world = World::new(None);
    let gone = owner(1, 0xffff);
    let ip = client(2).ip();
    world.neighbours.note(ip, gone, world.now.instant);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::NoFlow));
    world.neighbours.note(ip, A, world.now.instant);
    assert_eq!(world.offered(client(2)), [A]);
}

#[test]
fn a_client_has_sixteen_offers_until_its_owner_answers() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    let offers = |world: &mut World| {
        (0..40)
            .filter(|_| !world.offered(client(2)).is_empty())
            .count()
    };
    assert_eq!(offers(&mut world), 16);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::OfferClient));
    assert_eq!(world.offered(client(3)), [A], "another client");
    world.pass(5 * SECOND);
    assert_eq!(offers(&mut world), 16);
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.up(client(2), MEDIA), to(A));
}

#[test]
fn a_prefix_has_its_rate_and_so_has_the_worker() {
    let mut world = World::new(None);
    let now = world.now.instant;
    for prefix in 0..5 {
        world
            .neighbours
            .note(at(&format!("203.0.{prefix}.1:1")).ip(), A, now);
    }
    let flood = |world: &mut World, prefix: u16| {
        let verdicts =
            (1..=300).map(|port| world.up(at(&format!("203.0.{prefix}.1:{port}")), MEDIA));
        verdicts.collect::<Vec<_>>()
    };
    let count = |verdicts: &[Uplink], reason| {
        let wanted = dropped(reason);
        verdicts
            .iter()
            .filter(|verdict| **verdict == wanted)
            .count()
    };
    for prefix in 0..3 {
        let verdicts = flood(&mut world, prefix);
        assert_eq!(count(&verdicts, DropReason::OfferPrefixRate), 44);
    }
    let verdicts = flood(&mut world, 3);
    assert_eq!(count(&verdicts, DropReason::OfferRate), 68, "1000 at once");
    assert_eq!(world.flows.stats().offered, 1000);
    world.pass(SECOND);
    let verdicts = flood(&mut world, 4);
    assert_eq!(count(&verdicts, DropReason::OfferRate), 0);
    assert_eq!(
        world.flows.stats().flows,
        0,
        "a flood leaves nothing behind"
    );
}

/// The kernel gives another port to another worker as a rule: together they offer what one would.
#[test]
fn workers_share_the_rate_of_a_prefix() {
    for (workers, at_once, later) in [(1, 256, 128), (2, 128, 64), (8, 32, 16), (64, 16, 2)] {
        let mut world = World::with_workers(workers, None);
        world.commit(client(1), A);
        let flood = |world: &mut World| {
            let offered = (1000..2000).map(|port| world.offered(client(port)));
            offered.filter(|owners| !owners.is_empty()).count()
        };
        assert_eq!(flood(&mut world), at_once, "{workers}");
        world.pass(SECOND);
        assert_eq!(flood(&mut world), later, "{workers}");
    }
}

#[test]
fn the_flow_cache_is_asked_first() {
    let mut world = World::new(Some(RecoveryConfig::new(60 * SECOND)));
    world.commit(client(1), A);
    while world.flows.next_command().is_some() {}
    assert_eq!(world.up(client(2), MEDIA), Uplink::Hold);
    let ask = Command::Ask {
        client: client(2),
        ingress: 0,
    };
    assert_eq!(world.flows.next_command(), Some(ask));
    world.answer_cache(client(2), Answer::Unknown);
    assert_eq!(world.released(), [(client(2), offer_to(&[A]))]);
    assert_eq!(world.offered(client(2)), [A]);
    // Of whom it knows better, nobody else is asked.
    assert_eq!(world.up(client(3), MEDIA), Uplink::Hold);
    world.answer_cache(client(3), Answer::Owner(B));
    assert_eq!(world.released(), [(client(3), Fate::Is(to(B)))]);
    assert_eq!(world.up(client(3), MEDIA), to(B));
}

/// It hangs, or says that it cannot be asked. An answer that comes later brings back nothing that was let go.
#[test]
fn what_was_held_in_vain_is_offered_once() {
    for says_so in [true, false] {
        let mut world = World::new(Some(RecoveryConfig::new(60 * SECOND)));
        world.commit(client(1), A);
        for packet in [MEDIA, DTLS, RTP, MEDIA] {
            assert_eq!(world.up(client(2), packet), Uplink::Hold);
        }
        if says_so {
            world.answer_cache(client(2), Answer::Unavailable);
        } else {
            world.pass(Duration::from_millis(180));
            assert_eq!(world.released(), [], "its time has not come");
            world.pass(Duration::from_millis(40));
        }
        let unanswered = Fate::Is(dropped(DropReason::Unanswered));
        let fates = [
            offer_to(&[A]),
            unanswered.clone(),
            unanswered,
            offer_to(&[A]),
        ];
        assert_eq!(world.released(), fates.map(|fate| (client(2), fate)));
        assert_eq!(world.offered(client(2)), [A], "it is not waited for again");
        world.answer_cache(client(2), Answer::Owner(A));
        assert_eq!(world.released(), []);
        let stats = world.flows.stats();
        assert_eq!((stats.offered, stats.held_packets), (3, 0));
        assert_eq!(stats.recovered, u64::from(!says_so));
    }
}

#[test]
fn what_was_held_counts_among_the_offers_of_its_client() {
    let mut world = World::new(Some(RecoveryConfig::new(60 * SECOND)));
    world.commit(client(1), A);
    for _ in 0..8 {
        assert_eq!(world.up(client(2), MEDIA), Uplink::Hold);
    }
    world.answer_cache(client(2), Answer::Unknown);
    assert_eq!(world.released().len(), 8);
    let fresh = (0..40).filter(|_| !world.offered(client(2)).is_empty());
    assert_eq!(fresh.count(), 8);
    assert_eq!(world.flows.stats().offered, 16);

    // A prefix whose offers are used up while some of its clients are asked about.
    let mut world = World::new(Some(RecoveryConfig::new(60 * SECOND)));
    world.commit(client(1), A);
    let askers = || (100..360).map(client);
    for client in askers() {
        assert_eq!(world.up(client, MEDIA), Uplink::Hold);
        while world.flows.next_command().is_some() {}
    }
    for client in askers() {
        world.answer_cache(client, Answer::Unknown);
    }
    let released = world.released();
    let offered = |fate: &&(ClientAddr, Fate)| fate.1 == offer_to(&[A]);
    assert_eq!(released.iter().filter(offered).count(), 256);
    let rate = Fate::Is(dropped(DropReason::OfferPrefixRate));
    assert_eq!(released.iter().filter(|fate| fate.1 == rate).count(), 4);
}

/// What was held is offered as things are when it is let go.
#[test]
fn what_was_held_is_offered_to_nobody_who_is_gone() {
    let held = || {
        let mut world = World::new(Some(RecoveryConfig::new(60 * SECOND)));
        world.commit(client(1), A);
        assert_eq!(world.up(client(2), MEDIA), Uplink::Hold);
        world
    };
    // Remembered at that address, and of the topology no more.
    let mut world = held();
    let gone = owner(1, 0xffff);
    let ip = client(2).ip();
    world.neighbours.note(ip, gone, world.now.instant);
    world.answer_cache(client(2), Answer::Unknown);
    assert_eq!(world.released(), [(client(2), offer_to(&[A]))]);
    // Forgotten meanwhile.
    let mut world = held();
    world.now.instant += 31 * SECOND;
    world.answer_cache(client(2), Answer::Unknown);
    let uncached = Fate::Is(dropped(DropReason::Uncached));
    assert_eq!(world.released(), [(client(2), uncached.clone())]);
    // Turned off meanwhile.
    let mut world = held();
    world.answer_cache(client(2), Answer::Unknown);
    world.flows.set_offers(false);
    assert_eq!(world.released(), [(client(2), uncached)]);
    // Its owner has ended the session, in the same batch or before, even if the client checks again.
    let ended = Fate::Is(dropped(DropReason::Ended));
    for (before, checks) in [(true, false), (true, true), (false, false)] {
        let mut world = held();
        let header = record(A, client(2));
        if before {
            world.flows.handle_end(&header, world.now);
        }
        if checks {
            assert_eq!(world.check(client(2), A), to(A));
        }
        world.answer_cache(client(2), Answer::Unknown);
        if !before {
            world.flows.handle_end(&header, world.now);
        }
        assert_eq!(world.released(), [(client(2), ended.clone())]);
    }
    // Its owner has answered meanwhile: nobody needs to be asked.
    let mut world = held();
    world.answer_cache(client(2), Answer::Unknown);
    world.commit(client(2), B);
    assert_eq!(world.released(), [(client(2), Fate::Is(to(B)))]);
    assert_eq!(world.flows.stats().offered, 0);
}

#[test]
fn a_client_whose_check_is_not_answered_yet_is_offered_too() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    assert_eq!(world.check(client(2), B), to(B));
    assert_eq!(world.offered(client(2)), [A]);
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.up(client(2), MEDIA), to(A));
}

#[test]
fn a_call_survives_a_rebind_at_a_pop_that_drains() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    world.flows.drain();
    assert_eq!(world.check(client(2), A), dropped(DropReason::Draining));
    assert_eq!(world.offered(client(2)), [A]);
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.check(client(2), A), to(A));
}

#[test]
fn nothing_is_offered_when_the_operator_says_so_or_for_a_bad_source() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    let nobody = client(0);
    assert_eq!(world.up(nobody, MEDIA), dropped(DropReason::BadSource));
    world.flows.set_offers(false);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::NoFlow));
    world.flows.set_offers(true);
    assert_eq!(world.offered(client(2)), [A]);
}

/// Its owner let the guest go because it was silent, and it checks while the record that says so is under way.
#[test]
fn the_end_of_a_guest_that_crosses_its_check_does_not_shut_it_out() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.check(client(2), A), to(A));
    world.flows.handle_end(&record(A, client(2)), world.now);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::Ended));
    world.answer(client(2), A);
    assert_eq!(world.up(client(2), MEDIA), to(A));
    // Nobody's check is under way: what is left of the session brings nothing back.
    world.flows.handle_end(&record(A, client(2)), world.now);
    world.answer(client(2), A);
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::Ended));
}

#[test]
fn an_answer_brings_no_ended_flow_back_and_does_not_circle() {
    let mut world = World::new(None);
    world.commit(client(1), A);
    assert_eq!(world.take(A, client(2)), Ok(()));
    world.flows.handle_end(&record(A, client(2)), world.now);
    assert_eq!(world.take(A, client(2)), Ok(()));
    assert_eq!(world.up(client(2), MEDIA), dropped(DropReason::Ended));
    let header = RecordHeader {
        offered: true,
        hops: HOPS_MAX + 1,
        ..record(A, client(3))
    };
    let answer = world.flows.handle_taken(&header, world.now);
    assert_eq!(answer, Err(DropReason::HopLimit));
    assert_eq!(world.offered(client(3)), [A]);
}
