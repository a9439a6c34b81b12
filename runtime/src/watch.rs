//! Watches the worker threads of a node: whether each still makes turns of its loop, and how evenly packets fall to them.
//!
//! ```text
//! worker --beat, every turn--> cell --look, four times a second--> stalled?  one WARN line, a metric, `/readyz` is 503
//! ```
//!
//! A worker beats once a turn, and an idle one makes a turn at least every [`IDLE_TURN_MAX`]. One that has not beaten for
//! [`STALLED_AFTER`] is stalled until it beats again. Nothing is done to it: whoever takes traffic away from the node reads
//! [`Watch::stalled`]. A worker that has not begun, or whose [`Heart`] was dropped, is not watched.
//!
//! Whoever tells the service manager that the process lives (`service`) asks `all_moved`, which looks at workers, at
//! what else a program cannot be without ([`Watch::part`]), and at the control runtime.

mod parts;
mod pulse;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use self::parts::Parts;
use self::pulse::{Change, Pulse, Shares};
use crate::clock;
use crate::control::Control;
use crate::metrics::{Counter, Gauge, Registry};

/// An idle worker waits no longer than this before its next turn.
pub const IDLE_TURN_MAX: Duration = Duration::from_millis(250);
/// A worker that has made no turn for so long is stalled.
pub const STALLED_AFTER: Duration = Duration::from_secs(1);

/// How often workers are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Shares are those of the last full window of this length.
const SHARE_WINDOW: Duration = Duration::from_secs(5);
/// Workers of one node that are watched at most.
const HEARTS_MAX: usize = 1024;

/// The workers of one node. Clones share it.
#[derive(Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    skew: Gauge,
    state: Mutex<State>,
    parts: Mutex<Parts>,
}

struct State {
    watched: Vec<Watched>,
    looked: Instant,
    window_began: Instant,
}

struct Watched {
    name: String,
    cell: Arc<Cell>,
    pulse: Pulse,
    packets_before: u64,
    stalled: Gauge,
    stalls: Counter,
    share: Gauge,
}

/// What one worker writes.
#[derive(Default)]
struct Cell {
    turns: AtomicU64,
    packets: AtomicU64,
    ended: AtomicBool,
}

/// A worker's side of the watch; it ends with this value.
pub struct Heart {
    cell: Arc<Cell>,
    turns: u64,
}

/// Reads the turns of one worker without a lock, for who must not depend on anybody else.
#[derive(Clone)]
pub struct Turns {
    cell: Arc<Cell>,
}

impl Turns {
    /// How many there were; 0: the worker has not begun.
    #[must_use]
    pub fn so_far(&self) -> u64 {
        self.cell.turns.load(Ordering::Relaxed)
    }

    /// Whether the worker has ended.
    #[must_use]
    pub fn ended(&self) -> bool {
        self.cell.ended.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Turns").field(&self.so_far()).finish()
    }
}

impl Heart {
    /// A way to read its turns.
    #[must_use]
    pub fn turns(&self) -> Turns {
        Turns {
            cell: Arc::clone(&self.cell),
        }
    }

    /// Says that the worker has begun another turn: a plain store.
    pub fn beat(&mut self) {
        self.turns += 1;
        self.cell.turns.store(self.turns, Ordering::Relaxed);
    }

    /// Says how many packets the worker has handled so far, for its share: a plain store.
    pub fn packets(&self, total: u64) {
        self.cell.packets.store(total, Ordering::Relaxed);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.cell.ended.store(true, Ordering::Relaxed);
    }
}

impl Watch {
    /// Watches from `control` for as long as somebody has the value.
    #[must_use]
    pub fn start(registry: &Registry, control: &Control) -> Self {
        let watch = Self::new(registry, clock::now());
        let shared = Arc::downgrade(&watch.shared);
        let heart = watch.part("control");
        control.spawn(look_again_and_again(shared, heart));
        watch
    }

    fn new(registry: &Registry, now: Instant) -> Self {
        let skew = registry.gauge(
            "worker.packet_skew",
            "1",
            "Packets of the busiest worker over the mean of all, in the last 5 s; 1 is even, and what few packets show.",
            &[],
        );
        skew.set(1.0);
        Self {
            shared: Arc::new(Shared {
                registry: registry.clone(),
                skew,
                state: Mutex::new(State {
                    watched: Vec::new(),
                    looked: now,
                    window_began: now,
                }),
                parts: Mutex::default(),
            }),
        }
    }

    /// A heart for the worker `name`, which becomes a metric label. Its first beat begins the watch.
    #[must_use]
    pub fn heart(&self, name: &str) -> Heart {
        let cell = Arc::new(Cell::default());
        let mut state = self.shared.state();
        if state.watched.len() < HEARTS_MAX {
            let watched = Watched::new(&self.shared.registry, name, &cell);
            state.watched.push(watched);
        } else {
            tracing::error!(
                max = HEARTS_MAX,
                "too many workers: one of them is not watched"
            );
        }
        drop(state);
        self.shared.parts().add(name, &cell);
        Heart { cell, turns: 0 }
    }

    /// A heart for what is no worker, and without which the program is of no use all the same. Only `all_moved` looks at it.
    #[must_use]
    pub fn part(&self, name: &str) -> Heart {
        let cell = Arc::new(Cell::default());
        self.shared.parts().add(name, &cell);
        Heart { cell, turns: 0 }
    }

    /// Whether each part that has not ended, workers among them, has made a turn since this was so last, or else the first that has
    /// not. For one caller.
    pub(crate) fn all_moved(&self) -> Result<(), String> {
        self.shared.parts().all_moved()
    }

    /// The first worker that is stalled, by name.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        let state = self.shared.state();
        let stalled = state.watched.iter().find(|own| own.pulse.is_stalled());
        stalled.map(|own| own.name.clone())
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

async fn look_again_and_again(shared: Weak<Shared>, mut heart: Heart) {
    let mut looks = interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        heart.beat();
        let Some(shared) = shared.upgrade() else {
            return;
        };
        shared.look(clock::now());
    }
}

impl Shared {
    fn look(&self, now: Instant) {
        let mut state = self.state();
        let elapsed = now.saturating_duration_since(state.looked);
        state.looked = now;
        state
            .watched
            .retain(|own| !own.cell.ended.load(Ordering::Relaxed) || own.bury());
        for own in &mut state.watched {
            own.look(elapsed);
        }
        if now.saturating_duration_since(state.window_began) >= SHARE_WINDOW {
            state.window_began = now;
            self.share(&mut state.watched);
        }
    }

    fn share(&self, watched: &mut [Watched]) {
        let packets = watched.iter_mut().map(Watched::packets_of_window);
        let shares = Shares::of(packets.collect());
        self.skew.set(shares.skew());
        for (own, share) in watched.iter().zip(shares.each()) {
            own.share.set(share);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves a list that is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn new(registry: &Registry, name: &str, cell: &Arc<Cell>) -> Self {
        let labels = [("worker", name)];
        let observe = |metric, unit, help, read: fn(&Cell) -> u64| {
            let cell = Arc::clone(cell);
            registry.observe_counter(metric, unit, help, &labels, move || read(&cell));
        };
        observe(
            "worker.turns",
            "{turn}",
            "Turns of a worker's loop.",
            |cell| cell.turns.load(Ordering::Relaxed),
        );
        observe(
            "worker.packets",
            "{packet}",
            "Packets a worker has handled, both directions together.",
            |cell| cell.packets.load(Ordering::Relaxed),
        );
        let gauge = |name, unit, help| registry.gauge(name, unit, help, &labels);
        Self {
            name: name.to_owned(),
            cell: Arc::clone(cell),
            pulse: Pulse::default(),
            packets_before: 0,
            stalled: gauge(
                "worker.stalled",
                "{worker}",
                "1 while a worker makes no turn of its loop.",
            ),
            stalls: registry.counter(
                "worker.stalls",
                "{stall}",
                "How often a worker made no turn for more than a second.",
                &labels,
            ),
            share: gauge(
                "worker.packet_share",
                "1",
                "Part of the node's packets that fell to a worker in the last 5 s.",
            ),
        }
    }

    fn look(&mut self, elapsed: Duration) {
        let turns = self.cell.turns.load(Ordering::Relaxed);
        match self.pulse.look(turns, elapsed) {
            Some(Change::Stalled) => {
                self.stalled.set_count(1);
                self.stalls.add(1);
                tracing::warn!(
                    worker = self.name,
                    "worker stalled: what falls to it waits, and the node is not ready"
                );
            }
            Some(Change::Moves { silent }) => {
                self.stalled.set_count(0);
                let silent_ms = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
                tracing::info!(worker = self.name, silent_ms, "worker moves again");
            }
            None => {}
        }
    }

    /// Clears what a worker that has ended would show for ever. `false`, so that it is forgotten.
    fn bury(&self) -> bool {
        self.stalled.set_count(0);
        self.share.set(0.0);
        false
    }

    fn packets_of_window(&mut self) -> u64 {
        let packets = self.cell.packets.load(Ordering::Relaxed);
        packets - std::mem::replace(&mut self.packets_before, packets)
    }
}

#[cfg(test)]
mod tests;
