//! The topology: one YAML file that every firsthop program, Terraform and people read.
//!
//! ```text
//! text --load--> shape (serde) --check--> Topology        FILE:LINE: field.path: message
//!                     |             |                                  ^
//!                     +-- on error -+--> lines (marker index) ---------+
//! ```
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, reads no file (the caller passes
//! the text), spawns nothing. A [`Topology`] that [`load()`] returned is consistent: nothing downstream validates it again.

#![forbid(unsafe_code)]

pub mod anycast;
pub mod bird;
mod check;
pub mod dns;
pub mod error;
pub mod failover;
pub mod fuzz;
mod lines;
mod load;
pub mod model;
mod schema;
pub mod steering;
pub mod view;

pub use anycast::{Anycast, Bfd, BgpSession, Community, POP_ADDRESSES_MAX};
pub use dns::{Caa, Dns, GeoDns, NameServer, RateLimit};
pub use error::{LoadError, LoadErrors, Problem};
pub use failover::{FailoverGroup, RedisUrl};
pub use load::{LINE_BYTES_MAX, TEXT_BYTES_MAX, load, to_yaml};
pub use model::{
    CoreRelay, Datagrams, Link, Location, Network, Pop, Region, Signaling, Topology, Transceiver,
    TransceiverCluster, WorkerPacing,
};
pub use schema::json_schema;
pub use steering::{Continent, Rule, StateStore, Steering};
pub use view::{NodeRole, OwnAddresses};
