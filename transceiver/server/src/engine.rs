//! The engine: one thread that owns every session of this transceiver and its one UDP socket.
//!
//! ```text
//!  core relays ──records──► worker ──packet──► Sessions (decides) ──► Live: Peer (DTLS, SRTP) ──► Backend
//!                             ▲                                                │
//!  signaling ──Request──► EngineQueue                                          ▼
//!  core relays ◄──records, regrouped per relay── Egress ◄───────────────── datagrams
//! ```
//!
//! It is not signaling: offers and other requests reach it through [`handle::EngineHandle`].

mod core;
mod egress;
pub mod handle;
mod live;
mod metrics;
mod random;
mod relays;
mod requests;
pub mod sdp;
mod state;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use state::Board;
pub(crate) use worker::Worker;
