//! What `/state` shows of the engine: it writes a few times a second, HTTP reads.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// The engine as `/state` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct EngineState {
    pub(crate) node: String,
    pub(crate) region: String,
    pub(crate) draining: bool,
    pub(crate) sessions: u32,
    pub(crate) pending: u32,
    pub(crate) addresses: u32,
    pub(crate) packets_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) rtp_in: u64,
    pub(crate) rtp_out: u64,
    pub(crate) rtp_lost: u64,
    /// By reason; those that occurred.
    pub(crate) drops: BTreeMap<&'static str, u64>,
    /// Sessions that ended, by reason.
    pub(crate) ended: BTreeMap<&'static str, u64>,
    pub(crate) config_generation: u64,
}

/// One place.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<EngineState>);

impl Board {
    /// Shows the engine's state. A reader at the same moment wins; the engine never waits.
    pub(crate) fn show(&self, state: EngineState) {
        if let Ok(mut place) = self.0.try_lock() {
            *place = state;
        }
    }

    /// Sessions there are.
    pub(crate) fn sessions(&self) -> u32 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.sessions
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        let state = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        serde_json::to_value(state).unwrap_or_default()
    }
}
