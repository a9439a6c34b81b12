//! Metrics: cells that workers write without a lock and that a scrape sums.
//!
//! ```text
//! worker 0 --store--> cell --+
//! worker 1 --store--> cell --+-- sum per name and labels --> Prometheus text | OTLP push
//! socket   <--read-- observer+
//! ```
//!
//! Names are dotted and end in their unit (`pop.link.rtt_us`); Prometheus shows `firsthop_pop_link_rtt_us`, counters
//! with `_total`. A name has one kind, unit and help text. Labels are closed sets: no client address, port, ufrag or
//! session. A registry holds at most [`SERIES_MAX`] cells; one more works, but is not exported, and is counted.

mod group;
mod histogram;
mod otlp;
mod process;
mod prometheus;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use group::{Figure, Group};
pub use histogram::Histogram;
pub use otlp::{Push, PushError};

use crate::clock;

/// Cells and observers of one registry at most.
pub const SERIES_MAX: usize = 16_384;

/// Every metric of one node. Clones share it.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    program: String,
    node: String,
    started_unix_ms: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    families: BTreeMap<&'static str, Family>,
    series: usize,
    refused: u64,
}

struct Family {
    kind: Kind,
    unit: &'static str,
    help: &'static str,
    series: BTreeMap<Labels, Vec<Source>>,
}

/// In the order given, which is the order they are shown in.
type Labels = Vec<(&'static str, String)>;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}

enum Source {
    Cell(Arc<AtomicU64>),
    Float(Arc<AtomicU64>),
    Observer(Box<dyn Fn() -> f64 + Send + Sync>),
    Total(Box<dyn Fn() -> u64 + Send + Sync>),
    Histogram(Arc<histogram::Cells>),
}

/// A number that only rises.
#[derive(Clone, Debug)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Adds, from any thread.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Publishes a total that one worker keeps for itself: a plain store, for once per turn of its loop.
    pub fn set_total(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    /// What this cell holds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Sets it.
    pub fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Sets it to a count; exact up to 2^53.
    #[expect(
        clippy::cast_precision_loss,
        reason = "metrics are floats; counts beyond 2^53 do not occur"
    )]
    pub fn set_count(&self, value: u64) {
        self.set(value as f64);
    }
}

impl Registry {
    /// A registry with the metrics every node has: build, start time, memory, processor time.
    #[must_use]
    pub fn new(program: &str, node: &str) -> Self {
        let registry = Self {
            shared: Arc::new(Shared {
                program: program.to_owned(),
                node: node.to_owned(),
                started_unix_ms: clock::unix_ms(),
                state: Mutex::default(),
            }),
        };
        process::register(&registry);
        registry
    }

    /// A cell of a counter.
    #[must_use]
    pub fn counter(
        &self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Counter {
        let cell = Arc::new(AtomicU64::new(0));
        let source = Source::Cell(Arc::clone(&cell));
        self.add(name, Kind::Counter, unit, help, labels, source);
        Counter(cell)
    }

    /// A cell of a gauge; cells of one name and labels add up.
    #[must_use]
    pub fn gauge(
        &self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
    ) -> Gauge {
        let cell = Arc::new(AtomicU64::new(0));
        let source = Source::Float(Arc::clone(&cell));
        self.add(name, Kind::Gauge, unit, help, labels, source);
        Gauge(cell)
    }

    /// A cell of a histogram. `buckets` are upper bounds, ascending; one above them all is implied.
    #[must_use]
    pub fn histogram(
        &self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        buckets: &'static [f64],
    ) -> Histogram {
        let cells = Arc::new(histogram::Cells::new(buckets));
        let source = Source::Histogram(Arc::clone(&cells));
        self.add(name, Kind::Histogram(buckets), unit, help, labels, source);
        Histogram(cells)
    }

    /// A counter that is read when it is scraped.
    pub fn observe_counter(
        &self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) {
        let source = Source::Total(Box::new(read));
        self.add(name, Kind::Counter, unit, help, labels, source);
    }

    /// A gauge that is read when it is scraped.
    pub fn observe_gauge(
        &self,
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let source = Source::Observer(Box::new(read));
        self.add(name, Kind::Gauge, unit, help, labels, source);
    }

    /// All metrics in the Prometheus text format, version 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        prometheus::render(self)
    }

    fn add(
        &self,
        name: &'static str,
        kind: Kind,
        unit: &'static str,
        help: &'static str,
        labels: &[(&'static str, &str)],
        source: Source,
    ) {
        let mut state = self.state();
        if state.series >= SERIES_MAX {
            state.refused += 1;
            return;
        }
        let family = state.families.entry(name).or_insert_with(|| Family {
            kind,
            unit,
            help,
            series: BTreeMap::new(),
        });
        debug_assert_eq!(family.kind, kind, "{name} is declared twice, differently");
        if family.kind != kind {
            state.refused += 1;
            return;
        }
        let labels = labels
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect();
        family.series.entry(labels).or_default().push(source);
        state.series += 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held leaves a list that is still whole: every change is one push.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("program", &self.shared.program)
            .field("node", &self.shared.node)
            .finish_non_exhaustive()
    }
}

/// The value of one series at one time.
enum Value {
    Total(u64),
    Level(f64),
    Distribution(histogram::Snapshot),
}

impl Family {
    /// Every series with the sum of its sources.
    fn values(&self) -> impl Iterator<Item = (&Labels, Value)> {
        self.series
            .iter()
            .map(|(labels, sources)| (labels, self.kind.sum(sources)))
    }
}

impl Kind {
    fn sum(self, sources: &[Source]) -> Value {
        match self {
            Self::Counter => Value::Total(
                sources
                    .iter()
                    .fold(0, |sum: u64, source| sum.wrapping_add(source.total())),
            ),
            Self::Gauge => Value::Level(sources.iter().map(Source::level).sum()),
            Self::Histogram(buckets) => {
                let mut sum = histogram::Snapshot::empty(buckets);
                for source in sources {
                    if let Source::Histogram(cells) = source {
                        sum.merge(cells);
                    }
                }
                Value::Distribution(sum)
            }
        }
    }
}

impl Source {
    fn total(&self) -> u64 {
        match self {
            Self::Cell(cell) => cell.load(Ordering::Relaxed),
            Self::Total(read) => read(),
            Self::Float(_) | Self::Observer(_) | Self::Histogram(_) => 0,
        }
    }

    fn level(&self) -> f64 {
        match self {
            Self::Float(cell) => f64::from_bits(cell.load(Ordering::Relaxed)),
            Self::Observer(read) => read(),
            Self::Cell(_) | Self::Total(_) | Self::Histogram(_) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
