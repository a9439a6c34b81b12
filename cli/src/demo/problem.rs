//! Errors of the demo server: one line of `application/problem+json` (RFC 9457).

use std::borrow::Cow;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// A refusal with its reason.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    title: Cow<'static, str>,
}

/// No such resource.
pub(super) const NOT_FOUND: Problem = Problem::new(StatusCode::NOT_FOUND, "nothing is here");

impl Problem {
    /// With a fixed text.
    pub(super) const fn new(status: StatusCode, title: &'static str) -> Self {
        Self {
            status,
            title: Cow::Borrowed(title),
        }
    }

    /// With a text made for the occasion.
    pub(super) const fn with(status: StatusCode, title: String) -> Self {
        Self {
            status,
            title: Cow::Owned(title),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json!({ "title": self.title, "status": self.status.as_u16() });
        let headers = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status, headers, format!("{body}\n")).into_response()
    }
}
