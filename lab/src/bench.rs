//! Benchmarks of the packet path, and in [`geodns`] of name service: the real programs on one processor, whoever feeds and drains them on another, and what
//! else could be there instead of them. `docs/performance.md` says how to read the figures.
//!
//! Everything here reports ratios to a baseline of the same run: absolute figures of a shared machine drift.

pub mod clients;
pub mod closed_loop;
pub mod command;
pub mod datapath;
pub mod failover;
pub mod far_end;
pub mod forwarder;
pub mod geodns;
pub mod latency;
pub mod median;
pub mod memory;
pub mod paced;
pub mod packet;
pub mod path;
mod peers;
pub mod plain;
pub mod processor;
pub mod recovery;
pub mod round_trips;
pub mod saturation;
pub mod soak;
pub mod table;
pub mod tunnel;
pub mod world;
