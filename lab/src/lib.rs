//! The world on one machine: real programs in a network of their own, real and synthetic clients, and what is
//! needed to watch both. The end-to-end tests are in `tests/`.
//!
//! Invariants, stated as absences: nothing here is linked into a product program; no traffic leaves 127.0.0.0/8 or
//! a network namespace that the test made; no child process outlives the thread that started it.

#![forbid(unsafe_code)]

pub mod bench;
pub mod clients;
pub mod delay;
pub mod dns;
pub mod fake_transceiver;
pub mod freeze;
pub mod http;
pub mod interrupt;
pub mod load;
pub mod meter;
pub mod metrics;
pub mod nat;
pub mod net;
pub mod process;
pub mod raw;
pub mod redis_server;
pub mod scenario;
pub mod siege;
pub mod sim;
pub mod standstill;
pub mod tools;
pub mod wait;
pub mod wan;
pub mod whip;
pub mod world;
pub mod yaml;
