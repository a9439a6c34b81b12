//! Steering: which region and which ingress a client gets, and why.
//!
//! ```text
//! Topology ──► Plan ──┐
//! state store ► Live ─┼─► Snapshot ── decide(client, request) ──► Decision       HTTP, explain
//! PoPs ──► Measured ──┘        │
//!                              └── classify ► rank ► select ──► Choice per ranking    DNS, from tables
//! ```
//!
//! Invariants, stated as absences: this crate opens no socket, reads no file (databases come as bytes), reads no clock, has no
//! random source of its own. No decision is without a region, and none depends on what was answered before.

#![forbid(unsafe_code)]

use std::sync::Arc;

pub mod compile;
pub mod databases;
pub mod decide;
pub mod decision;
pub mod facts;
mod flips;
pub mod fuzz;
pub mod live;
pub mod measured;
pub mod plan;
pub mod policy;
pub mod rank;
pub mod rendezvous;
pub mod select;

pub use decide::{Request, RequestError, decide};
pub use decision::Decision;
pub use facts::{Client, Country, Facts, Place, PlaceOf};
pub use live::{Condition, Live, Standing};
pub use measured::gather::{Gathered, gather};
pub use measured::{GroupKey, Measured, Median, Report};
pub use plan::{Plan, PopIx, RegionIx};
pub use policy::hysteresis::Memory;
pub use rank::{Class, Ranking, classify, rank};
pub use rendezvous::{
    SHARE_PREFIX_V4, SHARE_PREFIX_V6, SLOTS, share_prefix, slot_of, slot_of_v4, slot_of_v6,
};
pub use select::{ANSWERS_MAX, Choice, Regions, select};

/// All that decisions rest on, besides the client: cheap to clone, and to replace in part.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The topology.
    pub plan: Arc<Plan>,
    /// Live state.
    pub live: Arc<Live>,
    /// Measured round trips.
    pub measured: Arc<Measured>,
}

impl Snapshot {
    /// Of a plan alone: all is well and idle, nothing is measured.
    #[must_use]
    pub fn of(plan: Plan) -> Self {
        Self {
            live: Arc::new(Live::well(&plan)),
            measured: Arc::default(),
            plan: Arc::new(plan),
        }
    }
}
