//! HTTP steering: HTTPS for the nodes of the topology. `docs/protocol/steering.md` is the contract.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::routing::get;
use runtime::http::{self, Limits, Nodes};
use runtime::node::NodeContext;

use crate::metrics;
use crate::world::Current;

/// Connections at most: every transceiver keeps a few.
const CONNECTIONS_MAX: usize = 1024;

/// Binds the address.
///
/// # Errors
/// It is taken or not ours.
pub(crate) fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("bind steer address {address}"))?;
    listener.set_nonblocking(true).context("set non-blocking")?;
    Ok(listener)
}

/// Serves until the node has stopped.
///
/// # Errors
/// The kernel does not let the socket be waited for.
pub(crate) fn serve(
    context: &NodeContext,
    listener: TcpListener,
    current: &Current,
) -> anyhow::Result<()> {
    let listener = {
        let _inside = context.control.handle().enter();
        tokio::net::TcpListener::from_std(listener).context("steer address")?
    };
    let gates = current.clone();
    let nodes = Nodes {
        gate: Arc::new(move || Arc::clone(&gates.load().gate)),
        refused: metrics::steer_refused(&context.metrics),
    };
    let limits = Limits {
        connections: CONNECTIONS_MAX,
        ..Limits::default()
    };
    let router = Router::new().route("/healthz", get(|| async { "ok\n" }));
    let shutdown = context.shutdown.clone();
    context.control.spawn(async move {
        http::serve_nodes(listener, router, limits, nodes, shutdown.stopped()).await;
    });
    Ok(())
}
