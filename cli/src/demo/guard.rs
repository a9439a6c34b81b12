//! Who may ask what. The server has no users: what protects it is that it listens on loopback and that a browser says
//! for which page, and under which name, it asks.
//!
//! A page elsewhere can point a name of its own at 127.0.0.1 (DNS rebinding) and so become same-origin with us; its
//! `Host` still is that name. Addresses and `localhost` cannot be rebound.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, StatusCode, header, uri::Authority};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

const FOREIGN_NAME: Problem = Problem::new(
    StatusCode::FORBIDDEN,
    "this server answers only to IP addresses and localhost",
);
const FOREIGN_PAGE: Problem = Problem::new(
    StatusCode::FORBIDDEN,
    "only this machine and pages of this server may do that",
);

/// Refuses requests for a name that is not ours.
pub(super) async fn no_foreign_name(request: Request, next: Next) -> Response {
    match host(request.headers()) {
        Some(host) if is_localhost(&host) || address(&host).is_some() => next.run(request).await,
        Some(_) | None => FOREIGN_NAME.into_response(),
    }
}

/// Refuses requests that this machine's user did not make on this server's page or without a page.
pub(super) async fn from_this_machine(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let own_host = host(headers).is_some_and(|host| is_loopback(&host));
    if peer.ip().to_canonical().is_loopback() && own_host && own_page(headers) {
        next.run(request).await
    } else {
        FOREIGN_PAGE.into_response()
    }
}

/// Browsers send `Origin` with every POST; programs without pages send none.
fn own_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return true;
    };
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    origin
        .to_str()
        .ok()
        .and_then(|origin| origin.strip_prefix("http://"))
        .is_some_and(|origin| Some(origin) == host)
}

/// The host without its port.
fn host(headers: &HeaderMap) -> Option<String> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return None;
    };
    let authority: Authority = host.to_str().ok()?.parse().ok()?;
    Some(authority.host().to_ascii_lowercase())
}

fn is_loopback(host: &str) -> bool {
    is_localhost(host) || address(host).is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// Browsers resolve these names themselves (RFC 6761 §6.3).
fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

fn address(host: &str) -> Option<IpAddr> {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        headers
    }

    #[test]
    fn names_that_can_be_rebound_are_not_ours() {
        for (name, loopback) in [
            ("127.0.0.1:8080", true),
            ("localhost:8080", true),
            ("demo.localhost", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("192.0.2.1:8080", false),
            ("evil.example:8080", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example", false),
        ] {
            let host = host(&headers(name, None)).unwrap();
            assert_eq!(is_loopback(&host), loopback, "{name}");
        }
        assert_eq!(host(&HeaderMap::new()), None);
    }

    #[test]
    fn only_our_own_page_is_ours() {
        let at = "127.0.0.1:8080";
        assert!(own_page(&headers(at, None)));
        assert!(own_page(&headers(at, Some("http://127.0.0.1:8080"))));
        for origin in [
            "http://127.0.0.1:9000",
            "http://evil.example",
            "https://127.0.0.1:8080",
            "null",
        ] {
            assert!(!own_page(&headers(at, Some(origin))), "{origin}");
        }
    }
}
