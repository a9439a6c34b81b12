//! Which ingress addresses an answer to one client advertises: what it asks for by name, else what steering says, else what the
//! topology says.

use std::net::{IpAddr, SocketAddr};

use crate::signaling::App;
use crate::signaling::ingress::{self, UnknownPop};
use crate::signaling::route::{Asked, From};

/// The candidates for the client that asks.
///
/// # Errors
/// See [`ingress::select`].
pub(super) async fn of(
    app: &App,
    asked: &Asked<'_>,
    wanted: Option<&str>,
) -> Result<Vec<SocketAddr>, UnknownPop> {
    let settings = asked.settings;
    let (topology, region) = (settings.topology(), settings.region.as_str());
    let Some(steering) = settings.steering.as_ref().filter(|_| wanted.is_none()) else {
        return ingress::select(topology, region, wanted);
    };
    let client = client(app, asked);
    let metrics = &app.metrics.steering;
    if let Some(ways) = steering.ask(client, region, metrics).await {
        let steered = ingress::steered(topology, region, &ways);
        if !steered.is_empty() {
            metrics.steered.add(1);
            return Ok(steered);
        }
    }
    metrics.unsteered.add(1);
    Ok(ingress::unsteered(topology, region))
}

/// Its address. A transceiver that passes a request on tells it, and is believed.
pub(super) fn client(app: &App, asked: &Asked<'_>) -> IpAddr {
    let headers = &asked.head.headers;
    let origin = asked.origin;
    let proxies = match asked.from {
        From::Client => &asked.settings.proxies,
        From::Transceiver => &asked.settings.transceivers,
    };
    let (client, found) = proxies.client(origin.peer, origin.source, headers);
    if asked.from == From::Client {
        app.metrics.clients.count(found);
    }
    client
}
