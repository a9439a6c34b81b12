//! The QUIC link between a PoP worker and a core-relay worker: dialing, accepting, health, redial.
//!
//! [`Links`] is sans-IO around `quinn_proto`: one per worker thread, owning one endpoint and all its connections. The
//! worker feeds it packets and time, and drains datagrams, events and packets to send:
//!
//! ```text
//!   UDP in  --> handle_packet --> next_datagram --> bodies of records datagrams
//!   clock   --> handle_timeout    next_event    --> Up, Down, Suspect, Draining, Refused
//!   records --> put_record, flush --> poll_transmit --> UDP out
//! ```
//!
//! A *link* is the durable pair (peer node, peer worker); connections come and go beneath it, so a [`LinkId`] stays
//! valid from the moment the topology names the peer until it no longer does. Only datagrams travel: heartbeats
//! ([`wire::record::DatagramKind::Ping`] and `Pong`) are handled inside, records pass through untouched.
//!
//! Invariants, stated as absences: this crate opens no socket, reads no clock, spawns nothing, and logs nothing above
//! DEBUG. Time, the wall clock for certificates and the seed of every random choice of its own are arguments.
//! Every table and queue is bounded, and what happens at the bound is counted in [`LinkDrop`].

#![forbid(unsafe_code)]

mod accept;
mod arena;
mod congestion;
mod connection;
mod drive;
mod figures;
mod health;
mod heartbeat;
mod link;
mod links;
mod queue;
mod reason;
mod redial;
mod renew;
mod suspicion;
mod tls;
mod transport;

pub use congestion::Congestion;
pub use figures::{LINK_FIGURES, LinkFigure};
pub use link::{LinkId, LinkStats};
pub use links::{Allowed, LinkEvent, Links, LinksConfig, Target, Transmit};
pub use reason::{DownCounts, DownReason, LinkDrop, LinkDrops};
pub use tls::{Tls, TlsError, WallClock};
