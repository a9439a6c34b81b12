//! What a worker waits for besides its sockets.

use std::time::{Duration, Instant};

use runtime::watch::IDLE_TURN_MAX;

/// When each source that has timers wants its turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timers {
    pub(super) links: Option<Instant>,
    pub(super) flows: Option<Instant>,
    pub(super) regions: Option<Instant>,
}

impl Timers {
    /// How long a turn that began at `began` may be followed by nothing. `end`: when a draining node looks whether it is done.
    pub(super) fn rest(self, end: Option<Instant>, began: Instant) -> Duration {
        let Self {
            links,
            flows,
            regions,
        } = self;
        let due = [links, flows, regions, end].into_iter().flatten().min();
        due.map_or(IDLE_TURN_MAX, |due| {
            due.saturating_duration_since(began).min(IDLE_TURN_MAX)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_source_is_due_first_ends_the_wait() {
        let began = runtime::clock::now();
        let soon = Duration::from_millis(3);
        let at = Some(began + soon);
        let later = Some(began + 2 * soon);
        let none = Timers::default();
        assert_eq!(none.rest(None, began), IDLE_TURN_MAX);
        let all_later = Timers {
            links: later,
            flows: later,
            regions: later,
        };
        let first = |timers: Timers, end| assert_eq!(timers.rest(end, began), soon);
        first(Timers { links: at, ..none }, None);
        first(Timers { flows: at, ..none }, None);
        first(
            Timers {
                regions: at,
                ..none
            },
            None,
        );
        first(none, at);
        first(
            Timers {
                regions: at,
                ..all_later
            },
            later,
        );
        assert_eq!(all_later.rest(None, began + 3 * soon), Duration::ZERO);
    }
}
