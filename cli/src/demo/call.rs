//! `GET /api/call/NODE/ID`: who carries a session. The transceiver knows PoP and core relay of the last authenticated
//! packet; the PoP knows round trip and loss of its link to that relay.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::App;
use super::problem::{NOT_FOUND, Problem};

const UNKNOWN: Problem = Problem::new(StatusCode::NOT_FOUND, "no such session at this transceiver");

/// The hops of a call.
#[derive(Debug, Serialize)]
pub(super) struct Call {
    pop: Option<String>,
    core_relay: Option<String>,
    transceiver: String,
    region: String,
    link: Option<Link>,
    /// The transceiver's snapshot, as it is.
    session: Value,
}

/// The link that carries it, as the PoP measures it.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Link {
    up: bool,
    rtt_us: u64,
    jitter_us: u64,
    /// From the core relay to the PoP.
    loss_ppm: u64,
    /// From the PoP to the core relay.
    peer_loss_ppm: u64,
}

/// See the module.
pub(super) async fn call(
    State(app): State<Arc<App>>,
    Path((transceiver, id)): Path<(String, u64)>,
) -> Result<Json<Call>, Problem> {
    let (region, node) = app
        .topology
        .transceiver_named(&transceiver)
        .ok_or(NOT_FOUND)?;
    let session = app
        .upstream
        .admin_json(node.admin, &format!("/sessions/{id}"))
        .await
        .ok_or(UNKNOWN)?;
    let name = |key: &str| session.get(key).and_then(Value::as_str).map(str::to_owned);
    let (pop, core_relay) = (name("pop"), name("core_relay"));
    let worker = session.get("worker").and_then(Value::as_u64);
    let link = match (&pop, &core_relay) {
        (Some(pop), Some(relay)) => link(&app, pop, worker.unwrap_or(0), relay).await,
        (Some(_) | None, Some(_) | None) => None,
    };
    Ok(Json(Call {
        pop,
        core_relay,
        transceiver,
        region: region.name.clone(),
        link,
        session,
    }))
}

async fn link(app: &App, pop: &str, worker: u64, relay: &str) -> Option<Link> {
    let admin = app.topology.pop_named(pop)?.admin;
    find_link(
        &app.upstream.admin_json(admin, "/state").await?,
        worker,
        relay,
    )
}

/// `/state` of a PoP: `workers[].links[]`, one link per worker and core relay.
fn find_link(state: &Value, worker: u64, relay: &str) -> Option<Link> {
    let workers = state.get("workers")?.as_array()?;
    let links = workers.get(usize::try_from(worker).ok()?)?.get("links")?;
    let link = links
        .as_array()?
        .iter()
        .find(|link| link.get("relay").and_then(Value::as_str) == Some(relay))?;
    let number = |key: &str| link.get(key).and_then(Value::as_u64).unwrap_or(0);
    Some(Link {
        up: link.get("up").and_then(Value::as_bool).unwrap_or(false),
        rtt_us: number("rtt_us"),
        jitter_us: number("jitter_us"),
        loss_ppm: number("loss_ppm"),
        peer_loss_ppm: number("peer_loss_ppm"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_link_is_found_by_worker_and_relay() {
        let link = |relay, rtt_us| json!({ "relay": relay, "up": true, "rtt_us": rtt_us, "jitter_us": 5, "loss_ppm": 0 });
        let state = json!({ "workers": [
            { "links": [link("eu-r1", 100), link("eu-r2", 200)] },
            { "links": [link("eu-r1", 300)] },
        ] });
        let rtt = |worker, relay| find_link(&state, worker, relay).map(|link| link.rtt_us);
        assert_eq!(rtt(0, "eu-r2"), Some(200));
        assert_eq!(rtt(1, "eu-r1"), Some(300));
        assert_eq!(rtt(1, "eu-r2"), None);
        assert_eq!(rtt(7, "eu-r1"), None);
        assert_eq!(find_link(&json!(null), 0, "eu-r1"), None);
    }
}
