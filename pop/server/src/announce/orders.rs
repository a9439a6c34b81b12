//! Orders of operators: to drain, and to serve again. An order outlives the process when it has a state directory.
//!
//! What is not here: files ([`super::clerk`]), who else announces ([`super::permit`]), and what a drain does (`pop_proto::drain`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use runtime::node::{self, NodeContext, Refused, Shutdown};
use runtime::poll::Waker;
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::Status;
use super::clerk::{self, Desk, Unkept};
use super::permit::{Census, Others};
use super::status::OthersUp;

/// Of the name in an order for somebody else, so much is said again.
const NAME_CHARS_MAX: usize = 64;

/// Whether the PoP is to drain.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Name of the node.
    node: String,
    drains: AtomicBool,
    /// A drain is under way or over, by order or because the process ends.
    draining: AtomicBool,
    file: Option<PathBuf>,
    /// Who else announces; of a PoP that does.
    census: Option<Census>,
    /// One order is given at a time.
    desk: Arc<Semaphore>,
    shutdown: Shutdown,
    waker: Waker,
}

/// Why an order is not given.
#[derive(Debug)]
enum Refusal {
    /// It was for another node.
    Stranger(String),
    /// There is no way back for a process that ends.
    Ends,
    /// Another order is being given.
    Busy,
    /// Clients would have nowhere to go.
    Alone { up: u32, wanted: u32 },
    /// It would be lost with the process.
    Unkept(Unkept),
}

impl Orders {
    /// What was ordered before the process began.
    ///
    /// # Errors
    /// [`Refused`]: nobody can tell, so it would be as if there were no order.
    pub(super) fn open(
        context: &NodeContext,
        census: Option<Census>,
        waker: Waker,
    ) -> Result<Self, Refused> {
        let file = context.state_dir.as_ref();
        let file = file.map(|dir| dir.join(format!("{}.drain", context.name)));
        let drains = match &file {
            Some(file) => file.try_exists().map_err(|error| {
                let file = file.display();
                Refused(format!(
                    "{file}: whether there is an order to drain cannot be read: {error}"
                ))
            })?,
            None => false,
        };
        if let Some(census) = &census {
            census.leave(drains);
        }
        Ok(Self {
            node: context.name.clone(),
            drains: AtomicBool::new(drains),
            draining: AtomicBool::new(drains),
            file,
            census,
            desk: Arc::new(Semaphore::new(1)),
            shutdown: context.shutdown.clone(),
            waker,
        })
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
    async fn give(&self, drain: bool, terms: Terms) -> Result<Option<OthersUp>, Refusal> {
        if let Some(node) = terms.node.filter(|node| *node != self.node) {
            return Err(Refusal::Stranger(node));
        }
        if !drain && self.shutdown.state() != node::State::Running {
            return Err(Refusal::Ends);
        }
        let desk = Arc::clone(&self.desk).try_acquire_owned();
        let mut desk = Some(desk.map_err(|_| Refusal::Busy)?);
        let was = self.drains();
        let given = self.give_alone((was, drain), terms.force, &mut desk).await;
        if let Some(census) = &self.census {
            census.leave(self.drains());
        }
        drop(desk);
        given
    }

    async fn give_alone(
        &self,
        (was, drain): (bool, bool),
        force: bool,
        desk: &mut Desk,
    ) -> Result<Option<OthersUp>, Refusal> {
        let others_up = match &self.census {
            Some(census) if drain && !was => {
                // Said before it is asked: of two PoPs that leave at once, one sees the other.
                census.leave(true);
                Some(enough(census.others().await, force)?)
            }
            Some(_) | None => None,
        };
        if let Some(file) = &self.file {
            let kept = clerk::keep(file.clone(), (was, drain), desk).await;
            kept.map_err(Refusal::Unkept)?;
        }
        self.drains.store(drain, Ordering::Relaxed);
        self.draining.store(drain, Ordering::Relaxed);
        self.waker.wake();
        tracing::info!(drain, kept = self.file.is_some(), ?others_up, "ordered");
        Ok(others_up)
    }
}

/// Where nobody can tell, the order is followed: a PoP must be drained most when much else is broken.
fn enough(others: Option<Others>, force: bool) -> Result<OthersUp, Refusal> {
    match others {
        None => Ok(OthersUp::Unknown("unknown")),
        Some(Others { up, wanted }) if up >= wanted || force => Ok(OthersUp::Known(up)),
        Some(Others { up, wanted }) => Err(Refusal::Alone { up, wanted }),
    }
}

impl Refusal {
    fn response(self, own: &str) -> Response {
        let (status, text) = match self {
            Self::Stranger(node) => {
                let node: String = node.chars().take(NAME_CHARS_MAX).collect();
                let text = format!("this is {own}, not {}", node.escape_default());
                (StatusCode::CONFLICT, text)
            }
            Self::Ends => {
                let text = "the process ends: it serves again when it has been started again";
                (StatusCode::CONFLICT, text.to_owned())
            }
            Self::Busy => {
                let text = "another order is being given at this moment";
                (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
            Self::Alone { up, wanted } => {
                let text = format!(
                    "{up} other PoPs are up, and min_announced is {wanted}: its clients would have nowhere to go (--force)"
                );
                (StatusCode::CONFLICT, text)
            }
            Self::Unkept(Unkept::Failed(error)) => {
                let text = format!("the order cannot be kept in the state directory: {error}");
                (StatusCode::INTERNAL_SERVER_ERROR, text)
            }
            Self::Unkept(Unkept::Late) => {
                let text = "the state directory does not answer: the order is not given";
                (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
            }
        };
        (status, format!("{text}\n")).into_response()
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

/// What comes with an order.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    /// Whom it is for. An address leads to whoever has it at that moment.
    node: Option<String>,
    /// Whether or not others are up.
    #[serde(default)]
    force: bool,
}

async fn show(State((orders, status)): State<Shared>) -> Response {
    view(&orders, &status, None)
}

fn view(orders: &Orders, status: &Status, others_up: Option<OthersUp>) -> Response {
    let view = status.drain(&orders.node, orders.drains(), orders.file.is_some());
    Json(view.with_others_up(others_up)).into_response()
}

async fn drain(state: State<Shared>, Query(terms): Query<Terms>) -> Response {
    give(state, terms, true).await
}

async fn undrain(state: State<Shared>, Query(terms): Query<Terms>) -> Response {
    give(state, terms, false).await
}

/// In a task of its own: whoever asked may go away meanwhile, and half an order is none.
async fn give(State((orders, status)): State<Shared>, terms: Terms, drain: bool) -> Response {
    let task = tokio::spawn(async move {
        match orders.give(drain, terms).await {
            Ok(others_up) => view(&orders, &status, others_up),
            Err(refusal) => refusal.response(&orders.node),
        }
    });
    match task.await {
        Ok(response) => response,
        // It was told to end with the runtime, or is broken.
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_stay_unless_it_is_forced_or_nobody_can_tell() {
        let others = |up, wanted| Some(Others { up, wanted });
        for (others, force, given) in [
            (others(2, 2), false, true),
            (others(1, 2), false, false),
            (others(1, 2), true, true),
            (others(0, 1), false, false),
            (others(0, 0), false, true),
            (None, false, true),
        ] {
            let said = enough(others, force);
            assert_eq!(said.is_ok(), given, "{others:?} {said:?}");
        }
    }

    #[test]
    fn each_refusal_has_its_answer() {
        let failed = std::io::Error::from(std::io::ErrorKind::StorageFull);
        for (refusal, status) in [
            (Refusal::Stranger("lon\u{1b}".to_owned()), 409),
            (Refusal::Ends, 409),
            (Refusal::Busy, 503),
            (Refusal::Alone { up: 0, wanted: 1 }, 409),
            (Refusal::Unkept(Unkept::Failed(failed)), 500),
            (Refusal::Unkept(Unkept::Late), 500),
        ] {
            assert_eq!(refusal.response("fra").status().as_u16(), status);
        }
    }
}
