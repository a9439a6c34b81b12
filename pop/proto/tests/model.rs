//! Random sequences of inputs against a model that works out the expected verdicts itself: maps, milliseconds and the rules as the
//! design states them; no index, no table, no list.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

#[path = "model/model.rs"]
mod model;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use pop_proto::fuzz::binding_request;
use pop_proto::{
    Answer, Command, DropReason, Flows, FlowsConfig, Now, RecoveryConfig, Routes, Source, Uplink,
};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
use wire::hint::{Hint, KeyId, KeyRing, Minute};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

use crate::model::{Act, Model, Payload};

const LOCAL: &str = include_str!("../../../topology/samples/local.yaml");
const SEED: [u8; 32] = *b"firsthop flow model seed no. one";
const MINUTE: Minute = Minute(30_000);
/// Old enough to make no flow.
const OLD: Minute = Minute(MINUTE.0 - 2000);

/// A world as small as it must be for its bounds to be met.
#[derive(Clone, Copy, Debug)]
struct Scale {
    flows_max: u32,
    clients: u16,
    owners: u8,
    hints: u8,
    /// How many of the inputs are checks, in relation to others.
    checks: u32,
    recovery: bool,
}

const SCALES: [Scale; 4] = [
    Scale {
        flows_max: 64,
        clients: 3,
        owners: 3,
        hints: 4,
        checks: 6,
        recovery: true,
    },
    Scale {
        flows_max: 8,
        clients: 12,
        owners: 3,
        hints: 4,
        checks: 6,
        recovery: true,
    },
    Scale {
        flows_max: 120,
        clients: 90,
        owners: 2,
        hints: 2,
        checks: 6,
        recovery: false,
    },
    Scale {
        flows_max: 120,
        clients: 40,
        owners: 1,
        hints: 1,
        checks: 100,
        recovery: true,
    },
];

fn act(scale: Scale) -> impl Strategy<Value = Act> {
    let client = || 0..scale.clients;
    let owner = || 0..scale.owners;
    let ingress = || 0..2u8;
    let payload = prop_oneof![
        Just(Payload::Media),
        Just(Payload::Success),
        Just(Payload::Error)
    ];
    let answer = prop_oneof![
        2 => owner().prop_map(Some).prop_map(Ok),
        1 => Just(Ok(None)),
        1 => Just(Err(())),
    ];
    // Times around the ones that matter, in tenths of a second.
    let tenths = prop_oneof![8 => 1..12u32, 4 => 40..60u32, 3 => 95..110u32, 2 => 290..320u32, 1 => 590..620u32];
    prop_oneof![
        scale.checks => (client(), ingress(), owner(), 0..scale.hints, prop::bool::weighted(0.1))
            .prop_map(|(client, ingress, owner, hint, old)| Act::Check { client, ingress, owner, hint, old }),
        8 => (client(), ingress(), prop::bool::weighted(0.9))
            .prop_map(|(client, ingress, media)| Act::Other { client, ingress, media }),
        8 => (client(), ingress(), owner(), payload)
            .prop_map(|(client, ingress, owner, payload)| Act::Down { client, ingress, owner, payload }),
        1 => (client(), ingress(), owner())
            .prop_map(|(client, ingress, owner)| Act::End { client, ingress, owner }),
        3 => (client(), ingress(), answer)
            .prop_map(|(client, ingress, answer)| Act::Answer { client, ingress, answer }),
        4 => tenths.prop_map(Act::Pass),
    ]
}

fn scripts() -> impl Strategy<Value = (Scale, Vec<Act>)> {
    prop::sample::select(&SCALES[..])
        .prop_flat_map(|scale| (Just(scale), prop::collection::vec(act(scale), 1..300)))
}

#[test]
fn verdicts_are_those_of_the_model() {
    let config = ProptestConfig {
        cases: 600,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let seen = RefCell::new(BTreeSet::new());
    TestRunner::new_with_rng(config, rng)
        .run(&scripts(), |(scale, script)| compare(scale, &script, &seen))
        .unwrap();
    let seen = seen.into_inner();
    for reason in [
        DropReason::HintExpired,
        DropReason::TableFull,
        DropReason::TentativeFull,
        DropReason::TentativeHint,
        DropReason::NoFlow,
        DropReason::NotCommitted,
        DropReason::Ended,
        DropReason::Uncached,
        DropReason::Unanswered,
        DropReason::QuestionsFull,
        DropReason::HoldFull,
        DropReason::HoldClientFull,
    ] {
        let name = format!("{:?}", Uplink::Drop(reason));
        assert!(seen.contains(&name), "no script led to {name}: {seen:?}");
    }
    for name in ["alone", "shared", "Hold"] {
        assert!(seen.contains(name), "no script led to {name}");
    }
}

fn compare(
    scale: Scale,
    script: &[Act],
    seen: &RefCell<BTreeSet<String>>,
) -> Result<(), TestCaseError> {
    let mut real = Real::new(scale);
    let mut model = Model::new(scale.flows_max as usize, scale.recovery);
    for (step, act) in script.iter().enumerate() {
        let (expected, found) = (model.step(*act), real.step(*act));
        prop_assert_eq!(&found, &expected, "step {}: {:?}", step, act);
        let stats = real.flows.stats();
        prop_assert_eq!(
            stats.flows,
            model.flows() as u64,
            "step {}: {:?}",
            step,
            act
        );
        prop_assert_eq!(stats.tentative, model.tentative() as u64);
        seen.borrow_mut()
            .extend(found.verdict.map(|verdict| match verdict {
                Uplink::Forward { also: None, .. } => "alone".to_owned(),
                Uplink::Forward { also: Some(_), .. } => "shared".to_owned(),
                Uplink::Hold | Uplink::Offer { .. } | Uplink::Drop(_) => format!("{verdict:?}"),
            }));
    }
    Ok(())
}

/// What a step led to. Packets of several clients may be released by one step: in order of clients, and for one client in order.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    verdict: Option<Uplink>,
    commands: Vec<Command>,
    released: Vec<(u16, Uplink)>,
}

struct Real {
    flows: Flows,
    routes: Routes,
    keys: KeyRing,
    now: Now,
}

impl Real {
    fn new(scale: Scale) -> Self {
        let topology = topology::load(LOCAL, "local.yaml").unwrap();
        let pop = topology.pop_named("sin").unwrap();
        let keys = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let start = start();
        let config = FlowsConfig {
            flows_max: scale.flows_max,
            hash_seed: 42,
            recovery: scale.recovery.then(recovery),
        };
        let mut real = Self {
            flows: Flows::new(config, start),
            routes: Routes::new(&topology, pop, keys.clone()),
            keys,
            now: Now {
                instant: start,
                minute: MINUTE,
            },
        };
        // Between two tenths of a second, so that the expiry hand has been everywhere when anything happens.
        real.now.instant += Duration::from_millis(80);
        real
    }

    fn step(&mut self, act: Act) -> Outcome {
        let verdict = self.act(act);
        let commands = std::iter::from_fn(|| self.flows.next_command()).collect();
        let mut released = Vec::new();
        while let Some(packet) = self.flows.next_released(&self.routes, self.now) {
            released.push((packet.client.port() - 1, packet.verdict));
        }
        released.sort_by_key(|(client, _)| *client);
        Outcome {
            verdict,
            commands,
            released,
        }
    }

    fn act(&mut self, act: Act) -> Option<Uplink> {
        let now = self.now;
        match act {
            Act::Check {
                client,
                ingress,
                owner,
                hint,
                old,
            } => {
                let issued = if old { OLD } else { MINUTE };
                let owner = owner_of(owner);
                let ufrag = self.keys.seal(Hint { owner, issued }, [hint; 3]);
                let packet = binding_request(ufrag.as_bytes());
                Some(self.up(client, ingress, &packet))
            }
            Act::Other {
                client,
                ingress,
                media,
            } => Some(self.up(client, ingress, &[if media { 0x80 } else { 0x40 }, 1])),
            Act::Down {
                client,
                ingress,
                owner,
                payload,
            } => {
                let mut packet = binding_request(b"abcd");
                match payload {
                    Payload::Media => packet = vec![0x80, 1],
                    Payload::Success => packet.splice(..2, [1, 1]).for_each(drop),
                    Payload::Error => packet.splice(..2, [1, 0x11]).for_each(drop),
                }
                let header = header(client, ingress, owner);
                self.flows.handle_downlink(&header, &packet, now);
                None
            }
            Act::End {
                client,
                ingress,
                owner,
            } => {
                self.flows.handle_end(&header(client, ingress, owner), now);
                None
            }
            Act::Answer {
                client,
                ingress,
                answer,
            } => {
                let answer = match answer {
                    Ok(Some(owner)) => Answer::Owner(owner_of(owner)),
                    Ok(None) => Answer::Unknown,
                    Err(()) => Answer::Unavailable,
                };
                let client = client_of(client);
                self.flows
                    .handle_answer(&self.routes, client, ingress, answer, now);
                None
            }
            Act::Pass(tenths) => {
                for _ in 0..tenths * 5 {
                    self.now.instant += Duration::from_millis(20);
                    self.flows.handle_timeout(self.now);
                }
                None
            }
        }
    }

    fn up(&mut self, client: u16, ingress: u8, packet: &[u8]) -> Uplink {
        let client = client_of(client);
        let from = Source { client, ingress };
        self.flows
            .handle_uplink(&self.routes, from, packet, self.now)
    }
}

/// Without rates: they have tests of their own.
fn recovery() -> RecoveryConfig {
    RecoveryConfig {
        questions_max: 4,
        held_max: 6,
        held_per_client_max: 3,
        per_prefix_per_s: 1_000_000,
        per_prefix_burst: 1_000_000,
        per_s: 1_000_000,
        burst: 1_000_000,
        ..RecoveryConfig::new(Duration::from_secs(60))
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
fn start() -> Instant {
    Instant::now()
}

fn client_of(client: u16) -> ClientAddr {
    ClientAddr::new(SocketAddr::from(([198, 51, 100, 7], client + 1)))
}

fn owner_of(owner: u8) -> Owner {
    Owner {
        region: RegionId(1),
        transceiver: TransceiverId(u32::from(owner) + 1),
    }
}

fn header(client: u16, ingress: u8, owner: u8) -> RecordHeader {
    RecordHeader {
        owner: owner_of(owner),
        tag: Tag {
            pop: PopId(3),
            worker: 0,
            ingress,
        },
        client: client_of(client),
        hops: 1,
        fragment: None,
        offered: false,
    }
}
