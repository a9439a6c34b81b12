//! The transceiver's decisions: which session a packet belongs to, which path the session answers on, when it is over.
//!
//! ```text
//!  create ──► pending ──Binding request with good integrity──► bound ──USE-CANDIDATE──► connected
//!               │ pending_ttl                                    │ vanish_after without an authenticated packet
//!               ▼                                                ▼
//!             ended ◄──────────── end, DTLS close ───────────── ended
//! ```
//!
//! It holds an ICE-lite agent of its own (RFC 8445 §2.5): it answers checks and never makes one. The media engine behind it
//! knows nothing of ufrags, candidates or addresses.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, draws no random number. No address is bound to a
//! session but by a Binding request whose MESSAGE-INTEGRITY verifies, and no return path moves without an authenticated packet. An address that
//! is not bound gets nothing beyond copies, and of those neither more packets nor more bytes than media that verified came
//! from it. A Binding request with missing or wrong MESSAGE-INTEGRITY gets no answer and changes nothing.

#![forbid(unsafe_code)]

mod addresses;
pub mod credentials;
pub mod dtls;
pub mod fuzz;
mod guest;
mod session;
pub mod sessions;
mod streams;
pub mod stun;
pub mod verdict;

pub use credentials::{LocalCredentials, Password};
pub use session::{PathSnapshot, SessionPhase};
pub use sessions::{Command, Config, CreateError, EndReason, Limits, Load, Sessions, Slot};
pub use streams::Claimants;
pub use verdict::{DropReason, Drops, ReturnPath, Verdict};
