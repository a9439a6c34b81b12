//! The PoP's decisions: which flow a client's packet belongs to, whether it may pass, and whom a downlink record commits.
//!
//! ```text
//!              Binding request with a good hint            downlink from that owner
//!   (no flow) ─────────────────────────────────► tentative ───────────────────────► committed ◄─┐
//!     │ │ │                                          │ 5 s                             │ 60 s   │ downlink from
//!     │ │ │ downlink or `taken` from an owner        ▼                                 │ idle   │ its owner
//!     │ │ └─────────────────────────► committed   (no flow)                            ▼        │
//!     │ │ answer of the flow cache                                                 (no flow)    │
//!     │ └───────────────────────────► recovered ────────────────────────────────────────────────┘
//!     │                                   │ owner silent for 10 s ─► (no flow)
//!     │ end record of the owner, from any state
//!     └───────────────────────────► ended ─── 5 s ─► (no flow);  a new claim or another owner begins anew
//! ```
//!
//! What nobody here knows may be offered to owners of other clients at the same IP address. An offer makes no flow.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, draws no random number, and originates no
//! packet. It parses nothing of a payload beyond the STUN header, the USERNAME of a Binding request, and the number of a DTLS handshake
//! message that is sent in the clear (to time round trips). A tentative flow
//! never evicts a committed one, and no flow exists for an address that belongs to the network itself.

#![forbid(unsafe_code)]

mod admission;
pub mod announce;
pub mod command;
pub mod drain;
mod flow;
pub mod flows;
pub mod fuzz;
mod index;
pub mod medians;
mod neighbours;
mod offers;
pub mod recovery;
pub mod routes;
mod table;
mod timing;
pub mod verdict;

pub use announce::{Announce, AnnounceConfig, Announcer};
pub use command::{Answer, Command};
pub use drain::{Drain, DrainConfig};
pub use flows::{Flows, FlowsConfig, Now, Source, Stats};
pub use medians::{Median, Medians, Prefix, Sample};
pub use neighbours::{Neighbours, Owners};
pub use recovery::{RecoveryConfig, Released};
pub use routes::Routes;
pub use timing::TimingStats;
pub use verdict::{Downlink, DropReason, Uplink};
