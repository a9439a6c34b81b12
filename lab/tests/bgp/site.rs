//! A PoP with BIRD, configured from a topology, and a router of an upstream with a BIRD of its own: two namespaces and the
//! WAN emulator between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::wait;
use lab::wan::{Emulation, Namespace, Plan, Running, remove};
use runtime::tun::Tun;
use topology::{BgpSession, Topology, bird};

/// Longer than anything here takes on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// What the sample network announces.
pub(crate) const PREFIXES: [&str; 2] = ["198.19.0.0/24", "2001:db8:100::/48"];
pub(crate) const COVERS: [&str; 2] = ["198.19.0.0/23", "2001:db8:100::/47"];

pub(crate) const UPSTREAM_ASN: u32 = 64_511;
pub(crate) const WORLD: &str = include_str!("../../../topology/samples/world.yaml");
pub(crate) const POP: &str = "ams";
const SECRET: &str = "correct horse";

/// Everything, until dropped.
pub(crate) struct Site {
    dir: PathBuf,
    plan: Plan,
    running: Option<Running>,
    pub(crate) topology: Topology,
    pop: Bird,
    pub(crate) router: Bird,
    holder: Option<Child>,
}

impl Site {
    /// Both BIRDs run and have their sessions. `tag` makes the names of its namespaces.
    pub(crate) fn open(tag: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("bgp-{tag}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let plan = plan(tag);
        let running = Emulation::open(&plan).unwrap().start().unwrap();
        let topology = topology(&dir);
        let pop = Bird::start(&plan, "p", &dir, &bird::config(&topology, POP).unwrap());
        let router = Bird::start(&plan, "r", &dir, &router_config(&topology));
        let site = Self {
            dir,
            plan,
            running: Some(running),
            topology,
            pop,
            router,
            holder: None,
        };
        site.established();
        site
    }

    fn established(&self) {
        wait::until_true("the sessions", SOON, || {
            let states = self.pop.ask("show protocols");
            states.matches("Established").count() == self.topology.pops[0].bgp.len()
        })
        .unwrap();
    }

    /// The BIRD of the PoP says so.
    pub(crate) fn pop_says(&self, question: &str) -> String {
        self.pop.ask(question)
    }

    /// An order to the wire between them.
    pub(crate) fn wire(&self, order: &str) {
        self.running.as_ref().unwrap().order(order).unwrap();
    }

    /// A process that holds the device of the VIPs, as `pop` does: `cat`, whose output it is, until its input ends or it is killed.
    pub(crate) fn hold_device(&mut self) {
        let spawn = || {
            let device = Tun::create("vip0")?.as_fd().try_clone_to_owned()?;
            let mut holder = Command::new("cat");
            Ok(holder.stdin(Stdio::piped()).stdout(device).spawn()?)
        };
        self.holder = Some(Namespace::of(&self.plan, "p").run(spawn).unwrap());
        self.ip("link set vip0 up");
        let namespace = self.plan.namespace("p");
        // Of a device that is down it says nothing, and is content.
        let is_up = || ip(&namespace, "link show vip0 up").is_some_and(|said| !said.is_empty());
        wait::until_true("the device", SOON, is_up).unwrap();
    }

    /// `kill -9` of it.
    pub(crate) fn kill_holder(&mut self) {
        end(&mut self.holder.take().unwrap());
    }

    pub(crate) fn kill_bird(&mut self) {
        end(&mut self.pop.child);
    }

    /// Tells BIRD a state, the next one before the last one ends.
    pub(crate) fn say(&self, before: Option<u32>, next: Option<u32>) {
        for (metric, verb) in [(next, "add"), (before, "del")] {
            let Some(metric) = metric else { continue };
            for prefix in PREFIXES {
                self.ip(&format!(
                    "route {verb} {prefix} dev vip0 table 1001 metric {metric}"
                ));
            }
        }
    }

    /// `ip` in the namespace of the PoP.
    pub(crate) fn ip(&self, line: &str) {
        let done = ip(&self.plan.namespace("p"), line);
        assert!(done.is_some(), "ip {line}");
    }

    /// What the router has of the PoP, once it is what it should be.
    pub(crate) fn router_has(&self, what: &str, wanted: &[&str]) -> BTreeMap<String, Route> {
        let wanted: BTreeSet<&str> = wanted.iter().copied().collect();
        let seen = || self.router.routes();
        let right = || {
            let routes = seen();
            let found: BTreeSet<&str> = routes.keys().map(String::as_str).collect();
            (found == wanted).then_some(routes)
        };
        wait::until(what, SOON, right).unwrap_or_else(|error| panic!("{error}: {:#?}", seen()))
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let holder = self.holder.iter_mut();
        for child in holder.chain([&mut self.pop.child, &mut self.router.child]) {
            end(child);
        }
        drop(self.running.take());
        let removed = remove(&self.plan);
        if !std::thread::panicking() {
            removed.unwrap();
            fs::remove_dir_all(&self.dir).unwrap();
        }
    }
}

/// Whether BIRD takes a configuration, or what it says.
pub(crate) fn parses(config: &Path) -> Result<(), String> {
    let parsed = Command::new("bird")
        .arg("-p")
        .arg("-c")
        .arg(config)
        .output();
    let parsed = parsed.map_err(|error| format!("package bird2 is to be installed: {error}"))?;
    let complaint = String::from_utf8_lossy(&parsed.stderr).into_owned();
    parsed.status.success().then_some(()).ok_or(complaint)
}

fn end(child: &mut Child) {
    let _ended_before = child.kill();
    child.wait().unwrap();
}

/// A running BIRD.
pub(crate) struct Bird {
    child: Child,
    control: PathBuf,
}

impl Bird {
    fn start(plan: &Plan, node: &str, dir: &Path, config: &str) -> Self {
        let file = |end: &str| dir.join(format!("{node}.{end}"));
        let (conf, control) = (file("conf"), file("ctl"));
        fs::write(&conf, config).unwrap();
        parses(&conf).unwrap_or_else(|complaint| panic!("{complaint}{config}"));
        let log = fs::File::create(file("log")).unwrap();
        let mut command = Command::new("bird");
        command
            .arg("-f")
            .args([Path::new("-c"), &conf, Path::new("-s"), &control])
            .args([Path::new("-P"), &file("pid")])
            .stderr(log);
        let child = Namespace::of(plan, node)
            .run(|| Ok(command.spawn()?))
            .unwrap();
        wait::until_true("the control socket", SOON, || control.exists()).unwrap();
        Self { child, control }
    }

    /// What `birdc` answers.
    pub(crate) fn ask(&self, question: &str) -> String {
        let output = Command::new("birdc")
            .args(["-s".as_ref(), self.control.as_os_str()])
            .args(question.split(' '))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Routes that came by BGP.
    fn routes(&self) -> BTreeMap<String, Route> {
        routes(&self.ask("show route where source = RTS_BGP all"))
    }

    /// How often the PoP took something back so far, in both sessions.
    pub(crate) fn withdrawals(&self) -> u32 {
        let sessions = self.ask("show protocols all");
        let lines = sessions.lines().map(str::trim);
        // Columns: received, rejected, filtered, ignored, accepted.
        let counts = lines.filter_map(|line| line.strip_prefix("Import withdraws:"));
        counts
            .filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok())
            .sum()
    }
}

/// What the router knows of a prefix: attributes by name, such as `BGP.as_path`.
pub(crate) type Route = BTreeMap<String, String>;

fn routes(answer: &str) -> BTreeMap<String, Route> {
    let mut routes = BTreeMap::new();
    let mut last = None;
    for line in answer.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if line.starts_with(|c: char| c.is_ascii_hexdigit()) && first.contains('/') {
            last = Some(routes.entry(first.to_owned()).or_insert_with(Route::new));
        } else if let (Some(route), Some((name, value))) = (&mut last, line.split_once(": ")) {
            route.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    routes
}

/// What `ip` says in a namespace; `None` when it refuses.
fn ip(namespace: &str, line: &str) -> Option<String> {
    let mut command = Command::new("ip");
    command
        .args(["-n", namespace])
        .args(if line.contains("2001:") {
            &["-6"][..]
        } else {
            &[]
        })
        .args(line.split(' '));
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(said)
}

fn plan(tag: &str) -> Plan {
    let pid = std::process::id();
    Plan::parse(&format!(
        "
name: bgp{tag}{pid}
links:
  - a: {{ node: p, addresses: [10.254.0.1/31, '2001:db8:e::1/127'] }}
    b: {{ node: r, addresses: [10.254.0.0/31, '2001:db8:e::/127'] }}
    conditions: {{ delay_ms: 2 }}
"
    ))
    .unwrap()
}

/// The sample network, with the sessions of one PoP led to the router here.
fn topology(dir: &Path) -> Topology {
    let mut topology = topology::load(WORLD, "world.yaml").unwrap();
    let pop = &mut topology.pops[0];
    assert_eq!(pop.name, POP);
    pop.bgp.truncate(2);
    let [v4, v6] = pop.bgp.as_mut_slice() else {
        panic!("the sample has two sessions at {POP}");
    };
    assert_eq!((v4.asn, v6.asn), (UPSTREAM_ASN, UPSTREAM_ASN));
    let lead = |session: &mut BgpSession, local: &str, address: &str| {
        session.local = local.parse().unwrap();
        session.address = address.parse().unwrap();
        session.password_file = None;
    };
    lead(v4, "10.254.0.1", "10.254.0.0");
    lead(v6, "2001:db8:e::1", "2001:db8:e::");
    v6.med = Some(70);
    v6.prepend = 1;
    let secret = dir.join("secret");
    fs::write(&secret, format!("password \"{SECRET}\";\n")).unwrap();
    v4.password_file = Some(secret.to_str().unwrap().to_owned());
    let text = topology::to_yaml(&topology).unwrap();
    topology::load(&text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}"))
}

/// A router that believes everything, and tells the PoP a hundred prefixes once the protocols `more4` and `more6` are enabled.
fn router_config(topology: &Topology) -> String {
    let bfd = &topology.network.anycast.as_ref().unwrap().bfd;
    let mut config = format!(
        "\
log stderr all;
router id 10.0.0.1;
protocol device {{ }}
protocol bfd {{ interface \"*\" {{ interval {} ms; multiplier {}; }}; }}
",
        bfd.interval_ms, bfd.multiplier
    );
    for session in &topology.pops[0].bgp {
        let v4 = session.address.is_ipv4();
        let digit = if v4 { 4 } else { 6 };
        let password = match v4 {
            true => format!("password \"{SECRET}\";"),
            false => String::new(),
        };
        let routes: String = (0..100)
            .map(|i| match v4 {
                true => format!("  route 10.{i}.0.0/16 blackhole;\n"),
                false => format!("  route 2001:db8:f{i:03}::/48 blackhole;\n"),
            })
            .collect();
        config += &format!(
            "\
protocol static more{digit} {{
  disabled;
  ipv{digit};
{routes}}}
protocol bgp pop{digit} {{
  local {router} as {UPSTREAM_ASN};
  neighbor {pop} as {asn};
  {password}
  hold time 90;
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 4;
  bfd on;
  ipv{digit} {{ import all; export all; }};
}}
",
            router = session.address,
            pop = session.local,
            asn = topology.network.anycast.as_ref().unwrap().asn,
        );
    }
    config
}
