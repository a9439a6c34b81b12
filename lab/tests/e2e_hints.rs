//! Hints: forged by the million, each refusal with its own reason, keys rotated under load.

#![cfg(test)]

use std::fs;
use std::time::Duration;

use lab::load::{Plan, Running};
use lab::net::{Network, Shape, programs_dir};
use lab::process::Usage;
use lab::raw::{Forger, ICE_CHARACTERS, RawClient, Request};
use lab::wait;
use lab::whip::{Session, bare_offer};
use pop_proto::{DropReason, Flows, FlowsConfig, Now, Routes, Source, Uplink};
use runtime::clock;
use wire::hint::{Hint, KeyId, KeyRing, Minute, UFRAG_LEN};
use wire::{ClientAddr, Owner, RegionId, TransceiverId};

const SOON: Duration = Duration::from_secs(15);
const GENERATED: u32 = 1_000_000;
const FORGED: u32 = 10_000_000;
/// After so many, everything has been touched that ever is.
const FORGED_TO_WARM_UP: u32 = 100_000;
const FORGED_AT_A_PROCESS: f64 = 1_000_000.0;
/// A process of constant memory may still touch pages it has not touched before.
const RSS_SLACK_BYTES: u64 = 4 << 20;

fn owner(region: u16, transceiver: u32) -> Owner {
    Owner {
        region: RegionId(region),
        transceiver: TransceiverId(transceiver),
    }
}

#[test]
fn a_million_ufrags_are_ice_characters() {
    let ring = KeyRing::single(KeyId::new(3).unwrap(), [0x5a; 16]);
    for number in 0..GENERATED {
        let [a, b, c, d] = number.to_be_bytes();
        let hint = Hint {
            owner: owner(u16::from(a) + 1, number + 1),
            issued: Minute(u16::from_be_bytes([c, d])),
        };
        let ufrag = ring.seal(hint, [b, c, d]);
        assert_eq!(ufrag.as_bytes().len(), UFRAG_LEN);
        assert!((4..=32).contains(&UFRAG_LEN));
        assert!(
            ufrag
                .as_bytes()
                .iter()
                .all(|own| ICE_CHARACTERS.contains(own))
        );
        assert_eq!(ring.open(ufrag.as_bytes()), Ok(hint));
    }
}

#[test]
fn ten_million_forged_hints_make_no_flow() {
    let network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    let pop = network.topology().pop_named("p1").unwrap();
    let keys = fs::read_to_string(network.credentials("p1").join("hint.keys")).unwrap();
    let ring = KeyRing::parse(&keys).unwrap();
    let minute = Minute::from_unix_s(clock::unix_s());
    let hint = Hint {
        owner: owner(1, 1),
        issued: minute,
    };
    let valid = ring.seal(hint, [1, 2, 3]);
    let routes = Routes::new(network.topology(), pop, ring);
    let start = clock::now();
    let config = FlowsConfig {
        flows_max: 1 << 16,
        hash_seed: 7,
        recovery: None,
    };
    let mut flows = Flows::new(config, start);
    let now = Now {
        instant: start,
        minute,
    };
    let mut forger = Forger::new(0x6c61_6221, valid.as_str());
    let rss_bytes = || Usage::of(std::process::id()).unwrap().rss_bytes;
    let mut rss_bytes_before = 0;
    for number in 0..FORGED {
        if number == FORGED_TO_WARM_UP {
            rss_bytes_before = rss_bytes();
        }
        let ufrag = forger.next_ufrag();
        let client = ClientAddr::new(
            (
                [192, 0, 2, 1],
                1024 + u16::try_from(number % 60_000).unwrap(),
            )
                .into(),
        );
        let check = Request::check([0; 12], &ufrag);
        let verdict =
            flows.handle_uplink(&routes, Source { client, ingress: 0 }, check.bytes(), now);
        assert!(
            matches!(
                verdict,
                Uplink::Drop(
                    DropReason::HintMalformed | DropReason::HintUnknownKey | DropReason::HintForged
                )
            ),
            "{:?} for {}",
            verdict,
            String::from_utf8_lossy(&ufrag)
        );
    }
    assert_eq!((flows.stats().flows, flows.stats().created), (0, 0));
    let grown = rss_bytes().saturating_sub(rss_bytes_before);
    eprintln!("memory: {rss_bytes_before} B before, {grown} B more after");
    assert!(grown <= RSS_SLACK_BYTES, "memory grew by {grown} B");
}

#[test]
fn a_million_forged_hints_leave_a_pop_as_it_was() {
    let network = Network::start(&Shape::default()).unwrap();
    let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    let mut forger = Forger::new(1, session.attribute("ice-ufrag").unwrap());
    let mut client = RawClient::connect(network.ingress("p1")).unwrap();
    let dropped = || -> f64 {
        let reasons = ["hint_malformed", "hint_unknown_key", "hint_forged"];
        let drops = reasons.map(|reason| network.drops("p1", reason).unwrap());
        drops.iter().sum()
    };
    let mut send_until = |goal: f64| {
        let deadline = clock::now() + Duration::from_secs(60);
        while dropped() < goal {
            assert!(
                clock::now() < deadline,
                "{} of {goal} were dropped",
                dropped()
            );
            for _ in 0..4096 {
                let check = Request::check(client.transaction_id(), &forger.next_ufrag());
                client.send(check.bytes()).unwrap();
            }
        }
    };
    // The first packets touch buffers for the first time.
    send_until(20_000.0);
    let before = network.usage("p1").unwrap();
    send_until(FORGED_AT_A_PROCESS);
    let after = network.usage("p1").unwrap();
    let grown = after.rss_bytes.saturating_sub(before.rss_bytes);
    eprintln!(
        "memory of the PoP: {} B before, {grown} B more after",
        before.rss_bytes
    );
    assert!(grown <= RSS_SLACK_BYTES);
    let metrics = network.metrics("p1").unwrap();
    assert_eq!(metrics.sum("firsthop_pop_flows", &[]), 0.0);
    assert_eq!(metrics.sum("firsthop_pop_flows_made_total", &[]), 0.0);
    assert_eq!(
        metrics.sum("firsthop_pop_packets_total", &[]),
        0.0,
        "nothing passed"
    );
    session.close().unwrap();
}

#[test]
fn every_refusal_has_its_own_reason() {
    let network = Network::start(&Shape::default()).unwrap();
    let keys = fs::read_to_string(network.credentials("p1").join("hint.keys")).unwrap();
    let ring = KeyRing::parse(&keys).unwrap();
    let now = clock::unix_s();
    let sealed = |owner, unix_s| {
        let hint = Hint {
            owner,
            issued: Minute::from_unix_s(unix_s),
        };
        ring.seal(hint, [9, 9, 9]).as_bytes().to_vec()
    };
    let good = sealed(owner(1, 1), now);
    let used: Vec<_> = (0..16)
        .filter(|id| {
            keys.lines()
                .any(|line| line.split(' ').nth(1) == Some(&id.to_string()))
        })
        .collect();
    let free = (0..16).find(|id| !used.contains(id)).unwrap();
    let unknown_key = KeyRing::single(KeyId::new(free).unwrap(), [1; 16]);
    let same_id = KeyRing::single(KeyId::new(used[0]).unwrap(), [1; 16]);
    let hint = Hint {
        owner: owner(1, 1),
        issued: Minute::from_unix_s(now),
    };
    let cases = [
        ("hint_expired", sealed(owner(1, 1), now - 2 * 24 * 3600)),
        ("hint_expired", sealed(owner(1, 1), now + 3600)),
        ("unknown_region", sealed(owner(77, 1), now)),
        ("outside_cidr", sealed(owner(1, 70_000), now)),
        (
            "hint_unknown_key",
            unknown_key.seal(hint, [0; 3]).as_bytes().to_vec(),
        ),
        (
            "hint_forged",
            same_id.seal(hint, [0; 3]).as_bytes().to_vec(),
        ),
        ("hint_malformed", good[..22].to_vec()),
        ("hint_malformed", b"evtj".to_vec()),
    ];
    let mut client = RawClient::connect(network.ingress("p1")).unwrap();
    for (reason, ufrag) in cases {
        let before = network.drops("p1", reason).unwrap();
        let check =
            Request::check(client.transaction_id(), &ufrag).sign(b"no matter which password");
        client.send(check.bytes()).unwrap();
        wait::until_true(&format!("a drop for {reason}"), SOON, || {
            network.drops("p1", reason).unwrap() == before + 1.0
        })
        .unwrap();
    }
    let without_username = Request::bare(client.transaction_id());
    client.send(without_username.bytes()).unwrap();
    client.send(&[0x80; 40]).unwrap();
    for reason in ["stun_no_username", "no_flow"] {
        wait::until_true(&format!("a drop for {reason}"), SOON, || {
            network.drops("p1", reason).unwrap() == 1.0
        })
        .unwrap();
    }
    let metrics = network.metrics("p1").unwrap();
    assert_eq!(metrics.sum("firsthop_pop_flows_made_total", &[]), 0.0);
}

#[test]
fn three_rotations_under_load_lose_nothing() {
    let network = Network::start(&Shape::default()).unwrap();
    let plan = Plan::new(network.whip("t1"), 50, Duration::from_secs(120));
    let load = Running::start(plan);
    load.wait_connected(50, SOON).unwrap();
    let file = network.credentials("p1").join("hint.keys");
    for _ in 0..3 {
        let status = std::process::Command::new(programs_dir().unwrap().join("firsthop"))
            .args(["keys", "rotate"])
            .arg(&file)
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success());
        let rotated = fs::read_to_string(&file).unwrap();
        network.rewrite_credential("hint.keys", &rotated).unwrap();
        network.reload().unwrap();
        // Longer than the interval of the client's STUN checks, all of which carry the old ufrag.
        load.wait_received(50 * 50 * 3, SOON).unwrap();
        let late = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
        late.close().unwrap();
    }
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!((report.sessions_lost, report.lost), (0, 0));
}
