//! `GET /api/network`: every node, where it is, and whether it is ready.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinSet;

use super::App;
use crate::up::plan;

#[derive(Debug, Serialize)]
pub(super) struct Network {
    name: String,
    /// Whether nodes are processes; threads otherwise.
    processes: bool,
    pops: Vec<Pop>,
    regions: Vec<Region>,
}

#[derive(Debug, Serialize)]
struct Region {
    name: String,
    core_relays: Vec<Node>,
    transceivers: Vec<Node>,
}

#[derive(Debug, Serialize)]
struct Pop {
    ingress: Vec<SocketAddr>,
    regions: Vec<String>,
    city: Option<String>,
    country: Option<String>,
    #[serde(flatten)]
    node: Node,
}

#[derive(Debug, Serialize)]
struct Node {
    name: String,
    /// Where other nodes reach it.
    address: String,
    #[serde(flatten)]
    health: Health,
}

/// What a node's admin HTTP says.
#[derive(Clone, Debug, Default, Serialize)]
struct Health {
    ready: bool,
    /// Why not.
    reason: Option<String>,
    /// `/state`, as it is.
    state: Option<Value>,
}

/// Answers within the deadline of one admin request: nodes are asked at once.
pub(super) async fn network(State(app): State<Arc<App>>) -> Json<Network> {
    let healths = ask_all(&app).await;
    let node = |name: &str, address: String| Node {
        name: name.to_owned(),
        address,
        health: healths
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, health)| health.clone())
            .unwrap_or_default(),
    };
    let topology = &app.topology;
    let pops = topology.pops.iter().map(|pop| Pop {
        ingress: pop.ingress.clone(),
        regions: topology
            .regions_of_pop(pop)
            .iter()
            .map(|region| region.name.clone())
            .collect(),
        city: pop.location.as_ref().map(|place| place.city.clone()),
        country: pop.location.as_ref().map(|place| place.country.clone()),
        node: node(&pop.name, pop.backbone.to_string()),
    });
    let regions = topology.regions.iter().map(|region| Region {
        name: region.name.clone(),
        core_relays: region
            .core_relays
            .iter()
            .map(|relay| {
                node(
                    &relay.name,
                    format!("{}:{}", relay.address, relay.link_port),
                )
            })
            .collect(),
        transceivers: region
            .transceivers
            .nodes
            .iter()
            .map(|one| {
                node(
                    &one.name,
                    format!("{}:{}", one.address, region.transceivers.port),
                )
            })
            .collect(),
    });
    Json(Network {
        name: topology.network.name.clone(),
        processes: app.processes,
        pops: pops.collect(),
        regions: regions.collect(),
    })
}

async fn ask_all(app: &Arc<App>) -> Vec<(String, Health)> {
    let mut asking = JoinSet::new();
    for node in plan::nodes(&app.topology) {
        let app = Arc::clone(app);
        asking.spawn(async move { (node.name, ask(&app, node.admin).await) });
    }
    asking.join_all().await
}

async fn ask(app: &App, admin: SocketAddr) -> Health {
    let (ready, state) = tokio::join!(
        app.upstream.admin(admin, "/readyz"),
        app.upstream.admin_json(admin, "/state")
    );
    let reason = match ready {
        Some((StatusCode::OK, _)) => None,
        Some((_, body)) => Some(first_line(&body)),
        None => Some("no answer".to_owned()),
    };
    Health {
        ready: reason.is_none(),
        reason,
        state,
    }
}

/// Whether the node at `admin` says it is ready.
pub(super) async fn is_ready(app: &App, admin: SocketAddr) -> bool {
    matches!(
        app.upstream.admin(admin, "/readyz").await,
        Some((StatusCode::OK, _))
    )
}

fn first_line(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or("not ready").to_owned()
}
