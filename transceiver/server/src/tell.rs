//! What this transceiver tells those who steer clients.

use std::sync::Arc;

use runtime::node::{ConfigHandle, Shutdown, State};
use runtime::store::{Role, Tell, Told, TransceiverState};

use crate::engine::Board;

pub(crate) struct Own {
    pub(crate) board: Arc<Board>,
    pub(crate) shutdown: Shutdown,
    pub(crate) config: ConfigHandle,
}

impl Tell for Own {
    fn state(&mut self) -> Told {
        let draining = match self.shutdown.state() {
            State::Running => false,
            State::Draining { .. } | State::Stopped => true,
        };
        let signaling = &self.config.load().topology.network.signaling;
        Told {
            // Every socket was bound before this exists.
            ready: true,
            draining,
            role: Role::Transceiver(TransceiverState {
                sessions: self.board.sessions().into(),
                sessions_max: signaling.sessions_max.into(),
            }),
        }
    }
}
