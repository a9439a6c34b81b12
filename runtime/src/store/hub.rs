//! The state store of nodes that share a process: a table in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{HUB_TTL, Medians, NodeState};

/// What the nodes of this process have told. Clones share it. Bounded by the nodes there are: each has one place.
#[derive(Clone, Default)]
pub struct Hub(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    states: BTreeMap<String, (NodeState, Instant)>,
    medians: BTreeMap<String, Medians>,
}

impl Hub {
    pub(super) fn tell(&self, state: NodeState, medians: Option<Medians>, now: Instant) {
        let mut told = self.lock();
        if let Some(medians) = medians {
            told.medians.insert(state.node.clone(), medians);
        }
        told.states.insert(state.node.clone(), (state, now));
    }

    /// What a node told last, unless that is too long ago.
    pub(super) fn state(&self, node: &str, now: Instant) -> Option<NodeState> {
        let told = self.lock();
        let (state, at) = told.states.get(node)?;
        (now.saturating_duration_since(*at) < HUB_TTL).then(|| state.clone())
    }

    pub(super) fn medians(&self, pop: &str) -> Option<Medians> {
        self.lock().medians.get(pop).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub").finish_non_exhaustive()
    }
}
