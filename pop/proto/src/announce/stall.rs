//! Which worker stands still, by its count of turns.

use std::time::{Duration, Instant};

/// Workers that are watched at most: more than a topology allows.
const WORKERS_MAX: usize = 256;

/// The turns of each worker, as far as they were seen.
#[derive(Debug)]
pub struct Stalls {
    after: Duration,
    look_max: Duration,
    looked: Instant,
    workers: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    turns: u64,
    silent: Duration,
}

impl Stalls {
    /// A worker that makes no turn for `after` stands still. Of the time between two looks no more than `look_max` counts: beyond it the
    /// one who looks did not run, and perhaps nobody did.
    #[must_use]
    pub const fn new(after: Duration, look_max: Duration, now: Instant) -> Self {
        Self {
            after,
            look_max,
            looked: now,
            workers: Vec::new(),
        }
    }

    /// Another such time.
    pub const fn set_after(&mut self, after: Duration) {
        self.after = after;
    }

    /// The first worker that stands still. `turns` so far, of each; 0: it has not begun.
    pub fn look(&mut self, turns: impl Iterator<Item = u64>, now: Instant) -> Option<usize> {
        let elapsed = now
            .saturating_duration_since(self.looked)
            .min(self.look_max);
        self.looked = now;
        let mut stalled = None;
        for (index, turns) in turns.take(WORKERS_MAX).enumerate() {
            if self.workers.len() <= index {
                self.workers.push(Seen::default());
            }
            let Some(seen) = self.workers.get_mut(index) else {
                continue;
            };
            if turns == 0 || turns != seen.turns {
                *seen = Seen {
                    turns,
                    silent: Duration::ZERO,
                };
                continue;
            }
            seen.silent += elapsed;
            if seen.silent > self.after && stalled.is_none() {
                stalled = Some(index);
            }
        }
        stalled
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::start;
    use super::*;

    const AFTER: Duration = Duration::from_millis(300);
    const LOOK: Duration = Duration::from_millis(20);

    #[test]
    fn the_worker_without_turns_is_named_and_one_turn_clears_it() {
        let start = start();
        let mut stalls = Stalls::new(AFTER, 2 * LOOK, start);
        let mut now = start;
        let mut found = None;
        for look in 1..=17 {
            now += LOOK;
            found = stalls.look([look, 5].into_iter(), now);
            let silent = now - (start + LOOK);
            assert_eq!(found.is_some(), silent > AFTER, "{silent:?}");
        }
        assert_eq!(found, Some(1));
        assert_eq!(stalls.look([18, 6].into_iter(), now + LOOK), None);
    }

    #[test]
    fn time_that_nobody_ran_and_workers_that_have_not_begun_do_not_count() {
        let start = start();
        let mut stalls = Stalls::new(AFTER, 2 * LOOK, start);
        assert_eq!(stalls.look([7].into_iter(), start), None);
        let hour = Duration::from_secs(3600);
        for pause in 1..=7 {
            assert_eq!(stalls.look([7, 0].into_iter(), start + pause * hour), None);
        }
        assert_eq!(stalls.look([7, 0].into_iter(), start + 8 * hour), Some(0));
    }
}
