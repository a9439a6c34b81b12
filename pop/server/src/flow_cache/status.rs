//! What the flow cache shows in `/state`.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use topology::FailoverGroup;

/// How it stands with Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// There is no connection: one is being made, or waited for.
    Down,
    /// Redis is told first what to forget; nobody is looked up yet.
    CatchingUp,
    /// In use.
    Up,
}

impl State {
    pub(crate) const ALL: [Self; 3] = [Self::Down, Self::CatchingUp, Self::Up];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::CatchingUp => "catching_up",
            Self::Up => "up",
        }
    }
}

/// One flow cache as `/state` shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CacheView {
    failover_group: String,
    redis: Vec<String>,
    cluster: bool,
    ttl_s: u32,
    pub(crate) state: State,
    /// Why the last connection was not made or was given up.
    pub(crate) last_failure: Option<&'static str>,
    pub(crate) forgets_waiting: usize,
}

/// Written by the task now and then, read by HTTP.
pub(crate) struct Status(Mutex<CacheView>);

impl Status {
    pub(crate) fn new(group: &FailoverGroup) -> Self {
        Self(Mutex::new(CacheView {
            failover_group: group.name.clone(),
            redis: group.redis.iter().map(ToString::to_string).collect(),
            cluster: group.cluster,
            ttl_s: group.ttl_s,
            state: State::Down,
            last_failure: None,
            forgets_waiting: 0,
        }))
    }

    pub(crate) fn view(&self) -> CacheView {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How it stands, unless that is being written at this moment.
    pub(crate) fn state_now(&self) -> Option<State> {
        self.0.try_lock().ok().map(|view| view.state)
    }

    pub(crate) fn set(&self, state: State, failure: Option<&'static str>) {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.state = state;
        view.last_failure = failure.or(view.last_failure);
    }

    pub(crate) fn set_forgets_waiting(&self, forgets_waiting: usize) {
        let mut view = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        view.forgets_waiting = forgets_waiting;
    }
}
