//! Worker threads of running nodes: one that stalls is seen, the others go on, and their number is the operator's choice at
//! any restart.

#![cfg(test)]

use std::time::Duration;

use lab::freeze::Frozen;
use lab::load::{Plan, Running};
use lab::net::{Network, Shape};
use lab::standstill::{Figures, figures};
use lab::{http, wait};
use runtime::clock;

const SESSIONS: u64 = 20;
const SOON: Duration = Duration::from_secs(15);
/// One second of media of every session.
const SECOND: u64 = SESSIONS * 50;

fn calls(network: &Network) -> Running {
    let plan = Plan::new(
        network.whip("t1"),
        usize::try_from(SESSIONS).unwrap(),
        Duration::from_secs(120),
    );
    let load = Running::start(plan);
    load.wait_connected(SESSIONS, SOON).unwrap();
    load.wait_received(SECOND, SOON).unwrap();
    load
}

fn readiness(network: &Network, node: &str) -> (u16, String) {
    let response = http::get(&format!("{}/readyz", network.admin(node))).unwrap();
    (response.status, response.body.trim_end().to_owned())
}

fn stalled(network: &Network, node: &str, metric: &str, worker: &str) -> f64 {
    let metrics = network.metrics(node).unwrap();
    metrics.sum(metric, &[("worker", worker)])
}

#[test]
fn a_worker_that_stalls_is_seen_within_two_seconds_and_seen_to_move_again() {
    figures("a worker that stalls", stalls).unwrap();
}

fn stalls() -> Figures {
    let mut found = Figures::default();
    let shape = Shape {
        workers: 2,
        ..Shape::default()
    };
    let network = Network::start(&shape).unwrap();
    let cases = [
        ("p1", "pop-1", "1"),
        ("r1", "core-relay-1", "1"),
        ("t1", "transceiver", "engine"),
    ];
    for (node, thread, worker) in cases {
        let frozen = Frozen::thread_named(network.pid(node).unwrap(), thread).unwrap();
        let stands_still = clock::now();
        let reason = (503, format!("worker {worker} is stalled"));
        wait::until_true(&format!("{node} not to be ready"), SOON, || {
            readiness(&network, node) == reason
        })
        .unwrap();
        let took = clock::now() - stands_still;
        found.below("until it is seen", took, Duration::from_secs(2));
        let now_stalled = |metric| stalled(&network, node, metric, worker);
        assert_eq!(now_stalled("firsthop_worker_stalled"), 1.0, "{node}");
        drop(frozen);
        wait::until_true(&format!("{node} to be ready again"), SOON, || {
            readiness(&network, node) == (200, "ready".to_owned())
        })
        .unwrap();
        assert_eq!(now_stalled("firsthop_worker_stalled"), 0.0, "{node}");
        assert_eq!(now_stalled("firsthop_worker_stalls_total"), 1.0, "{node}");
        let log = network.log(node);
        let said = |text: &str| log.lines().filter(|line| line.contains(text)).count();
        assert_eq!(
            (said("worker stalled"), said("worker moves again")),
            (1, 1),
            "{node}"
        );
    }
    found
}

#[test]
fn calls_on_other_workers_go_on_while_one_is_stalled() {
    let shape = Shape {
        workers: 2,
        ..Shape::default()
    };
    let network = Network::start(&shape).unwrap();
    let load = calls(&network);
    wait::until_true("shares to be shown", SOON, || {
        let metrics = network.metrics("p1").unwrap();
        let shares = metrics.by_label("firsthop_worker_packet_share", "worker");
        shares.len() == 2 && (shares.values().sum::<f64>() - 1.0).abs() < 0.001
    })
    .unwrap();
    let metrics = network.metrics("p1").unwrap();
    let skew = metrics.sum("firsthop_worker_packet_skew", &[]);
    let shares = metrics.by_label("firsthop_worker_packet_share", "worker");
    assert!((1.0..=2.0).contains(&skew), "skew {skew}, {shares:?}");
    let workers = network.state("p1").unwrap()["workers"].clone();
    let flows_of_other = workers[0]["flows"].as_u64().unwrap();
    assert!(flows_of_other > 0, "{workers}");
    let frozen = Frozen::thread_named(network.pid("p1").unwrap(), "pop-1").unwrap();
    load.wait_received(flows_of_other * 50 * 2, SOON).unwrap();
    drop(frozen);
    load.wait_received(2 * SECOND, SOON).unwrap();
    let report = load.stop().unwrap();
    eprintln!("skew {skew}, shares {shares:?}: {report:?}");
    assert_eq!(report.sessions_lost, 0);
}

#[test]
fn another_number_of_workers_of_a_pop_costs_recovery_and_no_session() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = calls(&network);
    for workers in [2, 1] {
        network.kill("p1").unwrap();
        let mut topology = network.topology().clone();
        topology.pops[0].workers = workers;
        network.rewrite_topology(topology).unwrap();
        // Core relays learn how many links to expect.
        network.reload().unwrap();
        network.start_node("p1").unwrap();
        load.wait_received(3 * SECOND, SOON).unwrap();
        // Clients come back with an offer, or with their next check.
        wait::until_true("every client to be known again", SOON, || {
            let state = network.state("p1").unwrap();
            let shown = state["workers"].as_array().unwrap().clone();
            assert_eq!(shown.len(), usize::from(workers));
            let flows = || shown.iter().filter_map(|worker| worker["flows"].as_u64());
            flows().all(|flows| flows > 0) && flows().sum::<u64>() == SESSIONS
        })
        .unwrap();
    }
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!(report.sessions_lost, 0);
}

#[test]
fn another_number_of_workers_of_a_core_relay_costs_recovery_and_no_session() {
    let shape = Shape {
        core_relays: 1,
        ..Shape::default()
    };
    let mut network = Network::start_with(&shape, |topology| {
        topology.pops[0].workers = 2;
    })
    .unwrap();
    let load = calls(&network);
    for workers in [2, 1] {
        network.kill("r1").unwrap();
        let mut topology = network.topology().clone();
        topology.regions[0].core_relays[0].workers = workers;
        network.rewrite_topology(topology).unwrap();
        // PoPs learn which of its workers to dial.
        network.reload().unwrap();
        network.start_node("r1").unwrap();
        load.wait_received(3 * SECOND, SOON).unwrap();
        let state = network.state("r1").unwrap();
        let shown = state["workers"].as_array().unwrap();
        assert_eq!(shown.len(), usize::from(workers));
        assert!(
            shown
                .iter()
                .all(|worker| worker["records_up"].as_u64() > Some(0)),
            "{state}"
        );
    }
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!(report.sessions_lost, 0);
}
