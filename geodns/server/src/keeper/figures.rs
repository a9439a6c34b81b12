//! What the keeper counts.

use std::time::Duration;

use geodns_policy::{Gathered, Measured, Memory};
use runtime::clock;
use runtime::metrics::{Counter, Gauge, Registry};

use super::compiler::Compiled;
use crate::world::Current;

/// Cells of the keeper.
pub(super) struct Figures {
    /// Things that did not come about; what there was stays.
    pub(super) failed: Counter,
    /// Threads that compile and were lost.
    pub(super) died: Counter,
    /// Worlds shown.
    pub(super) published: Counter,
    compiles: Counter,
    compile_s: Gauge,
    lists: Gauge,
    classes: Gauge,
    table_bytes: Gauge,
    groups: Gauge,
    groups_moved: Counter,
    left_out: Gauge,
}

impl Figures {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, unit, help| registry.counter(name, unit, help, &[]);
        let gauge = |name, unit, help| registry.gauge(name, unit, help, &[]);
        Self {
            failed: counter(
                "geodns.keeper.failures",
                "{failure}",
                "Changes of topology, databases or state that came to nothing; the old answers stay.",
            ),
            died: counter(
                "geodns.keeper.compiler_panics",
                "{panic}",
                "Times the thread that makes tables panicked and was started again; the old tables stay.",
            ),
            published: counter(
                "geodns.keeper.worlds",
                "{world}",
                "Times all answers were replaced.",
            ),
            compiles: counter("geodns.keeper.compiles", "{compile}", "Tables made."),
            compile_s: gauge(
                "geodns.keeper.compile_s",
                "s",
                "How long the last tables took.",
            ),
            lists: gauge(
                "geodns.keeper.lists",
                "{list}",
                "Rankings of regions that clients have.",
            ),
            classes: gauge(
                "geodns.keeper.classes",
                "{class}",
                "Kinds of clients that were ranked.",
            ),
            table_bytes: gauge("geodns.keeper.table_bytes", "By", "Memory of the tables."),
            groups: gauge(
                "geodns.measured.groups",
                "{group}",
                "Groups of clients with measured round trips.",
            ),
            groups_moved: counter(
                "geodns.measured.moved",
                "{group}",
                "Groups of clients that moved because another PoP was better for long enough.",
            ),
            left_out: gauge(
                "geodns.measured.left_out",
                "{report}",
                "Reports of round trips that the last look left out: too old, empty or too many.",
            ),
        }
    }

    pub(super) fn observe(&self, registry: &Registry, current: &Current) {
        let shown = current.clone();
        registry.observe_gauge(
            "geodns.state_age_s",
            "s",
            "Since the state of the nodes was last read; -1: never.",
            &[],
            move || {
                let heard_at = shown.load().heard_at;
                heard_at.map_or(-1.0, |at| {
                    clock::now().saturating_duration_since(at).as_secs_f64()
                })
            },
        );
    }

    pub(super) fn compiled(&self, compiled: &Compiled, took: Duration) {
        let seen = &compiled.map.figures;
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.compiles.add(1);
        self.compile_s.set(took.as_secs_f64());
        self.lists.set_count(count(seen.lists));
        self.classes.set_count(count(seen.classes));
        self.table_bytes.set_count(count(seen.bytes));
    }

    pub(super) fn measured(&self, measured: &Measured, gathered: &Gathered, memory: &Memory) {
        let count = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        self.groups.set_count(count(measured.len()));
        self.groups_moved.set_total(memory.moved());
        let left = gathered.left_out;
        let left = left.old + left.empty + left.many + measured.left_out();
        self.left_out.set_count(count(left));
    }
}
