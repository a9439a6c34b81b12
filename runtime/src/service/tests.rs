//! A service manager played by the test: a datagram socket of its own.

use std::os::linux::net::SocketAddrExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::control::Control;
use crate::issue::Dir;

/// How long a condition may take on a busy machine.
const SOON: Duration = Duration::from_secs(20);

fn registry() -> Registry {
    Registry::new("pop", "ams")
}

/// An abstract name that nobody has.
fn name() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("firsthop-service-{}-{next}", std::process::id());
    SocketAddr::from_abstract_name(name).unwrap()
}

fn service(to: SocketAddr, watchdog: Option<Duration>, registry: &Registry) -> Service {
    let found = Environment {
        to: Some(to),
        watchdog,
        misuses: Vec::new(),
    };
    Service::new(found, registry)
}

fn shown(registry: &Registry, series: &str) -> f64 {
    let text = registry.prometheus();
    let lines = text.lines().filter_map(|line| line.rsplit_once(' '));
    let value = lines.filter(|(name, _)| *name == series);
    value.map(|(_, value)| value.parse::<f64>().unwrap()).sum()
}

fn next(manager: &UnixDatagram) -> String {
    let mut message = [0; 100];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8(message[..length].to_vec()).unwrap()
}

#[test]
fn the_manager_hears_of_the_start_the_end_and_beats_while_everything_moves() {
    let to = name();
    let manager = UnixDatagram::bind_addr(&to).unwrap();
    manager.set_read_timeout(Some(SOON)).unwrap();
    let (registry, control) = (registry(), Control::new().unwrap());
    let watch = Watch::start(&registry, &control);
    let mut part = watch.part("announce");
    part.beat();
    let service = service(to, Some(Duration::from_millis(80)), &registry);
    service.ready(&watch).unwrap();
    assert_eq!(next(&manager), "READY=1\n");
    // The control runtime moves by itself, the part does not.
    assert_eq!(next(&manager), "WATCHDOG=1\n");
    let withheld = || shown(&registry, "firsthop_service_beats_withheld_total");
    let deadline = crate::clock::now() + SOON;
    while withheld() < 20.0 {
        assert!(crate::clock::now() < deadline, "waited in vain");
        std::thread::yield_now();
    }
    manager.set_nonblocking(true).unwrap();
    let none = manager.recv(&mut [0; 100]).unwrap_err();
    assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
    manager.set_nonblocking(false).unwrap();
    part.beat();
    assert_eq!(next(&manager), "WATCHDOG=1\n");
    // A part that has ended is waited for no longer.
    drop(part);
    assert_eq!(next(&manager), "WATCHDOG=1\n");
    service.stopping();
    while next(&manager) != "STOPPING=1\n" {}
}

#[test]
fn without_a_watchdog_there_are_no_beats() {
    let to = name();
    let manager = UnixDatagram::bind_addr(&to).unwrap();
    let (registry, control) = (registry(), Control::new().unwrap());
    let service = service(to, None, &registry);
    service.ready(&Watch::start(&registry, &control)).unwrap();
    service.stopping();
    assert_eq!(next(&manager), "READY=1\n");
    assert_eq!(next(&manager), "STOPPING=1\n");
}

#[test]
fn a_socket_that_takes_nothing_is_counted_and_holds_up_nobody() {
    let dir = Dir::new();
    let file = dir.path().join("file");
    std::fs::write(&file, "no socket").unwrap();
    let gone = dir.path().join("gone");
    for path in [file, gone] {
        let registry = registry();
        let to = SocketAddr::from_pathname(&path).unwrap();
        let service = service(to, None, &registry);
        service.stopping();
        let failed = r#"firsthop_service_messages_total{result="failed"}"#;
        assert_eq!(shown(&registry, failed), 1.0, "{}", path.display());
    }
    // A manager that does not read: its queue is full at some time.
    let to = name();
    let _manager = UnixDatagram::bind_addr(&to).unwrap();
    let registry = registry();
    let service = service(to, None, &registry);
    let failed = r#"firsthop_service_messages_total{result="failed"}"#;
    let began = crate::clock::now();
    while shown(&registry, failed) == 0.0 {
        service.stopping();
        assert!(crate::clock::now() < began + SOON, "the queue has no end");
    }
}
