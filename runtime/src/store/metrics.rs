//! Every metric of the state store, declared once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::Unreadable;
use crate::clock;
use crate::metrics::{Counter, Gauge, Registry};
use crate::redis_client::{Refusal, Trouble};

/// How one side, telling or watching, stands with the store.
pub(super) struct Metrics {
    up: Gauge,
    servers_up: Gauge,
    /// A bit for each server that is in use: the topology names 16 at most.
    which: AtomicU64,
    troubles: [Counter; 8],
    done: Counter,
    refused: Counter,
    unreadable: [Counter; 5],
}

impl Metrics {
    /// `side`: `tell` or `watch`.
    pub(super) fn new(registry: &Registry, side: &'static str) -> Self {
        let operations = |result: &str| {
            registry.counter(
                "state_store.operations",
                "{operation}",
                "Values written to the state store or read from it, by what came of it.",
                &[("side", side), ("result", result)],
            )
        };
        Self {
            up: registry.gauge(
                "state_store.up",
                "",
                "Whether the state store is in use: 1 while any server of it answers.",
                &[("side", side)],
            ),
            servers_up: registry.gauge(
                "state_store.servers_up",
                "{server}",
                "Servers of the state store that answer; a Cluster is one.",
                &[("side", side)],
            ),
            which: AtomicU64::new(0),
            troubles: Trouble::ALL.map(|trouble| {
                registry.counter(
                    "state_store.failures",
                    "{connection}",
                    "Connections to the state store that were not made, or were given up.",
                    &[("side", side), ("reason", trouble.as_str())],
                )
            }),
            done: operations("ok"),
            refused: operations("refused"),
            unreadable: Unreadable::ALL.map(|why| operations(why.as_str())),
        }
    }

    /// Other servers, perhaps: none of them is in use yet.
    pub(super) fn begin(&self) {
        self.which.store(0, Ordering::Relaxed);
    }

    /// Whether the server at this place is in use.
    pub(super) fn up(&self, server: usize, up: bool) {
        let bit = 1u64 << (server % 64);
        let which = if up {
            self.which.fetch_or(bit, Ordering::Relaxed) | bit
        } else {
            self.which.fetch_and(!bit, Ordering::Relaxed) & !bit
        };
        self.up.set_count((which != 0).into());
        self.servers_up.set_count(which.count_ones().into());
    }

    pub(super) fn trouble(&self, server: usize, of: Trouble) {
        self.up(server, false);
        let found = self.troubles.iter().zip(Trouble::ALL);
        for (counter, _) in found.filter(|(_, trouble)| *trouble == of) {
            counter.add(1);
        }
    }

    pub(super) fn done(&self) {
        self.done.add(1);
    }

    /// Why does not matter: the value is written, or read, again.
    pub(super) fn refused(&self, _why: Refusal) {
        self.refused.add(1);
    }

    pub(super) fn unreadable(&self, why: Unreadable) {
        let found = self.unreadable.iter().zip(Unreadable::ALL);
        for (counter, _) in found.filter(|(_, each)| *each == why) {
            counter.add(1);
        }
    }
}

/// When the store last answered whoever watches.
#[derive(Clone)]
pub(super) struct Answered {
    since: Instant,
    last_ms: Arc<AtomicU64>,
}

impl Answered {
    pub(super) fn observe(registry: &Registry) -> Self {
        let answered = Self {
            since: clock::now(),
            last_ms: Arc::default(),
        };
        let own = answered.clone();
        registry.observe_gauge(
            "state_store.age_s",
            "s",
            "Age of the live state in use: time since the state store last answered, or since the start.",
            &[],
            move || own.age_s(),
        );
        answered
    }

    pub(super) fn at(&self, now: Instant) {
        self.last_ms.store(self.ms(now), Ordering::Relaxed);
    }

    fn ms(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.since);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn age_s(&self) -> f64 {
        let last = self.last_ms.load(Ordering::Relaxed);
        let ms = self.ms(clock::now()).saturating_sub(last);
        u32::try_from(ms).map_or(f64::MAX, |ms| f64::from(ms) / 1e3)
    }
}
