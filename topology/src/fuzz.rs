//! Harness for fuzzing: any bytes, no panic, and what loads survives a round trip.

use crate::bird;
use crate::load::{self, to_yaml};

/// Loads arbitrary bytes.
///
/// # Panics
/// When a property does not hold.
pub fn load(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match load::load(&text, "fuzz.yaml") {
        Ok(topology) => {
            let yaml = to_yaml(&topology).expect("every topology has a YAML form");
            assert_eq!(load::load(&yaml, "again.yaml").as_ref(), Ok(&topology));
            let own = topology.own_addresses();
            assert!(!own.ips().is_empty() && !own.sockets().is_empty());
            for pop in &topology.pops {
                let announces = topology.anycast_of(pop).is_some();
                assert_eq!(bird::config(&topology, &pop.name).is_ok(), announces);
            }
        }
        Err(errors) => {
            let lines = text.lines().count().max(1);
            assert!(!errors.as_slice().is_empty(), "refused without a reason");
            for error in errors.as_slice() {
                assert!((1..=lines).contains(&error.line), "{error}: no such line");
                assert_eq!(error.to_string().lines().count(), 1, "not one line");
            }
        }
    }
}
