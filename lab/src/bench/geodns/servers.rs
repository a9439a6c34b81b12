//! The name servers of the comparison, each on one processor, with one map and one database, each set up so that it does its best.
//!
//! ```text
//! ours        the geodns program: mutual TLS for steering, response limits and cookies on, everything counted
//! gdnsd       Debian, plugin geoip: answers compiled into a tree, recvmmsg and sendmmsg
//! knot        Debian, mod-geoip: the database is asked for each question
//! knot-alike  the same with response limits and counters, as ours has them (cookies it would not answer at once)
//! hickory     hickory-server alone: the database is asked for each question
//! floor       no name server: what came is sent back, with a bit set
//! ```

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use serde::Serialize;

use super::answer;
use super::database::Database;
use super::load::Check;
use super::map::{self, PLACES};
use super::ours;
use super::query::{A, NAME, Query, ZONE};
use crate::bench::peers::program::{Missing, Process, debian, work_dir};
use crate::bench::processor;
use crate::bench::world::PATH;
use crate::net::{Network, programs_dir};
use crate::wait;

/// A name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// See the module head.
    Ours,
    /// See the module head.
    Gdnsd,
    /// See the module head.
    Knot,
    /// See the module head.
    KnotAlike,
    /// See the module head.
    Hickory,
    /// See the module head.
    Floor,
}

impl Server {
    /// In the order they are measured.
    pub const ALL: [Self; 6] = [
        Self::Ours,
        Self::Gdnsd,
        Self::Knot,
        Self::KnotAlike,
        Self::Hickory,
        Self::Floor,
    ];

    /// For people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "geodns",
            Self::Gdnsd => "gdnsd 3.8, geoip",
            Self::Knot => "Knot 3.2, mod-geoip",
            Self::KnotAlike => "Knot, limits and counters",
            Self::Hickory => "hickory-server alone",
            Self::Floor => "(floor) echo",
        }
    }

    /// What of its answers is looked at.
    #[must_use]
    pub const fn check(self) -> Check {
        match self {
            Self::Ours | Self::Gdnsd | Self::Knot | Self::KnotAlike | Self::Hickory => {
                Check::Answer
            }
            Self::Floor => Check::Echo,
        }
    }

    /// Why it cannot run here; `None`: it can.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        let found = match self {
            Self::Ours => program("geodns"),
            Self::Gdnsd => debian(GDNSD, "gdnsd"),
            Self::Knot | Self::KnotAlike => {
                debian(KNOT, "knot").and_then(|_| debian(KNOT_GEOIP, "knot-module-geoip"))
            }
            Self::Hickory | Self::Floor => program("lab"),
        };
        found.err().map(|missing| missing.to_string())
    }
}

/// A running one.
pub struct Running {
    address: SocketAddr,
    guard: Guard,
}

enum Guard {
    Process(Process),
    Network(Box<Network>),
}

impl Running {
    /// Starts it and waits until it answers. It dies with the thread that called this.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(server: Server, database: &Database) -> anyhow::Result<Self> {
        let mut running = match server {
            Server::Ours => Self {
                guard: Guard::Network(Box::new(ours::start(database, 1)?)),
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
            },
            Server::Gdnsd => gdnsd(database)?,
            Server::Knot => knot(database, PLAIN)?,
            Server::KnotAlike => knot(database, ALIKE)?,
            Server::Hickory => own("hickory", database)?,
            Server::Floor => own("floor", database)?,
        };
        if let Guard::Network(network) = &running.guard {
            running.address = ours::address(network)?;
        }
        running.wait_for_an_answer(server)?;
        // Knot spreads its workers over all processors of the machine by itself.
        processor::pin_threads(running.pid()?, PATH)?;
        Ok(running)
    }

    /// Where it answers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    ///
    /// # Errors
    /// It has ended.
    pub fn pid(&self) -> anyhow::Result<u32> {
        match &self.guard {
            Guard::Process(process) => Ok(process.pid()),
            Guard::Network(network) => network.pid(ours::NODE),
        }
    }

    /// Our node and what it was told.
    pub fn network(&mut self) -> Option<&mut Network> {
        match &mut self.guard {
            Guard::Process(_) => None,
            Guard::Network(network) => Some(network),
        }
    }

    fn wait_for_an_answer(&mut self, server: Server) -> anyhow::Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let question = Query {
            kind: A,
            subnet: None,
            cookie: None,
        };
        let question = question.write();
        let what = format!("{} to answer", server.name());
        let answered = wait::until(&what, START_MAX, || {
            if let Guard::Process(process) = &mut self.guard
                && let Err(ended) = process.check()
            {
                return Some(Err(ended));
            }
            // Refused while nobody listens there.
            let _ = socket.send_to(&question, self.address);
            let mut buffer = [0; 512];
            let len = socket.recv(&mut buffer).ok()?;
            let answer = answer::read(buffer.get(..len)?)?;
            (answer.code == 0).then_some(Ok(()))
        });
        answered.and_then(|answered| answered)
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// This program again.
fn own(what: &str, database: &Database) -> anyhow::Result<Running> {
    let (dir, address) = (work_dir(what)?, free_address()?);
    let process = Process::start(&program("lab")?, &dir, |command| {
        command
            .args(["bench", "name-server", what])
            .arg(address.to_string())
            .arg(database.file());
    })?;
    Ok(Running {
        address,
        guard: Guard::Process(process),
    })
}

fn gdnsd(database: &Database) -> anyhow::Result<Running> {
    let (dir, address) = (work_dir("gdnsd")?, free_address()?);
    for inner in ["zones", "run", "state"] {
        fs::create_dir_all(dir.join(inner))?;
    }
    fs::write(
        dir.join("config"),
        gdnsd_config(&dir, address, database.file()),
    )?;
    fs::write(
        dir.join("zones").join(ZONE),
        zone(&format!("{} 60 DYNA geoip!edge", label())),
    )?;
    let process = Process::start(&debian(GDNSD, "gdnsd")?, &dir, |command| {
        command.arg("-c").arg(&dir).arg("start");
    })?;
    Ok(Running {
        address,
        guard: Guard::Process(process),
    })
}

fn gdnsd_config(dir: &Path, address: SocketAddr, database: &Path) -> String {
    let (dir, database) = (dir.display(), database.display());
    let names = PLACES.map(|place| place.name).join(", ");
    let addresses = PLACES.map(|place| {
        let (name, v4, v6) = (place.name, place.v4(), place.v6());
        format!("{name} => {{ addrs_v4 => {{ a => {v4} }}, addrs_v6 => {{ a => {v6} }} }}")
    });
    format!(
        "options => {{ listen => {address}, udp_threads => 1, tcp_threads => 1, run_dir => {dir}/run, state_dir => {dir}/state }}
plugins => {{ geoip => {{
  maps => {{ m => {{ geoip2_db => {database}, datacenters => [{names}], map => {} }} }}
  resources => {{ edge => {{ map => m, service_types => up, dcmap => {{ {} }} }} }}
}} }}\n",
        map::gdnsd(),
        addresses.join(", ")
    )
}

fn knot(database: &Database, modules: Modules) -> anyhow::Result<Running> {
    let (dir, address) = (work_dir(modules.dir)?, free_address()?);
    fs::create_dir_all(dir.join("db"))?;
    fs::write(dir.join("geo.conf"), map::knot(NAME))?;
    let [nowhere, ..] = PLACES;
    let (v4, v6) = (nowhere.v4(), nowhere.v6());
    let statics = format!("{0} 60 A {v4}\n{0} 60 AAAA {v6}", label());
    fs::write(dir.join("zone"), zone(&statics))?;
    fs::write(
        dir.join("knot.conf"),
        knot_config(&dir, address, database.file(), modules),
    )?;
    let process = Process::start(&debian(KNOT, "knot")?, &dir, |command| {
        command.arg("-c").arg(dir.join("knot.conf"));
    })?;
    Ok(Running {
        address,
        guard: Guard::Process(process),
    })
}

fn knot_config(dir: &Path, address: SocketAddr, database: &Path, modules: Modules) -> String {
    let (ip, port) = (address.ip(), address.port());
    let (dir, database) = (dir.display(), database.display());
    let Modules { set_up, used, .. } = modules;
    format!(
        "server:
    listen: {ip}@{port}
    rundir: {dir}
    udp-workers: 1
    tcp-workers: 1
    background-workers: 1
    edns-client-subnet: on
database:
    storage: {dir}/db
log:
  - target: stderr
    any: warning
mod-geoip:
  - id: geo
    config-file: {dir}/geo.conf
    ttl: 60
    mode: geodb
    geodb-file: {database}
    geodb-key: [ continent/code, country/iso_code ]
{set_up}zone:
  - domain: {ZONE}
    storage: {dir}
    file: zone
    module: [ {used} ]\n"
    )
}

/// A zone file with one more name.
fn zone(more: &str) -> String {
    format!(
        "@ 60 SOA ns1 hostmaster 1 7200 1800 259200 60\n@ 60 NS ns1\nns1 60 A 192.0.2.53\n{more}\n"
    )
}

/// An address of loopback whose port nobody has, for UDP or for TCP.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    for _ in 0..FREE_TRIES {
        let address = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no port is free for both UDP and TCP")
}

/// The name below the zone.
fn label() -> &'static str {
    NAME.split('.').next().unwrap_or(NAME)
}

fn program(name: &str) -> Result<PathBuf, Missing> {
    let missing = |path: &Path| Missing(format!("{} is not built", path.display()));
    let dir = programs_dir().map_err(|error| Missing(error.to_string()))?;
    let path = dir.join(name);
    path.exists()
        .then(|| path.clone())
        .ok_or_else(|| missing(&path))
}

/// Modules of Knot beside the one that chooses.
#[derive(Clone, Copy)]
struct Modules {
    /// Name of its work directory.
    dir: &'static str,
    /// Sections of the configuration.
    set_up: &'static str,
    /// In the order they see a question.
    used: &'static str,
}

const PLAIN: Modules = Modules {
    dir: "knot",
    set_up: "",
    used: "mod-geoip/geo",
};
/// A limit that nobody reaches, as ours.
const ALIKE: Modules = Modules {
    dir: "knot-alike",
    set_up: "mod-rrl:
  - id: limits
    rate-limit: 1000000
",
    used: "mod-rrl/limits, mod-stats, mod-geoip/geo",
};

const GDNSD: &str = "/usr/sbin/gdnsd";
const KNOT: &str = "/usr/sbin/knotd";
const KNOT_GEOIP: &str = "/usr/share/doc/knot-module-geoip";
const FREE_TRIES: usize = 16;
const START_MAX: Duration = Duration::from_secs(30);
