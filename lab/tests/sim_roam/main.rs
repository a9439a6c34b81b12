//! Callers whose address changes, and others who send what they have overheard: what a PoP's flows and transceivers' sessions make of it
//! together. No hijack: a call leaves only to where its client has checked from. No amplification: no other address gets more packets or bytes
//! than came from it. No stale guest: who is gone is forgotten, at both ends.

#![cfg(test)]

mod world;

use std::net::SocketAddr;
use std::time::Duration;

use lab::sim::{random::Random, seed};

use crate::world::{Cache, FRAME, World};

const CACHES: [Cache; 4] = [
    Cache::Absent,
    Cache::Answers,
    Cache::Hangs,
    Cache::Unavailable,
];
/// Packets of a client that wait for a cache that hangs, of the ten that it sends meanwhile.
const HELD_OF_TEN: usize = 8;

const HOME: SocketAddr = at(4000);
const ROAMED: SocketAddr = at(5001);
/// Who never asked for anything, behind the same NAT.
const VICTIM: SocketAddr = at(6001);

/// At the address that all callers share.
const fn at(port: u16) -> SocketAddr {
    let ip = std::net::Ipv4Addr::new(198, 51, 100, 7);
    SocketAddr::new(std::net::IpAddr::V4(ip), port)
}

/// Two calls of each transceiver, from one IP address. The first and the last chose the same SSRC.
fn calls(cache: Cache) -> World {
    let mut world = World::new(cache);
    for (node, port, ssrc) in [(0, 4000, 9), (0, 4001, 10), (1, 4002, 11), (1, 4003, 9)] {
        let caller = world.connect(node, at(port), ssrc);
        assert_eq!(world.talk(caller, 5), 5);
    }
    world
}

#[test]
fn two_owners_are_offered_a_roamed_client_and_the_one_that_authenticates_has_it() {
    for cache in CACHES {
        let mut world = calls(cache);
        world.callers[0].at = ROAMED;
        let lost = if cache == Cache::Hangs {
            10 - HELD_OF_TEN
        } else {
            0
        };
        assert_eq!(world.talk(0, 30), 30 - lost, "{cache:?}");
        assert!(world.offers.iter().all(|offer| *offer == (ROAMED, 2)));
        assert!(!world.taken.is_empty());
        assert!(world.taken.iter().all(|taken| *taken == (ROAMED, 0)));
        let offers = world.offers.len() as u64;
        assert_eq!(world.drops("offer_refused"), offers, "by the other one");
        world.check_invariants();
        assert_eq!(world.selected(0), Some(HOME), "no check has moved it");
        world.check(0, true);
        world.pass(FRAME * 4);
        assert_eq!((world.selected(0), world.guests()), (Some(ROAMED), 0));
        let before = world.book(HOME).went;
        assert_eq!(world.talk(0, 10), 10);
        assert_eq!(world.book(HOME).went, before, "nobody is there any more");
        for other in 1..4 {
            assert_eq!(world.talk(other, 10), 10);
        }
    }
}

/// Somebody races a packet of a roamed client and displaces it as the guest. It is heard all the while, and its check ends the matter.
#[test]
fn a_displaced_guest_is_heard_and_comes_back_by_its_check() {
    for cache in CACHES {
        for nominates in [true, false] {
            let mut world = calls(cache);
            world.callers[0].at = ROAMED;
            world.talk(0, 30);
            for _ in 0..3 {
                // Its own copy comes second: that is the replay.
                for _ in 0..12 {
                    let packet = world.next_voice(0);
                    world.uplink(VICTIM, &packet);
                    world.uplink(ROAMED, &packet);
                    world.pass(FRAME);
                    world.check_invariants();
                }
                assert_eq!(world.talk(0, 12), 12, "{cache:?}");
                assert_eq!(world.guests(), 1);
            }
            assert!(world.book(VICTIM).went.0 > 0, "the attack was made");
            world.check(0, nominates);
            world.pass(FRAME * 4);
            assert_eq!(world.selected(0), Some(ROAMED), "{cache:?} {nominates}");
            assert_eq!(world.guests(), 0);
            let before = world.book(VICTIM);
            assert_eq!(world.talk(0, 20), 20);
            assert_eq!(world.book(VICTIM).went, before.went, "no copies");
            world.check_invariants();
        }
    }
}

#[test]
fn what_is_repeated_from_a_forged_source_moves_nothing_and_gets_nothing() {
    for cache in CACHES {
        let mut world = calls(cache);
        let mut overheard = Vec::new();
        for _ in 0..20 {
            overheard.push(world.speak(0));
            overheard.push(world.check(0, true));
            world.pass(FRAME);
        }
        let elsewhere = "203.0.113.9:7000".parse().unwrap();
        for from in [VICTIM, at(6000), elsewhere] {
            for packet in &overheard {
                world.uplink(from, packet);
                let mut forged = packet.clone();
                let last = forged.len() - 1;
                forged[last] ^= 1;
                world.uplink(from, &forged);
                world.pass(FRAME);
            }
            world.pass(Duration::from_secs(1));
            assert_eq!(world.book(from).went, (0, 0), "{cache:?} {from}");
            world.check(0, true);
        }
        assert!(world.drops("offer_refused") > 0);
        assert!(world.drops("replayed_check") > 0);
        assert!(world.taken.is_empty());
        assert_eq!((world.guests(), world.selected(0)), (0, Some(HOME)));
        assert_eq!(world.talk(0, 10), 10);
    }
}

/// Somebody keeps a client's packets from arriving and sends them from where he likes.
#[test]
fn whoever_is_in_the_way_gets_what_he_sent_and_is_forgotten() {
    for cache in CACHES {
        let mut world = calls(cache);
        for _ in 0..100 {
            let packet = world.next_voice(0);
            world.uplink(VICTIM, &packet);
            world.pass(FRAME);
            world.check_invariants();
        }
        world.pass(FRAME * 4);
        let book = world.book(VICTIM);
        assert!(book.went.0 > 50 && book.went.0 <= book.came.0, "{book:?}");
        assert_eq!(world.selected(0), Some(HOME));
        assert_eq!((world.guests(), world.flows()), (1, 5));
        // He leaves; seconds later both ends have forgotten him.
        world.pass(Duration::from_secs(6));
        assert_eq!((world.guests(), world.flows()), (0, 4));
        assert_eq!(world.talk(0, 10), 10);
    }
}

/// A step of somebody or other.
fn step(world: &mut World, dice: &mut Random, overheard: &mut Vec<Vec<u8>>) {
    let number = |dice: &mut Random, below: usize| {
        usize::try_from(dice.below(u64::try_from(below).unwrap())).unwrap()
    };
    let caller = number(dice, 4);
    let elsewhere = [
        VICTIM,
        at(6000),
        at(6003),
        "203.0.113.9:7000".parse().unwrap(),
    ];
    let from = elsewhere[number(dice, elsewhere.len())];
    match dice.below(12) {
        0..=3 => overheard.push(world.speak(caller)),
        4 => {
            let nominates = dice.chance(500_000);
            overheard.push(world.check(caller, nominates));
        }
        5 => {
            let port = 5000 + u16::try_from(dice.below(40)).unwrap();
            let free = |at: SocketAddr| world.callers.iter().all(|other| other.at != at);
            if free(at(port)) {
                world.callers[caller].at = at(port);
            }
        }
        // He is faster, or the original never comes.
        6 => {
            let packet = world.next_voice(caller);
            world.uplink(from, &packet);
            if dice.chance(500_000) {
                world.uplink(world.callers[caller].at, &packet);
            }
        }
        // He is slower, or changes it.
        7 | 8 if !overheard.is_empty() => {
            let mut packet = overheard[number(dice, overheard.len())].clone();
            if dice.chance(300_000) {
                let place = number(dice, packet.len());
                packet[place] ^= 0x10;
            }
            world.uplink(from, &packet);
        }
        9 if world.cache != Cache::Absent => {
            let caches = [Cache::Answers, Cache::Hangs, Cache::Unavailable];
            world.cache = caches[number(dice, caches.len())];
        }
        10 => world.pass(FRAME * 20),
        _ => world.pass(FRAME),
    }
}

/// All callers talk and check, and nobody else does anything.
fn peace(world: &mut World, seconds: usize) {
    for frame in 0..seconds * 10 {
        for caller in 0..4 {
            world.speak(caller);
            if frame % 20 == 0 {
                world.check(caller, true);
            }
        }
        world.pass(FRAME * 5);
    }
}

#[test]
fn whoever_sends_what_from_wherever_hijacks_nothing_and_gains_nothing() {
    let first = seed(2000);
    for number in first..first + 40 {
        let mut dice = Random::new(number, 3);
        let start = if dice.chance(300_000) {
            Cache::Absent
        } else {
            Cache::Answers
        };
        let mut world = calls(start);
        let mut overheard = Vec::new();
        for _ in 0..600 {
            step(&mut world, &mut dice, &mut overheard);
            world.check_invariants();
        }
        peace(&mut world, 70);
        world.check_invariants();
        assert_eq!((world.guests(), world.flows()), (0, 4), "seed {number}");
        for caller in 0..4 {
            assert_eq!(world.talk(caller, 10), 10, "seed {number}");
        }
    }
}
