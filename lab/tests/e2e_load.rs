//! 200 concurrent sessions of 20 ms Opus for 30 s, everything on this machine.

#![cfg(test)]

use std::time::Duration;

use lab::load::{Plan, Running};
use lab::net::{Network, Program, Shape};
use lab::process::Usage;

const SESSIONS: usize = 200;

#[test]
fn two_hundred_sessions_lose_nothing() {
    let network = Network::start(&Shape::default()).unwrap();
    let look = || -> Vec<Usage> {
        let programs = [Program::Pop, Program::CoreRelay, Program::Transceiver];
        let names = programs
            .into_iter()
            .flat_map(|program| network.names(program));
        names.map(|name| network.usage(name).unwrap()).collect()
    };
    let before = look();
    let duration = Duration::from_secs(30);
    let load = Running::start(Plan::new(network.whip("t1"), SESSIONS, duration));
    load.wait_connected(SESSIONS as u64, Duration::from_secs(30))
        .unwrap();
    load.wait_received(SESSIONS as u64 * 50 * 20, Duration::from_secs(40))
        .unwrap();
    let during = look();
    assert_eq!(network.sessions("t1").unwrap().len(), SESSIONS);
    let report = load.finish().unwrap();
    eprintln!("{report:#?}");
    for (before, during) in before.iter().zip(&during) {
        let grown = during.rss_bytes.saturating_sub(before.rss_bytes);
        eprintln!(
            "{}: {} KB a session, {:.1} s of processor, {} UDP sockets",
            during.name,
            grown / 1000 / SESSIONS as u64,
            during.cpu_s - before.cpu_s,
            during.udp_sockets
        );
        assert_eq!(during.udp_sockets, before.udp_sockets, "{}", during.name);
    }
    assert_eq!(report.connected, SESSIONS, "{:?}", report.failures);
    assert_eq!((report.sessions_lost, report.deletes_failed), (0, 0));
    assert_eq!((report.lost, report.altered), (0, 0));
    assert_eq!(report.echoes, SESSIONS as u64, "data channels");
    assert!(report.sent >= SESSIONS as u64 * 50 * 30);
    network.wait_no_sessions("t1").unwrap();
}
