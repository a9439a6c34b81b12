//! Benchmarks of the packet path: the real programs on one processor, whoever feeds and drains them on another, and what
//! else could be there instead of them. `docs/performance.md` says how to read the figures.
//!
//! Everything here reports ratios to a baseline of the same run: absolute figures of a shared machine drift.

pub mod clients;
pub mod far_end;
pub mod memory;
mod peers;
pub mod processor;
pub mod recovery;
pub mod round_trips;
pub mod world;
