//! Harness for fuzzing: any bytes under a key, no panic, and what is read survives a round trip.

use super::{Medians, NodeState};

/// Reads arbitrary bytes as every kind of value.
///
/// # Panics
/// When a property does not hold.
pub fn value(bytes: &[u8]) {
    if let Ok(state) = NodeState::parse(bytes, "p1") {
        let again = serde_json::to_vec(&state).expect("a state has a JSON form");
        assert_eq!(NodeState::parse(&again, "p1"), Ok(state));
    }
    if let Ok(medians) = Medians::parse(bytes, "p1") {
        let again = serde_json::to_vec(&medians).expect("medians have a JSON form");
        assert_eq!(Medians::parse(&again, "p1"), Ok(medians));
    }
}
