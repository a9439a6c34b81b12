//! What a client is told when it does not get what it asked for: RFC 9457 problem details on one line.
//!
//! A problem names neither addresses nor internals. `type` is `about:blank`, so `title` is the phrase of the status.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};

use crate::signaling::bearer::Refusal;

/// A complete response.
pub(super) type Reply = Response<Full<Bytes>>;

/// `Accept-Post` (W3C LDP §7.1).
pub(super) const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");
/// `Accept-Patch` (RFC 5789 §3.1).
pub(super) const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
/// The media type of offers and answers.
pub(super) const SDP: &str = "application/sdp";
/// The media type of fragments (RFC 8840 §9).
pub(super) const SDPFRAG: &str = "application/trickle-ice-sdpfrag";
/// What a session's `PATCH` takes.
pub(super) const PATCH_TYPES: &str = "application/trickle-ice-sdpfrag, application/sdp";

/// Why a request fails. Each variant is one status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// 400.
    Bad(&'static str),
    /// 401 with a challenge.
    Unauthorized(Refusal),
    /// 404: nothing at this path, or no such session.
    NotFound(&'static str),
    /// 405 with `Allow`.
    Method {
        /// The methods there are.
        allow: &'static str,
    },
    /// 408: the body came too slowly.
    Slow,
    /// 412 (RFC 9725 §4.3.2).
    EtagMismatch,
    /// 413.
    TooLarge,
    /// 415 with `Accept-Post`.
    OfferType,
    /// 415 with `Accept-Patch` (RFC 5789 §2.2).
    PatchType,
    /// 421: a request for another transceiver's session came from a transceiver.
    Misdirected,
    /// 422 (RFC 9725 §4.4.2, §4.4.3).
    Unprocessable(&'static str),
    /// 428 (RFC 6585 §3).
    IfMatchMissing,
    /// 429 with `Retry-After`.
    Rate {
        /// When to try again.
        retry_after_s: u64,
    },
    /// 502: the owner of the session does not answer.
    OwnerDown,
    /// 503 with `Retry-After` (RFC 9725 §4.5).
    Unavailable(&'static str),
    /// 504: the owner of the session answers too slowly.
    OwnerSlow,
}

/// Seconds in `Retry-After` of a 503.
const UNAVAILABLE_RETRY_AFTER_S: u64 = 2;

impl Problem {
    /// The status.
    #[must_use]
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Method { .. } => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::EtagMismatch => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::OfferType | Self::PatchType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::IfMatchMissing => StatusCode::PRECONDITION_REQUIRED,
            Self::Rate { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::OwnerDown => StatusCode::BAD_GATEWAY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::OwnerSlow => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    fn detail(self) -> String {
        match self {
            Self::Bad(why)
            | Self::NotFound(why)
            | Self::Unprocessable(why)
            | Self::Unavailable(why) => why.to_owned(),
            Self::Unauthorized(refusal) => refusal.to_string(),
            Self::Method { allow } => format!("this resource takes {allow}"),
            Self::Slow => "the body took too long to arrive".to_owned(),
            Self::EtagMismatch => "the ICE session has changed since this entity tag".to_owned(),
            Self::TooLarge => "the body is too large".to_owned(),
            Self::OfferType => format!("send the offer as {SDP}"),
            Self::PatchType => format!("send one of {PATCH_TYPES}"),
            Self::Misdirected => "another transceiver owns this session".to_owned(),
            Self::IfMatchMissing => {
                "send If-Match with the entity tag of the ICE session, or * to restart ICE"
                    .to_owned()
            }
            Self::Rate { .. } => "too many offers".to_owned(),
            Self::OwnerDown => "the transceiver of this session does not answer".to_owned(),
            Self::OwnerSlow => "the transceiver of this session answers too slowly".to_owned(),
        }
    }

    /// The header that this status needs besides the content type.
    fn header(self) -> Option<(HeaderName, HeaderValue)> {
        let fixed = |name, value| Some((name, HeaderValue::from_static(value)));
        match self {
            Self::Unauthorized(refusal) => fixed(WWW_AUTHENTICATE, refusal.challenge()),
            Self::Method { allow } => fixed(ALLOW, allow),
            // The rest of the body is not waited for (RFC 9110 §15.5.9).
            Self::Slow => fixed(CONNECTION, "close"),
            Self::OfferType => fixed(ACCEPT_POST, SDP),
            Self::PatchType => fixed(ACCEPT_PATCH, PATCH_TYPES),
            Self::Rate { retry_after_s } => Some((RETRY_AFTER, retry_after_s.into())),
            Self::Unavailable(_) => Some((RETRY_AFTER, UNAVAILABLE_RETRY_AFTER_S.into())),
            Self::Bad(_)
            | Self::NotFound(_)
            | Self::EtagMismatch
            | Self::TooLarge
            | Self::Misdirected
            | Self::Unprocessable(_)
            | Self::IfMatchMissing
            | Self::OwnerDown
            | Self::OwnerSlow => None,
        }
    }
}

impl From<Problem> for Reply {
    fn from(problem: Problem) -> Self {
        let status = problem.status();
        let body = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason().unwrap_or("Error"),
            "status": status.as_u16(),
            "detail": problem.detail(),
        });
        let mut reply = Self::new(Full::from(format!("{body}\n")));
        *reply.status_mut() = status;
        let headers = reply.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Some((name, value)) = problem.header() {
            headers.insert(name, value);
        }
        reply
    }
}
