//! The bytes every firsthop program agrees on: the STUN peek, the sealed hint, record framing and the
//! sealed flow record.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, draws no random number,
//! spawns nothing and locks nothing (the harnesses of `fuzz` need some instant to count from). Time and randomness are arguments. Bytes from a network never panic.

#![forbid(unsafe_code)]

pub mod drops;
pub mod flow_record;
pub mod fuzz;
pub mod hint;
pub mod ids;
pub mod reassembly;
pub mod record;
pub mod regroup;
pub mod sequence;
pub mod stun;

pub use ids::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};
pub use regroup::Regroup;
