//! A PoP under siege: calls that count every packet of theirs, and floods from spoofed sources beside them.
//!
//! ```text
//! calls  (a source address each, one socket)  ──►┐
//!                                                ├──► p1 ══QUIC══► r1 ──records──► far end (in the place of t1), echoes
//! flood  (a source each packet, a few sockets) ──►┘
//! ```
//!
//! What is here is no benchmark: it tells whether calls suffer, not what a packet costs.

mod calls;
mod echo;
mod flood;
mod hints;
mod pace;
mod talk;

pub use calls::Calls;
pub use echo::Echo;
pub use flood::{Flood, Flooded, Weapon};
pub use hints::Hints;
pub use talk::Figures;
