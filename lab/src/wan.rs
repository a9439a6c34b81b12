//! A wide-area network on one machine: every end of a link is a TUN device inside a network namespace, and one process carries
//! the packets between them as a plan says. The kernel needs no traffic control for it.
//!
//! ```text
//!  namespace lon            this process                                    namespace fra
//!  ┌───────────┐   read   ┌──────────────────────────────────────────┐ write ┌───────────┐
//!  │ to-fra TUN ├────────►│ direction lon>fra: a Path decides ─► air  ├──────►│ to-lon TUN │
//!  │            │◄────────┤ air ◄─ a Path decides: direction fra>lon  │◄──────┤            │
//!  └───────────┘          └──────────────────────────────────────────┘       └───────────┘
//! ```
//!
//! A *link* joins two nodes; a *cloud* joins any number, and finds by the destination's prefix whose a packet is. Delays come
//! from a matrix of round-trip times between cities or are said one by one. The kernel splits what a program sent as a
//! train (UDP_SEGMENT, TCP) before we read, so each packet has its own fate.
//!
//! [`Emulator`] decides and knows no device, clock or thread; `shell.rs` joins it with them. One thread carries all packets: it
//! owns every direction's state, so nothing is locked. Orders reach it between two turns, before the packets of the turn: a
//! cut holds for the very packet that follows it.
//!
//! Not here: who speaks in the namespaces, routes beyond what a device's addresses say, and whole worlds ([`crate::world`]).

mod awake;
pub mod command;
mod control;
mod emulator;
mod lateness;
pub mod measure;
mod namespaces;
mod plan;
mod routes;
mod shell;

pub use control::{Order, ask};
pub use emulator::{Counts, Emulator};
pub use lateness::Lateness;
pub use namespaces::{Namespace, remove};
pub(crate) use plan::awake_ms;
pub use plan::{Cloud, Direction, End, Link, Member, Plan, PlanError};
pub(crate) use shell::hear;
pub use shell::{Emulation, Running};
