use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::*;
use crate::thread::spawn_worker;

const LOOK: Duration = LOOK_INTERVAL;
const SOON: Duration = Duration::from_secs(10);

fn registry() -> Registry {
    Registry::new("pop", "ams")
}

/// The value of a series as a scrape shows it.
fn shown(registry: &Registry, series: &str) -> f64 {
    let text = registry.prometheus();
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let value = lines.filter(|(name, _)| *name == series);
    value.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

fn until(condition: impl Fn() -> bool) {
    let deadline = clock::now() + SOON;
    while !condition() {
        assert!(clock::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
}

/// A worker that makes a turn whenever its channel tells it to, or every so often by itself until it is told to hang.
fn worker(mut heart: Heart, hang: Receiver<Receiver<()>>) {
    loop {
        heart.beat();
        match hang.recv_timeout(Duration::from_millis(5)) {
            // Blocks in the middle of a turn.
            Ok(release) => drop(release.recv()),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn hang(worker: &SyncSender<Receiver<()>>) -> SyncSender<()> {
    let (release, blocked) = sync_channel(1);
    worker.send(blocked).unwrap();
    release
}

#[test]
fn a_worker_thread_that_hangs_is_seen_and_seen_to_move_again() {
    let (registry, control) = (registry(), Control::new().unwrap());
    let watch = Watch::start(&registry, &control);
    let (to_worker, from_test) = sync_channel(1);
    let (heart, healthy) = (watch.heart("0"), watch.heart("1"));
    let thread = spawn_worker("hangs", None, move || worker(heart, from_test)).unwrap();
    let (end, told) = sync_channel(1);
    let other = spawn_worker("moves", None, move || worker(healthy, told)).unwrap();
    let release = hang(&to_worker);
    until(|| watch.stalled().is_some());
    assert_eq!(watch.stalled().as_deref(), Some("0"));
    let stalled = r#"firsthop_worker_stalled{worker="0"}"#;
    let stalls = r#"firsthop_worker_stalls_total{worker="0"}"#;
    assert_eq!(shown(&registry, stalled), 1.0);
    release.send(()).unwrap();
    until(|| watch.stalled().is_none());
    assert_eq!(shown(&registry, stalled), 0.0);
    assert_eq!(shown(&registry, stalls), 1.0);
    drop((to_worker, end));
    thread.join().unwrap();
    other.join().unwrap();
    assert_eq!(
        shown(&registry, r#"firsthop_worker_stalls_total{worker="1"}"#),
        0.0
    );
}

#[test]
fn a_worker_that_has_ended_is_forgotten_even_while_it_is_stalled() {
    let registry = registry();
    let start = clock::now();
    let watch = Watch::new(&registry, start);
    let mut heart = watch.heart("0");
    heart.beat();
    for look in 1..8 {
        watch.shared.look(start + LOOK * look);
    }
    assert_eq!(watch.stalled().as_deref(), Some("0"));
    drop(heart);
    watch.shared.look(start + LOOK * 8);
    assert_eq!(watch.stalled(), None);
    assert_eq!(
        shown(&registry, r#"firsthop_worker_stalled{worker="0"}"#),
        0.0
    );
}

#[test]
fn shares_are_those_of_the_last_window() {
    let registry = registry();
    let start = clock::now();
    let watch = Watch::new(&registry, start);
    let (one, other) = (watch.heart("0"), watch.heart("1"));
    let share = r#"firsthop_worker_packet_share{worker="0"}"#;
    let skew = "firsthop_worker_packet_skew";
    assert_eq!(shown(&registry, skew), 1.0);
    one.packets(3000);
    other.packets(1000);
    watch.shared.look(start + SHARE_WINDOW - LOOK);
    assert_eq!(shown(&registry, share), 0.0, "the window is not over");
    watch.shared.look(start + SHARE_WINDOW);
    assert_eq!(shown(&registry, share), 0.75);
    assert_eq!(shown(&registry, skew), 1.5);
    one.packets(3500);
    other.packets(1500);
    watch.shared.look(start + SHARE_WINDOW * 2);
    assert_eq!(shown(&registry, share), 0.5);
    assert_eq!(shown(&registry, skew), 1.0);
}

#[test]
fn workers_beyond_the_bound_work_unwatched() {
    let (registry, start) = (registry(), clock::now());
    let watch = Watch::new(&registry, start);
    let mut hearts: Vec<_> = (0..=HEARTS_MAX).map(|_| watch.heart("0")).collect();
    assert_eq!(watch.shared.state().watched.len(), HEARTS_MAX);
    hearts.iter_mut().for_each(Heart::beat);
}
