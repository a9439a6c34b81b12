//! One HTTP request in, one response out: paths, methods, who may ask, and what every response carries.
//!
//! ```text
//! path              methods                   from a client                 from a transceiver of the region
//! /whip             POST, OPTIONS             a session is made here        404
//! /whip/SESSION     PATCH, DELETE, OPTIONS    here, or passed to the owner  here, or 421: one hop is enough
//! ```
//!
//! RFC 9725 §4.2 reserves all other methods of both: 405.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};

use crate::signaling::body;
use crate::signaling::cors;
use crate::signaling::problem::{ACCEPT_PATCH, ACCEPT_POST, PATCH_TYPES, Problem, Reply, SDP};
use crate::signaling::settings::Settings;
use crate::signaling::{App, offer, session};

const ENDPOINT: &str = "/whip";
const ENDPOINT_METHODS: &str = "POST, OPTIONS";
const SESSION_METHODS: &str = "PATCH, DELETE, OPTIONS";

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// Anybody, on the public address.
    Client,
    /// Another transceiver of the region, on the peer address, by its certificate.
    Transceiver,
}

/// A request being answered.
pub(super) struct Asked<'a> {
    /// Head of the request.
    pub(super) head: &'a Parts,
    /// Its body.
    pub(super) body: &'a mut Incoming,
    /// Who sent it.
    pub(super) from: From,
    /// Where its connection comes from.
    pub(super) origin: Origin,
    /// The settings that hold for all of this request.
    pub(super) settings: &'a Settings,
}

/// Where a connection comes from.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// The other end.
    pub(super) peer: IpAddr,
    /// Whom a trusted proxy's PROXY header names.
    pub(super) source: Option<IpAddr>,
}

enum Resource<'a> {
    Endpoint,
    Session(&'a str),
}

/// Answers one request.
pub(super) async fn answer(
    app: Arc<App>,
    (from, origin): (From, Origin),
    request: Request<Incoming>,
) -> Reply {
    let settings = app.settings();
    let (head, mut body) = request.into_parts();
    let mut asked = Asked {
        head: &head,
        body: &mut body,
        from,
        origin,
        settings: &settings,
    };
    let mut reply = match resource(asked.head.uri.path(), from) {
        Some(resource) => dispatch(&app, &mut asked, &resource)
            .await
            .unwrap_or_else(Reply::from),
        None => Problem::NotFound("there is nothing at this path").into(),
    };
    body::discard(&head.headers, &mut body).await;
    if from == From::Client && head.method != Method::OPTIONS {
        let origins = &settings.signaling().cors_origins;
        cors::apply(origins, &head.headers, reply.headers_mut());
    }
    app.metrics.answered(&head.method, reply.status());
    reply
}

fn resource(path: &str, from: From) -> Option<Resource<'_>> {
    if path == ENDPOINT {
        return (from == From::Client).then_some(Resource::Endpoint);
    }
    let segment = path.strip_prefix(ENDPOINT)?.strip_prefix('/')?;
    (!segment.is_empty() && !segment.contains('/')).then_some(Resource::Session(segment))
}

async fn dispatch(
    app: &App,
    asked: &mut Asked<'_>,
    resource: &Resource<'_>,
) -> Result<Reply, Problem> {
    let method = &asked.head.method;
    match resource {
        Resource::Endpoint if *method == Method::OPTIONS => Ok(options(asked, ENDPOINT_METHODS)),
        Resource::Endpoint if *method == Method::POST => {
            authorize(asked)?;
            offer::create(app, asked).await
        }
        Resource::Endpoint => Err(Problem::Method {
            allow: ENDPOINT_METHODS,
        }),
        Resource::Session(_) if *method == Method::OPTIONS => Ok(options(asked, SESSION_METHODS)),
        Resource::Session(segment) if *method == Method::PATCH || *method == Method::DELETE => {
            authorize(asked)?;
            session::change(app, asked, segment).await
        }
        Resource::Session(_) => Err(Problem::Method {
            allow: SESSION_METHODS,
        }),
    }
}

/// RFC 9725 §4.7.1: the token goes with every request but `OPTIONS`. A transceiver of the region passes on only what it has let in.
fn authorize(asked: &Asked<'_>) -> Result<(), Problem> {
    let Some(verifier) = &asked.settings.verifier else {
        return Ok(());
    };
    if asked.from == From::Transceiver {
        return Ok(());
    }
    let lines = asked.head.headers.get_all(AUTHORIZATION);
    verifier
        .check(
            lines.iter().map(HeaderValue::as_bytes),
            runtime::clock::unix_s(),
        )
        .map_err(Problem::Unauthorized)
}

/// RFC 9725 §4.2: 200 with `Accept-Post`; for a session its counterpart `Accept-Patch` (RFC 5789 §3.1).
fn options(asked: &Asked<'_>, methods: &'static str) -> Reply {
    let mut reply = Response::new(Full::default());
    let headers = reply.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(methods));
    if methods == ENDPOINT_METHODS {
        headers.insert(ACCEPT_POST, HeaderValue::from_static(SDP));
    } else {
        headers.insert(ACCEPT_PATCH, HeaderValue::from_static(PATCH_TYPES));
    }
    let origins = &asked.settings.signaling().cors_origins;
    cors::apply_preflight(origins, methods, &asked.head.headers, headers);
    reply
}

/// The media type of the body in lower case, without parameters.
pub(super) fn media_type(head: &Parts) -> Option<String> {
    let value = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = value.split(';').next()?.trim();
    Some(essence.to_ascii_lowercase())
}

/// The PoP that the query asks for: `pop=NAME`. Names of nodes need no percent-encoding, so none is undone.
///
/// # Errors
/// [`Problem::Bad`] when it is given twice.
pub(super) fn wanted_pop(head: &Parts) -> Result<Option<&str>, Problem> {
    let pairs = head.uri.query().unwrap_or_default().split('&');
    let mut names = pairs.filter_map(|pair| pair.strip_prefix("pop="));
    match (names.next(), names.next()) {
        (name, None) => Ok(name),
        (_, Some(_)) => Err(Problem::Bad("more than one PoP is asked for")),
    }
}
