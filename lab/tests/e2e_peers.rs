//! Every relay that the benchmark compares carries packets there and back, so that no figure is that of a relay set up wrong.

#![cfg(test)]

use lab::bench::round_trips::{System, carries};

/// Packets a second that any of them carries, however busy the machine.
const RATE: u32 = 500;

#[test]
fn every_relay_that_is_here_carries_a_little() {
    for system in System::ALL {
        let carried = (0..3).find_map(|_| match carries(system, 50, RATE).unwrap() {
            None => Some(None),
            Some(true) => Some(Some(())),
            Some(false) => None,
        });
        match carried {
            Some(Some(())) => println!("{}: carried", system.name()),
            Some(None) => println!("{}: missing here", system.name()),
            None => panic!("{} does not carry {RATE} packets a second", system.name()),
        }
    }
}
