//! Cross-origin requests (WHATWG Fetch §3.2): browsers on any page that `signaling.cors_origins` names may speak WHIP.

use hyper::HeaderMap;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, HeaderValue, ORIGIN, VARY,
};

/// Response headers that a page may read.
const EXPOSED: &str = "Location, ETag, Link, firsthop-session, Retry-After";
/// Request headers that a page may send.
const ALLOWED: &str = "Authorization, Content-Type, If-Match";
/// How long a browser may remember a preflight, in seconds; browsers cap it at two hours or more.
const MAX_AGE_S: &str = "7200";

/// Adds what lets the page at the request's `Origin` read the response. Nothing for an origin that is not allowed:
/// the browser then withholds the response from the page.
pub(super) fn apply(origins: &[String], request: &HeaderMap, response: &mut HeaderMap) {
    if let Some(allowed) = allowed_origin(origins, request, response) {
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        response.insert(
            ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static(EXPOSED),
        );
    }
}

/// As [`apply`], for the response to `OPTIONS`.
pub(super) fn apply_preflight(
    origins: &[String],
    methods: &'static str,
    request: &HeaderMap,
    response: &mut HeaderMap,
) {
    if let Some(allowed) = allowed_origin(origins, request, response) {
        response.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        for (name, value) in [
            (ACCESS_CONTROL_ALLOW_METHODS, methods),
            (ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED),
            (ACCESS_CONTROL_MAX_AGE, MAX_AGE_S),
        ] {
            response.insert(name, HeaderValue::from_static(value));
        }
    }
}

fn allowed_origin(
    origins: &[String],
    request: &HeaderMap,
    response: &mut HeaderMap,
) -> Option<HeaderValue> {
    if origins.iter().any(|origin| origin == "*") {
        return Some(HeaderValue::from_static("*"));
    }
    if !origins.is_empty() {
        // The response depends on the origin, whether it is allowed or not.
        response.insert(VARY, HeaderValue::from_static("Origin"));
    }
    let origin = request.get(ORIGIN)?;
    origins
        .iter()
        .any(|allowed| allowed.as_bytes() == origin.as_bytes())
        .then(|| origin.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (origins, origin, allowed, vary) in [
            (&["*"][..], None, Some("*"), false),
            (&["*"], Some("https://a.example"), Some("*"), false),
            (
                &["https://a.example"],
                Some("https://a.example"),
                Some("https://a.example"),
                true,
            ),
            (
                &["https://a.example"],
                Some("https://b.example"),
                None,
                true,
            ),
            (
                &["https://a.example"],
                Some("https://a.example.evil"),
                None,
                true,
            ),
            (&["https://a.example"], None, None, true),
            (&[], Some("https://a.example"), None, false),
        ] {
            let origins: Vec<String> = origins.iter().map(|&o| o.to_owned()).collect();
            let mut request = HeaderMap::new();
            if let Some(origin) = origin {
                request.insert(ORIGIN, HeaderValue::from_static(origin));
            }
            for preflight in [false, true] {
                let mut response = HeaderMap::new();
                if preflight {
                    apply_preflight(&origins, "POST, OPTIONS", &request, &mut response);
                } else {
                    apply(&origins, &request, &mut response);
                }
                let got = response.get(ACCESS_CONTROL_ALLOW_ORIGIN);
                assert_eq!(got.map(HeaderValue::as_bytes), allowed.map(str::as_bytes));
                assert_eq!(response.contains_key(VARY), vary);
                let methods = response.contains_key(ACCESS_CONTROL_ALLOW_METHODS);
                assert_eq!(methods, preflight && allowed.is_some());
            }
        }
    }
}
