//! The GeoDNS node: sockets, threads and tasks around `geodns-proto` and `geodns-policy`.
//!
//! ```text
//! topology, databases, live state --> keeper --> World (immutable, swapped whole) <-- UDP threads, DNS over TCP, steering, admin
//! ```
//!
//! Invariants, stated as absences: nothing here decides where a client goes (`geodns-policy` does) or what a DNS message means
//! (`geodns-proto` does), nobody but the keeper makes a [`world::World`], and nobody waits for it.

#![forbid(unsafe_code)]

mod admin;
mod args;
pub mod databases;
mod keeper;
pub mod live;
mod metrics;
pub mod slow;
mod steer;
pub mod udp;
pub mod world;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use runtime::node::{NodeContext, Running};
use runtime::thread::spawn_worker;

pub use crate::args::GeoDnsArgs;
use crate::keeper::Keeper;

/// From the flags to the exit code.
#[must_use]
pub fn main_with(args: GeoDnsArgs) -> ExitCode {
    let GeoDnsArgs { node, geo_db } = args;
    let start = |context| start_with(context, &geo_db);
    runtime::node::main_checked("geodns", |_| Ok(()), start, node)
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
pub fn start_with(context: NodeContext, _geo_db: &[PathBuf]) -> anyhow::Result<Running> {
    let config = context.config.load();
    let node = config
        .topology
        .geodns_named(&context.name)
        .with_context(|| format!("the topology has no GeoDNS node named `{}`", context.name))?;
    let (keeper, current) = Keeper::new(&context)?;
    let steering = steer::bind(node.steer)?;
    let server = admin::serve(&context, node.admin, &current)?;
    steer::serve(&context, steering, &current)?;
    let keeper =
        spawn_worker("keeper", None, move || keeper.run()).context("starting the keeper")?;
    tracing::info!(node = context.name, admin = %server.address(), steer = %node.steer, "GeoDNS runs");
    Ok(Running::new(vec![keeper], move || drop(server)))
}
