//! Timed round trips against the truth: an invented client at an invented distance, IPv4 and IPv6, with loss, retransmissions that cross and a client that
//! takes its time.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails loudly"
)]

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pop_proto::{Flows, FlowsConfig, Now, Routes, Sample, Source};
use wire::hint::{KeyId, KeyRing, Minute};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");
const OWNER: Owner = Owner {
    region: RegionId(1),
    transceiver: TransceiverId(1),
};
const CLIENTS: [&str; 2] = ["192.0.2.7:4000", "[2001:db8:1:2::7]:4000"];
/// Messages of each flight of a handshake with a cookie, by whose turn it is: the client begins.
const FLIGHTS: [&[(u8, u8)]; 5] = [
    &[(1, 0)],
    &[(3, 0)],
    &[(1, 1)],
    &[(2, 1), (11, 2), (12, 3), (14, 4)],
    &[(11, 2), (16, 3)],
];

struct Pop {
    flows: Flows,
    routes: Routes,
    client: ClientAddr,
    start: Instant,
}

impl Pop {
    #[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
    fn new(client: &str) -> Self {
        let topology = topology::load(LOCAL, "local.yaml").unwrap();
        let start = Instant::now();
        let config = FlowsConfig {
            flows_max: 100,
            hash_seed: 7,
            recovery: None,
        };
        let keys = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let client = ClientAddr::new(client.parse::<SocketAddr>().unwrap());
        let mut pop = Self {
            flows: Flows::new(config, start),
            routes: Routes::new(&topology, &topology.pops[0], keys),
            client,
            start,
        };
        // Its owner has answered: the flow is committed.
        pop.down(0, &[0x80, 0, 0, 0]);
        pop
    }

    fn now(&self, us: u64) -> Now {
        Now {
            instant: self.start + Duration::from_micros(us),
            minute: Minute(1),
        }
    }

    fn up(&mut self, us: u64, packet: &[u8]) {
        let from = Source {
            client: self.client,
            ingress: 0,
        };
        let now = self.now(us);
        self.flows.handle_uplink(&self.routes, from, packet, now);
    }

    fn down(&mut self, us: u64, packet: &[u8]) {
        let header = RecordHeader {
            owner: OWNER,
            tag: Tag {
                pop: PopId(1),
                worker: 0,
                ingress: 0,
            },
            client: self.client,
            hops: 0,
            fragment: None,
            offered: false,
        };
        let now = self.now(us);
        self.flows.handle_downlink(&header, packet, now);
    }

    /// The sample of the window that has gone by.
    fn sample(mut self) -> Option<Sample> {
        let mut us = 0;
        while us < 60_000_000 && self.flows.stats().timing.samples == 0 {
            us += 20_000;
            let now = self.now(us);
            self.flows.handle_timeout(now);
        }
        let sample = self.flows.next_sample();
        assert!(self.flows.next_sample().is_none(), "one for each window");
        sample
    }
}

fn handshake(kind: u8, number: u8) -> Vec<u8> {
    let mut packet = vec![22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 20];
    packet.extend([
        kind, 0, 0, 8, 0, number, 0, 0, 0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8,
    ]);
    packet
}

fn stun(kind: u16, id: u8) -> Vec<u8> {
    let mut packet = kind.to_be_bytes().to_vec();
    packet.extend([0, 0, 0x21, 0x12, 0xa4, 0x42]);
    packet.extend([id; 12]);
    packet
}

/// What a world is like, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Conditions {
    /// PoP to client, and back to it.
    one_way: u64,
    /// PoP to owner.
    backbone: u64,
    /// How long the client thinks about the certificate.
    thinks: u64,
    client_timer: u64,
    owner_timer: u64,
    loss_percent: u64,
}

/// A handshake, packet by packet. Whose turn it is sends its flight again at its timer until all of the other's next flight has come.
fn run_handshake(pop: &mut Pop, world: Conditions, random: &mut impl FnMut(u64) -> u64) {
    // What passes at the PoP, and when: in order, whatever was sent first.
    let mut passages: Vec<(u64, bool, Vec<u8>)> = Vec::new();
    let mut begins = 1000;
    for (turn, flight) in FLIGHTS.iter().enumerate() {
        let by_client = turn.is_multiple_of(2);
        let (to_pop, from_pop, timer) = if by_client {
            (world.one_way, world.backbone, world.client_timer)
        } else {
            (world.backbone, world.one_way, world.owner_timer)
        };
        let mut missing: BTreeSet<usize> = (0..flight.len()).collect();
        let (mut sent, mut whole) = (begins, 0);
        // Goes on sending for as long as the other's answer is under way.
        while !missing.is_empty() || sent < whole + to_pop + from_pop {
            for (index, (kind, number)) in flight.iter().enumerate() {
                if random(100) < world.loss_percent {
                    continue;
                }
                passages.push((sent + to_pop, by_client, handshake(*kind, *number)));
                if random(100) >= world.loss_percent && missing.remove(&index) {
                    whole = whole.max(sent + to_pop + from_pop);
                }
            }
            sent += timer;
        }
        let thinks = if turn == 3 { world.thinks } else { 0 };
        begins = whole + thinks;
    }
    passages.sort_by_key(|(at, ..)| *at);
    for (at, up, packet) in passages {
        if up {
            pop.up(at, &packet);
        } else {
            pop.down(at, &packet);
        }
    }
}

fn xorshift(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

#[test]
fn without_loss_a_handshake_tells_the_truth_to_the_microsecond() {
    for client in CLIENTS {
        for one_way in [0, 500, 20_000, 150_000] {
            let world = Conditions {
                one_way,
                backbone: 40_000,
                thinks: 8000,
                client_timer: 10_000_000,
                owner_timer: 10_000_000,
                loss_percent: 0,
            };
            let mut pop = Pop::new(client);
            run_handshake(&mut pop, world, &mut xorshift(1));
            let address = pop.client;
            let truth = u32::try_from(one_way * 2).unwrap().max(1);
            assert_eq!(
                pop.sample(),
                Some(Sample::of(address, truth)),
                "{client} {one_way}"
            );
        }
    }
}

#[test]
fn loss_and_impatience_never_make_a_round_trip_shorter() {
    let (mut exact, mut timed) = (0, 0);
    for seed in 1..=400u64 {
        let mut random = xorshift(seed * 0x9e37_79b9);
        let world = Conditions {
            one_way: 1000 + random(200_000),
            backbone: 1000 + random(100_000),
            thinks: random(20_000),
            // Far shorter than the round trip, at times.
            client_timer: 50_000 + random(1_000_000),
            owner_timer: 50_000 + random(1_000_000),
            loss_percent: random(30),
        };
        let client = CLIENTS[usize::try_from(seed % 2).unwrap()];
        let mut pop = Pop::new(client);
        run_handshake(&mut pop, world, &mut random);
        let Some(sample) = pop.sample() else {
            continue;
        };
        timed += 1;
        let truth = u32::try_from(world.one_way * 2).unwrap();
        assert!(
            sample.rtt_us >= truth,
            "{seed}: {} of {world:?}",
            sample.rtt_us
        );
        exact += u32::from(sample.rtt_us == truth);
    }
    println!("of 400 handshakes {timed} were timed, {exact} of them to the microsecond");
    assert!(timed >= 380, "{timed}");
    assert!(exact >= timed / 2, "{exact} of {timed}");
}

#[test]
fn checks_of_an_owner_tell_the_truth_and_the_least_counts() {
    for client in CLIENTS {
        let mut pop = Pop::new(client);
        for (id, sent, took) in [
            (1, 10_000, 45_000),
            (2, 2_000_000, 40_000),
            (3, 4_000_000, 90_000),
        ] {
            pop.down(sent, &stun(0x0001, id));
            pop.down(sent + 30_000, &stun(0x0001, id));
            pop.up(sent + took, &stun(0x0101, id));
        }
        let address = pop.client;
        assert_eq!(pop.sample(), Some(Sample::of(address, 40_000)), "{client}");
    }
}

#[test]
fn a_client_that_is_not_committed_is_not_timed() {
    let mut pop = Pop::new(CLIENTS[0]);
    let stranger = ClientAddr::new(([192, 0, 2, 8], 4000).into());
    pop.client = stranger;
    // A request of an owner proves nothing of the client, and makes no flow.
    pop.down(0, &stun(0x0001, 1));
    pop.up(1000, &stun(0x0101, 1));
    assert_eq!(pop.flows.stats().flows, 1);
    assert_eq!(pop.sample(), None);
}

#[test]
fn owners_are_timed_by_the_checks_of_their_clients() {
    let mut pop = Pop::new(CLIENTS[0]);
    let keys = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
    let hint = wire::hint::Hint {
        owner: OWNER,
        issued: Minute(1),
    };
    let ufrag = keys.seal(hint, [1, 2, 3]);
    let request = pop_proto::fuzz::binding_request(ufrag.as_bytes());
    let id = request[8..20].to_vec();
    let mut answer = stun(0x0101, 0);
    answer[8..20].copy_from_slice(&id);
    for (sent, took) in [(10_000, 31_000), (2_500_000, 30_500), (5_000_000, 80_000)] {
        pop.up(sent, &request);
        pop.down(sent + took, &answer);
    }
    let told: Vec<_> = pop.flows.owner_rtts().collect();
    assert_eq!(told, [(RegionId(1), 30_500)]);
    assert_eq!(pop.flows.stats().timing.owner_samples, 3);
}
