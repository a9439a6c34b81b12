//! The transceiver: terminates WebRTC for its sessions and owns all their hard state.
//!
//! Invariants, stated as absences: signaling never touches a session (it asks through
//! [`engine::handle::EngineHandle`]), the engine thread never waits for signaling, no address is bound to a
//! session before an authenticated STUN check came from it, and only `peer` knows the media engine.

#![forbid(unsafe_code)]

pub mod backend;
pub mod engine;
pub mod peer;
pub mod signaling;
mod tell;
pub mod token;

use std::sync::Arc;

use anyhow::Context as _;
use runtime::admin::{self, Admin};
use runtime::node::{NodeContext, Running, State};
use runtime::poll::Waker;
use runtime::store;
use runtime::thread::spawn_worker;

use crate::backend::Voice;
use crate::backend::echo::Echo;
use crate::engine::{Board, Worker, handle};
use crate::signaling::{Signaling, Sockets};

/// Binds everything, then starts the engine, signaling and admin HTTP. Every voice is an echo.
///
/// # Errors
/// See [`start_with`].
pub fn start(context: NodeContext) -> anyhow::Result<Running> {
    start_with(context, || Box::new(Echo))
}

/// The same with another voice behind each session.
///
/// # Errors
/// An address is taken or not ours, the certificates do not work, or the kernel gives no thread. Nothing is left behind.
pub fn start_with(context: NodeContext, voice: Voice) -> anyhow::Result<Running> {
    let config = context.config.load();
    let (region, node) = config
        .topology
        .transceiver_named(&context.name)
        .with_context(|| format!("the topology has no transceiver named `{}`", context.name))?;
    let board = Arc::new(Board::default());
    let waker = Waker::new().context("waker")?;
    let wake = waker.clone();
    let (engine, queue) = handle::channel(move || wake.wake());
    let worker = Worker::new(
        &context,
        &config,
        (region, node),
        (queue, waker),
        Arc::clone(&board),
        voice,
    )?;
    let signaling = Signaling::new(
        &context,
        engine.clone(),
        Sockets::bind(node.whip, node.peer)?,
    )?;
    let server = admin::serve(&context, node.admin, admin_of(&context, &board, engine))?;
    let own = tell::Own {
        board: Arc::clone(&board),
        shutdown: context.shutdown.clone(),
        config: context.config.clone(),
    };
    let told = store::publish(&context, own)?;
    let thread = spawn_worker("transceiver", None, move || worker.run())
        .context("starting the engine thread")?;
    let stopped = context.shutdown.clone();
    let served = context
        .control
        .spawn(signaling.run(async move { stopped.stopped().await }));
    tracing::info!(node = context.name, region = region.name, admin = %server.address(), whip = %node.whip, "transceiver runs");
    Ok(Running::new(vec![thread], move || {
        context.shutdown.stop();
        drop((served, server, told));
    }))
}

fn admin_of(context: &NodeContext, board: &Arc<Board>, engine: handle::EngineHandle) -> Admin {
    let (state, shutdown) = (Arc::clone(board), context.shutdown.clone());
    Admin {
        ready: Box::new(move || match shutdown.state() {
            State::Running => Ok(String::new()),
            State::Draining { .. } | State::Stopped => Err("draining".to_owned()),
        }),
        state: Box::new(move || state.to_json()),
        routes: signaling::admin::routes(engine),
    }
}
