//! `firsthop up`: a whole network on this machine, for as long as the command runs.
//!
//! ```text
//! main thread   checks, credentials, starts the nodes, then carries out orders: restart a PoP, stop
//! control       one tokio thread: signals, the demo page and its API, the proxy to signaling
//! nodes         threads of this process (each node its own context), or child processes
//! ```
//!
//! Only the main thread starts and ends nodes. Everything on disk is in one temporary directory.

mod host;
mod in_process;
mod nodes;
pub(crate) mod plan;
mod preflight;
mod processes;
mod ready;
mod signals;
mod table;

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use runtime::control::Control;
use tokio::sync::oneshot;
use topology::Topology;

use self::in_process::InProcess;
use self::nodes::{Files, Nodes};
use self::plan::Node;
use self::processes::Processes;
pub(crate) use self::processes::die_with;
use crate::args::UpArgs;
use crate::certs::{self, NetworkValidity};
use crate::command::{self, Failure};
use crate::demo;
use crate::files::Existing;
use crate::tempdir::TempDir;

/// The network that runs when no other is named.
const LOCAL: &str = include_str!("../../topology/samples/local.yaml");
/// By when every node is ready.
const READY_WITHIN: Duration = Duration::from_secs(15);
/// Between two looks at something that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// By when nodes have ended; with the rest of the end it stays below two seconds.
const STOP_WITHIN: Duration = Duration::from_millis(1500);
/// Orders that wait to be carried out, at most.
const ORDERS_MAX: usize = 16;

/// What the main thread is asked to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// End everything.
    Stop,
    /// End a PoP without warning and start it again.
    Restart {
        /// The PoP.
        pop: String,
        /// How it went.
        done: oneshot::Sender<Result<(), RestartError>>,
    },
}

/// Why a PoP was not restarted.
#[derive(Debug)]
pub(crate) enum RestartError {
    /// There is none of that name.
    Unknown,
    /// It did not end or start.
    Failed(String),
}

/// How orders reach the main thread.
pub(crate) type Orders = SyncSender<Order>;

/// Runs until told to stop.
pub(crate) fn run(args: &UpArgs) -> Result<(), Failure> {
    let (orders, inbox) = sync_channel(ORDERS_MAX);
    runtime::logging::start(&args.log, runtime::logging::Format::Text)
        .map_err(|error| refused(error.to_string()))?;
    let control = Control::new()?;
    signals::stop_on_signals(&control, &orders)?;

    let topology = network(args)?;
    let listener = preflight::listen(args.listen).map_err(refused)?;
    preflight::check(&topology).map_err(refused)?;

    let dir = TempDir::create()?;
    let files = prepare(&topology, dir.path(), &args.log)?;
    let mut nodes: Box<dyn Nodes> = if args.processes {
        Box::new(Processes::new(files))
    } else {
        Box::new(InProcess::new(files, control.clone()))
    };
    let network = Network {
        plan: plan::nodes(&topology),
        topology,
        inbox,
    };
    let served = network.serve(nodes.as_mut(), args, &control, listener, orders);
    nodes.stop(STOP_WITHIN);
    served
}

fn refused(text: String) -> Failure {
    Failure::Refused(format!("firsthop up: {text}"))
}

/// The topology, completed for this machine.
fn network(args: &UpArgs) -> Result<Topology, Failure> {
    let mut topology = match &args.topology {
        Some(file) => command::load_topology(file)?,
        None => topology::load(LOCAL, "built-in topology")
            .map_err(|errors| Failure::Broken(errors.into()))?,
    };
    if let Some(host) = host::address() {
        plan::add_host_ingress(&mut topology, host);
    }
    Ok(topology)
}

/// Writes what nodes read.
fn prepare(topology: &Topology, dir: &Path, log: &str) -> anyhow::Result<Files> {
    let files = Files {
        topology: dir.join("topology.yaml"),
        credentials: dir.join("credentials"),
        log: log.to_owned(),
    };
    let text = topology::to_yaml(topology).context("writing the topology as YAML")?;
    fs::write(&files.topology, text)
        .with_context(|| format!("writing {}", files.topology.display()))?;
    let validity = NetworkValidity::from_unix_s(runtime::clock::unix_s())?;
    certs::write_network(topology, &files.credentials, validity, Existing::Keep)?;
    Ok(files)
}

struct Network {
    topology: Topology,
    plan: Vec<Node>,
    inbox: Receiver<Order>,
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Go {
    On,
    Stop,
}

impl Network {
    fn serve(
        &self,
        nodes: &mut dyn Nodes,
        args: &UpArgs,
        control: &Control,
        listener: TcpListener,
        orders: Orders,
    ) -> Result<(), Failure> {
        for node in &self.plan {
            nodes.start(node)?;
        }
        if self.wait_ready(nodes)? == Go::Stop {
            return Ok(());
        }
        let at = listener.local_addr()?;
        demo::serve(control, listener, &self.topology, args.processes, orders)?;
        table::print(&self.topology, &self.plan, nodes, at)?;
        while self.carry_out(nodes)? == Go::On {}
        Ok(())
    }

    /// Until every node is ready, one is dead, it takes too long, or a stop is ordered.
    fn wait_ready(&self, nodes: &mut dyn Nodes) -> Result<Go, Failure> {
        let deadline = runtime::clock::now() + READY_WITHIN;
        let mut waiting: Vec<(&Node, String)> =
            self.plan.iter().map(|node| (node, String::new())).collect();
        loop {
            waiting.retain_mut(|(node, reason)| match ready::ask(node.admin) {
                Ok(()) => false,
                Err(why) => {
                    *reason = why;
                    true
                }
            });
            if waiting.is_empty() {
                return Ok(Go::On);
            }
            if let Some(death) = nodes.deaths().into_iter().next() {
                let text = format!("{} ended while starting: {}", death.name, death.how);
                return Err(Failure::Broken(anyhow::Error::msg(text)));
            }
            if runtime::clock::now() > deadline {
                return Err(Failure::Broken(anyhow::Error::msg(not_ready(&waiting))));
            }
            match self.inbox.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return Ok(Go::Stop),
                Ok(Order::Restart { .. }) | Err(TryRecvError::Empty) => {}
            }
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits a moment for an order and carries it out; tells of nodes that died meanwhile.
    fn carry_out(&self, nodes: &mut dyn Nodes) -> Result<Go, Failure> {
        match self.inbox.recv_timeout(LOOK_INTERVAL) {
            Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(Go::Stop),
            Ok(Order::Restart { pop, done }) => {
                // Who asked may be gone; the PoP is restarted all the same.
                let _nobody_waits = done.send(self.restart(nodes, &pop));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        for death in nodes.deaths() {
            table::tell_death(
                self.plan.iter().find(|node| node.name == death.name),
                &death,
            )?;
        }
        Ok(Go::On)
    }

    fn restart(&self, nodes: &mut dyn Nodes, pop: &str) -> Result<(), RestartError> {
        let node = self
            .plan
            .iter()
            .find(|node| node.name == pop && node.kind == plan::Kind::Pop)
            .ok_or(RestartError::Unknown)?;
        nodes
            .kill(pop)
            .and_then(|()| nodes.start(node))
            .map_err(|error| RestartError::Failed(format!("{error:#}")))
    }
}

fn not_ready(waiting: &[(&Node, String)]) -> String {
    let seconds = READY_WITHIN.as_secs();
    let mut text = format!("not ready after {seconds} s:");
    for (node, reason) in waiting {
        text.push_str(&format!("\n  {} {}: {reason}", node.kind.noun(), node.name));
    }
    text
}
