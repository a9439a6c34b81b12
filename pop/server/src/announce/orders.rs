//! Orders of operators: to drain, and to serve again. An order outlives the process when it has a state directory.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use runtime::node::NodeContext;
use runtime::poll::Waker;

use super::Status;

/// What the file holds; that it is there is what counts.
const TEXT: &str = "Ordered by `firsthop drain`. `firsthop undrain` removes this file.\n";

/// Whether the PoP is to drain.
#[derive(Debug)]
pub(crate) struct Orders {
    drains: AtomicBool,
    /// A drain is under way or over, by order or because the process ends.
    draining: AtomicBool,
    file: Option<PathBuf>,
    waker: Waker,
}

impl Orders {
    /// What was ordered before the process began.
    pub(super) fn open(context: &NodeContext, waker: Waker) -> Self {
        let file = context.state_dir.as_ref();
        let file = file.map(|dir| dir.join(format!("{}.drain", context.name)));
        let drains = file.as_ref().is_some_and(|file| file.exists());
        Self {
            drains: AtomicBool::new(drains),
            draining: AtomicBool::new(drains),
            file,
            waker,
        }
    }

    /// Whether it is ordered to.
    pub(crate) fn drains(&self) -> bool {
        self.drains.load(Ordering::Relaxed)
    }

    /// Whether a drain is under way or over.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    pub(super) fn show_draining(&self, draining: bool) {
        self.draining.store(draining, Ordering::Relaxed);
    }

    /// Gives an order, the file first: one that could not be kept is not given.
    fn give(&self, drain: bool) -> io::Result<()> {
        if let Some(file) = &self.file {
            if drain {
                fs::write(file, TEXT)?;
            } else {
                match fs::remove_file(file) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
        }
        self.drains.store(drain, Ordering::Relaxed);
        self.draining.store(drain, Ordering::Relaxed);
        self.waker.wake();
        tracing::info!(drain, kept = self.file.is_some(), "ordered");
        Ok(())
    }
}

/// `GET /v1/drain`, `POST /v1/drain`, `POST /v1/undrain`. Each answers with how the drain stands.
pub(crate) fn routes(orders: Arc<Orders>, status: Arc<Status>) -> Router {
    Router::new()
        .route("/v1/drain", get(show).post(drain))
        .route("/v1/undrain", post(undrain))
        .with_state((orders, status))
}

type Shared = (Arc<Orders>, Arc<Status>);

async fn show(State((orders, status)): State<Shared>) -> Response {
    Json(status.drain(orders.drains(), orders.file.is_some())).into_response()
}

async fn drain(state: State<Shared>) -> Response {
    give(state, true).await
}

async fn undrain(state: State<Shared>) -> Response {
    give(state, false).await
}

async fn give(state: State<Shared>, drain: bool) -> Response {
    match state.0.0.give(drain) {
        Ok(()) => show(state).await,
        Err(error) => {
            let text = format!("the order cannot be kept in the state directory: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(file: Option<PathBuf>) -> Orders {
        Orders {
            drains: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            file,
            waker: Waker::new().unwrap(),
        }
    }

    #[test]
    fn an_order_is_kept_twice_given_and_taken_back() {
        let dir = std::env::temp_dir().join(format!("firsthop-orders-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("p1.drain");
        let orders = orders(Some(file.clone()));
        for _ in 0..2 {
            orders.give(true).unwrap();
            assert!(orders.drains() && orders.is_draining() && file.exists());
            assert!(orders.waker.drain());
        }
        for _ in 0..2 {
            orders.give(false).unwrap();
            assert!(!orders.drains() && !orders.is_draining() && !file.exists());
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn an_order_that_cannot_be_kept_is_not_given() {
        let orders = orders(Some("/no/such/directory/p1.drain".into()));
        assert!(orders.give(true).is_err());
        assert!(!orders.drains());
    }
}
