//! 200 concurrent sessions of 20 ms Opus for 30 s, everything on this machine.

#![cfg(test)]

use std::time::Duration;

use lab::load::{Plan, Running};
use lab::net::{Network, Program, Shape};
use lab::process::Usage;
use lab::wait;
use runtime::clock;

const SESSIONS: usize = 200;
/// Frames of a call a second.
const FRAMES_PER_S: f64 = 50.0;
/// A call goes on with its client's next check at the latest: 2.5 s, or 900 ms after one that was not answered.
const CHECKED_WITHIN_S: f64 = 3.4;

/// Sessions whose far end measures: each direction for itself.
const MEASURED: usize = 25;

#[test]
fn each_direction_is_measured_for_itself() {
    let shape = Shape {
        meters: true,
        ..Shape::default()
    };
    let mut network = Network::start(&shape).unwrap();
    let plan = Plan::new(network.whip("t1"), MEASURED, Duration::from_secs(60)).measured();
    let load = Running::start(plan);
    let connect_max = Duration::from_secs(30);
    load.wait_connected(MEASURED as u64, connect_max).unwrap();
    load.wait_received(MEASURED as u64 * 50, connect_max)
        .unwrap();
    network.kill("p1").unwrap();
    let killed = clock::now();
    let sent = load.progress().sent();
    wait::until_true("a silence of 20 frames", connect_max, || {
        load.progress().sent() >= sent + MEASURED as u64 * 20
    })
    .unwrap();
    network.start_node("p1").unwrap();
    let away_s = (clock::now() - killed).as_secs_f64();
    load.wait_received(MEASURED as u64 * 50 * 4, connect_max)
        .unwrap();
    let report = load.stop().unwrap();
    assert_eq!((report.connected, report.sessions_lost), (MEASURED, 0));
    assert_eq!((report.altered, report.calls.len()), (0, MEASURED));
    // And a second in which nobody runs.
    let lost_max = (away_s + CHECKED_WITHIN_S + 1.0) * FRAMES_PER_S;
    for call in &report.calls {
        assert!(!call.lost && call.name.starts_with("t1/"), "{call:?}");
        let lost_up = call.sent.len() - call.up.len();
        let lost_down = call.spoken as usize - call.down.len();
        let is_lost = |lost: usize| (10.0..lost_max).contains(&(lost as f64));
        assert!(
            is_lost(lost_up) && is_lost(lost_down),
            "{lost_up} {lost_down}, at most {lost_max}"
        );
        assert!(call.up.is_sorted_by_key(|frame| frame.number));
        let trips = call.round_trips.iter().map(|trip| trip.took_us);
        assert!(trips.min().unwrap() < 20_000);
        // One clock: nothing is heard before it is said.
        let early = call.up.iter().filter(|frame| {
            let sent_us = call.sent.get(frame.number as usize);
            sent_us.is_none_or(|sent_us| frame.at_us < *sent_us)
        });
        assert_eq!(early.count(), 0);
    }
}

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
