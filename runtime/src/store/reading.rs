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
//!
//! Of several servers each is told everything and read by itself, and each reading counts:
//!
//! | a server says of a node | |
//! | --- | --- |
//! | a value told later than what is known | is taken |
//! | another value | is taken if what is known came from this server, or from one that does not answer any more: clocks of nodes may be set back |
//! | none | the node is missed, until any server says a value |
//!
//! So a node is gone when it is missed by all servers that answer, and no server that was asleep brings back what it slept on.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Whether any server answers.
    pub alive: bool,
    /// Servers that answer, by their place in the topology.
    answering: BTreeSet<usize>,
    /// Which server said the medians that are known.
    medians_from: BTreeMap<String, usize>,
}

/// What is known of a node.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// What it told last.
    pub state: Option<Arc<NodeState>>,
    /// Whether it tells nothing any more though the store is alive.
    pub gone: bool,
    missing_since: Option<Instant>,
    /// Which server said the state.
    from: Option<usize>,
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

    fn took(&mut self, server: usize, value: Option<Result<NodeState, Unreadable>>, now: Instant) {
        match value {
            Some(Ok(state)) => {
                (self.gone, self.missing_since) = (false, None);
                self.take(server, state);
            }
            // Something is told, and cannot be read: what was known stays.
            Some(Err(_)) => self.missing_since = None,
            None => {
                self.from = self.from.filter(|from| *from != server);
                let since = *self.missing_since.get_or_insert(now);
                self.gone |= now.saturating_duration_since(since) >= GRACE;
            }
        }
    }

    fn take(&mut self, server: usize, state: NodeState) {
        let known = self.state.as_ref().map(|known| known.told_ms);
        let is_later = known.is_none_or(|known_ms| state.told_ms > known_ms);
        let is_other = known != Some(state.told_ms) || state.told_ms == 0;
        if is_later || self.from.is_none_or(|from| from == server) {
            self.from = Some(server);
            // The same telling is the same value to whoever counts them.
            if is_other {
                self.state = Some(Arc::new(state));
            }
        }
    }
}

/// What is under the keys of the nodes.
pub(super) type Values<T> = Vec<(String, Option<Result<T, Unreadable>>)>;

impl States {
    /// Perhaps other servers and other nodes: none of these servers has answered yet, and medians of others are forgotten.
    pub(super) fn begin(&mut self, is_pop: impl Fn(&str) -> bool) {
        self.answering.clear();
        self.medians_from.clear();
        self.medians.retain(|name, _| is_pop(name));
        for seen in self.nodes.values_mut() {
            seen.from = None;
        }
    }

    /// Takes a server's reading of every node there is; others are forgotten.
    pub(super) fn took_states(&mut self, server: usize, values: Values<NodeState>, now: Instant) {
        let mut before = std::mem::take(&mut self.nodes);
        for (name, value) in values {
            let mut seen = before.remove(&name).unwrap_or_default();
            seen.took(server, value, now);
            self.nodes.insert(name, seen);
        }
        self.answering.insert(server);
        self.alive = true;
        self.answered_at = Some(now);
    }

    /// Takes a server's reading of medians, of any PoPs.
    pub(super) fn took_medians(&mut self, server: usize, values: Values<Medians>) {
        for (name, value) in values {
            let Some(Ok(medians)) = value else { continue };
            let known = self.medians.get(&name);
            let is_later = known.is_none_or(|known| medians.told_unix_s > known.told_unix_s);
            let from = self.medians_from.get(&name);
            if is_later || from.is_none_or(|from| *from == server) {
                self.medians_from.insert(name.clone(), server);
                self.medians.insert(name, Arc::new(medians));
            }
        }
    }

    /// A server did not answer.
    pub(super) fn lost(&mut self, server: usize) {
        self.answering.remove(&server);
        self.alive = !self.answering.is_empty();
        self.medians_from.retain(|_, from| *from != server);
        for seen in self.nodes.values_mut() {
            seen.from = seen.from.filter(|from| *from != server);
            if !self.alive {
                seen.missing_since = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CoreRelayState, Role, Told};
    use super::*;

    fn state(ready: bool) -> Option<Result<NodeState, Unreadable>> {
        state_at(ready, 0)
    }

    fn state_at(ready: bool, told_ms: u64) -> Option<Result<NodeState, Unreadable>> {
        let told = Told {
            ready,
            draining: false,
            role: Role::CoreRelay(CoreRelayState::default()),
        };
        Some(Ok(NodeState::of("r1", told, told_ms)))
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
            self.read_of(0, after_s, value)
        }

        fn read_of(
            &mut self,
            server: usize,
            after_s: u64,
            value: Option<Result<NodeState, Unreadable>>,
        ) -> Seen {
            self.now += Duration::from_secs(after_s);
            let values = vec![("r1".to_owned(), value)];
            self.states.took_states(server, values, self.now);
            self.states.nodes["r1"].clone()
        }

        fn lose(&mut self, after_s: u64) -> Seen {
            self.lose_of(0, after_s)
        }

        fn lose_of(&mut self, server: usize, after_s: u64) -> Seen {
            self.now += Duration::from_secs(after_s);
            self.states.lost(server);
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
    fn one_telling_is_one_value_however_often_it_is_read() {
        let mut world = World::new();
        let first = world.read(0, state_at(true, 5)).state.unwrap();
        let again = world.read(1, state_at(true, 5)).state.unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        let lost = world.lose(1).state.unwrap();
        assert!(Arc::ptr_eq(&first, &lost));
        let next = world.read(1, state_at(true, 6)).state.unwrap();
        assert!(!Arc::ptr_eq(&first, &next));
    }

    #[test]
    fn of_several_servers_the_latest_word_counts() {
        let mut world = World::new();
        world.read_of(0, 0, state_at(true, 5_000));
        // The other slept, and brings back what it slept on.
        assert_eq!(
            ready(&world.read_of(1, 0, state_at(false, 1_000))),
            Some(true)
        );
        assert_eq!(
            ready(&world.read_of(1, 1, state_at(false, 6_000))),
            Some(false)
        );
        assert_eq!(
            ready(&world.read_of(0, 0, state_at(true, 5_000))),
            Some(false)
        );
        // The node's clock was set back: of where its state came from, it is believed.
        assert_eq!(
            ready(&world.read_of(1, 1, state_at(true, 2_000))),
            Some(true)
        );
        // That server is gone: what others say is believed, whatever time they name.
        world.lose_of(1, 1);
        assert!(world.states.alive);
        assert_eq!(
            ready(&world.read_of(0, 0, state_at(false, 1_500))),
            Some(false)
        );
    }

    #[test]
    fn a_node_is_gone_when_all_servers_that_answer_miss_it() {
        let mut world = World::new();
        world.read_of(0, 0, state_at(true, 1));
        for second in 2..60 {
            let told_ms = 1_000 * second;
            assert!(!world.read_of(1, 1, None).gone, "the other came back empty");
            assert!(!world.read_of(0, 0, state_at(true, told_ms)).gone);
        }
        world.lose_of(0, 1);
        assert!(
            !world.read_of(1, 0, None).gone,
            "it has time to tell the other"
        );
        assert!(!world.read_of(1, 5, None).gone);
        assert!(world.read_of(1, 1, None).gone);
        world.lose_of(1, 1);
        assert!(!world.states.alive);
        assert!(!world.read_of(0, 60, state_at(true, 90_000)).gone);
    }

    #[test]
    fn medians_stay_until_others_come() {
        let mut states = States::default();
        let medians = |at| Some(Ok(Medians::of("p1", Vec::new(), at)));
        for (server, value, known) in [
            (0, None, None),
            (0, medians(5), Some(5)),
            (0, None, Some(5)),
            (0, Some(Err(Unreadable::Json)), Some(5)),
            (0, medians(6), Some(6)),
            (1, medians(5), Some(6)),
            (0, medians(4), Some(4)),
            (1, medians(7), Some(7)),
        ] {
            states.took_medians(server, vec![("p1".to_owned(), value)]);
            let told = states.medians.get("p1").map(|it| it.told_unix_s);
            assert_eq!(told, known);
        }
        states.lost(1);
        states.took_medians(0, vec![("p1".to_owned(), medians(5))]);
        assert_eq!(states.medians["p1"].told_unix_s, 5, "the one that answers");
        states.took_medians(0, Vec::new());
        assert_eq!(states.medians.len(), 1, "read in parts");
        states.begin(|_| false);
        assert!(states.medians.is_empty(), "no longer a PoP");
    }
}
