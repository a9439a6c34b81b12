//! Worlds with real programs and real BGP: who serves whom, and that nothing is left of one.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use lab::standstill::{Figures, figures};
use lab::wait;
use lab::world::plan::BACKBONE;
use lab::world::{Fault, Options, Plan, World, WorldFile};
use runtime::clock;

const SOON: Duration = Duration::from_secs(20);
/// What machines add to a round trip, at most: a dozen wake-ups, while everything else runs on the same processors.
const MACHINE_MS: f64 = 15.0;

fn up(name: &str) -> World {
    World::up(&WorldFile::find(name).unwrap(), &Options::default()).unwrap()
}

/// Processes of the machine with `text` in their command line, and none that are dead already.
fn processes_with(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        let line = read("cmdline").replace('\0', " ");
        if line.contains(text) && !read("stat").contains(") Z ") {
            found.push(line);
        }
    }
    found
}

/// Network devices and named namespaces of a world that the machine itself sees.
fn seen_by_the_machine(plan: &Plan) -> Vec<String> {
    let nodes = || plan.nodes.keys();
    let namespaces = nodes().map(|node| plan.wan.namespace(node));
    let devices = nodes().map(|node| format!("to-{node}"));
    let own: BTreeSet<String> = namespaces
        .chain(devices)
        .chain([BACKBONE.to_owned()])
        .collect();
    let names = |dir: &str| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
    };
    let all = names("/sys/class/net").chain(names("/run/netns"));
    all.filter(|name| own.contains(name)).collect()
}

/// Waits until of a few round trips from every client to the VIPs the least is what the wires say: BFD takes a machine that stands still
/// for a dead wire, and packets go another way until its session is back. No packet ever takes less.
fn round_trips_are_those_of_the_matrix(world: &World, alive: &[&str]) {
    let mut wrong = Vec::new();
    let right = wait::until_true("round trips", SOON, || {
        wrong = round_trips_too_long(world, alive);
        wrong.is_empty()
    });
    right.unwrap_or_else(|error| panic!("{error}: {wrong:#?}"));
}

fn round_trips_too_long(world: &World, alive: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for client in world.plan().clients() {
        let pop = world.shortest(client, alive).unwrap();
        let said = world.plan().rtt_ms(client, pop).unwrap();
        for vip in world.vips() {
            let took: Result<Vec<_>, _> =
                (0..3).map(|_| world.round_trip(client, vip.ip())).collect();
            let found = match took {
                Ok(took) => {
                    let ms = took.iter().min().unwrap().as_secs_f64() * 1000.0;
                    let at = format!("{client} to {vip} at {pop}: {ms:.1} ms, not {said:.1}");
                    assert!(ms >= said, "{at}");
                    (ms >= said + MACHINE_MS).then_some(at)
                }
                // Nobody answers while routes change.
                Err(error) => Some(format!("{error:#}")),
            };
            wrong.extend(found);
        }
    }
    wrong
}

#[test]
fn clients_go_to_the_nearest_pop_before_and_after_each_loss() {
    let world = up("small");
    let pid = world.pid();
    let dir = world.dir().display().to_string();
    let shortest = |client: &str, alive| world.shortest(client, alive).unwrap().to_owned();
    assert_eq!(shortest("c-mad", &["lon", "fra", "wdc"]), "fra");
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    round_trips_are_those_of_the_matrix(&world, &["lon", "fra", "wdc"]);
    world.kill("lon").unwrap();
    world.wait_nearest(&["fra", "wdc"], SOON).unwrap();
    assert_eq!(shortest("c-lon", &["fra", "wdc"]), "fra");
    round_trips_are_those_of_the_matrix(&world, &["fra", "wdc"]);
    world.power_off("fra").unwrap();
    world.wait_nearest(&["wdc"], SOON).unwrap();
    round_trips_are_those_of_the_matrix(&world, &["wdc"]);
    world.power_on("fra").unwrap();
    world.start("lon").unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    world.kill_bird("lon").unwrap();
    world.wait_nearest(&["fra", "wdc"], SOON).unwrap();
    world.start_bird("lon").unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    assert_eq!(world.redis("redis-all", &["PING"]).unwrap(), "PONG");
    assert!(world.metrics("lon").is_ok() && world.state("eu-r1").is_ok());
    assert!(processes_with(&dir).len() > 10);
    world.check().unwrap();
    drop(world);
    assert_eq!(processes_with(&dir), Vec::<String>::new());
    assert!(!Path::new(&format!("/proc/{pid}")).exists() && !Path::new(&dir).exists());
}

#[test]
fn when_every_pop_has_withdrawn_packets_still_reach_the_nearest() {
    let world = up("small");
    for pop in ["lon", "fra", "wdc"] {
        world.withdraw(pop).unwrap();
    }
    // The prefixes that cover the VIPs are announced as long as BIRD lives.
    let exact = |node: &str| {
        let routes = world.birdc(node, "show route 192.0.2.0/24");
        routes.is_ok_and(|routes| routes.contains("192.0.2.0/24"))
    };
    wait::until_true("the last withdrawal", SOON, || {
        !exact("r-lon") && !exact("isp-dal")
    })
    .unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    round_trips_are_those_of_the_matrix(&world, &["lon", "fra", "wdc"]);
    world.announce("wdc").unwrap();
    // The first to come back has the longer prefix, and draws everybody.
    world.wait_nearest(&["wdc"], SOON).unwrap();
}

#[test]
fn a_pop_that_drains_hands_its_clients_over_and_takes_them_back() {
    let world = up("small");
    figures("clients that move while the PoP is announced", || {
        moves_by_communities(&world)
    })
    .unwrap();
    let withdrawn = || {
        let drain = world.admin("lon", "GET", "/v1/drain");
        drain.is_ok_and(|drain| drain.body.contains("\"announce\":\"withdrawn\""))
    };
    wait::until_true("the withdrawal", SOON, withdrawn).unwrap();
    world.fault(&"undrain lon".parse().unwrap()).unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    // When all drain, nobody is left without a PoP, nor with a far one.
    for pop in ["lon", "fra"] {
        world.fault(&Fault::Drain(pop.to_owned())).unwrap();
    }
    let last = world.fault(&"drain wdc".parse().unwrap()).unwrap_err();
    assert!(last.to_string().contains("409"), "{last}");
    let forced = world.admin("wdc", "POST", "/v1/drain?node=wdc&force=true");
    assert_eq!(forced.unwrap().status, 200);
    wait::until_true("the withdrawal", SOON, withdrawn).unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    world.check().unwrap();
}

/// Who is nearest moves by communities alone, in the two seconds or more that routers have for it: then it is withdrawn.
fn moves_by_communities(world: &World) -> Figures {
    world.fault(&"undrain lon".parse().unwrap()).unwrap();
    world.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    world.fault(&"drain lon".parse().unwrap()).unwrap();
    world.wait_nearest(&["fra", "wdc"], SOON).unwrap();
    let drain = world.admin("lon", "GET", "/v1/drain").unwrap().body;
    let mut found = Figures::default();
    let announced = drain.contains("\"announce\":\"draining\"");
    found.holds(announced, || format!("no longer announced: {drain}"));
    found
}

#[test]
fn worlds_stand_side_by_side() {
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| up("small"));
        (one.join().unwrap(), up("small"))
    });
    assert_ne!(one.dir(), other.dir());
    one.kill("lon").unwrap();
    one.wait_nearest(&["fra", "wdc"], SOON).unwrap();
    other.wait_nearest(&["lon", "fra", "wdc"], SOON).unwrap();
    assert!(other.is_running("lon").unwrap() && !one.is_running("lon").unwrap());
    assert_eq!(seen_by_the_machine(one.plan()), [""; 0]);
    drop(one);
    other.wan("cut lon r-lon").unwrap();
    other.wait_nearest(&["fra", "wdc"], SOON).unwrap();
}

/// `lab world up small` under a name of its own.
struct Standing {
    child: Child,
    name: String,
    /// Open as long as it may have something to say.
    _out: BufReader<ChildStdout>,
}

impl Standing {
    fn begin(suffix: &str) -> Self {
        let name = format!("e2e-{suffix}-{}", std::process::id());
        let mut child = lab(&["up", "small", "--name", &name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut said).unwrap();
        assert!(said.starts_with("up after"), "{said}");
        Self {
            child,
            name,
            _out: out,
        }
    }

    fn dir(&self) -> String {
        format!("/tmp/firsthop-lab/{}", self.name)
    }

    fn says(&self, words: &[&str]) -> String {
        let (verb, rest) = words.split_first().unwrap();
        let output = lab(&[&[*verb, "--world", &self.name], rest].concat())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(self.dir());
        // Nobody else has a name with a process id in it.
        let _ = fs::remove_file(format!("{}.lock", self.dir()));
    }
}

/// What `lab` says when it refuses: one line, status 2.
fn refused(words: &[&str]) -> String {
    let output = lab(words).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{words:?}: {error}");
    error
}

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.arg("world").args(words).stdin(Stdio::null());
    command
}

#[test]
fn a_world_that_is_killed_leaves_nothing() {
    let mut file = WorldFile::find("small").unwrap();
    let mut standing = Standing::begin("kill");
    file.rename(&standing.name).unwrap();
    let dir = standing.dir();
    assert!(processes_with(&dir).len() > 10);
    standing.child.kill().unwrap();
    standing.child.wait().unwrap();
    wait::until_true("everybody's end", SOON, || processes_with(&dir).is_empty()).unwrap();
    assert_eq!(seen_by_the_machine(&Plan::new(&file).unwrap()), [""; 0]);
    // Its socket is there, and no world.
    let socket = format!("{dir}/orders");
    assert!(fs::exists(&socket).unwrap());
    assert!(standing.says(&["down"]).contains("was dead"));
    assert!(!fs::exists(&socket).unwrap());
    let error = refused(&["down", "--world", &standing.name]);
    assert!(error.contains("no world listens"), "{error}");
}

#[test]
fn a_run_that_is_told_to_end_takes_its_world_down() {
    let out = std::env::temp_dir().join(format!("lab-ended-{}", std::process::id()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["run", "kill-pop-redis", "--out", out.to_str().unwrap()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let own = format!("small-{}-0", child.id());
    let dir = lab::net::programs_dir().unwrap().join("worlds").join(own);
    let name = dir.display().to_string();
    let begun = || processes_with(&name).len() > 10;
    wait::until_true("a world", SOON, begun).unwrap();
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    let ended = wait::until("its end", SOON, || child.try_wait().unwrap());
    assert_eq!(ended.unwrap().code(), Some(130));
    wait::until_true("everybody's end", SOON, || processes_with(&name).is_empty()).unwrap();
    assert!(!dir.exists());
    fs::remove_dir_all(&out).unwrap();
}

#[test]
fn what_no_world_can_be_is_refused_before_anything_starts() {
    for (words, why) in [
        (&["up", "small", "--name", ""][..], "1 to 32"),
        (&["up", "small", "--name", "../x"], "1 to 32"),
        (&["down", "--world", ""], "1 to 32"),
        (&["up", "nosuch"], "nosuch"),
    ] {
        let error = refused(words);
        assert!(error.contains(why), "{words:?}: {error}");
    }
    let name = format!("idle{}", std::process::id());
    let error = refused(&["up", "small", "--name", &name, "--idle", "nosuch"]);
    assert!(error.contains("`nosuch`"), "{error}");
    assert!(!fs::exists(format!("/tmp/firsthop-lab/{name}")).unwrap());
    fs::remove_file(format!("/tmp/firsthop-lab/{name}.lock")).unwrap();
}

#[test]
fn a_world_takes_orders_from_elsewhere() {
    let mut standing = Standing::begin("orders");
    let error = refused(&["up", "small", "--name", &standing.name]);
    assert!(error.contains("stands or comes up"), "{error}");
    assert!(
        standing
            .says(&["exec", "c-lon", "ip", "address"])
            .contains("198.18.0.1/32")
    );
    standing.says(&["fault", "kill", "lon"]);
    let serves = |pop: &str| {
        let status = standing.says(&["status"]);
        status
            .lines()
            .any(|line| line.contains("c-lon") && line.ends_with(pop))
    };
    wait::until_true("the next PoP", SOON, || serves("fra") && !serves("lon")).unwrap();
    assert!(
        standing
            .says(&["admin", "fra", "GET", "/readyz"])
            .contains("200")
    );
    assert!(
        standing
            .says(&["birdc", "r-lon", "show", "protocols"])
            .contains("Established")
    );
    let wrong = lab(&["fault", "--world", &standing.name, "kill", "oslo"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("oslo"));
    standing.says(&["down"]);
    assert!(standing.child.wait().unwrap().success());
    assert_eq!(processes_with(&standing.dir()), Vec::<String>::new());
}

#[test]
fn the_whole_world_is_up_in_seconds() {
    let began = clock::now();
    let world = up("world");
    let took = clock::now() - began;
    println!("{} nodes after {took:?}", world.plan().nodes.len());
    assert!(took < 3 * SOON);
    let pops: Vec<&str> = world.plan().pops().collect();
    assert_eq!(pops.len(), 12);
    world.wait_nearest(&pops, SOON).unwrap();
    round_trips_are_those_of_the_matrix(&world, &pops);
    let left: Vec<&str> = pops
        .iter()
        .copied()
        .filter(|pop| *pop != "sin" && *pop != "tyo")
        .collect();
    world.kill("tyo").unwrap();
    world.power_off("sin").unwrap();
    world.wait_nearest(&left, SOON).unwrap();
    let began = clock::now();
    drop(world);
    println!("down after {:?}", clock::now() - began);
}
