//! How a node is told to end: first to drain, then to stop.
//!
//! ```text
//! Running --drain--> Draining{deadline} --stop--> Stopped        (never backwards)
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::clock;
use crate::poll::Waker;

/// Wakers one node registers at most; more are told by nobody, which is logged.
const WAKERS_MAX: usize = 1024;

/// What a node is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Serve.
    Running,
    /// Take nothing more on; serve what there is until it is gone or the time has come.
    Draining {
        /// When [`State::Stopped`] follows.
        deadline: Instant,
    },
    /// End at once.
    Stopped,
}

/// The state a node is told to be in. Clones share it.
#[derive(Clone, Debug)]
pub struct Shutdown {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What `deadline_us` counts from.
    base: Instant,
    /// 0 running, `u64::MAX` stopped, else the deadline.
    deadline_us: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
    changed: watch::Sender<()>,
}

const RUNNING: u64 = 0;
const STOPPED: u64 = u64::MAX;

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shutdown {
    /// Running.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                base: clock::now(),
                deadline_us: AtomicU64::new(RUNNING),
                wakers: Mutex::default(),
                changed: watch::Sender::new(()),
            }),
        }
    }

    /// The state: one atomic load.
    #[must_use]
    pub fn state(&self) -> State {
        match self.shared.deadline_us.load(Ordering::Acquire) {
            RUNNING => State::Running,
            STOPPED => State::Stopped,
            us => State::Draining {
                deadline: self.shared.base + Duration::from_micros(us),
            },
        }
    }

    /// Has `waker` woken on every change of state, and when the configuration changes.
    pub fn register(&self, waker: &Waker) {
        let mut wakers = self.wakers();
        if wakers.len() < WAKERS_MAX {
            wakers.push(waker.clone());
        } else {
            tracing::error!(
                max = WAKERS_MAX,
                "too many wakers: one worker learns of a drain late"
            );
        }
    }

    /// Returns when the state has changed since the call; at once when it is [`State::Stopped`]. What happened between
    /// an earlier look at the state and the call is missed: [`Self::draining`] and [`Self::stopped`] miss nothing.
    pub async fn changed(&self) {
        let before = self.state();
        self.until(|state| state == State::Stopped || state != before)
            .await;
    }

    /// Returns when the state is no longer [`State::Running`].
    pub async fn draining(&self) {
        self.until(|state| state != State::Running).await;
    }

    /// Returns when the state is [`State::Stopped`].
    pub async fn stopped(&self) {
        self.until(|state| state == State::Stopped).await;
    }

    async fn until(&self, reached: impl Fn(State) -> bool) {
        let mut changes = self.shared.changed.subscribe();
        while !reached(self.state()) {
            // Cannot fail: the sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Starts draining; nothing when the node is already draining or stopped.
    pub fn drain(&self, at_most: Duration) {
        let deadline = clock::now() - self.shared.base;
        let deadline = deadline.saturating_add(at_most);
        let deadline_us = u64::try_from(deadline.as_micros()).unwrap_or(STOPPED - 1);
        let _ = self.shared.deadline_us.compare_exchange(
            RUNNING,
            deadline_us.clamp(RUNNING + 1, STOPPED - 1),
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        self.wake_all();
    }

    /// Stops.
    pub fn stop(&self) {
        self.shared.deadline_us.store(STOPPED, Ordering::Release);
        self.wake_all();
    }

    /// Wakes every registered waker, for whatever there is to see.
    pub fn wake_all(&self) {
        self.shared.changed.send_replace(());
        for waker in self.wakers().iter() {
            waker.wake();
        }
    }

    fn wakers(&self) -> std::sync::MutexGuard<'_, Vec<Waker>> {
        // A panic while the lock was held leaves a whole list: every change is one push.
        self.shared
            .wakers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_go_one_way_and_wake_everybody() {
        let (shutdown, waker) = (Shutdown::new(), Waker::new().unwrap());
        shutdown.register(&waker);
        assert_eq!(shutdown.state(), State::Running);
        shutdown.drain(Duration::from_secs(60));
        let draining = shutdown.state();
        assert!(matches!(draining, State::Draining { deadline } if deadline > clock::now()));
        assert!(waker.drain());
        shutdown.drain(Duration::ZERO);
        assert_eq!(shutdown.state(), draining, "the first deadline stays");
        shutdown.stop();
        assert!(waker.drain());
        shutdown.drain(Duration::from_secs(60));
        assert_eq!(shutdown.state(), State::Stopped);
    }

    #[test]
    fn a_drain_of_no_time_is_still_a_drain() {
        let shutdown = Shutdown::new();
        shutdown.drain(Duration::ZERO);
        assert!(matches!(shutdown.state(), State::Draining { .. }));
        let long = Shutdown::new();
        long.drain(Duration::MAX / 4);
        assert!(matches!(long.state(), State::Draining { .. }));
    }

    #[test]
    fn tasks_see_every_step() {
        let shutdown = Shutdown::new();
        let control = crate::control::Control::new().unwrap();
        let remote = shutdown.clone();
        let task = control.spawn(async move {
            remote.draining().await;
            let seen = remote.state();
            remote.stopped().await;
            remote.changed().await;
            seen
        });
        shutdown.drain(Duration::from_secs(60));
        let seen = shutdown.state();
        let changed = shutdown.changed();
        shutdown.stop();
        control.block_on(changed);
        let first = control.block_on(task).unwrap();
        assert!(first == seen || first == State::Stopped);
    }
}
