//! DNS without sockets: questions, client subnet, the zone, answers.
//!
//! ```text
//! query bytes ──► Query ──► name, type, client ──► Located ──► AnswerId ──► bytes of Rendered ──► answer in the same buffer
//!                   │                                                                        └─► Slow: another program part answers
//!                   └─► FORMERR, BADVERS, drop
//! ```
//!
//! Invariants, stated as absences: no socket, task, lock or clock; the caller passes time and addresses in. Nothing on the way of
//! a question allocates, signs or compiles: all bytes of answers exist before the first question.

#![forbid(unsafe_code)]

pub mod answer;
pub mod content;
pub mod cookie;
pub mod counts;
pub mod dnssec;
pub mod ecs;
pub mod fuzz;
pub mod name;
pub mod query;
pub mod rate_limit;
pub mod record;
pub mod render;
pub mod respond;
pub mod select;
mod siphash;
pub mod zone;

pub use answer::{Answer, Chaos, NodeId, Question, Rcode, SetId, Signed, SteeredType};
pub use content::{Content, Part, Sections};
pub use dnssec::{Keys, KeysError, SignError, Signer, Validity};
pub use name::Name;
pub use record::{Class, Owner, Rrset, Type};
pub use zone::{DenialError, Steered, Zone, ZoneError};
