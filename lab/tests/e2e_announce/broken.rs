//! What must not be announced, and is put right: a prefix that cannot be, a VIP that is on no interface, a device of somebody else, routes that
//! somebody takes away.

use std::io::{BufRead as _, BufReader};
use std::sync::atomic::AtomicUsize;

use super::*;

/// What the kernel tells of routes with the metric that BIRD takes. Killed when dropped.
struct Watched {
    child: Child,
    seen: std::sync::Arc<AtomicUsize>,
}

impl Watched {
    fn begin() -> Self {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "ip", "monitor", "route"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen = std::sync::Arc::new(AtomicUsize::new(0));
        let counts = std::sync::Arc::clone(&seen);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let announces = line.contains(PREFIX) && line.contains("metric 100");
                if announces && !line.starts_with("Deleted") {
                    counts.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Self { child, seen }
    }

    fn seen(&self) -> usize {
        self.seen.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Either call fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_reason(network: &Network, reason: &str) -> Value {
    wait::until(&format!("reason {reason}"), SOON, || {
        let state = network.state("p1").ok()?;
        Some(state["announce"].clone()).filter(|view| view["reason"] == reason)
    })
    .unwrap()
}

#[test]
fn a_prefix_that_cannot_be_announced_lets_no_other_come_and_go() {
    in_namespace(|| {
        let ipv6 = Path::new("/proc/sys/net/ipv6/conf/default/disable_ipv6");
        fs::write(ipv6, "1").unwrap();
        let watched = Watched::begin();
        let network =
            Network::start_with(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        let view = wait_reason(&network, "route");
        assert_eq!(view["announce"], "withdrawn", "{view}");
        // Each trial is a fall, which doubles the time until the next.
        wait::until_true("it to try again, and again", SOON, || {
            let view = network.state("p1").unwrap()["announce"].clone();
            assert_eq!(view["announce"], "withdrawn", "{view}");
            view["up_after_ms"] == 4_000
        })
        .unwrap();
        assert_eq!(watched.seen(), 0, "the other prefix is not announced");

        fs::write(ipv6, "0").unwrap();
        wait_announced(&[], Some(100), SOON);
        wait::until_true("the announcement to be told", SOON, || watched.seen() == 1).unwrap();
    });
}

#[test]
fn a_vip_that_is_taken_off_its_interface_is_withdrawn() {
    figures("a VIP on no interface", || in_namespace(vip_is_taken_off)).unwrap();
}

fn vip_is_taken_off() -> Figures {
    let network = Network::start_with(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
    wait_announced(&[], Some(100), SOON);
    ip(&["address", "del", "192.0.2.100/32", "dev", "lo"]);
    let took = wait_announced(&[], None, SOON);
    let view = wait_reason(&network, "vip");
    assert_eq!(view["amiss"], serde_json::json!(["vip"]));
    ip(&["address", "add", "192.0.2.100/32", "dev", "lo"]);
    wait_announced(&[], Some(100), SOON);
    let mut found = Figures::default();
    found.below("withdrawn", took, Duration::from_secs(1) + SLACK);
    found
}

#[test]
fn routes_that_somebody_takes_away_come_back() {
    figures("routes taken away", || in_namespace(routes_are_taken_away)).unwrap();
}

fn routes_are_taken_away() -> Figures {
    let network = Network::start_with(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
    wait_announced(&[], Some(100), SOON);
    for family in ["-4", "-6"] {
        ip(&[family, "route", "flush", "table", "1001"]);
    }
    let took = wait_announced(&[], Some(100), SOON);
    // Without the device they cannot: that is a fall.
    ip(&["link", "delete", "vip0"]);
    wait_reason(&network, "route");
    wait_announced(&[], Some(100), SOON);
    let mut found = Figures::default();
    found.below("restored", took, Duration::from_secs(2) + SLACK);
    found
}

#[test]
fn a_device_that_would_outlive_the_process_is_refused_in_one_line() {
    in_namespace(|| {
        ip(&["tuntap", "add", "dev", "vip0", "mode", "tun"]);
        let network = Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        let line = refusal(&network, "p1");
        assert!(line.contains("vip0") && line.contains("outlive"), "{line}");
    });
}

/// The one line of a PoP that cannot start.
fn refusal(network: &Network, node: &str) -> String {
    let output = Command::new(programs_dir().unwrap().join("pop"))
        .args(flags(network, node))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| !line.starts_with('{')).collect();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(lines.len(), 1, "{said}");
    lines[0].to_owned()
}

#[test]
fn a_second_pop_that_announces_on_a_host_is_refused_and_the_first_serves_on() {
    in_namespace(|| {
        let shape = Shape {
            pops: 2,
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, |topology| anycast(topology, 1)).unwrap();
        for node in ["r1", "r2", "p1"] {
            network.start_node(node).unwrap();
        }
        wait_announced(&[], Some(100), SOON);
        let line = refusal(&network, "p2");
        assert!(
            line.contains(VIP) && line.contains("one pop of a host"),
            "{line}"
        );
        assert_eq!(metrics(&[]), announced(100), "those of the first");
        network.check().unwrap();
    });
}
