//! What nodes tell the state store, and how far what a PoP measures is from the truth: real programs, clients and core relays behind paths
//! with a known delay.

#![cfg(test)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use lab::delay::Delay;
use lab::load::{Plan, Running};
use lab::net::{Network, Shape};
use lab::redis_server::Redis;
use lab::standstill::{Figures, figures};
use lab::wait;
use serde_json::Value;

const SOON: Duration = Duration::from_secs(30);
/// Clients of each prefix.
const CLIENTS: usize = 6;
/// Client delays, one way.
const CLIENT_DELAYS_MS: [u64; 3] = [5, 20, 60];
const BACKBONE_DELAY_MS: u64 = 15;
/// A median may be above the truth by so much on a busy machine, and never below it.
const ERROR_MAX_US: u64 = 25_000;

fn value(redis: &Redis, key: &str) -> Option<Value> {
    let text = redis.value(key).unwrap()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn state(redis: &Redis, node: &str) -> Option<Value> {
    value(redis, &format!("firsthop:state:lab:{node}"))
}

/// The network with a delayed backbone: the PoP is told another link port than the core relay has.
fn network(redis: &Redis) -> (Network, Delay) {
    let shape = Shape {
        core_relays: 1,
        ..Shape::default()
    };
    let mut network = Network::prepare(&shape, |topology| redis.keep_state(topology)).unwrap();
    for node in ["r1", "t1"] {
        network.start_node(node).unwrap();
    }
    // The core relay refuses to change its port while it runs.
    network.expect_error("configuration not reloaded");
    let mut topology = network.topology().clone();
    let relay = &mut topology.regions[0].core_relays[0];
    let address = relay.address;
    let real = SocketAddr::new(address, relay.link_port);
    relay.link_port = 8443;
    let backbone = Delay::start(
        SocketAddr::new(address, 8443),
        real,
        Duration::from_millis(BACKBONE_DELAY_MS),
        move |_| address,
    );
    network.rewrite_topology(topology).unwrap();
    network.start_node("p1").unwrap();
    (network, backbone.unwrap())
}

/// The clients of prefix `number`, as the PoP sees them.
fn client(loopback: Ipv4Addr, number: u8, host: usize) -> IpAddr {
    let [a, b, ..] = loopback.octets();
    let host = u8::try_from(host).unwrap() + 1;
    Ipv4Addr::new(a, b, 200 + number, host).into()
}

/// Calls from a prefix for each delay, through paths that take so long.
fn calls(network: &Network, ingress: SocketAddr, loopback: Ipv4Addr) -> Vec<(Delay, Running)> {
    let calls = CLIENT_DELAYS_MS
        .iter()
        .zip(0u8..)
        .map(|(delay_ms, number)| {
            let path = Delay::start(
                SocketAddr::new(ingress.ip(), 0),
                ingress,
                Duration::from_millis(*delay_ms),
                move |host| client(loopback, number, host),
            )
            .unwrap();
            let plan = Plan {
                instead: Some((ingress, path.front())),
                opened_per_s: 10,
                ..Plan::new(network.whip("t1"), CLIENTS, Duration::from_secs(60))
            };
            (path, Running::start(plan))
        });
    let calls: Vec<_> = calls.collect();
    for (_, load) in &calls {
        load.wait_connected(CLIENTS as u64, SOON).unwrap();
    }
    calls
}

/// The medians once all clients of all prefixes are in them.
fn medians(redis: &Redis) -> Option<Vec<Value>> {
    let medians = value(redis, "firsthop:rtt:lab:p1")?;
    let found = medians["prefixes"].as_array()?;
    let whole = found.len() == CLIENT_DELAYS_MS.len() && found.iter().all(|it| it[2] == CLIENTS);
    whole.then(|| found.clone())
}

fn check(found: &mut Figures, what: &str, truth: u64, measured: &Value) {
    eprintln!("{what}: {truth} us in truth, {measured} us measured");
    let measured = measured.as_u64().unwrap();
    assert!(
        measured >= truth,
        "{what}: {measured} is less than it takes"
    );
    found.below(what, measured, truth + ERROR_MAX_US);
}

#[test]
fn what_a_pop_measures_is_the_truth_within_milliseconds() {
    figures("what a PoP measures", measured).unwrap();
}

fn measured() -> Figures {
    let redis = Redis::start().unwrap();
    let (network, _backbone) = network(&redis);
    let ingress = network.topology().pops[0].ingress[0];
    let IpAddr::V4(loopback) = ingress.ip() else {
        panic!("an IPv4 ingress");
    };
    let calls = calls(&network, ingress, loopback);
    let medians = wait::until("medians of all prefixes", SOON, || medians(&redis)).unwrap();
    let mut found = Figures::default();
    for (delay_ms, number) in CLIENT_DELAYS_MS.iter().zip(0u8..) {
        let prefix = format!("{}/24", client(loopback, number, 0)).replace(".1/", ".0/");
        let median = medians.iter().find(|it| it[0] == prefix.as_str());
        check(&mut found, &prefix, delay_ms * 2000, &median.unwrap()[1]);
    }
    let told = state(&redis, "p1").unwrap();
    for side in ["rtt_us", "owner_rtt_us"] {
        let link = &told["role"]["pop"]["links"][0];
        check(&mut found, side, BACKBONE_DELAY_MS * 2000, &link[side]);
    }
    let clients = (CLIENTS * CLIENT_DELAYS_MS.len()) as u64;
    assert_eq!(told["role"]["pop"]["flows"], clients);
    assert_eq!(
        state(&redis, "t1").unwrap()["role"]["transceiver"]["sessions"],
        clients
    );
    assert_eq!(
        state(&redis, "r1").unwrap()["role"]["core_relay"]["links"],
        1
    );
    for (_, load) in calls {
        let report = load.stop().unwrap();
        assert_eq!(report.sessions_lost, 0, "{report:?}");
    }
    found
}

#[test]
fn nodes_tell_that_they_drain_and_are_silent_when_they_are_gone() {
    let redis = Redis::start().unwrap();
    let mut network =
        Network::start_with(&Shape::default(), |topology| redis.keep_state(topology)).unwrap();
    let nodes = ["p1", "r1", "r2", "t1"];
    let well = |node: &str| {
        state(&redis, node).is_some_and(|told| told["ready"] == true && told["draining"] == false)
    };
    wait::until_true("every node to tell", SOON, || {
        nodes.iter().all(|node| well(node))
    })
    .unwrap();
    network.kill("r2").unwrap();
    wait::until_true("r2 to be forgotten", SOON, || state(&redis, "r2").is_none()).unwrap();
    let load = Running::start(Plan::new(network.whip("t1"), 1, Duration::from_secs(60)));
    load.wait_connected(1, SOON).unwrap();
    network.terminate("p1").unwrap();
    let drains = || state(&redis, "p1").is_some_and(|told| told["draining"] == true);
    wait::until_true("p1 to tell that it drains", SOON, drains).unwrap();
    network.wait_end("p1").unwrap();
    wait::until_true("p1 to be forgotten", SOON, || state(&redis, "p1").is_none()).unwrap();
    // The client has nobody left to speak to.
    drop(load.stop());
}
