//! The shell around the deciding crates: threads, sockets, clocks, files, signals, metrics, admin HTTP.
//!
//! Invariants, stated as absences: nothing here knows what a packet means, parses one or decides about one. No state
//! is global to the process but the log subscriber and the signal handlers of [`node::main`], so that one process can
//! run many nodes. `unsafe` is nowhere but in `sys`.

pub mod admin;
pub mod args;
pub mod clock;
pub mod control;
pub mod counting;
pub mod credentials;
pub mod files;
pub mod http;
pub mod log_limit;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod node;
pub mod pace;
pub mod peer_tls;
pub mod poll;
pub mod proxy;
pub mod random;
pub mod redis_client;
pub mod routes;
mod service;
pub mod source;
pub mod store;
mod sys;
pub mod thread;
pub mod tun;
pub mod udp;
pub mod watch;

#[cfg(test)]
#[path = "../tests/support/issue.rs"]
mod issue;
