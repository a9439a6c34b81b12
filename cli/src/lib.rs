//! The program `firsthop`: the whole network on one machine, and the small tools around it.
//!
//! ```text
//! main --> args --> up      a network of in-process nodes or child processes, and the demo page
//!                   node    one node: the same code as the programs pop, core-relay, transceiver, geodns
//!                   certs   keys   topo   explain   drain   undrain
//!                   lab     goes on as the program `lab`
//! ```
//!
//! Invariants, stated as absences: nothing here is on a packet's way; no existing file is replaced without `--force`
//! (but by `keys rotate`, whose purpose it is); `up` writes nowhere but its own temporary directory.

#![forbid(unsafe_code)]

pub mod args;
pub mod certs;
mod command;
mod demo;
mod drain;
mod explain;
pub mod files;
pub mod keys;
mod random;
pub mod tempdir;
mod up;

pub use command::run;
