//! DNS without sockets: questions, client subnet, the zone, answers.
//!
//! Invariants, stated as absences: no socket, task, lock or clock; the caller passes time and addresses in.

#![forbid(unsafe_code)]

pub mod answer;
pub mod name;
pub mod record;
pub mod zone;

pub use answer::{Answer, Chaos, NodeId, Question, Rcode, SetId, Signed, SteeredType};
pub use name::Name;
pub use record::{Class, Owner, Rrset, Type};
pub use zone::{Steered, Zone, ZoneError};
