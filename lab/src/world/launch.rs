//! How a world begins: its directory, its namespaces and wires, and its processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};
use topology::Topology;

use super::file::WorldFile;
use super::home::{self, Home};
use super::isolation::Isolation;
use super::place::Place;
use super::plan::{BACKBONE, Kind, Node, Plan, Via};
use super::process::Process;
use super::{Options, World};
use crate::net::{credentials as certificates, program, programs_dir};
use crate::wan::{Emulation, Namespace};

const BIRD: &str = "/usr/sbin/bird";
const REDIS: &str = "/usr/bin/redis-server";
/// Bytes of the path of a Unix socket (unix(7)), one less for its end.
const SOCKET_PATH_MAX: usize = 107;

/// Worlds of this process so far.
static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Everything is there and started, and nothing was waited for.
pub(super) fn up(file: &WorldFile, options: &Options) -> anyhow::Result<World> {
    for needed in [BIRD, REDIS] {
        ensure!(
            Path::new(needed).exists(),
            "{needed} is missing: apt-get install bird2 redis-server"
        );
    }
    let plan = Plan::new(file)?;
    for name in &options.idle {
        let node = name.strip_suffix(".bird").unwrap_or(name);
        let runs = plan.nodes.get(node).is_some_and(|node| node.kind.runs());
        ensure!(runs, "idle: no node with a program is named `{name}`");
    }
    let home = match &options.dir {
        Some(dir) => Home::make(dir.clone(), false)?,
        None => Home::make(own_dir(&file.name)?, true)?,
    };
    let dir = home.dir().to_owned();
    write(file, &plan, &dir)?;
    let topology_file = dir.join("topology.yaml");
    let (made, credentials) = std::thread::scope(|scope| {
        let credentials =
            scope.spawn(|| certificates::write(&topology_file, &dir.join("credentials")));
        let for_anchor = plan.clone();
        let made = Isolation::new(move || prepare(&for_anchor));
        (made, credentials.join())
    });
    let (isolation, (emulation, places)) = made?;
    match credentials {
        Ok(written) => written?,
        Err(panic) => std::panic::resume_unwind(panic),
    }
    let world = World {
        processes: Mutex::new(processes(&plan, file, options, &dir, &places)?),
        topology: file.topology.clone(),
        wan: emulation.start()?,
        plan,
        places,
        isolation,
        home,
    };
    for (name, process) in world.processes().iter_mut() {
        if !options.idle.contains(name) {
            process.start(&world.isolation)?;
        }
    }
    Ok(world)
}

/// A directory beside the programs, of this world and no other.
fn own_dir(name: &str) -> anyhow::Result<PathBuf> {
    let number = WORLDS.fetch_add(1, Ordering::Relaxed);
    let worlds = programs_dir()?.join("worlds");
    home::remove_left(&worlds);
    Ok(worlds.join(home::temporary_name(name, number)))
}

/// The files that processes read.
fn write(file: &WorldFile, plan: &Plan, dir: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(dir.join("bird")).with_context(|| dir.display().to_string())?;
    let text = topology::to_yaml(&file.topology).context("a topology that has no YAML form")?;
    let path = dir.join("topology.yaml");
    topology::load(&text, &path.display().to_string()).map_err(anyhow::Error::msg)?;
    fs::write(&path, text).context("writing the topology")?;
    for (name, node) in &plan.nodes {
        let config = match &node.bird {
            Some(config) => config.clone(),
            None if speaks(&file.topology, name) => topology::bird::config(&file.topology, name)?,
            None => continue,
        };
        let socket = bird_socket(dir, name);
        let len = socket.as_os_str().len();
        ensure!(
            len <= SOCKET_PATH_MAX,
            "{}: too long a path for a socket",
            socket.display()
        );
        fs::write(bird_config(dir, name), config).context("writing a bird.conf")?;
    }
    Ok(())
}

/// Whether a PoP has sessions to announce VIPs in.
fn speaks(topology: &Topology, name: &str) -> bool {
    let pop = topology.pop_named(name);
    pop.is_some_and(|pop| !pop.bgp.is_empty() && topology.network.anycast.is_some())
}

type Made = (Emulation, BTreeMap<String, Place>);

/// Namespaces, devices, addresses and routes; runs apart from the machine.
fn prepare(plan: &Plan) -> anyhow::Result<Made> {
    let emulation = Emulation::open(&plan.wan)?;
    let mut places = BTreeMap::new();
    for (name, node) in &plan.nodes {
        let place = Place::open(&plan.wan, name)?;
        Namespace::of(&plan.wan, name).ip(&node.setup())?;
        place.set(&[
            ("ipv4/conf/all/rp_filter", "0"),
            ("ipv4/conf/default/rp_filter", "0"),
        ])?;
        if node.forwards() {
            place.set(&[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")])?;
        }
        places.insert(name.clone(), place);
    }
    Ok((emulation, places))
}

impl Node {
    /// What `ip` is told inside.
    fn setup(&self) -> String {
        let mut lines = String::new();
        for address in &self.addresses {
            let nodad = if address.is_ipv6() { " nodad" } else { "" };
            lines += &format!("address add {address} dev lo{nodad}\n");
        }
        for via in &self.default_via {
            let mut own = self.addresses.iter();
            let source = own.find(|own| own.is_ipv4() == via.is_ipv4());
            let source = source.filter(|_| matches!(self.kind, Kind::Client { .. }));
            let source = source.map_or_else(String::new, |own| format!(" src {own}"));
            lines += &format!("route add default via {via}{source}\n");
        }
        for (to, via) in &self.routes {
            let Via::Backbone = via;
            lines += &format!("route add {to} dev {BACKBONE}\n");
        }
        lines
    }
}

/// Name of the process that is a node's BIRD.
pub(super) fn bird_of(node: &str) -> String {
    format!("{node}.bird")
}

/// Where it takes commands.
pub(super) fn bird_socket(dir: &Path, node: &str) -> PathBuf {
    dir.join("bird").join(format!("{node}.ctl"))
}

fn bird_config(dir: &Path, node: &str) -> PathBuf {
    dir.join("bird").join(format!("{node}.conf"))
}

/// The credentials directory of a node.
pub(super) fn credentials(dir: &Path, node: &str) -> PathBuf {
    dir.join("credentials").join(node)
}

/// Every process, none of them started.
fn processes(
    plan: &Plan,
    file: &WorldFile,
    options: &Options,
    dir: &Path,
    places: &BTreeMap<String, Place>,
) -> anyhow::Result<BTreeMap<String, Process>> {
    let transceiver = if options.meters {
        "lab-transceiver"
    } else {
        "transceiver"
    };
    let mut all = BTreeMap::new();
    for (name, node) in &plan.nodes {
        let place = places.get(name).context("every node has its place")?;
        let mut add = |process: String, program: PathBuf, arguments: Vec<OsString>| {
            let log = dir.join(format!("{process}.log"));
            let own = Process::new(&process, program, arguments, place, log);
            all.insert(process, own);
        };
        if node.bird.is_some() || speaks(&file.topology, name) {
            add(bird_of(name), BIRD.into(), bird_arguments(dir, name));
        }
        let (file, arguments) = match node.kind {
            Kind::Pop => (program("pop")?, node_arguments(dir, name)),
            Kind::CoreRelay => (program("core-relay")?, node_arguments(dir, name)),
            Kind::Transceiver => (program(transceiver)?, node_arguments(dir, name)),
            Kind::GeoDns => (program("geodns")?, node_arguments(dir, name)),
            Kind::Redis(at) => (REDIS.into(), redis_arguments(at)),
            Kind::Client { .. } | Kind::Isp | Kind::Router => continue,
        };
        add(name.clone(), file, arguments);
    }
    Ok(all)
}

fn node_arguments(dir: &Path, name: &str) -> Vec<OsString> {
    vec![
        "--topology".into(),
        dir.join("topology.yaml").into(),
        "--node".into(),
        name.into(),
        "--credentials".into(),
        credentials(dir, name).into(),
        "--log".into(),
        "info".into(),
        "--log-format".into(),
        "json".into(),
    ]
}

fn bird_arguments(dir: &Path, name: &str) -> Vec<OsString> {
    let pid = dir.join("bird").join(format!("{name}.pid"));
    let config = bird_config(dir, name);
    let socket = bird_socket(dir, name);
    vec![
        "-f".into(),
        "-c".into(),
        config.into(),
        "-s".into(),
        socket.into(),
        "-P".into(),
        pid.into(),
    ]
}

fn redis_arguments(at: SocketAddr) -> Vec<OsString> {
    let loopback: IpAddr = match at {
        SocketAddr::V4(_) => [127, 0, 0, 1].into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
    };
    let (ip, port) = (at.ip().to_string(), at.port().to_string());
    let loopback = loopback.to_string();
    let words: [&str; 12] = [
        "--bind",
        &ip,
        &loopback,
        "--port",
        &port,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
    ];
    words
        .into_iter()
        .chain(["no"])
        .map(OsString::from)
        .collect()
}
