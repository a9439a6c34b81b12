//! The instruments of the node that belong to no part of it.

use runtime::metrics::{Counter, Registry};

/// Connections for steering that came from no node of the topology.
pub(crate) fn steer_refused(registry: &Registry) -> Counter {
    registry.counter(
        "geodns.steer.connections_refused",
        "{connection}",
        "Connections to the steering address that were not from a node of the topology.",
        &[],
    )
}
