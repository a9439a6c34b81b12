//! The HTTP server of `up`: the demo page, its API, and `/whip` in front of the regions' transceivers.
//!
//! ```text
//! GET  /                        the page
//! *    /whip /whip/SESSION      passed on to a transceiver             proxy
//! GET  /api/network             nodes and whether they are ready       network
//! GET  /api/call/NODE/ID        who carries a session, hop by hop      call
//! POST /api/pops/NAME/restart   ends and starts a PoP                  restart
//! ```
//!
//! It knows the network as anybody would: from the topology and the nodes' admin HTTP.

mod call;
mod guard;
mod network;
mod problem;
mod proxy;
mod restart;
mod upstream;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use anyhow::Context;
use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{any, get, post};
use runtime::control::Control;
use runtime::http::{self, Limits};
use topology::Topology;

pub(crate) use self::upstream::{NoAnswer, Upstream};
use crate::up::Orders;

const PAGE: &str = include_str!("demo/index.html");
/// Nothing from elsewhere, no embedding elsewhere.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
     media-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// What handlers share.
struct App {
    topology: Topology,
    processes: bool,
    upstream: Upstream,
    orders: Orders,
    /// Next transceiver of the round robin.
    turn: AtomicUsize,
}

/// Serves on `listener` until the runtime ends.
///
/// # Errors
/// When the listener is of no use to tokio.
pub(crate) fn serve(
    control: &Control,
    listener: TcpListener,
    topology: &Topology,
    processes: bool,
    orders: Orders,
) -> anyhow::Result<()> {
    let app = Arc::new(App {
        topology: topology.clone(),
        processes,
        upstream: Upstream::new(),
        orders,
        turn: AtomicUsize::new(0),
    });
    let _inside = control.handle().enter();
    let listener = tokio::net::TcpListener::from_std(listener).context("serving the demo page")?;
    // Until the runtime ends.
    let never = std::future::pending();
    control.spawn(http::serve(listener, router(app), Limits::default(), never));
    Ok(())
}

fn router(app: Arc<App>) -> Router {
    let restart = post(restart::restart).route_layer(middleware::from_fn(guard::from_this_machine));
    Router::new()
        .route("/", get(page))
        .route("/whip", any(proxy::pass))
        .route("/whip/{*session}", any(proxy::pass))
        .route("/api/network", get(network::network))
        .route("/api/call/{transceiver}/{id}", get(call::call))
        .route("/api/pops/{name}/restart", restart)
        .fallback(|| async { problem::NOT_FOUND.into_response() })
        .layer(middleware::from_fn(guard::no_foreign_name))
        .with_state(app)
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, Html(PAGE)).into_response()
}
