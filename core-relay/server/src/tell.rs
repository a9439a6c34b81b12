//! What this core relay tells those who steer clients.

use std::sync::Arc;

use runtime::node::{Shutdown, State};
use runtime::store::{CoreRelayState, Role, Tell, Told};

use crate::state::Board;

pub(crate) struct Own {
    pub(crate) board: Arc<Board>,
    pub(crate) shutdown: Shutdown,
}

impl Tell for Own {
    fn state(&mut self) -> Told {
        let draining = match self.shutdown.state() {
            State::Running => false,
            State::Draining { .. } | State::Stopped => true,
        };
        Told {
            // Every socket was bound before this exists.
            ready: true,
            draining,
            role: Role::CoreRelay(CoreRelayState {
                links: self.board.links_up(),
            }),
        }
    }
}
