//! HTTP steering: HTTPS for the nodes of the topology. `docs/protocol/steering.md` is the contract.
//!
//! ```text
//! POST /v1/steer                      region and ingress list for a client         nodes
//! GET  /v1/explain?client=ADDRESS     the whole decision and what would change it  nodes, admin
//! GET  /healthz                       for whoever had no answer                    nodes
//! ```
//!
//! An answer takes no lock and waits for nothing: it reads the [`World`](crate::world::World) of the moment.

mod ask;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use geodns_policy::RequestError;
use runtime::clock;
use runtime::http::{self, Limits, Nodes};
use runtime::node::NodeContext;
use serde::Deserialize;

use self::ask::{ASK_BYTES_MAX, Ask, tell};
use crate::explain::Explanation;
use crate::metrics::SteerMetrics;
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
    let metrics = SteerMetrics::new(&context.metrics);
    let gates = current.clone();
    let nodes = Nodes {
        gate: Arc::new(move || Arc::clone(&gates.load().gate)),
        refused: metrics.refused.clone(),
    };
    let limits = Limits {
        connections: CONNECTIONS_MAX,
        ..Limits::default()
    };
    let app = Arc::new(App {
        current: current.clone(),
        metrics,
    });
    let router = Router::new()
        .route("/v1/steer", post(steer))
        .layer(DefaultBodyLimit::max(ASK_BYTES_MAX))
        .with_state(app)
        .merge(explain_route(current))
        .route("/healthz", get(|| async { "ok\n" }));
    let shutdown = context.shutdown.clone();
    context.control.spawn(async move {
        http::serve_nodes(listener, router, limits, nodes, shutdown.stopped()).await;
    });
    Ok(())
}

/// `GET /v1/explain`, here and on the admin address.
pub(crate) fn explain_route(current: &Current) -> Router {
    Router::new()
        .route("/v1/explain", get(explain))
        .with_state(current.clone())
}

struct App {
    current: Current,
    metrics: SteerMetrics,
}

async fn steer(State(app): State<Arc<App>>, body: Bytes) -> Response {
    let began = clock::now();
    let Ok(ask) = serde_json::from_slice::<Ask>(&body) else {
        app.metrics.malformed.add(1);
        return problem(StatusCode::BAD_REQUEST, "the body is no question");
    };
    let world = app.current.load();
    match tell(&world, &ask, clock::unix_s()) {
        Ok(told) => {
            let answer = ([(CACHE_CONTROL, "no-store")], Json(told)).into_response();
            app.metrics.answered.add(1);
            let took = clock::now().saturating_duration_since(began);
            app.metrics.took_us.record(took.as_secs_f64() * 1e6);
            answer
        }
        Err(error) => {
            app.metrics.unknown.add(1);
            refused(error)
        }
    }
}

#[derive(Deserialize)]
struct ExplainQuery {
    client: IpAddr,
    region: Option<String>,
    residency: Option<String>,
}

async fn explain(State(current): State<Current>, Query(query): Query<ExplainQuery>) -> Response {
    let world = current.load();
    let age_s = |at| clock::now().saturating_duration_since(at).as_secs();
    let wanted = (query.region.as_deref(), query.residency.as_deref());
    let explained = Explanation::new(
        &world.grounds(),
        query.client,
        wanted,
        clock::unix_s(),
        world.heard_at.map(age_s),
    );
    match explained {
        Ok(explanation) => Json(explanation).into_response(),
        Err(error) => refused(error),
    }
}

fn refused(error: RequestError) -> Response {
    problem(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string())
}

/// RFC 9457.
fn problem(status: StatusCode, detail: &str) -> Response {
    let body = serde_json::json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = [(CONTENT_TYPE, "application/problem+json")];
    (status, content_type, format!("{body}\n")).into_response()
}
