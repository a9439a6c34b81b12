//! Every metric of the flow cache, declared once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use runtime::metrics::{Counter, Gauge, Histogram, Registry};
use runtime::redis_client::Trouble;

use crate::flow_cache::health::Outcome;
use crate::flow_cache::queues::{Dropped, Queues, What};
use crate::flow_cache::status::State;

/// Upper bounds of the lookup times counted apart, in microseconds.
const LOOKUP_US: &[f64] = &[
    250.0,
    500.0,
    1000.0,
    2500.0,
    5000.0,
    10_000.0,
    25_000.0,
    50_000.0,
    100_000.0,
    1_000_000.0,
];

pub(crate) struct Metrics {
    states: [Gauge; 3],
    troubles: [Counter; 8],
    connects: Counter,
    panics: Counter,
    lookups: [Counter; 10],
    stores: [Counter; 10],
    forgets: [Counter; 10],
    lookup_us: Histogram,
    stores_refused: Counter,
    forgets_lost: Counter,
    forgets_waiting: Gauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry, queues: &Arc<Queues>) -> Self {
        observe(registry, queues);
        let operations = |op: &str| {
            Outcome::ALL.map(|outcome| {
                let labels = [("op", op), ("result", outcome.as_str())];
                registry.counter(
                    "pop.flow_cache.operations",
                    "{operation}",
                    "Operations on the flow cache, by what came of them.",
                    &labels,
                )
            })
        };
        Self {
            states: State::ALL.map(|state| {
                let help = "State of the flow cache: 1 for the one it is in.";
                registry.gauge(
                    "pop.flow_cache.state",
                    "",
                    help,
                    &[("state", state.as_str())],
                )
            }),
            troubles: Trouble::ALL.map(|trouble| {
                let labels = [("reason", trouble.as_str())];
                let help = "Connections to Redis that were not made, or were given up.";
                registry.counter("pop.flow_cache.failures", "{connection}", help, &labels)
            }),
            connects: registry.counter(
                "pop.flow_cache.connects",
                "{connection}",
                "Connections to Redis that were made.",
                &[],
            ),
            panics: registry.counter(
                "pop.flow_cache.panics",
                "{panic}",
                "Panics of the task that speaks to Redis: bugs; it has begun again.",
                &[],
            ),
            lookups: operations("lookup"),
            stores: operations("store"),
            forgets: operations("forget"),
            lookup_us: registry.histogram(
                "pop.flow_cache.lookup_us",
                "us",
                "How long batches of lookups took.",
                &[],
                LOOKUP_US,
            ),
            stores_refused: dropped(registry, "stores_offline"),
            forgets_lost: dropped(registry, "forgets_offline"),
            forgets_waiting: registry.gauge(
                "pop.flow_cache.forgets_waiting",
                "{entry}",
                "Entries of ended sessions that Redis has not been told to delete yet.",
                &[],
            ),
        }
    }

    pub(crate) fn state(&self, now: State) {
        for (gauge, state) in self.states.iter().zip(State::ALL) {
            gauge.set_count(u64::from(state == now));
        }
        if now == State::CatchingUp {
            self.connects.add(1);
        }
    }

    pub(crate) fn trouble(&self, of: Trouble) {
        let found = self.troubles.iter().zip(Trouble::ALL);
        for (counter, _) in found.filter(|(_, trouble)| *trouble == of) {
            counter.add(1);
        }
    }

    pub(crate) fn panicked(&self) {
        self.panics.add(1);
    }

    pub(crate) fn lookup(&self, outcome: Outcome) {
        count(&self.lookups, outcome);
    }

    pub(crate) fn write(&self, what: What, outcome: Outcome) {
        match what {
            What::Store => count(&self.stores, outcome),
            What::Forget => count(&self.forgets, outcome),
        }
    }

    pub(crate) fn took(&self, time: Duration) {
        self.lookup_us.record(time.as_secs_f64() * 1e6);
    }

    pub(crate) fn store_refused(&self) {
        self.stores_refused.add(1);
    }

    pub(crate) fn forgets(&self, waiting: usize, lost: u64) {
        self.forgets_waiting
            .set_count(u64::try_from(waiting).unwrap_or(u64::MAX));
        self.forgets_lost.set_total(lost);
    }
}

fn count(counters: &[Counter; 10], of: Outcome) {
    let found = counters.iter().zip(Outcome::ALL);
    for (counter, _) in found.filter(|(_, outcome)| *outcome == of) {
        counter.add(1);
    }
}

const DROPPED: &str = "What was not handed to Redis: a full queue, or Redis offline for too long.";

fn dropped(registry: &Registry, queue: &str) -> Counter {
    registry.counter(
        "pop.flow_cache.dropped",
        "{operation}",
        DROPPED,
        &[("queue", queue)],
    )
}

/// Workers count what finds no place in a queue without the registry.
fn observe(registry: &Registry, queues: &Arc<Queues>) {
    type Cell = fn(&Dropped) -> &AtomicU64;
    let cells: [(&str, Cell); 4] = [
        ("asks", |dropped| &dropped.asks),
        ("stores", |dropped| &dropped.stores),
        ("forgets", |dropped| &dropped.forgets),
        ("answers", |dropped| &dropped.answers),
    ];
    for (queue, cell) in cells {
        let queues = Arc::clone(queues);
        registry.observe_counter(
            "pop.flow_cache.dropped",
            "{operation}",
            DROPPED,
            &[("queue", queue)],
            move || cell(&queues.dropped).load(Ordering::Relaxed),
        );
    }
}
