//! What is known of every node from what the store said, reading by reading. No clock, no Redis.
//!
//! ```text
//!           its state was read
//!  unknown ────────────────────► told ◄──────────────┐ its state was read
//!     │                           │                  │
//!     │ its key is missing        │ its key is       │
//!     └───────────┐               │ missing          │
//!                 ▼               ▼                  │
//!               for GRACE, the store answering all the time ───────► gone
//! ```
//!
//! A store that does not answer changes nothing of this; one that comes back empty gives every node time to tell again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Medians, NodeState, Unreadable};

/// A key that is missing for so long, while the store answers, says that its node is gone: longer than a node that lives needs to
/// reach a store that has come back, and to tell.
pub(super) const GRACE: Duration = Duration::from_secs(6);

/// What is known of the nodes, as of one reading.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// Every node of the topology that tells its state, by name.
    pub nodes: BTreeMap<String, Seen>,
    /// What PoPs measured, by name. It stays when the PoP is gone, and says when it was told.
    pub medians: BTreeMap<String, Arc<Medians>>,
    /// When the store last answered; `None`: never.
    pub answered_at: Option<Instant>,
    /// Whether the last reading came to something.
    pub alive: bool,
}

/// What is known of a node.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What it told last.
    pub state: Option<Arc<NodeState>>,
    /// Whether it tells nothing any more though the store is alive.
    pub gone: bool,
    missing_since: Option<Instant>,
}

impl Seen {
    /// It has just told this.
    #[must_use]
    pub fn told(state: NodeState) -> Self {
        Self {
            state: Some(Arc::new(state)),
            ..Self::default()
        }
    }
}

/// What is under the keys of the nodes.
pub(super) type Values<T> = Vec<(String, Option<Result<T, Unreadable>>)>;

impl States {
    /// Takes a reading of every node there is; others are forgotten.
    pub(super) fn took_states(&mut self, values: Values<NodeState>, now: Instant) {
        let mut before = std::mem::take(&mut self.nodes);
        for (name, value) in values {
            let mut seen = before.remove(&name).unwrap_or_default();
            match value {
                Some(Ok(state)) => seen = Seen::told(state),
                // Something is told, and cannot be read: what was known stays.
                Some(Err(_)) => seen.missing_since = None,
                None => {
                    let since = *seen.missing_since.get_or_insert(now);
                    seen.gone |= now.saturating_duration_since(since) >= GRACE;
                }
            }
            self.nodes.insert(name, seen);
        }
        self.alive = true;
        self.answered_at = Some(now);
    }

    /// Takes a reading of the medians of every PoP there is.
    pub(super) fn took_medians(&mut self, values: Values<Medians>) {
        let mut before = std::mem::take(&mut self.medians);
        for (name, value) in values {
            let known = before.remove(&name);
            let entry = match value {
                Some(Ok(medians)) => Some(Arc::new(medians)),
                Some(Err(_)) | None => known,
            };
            if let Some(entry) = entry {
                self.medians.insert(name, entry);
            }
        }
    }

    /// The store did not answer.
    pub(super) fn lost(&mut self) {
        self.alive = false;
        for seen in self.nodes.values_mut() {
            seen.missing_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CoreRelayState, Role, Told};
    use super::*;

    fn state(ready: bool) -> Option<Result<NodeState, Unreadable>> {
        let told = Told {
            ready,
            draining: false,
            role: Role::CoreRelay(CoreRelayState::default()),
        };
        Some(Ok(NodeState::of("r1", told)))
    }

    struct World {
        states: States,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                states: States::default(),
                now: crate::clock::now(),
            }
        }

        fn read(&mut self, after_s: u64, value: Option<Result<NodeState, Unreadable>>) -> Seen {
            self.now += Duration::from_secs(after_s);
            let values = vec![("r1".to_owned(), value)];
            self.states.took_states(values, self.now);
            self.states.nodes["r1"].clone()
        }

        fn lose(&mut self, after_s: u64) -> Seen {
            self.now += Duration::from_secs(after_s);
            self.states.lost();
            self.states.nodes["r1"].clone()
        }
    }

    fn ready(seen: &Seen) -> Option<bool> {
        seen.state.as_ref().map(|state| state.ready)
    }

    #[test]
    fn a_node_whose_key_is_missing_is_gone_after_the_grace_and_back_at_once() {
        let mut world = World::new();
        assert_eq!(ready(&world.read(0, state(true))), Some(true));
        assert!(!world.read(1, None).gone);
        assert!(!world.read(5, None).gone);
        let seen = world.read(1, None);
        assert!(seen.gone && ready(&seen) == Some(true));
        assert!(!world.read(1, state(true)).gone);
    }

    #[test]
    fn a_node_that_never_told_is_gone_too() {
        let mut world = World::new();
        assert!(!world.read(0, None).gone);
        assert!(world.read(6, None).gone);
    }

    #[test]
    fn a_dead_store_changes_nothing_for_however_long() {
        let mut world = World::new();
        world.read(0, state(true));
        world.read(1, None);
        for _ in 0..60 {
            let seen = world.lose(60);
            assert!(!seen.gone && ready(&seen) == Some(true));
        }
        assert!(!world.states.alive);
        // Back and empty: everybody has time to tell again.
        assert!(!world.read(1, None).gone);
        assert!(!world.read(5, None).gone);
        assert!(!world.read(0, state(false)).gone);
        assert!(world.states.alive);
    }

    #[test]
    fn a_node_that_was_gone_stays_so_while_the_store_is_dead() {
        let mut world = World::new();
        world.read(0, None);
        world.read(6, None);
        assert!(world.lose(600).gone);
        assert!(world.read(0, None).gone);
    }

    #[test]
    fn garbage_leaves_what_was_known() {
        let mut world = World::new();
        world.read(0, state(false));
        let seen = world.read(100, Some(Err(Unreadable::Json)));
        assert!(!seen.gone && ready(&seen) == Some(false));
    }

    #[test]
    fn medians_stay_until_others_come() {
        let mut states = States::default();
        let medians = |at| Some(Ok(Medians::of("p1", Vec::new(), at)));
        for (value, known) in [
            (None, None),
            (medians(5), Some(5)),
            (None, Some(5)),
            (Some(Err(Unreadable::Json)), Some(5)),
            (medians(6), Some(6)),
        ] {
            states.took_medians(vec![("p1".to_owned(), value)]);
            let told = states.medians.get("p1").map(|it| it.told_unix_s);
            assert_eq!(told, known);
        }
        states.took_medians(Vec::new());
        assert!(states.medians.is_empty(), "no longer a PoP");
    }
}
