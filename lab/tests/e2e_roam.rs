//! Clients whose address changes in the middle of a call: a NAT that gives another port, and a client that comes from another IP
//! address. The call goes on at the client's next check at the latest; when others at its address are known, at once.

#![cfg(test)]

use std::net::Ipv4Addr;
use std::time::Duration;

use lab::clients::{Client, call};
use lab::load::{Plan, Report, Running};
use lab::nat::{Nat, whip_door};
use lab::net::{Network, Shape};
use lab::redis_server::Redis;
use lab::{clients, wait};

const SOON: Duration = Duration::from_secs(60);
const SESSIONS: usize = 25;
/// Between two checks of a client ([`Plan::new`]).
const CHECK_INTERVAL_MS: f64 = 2_000.0;

/// What becomes of a client's address.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// Another port of the same address.
    Port,
    /// Another address.
    Address,
}

/// What a change cost.
#[derive(Debug)]
struct Cost {
    report: Report,
    /// Packets of clients that no transceiver heard.
    lost_up: f64,
    offered: f64,
    taken: f64,
}

/// Calls of 20 ms Opus, both ways, whose address changes once.
fn change(change: Change, offers: bool, redis: Option<&Redis>) -> Cost {
    // Two workers: another port is another worker's as often as not.
    let shape = Shape {
        workers: 2,
        ..Shape::default()
    };
    let adjust = |topology: &mut topology::Topology| {
        topology.network.offer_unknown = offers;
        if let Some(redis) = redis {
            redis.join(topology);
        }
    };
    let network = Network::start_with(&shape, adjust).unwrap();
    let mut plan = Plan::new(network.whip("t1"), SESSIONS, Duration::from_secs(60));
    plan.data_channels = false;
    let load = Running::start(plan);
    load.wait_connected(SESSIONS as u64, SOON).unwrap();
    // Every client has checked again, so that its owner was noted with the call going on.
    load.wait_received(SESSIONS as u64 * 100, SOON).unwrap();
    let address = match change {
        Change::Port => Ipv4Addr::LOCALHOST.into(),
        Change::Address => Ipv4Addr::new(127, 0, 77, 1).into(),
    };
    load.progress().move_to(address);
    load.wait_received(SESSIONS as u64 * 250, SOON).unwrap();
    let report = load.stop().unwrap();
    let pop = network.metrics("p1").unwrap();
    let transceiver = network.metrics("t1").unwrap();
    let cost = Cost {
        lost_up: transceiver.sum("firsthop_transceiver_rtp_lost_total", &[]),
        offered: pop.sum("firsthop_pop_offers_total", &[]),
        taken: pop.sum("firsthop_pop_offers_taken_total", &[]),
        report,
    };
    eprintln!(
        "{change:?}, offers {offers}, flow cache {}: silence median {:.0} ms, max {:.0} ms; {} heard before they checked; {} of {} lost ({} up); {} offered, {} taken",
        redis.is_some(),
        cost.report.gap_ms_p50,
        cost.report.gap_ms_max,
        cost.report.heard_unchecked,
        cost.report.lost,
        cost.report.sent,
        cost.lost_up,
        cost.offered,
        cost.taken,
    );
    assert_eq!(cost.report.sessions_lost, 0);
    assert_eq!(cost.report.altered, 0);
    network.wait_no_sessions("t1").unwrap();
    cost
}

/// Without offers a call waits for its client's next check, and with them it does not: a run says of each call which came first. So a machine
/// that stands still for a moment, in one run or the other, decides nothing as long as that is not half of the time between two checks.
#[test]
fn another_port_costs_next_to_nothing_and_without_offers_no_call() {
    let without = change(Change::Port, false, None);
    assert_eq!((without.offered, without.report.heard_unchecked), (0.0, 0));
    // With a flow cache the first packet is held until that has said that it does not know the client, and then offered too.
    let redis = Redis::start().unwrap();
    for redis in [None, Some(&redis)] {
        let with = change(Change::Port, true, redis);
        assert!(
            with.taken >= SESSIONS as f64,
            "every call was taken by offer"
        );
        let heard = with.report.heard_unchecked;
        assert!(heard * 2 > SESSIONS, "{heard} of {SESSIONS} calls");
        assert!(with.report.gap_ms_p50 < CHECK_INTERVAL_MS, "{with:?}");
        // What is lost is counted at the pace of the clients, all calls together.
        assert!(with.lost_up * 2.0 < without.lost_up);
    }
}

/// A check some seconds after the change at the latest, and a second for media to follow where the client does not nominate. With offers
/// the first of them to check opens the way for all at that address.
#[test]
fn another_address_is_followed_at_the_next_check() {
    for offers in [false, true] {
        let cost = change(Change::Address, offers, None);
        assert!(cost.report.gap_ms_max < 6_000.0, "{cost:?}");
    }
}

/// What a NAT saw first after it had given another port: times since then.
#[derive(Clone, Copy, Debug)]
struct Passed {
    check_up: Option<Duration>,
    media_down: Duration,
}

/// A browser behind a NAT that forgets its port: what the NAT sees pass afterwards.
fn chromium(offers: bool) -> Passed {
    let adjust = |topology: &mut topology::Topology| topology.network.offer_unknown = offers;
    let network = Network::start_with(&Shape::default(), adjust).unwrap();
    let ingress = network.ingress("p1");
    let std::net::IpAddr::V4(ip) = ingress.ip() else {
        panic!("loopback")
    };
    let [a, b, _, d] = ip.octets();
    let front = (Ipv4Addr::new(a, b, 51, d), ingress.port()).into();
    let nat = Nat::start(front, ingress, Ipv4Addr::new(a, b, 52, d).into()).unwrap();
    let (_, node) = network.topology().transceiver_named("t1").unwrap();
    let door = whip_door(node.whip, ingress, front).unwrap();
    let whip = format!("http://{door}/whip");
    let result = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            let plan = clients::Plan {
                whip: &whip,
                seconds: 12,
                actions: &[],
                only: None,
            };
            call(Client::Chromium, &plan).unwrap()
        });
        let talking = || {
            let sessions = network.sessions("t1").unwrap();
            sessions
                .first()
                .is_some_and(|session| session["rtp_in"].as_u64() > Some(150))
        };
        wait::until_true("the browser to talk", SOON, talking).unwrap();
        nat.rebind();
        calling.join().unwrap()
    });
    let passed = nat.passed();
    let since = |at: Option<std::time::Instant>| {
        at.zip(passed.changed)
            .map(|(at, changed)| at.duration_since(changed))
    };
    let (up, check_up) = (since(passed.media_up), since(passed.check_up));
    let media_down = since(passed.media_down).unwrap();
    eprintln!(
        "Chromium, offers {offers}: after the change media up {up:?}, check up {check_up:?}, media down {media_down:?}; {} of {} lost in all",
        result["sent"].as_u64().unwrap() - result["received"].as_u64().unwrap(),
        result["sent"],
    );
    assert_eq!(result["state"], "connected");
    assert_eq!(result["remote"], nat.front().to_string());
    assert_eq!(result["deleted"], 200);
    Passed {
        check_up,
        media_down,
    }
}

#[test]
fn chromium_hears_on_when_its_nat_gives_it_another_port() {
    let without = chromium(false);
    let waited = without.check_up.unwrap();
    assert!(waited < without.media_down, "its next check: {without:?}");
    assert!(without.media_down < Duration::from_secs(4), "{without:?}");
    // Its next check is some time in the 2.5 s that follow: at once, if luck will have it.
    let with = chromium(true);
    let unchecked = with.check_up.is_none_or(|check| with.media_down < check);
    let at_once = with.media_down < Duration::from_millis(500);
    assert!(unchecked || at_once, "{with:?}");
}
