//! The instruments of steering.

use runtime::metrics::{Counter, Histogram, Registry};

/// Buckets of answers: what they take is a few thousand instructions.
const TOOK_US: &[f64] = &[10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 5_000.0];

/// Cells of steering.
pub(crate) struct SteerMetrics {
    /// Connections that came from no node of the topology.
    pub(crate) refused: Counter,
    /// Questions answered.
    pub(crate) answered: Counter,
    /// Bodies that are no question.
    pub(crate) malformed: Counter,
    /// Questions for regions or residencies there are not.
    pub(crate) unknown: Counter,
    /// How long answers took to make.
    pub(crate) took_us: Histogram,
}

impl SteerMetrics {
    /// Registers them.
    #[must_use]
    pub(crate) fn new(registry: &Registry) -> Self {
        let questions = |outcome| {
            registry.counter(
                "geodns.steer.questions",
                "{question}",
                "Questions by HTTP for region and ingress of a client, by outcome.",
                &[("outcome", outcome)],
            )
        };
        Self {
            refused: registry.counter(
                "geodns.steer.connections_refused",
                "{connection}",
                "Connections to the steering address that were not from a node of the topology.",
                &[],
            ),
            answered: questions("answered"),
            malformed: questions("malformed"),
            unknown: questions("unknown"),
            took_us: registry.histogram(
                "geodns.steer.took_us",
                "us",
                "How long an answer took to make, without network and TLS.",
                &[],
                TOOK_US,
            ),
        }
    }
}
