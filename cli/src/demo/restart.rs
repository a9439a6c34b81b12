//! `POST /api/pops/NAME/restart`: ends a PoP without warning, starts it again, and answers when it is ready.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use tokio::sync::oneshot;

use super::App;
use super::network::is_ready;
use super::problem::{NOT_FOUND, Problem};
use crate::up::{Order, RestartError};

/// By when the main thread has started it again.
const RESTART_WITHIN: Duration = Duration::from_secs(5);
/// Looks at a PoP that starts, and the time between them: ten seconds in all.
const LOOKS_MAX: u32 = 500;
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const BUSY: Problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many restarts at once");
const STUCK: Problem = Problem::new(
    StatusCode::GATEWAY_TIMEOUT,
    "the PoP was restarted but is not ready yet",
);

/// How a restart went.
#[derive(Debug, Serialize)]
pub(super) struct Restarted {
    pop: String,
    /// From the order to end it until it was ready again.
    down_ms: u128,
}

/// See the module.
pub(super) async fn restart(
    State(app): State<Arc<App>>,
    Path(pop): Path<String>,
) -> Result<Json<Restarted>, Problem> {
    let admin = app.topology.pop_named(&pop).ok_or(NOT_FOUND)?.admin;
    let since = runtime::clock::now();
    let (done, outcome) = oneshot::channel();
    let order = Order::Restart {
        pop: pop.clone(),
        done,
    };
    app.orders.try_send(order).map_err(|_| BUSY)?;
    let outcome = tokio::time::timeout(RESTART_WITHIN, outcome).await;
    match outcome.map_err(|_| STUCK)?.map_err(|_| BUSY)? {
        Ok(()) => {}
        Err(RestartError::Unknown) => return Err(NOT_FOUND),
        Err(RestartError::Failed(why)) => {
            return Err(Problem::with(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
    }
    for _ in 0..LOOKS_MAX {
        if is_ready(&app, admin).await {
            let down_ms = (runtime::clock::now() - since).as_millis();
            return Ok(Json(Restarted { pop, down_ms }));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Err(STUCK)
}
