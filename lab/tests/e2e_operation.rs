//! What an operator does to running nodes: reload, wrong files, ports that are taken.

#![cfg(test)]

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use lab::load::{Plan, Running};
use lab::net::{Network, Shape};
use lab::wait;

const SOON: Duration = Duration::from_secs(15);

#[test]
fn reload_under_load_loses_nothing() {
    let mut network = Network::start(&Shape::default()).unwrap();
    let load = Running::start(Plan::new(network.whip("t1"), 50, Duration::from_secs(120)));
    load.wait_connected(50, SOON).unwrap();
    for hint_age_max_min in [1000, 1100, 1200] {
        let mut topology = network.topology().clone();
        topology.network.hint_age_max_min = hint_age_max_min;
        network.rewrite_topology(topology).unwrap();
        network.reload().unwrap();
        load.wait_received(50 * 50, SOON).unwrap();
    }
    let report = load.stop().unwrap();
    assert_eq!((report.sessions_lost, report.lost), (0, 0), "{report:?}");
}

#[test]
fn new_certificates_are_taken_without_losing_a_packet() {
    let network = Network::start(&Shape::default()).unwrap();
    let load = Running::start(Plan::new(network.whip("t1"), 20, Duration::from_secs(120)));
    load.wait_connected(20, SOON).unwrap();
    network.renew_certificates().unwrap();
    network.reload().unwrap();
    load.wait_received(20 * 50 * 2, SOON).unwrap();
    let report = load.stop().unwrap();
    assert_eq!((report.sessions_lost, report.lost), (0, 0), "{report:?}");
}

#[test]
fn a_bad_file_changes_nothing() {
    let mut network = Network::start(&Shape::default()).unwrap();
    network.expect_error("configuration not reloaded");
    let good = fs::read_to_string(network.topology_file()).unwrap();
    fs::write(
        network.topology_file(),
        good.replace("hint_age_max_min", "hint_rage_max_min"),
    )
    .unwrap();
    network.reload().unwrap();
    for node in ["p1", "r1", "t1"] {
        let metrics = network.metrics(node).unwrap();
        let refused = metrics.sum("firsthop_config_reloads_total", &[("result", "refused")]);
        assert!(refused >= 1.0, "{node}");
        let complaint = network.log(node);
        let complaint = complaint
            .lines()
            .find(|line| line.contains("not reloaded"))
            .unwrap();
        assert!(
            complaint.contains("topology.yaml:") && complaint.contains("hint_rage_max_min"),
            "{complaint}"
        );
    }
    let load = Running::start(Plan::new(network.whip("t1"), 5, Duration::from_secs(1)));
    assert_eq!(load.finish().unwrap().sessions_lost, 0);
}

#[test]
fn a_pop_with_a_certificate_of_another_authority_gets_no_link() {
    let other = Network::prepare(&Shape::default(), |_| {}).unwrap();
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(
            other.credentials("p1").join(file),
            network.credentials("p1").join(file),
        )
        .unwrap();
    }
    for node in ["r1", "r2", "t1"] {
        network.start_node(node).unwrap();
    }
    network.spawn_node("p1").unwrap();
    wait::until_true("refused links", SOON, || {
        ["r1", "r2"].iter().all(|relay| {
            let metrics = network.metrics(relay).unwrap();
            metrics.sum("firsthop_core_relay_links_refused_total", &[]) > 0.0
        })
    })
    .unwrap();
    let metrics = network.metrics("p1").unwrap();
    assert_eq!(metrics.sum("firsthop_pop_link_up", &[]), 0.0);
    let ready = lab::http::get(&format!("{}/readyz", network.admin("p1"))).unwrap();
    assert_eq!(ready.status, 503, "{}", ready.body);
}

#[test]
fn a_pop_with_the_certificate_of_another_node_gets_no_link() {
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for node in ["r1", "r2", "t1"] {
        network.start_node(node).unwrap();
    }
    for file in ["cert.pem", "key.pem"] {
        fs::copy(
            network.credentials("t1").join(file),
            network.credentials("p1").join(file),
        )
        .unwrap();
    }
    let refusal = network.refusal("p1", 2).unwrap();
    assert!(refusal.contains("p1"), "{refusal}");
}

#[test]
fn a_taken_port_is_one_line_and_exit_code_1() {
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    let topology = network.topology();
    let (region, relay) = topology.core_relay_named("r1").unwrap();
    let transceiver = &region.transceivers.nodes[0];
    let udp = |address| UdpSocket::bind(address).unwrap();
    let taken_udp = [
        ("p1", udp(network.ingress("p1"))),
        ("r1", udp((relay.address, relay.link_port).into())),
        (
            "t1",
            udp((transceiver.address, region.transceivers.port).into()),
        ),
    ];
    for (node, _) in &taken_udp {
        let line = network.refusal(node, 1).unwrap();
        assert!(line.contains("in use"), "{node}: {line}");
    }
    drop(taken_udp);
    let taken_tcp = [
        (
            "p1",
            TcpListener::bind(network.topology().pops[0].admin).unwrap(),
        ),
        (
            "t1",
            TcpListener::bind(network.topology().transceiver_named("t1").unwrap().1.whip).unwrap(),
        ),
    ];
    for (node, _) in &taken_tcp {
        let line = network.refusal(node, 1).unwrap();
        assert!(line.contains("in use"), "{node}: {line}");
    }
    // Nothing was left behind: every node starts where it was refused.
    drop(taken_tcp);
    for node in ["r1", "r2", "t1", "p1"] {
        network.start_node(node).unwrap();
    }
    wait::until_true("links to both relays", SOON, || {
        network
            .metrics("p1")
            .unwrap()
            .sum("firsthop_pop_link_up", &[])
            == 2.0
    })
    .unwrap();
}
