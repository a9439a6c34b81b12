//! The GeoDNS node: sockets, threads and tasks around `geodns-proto` and `geodns-policy`.
//!
//! ```text
//! topology, databases, live state ──► keeper ──► World, Served (immutable, swapped whole)
//!                                                  ▲              ▲
//!                              steering, explain, admin     UDP threads, DNS over TCP
//! ```
//!
//! Invariants, stated as absences: nothing here decides where a client goes (`geodns-policy` does) or what a DNS message means
//! (`geodns-proto` does), nobody but the keeper makes a [`world::World`], and nobody waits for it.

#![forbid(unsafe_code)]

mod admin;
mod args;
pub mod databases;
pub mod explain;
mod keeper;
pub mod live;
mod metrics;
pub mod slow;
mod steer;
mod tell;
pub mod udp;
pub mod world;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use runtime::metrics::Registry;
use runtime::node::{Checks, Config, NodeContext, Running};
use runtime::thread::spawn_worker;

pub use crate::args::GeoDnsArgs;
use crate::databases::Files;
use crate::keeper::{Keeper, Kept};
use crate::slow::{Answerer, Listeners};
use crate::udp::{SlowQueue, Worker};
use crate::world::Map;

/// From the flags to the exit code.
#[must_use]
pub fn main_with(args: GeoDnsArgs) -> ExitCode {
    let GeoDnsArgs { node, geo_db } = args;
    let checks = Checks {
        start: |config: &Config| check(config, &geo_db).map_err(|error| format!("{error:#}")),
        reload: |config| keeper::check(config).map_err(|error| format!("{error:#}")),
    };
    let start = |context| start_with(context, &geo_db);
    runtime::node::main_checked("geodns", checks, start, node)
}

/// Starts a node without geolocation databases.
///
/// # Errors
/// See [`start_with`].
pub fn start(context: NodeContext) -> anyhow::Result<Running> {
    start_with(context, &[])
}

/// Binds everything, then starts the keeper, the threads that answer UDP, DNS over TCP, steering and admin HTTP.
///
/// # Errors
/// An address is taken or not ours, the certificates do not work, or the kernel gives no thread. Nothing is left behind.
pub fn start_with(context: NodeContext, geo_db: &[PathBuf]) -> anyhow::Result<Running> {
    let config = context.config.load();
    let node = config
        .topology
        .geodns_named(&context.name)
        .with_context(|| format!("the topology has no GeoDNS node named `{}`", context.name))?;
    let files = Files::open(geo_db, &context.metrics)?;
    let shelf = databases::follow(&context, files)?;
    let (keeper, kept) = Keeper::new(&context, shelf)?;
    let current = kept.current.clone();
    let queue = SlowQueue::new();
    queue.observe(&context.metrics);
    let workers = udp::bind(&context, &config, &kept.answers, &queue, &kept.drawn)?;
    let listeners = Listeners::bind(node)?;
    let steering = steer::bind(node.steer)?;
    let server = admin::serve(&context, node.admin, &current)?;
    steer::serve(&context, steering, &current)?;
    let slow = serve_slow(&context, listeners, queue, &kept);
    let publication = tell::begin(&context)?;
    let threads = spawn(keeper, workers, node.pin).inspect_err(|_| context.shutdown.stop())?;
    tracing::info!(node = context.name, admin = %server.address(), steer = %node.steer, "GeoDNS runs");
    Ok(Running::new(threads, move || {
        context.shutdown.stop();
        drop(publication);
        slow.finish();
        drop(server);
    }))
}

/// Checks all that a start needs and no socket.
///
/// # Errors
/// Databases, keys or the zone do not work.
pub fn check(config: &Config, geo_db: &[PathBuf]) -> anyhow::Result<()> {
    keeper::check(config)?;
    // What the files would count is nobody's to read.
    Files::open(geo_db, &Registry::new("geodns", "check")).map(drop)
}

fn serve_slow(
    context: &NodeContext,
    listeners: Listeners,
    queue: SlowQueue,
    kept: &Kept,
) -> slow::Running {
    let current = kept.current.clone();
    // What a resolver asks for: the address it asks from, or the network it asks for.
    let explain = move |address, _prefix| explain::lines(&current.load(), address);
    let answerer = Answerer::new(Arc::clone(&kept.slow), &context.name, Arc::new(explain));
    let tls = Arc::clone(&kept.tls);
    let limits = slow::Limits::default();
    listeners.serve(
        Arc::new(answerer),
        queue,
        tls,
        limits,
        &context.metrics,
        context.shutdown.clone(),
    )
}

/// The workers. The keeper ends when the node has stopped, which is when they have ended.
fn spawn(
    keeper: Keeper,
    workers: Vec<Worker<Map>>,
    pin: bool,
) -> anyhow::Result<Vec<JoinHandle<()>>> {
    spawn_worker("keeper", None, move || keeper.run()).context("starting the keeper")?;
    let mut threads = Vec::with_capacity(workers.len());
    for (index, worker) in workers.into_iter().enumerate() {
        let pin = pin.then_some(index);
        let thread = spawn_worker(&format!("geodns-{index}"), pin, move || worker.run());
        threads.push(thread.context("starting a worker thread")?);
    }
    Ok(threads)
}
