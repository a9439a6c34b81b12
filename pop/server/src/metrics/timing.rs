//! Metrics of timed round trips.

use pop_proto::TimingStats;
use runtime::metrics::{Counter, Registry};

pub(super) struct TimingCells {
    samples: Counter,
    owner_samples: Counter,
    untimed: Counter,
    lost: Counter,
}

impl TimingCells {
    pub(super) fn new(registry: &Registry) -> Self {
        let samples = |side| {
            registry.counter(
                "pop.rtt.samples",
                "{sample}",
                "Round trips that were timed: one for each client in a window, one for each answer of an owner.",
                &[("side", side)],
            )
        };
        Self {
            samples: samples("client"),
            owner_samples: samples("owner"),
            untimed: registry.counter(
                "pop.rtt.untimed",
                "{packet}",
                "Packets a flow could have been timed by, had its place not been taken.",
                &[],
            ),
            lost: registry.counter(
                "pop.rtt.samples_dropped",
                "{sample}",
                "Round trips that found no place between workers and the medians.",
                &[("queue", "worker")],
            ),
        }
    }

    pub(super) fn set(&self, timing: &TimingStats) {
        self.samples.set_total(timing.samples);
        self.owner_samples.set_total(timing.owner_samples);
        self.untimed.set_total(timing.untimed);
        self.lost.set_total(timing.samples_lost);
    }
}
