//! Sessions on the admin API: list, look, end. The admin server itself, and the token that ending needs, is `runtime::admin`.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::engine::handle::{EngineHandle, SessionError};

/// `GET /sessions`, `GET /sessions/{id}`, `DELETE /sessions/{id}`; ids are the public ones.
pub fn routes(engine: EngineHandle) -> Router {
    Router::new()
        .route("/sessions", get(list))
        .route("/sessions/{id}", get(one).delete(end))
        .with_state(engine)
}

async fn list(State(engine): State<EngineHandle>) -> Response {
    match engine.list().await {
        Ok(sessions) => Json(json!({ "sessions": sessions })).into_response(),
        Err(error) => problem(error),
    }
}

async fn one(State(engine): State<EngineHandle>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else {
        return problem(SessionError::NotFound);
    };
    match engine.get(id).await {
        Ok(session) => Json(session).into_response(),
        Err(error) => problem(error),
    }
}

async fn end(State(engine): State<EngineHandle>, Path(id): Path<String>) -> Response {
    let Ok(id) = id.parse() else {
        return problem(SessionError::NotFound);
    };
    match engine.end_by_id(id).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => problem(error),
    }
}

fn problem(error: SessionError) -> Response {
    let status = match error {
        SessionError::NotFound => StatusCode::NOT_FOUND,
        SessionError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        SessionError::EtagMismatch | SessionError::BadSdp(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let body = json!({
        "type": "about:blank",
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": error.to_string(),
    });
    let content_type = [("content-type", "application/problem+json")];
    (status, content_type, format!("{body}\n")).into_response()
}
