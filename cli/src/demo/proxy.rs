//! `/whip` in front of the regions' transceivers: the load balancer a deployment has there.
//!
//! A `POST` goes to a region (`?region=NAME`, else the first one of the PoP `?pop=NAME`, else the first of all), in turn
//! over its transceivers. The region is written into the session's URL, so that later requests find it: any transceiver
//! of the region passes them to the owner. No state is kept here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_LENGTH, HOST, LOCATION, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::Full;
use topology::{Region, Topology, Transceiver};

use super::App;
use super::problem::Problem;
use super::upstream::NoAnswer;

/// Longest body that is passed on; what a transceiver accepts is its own business, and less.
const BODY_BYTES_MAX: usize = 2 << 20;
/// Headers of one connection, which a proxy does not pass on (RFC 9110 §7.6.1), and those it writes itself.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::PROXY_AUTHORIZATION,
    TRANSFER_ENCODING,
    CONTENT_LENGTH,
    HOST,
];

const TOO_LARGE: Problem = Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
const NO_REGION: Problem = Problem::new(StatusCode::BAD_REQUEST, "no region of this name");
const NO_TRANSCEIVER: Problem = Problem::new(
    StatusCode::SERVICE_UNAVAILABLE,
    "no transceiver of the region answers",
);
const BROKEN: Problem = Problem::new(
    StatusCode::BAD_GATEWAY,
    "the transceiver broke off its answer",
);

/// Passes a request on.
pub(super) async fn pass(State(app): State<Arc<App>>, request: Request) -> Response {
    forward(&app, request)
        .await
        .unwrap_or_else(Problem::into_response)
}

async fn forward(app: &App, request: Request) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().unwrap_or_default();
    let candidates = regions(&app.topology, &parts, query)?;
    let body = to_bytes(body, BODY_BYTES_MAX)
        .await
        .map_err(|_| TOO_LARGE)?;
    let path = upstream_path(parts.uri.path(), query);
    let mut answer = Err(NO_TRANSCEIVER);
    for region in candidates {
        answer = ask_region(app, region, &parts, &path, &body).await;
        // Without a region in the URL, one that does not know the session is no answer yet.
        if !matches!(&answer, Ok(response) if response.status() == StatusCode::NOT_FOUND) {
            break;
        }
    }
    answer
}

/// Regions to ask, in order.
fn regions<'a>(
    topology: &'a Topology,
    parts: &Parts,
    query: &str,
) -> Result<Vec<&'a Region>, Problem> {
    if let Some(name) = parameter(query, "region") {
        return topology
            .region_named(name)
            .map(|region| vec![region])
            .ok_or(NO_REGION);
    }
    if parts.method != Method::POST {
        return Ok(topology.regions.iter().collect());
    }
    let of_pop = parameter(query, "pop")
        .and_then(|name| topology.pop_named(name))
        .and_then(|pop| topology.regions_of_pop(pop).into_iter().next());
    Ok(of_pop
        .or_else(|| topology.regions.first())
        .into_iter()
        .collect())
}

/// Asks the transceivers of a region in turn until one listens.
async fn ask_region(
    app: &App,
    region: &Region,
    parts: &Parts,
    path: &str,
    body: &Bytes,
) -> Result<Response, Problem> {
    let nodes = &region.transceivers.nodes;
    let turn = app.turn.fetch_add(1, Ordering::Relaxed) % nodes.len().max(1);
    for node in nodes.iter().cycle().skip(turn).take(nodes.len()) {
        let request = upstream_request(node, parts, path, body.clone())?;
        match app.upstream.send(request).await {
            Ok(answer) => return Ok(downstream(answer, &region.name)),
            Err(NoAnswer::Broken) => return Err(BROKEN),
            Err(NoAnswer::Refused) => {}
        }
    }
    Err(NO_TRANSCEIVER)
}

fn upstream_request(
    node: &Transceiver,
    parts: &Parts,
    path: &str,
    body: Bytes,
) -> Result<axum::http::Request<Full<Bytes>>, Problem> {
    let mut request = axum::http::Request::builder()
        .method(&parts.method)
        .uri(format!("http://{}{path}", node.whip))
        .body(Full::new(body))
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "not a usable URL"))?;
    *request.headers_mut() = end_to_end(&parts.headers);
    Ok(request)
}

fn downstream(answer: axum::http::Response<Bytes>, region: &str) -> Response {
    let (parts, body) = answer.into_parts();
    let mut response = (parts.status, Body::from(body)).into_response();
    let mut headers = end_to_end(&parts.headers);
    if let Some(location) = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .and_then(|location| HeaderValue::try_from(with_region(location, region)).ok())
    {
        headers.insert(LOCATION, location);
    }
    // Replaces what axum guessed of the body.
    *response.headers_mut() = headers;
    response
}

fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    headers
}

/// Names are lower-case letters, digits, `-` and `.`: nothing to escape.
fn with_region(location: &str, region: &str) -> String {
    let separator = if location.contains('?') { '&' } else { '?' };
    format!("{location}{separator}region={region}")
}

/// The path without our own parameter.
fn upstream_path(path: &str, query: &str) -> String {
    let rest: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("region="))
        .collect();
    if rest.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{}", rest.join("&"))
    }
}

fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, value)| *key == name && !value.is_empty())
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology() -> Topology {
        topology::load(include_str!("../../../topology/samples/local.yaml"), "x").unwrap()
    }

    fn asked(method: Method, query: &str) -> Option<Vec<String>> {
        let mut parts = Request::new(()).into_parts().0;
        parts.method = method;
        let topology = topology();
        let regions = regions(&topology, &parts, query).ok()?;
        Some(regions.iter().map(|region| region.name.clone()).collect())
    }

    #[test]
    fn an_offer_goes_to_one_region() {
        assert_eq!(asked(Method::POST, "").unwrap(), ["eu"]);
        assert_eq!(asked(Method::POST, "pop=nyc").unwrap(), ["us"]);
        assert_eq!(asked(Method::POST, "pop=nyc&region=eu").unwrap(), ["eu"]);
        assert_eq!(asked(Method::POST, "pop=nowhere").unwrap(), ["eu"]);
        assert!(asked(Method::POST, "region=mars").is_none());
    }

    #[test]
    fn a_session_is_looked_for_where_its_url_says() {
        assert_eq!(asked(Method::DELETE, "pop=ams&region=us").unwrap(), ["us"]);
        assert_eq!(asked(Method::PATCH, "").unwrap(), ["eu", "us"]);
    }

    #[test]
    fn the_region_travels_in_the_url_and_stays_here() {
        assert_eq!(with_region("/whip/abc", "eu"), "/whip/abc?region=eu");
        assert_eq!(
            with_region("/whip/abc?pop=ams", "eu"),
            "/whip/abc?pop=ams&region=eu"
        );
        assert_eq!(
            upstream_path("/whip/abc", "pop=ams&region=eu"),
            "/whip/abc?pop=ams"
        );
        assert_eq!(upstream_path("/whip/abc", "region=eu"), "/whip/abc");
    }

    #[test]
    fn hop_by_hop_headers_stay_here() {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        headers.insert(header::IF_MATCH, HeaderValue::from_static("\"*\""));
        assert_eq!(end_to_end(&headers).len(), 1);
    }
}
