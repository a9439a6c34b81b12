//! The network in virtual time: the real flows, links (QUIC and TLS included), relay and reassembly on both ends of seeded
//! paths that delay, lose, reorder, duplicate, squeeze and cut.
//!
//! ```text
//!  clients ──► PoP ──► path ──► core relay ──► transceiver          one event queue, one clock, one seed
//!     ▲         │ Flows, Regions, Links    │ Links, Pops, Relay, Regroup
//!     └─────────┴──────────── path ◄───────┴────────── answers, media
//! ```
//!
//! The same seed gives the same packets at the same times. What joins the parts here is what the workers of `pop` and
//! `core-relay` do around their sockets, and no more; one worker each.
//!
//! Invariants, stated as absences: no socket, no sleep, no thread, and no packet that the [`ledger`] does not account for.

pub mod clients;
pub mod credentials;
pub mod ledger;
mod link_side;
pub mod net;
pub mod packet;
pub mod path;
pub mod plan;
pub mod pop;
pub mod random;
pub mod relay;
pub mod report;
pub mod transceiver;
pub mod world;

pub use core_relay_link::{Congestion, DownReason, LinkEvent};
pub use ledger::{Tally, Way};
pub use net::Site;
pub use path::{Conditions, Loss, Rate};
pub use plan::Plan;
pub use random::seed;
pub use report::Report;
pub use world::{Talk, World};
