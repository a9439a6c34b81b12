//! The core relay's decisions: where a record goes, or why it is dropped.
//!
//! ```text
//! link of a PoP ──record──► handle_uplink   ──Forward { to }──► regroup by transceiver ──► record socket
//! record socket ──record──► handle_downlink ──ToLink { .. }───► regroup by link ─────────► link of the PoP
//! ```
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, and keeps nothing about a flow. The address of
//! an owner is computed from the region's CIDR; there is no registry to be stale.

#![forbid(unsafe_code)]

pub mod fuzz;
pub mod relay;
pub mod verdict;

pub use relay::Relay;
pub use verdict::{Downlink, DropReason, Drops, Uplink};
