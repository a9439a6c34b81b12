//! Nodes die, drain and come back in the middle of calls. Gaps are seen by the load client: echo to echo.

#![cfg(test)]

use std::time::Duration;

use lab::clients::{self, Client};
use lab::load::{Farewell, Plan, Running};
use lab::net::{Network, Shape};
use lab::standstill::{Figures, figures};
use lab::wait;

const SESSIONS: u64 = 20;
const SOON: Duration = Duration::from_secs(15);
/// The longest silence of a call that loses nothing but a core relay.
const GAP_MS_MAX: f64 = 1000.0;
/// One second of media of every session.
const SECOND: u64 = SESSIONS * 50;

/// A load that goes on until it is stopped, with media flowing in every session.
fn calls(network: &Network) -> Running {
    calls_of(network, SESSIONS)
}

fn calls_of(network: &Network, sessions: u64) -> Running {
    let plan = Plan::new(
        network.whip("t1"),
        usize::try_from(sessions).unwrap(),
        Duration::from_secs(120),
    );
    let load = Running::start(plan);
    load.wait_connected(sessions, SOON).unwrap();
    load.wait_received(50 * sessions, SOON).unwrap();
    load
}

#[test]
fn calls_outlive_the_death_of_their_pop() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = calls(&network);
    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    let made = || {
        let metrics = network.metrics("p1").unwrap();
        metrics.sum("firsthop_pop_flows_made_total", &[])
    };
    let all = SESSIONS as f64;
    wait::until_true("every flow to be learned again", SOON, || made() >= all).unwrap();
    load.wait_received(3 * SECOND, SOON).unwrap();
    assert_eq!(made(), all, "once");
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!(report.sessions_lost, 0);
}

#[test]
fn calls_outlive_the_death_of_a_pop_of_several_workers() {
    let shape = Shape {
        workers: 2,
        ..Shape::default()
    };
    let mut network = Network::start(&shape).unwrap();
    let load = calls(&network);
    let workers = network.state("p1").unwrap()["workers"]
        .as_array()
        .unwrap()
        .clone();
    assert_eq!(workers.len(), 2);
    assert!(
        workers
            .iter()
            .all(|worker| worker["flows"].as_u64() > Some(0)),
        "{workers:?}"
    );
    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    load.wait_received(3 * SECOND, SOON).unwrap();
    assert_eq!(load.stop().unwrap().sessions_lost, 0);
}

#[test]
fn the_death_of_a_core_relay_is_a_gap_of_less_than_a_second() {
    figures("the death of a core relay", core_relay_dies).unwrap();
}

fn core_relay_dies() -> Figures {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = calls(&network);
    for relay in ["r1", "r2"] {
        network.kill(relay).unwrap();
        load.wait_received(2 * SECOND, SOON).unwrap();
        network.start_node(relay).unwrap();
        wait_link_up(&network, relay);
        load.wait_received(SECOND, SOON).unwrap();
    }
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!(report.sessions_lost, 0);
    let mut found = Figures::default();
    found.below("longest silence, ms", report.gap_ms_max, GAP_MS_MAX);
    found
}

#[test]
fn calls_outlive_the_death_of_their_only_core_relay() {
    let shape = Shape {
        core_relays: 1,
        ..Shape::default()
    };
    let mut network = Network::start(&shape).unwrap();
    let load = calls(&network);
    network.kill("r1").unwrap();
    network.start_node("r1").unwrap();
    load.wait_received(2 * SECOND, SOON).unwrap();
    assert_eq!(load.stop().unwrap().sessions_lost, 0);
}

#[test]
fn draining_a_core_relay_loses_nothing() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = calls(&network);
    network.terminate("r1").unwrap();
    let status = network.wait_end("r1").unwrap();
    assert_eq!(status.code(), Some(0));
    load.wait_received(2 * SECOND, SOON).unwrap();
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!((report.sessions_lost, report.lost), (0, 0));
}

#[test]
fn a_draining_pop_serves_its_calls_takes_no_other_and_ends() {
    // The last one has a worker without any call.
    for (workers, sessions) in [(1, SESSIONS), (2, SESSIONS), (3, 2)] {
        let what = format!("a draining PoP of {workers} workers");
        figures(&what, || pop_drains(workers, sessions)).unwrap();
    }
}

fn pop_drains(workers: u8, sessions: u64) -> Figures {
    let shape = Shape {
        workers,
        ..Shape::default()
    };
    let mut network = Network::start_with(&shape, |topology| {
        // Longer than all of this takes: it ends because its calls have ended.
        topology.network.drain_max_s = 15;
    })
    .unwrap();
    let load = calls_of(&network, sessions);
    network.terminate("p1").unwrap();
    wait::until_true("p1 to drain", SOON, || {
        let state = network.state("p1").unwrap();
        let mut workers = state["workers"].as_array().unwrap().iter();
        workers.all(|worker| worker["draining"] == true)
    })
    .unwrap();
    let mut stranger = lab::raw::RawClient::connect(network.ingress("p1")).unwrap();
    let session =
        lab::whip::Session::open(&network.whip("t1"), &lab::whip::bare_offer(), None).unwrap();
    let (ufrag, pwd) = (
        session.attribute("ice-ufrag").unwrap(),
        session.attribute("ice-pwd").unwrap(),
    );
    let answered = stranger.answers_until_check(ufrag, pwd, Duration::from_millis(600));
    assert!(answered.is_err(), "a draining PoP took a client");
    load.wait_received(2 * 50 * sessions, SOON).unwrap();
    let report = load.stop().unwrap();
    eprintln!("{workers} workers: {report:?}");
    assert_eq!((report.sessions_lost, report.lost), (0, 0));
    assert_eq!(network.wait_end("p1").unwrap().code(), Some(0));
    let mut found = Figures::default();
    found.below("longest silence, ms", report.gap_ms_max, GAP_MS_MAX);
    found
}

#[test]
fn a_draining_transceiver_takes_no_offer_and_ends() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = calls(&network);
    network.terminate("t1").unwrap();
    let refused = wait::until("offers to be refused", SOON, || {
        lab::whip::post(&network.whip("t1"), &lab::whip::bare_offer(), None)
            .ok()
            .filter(|response| response.status == 503)
    })
    .unwrap();
    assert!(refused.header("retry-after").is_some());
    assert_eq!(network.wait_end("t1").unwrap().code(), Some(0));
    // Its sessions are gone with it, and so is whom to DELETE them from.
    drop(load.stop());
}

#[test]
fn a_browser_goes_on_talking_when_its_pop_dies() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let whip = network.whip("t1");
    let call = std::thread::spawn(move || {
        let plan = clients::Plan {
            whip: &whip,
            seconds: 15,
            actions: &[],
            only: None,
        };
        clients::call(Client::Chromium, &plan)
    });
    wait::until_true("the browser to talk", Duration::from_secs(40), || {
        let sessions = network.sessions("t1").unwrap();
        let talks = |session: &serde_json::Value| session["rtp_in"].as_u64() > Some(150);
        call.is_finished() || sessions.first().is_some_and(talks)
    })
    .unwrap();
    if call.is_finished() {
        panic!("it ended early: {:?}", call.join().unwrap());
    }
    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    let result = call.join().unwrap().unwrap();
    eprintln!("{result}");
    assert_eq!(result["state"], "connected");
    let timeline = result["timeline"].as_array().unwrap().iter();
    let received: Vec<_> = timeline.map(|count| count.as_u64().unwrap()).collect();
    let [.., before, _, last] = received.as_slice() else {
        panic!("a call of 15 s has a timeline")
    };
    assert!(last - before >= 80, "audio flows at the end: {received:?}");
}

#[test]
fn sessions_of_clients_that_are_closed_or_vanish_are_reaped() {
    let network = Network::start(&Shape::default()).unwrap();
    for (farewell, reaped_after_s_max) in [(Farewell::CloseOnly, 10), (Farewell::Vanish, 30)] {
        let plan = Plan {
            farewell,
            ..Plan::new(network.whip("t1"), 5, Duration::from_secs(1))
        };
        assert_eq!(Running::start(plan).finish().unwrap().sessions_lost, 0);
        let deadline = Duration::from_secs(reaped_after_s_max);
        wait::until_true(
            &format!("sessions to be reaped after {farewell:?}"),
            deadline,
            || network.sessions("t1").unwrap().is_empty(),
        )
        .unwrap();
    }
}

fn wait_link_up(network: &Network, relay: &str) {
    wait::until_true("the link to come up", SOON, || {
        network
            .metrics("p1")
            .is_ok_and(|metrics| metrics.sum("firsthop_pop_link_up", &[("relay", relay)]) >= 1.0)
    })
    .unwrap();
}
