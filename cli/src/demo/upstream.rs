//! The client side: requests to nodes, with a deadline and bounded answers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::header::AUTHORIZATION;
use axum::http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// For signaling: a transceiver may have to ask another one first.
const TIMEOUT: Duration = Duration::from_secs(10);
/// For admin HTTP of a node on this machine.
const ADMIN_TIMEOUT: Duration = Duration::from_millis(800);
/// Longest answer that is passed on or looked at.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// Connections kept open to one node: none, because the node at the other end may have been restarted since.
const IDLE_MAX: usize = 0;

/// See the module.
pub(crate) struct Upstream {
    client: Client<HttpConnector, Full<Bytes>>,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// Nobody listens: nothing was sent, another node can be asked.
    Refused,
    /// Something was sent, and no usable answer came.
    Broken,
}

impl Upstream {
    /// No connection yet.
    pub(crate) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(ADMIN_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Self { client }
    }

    /// Sends a request, whole, and waits for the answer, whole.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, NoAnswer> {
        tokio::time::timeout(TIMEOUT, self.exchange(request))
            .await
            .unwrap_or(Err(NoAnswer::Broken))
    }

    /// `GET` from a node's admin HTTP.
    pub(crate) async fn admin(&self, admin: SocketAddr, path: &str) -> Option<(StatusCode, Bytes)> {
        let request = Request::get(format!("http://{admin}{path}"))
            .body(Full::default())
            .ok()?;
        let answer = tokio::time::timeout(ADMIN_TIMEOUT, self.exchange(request)).await;
        let answer = answer.ok()?.ok()?;
        Some((answer.status(), answer.into_body()))
    }

    /// `POST` without a body to a node's admin HTTP.
    pub(crate) async fn post(
        &self,
        admin: SocketAddr,
        path: &str,
        token: &str,
    ) -> Result<(StatusCode, Bytes), NoAnswer> {
        let request = Request::post(format!("http://{admin}{path}"))
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .body(Full::default())
            // It would have been sent to nobody.
            .map_err(|_| NoAnswer::Refused)?;
        let answer = self.send(request).await?;
        Ok((answer.status(), answer.into_body()))
    }

    /// JSON from a node's admin HTTP, when it answers 200.
    pub(crate) async fn admin_json(&self, admin: SocketAddr, path: &str) -> Option<Value> {
        let (status, body) = self.admin(admin, path).await?;
        (status == StatusCode::OK)
            .then(|| serde_json::from_slice(&body).ok())
            .flatten()
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, NoAnswer> {
        let answer = self.client.request(request).await.map_err(|error| {
            if error.is_connect() {
                NoAnswer::Refused
            } else {
                NoAnswer::Broken
            }
        })?;
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX)
            .collect()
            .await
            .map_err(|_| NoAnswer::Broken)?
            .to_bytes();
        Ok(Response::from_parts(parts, body))
    }
}
