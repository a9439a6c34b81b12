//! Admin HTTP of a node: health, readiness, metrics, state, and what its program adds. Loopback only.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /healthz` | 200 while the process answers at all |
//! | `GET /readyz` | 200 `ready` and what is amiss nevertheless, or 503 and the reason; draining is one, and a worker that is stalled |
//! | `GET /metrics` | Prometheus text |
//! | `GET /state` | JSON of the program |
//! | anything but GET and HEAD | 403 without an admin token configured, 401 without it in `Authorization: Bearer` |

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, WWW_AUTHENTICATE};
use http::{Method, StatusCode};
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::http::{self as bounded, Limits};
use crate::metrics::Registry;
use crate::node::{self, ConfigHandle, NodeContext};
use crate::watch::Watch;

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Content type of the Prometheus text format.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a program shows.
pub struct Admin {
    /// Whether it can serve, and if not, why; one line. If it can, what is amiss nevertheless; a line each, or nothing.
    pub ready: Box<dyn Fn() -> Result<String, String> + Send + Sync>,
    /// Its state.
    pub state: Box<dyn Fn() -> serde_json::Value + Send + Sync>,
    /// Further routes. The token is asked for before they are reached.
    pub routes: Router,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").finish_non_exhaustive()
    }
}

/// A served admin address. Dropping it closes the address at once; requests under way are answered.
#[derive(Debug)]
pub struct AdminServer {
    address: SocketAddr,
    /// The server's own listener, to close it without waiting for the server.
    _listener: Listener,
    /// Dropped with this value, which tells the server.
    _alive: oneshot::Sender<()>,
}

impl AdminServer {
    /// Where it listens, with the port the kernel chose where 0 was asked for.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Stops listening when it is dropped, whoever else still has the socket open.
#[derive(Debug)]
struct Listener(std::net::TcpListener);

impl Drop for Listener {
    fn drop(&mut self) {
        // An error says that it does not listen any more.
        let _ = SockRef::from(&self.0).shutdown(Shutdown::Both);
    }
}

/// Why admin HTTP does not start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Would be reachable from elsewhere.
    #[error("admin address {0} is not loopback")]
    NotLoopback(SocketAddr),
    /// The kernel refuses the address.
    #[error("admin address {address}: {error}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the kernel says.
        error: io::Error,
    },
}

/// Binds `address` and serves on the node's control runtime until the node has stopped or the result is dropped.
///
/// # Errors
/// See [`AdminError`].
pub fn serve(
    context: &NodeContext,
    address: SocketAddr,
    admin: Admin,
) -> Result<AdminServer, AdminError> {
    if !address.ip().to_canonical().is_loopback() {
        return Err(AdminError::NotLoopback(address));
    }
    let bound = |error| AdminError::Bind { address, error };
    let listener = Listener(std::net::TcpListener::bind(address).map_err(bound)?);
    let theirs = Listener(listener.0.try_clone().map_err(bound)?);
    let accepting = {
        let _guard = context.control.handle().enter();
        listen(&listener.0).map_err(bound)?
    };
    let address = listener.0.local_addr().map_err(bound)?;
    let app = router(context, admin);
    let shutdown = context.shutdown.clone();
    let (alive, dropped) = oneshot::channel::<()>();
    context.control.spawn(async move {
        let end = async move {
            tokio::select! {
                () = shutdown.stopped() => {}
                _ = dropped => {}
            }
            drop(theirs);
        };
        bounded::serve(accepting, app, Limits::default(), end).await;
    });
    Ok(AdminServer {
        address,
        _listener: listener,
        _alive: alive,
    })
}

fn listen(listener: &std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener.try_clone()?)
}

struct App {
    admin: Admin,
    registry: Registry,
    shutdown: node::Shutdown,
    watch: Watch,
}

fn router(context: &NodeContext, mut admin: Admin) -> Router {
    let routes = std::mem::take(&mut admin.routes);
    let app = Arc::new(App {
        admin,
        registry: context.metrics.clone(),
        shutdown: context.shutdown.clone(),
        watch: context.watch.clone(),
    });
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/state", get(state))
        .with_state(app)
        .merge(routes)
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn_with_state(
            context.config.clone(),
            demand_token,
        ))
        .layer(middleware::from_fn(demand_local_host))
}

/// Refuses requests that name a host other than this machine: a web page that rebinds a name of its own to loopback
/// would otherwise read what is shown here.
async fn demand_local_host(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(|host| host.as_bytes());
    if host.is_none_or(is_local_host) {
        return next.run(request).await;
    }
    let reason = "this address answers to localhost and to IP addresses only\n";
    (StatusCode::MISDIRECTED_REQUEST, reason).into_response()
}

/// `localhost` or an IP address, with or without a port (RFC 9110 §7.2).
fn is_local_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    let is_ip = |host: &str| host.parse::<IpAddr>().is_ok();
    let bare = host.rsplit_once(':').map_or(host, |(name, port)| {
        if port.bytes().all(|byte| byte.is_ascii_digit()) {
            name
        } else {
            host
        }
    });
    let bare = bare
        .strip_prefix('[')
        .and_then(|bare| bare.strip_suffix(']'))
        .unwrap_or(bare);
    bare.eq_ignore_ascii_case("localhost") || is_ip(bare) || is_ip(host)
}

async fn readyz(State(app): State<Arc<App>>) -> Response {
    let ready = match app.shutdown.state() {
        node::State::Running => match app.watch.stalled() {
            Some(worker) => Err(format!("worker {worker} is stalled")),
            None => (app.admin.ready)(),
        },
        node::State::Draining { .. } => Err("draining".to_owned()),
        node::State::Stopped => Err("stopped".to_owned()),
    };
    match ready {
        Ok(amiss) => format!("ready\n{amiss}").into_response(),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, PROMETHEUS)], app.registry.prometheus())
}

async fn state(State(app): State<Arc<App>>) -> Json<serde_json::Value> {
    Json((app.admin.state)())
}

/// Lets reads pass, and everything else with the token only.
async fn demand_token(
    State(config): State<ConfigHandle>,
    request: Request,
    next: Next,
) -> Response {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return next.run(request).await;
    }
    let config = config.load();
    let Some(token) = &config.credentials.admin_token else {
        let reason = "this node has no admin.token, so nothing can be changed here\n";
        return (StatusCode::FORBIDDEN, reason).into_response();
    };
    if bearer(&request).is_some_and(|candidate| token.matches(candidate)) {
        return next.run(request).await;
    }
    let challenge = [(WWW_AUTHENTICATE, "Bearer realm=\"firsthop admin\"")];
    let reason = "Authorization: Bearer <admin.token> is needed\n";
    (StatusCode::UNAUTHORIZED, challenge, reason).into_response()
}

/// The token of `Authorization: Bearer ...`; the scheme is case-insensitive (RFC 9110 §11.1).
fn bearer(request: &Request) -> Option<&[u8]> {
    let value = request.headers().get(AUTHORIZATION)?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token)
}

#[cfg(test)]
mod tests;
