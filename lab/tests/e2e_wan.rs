//! The WAN emulator with real namespaces and devices.

#![cfg(test)]

use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::wait;
use lab::wan::measure::{PAIR_DELAY, Pair, Truth, delays};
use lab::wan::{Emulation, Namespace, Plan, ask, remove};
use runtime::udp::{BindOptions, send_segments};

const SOON: Duration = Duration::from_secs(10);
/// Much longer than any delay here.
const QUIET: Duration = Duration::from_millis(300);
/// A packet waits for three threads to wake: the emulator when it comes and when it is due, and whoever receives it. The loopback
/// of a namespace is one such wake-up.
const WAKE_UPS: f64 = 3.0;
/// Rounds of which one has to be good.
const ROUNDS: usize = 10;

fn received(socket: &UdpSocket) -> usize {
    socket.set_read_timeout(Some(QUIET)).unwrap();
    let mut packet = [0; 2048];
    std::iter::from_fn(|| socket.recv(&mut packet).ok()).count()
}

fn passes(from: &UdpSocket, to: &UdpSocket, len: usize) -> bool {
    let packet = vec![0; len];
    from.send_to(&packet, to.local_addr().unwrap()).unwrap();
    received(to) == 1
}

#[test]
fn delays_are_true_to_what_was_set_as_far_as_the_machine_lets_them() {
    let pair = Pair::open("truth").unwrap();
    for per_s in [1000, 10_000] {
        // One good round of a few: noise only adds.
        let mut rounds = (0..ROUNDS).map(|_| pair.truth(per_s, 2).unwrap());
        let is_good = |truth: &Truth| {
            println!("{truth:?}");
            let machine = 1.0 - truth.share_true_loopback;
            let untrue = 1.0 - truth.share_true;
            let median = (-50.0..300.0).contains(&truth.error_us_p50);
            untrue <= 0.01_f64.max(WAKE_UPS * machine) && median
        };
        let found = rounds.any(|truth| is_good(&truth));
        assert!(found, "delays are not true at {per_s} packets a second");
    }
}

#[test]
fn each_direction_does_what_it_is_told_while_it_runs() {
    let pair = Pair::open("orders").unwrap();
    let (a, b) = (
        pair.socket("a", "10.254.0.0").unwrap(),
        pair.socket("b", "10.254.0.1").unwrap(),
    );
    let order = |line: &str| {
        let answer = pair.running.order(line).unwrap();
        assert_eq!(answer["error"], serde_json::Value::Null, "{line}");
        answer
    };
    assert!(passes(&a, &b, 100) && passes(&b, &a, 100));
    order("cut a>b");
    assert!(!passes(&a, &b, 100) && passes(&b, &a, 100));
    order("heal a b");
    assert!(passes(&a, &b, 100));
    // 28 bytes of headers.
    order("set a>b black_hole_above_bytes=1300");
    assert!(passes(&a, &b, 1272) && !passes(&a, &b, 1273));
    assert!(passes(&b, &a, 1273));
    order("set a>b black_hole_above_bytes=0 loss_ppm=100000");
    // So slow that whoever receives may be away for a quarter of a second, and the kernel keeps it all.
    let lossy = delays((&a, &b), 1000, 5000).unwrap();
    let arrived = lossy.delays.len();
    // Six standard deviations.
    assert!((4370..4630).contains(&arrived), "{arrived}");
    order("set a>b loss_ppm=0 delay_ms=30");
    let slow = delays((&a, &b), 200, 100).unwrap();
    let median = slow.quantile(500);
    assert!(median >= 3 * PAIR_DELAY && median < 4 * PAIR_DELAY);
    let stats = order("stats");
    let there = &stats["ways"][0];
    assert_eq!(there["from"], "a");
    assert_eq!(there["did"]["lost_to_cut"], 1);
    assert_eq!(there["did"]["lost_too_long"], 1);
    assert_eq!(there["did"]["lost_by_chance"], 5000 - arrived);
}

#[test]
fn each_packet_of_a_train_has_its_own_fate() {
    let pair = Pair::open("train").unwrap();
    let options = BindOptions::default();
    let bind = || {
        Ok(runtime::udp::UdpSocket::bind(
            ([10, 254, 0, 0], 0).into(),
            &options,
        )?)
    };
    let a = pair.namespace("a").run(bind).unwrap();
    let b = pair.socket("b", "10.254.0.1").unwrap();
    send_segments(&a, b.local_addr().unwrap(), &[1; 20_000], 1000).unwrap();
    assert_eq!(received(&b), 20);
    let stats = pair.running.order("stats").unwrap();
    assert_eq!(stats["ways"][0]["did"]["packets"], 20);
    assert_eq!(stats["ways"][0]["did"]["bytes"], 20 * 1028);
}

/// Three cities.
fn cloud() -> Plan {
    let text = format!(
        "
name: cloud{}
rtt_ms: {{ lon: {{ fra: 14, wdc: 76 }}, fra: {{ wdc: 90 }} }}
clouds:
  - name: backbone
    members:
      - {{ node: lon, city: lon, addresses: [10.200.1.1/16, 'fd00:200::1:1/64'] }}
      - {{ node: fra, city: fra, addresses: [10.200.2.1/16, 'fd00:200::2:1/64'] }}
      - {{ node: wdc, city: wdc, addresses: [10.200.3.1/16, 'fd00:200::3:1/64'] }}
",
        std::process::id()
    );
    Plan::parse(&text).unwrap()
}

#[test]
fn in_a_cloud_everyone_reaches_everyone_with_half_the_round_trip() {
    let plan = cloud();
    let running = Emulation::open(&plan).unwrap().start().unwrap();
    let socket = |node: &str, address: &str| {
        let bind = || Ok(UdpSocket::bind((address, 0))?);
        Namespace::of(&plan, node).run(bind).unwrap()
    };
    for (from, to, ms) in [
        (("lon", "10.200.1.1"), ("fra", "10.200.2.1"), 7),
        (("fra", "10.200.2.1"), ("wdc", "10.200.3.1"), 45),
        (("wdc", "fd00:200::3:1"), ("lon", "fd00:200::1:1"), 38),
    ] {
        let (from, to) = (socket(from.0, from.1), socket(to.0, to.1));
        let found = delays((&from, &to), 100, 50).unwrap();
        let set = Duration::from_millis(ms);
        assert_eq!(found.delays.len(), 50);
        let median = found.quantile(500);
        assert!(median >= set && median < set + PAIR_DELAY, "{median:?}");
    }
    drop(running);
    remove(&plan).unwrap();
}

/// `lab wan up` until dropped.
struct Process {
    child: Child,
    plan: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(wan(&["down", self.plan.to_str().unwrap()]));
    }
}

fn wan(arguments: &[&str]) -> bool {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    let status = command.arg("wan").args(arguments).stderr(Stdio::null());
    status.status().unwrap().success()
}

#[test]
fn the_program_gives_up_root_takes_orders_and_leaves_nothing_behind() {
    let dir = std::env::temp_dir().join(format!("lab-wan-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (plan, socket) = (dir.join("plan.yaml"), dir.join("orders"));
    let mut of = cloud();
    of.name = format!("prog{}", std::process::id());
    of.become_uid = Some(65_534);
    std::fs::write(&plan, serde_json::to_string(&of).unwrap()).unwrap();
    let file = plan.to_str().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["wan", "up", file, "--socket", socket.to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let process = Process {
        child,
        plan: plan.clone(),
    };
    wait::until_true("an answer", SOON, || ask(&socket, "show").is_ok()).unwrap();
    let status = format!("/proc/{}/status", process.child.id());
    let status = std::fs::read_to_string(status).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(field("Uid:"), "65534");
    assert!(field("CapEff:").chars().all(|digit| digit == '0'));
    assert!(ask(&socket, "cut lon>fra").is_ok());
    assert!(ask(&socket, "cut lon>oslo").is_err());
    assert!(!wan(&["up", file]), "its namespaces exist");
    let bind = |node: &str, address: &str| {
        let bind = || Ok(UdpSocket::bind((address, 0))?);
        Namespace::of(&of, node).run(bind).unwrap()
    };
    let (lon, fra) = (bind("lon", "10.200.1.1"), bind("fra", "10.200.2.1"));
    assert!(!passes(&lon, &fra, 100) && passes(&fra, &lon, 100));
    drop(process);
    assert!(wan(&["down", file]), "twice is no harm");
    let gone = of.all_nodes().into_iter().map(|node| of.namespace(node));
    assert!(
        gone.into_iter()
            .all(|name| !PathBuf::from("/run/netns").join(name).exists())
    );
    std::fs::remove_dir_all(&dir).unwrap();
}
