//! A network of real processes: writes topology and credentials, starts `pop`, `core-relay`, `transceiver` and `geodns`,
//! breaks them on request, watches their logs, and leaves nothing behind.
//!
//! ```text
//! 127.R.1.x    core relays         R is this run's own, so that runs never collide
//! 127.R.11.x   transceivers: records :5000, WHIP :8080, peers :8443
//! 127.R.31.x   PoPs: ingress :3478 (or an address of a namespace, see `Shape::ingress`)
//! 127.R.41.x   GeoDNS nodes, when a test adds them to the topology
//! every node's admin HTTP is its address, port 9100
//! ```
//!
//! A node that dies unasked, or logs an error, fails the test: `Network::check`, which dropping calls.

pub(crate) mod credentials;
pub mod namespace;
mod node;
mod range;
mod shape;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use topology::Topology;

pub use credentials::bearer;
pub(crate) use node::program;
pub use node::{Program, programs_dir};
pub use shape::Shape;

use crate::http;
use crate::metrics::Scrape;
use crate::process::Usage;
use crate::wait;
use node::Node;
use range::Range;

/// How long a node may take until it is ready.
const READY_MAX: Duration = Duration::from_secs(15);
/// How long a node may take to end after it was told to.
const END_MAX: Duration = Duration::from_secs(20);

/// Running nodes and what was written for them.
pub struct Network {
    dir: PathBuf,
    topology: Topology,
    nodes: Vec<Node>,
    expected_errors: Vec<String>,
    _range: Range,
}

impl Network {
    /// Writes and starts everything, core relays first, and waits until every node is ready.
    ///
    /// # Errors
    /// A program is not built, or a node does not come up; the error holds the end of its log.
    pub fn start(shape: &Shape) -> anyhow::Result<Self> {
        Self::start_with(shape, |_| {})
    }

    /// As [`Self::start`]; `adjust` may change the topology before it is written.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_with(shape: &Shape, adjust: impl FnOnce(&mut Topology)) -> anyhow::Result<Self> {
        let mut network = Self::prepare(shape, adjust)?;
        for node in &mut network.nodes {
            node.spawn()?;
        }
        for index in 0..network.nodes.len() {
            network.wait_ready(index)?;
        }
        Ok(network)
    }

    /// Writes everything and starts nothing.
    ///
    /// # Errors
    /// A program is not built, or the topology is impossible.
    pub fn prepare(shape: &Shape, adjust: impl FnOnce(&mut Topology)) -> anyhow::Result<Self> {
        let range = Range::take()?;
        let mut topology = shape.topology(range.octet());
        adjust(&mut topology);
        let dir = run_dir(range.octet())?;
        let file = dir.join("topology.yaml");
        fs::write(&file, yaml(&topology)?).context("writing the topology")?;
        credentials::write(&file, &dir.join("credentials"))?;
        let nodes = node::all(&topology, &dir, shape);
        Ok(Self {
            dir,
            topology,
            nodes,
            expected_errors: Vec::new(),
            _range: range,
        })
    }

    /// What the nodes were told.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The WHIP endpoint of a transceiver.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use]
    pub fn whip(&self, transceiver: &str) -> String {
        let (_, node) = self
            .topology
            .transceiver_named(transceiver)
            .expect("the test names a transceiver of its topology");
        format!("http://{}/whip", node.whip)
    }

    /// Address of a node's admin HTTP.
    #[must_use]
    pub fn admin(&self, name: &str) -> String {
        format!("http://{}", self.node(name).admin)
    }

    /// The credentials directory of a node.
    #[must_use]
    pub fn credentials(&self, name: &str) -> PathBuf {
        self.dir.join("credentials").join(name)
    }

    /// The topology file.
    #[must_use]
    pub fn topology_file(&self) -> PathBuf {
        self.dir.join("topology.yaml")
    }

    /// Writes `topology` in place of the file the nodes read; they see it at the next reload.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn rewrite_topology(&mut self, topology: Topology) -> anyhow::Result<()> {
        replace(&self.topology_file(), &yaml(&topology)?)?;
        self.topology = topology;
        Ok(())
    }

    /// Writes a file into the credentials directory of every node.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn rewrite_credential(&self, file: &str, text: &str) -> anyhow::Result<()> {
        self.nodes
            .iter()
            .try_for_each(|node| replace(&self.credentials(&node.name).join(file), text))
    }

    /// Names of the nodes of a program, in topology order.
    pub fn names(&self, program: Program) -> impl Iterator<Item = &str> {
        let nodes = self
            .nodes
            .iter()
            .filter(move |node| node.program == program);
        nodes.map(|node| node.name.as_str())
    }

    /// Starts a node and does not wait for it.
    ///
    /// # Errors
    /// It runs already, or its program is not there.
    pub fn spawn_node(&mut self, name: &str) -> anyhow::Result<()> {
        self.node_mut(name).spawn()
    }

    /// Starts a node that was stopped, or never started, and waits until it is ready.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start_node(&mut self, name: &str) -> anyhow::Result<()> {
        let index = self.index(name);
        self.node_mut(name).spawn()?;
        self.wait_ready(index)
    }

    /// Starts a node that must refuse to start with this exit code, and returns the line it says so with.
    ///
    /// # Errors
    /// It starts, ends otherwise, or says more or less than one line.
    pub fn refusal(&mut self, name: &str, code: i32) -> anyhow::Result<String> {
        let node = self.node_mut(name);
        let said_before = node.log().len();
        node.spawn()?;
        let what = format!("{name} to refuse to start");
        let status = wait::until(&what, END_MAX, || node.try_end())?;
        let log = node.log();
        let said = log.get(said_before..).unwrap_or_default();
        let lines: Vec<_> = said.lines().filter(|line| !line.starts_with('{')).collect();
        match (status.code(), lines.as_slice()) {
            (Some(found), [line]) if found == code => Ok((*line).to_owned()),
            _ => bail!("{name} ended with {status} and said {said:?}"),
        }
    }

    /// Makes every node a new certificate of the same authority.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn renew_certificates(&self) -> anyhow::Result<()> {
        let authority = self.dir.join("credentials");
        let names = self.nodes.iter().map(|node| node.name.as_str());
        credentials::renew(&authority, names)
    }

    /// `kill -9`, and the process is gone.
    ///
    /// # Errors
    /// It was not running.
    pub fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        self.node_mut(name).kill()
    }

    /// `SIGTERM` without waiting for the end.
    ///
    /// # Errors
    /// It was not running.
    pub fn terminate(&mut self, name: &str) -> anyhow::Result<()> {
        self.node_mut(name).signal_end()
    }

    /// Waits for the end of a node that was told to stop.
    ///
    /// # Errors
    /// It goes on running.
    pub fn wait_end(&mut self, name: &str) -> anyhow::Result<ExitStatus> {
        let node = self.node_mut(name);
        let what = format!("the end of {name}");
        wait::until(&what, END_MAX, || node.try_end())
    }

    /// `SIGHUP` to every running node, and waits until each has loaded its files again.
    ///
    /// # Errors
    /// A node does not say that it has.
    pub fn reload(&self) -> anyhow::Result<()> {
        let running = || self.nodes.iter().filter(|node| node.is_running());
        let reloads = |node: &Node| -> anyhow::Result<f64> {
            Ok(self.metrics(&node.name)?.sum(RELOADS, &[]))
        };
        let mut before = Vec::new();
        for node in running() {
            before.push(reloads(node)?);
            node.hang_up()?;
        }
        for (node, before) in running().zip(before) {
            let what = format!("a reload of {}", node.name);
            wait::until_true(&what, READY_MAX, || {
                reloads(node).is_ok_and(|now| now > before)
            })?;
        }
        Ok(())
    }

    /// Process id of a running node.
    ///
    /// # Errors
    /// It is not running.
    pub fn pid(&self, name: &str) -> anyhow::Result<u32> {
        self.node(name).pid()
    }

    /// What `/proc` says about a node.
    ///
    /// # Errors
    /// It is not running.
    pub fn usage(&self, name: &str) -> anyhow::Result<Usage> {
        Usage::of(self.pid(name)?)
    }

    /// Scrapes a node.
    ///
    /// # Errors
    /// It does not answer.
    pub fn metrics(&self, name: &str) -> anyhow::Result<Scrape> {
        let response = http::get(&format!("{}/metrics", self.admin(name)))?;
        Ok(Scrape::parse(&response.body))
    }

    /// A node's `/state`.
    ///
    /// # Errors
    /// It does not answer with JSON.
    pub fn state(&self, name: &str) -> anyhow::Result<Value> {
        let response = http::get(&format!("{}/state", self.admin(name)))?;
        serde_json::from_str(&response.body).context("state is no JSON")
    }

    /// A node's drops so far, of one reason.
    ///
    /// # Errors
    /// It does not answer.
    pub fn drops(&self, name: &str, reason: &str) -> anyhow::Result<f64> {
        let metric = match self.node(name).program {
            Program::Pop => "firsthop_pop_drops_total",
            Program::CoreRelay => "firsthop_core_relay_drops_total",
            Program::Transceiver => "firsthop_transceiver_drops_total",
            Program::GeoDns => "firsthop_geodns_drops_total",
        };
        Ok(self.metrics(name)?.sum(metric, &[("reason", reason)]))
    }

    /// Sessions a transceiver holds, pending ones included, as its admin API lists them.
    ///
    /// # Errors
    /// It does not answer.
    pub fn sessions(&self, transceiver: &str) -> anyhow::Result<Vec<Value>> {
        let response = http::get(&format!("{}/sessions", self.admin(transceiver)))?;
        let list: Value = serde_json::from_str(&response.body).context("no list of sessions")?;
        let sessions = list.get("sessions").and_then(Value::as_array);
        Ok(sessions.context("no `sessions`")?.clone())
    }

    /// Waits until a transceiver holds no session.
    ///
    /// # Errors
    /// It goes on holding one.
    pub fn wait_no_sessions(&self, transceiver: &str) -> anyhow::Result<()> {
        let what = format!("{transceiver} to let go of its sessions");
        wait::until_true(&what, READY_MAX, || {
            self.sessions(transceiver).is_ok_and(|list| list.is_empty())
        })
    }

    /// The first ingress address of a PoP.
    ///
    /// # Panics
    /// There is no such PoP.
    #[must_use]
    pub fn ingress(&self, pop: &str) -> SocketAddr {
        let pop = self.topology.pop_named(pop);
        let ingress = pop.and_then(|pop| pop.ingress.first());
        *ingress.expect("the test names a PoP of its topology")
    }

    /// A log line with this text is no failure.
    pub fn expect_error(&mut self, text: &str) {
        self.expected_errors.push(text.to_owned());
    }

    /// What a node has logged so far.
    #[must_use]
    pub fn log(&self, name: &str) -> String {
        self.node(name).log()
    }

    /// Whether every node does what it should: running unless it was stopped, and no error logged.
    ///
    /// # Errors
    /// Names the node, with the end of its log.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for node in &mut self.nodes {
            node.check_alive()?;
            let log = node.log();
            let unexpected = log.lines().find(|line| {
                is_error(line) && !self.expected_errors.iter().any(|text| line.contains(text))
            });
            if let Some(line) = unexpected {
                bail!("{} logged an error: {line}", node.name);
            }
        }
        Ok(())
    }

    fn wait_ready(&mut self, index: usize) -> anyhow::Result<()> {
        let node = self.nodes.get_mut(index).context("no such node")?;
        let url = format!("http://{}/readyz", node.admin);
        let what = format!("{} to be ready", node.name);
        let ready = wait::until(&what, READY_MAX, || match node.check_alive() {
            Err(error) => Some(Err(error)),
            Ok(()) => http::get(&url)
                .is_ok_and(|response| response.status == 200)
                .then_some(Ok(())),
        });
        ready
            .and_then(|ready| ready)
            .with_context(|| node.log_tail())
    }

    fn index(&self, name: &str) -> usize {
        let index = self.nodes.iter().position(|node| node.name == name);
        index.expect("the test names a node of its topology")
    }

    #[expect(clippy::indexing_slicing, reason = "`index` has just found it")]
    fn node(&self, name: &str) -> &Node {
        &self.nodes[self.index(name)]
    }

    #[expect(clippy::indexing_slicing, reason = "`index` has just found it")]
    fn node_mut(&mut self, name: &str) -> &mut Node {
        let index = self.index(name);
        &mut self.nodes[index]
    }
}

impl Drop for Network {
    /// Kills what runs; fails the test when something was wrong and it has not failed yet.
    fn drop(&mut self) {
        let checked = self.check();
        for node in &mut self.nodes {
            node.end();
        }
        if std::thread::panicking() {
            return;
        }
        checked.expect("the network stayed healthy");
        // Nothing to look at any more: the test has passed.
        let _left = fs::remove_dir_all(&self.dir);
    }
}

/// Counts loads of topology and credentials, good and bad ones.
const RELOADS: &str = "firsthop_config_reloads_total";

fn is_error(line: &str) -> bool {
    line.contains("\"level\":\"ERROR\"") || line.contains("panicked at")
}

fn yaml(topology: &Topology) -> anyhow::Result<String> {
    topology::to_yaml(topology).context("a topology that has no YAML form")
}

/// A directory of this run under `target/`; logs stay there when the test fails.
fn run_dir(octet: u8) -> anyhow::Result<PathBuf> {
    let dir = programs_dir()?
        .join("e2e-runs")
        .join(format!("{}-{octet}", std::process::id()));
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    fs::create_dir_all(&dir).context("making the directory of this run")?;
    Ok(dir)
}

/// Replaces a file in one step, as an operator's tool should: a node never reads half of it.
fn replace(file: &Path, text: &str) -> anyhow::Result<()> {
    let draft = file.with_extension("draft");
    fs::write(&draft, text)?;
    fs::rename(&draft, file).with_context(|| format!("replacing {}", file.display()))
}
