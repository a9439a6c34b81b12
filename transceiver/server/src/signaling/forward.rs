//! Passes a request for another transceiver's session to its owner: HTTPS with node certificates on both sides.
//!
//! The owner is dialled by its node name, which its certificate must carry; the topology says at which address. Idle
//! connections are kept and reused. Every wait and every number has a bound.

use std::collections::HashMap;
use std::future::{Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{
    ALLOW, CONTENT_TYPE, ETAG, FORWARDED, HeaderName, HeaderValue, IF_MATCH, RETRY_AFTER,
};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use tokio::time::timeout;
use topology::Transceiver;

use crate::signaling::problem::{ACCEPT_PATCH, Problem, Reply};
use crate::signaling::route::Asked;
use crate::signaling::{App, body, candidates};

/// Requests passed on at the same time, at most; one more is answered 503.
pub(super) const FORWARDS_MAX: usize = 64;
/// The owner has answered by then.
pub(super) const FORWARD_TIMEOUT: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Idle connections kept for each owner, at most, and for how long: less than the owner lets them idle.
const IDLE_MAX: usize = 4;
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an owner's response, at most.
const RESPONSE_LEN_MAX: usize = 256 * 1024;

/// Marks a request that has taken its one hop; the value is the node that passed it on.
pub(super) const FIRSTHOP_FORWARDED: HeaderName = HeaderName::from_static("firsthop-forwarded");

/// What the owner needs to know of the request.
const REQUEST_HEADERS: [HeaderName; 2] = [CONTENT_TYPE, IF_MATCH];
/// What the client needs to know of the response.
const RESPONSE_HEADERS: [HeaderName; 5] = [CONTENT_TYPE, ETAG, ALLOW, RETRY_AFTER, ACCEPT_PATCH];

/// Dials the region's transceivers.
#[derive(Debug)]
pub(super) struct Peers(Client);

/// A client that dials nodes by name.
pub(super) type Client = legacy::Client<HttpsConnector<HttpConnector<Directory>>, Full<Bytes>>;

impl Peers {
    /// For these transceivers, with this identity.
    #[must_use]
    pub(super) fn new(nodes: &[Transceiver], tls: ClientConfig) -> Self {
        let directory = nodes
            .iter()
            .map(|node| (node.name.clone(), node.peer.ip()))
            .collect();
        Self(client(directory, tls))
    }
}

/// A client for these nodes, with this identity.
pub(super) fn client(directory: HashMap<String, IpAddr>, tls: ClientConfig) -> Client {
    let mut tcp = HttpConnector::new_with_resolver(Directory(directory));
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_only()
        .enable_http1()
        .wrap_connector(tcp);
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_max_idle_per_host(IDLE_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .build(https)
}

/// Node names to addresses: the topology instead of DNS.
#[derive(Clone, Debug)]
pub(super) struct Directory(HashMap<String, IpAddr>);

impl tower::Service<Name> for Directory {
    type Response = std::option::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        // The port is that of the URL; the connector puts it in.
        let addr = self.0.get(name.as_str()).map(|ip| SocketAddr::new(*ip, 0));
        ready(match addr {
            Some(addr) => Ok(Some(addr).into_iter()),
            None => Err(io::ErrorKind::NotFound.into()),
        })
    }
}

/// Asks the owner and gives its answer to the client.
///
/// # Errors
/// [`Problem::OwnerDown`], [`Problem::OwnerSlow`], and what is wrong with the body.
pub(super) async fn pass(
    app: &App,
    asked: &mut Asked<'_>,
    owner: &Transceiver,
) -> Result<Reply, Problem> {
    let _permit = app
        .forwards
        .try_acquire()
        .map_err(|_| Problem::Unavailable("too many requests wait for other transceivers"))?;
    let body = body::read(asked.body, asked.settings.body_len_max()).await?;
    let request = request(asked, owner, candidates::client(app, asked), body)?;
    let answering = exchange(&asked.settings.peers, request);
    let outcome = timeout(FORWARD_TIMEOUT, answering)
        .await
        .unwrap_or(Err(Problem::OwnerSlow));
    app.metrics.forwarded(&outcome);
    outcome
}

fn request(
    asked: &Asked<'_>,
    owner: &Transceiver,
    client: IpAddr,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, Problem> {
    let path = asked
        .head
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let uri = Uri::builder()
        .scheme("https")
        .authority(format!("{}:{}", owner.name, owner.peer.port()))
        .path_and_query(path)
        .build()
        .map_err(|_| Problem::OwnerDown)?;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = asked.head.method.clone();
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    for name in REQUEST_HEADERS {
        for value in asked.head.headers.get_all(&name) {
            headers.append(&name, value.clone());
        }
    }
    if let Ok(node) = HeaderValue::try_from(asked.settings.node.as_str()) {
        headers.insert(FIRSTHOP_FORWARDED, node);
    }
    // RFC 7239 §4: in place of what the client or its proxy said.
    if let Ok(client) = HeaderValue::try_from(forwarded_for(client)) {
        headers.insert(FORWARDED, client);
    }
    Ok(request)
}

/// RFC 7239 §6: IPv6 in brackets, quoted.
fn forwarded_for(client: IpAddr) -> String {
    match client {
        IpAddr::V4(client) => format!("for={client}"),
        IpAddr::V6(client) => format!("for=\"[{client}]\""),
    }
}

async fn exchange(peers: &Peers, request: Request<Full<Bytes>>) -> Result<Reply, Problem> {
    let response = peers.0.request(request).await.map_err(|error| {
        tracing::debug!(error = %error, "the owner of a session does not answer");
        Problem::OwnerDown
    })?;
    let (head, body) = response.into_parts();
    // The owner disowns it: the two nodes are on different topologies for a moment.
    if head.status == StatusCode::MISDIRECTED_REQUEST {
        return Err(Problem::OwnerDown);
    }
    let body = Limited::new(body, RESPONSE_LEN_MAX)
        .collect()
        .await
        .map_err(|_| Problem::OwnerDown)?;
    let mut reply = Response::new(Full::new(body.to_bytes()));
    *reply.status_mut() = head.status;
    for name in RESPONSE_HEADERS {
        for value in head.headers.get_all(&name) {
            reply.headers_mut().append(&name, value.clone());
        }
    }
    Ok(reply)
}
