//! A world on one machine: clients, ISPs, transit routers that speak real BGP, PoPs, regions, GeoDNS and Redis, each in a network
//! namespace, joined by the WAN emulator; everything of it out of one world file.
//!
//! ```text
//! WorldFile ──► Plan ──► namespaces, wires ──► BIRD everywhere, Redis, every node's program ──► converged and ready
//! (YAML)        (pure)   (this process          (processes of the world, see `isolation`)
//!                         carries the packets)
//! ```
//!
//! ```no_run
//! use lab::world::{Options, World, WorldFile};
//! # fn main() -> anyhow::Result<()> {
//! let world = World::up(&WorldFile::find("small")?, &Options::default())?;
//! let vip = world.vips()[0];
//! assert_eq!(world.nearest("c-lon", vip)?.as_deref(), Some("lon"));
//! world.fault(&"kill lon".parse()?)?;
//! # Ok(())
//! # }
//! ```
//!
//! Real: kernels' routing, BGP and BFD, the programs, Redis, what Linux does with packets. Emulated: the wires. A dropped world is
//! gone from the machine, and so is one whose process is killed.
//!
//! Not here: what clients do, and plans of what happens when.

mod bird;
mod birdc;
pub mod cities;
pub mod command;
mod control;
mod fault;
pub mod file;
mod home;
mod isolation;
mod launch;
mod place;
pub mod plan;
mod process;
mod resp;
mod routes;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use nix::sys::signal::Signal;
use runtime::clock;
use serde_json::Value;
use topology::{NodeRole, Topology};

pub use fault::{Fault, FaultError};
pub use file::WorldFile;
pub use place::Place;
pub use plan::{Kind, Plan};

use crate::http::{self, Response};
use crate::metrics::Scrape;
use crate::{wait, wan};
use home::Home;
use isolation::Isolation;
use process::Process;
use routes::Routes;

/// How long all may take until everything is ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long a packet may take there and back.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(3);
/// Routers on a client's way to a PoP at most.
const HOPS_MAX: usize = 16;

/// How a world is brought up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where its files are; a directory of its own beside the programs, if absent, which is removed when all went well.
    pub dir: Option<PathBuf>,
    /// Whether the voice of every transceiver measures ([`crate::meter`]) in place of an echo.
    pub meters: bool,
    /// Nodes whose programs are not started.
    pub idle: BTreeSet<String>,
}

/// Who serves whom: client, address, and the PoP where packets arrive, if they do.
pub type Nearest = BTreeMap<(String, SocketAddr), Option<String>>;

/// See the module head.
pub struct World {
    plan: Plan,
    topology: Topology,
    places: BTreeMap<String, Place>,
    processes: Mutex<BTreeMap<String, Process>>,
    wan: wan::Running,
    isolation: Isolation,
    /// Last: everybody who writes there is gone before it is.
    home: Home,
}

impl World {
    /// Makes everything, and waits until every node is ready and BGP has brought every client to its nearest PoP.
    ///
    /// # Errors
    /// Not root, a program that is not built or does not come up, or a world that cannot be.
    pub fn up(file: &WorldFile, options: &Options) -> anyhow::Result<Self> {
        let world = launch::up(file, options)?;
        world.wait_ready()?;
        world.wait_converged()?;
        Ok(world)
    }

    /// What it was made from.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The network that runs in it.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Its files: `topology.yaml`, `credentials/`, `bird/`, and a log of every process.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.home.dir()
    }

    /// Anycast addresses.
    #[must_use]
    pub fn vips(&self) -> &[SocketAddr] {
        &self.plan.vips
    }

    /// Pid 1 of its processes, as the machine sees it.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.isolation.pid()
    }

    /// The namespace of a node.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use]
    pub fn namespace(&self, node: &str) -> &Place {
        self.place(node)
            .expect("the caller names a node of its world")
    }

    fn place(&self, node: &str) -> anyhow::Result<&Place> {
        let place = self.places.get(node);
        place.with_context(|| format!("there is no node `{node}`"))
    }

    /// Runs `work` on a thread in a node's namespace.
    ///
    /// # Errors
    /// There is no such node, or what `work` returns.
    pub fn run_in<T: Send>(
        &self,
        node: &str,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        self.place(node)?.run(work)
    }

    /// An order to the WAN emulator, such as `cut lon r-lon`.
    ///
    /// # Errors
    /// It is none, or names no wire.
    pub fn wan(&self, order: &str) -> anyhow::Result<Value> {
        let answer = self.wan.order(order)?;
        if let Some(error) = answer.get("error") {
            bail!("{order}: {error}");
        }
        Ok(answer)
    }

    // Processes.

    /// `kill -9` of a node's program; it is gone when this returns.
    ///
    /// # Errors
    /// There is none, or it does not run.
    pub fn kill(&self, node: &str) -> anyhow::Result<()> {
        self.with(node, |process| {
            ensure!(process.is_running(), "{node} does not run");
            process.kill();
            Ok(())
        })
    }

    /// Starts a node's program, and does not wait for it.
    ///
    /// # Errors
    /// There is none, or it runs.
    pub fn start(&self, node: &str) -> anyhow::Result<()> {
        self.with(node, |process| process.start(&self.isolation))
    }

    /// `SIGSTOP`: it stands still.
    ///
    /// # Errors
    /// See [`Self::kill`].
    pub fn stop(&self, node: &str) -> anyhow::Result<()> {
        self.with(node, |process| process.signal(Signal::SIGSTOP))
    }

    /// `SIGCONT`.
    ///
    /// # Errors
    /// See [`Self::kill`].
    pub fn cont(&self, node: &str) -> anyhow::Result<()> {
        self.with(node, |process| process.signal(Signal::SIGCONT))
    }

    /// `SIGTERM`.
    ///
    /// # Errors
    /// See [`Self::kill`].
    pub fn term(&self, node: &str) -> anyhow::Result<()> {
        self.with(node, |process| process.signal(Signal::SIGTERM))
    }

    /// Whether a node's program runs.
    ///
    /// # Errors
    /// There is none.
    pub fn is_running(&self, node: &str) -> anyhow::Result<bool> {
        self.with(node, |process| Ok(process.is_running()))
    }

    /// Process id of a node's program, as the machine sees it.
    ///
    /// # Errors
    /// See [`Self::kill`].
    pub fn pid_of(&self, node: &str) -> anyhow::Result<u32> {
        self.with(node, |process| process.pid())
    }

    /// `kill -9` of the BIRD of a PoP, a router or an ISP.
    ///
    /// # Errors
    /// See [`Self::kill`].
    pub fn kill_bird(&self, node: &str) -> anyhow::Result<()> {
        self.kill(&launch::bird_of(node))
    }

    /// Starts it again.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_bird(&self, node: &str) -> anyhow::Result<()> {
        self.start(&launch::bird_of(node))
    }

    /// A command to the BIRD of a PoP, a router or an ISP, as `birdc` takes it.
    ///
    /// # Errors
    /// It does not run, or does not want it.
    pub fn birdc(&self, node: &str, command: &str) -> anyhow::Result<String> {
        birdc::ask(&launch::bird_socket(self.dir(), node), command)
    }

    /// Cuts the wires of a node, then kills all its processes: nobody hears a word of it.
    ///
    /// # Errors
    /// There is no such node.
    pub fn power_off(&self, node: &str) -> anyhow::Result<()> {
        self.wan(&format!("cut {node} *"))?;
        let bird = launch::bird_of(node);
        let mut processes = self.processes();
        for name in [node, &bird] {
            if let Some(process) = processes.get_mut(name) {
                process.kill();
            }
        }
        Ok(())
    }

    /// Heals the wires of a node, and starts its processes that do not run.
    ///
    /// # Errors
    /// There is no such node, or one does not start.
    pub fn power_on(&self, node: &str) -> anyhow::Result<()> {
        self.wan(&format!("heal {node} *"))?;
        let bird = launch::bird_of(node);
        let mut processes = self.processes();
        for name in [&bird, node] {
            if let Some(process) = processes.get_mut(name)
                && !process.is_running()
            {
                process.start(&self.isolation)?;
            }
        }
        Ok(())
    }

    /// BIRD of a PoP takes the VIPs back, and nothing else changes: no process ends, and what covers them stays announced.
    ///
    /// # Errors
    /// Its BIRD does not run.
    pub fn withdraw(&self, pop: &str) -> anyhow::Result<()> {
        self.learn(pop, "disable")
    }

    /// BIRD of a PoP announces the VIPs again, if its `pop` wants them announced.
    ///
    /// # Errors
    /// Its BIRD does not run.
    pub fn announce(&self, pop: &str) -> anyhow::Result<()> {
        self.learn(pop, "enable")
    }

    fn learn(&self, pop: &str, verb: &str) -> anyhow::Result<()> {
        let families: BTreeSet<u8> = self
            .vips()
            .iter()
            .map(|vip| bird::family_of(vip.ip()))
            .collect();
        families.into_iter().try_for_each(|family| {
            let _done = self.birdc(pop, &format!("{verb} kernel_vip{family}"))?;
            Ok(())
        })
    }

    /// Does what the line of a scenario says.
    ///
    /// # Errors
    /// What it says cannot be done.
    pub fn fault(&self, fault: &Fault) -> anyhow::Result<()> {
        match fault {
            Fault::Kill(node) => self.kill(node),
            Fault::Start(node) => self.start(node),
            Fault::Stop(node) => self.stop(node),
            Fault::Cont(node) => self.cont(node),
            Fault::Term(node) => self.term(node),
            Fault::KillBird(node) => self.kill_bird(node),
            Fault::StartBird(node) => self.start_bird(node),
            Fault::PowerOff(node) => self.power_off(node),
            Fault::PowerOn(node) => self.power_on(node),
            Fault::Withdraw(pop) => self.withdraw(pop),
            Fault::Announce(pop) => self.announce(pop),
            Fault::Drain(pop) => self.order(pop, "/v1/drain"),
            Fault::Undrain(pop) => self.order(pop, "/v1/undrain"),
            Fault::Wan(order) => self.wan(order).map(|_answer| ()),
        }
    }

    fn order(&self, node: &str, path: &str) -> anyhow::Result<()> {
        let path = format!("{path}?node={node}");
        let response = self.admin(node, "POST", &path)?;
        let done = (200..300).contains(&response.status);
        ensure!(
            done,
            "POST {path} of {node}: {} {}",
            response.status,
            response.body.trim()
        );
        Ok(())
    }

    // What nodes say.

    /// A request to a node's admin address, with its token.
    ///
    /// # Errors
    /// There is no such node, or it does not answer.
    pub fn admin(&self, node: &str, method: &str, path: &str) -> anyhow::Result<Response> {
        let role = self.topology.node_role(node);
        let at = match role.with_context(|| format!("`{node}` has no admin address"))? {
            NodeRole::Pop(pop) => pop.admin,
            NodeRole::CoreRelay(_, relay) => relay.admin,
            NodeRole::Transceiver(_, node) => node.admin,
            NodeRole::GeoDns(node) => node.admin,
        };
        let file = launch::credentials(self.dir(), node).join("admin.token");
        let token = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let token = format!("Bearer {}", token.trim());
        let url = format!("http://{at}{path}");
        self.run_in(node, || {
            http::send(method, &url, &[("authorization", &token)], &[])
        })
    }

    /// A node's metrics.
    ///
    /// # Errors
    /// It does not answer.
    pub fn metrics(&self, node: &str) -> anyhow::Result<Scrape> {
        let response = self.admin(node, "GET", "/metrics")?;
        Ok(Scrape::parse(&response.body))
    }

    /// A node's `/state`.
    ///
    /// # Errors
    /// It does not answer with JSON.
    pub fn state(&self, node: &str) -> anyhow::Result<Value> {
        let response = self.admin(node, "GET", "/state")?;
        serde_json::from_str(&response.body).context("a state that is no JSON")
    }

    /// A command to a Redis server of the world, and its answer.
    ///
    /// # Errors
    /// There is none of that name, it does not answer, or says that something is wrong.
    pub fn redis(&self, node: &str, words: &[&str]) -> anyhow::Result<Value> {
        let Kind::Redis(at) = self.plan.node(node)?.kind else {
            bail!("{node} is no Redis");
        };
        self.run_in(node, || resp::ask(at, words))
    }

    /// What a node's program has logged so far.
    ///
    /// # Errors
    /// There is none.
    pub fn log(&self, node: &str) -> anyhow::Result<String> {
        self.with(node, |process| Ok(process.log()))
    }

    /// Whether all is as it should be: what was started runs unless it was ended from here, and nothing logged an error.
    ///
    /// # Errors
    /// Names the process, with the end of its log.
    pub fn check(&self) -> anyhow::Result<()> {
        for (name, process) in self.processes().iter_mut() {
            process.check()?;
            let log = process.log();
            let wrong =
                |line: &&str| line.contains("\"level\":\"ERROR\"") || line.contains("panicked at");
            if let Some(line) = log.lines().find(wrong) {
                bail!("{name} logged an error: {line}");
            }
        }
        Ok(())
    }

    // Who serves whom.

    /// The PoP that packets from `client` to `vip` arrive at, found by the routes of the kernels on their way.
    ///
    /// # Errors
    /// There is no such client.
    pub fn nearest(&self, client: &str, vip: SocketAddr) -> anyhow::Result<Option<String>> {
        self.walk(client, vip, &mut BTreeMap::new())
    }

    /// The same for all clients and VIPs.
    ///
    /// # Errors
    /// Routes cannot be read.
    pub fn nearest_table(&self) -> anyhow::Result<Nearest> {
        let mut known = BTreeMap::new();
        let mut table = BTreeMap::new();
        for client in self.plan.clients() {
            for vip in self.vips() {
                let pop = self.walk(client, *vip, &mut known)?;
                table.insert((client.to_owned(), *vip), pop);
            }
        }
        Ok(table)
    }

    /// What [`Self::nearest_table`] is when `alive` announce the VIPs and no other PoP does: the shortest ways of the matrix.
    #[must_use]
    pub fn shortest_table(&self, alive: &[&str]) -> Nearest {
        let clients = self.plan.clients();
        let each = clients.flat_map(|client| {
            let pop = self.plan.shortest(client, alive).map(str::to_owned);
            let vips = self.vips().iter();
            vips.map(move |vip| ((client.to_owned(), *vip), pop.clone()))
        });
        each.collect()
    }

    /// The PoP of `alive` that is the nearest to `client`.
    #[must_use]
    pub fn shortest<'a>(&self, client: &str, alive: &[&'a str]) -> Option<&'a str> {
        self.plan.shortest(client, alive)
    }

    /// Waits until every client reaches the nearest of the PoPs that announce, and no other PoP does.
    ///
    /// # Errors
    /// It does not come to that; the text says which clients go elsewhere.
    pub fn wait_nearest(&self, alive: &[&str], deadline: Duration) -> anyhow::Result<()> {
        let wanted = self.shortest_table(alive);
        let reached = wait::until_true("routes", deadline, || {
            self.nearest_table().is_ok_and(|table| table == wanted)
        });
        reached.or_else(|_| {
            let found = self.nearest_table()?;
            let wrong = wanted
                .iter()
                .filter(|(key, pop)| found.get(key) != Some(pop));
            let wrong = wrong.map(|((client, vip), pop)| {
                let goes = found.get(&(client.clone(), *vip)).cloned().flatten();
                format!("{client} to {vip}: {goes:?}, not {pop:?}")
            });
            let wrong: Vec<String> = wrong.collect();
            if wrong.is_empty() {
                return Ok(());
            }
            bail!("after {deadline:?}: {}", wrong.join("; "))
        })
    }

    fn walk(
        &self,
        client: &str,
        vip: SocketAddr,
        known: &mut BTreeMap<String, Routes>,
    ) -> anyhow::Result<Option<String>> {
        let mut at = client.to_owned();
        for _ in 0..HOPS_MAX {
            if self.plan.node(&at)?.kind == Kind::Pop {
                return Ok(Some(at));
            }
            if !known.contains_key(&at) {
                known.insert(at.clone(), self.run_in(&at, Routes::read)?);
            }
            let device = known.get(&at).and_then(|routes| routes.device(vip.ip()));
            let next = device.and_then(|device| {
                let far_ends = &self.plan.far_ends;
                far_ends.get(&(at.clone(), device.to_owned()))
            });
            match next {
                Some(next) => at = next.clone(),
                None => return Ok(None),
            }
        }
        bail!("packets from {client} to {vip} go in a circle")
    }

    /// How long a packet from `node` to an address and its answer take: a connection to a port where nobody listens is refused.
    ///
    /// # Errors
    /// Nothing comes back.
    pub fn round_trip(&self, node: &str, to: std::net::IpAddr) -> anyhow::Result<Duration> {
        let closed = SocketAddr::new(to, 1);
        self.run_in(node, || {
            let asked = clock::now();
            let answer = TcpStream::connect_timeout(&closed, ROUND_TRIP_MAX);
            let took = clock::now() - asked;
            match answer {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(took),
                Err(error) => Err(error).with_context(|| format!("from {node} to {to}")),
                Ok(_) => bail!("{closed} takes connections"),
            }
        })
    }

    // Getting ready.

    /// Waits until every node that runs is ready, with nothing amiss.
    fn wait_ready(&self) -> anyhow::Result<()> {
        let mut waiting: Vec<String> = Vec::new();
        for name in self.topology.node_names() {
            if self.is_running(name)? {
                waiting.push(name.to_owned());
            }
        }
        let ready = |name: &String| {
            let answer = self.admin(name, "GET", "/readyz");
            answer.is_ok_and(|answer| answer.status == 200 && answer.body.trim() == "ready")
        };
        let all = wait::until("every node to be ready", READY_MAX, || {
            let mut processes = self.processes();
            let ended = processes.values_mut().try_for_each(Process::check);
            drop(processes);
            if let Err(error) = ended {
                return Some(Err(error));
            }
            waiting.retain(|name| !ready(name));
            waiting.is_empty().then_some(Ok(()))
        });
        match all {
            Ok(outcome) => outcome,
            Err(error) => {
                let first = waiting.first().cloned().unwrap_or_default();
                let says = self.admin(&first, "GET", "/readyz");
                let says = says.map(|answer| answer.body).unwrap_or_default();
                let tail = self.with(&first, |process| Ok(process.tail()))?;
                Err(error.context(format!("{first} says {says:?}; {tail}")))
            }
        }
    }

    fn wait_converged(&self) -> anyhow::Result<()> {
        let mut announcing = Vec::new();
        for pop in &self.topology.pops {
            if !pop.bgp.is_empty() && self.is_running(&pop.name)? {
                announcing.push(pop.name.as_str());
            }
        }
        self.wait_nearest(&announcing, READY_MAX)
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<String, Process>> {
        // A panic in the middle of a change leaves a map that is as good as any.
        self.processes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        name: &str,
        act: impl FnOnce(&mut Process) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut processes = self.processes();
        let process = processes.get_mut(name);
        act(process.with_context(|| format!("no process is `{name}`"))?)
    }
}

impl World {
    /// Ends every process, while somebody may still hold the world.
    fn end(&self) {
        // The kernel ends everybody at once; the rest is to hear of it.
        self.isolation.kill();
        for process in self.processes().values_mut() {
            process.kill();
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.end();
    }
}
