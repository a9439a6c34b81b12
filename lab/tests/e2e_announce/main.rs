//! What a PoP tells BIRD, with real programs and the kernel's routes: each network lives in a namespace of its own, where table 1001 is
//! nobody else's. Nobody speaks BGP here.

#![cfg(test)]

mod broken;
mod crash_loop;
mod deaths;
mod end;
mod orders;
mod reload;
mod stuck;
mod watchdog;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use lab::bench::far_end::FarEnd;
use lab::freeze::Frozen;
use lab::net::{Network, Shape, namespace, programs_dir};
use lab::redis_server::Redis;
use lab::siege::{Calls, Echo, Hints};
use lab::standstill::{Figures, figures};
use lab::{http, wait};
use nix::sched::{CloneFlags, setns};
use runtime::clock;
use serde_json::Value;
use topology::{Anycast, BgpSession, Topology};
use wire::TransceiverId;

const VIP: &str = "192.0.2.100:3478";
const VIP_V6: &str = "[2001:db8:100::100]:3478";
const PREFIX: &str = "192.0.2.0/24";
const PREFIX_V6: &str = "2001:db8:100::/48";
const SOON: Duration = Duration::from_secs(15);
/// Beyond `stalled_after_ms`: a look, the kernel, and a machine that has other things to do.
const SLACK: Duration = Duration::from_millis(700);
const TOKEN: &str = "0123456789abcdef";

/// Announces after a second of being well.
fn anycast(topology: &mut Topology, min_announced: u16) {
    topology.network.vips = vec![VIP.parse().unwrap(), VIP_V6.parse().unwrap()];
    topology.network.anycast = Some(Anycast {
        asn: 64_500,
        prefixes: vec![PREFIX.parse().unwrap(), PREFIX_V6.parse().unwrap()],
        cover: Vec::new(),
        min_announced,
        up_after_s: 1,
        up_after_max_s: 4,
        stalled_after_ms: 300,
        linger_s: 1,
        table: 1001,
        hold_s: 9,
        bfd: topology::Bfd::default(),
        drain_prepend: 2,
    });
    for pop in &mut topology.pops {
        pop.bgp = vec![session()];
    }
}

/// Where a worker that stands still is not what is tested: a busy machine may hold one for a while, and nobody withdraws for that.
fn patient(topology: &mut Topology) {
    let anycast = topology.network.anycast.as_mut().unwrap();
    anycast.stalled_after_ms = 2_000;
}

fn session() -> BgpSession {
    let text = r#"{"name":"transit1","asn":65001,"address":"10.254.0.0","local":"10.254.0.1"}"#;
    serde_json::from_str(text).unwrap()
}

fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip").args(arguments).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "ip {}: {error}",
        arguments.join(" ")
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The VIPs on lo, and IPv6.
fn put_vips(at: &[&str]) {
    for address in ["192.0.2.100/32", "2001:db8:100::100/128"] {
        ip(&[at, &["address", "add", address, "dev", "lo"]].concat());
    }
}

/// Metrics of the routes of both prefixes in table 1001, v4 and v6; through `vip0` only.
fn metrics(at: &[&str]) -> [Vec<u32>; 2] {
    [("-4", PREFIX), ("-6", PREFIX_V6)].map(|(family, prefix)| {
        // `ip` says "FIB table does not exist" of a table without any route.
        let arguments = [at, &[family, "route", "show", "table", "1001"]].concat();
        let output = Command::new("ip").args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut metrics = Vec::new();
        for line in text.lines() {
            let words: Vec<_> = line.split_whitespace().collect();
            // `ip` has a number alone for a device that goes at this moment, and the route goes with it.
            let number = words[2].strip_prefix("if").unwrap_or_default();
            if number.parse::<u32>().is_ok() {
                continue;
            }
            assert_eq!(words[..3], [prefix, "dev", "vip0"], "{line}");
            let metric = words.iter().position(|word| *word == "metric").unwrap();
            metrics.push(words[metric + 1].parse().unwrap());
        }
        metrics
    })
}

fn announced(metric: u32) -> [Vec<u32>; 2] {
    [vec![metric], vec![metric]]
}

const NOTHING: [Vec<u32>; 2] = [Vec::new(), Vec::new()];

fn wait_announced(at: &[&str], metric: Option<u32>, deadline: Duration) -> Duration {
    let wanted = metric.map_or(NOTHING, announced);
    let began = clock::now();
    let what = format!("routes {wanted:?} {}", at.join(" "));
    wait::until_true(&what, deadline, || metrics(at) == wanted).unwrap();
    clock::now() - began
}

fn in_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    namespace::run(|_| {
        put_vips(&[]);
        Ok(test())
    })
    .unwrap()
}

#[test]
fn a_healthy_pop_is_announced_and_whatever_kills_its_data_plane_is_not() {
    let what = "a PoP whose data plane dies";
    figures(what, || in_namespace(a_data_plane_dies)).unwrap();
}

fn a_data_plane_dies() -> Figures {
    let mut found = Figures::default();
    let shape = Shape {
        workers: 2,
        ..Shape::default()
    };
    let mut network = Network::start_with(&shape, |topology| anycast(topology, 1)).unwrap();
    let up = wait_announced(&[], Some(100), SOON);
    let state = network.state("p1").unwrap();
    assert_eq!(state["announce"]["announce"], "up", "{state}");
    assert_eq!(state["announce"]["amiss"], serde_json::json!([]));
    let ingress = state["ingress"].as_array().unwrap();
    assert_eq!(ingress.len(), 3, "its own address and both VIPs: {state}");

    // A worker stands still, and with it everything that is not of the data plane.
    let pid = network.pid("p1").unwrap();
    for (threads, up_again) in [(&["pop-1"][..], 3), (&["control", "pop-0"], 5)] {
        let frozen: Vec<_> = threads
            .iter()
            .map(|thread| Frozen::thread_named(pid, thread).unwrap())
            .collect();
        let took = wait_announced(&[], None, SOON);
        eprintln!("withdrawn {took:?} after {threads:?} stood still");
        drop(frozen);
        found.below("withdrawn", took, Duration::from_millis(300) + SLACK);
        let back = wait_announced(&[], Some(100), SOON);
        assert!(back >= Duration::from_secs(1), "{back:?}: damping");
        found.below("back", back, Duration::from_secs(up_again) + SLACK);
    }
    let log = network.log("p1");
    let said = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert!(said("\"reason\":\"stalled\"") >= 2, "{log}");
    // Once for each time, unless a worker stood still that nobody held.
    found.below("stalls", said("\"reason\":\"stalled\""), 3);

    // The process is gone: so are device and routes.
    network.kill("p1").unwrap();
    let took = wait_announced(&[], None, SOON);
    eprintln!("announced {up:?} after the start; gone {took:?} after the kill");
    assert!(!ip(&["link", "show"]).contains("vip0"));
    network.start_node("p1").unwrap();
    wait_announced(&[], Some(100), SOON);
    found
}

#[test]
fn without_the_right_to_make_routes_a_pop_says_so_in_one_line_and_does_not_start() {
    in_namespace(|| {
        let network = Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        let output = Command::new("setpriv")
            .args([
                "--bounding-set",
                "-net_admin",
                "--inh-caps",
                "-net_admin",
                "--",
            ])
            .arg(programs_dir().unwrap().join("pop"))
            .args(flags(&network, "p1"))
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<_> = said.lines().filter(|line| !line.starts_with('{')).collect();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(lines.len(), 1, "{said}");
        assert!(lines[0].contains("CAP_NET_ADMIN"), "{said}");
    });
}

fn flags(network: &Network, node: &str) -> Vec<String> {
    let path = |path: PathBuf| path.to_str().unwrap().to_owned();
    let topology = path(network.topology_file());
    let credentials = path(network.credentials(node));
    [
        "--topology",
        &topology,
        "--node",
        node,
        "--credentials",
        &credentials,
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(["--log", "info", "--log-format", "json"].map(str::to_owned))
    .collect()
}

fn order(network: &Network, verb: &str) -> Value {
    let url = format!("{}/v1/{verb}", network.admin("p1"));
    let token = format!("Bearer {TOKEN}");
    let said = http::send("POST", &url, &[("authorization", &token)], &[]).unwrap();
    assert_eq!(said.status, 200, "{}", said.body);
    serde_json::from_str(&said.body).unwrap()
}

fn drain(network: &Network) -> Value {
    let said = http::get(&format!("{}/v1/drain", network.admin("p1"))).unwrap();
    serde_json::from_str(&said.body).unwrap()
}

fn wait_step(network: &Network, step: &str) -> Value {
    wait::until(&format!("step {step}"), SOON, || {
        Some(drain(network)).filter(|view| view["step"] == step)
    })
    .unwrap()
}

fn effects(view: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let steps = view["steps"].as_array().unwrap().iter();
    steps
        .map(|step| (text(&step["step"]), text(&step["effect"])))
        .collect()
}

/// Calls on the VIP, echoed by a far end.
struct Talk {
    network: Network,
    calls: Calls,
    _echo: Echo,
}

impl Talk {
    fn begin(redis: &Redis, adjust: impl FnOnce(&mut Topology)) -> Self {
        let shape = Shape {
            core_relays: 1,
            workers: 2,
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, |topology| {
            anycast(topology, 1);
            patient(topology);
            redis.join(topology);
            adjust(topology);
        })
        .unwrap();
        network.rewrite_credential("admin.token", TOKEN).unwrap();
        for node in ["r1", "p1"] {
            network.start_node(node).unwrap();
        }
        wait_announced(&[], Some(100), SOON);
        let echo = Echo::start(FarEnd::bind(network.topology(), "t1").unwrap());
        let mut hints = Hints::of(&network, TransceiverId(1)).unwrap();
        let mut calls = Calls::open(100, VIP.parse().unwrap(), &mut hints).unwrap();
        calls.commit().unwrap();
        Self {
            network,
            calls,
            _echo: echo,
        }
    }

    /// Talks, as clients do whose routers obey: until the routes say that the PoP drains.
    fn talk_until(&mut self, over: impl Fn() -> bool + Sync) -> (u64, u64) {
        let done = AtomicBool::new(false);
        let figures = std::thread::scope(|scope| {
            scope.spawn(|| {
                wait::until_true("the routes", SOON, &over).unwrap();
                done.store(true, Ordering::Relaxed);
            });
            let over = |_: Instant| done.load(Ordering::Relaxed);
            self.calls.talk(20, over).unwrap()
        });
        (figures.sent, figures.lost())
    }
}

#[test]
fn a_drain_goes_step_by_step_loses_nothing_and_can_be_undone() {
    in_namespace(|| {
        let redis = Redis::start().unwrap();
        let mut talk = Talk::begin(&redis, |_| {});
        let second = clock::now() + Duration::from_secs(2);
        talk.talk_until(|| clock::now() > second);
        let network = &talk.network;
        assert_eq!(drain(network)["step"], "serving");
        let refused = http::send(
            "POST",
            &format!("{}/v1/drain", network.admin("p1")),
            &[],
            &[],
        );
        assert_eq!(refused.unwrap().status, 401);

        order(network, "drain");
        // Clients go on until their routers prefer another PoP.
        let (sent, lost) = talk.talk_until(|| metrics(&[]) == announced(200));
        assert_eq!(lost, 0, "of {sent}");
        let network = &talk.network;
        order(network, "drain");
        let ready = http::get(&format!("{}/readyz", network.admin("p1"))).unwrap();
        assert_eq!((ready.status, ready.body.as_str()), (503, "draining\n"));
        wait_announced(&[], None, SOON);
        // What comes late is still served.
        let late = clock::now() + Duration::from_millis(300);
        let (sent, lost) = talk.talk_until(|| clock::now() > late);
        assert!(sent > 0);
        assert_eq!(lost, 0, "late ones, of {sent}");
        let network = &talk.network;
        let view = wait_step(network, "done");
        eprintln!("{view:#}");
        let expected = [
            ("flush", "stored"),
            ("shift", "moved"),
            ("withdraw", "silent"),
            ("linger", "silent"),
        ];
        let expected = expected.map(|(step, effect)| (step.to_owned(), effect.to_owned()));
        assert_eq!(effects(&view), expected);
        assert_eq!(
            (&view["lost"], &view["flows_unstored"]),
            (&0.into(), &0.into())
        );
        assert_eq!(view["flows_left"], 100);
        assert_eq!(redis.keys().unwrap(), 100, "every flow, once");

        order(network, "undrain");
        order(network, "undrain");
        wait_announced(&[], Some(100), SOON);
        let view = wait_step(network, "serving");
        assert_eq!(view["ordered"], false);
        let ready = http::get(&format!("{}/readyz", network.admin("p1"))).unwrap();
        assert_eq!(ready.status, 200);
        // Undone in the middle.
        order(network, "drain");
        wait_announced(&[], Some(200), SOON);
        order(network, "undrain");
        wait_announced(&[], Some(100), SOON);
        let view = wait_step(network, "serving");
        assert_eq!(effects(&view)[1], ("shift".to_owned(), "cut".to_owned()));
    });
}

/// A PoP that keeps its orders. Killed when dropped.
struct Keeping(Child);

impl Keeping {
    fn start(network: &Network, dir: &Path) -> Self {
        Self::start_with(network, dir, &dir.join("p1.log"))
    }

    fn start_with(network: &Network, dir: &Path, log: &Path) -> Self {
        let log = File::create(log).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(programs_dir().unwrap().join("pop"))
            .args(flags(network, "p1"))
            .arg("--state-dir")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        // Either call fails only when the process is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `firsthop VERB p1` says, once it has done it.
fn command(network: &Network, verb: &str) -> String {
    let token = network.credentials("p1").join("admin.token");
    let output = Command::new(programs_dir().unwrap().join("firsthop"))
        .args([verb, "p1", "--topology"])
        .arg(network.topology_file())
        .arg("--token")
        .arg(token)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_command_follows_a_drain_and_the_order_outlives_the_process() {
    in_namespace(|| {
        let mut network =
            Network::prepare(&Shape::default(), |topology| anycast(topology, 1)).unwrap();
        network.rewrite_credential("admin.token", TOKEN).unwrap();
        network.start_node("r1").unwrap();
        network.start_node("r2").unwrap();
        let dir = network.topology_file().with_file_name("orders");
        fs::create_dir_all(&dir).unwrap();
        let pop = Keeping::start(&network, &dir);
        wait_announced(&[], Some(100), SOON);
        let said = command(&network, "drain");
        eprintln!("{said}");
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 6, "{said}");
        assert!(lines[0].starts_with("p1: nobody can tell"), "{said}");
        assert!(lines[1].contains("flush") && lines[1].ends_with("no_flow_cache"));
        assert!(lines[2].contains("shift") && lines[2].ends_with("quiet"));
        assert!(
            lines[5].starts_with("p1: drained; 0 packets lost"),
            "{said}"
        );
        assert_eq!(metrics(&[]), NOTHING);
        drop(pop);
        // It comes back, and stays away for far longer than it needs to be well.
        let _pop = Keeping::start(&network, &dir);
        wait::until_true("the restarted PoP to say that it drains", SOON, || {
            let url = format!("{}/readyz", network.admin("p1"));
            http::get(&url).is_ok_and(|said| said.body == "draining\n")
        })
        .unwrap();
        let later = clock::now() + Duration::from_secs(3);
        wait::until_true("it to stay away", SOON, || {
            assert_eq!(metrics(&[]), NOTHING);
            clock::now() > later
        })
        .unwrap();
        let said = command(&network, "undrain");
        assert!(said.starts_with("p1: serving"), "{said}");
        wait_announced(&[], Some(100), SOON);
    });
}

/// A PoP in a namespace of its own, joined to that of the test by a wire.
struct Far {
    number: u8,
    namespace: String,
    child: Child,
}

/// Worlds of several PoPs so far: tests run side by side, and names of namespaces are the machine's.
static WORLDS: AtomicU8 = AtomicU8::new(0);

impl Far {
    fn start(network: &Network, world: u8, number: u8) -> Self {
        let namespace = Self::name(world, number);
        let child = Self::spawn(network, number, &namespace);
        Self {
            number,
            namespace,
            child,
        }
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn start_again(&mut self, network: &Network) {
        self.child = Self::spawn(network, self.number, &self.namespace);
    }

    fn spawn(network: &Network, number: u8, namespace: &str) -> Child {
        let log = network
            .topology_file()
            .with_file_name(format!("p{number}.log"));
        let log = File::create(log).unwrap();
        Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "ip",
                "netns",
                "exec",
                namespace,
            ])
            .arg(programs_dir().unwrap().join("pop"))
            .args(flags(network, &format!("p{number}")))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn name(world: u8, number: u8) -> String {
        format!("announce{}-{world}-{number}", std::process::id())
    }

    /// Makes the namespace: 10.90.NUMBER.1 here, .2 there.
    fn join(world: u8, number: u8) {
        let name = Self::name(world, number);
        let (near, far) = (format!("near{number}"), format!("far{number}"));
        ip(&["netns", "add", &name]);
        ip(&["link", "add", &near, "type", "veth", "peer", "name", &far]);
        ip(&["link", "set", &far, "netns", &name]);
        ip(&[
            "address",
            "add",
            &format!("10.90.{number}.1/30"),
            "dev",
            &near,
        ]);
        ip(&["link", "set", &near, "up"]);
        let at = ["-n", &name];
        let there = |arguments: &[&str]| ip(&[&at[..], arguments].concat());
        there(&["link", "set", "lo", "up"]);
        there(&[
            "address",
            "add",
            &format!("10.90.{number}.2/30"),
            "dev",
            &far,
        ]);
        there(&["link", "set", &far, "up"]);
        there(&[
            "route",
            "add",
            "default",
            "via",
            &format!("10.90.{number}.1"),
        ]);
        put_vips(&at);
    }

    fn metrics(&self) -> [Vec<u32>; 2] {
        metrics(&["-n", &self.namespace])
    }

    /// Its `/state`, asked for from inside.
    fn state(&self) -> Value {
        let path = Path::new("/run/netns").join(&self.namespace);
        let inside = || {
            setns(File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            let said = http::get("http://127.0.0.1:9100/state").unwrap();
            serde_json::from_str(&said.body).unwrap()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        // Either call fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The namespace is gone with its name, now or when the last process in it is.
        let _ = Command::new("ip")
            .args(["netns", "del", &self.namespace])
            .status();
    }
}

const RELAYS: [&str; 2] = ["10.90.0.1", "10.90.0.2"];
const REDIS: &str = "10.90.0.9";

/// Three PoPs of which two must stay, each in a namespace, and what they need in the test's own.
fn three_pops(redis: &Redis) -> (Network, Vec<Far>) {
    for address in RELAYS {
        ip(&["address", "add", &format!("{address}/32"), "dev", "lo"]);
    }
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    let shape = Shape {
        pops: 3,
        ..Shape::default()
    };
    let mut network = Network::prepare(&shape, |topology| {
        anycast(topology, 2);
        patient(topology);
        redis.keep_state(topology);
        for (relay, address) in topology.regions[0].core_relays.iter_mut().zip(RELAYS) {
            relay.address = address.parse().unwrap();
        }
        for (number, pop) in (1u8..).zip(&mut topology.pops) {
            let own = format!("10.90.{number}.2");
            pop.backbone = own.parse().unwrap();
            pop.ingress = vec![SocketAddr::new(pop.backbone, 3478)];
            pop.admin = "127.0.0.1:9100".parse().unwrap();
        }
    })
    .unwrap();
    for relay in ["r1", "r2"] {
        network.start_node(relay).unwrap();
    }
    let world = WORLDS.fetch_add(1, Ordering::Relaxed);
    (1..=3).for_each(|number| Far::join(world, number));
    let start = |number| Far::start(&network, world, number);
    let pops = (1..=3).map(start).collect();
    (network, pops)
}

/// How many of the PoPs have withdrawn, drain, are up.
fn census(pops: &[Far]) -> (usize, usize, usize) {
    let all: Vec<_> = pops.iter().map(Far::metrics).collect();
    let count = |wanted: &[Vec<u32>; 2]| all.iter().filter(|own| *own == wanted).count();
    (
        count(&NOTHING),
        count(&announced(200)),
        count(&announced(100)),
    )
}

fn wait_census(pops: &[Far], wanted: (usize, usize, usize), deadline: Duration) {
    let what = format!("withdrawn, draining, up to be {wanted:?}");
    wait::until_true(&what, deadline, || {
        let census = census(pops);
        assert!(
            census.0 <= 1 || wanted.0 > 1,
            "{census:?}: two have withdrawn"
        );
        census == wanted
    })
    .unwrap_or_else(|error| {
        let states: Vec<_> = pops
            .iter()
            .map(|pop| pop.state()["announce"].clone())
            .collect();
        panic!("{error}: {states:#?}")
    });
}

#[test]
fn a_lost_backbone_withdraws_as_many_pops_as_there_are_permits_and_none_without_redis() {
    in_namespace(|| {
        ip(&["address", "add", &format!("{REDIS}/32"), "dev", "lo"]);
        let mut redis = Redis::start_at(REDIS.parse().unwrap()).unwrap();
        let (mut network, pops) = three_pops(&redis);
        wait::until_true("all to be up", SOON, || census(&pops) == (0, 0, 3)).unwrap();

        // The backbone is gone for all three: one withdraws, two stay as a last resort.
        for relay in ["r1", "r2"] {
            network.kill(relay).unwrap();
        }
        wait_census(&pops, (1, 2, 0), SOON);
        let later = clock::now() + Duration::from_secs(4);
        wait::until_true("it to stay so", SOON, || {
            assert_eq!(census(&pops), (1, 2, 0));
            clock::now() > later
        })
        .unwrap();
        let held = pops
            .iter()
            .filter(|pop| pop.state()["announce"]["permit"] == "held");
        assert_eq!(held.count(), 1);

        // Nobody can be asked any more: all stay.
        redis.kill();
        wait_census(&pops, (0, 3, 0), SOON);

        // All is well again.
        redis.begin().unwrap();
        for relay in ["r1", "r2"] {
            network.start_node(relay).unwrap();
        }
        wait_census(&pops, (0, 0, 3), Duration::from_secs(30));
    });
}
