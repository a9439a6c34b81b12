//! Links of real processes: a direction that goes dark, a relay that is stuck, authorities that change, two of one name.

#![cfg(test)]

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::load::{Plan, Running};
use lab::net::{Network, Shape};
use lab::standstill::{Figures, figures};
use lab::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::clock;

const SESSIONS: u64 = 20;
const SOON: Duration = Duration::from_secs(15);
/// Time in which uplink is back on the first relay: ten good seconds, which a busy machine may begin again.
const BACK_SOON: Duration = Duration::from_secs(45);
/// What a dead peer may cost.
const NOTICED_MAX: Duration = Duration::from_secs(1);
const GAP_MS_MAX: f64 = 1000.0;
/// One second of media of every session.
const SECOND: u64 = SESSIONS * 50;

fn calls(network: &Network) -> Running {
    let sessions = usize::try_from(SESSIONS).unwrap();
    let plan = Plan::new(network.whip("t1"), sessions, Duration::from_secs(120));
    let load = Running::start(plan);
    load.wait_connected(SESSIONS, SOON).unwrap();
    load.wait_received(SECOND, SOON).unwrap();
    load
}

/// Relays of `p1` that are up, and the one that carries uplink.
fn links(network: &Network) -> (usize, String) {
    let state = network.state("p1").unwrap();
    let links = state["workers"][0]["links"].as_array().unwrap().clone();
    let up = links.iter().filter(|link| link["up"] == true).count();
    let carrying = links.iter().find(|link| link["carries_uplink"] == true);
    let relay = carrying.and_then(|link| link["relay"].as_str());
    (up, relay.unwrap_or_default().to_owned())
}

fn wait_links(network: &Network, up: usize, carrying: &str) -> Instant {
    let what = format!("{up} links, uplink by {carrying}");
    let there = || links(network) == (up, carrying.to_owned());
    wait::until_true(&what, BACK_SOON, there).unwrap();
    clock::now()
}

fn downs(network: &Network, node: &str, reason: &str) -> f64 {
    let program = if node.starts_with('p') {
        "pop"
    } else {
        "core_relay"
    };
    let name = format!("firsthop_{program}_link_downs_total");
    let metrics = network.metrics(node).unwrap();
    metrics.sum(&name, &[("reason", reason)])
}

/// Stands between a PoP and a core relay, and lets a direction through or not.
struct Middle {
    up: Arc<AtomicBool>,
    down: Arc<AtomicBool>,
}

impl Middle {
    /// Listens at `front` and passes on to `relay`, for one PoP worker.
    fn start(front: SocketAddr, relay: SocketAddr) -> Self {
        let socket = |address| {
            let socket = UdpSocket::bind(address).unwrap();
            socket
                .set_read_timeout(Some(Duration::from_millis(500)))
                .unwrap();
            Arc::new(socket)
        };
        let front = socket(front);
        let back = socket(SocketAddr::new(relay.ip(), 0));
        back.connect(relay).unwrap();
        let (up, down) = (
            Arc::new(AtomicBool::new(true)),
            Arc::new(AtomicBool::new(true)),
        );
        let pop = Arc::new(std::sync::Mutex::new(None));
        let (open, out, from) = (Arc::clone(&up), Arc::clone(&back), Arc::clone(&pop));
        let (open_down, into) = (Arc::clone(&down), Arc::clone(&front));
        // Both end with the process.
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            loop {
                let Ok((len, peer)) = front.recv_from(&mut buffer) else {
                    continue;
                };
                *from.lock().unwrap() = Some(peer);
                if open.load(Ordering::Relaxed) {
                    let _ = out.send(&buffer[..len]);
                }
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            loop {
                let Ok(len) = back.recv(&mut buffer) else {
                    continue;
                };
                let peer = *pop.lock().unwrap();
                if let (Some(peer), true) = (peer, open_down.load(Ordering::Relaxed)) {
                    let _ = into.send_to(&buffer[..len], peer);
                }
            }
        });
        Self { up, down }
    }
}

#[test]
fn a_direction_that_goes_dark_is_noticed_within_a_second_and_the_standby_takes_over() {
    figures("a direction that goes dark", dark_directions).unwrap();
}

fn dark_directions() -> Figures {
    let mut found = Figures::default();
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for node in ["r1", "r2", "t1"] {
        network.start_node(node).unwrap();
    }
    // The PoP is told another port for r1; r1 refuses to change it while it runs.
    network.expect_error("configuration not reloaded");
    let mut topology = network.topology().clone();
    let relay = &mut topology.regions[0].core_relays[0];
    let real = SocketAddr::new(relay.address, relay.link_port);
    relay.link_port = 8443;
    let middle = Middle::start(SocketAddr::new(relay.address, 8443), real);
    network.rewrite_topology(topology).unwrap();
    network.start_node("p1").unwrap();
    wait_links(&network, 2, "r1");
    for (direction, reason_at_pop) in [(&middle.up, "deaf_peer"), (&middle.down, "silent")] {
        let load = calls(&network);
        let before = downs(&network, "p1", reason_at_pop);
        direction.store(false, Ordering::Relaxed);
        let dark = clock::now();
        let took = wait_links(&network, 1, "r2") - dark;
        eprintln!("{reason_at_pop}: r2 carries after {took:?}");
        found.below("until the other relay carries", took, NOTICED_MAX);
        let counted = || downs(&network, "p1", reason_at_pop) - before == 1.0;
        wait::until_true(reason_at_pop, SOON, counted).unwrap();
        load.wait_received(SECOND, SOON).unwrap();
        direction.store(true, Ordering::Relaxed);
        // Back on the first relay, after it has been well for ten seconds, without a packet lost on the way.
        wait_links(&network, 2, "r2");
        let back = clock::now();
        let returned = wait_links(&network, 2, "r1") - back;
        assert!(returned > Duration::from_secs(8), "{returned:?}");
        load.wait_received(SECOND, SOON).unwrap();
        let report = load.stop().unwrap();
        eprintln!("{report:?}");
        assert_eq!(report.sessions_lost, 0);
        found.below("longest silence, ms", report.gap_ms_max, GAP_MS_MAX);
    }
    found
}

#[test]
fn a_core_relay_that_is_killed_or_stuck_is_replaced_within_a_second() {
    figures("a core relay that is killed or stuck", lost_relays).unwrap();
}

fn lost_relays() -> Figures {
    let mut found = Figures::default();
    let mut network = Network::start(&Shape::default()).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    let (_, first) = links(&network);
    let load = calls(&network);
    let pid = Pid::from_raw(i32::try_from(network.pid(&first).unwrap()).unwrap());
    let other = if first == "r1" { "r2" } else { "r1" };
    kill(pid, Signal::SIGSTOP).unwrap();
    let stuck = clock::now();
    let took = wait_links(&network, 1, other) - stuck;
    eprintln!("stuck: {took:?}");
    found.below("until the other relay carries", took, NOTICED_MAX);
    load.wait_received(SECOND, SOON).unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    let (_, carrying) = links(&network);
    network.kill(&carrying).unwrap();
    load.wait_received(SECOND, SOON).unwrap();
    network.start_node(&carrying).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    load.wait_received(SECOND, SOON).unwrap();
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!(report.sessions_lost, 0);
    found.below("longest silence, ms", report.gap_ms_max, GAP_MS_MAX);
    found
}

#[test]
fn the_authority_is_replaced_under_calls_without_losing_a_packet() {
    let network = Network::start(&Shape::default()).unwrap();
    let other = Network::prepare(&Shape::default(), |_| {}).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    let load = calls(&network);
    let read = |of: &Network, file| fs::read_to_string(of.credentials("p1").join(file)).unwrap();
    let (old, new) = (read(&network, "ca.pem"), read(&other, "ca.pem"));
    let step = |what: &str| {
        network.reload().unwrap();
        load.wait_received(2 * SECOND, SOON).unwrap();
        assert_eq!(links(&network).0, 2, "{what}");
    };
    network
        .rewrite_credential("ca.pem", &format!("{old}{new}"))
        .unwrap();
    step("both authorities");
    for node in ["r1", "r2", "t1", "p1"] {
        for file in ["cert.pem", "key.pem"] {
            let text = fs::read_to_string(other.credentials(node).join(file)).unwrap();
            fs::write(network.credentials(node).join(file), text).unwrap();
        }
    }
    step("certificates of the new one");
    network.rewrite_credential("ca.pem", &new).unwrap();
    step("the new one alone");
    let report = load.stop().unwrap();
    eprintln!("{report:?}");
    assert_eq!((report.sessions_lost, report.lost), (0, 0));
    let metrics = network.metrics("p1").unwrap();
    assert_eq!(metrics.sum("firsthop_pop_link_downs_total", &[]), 0.0);
}

#[test]
fn an_authority_that_is_dropped_ends_the_links_of_its_nodes() {
    let network = Network::start(&Shape::default()).unwrap();
    let other = Network::prepare(&Shape::default(), |_| {}).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    // r1 alone belongs to the other authority from here on, and trusts nobody else.
    for file in ["ca.pem", "cert.pem", "key.pem"] {
        fs::copy(
            other.credentials("r1").join(file),
            network.credentials("r1").join(file),
        )
        .unwrap();
    }
    network.reload().unwrap();
    wait_links(&network, 1, "r2");
    // Figures are published a few times a second.
    for node in ["r1", "p1"] {
        let counted = || downs(&network, node, "unknown_issuer") == 1.0;
        wait::until_true(&format!("{node} to count why"), SOON, counted).unwrap();
    }
}

/// A second process with the name of `p1`, at other addresses.
struct Twin(Child);

impl Drop for Twin {
    fn drop(&mut self) {
        // Either fails only when the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_pops_of_one_name_are_told_in_one_line() {
    let network = Network::start(&Shape::default()).unwrap();
    wait::until_true("both links", SOON, || links(&network).0 == 2).unwrap();
    let mut topology = network.topology().clone();
    let pop = &mut topology.pops[0];
    pop.ingress[0].set_port(3500);
    pop.admin.set_port(9200);
    let file = network.topology_file().with_file_name("twin.yaml");
    fs::write(&file, topology::to_yaml(&topology).unwrap()).unwrap();
    let twin = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(lab::net::programs_dir().unwrap().join("pop"))
        .args(["--node", "p1", "--topology"])
        .arg(&file)
        .arg("--credentials")
        .arg(network.credentials("p1"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _twin = Twin(twin);
    wait::until_true("the first one to give way", SOON, || {
        downs(&network, "p1", "duplicate_name") == 2.0
    })
    .unwrap();
    let log = network.log("p1");
    let told = log.lines().filter(|line| line.contains("this node's name"));
    assert_eq!(told.count(), 1, "{log}");
    // It keeps away: the relay is not asked again for half a minute.
    let dialed =
        |metrics: lab::metrics::Scrape| metrics.sum("firsthop_pop_dials_failed_total", &[]);
    assert_eq!(dialed(network.metrics("p1").unwrap()), 0.0);
    assert_eq!(links(&network).0, 0);
}
