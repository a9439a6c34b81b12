//! UDP sockets for worker threads: opened with every option the packet path needs, read and written in batches.
//!
//! ```text
//! RecvBatch  recvmmsg, one buffer per slot, GRO datagrams handed out segment by segment
//! ReplyBatch recvmmsg, then sendmmsg of replies written over the requests
//! SendBatch  sendmmsg, one arena; a destination that fails never holds up the others
//! SourceBatch  sendmmsg, each datagram from a source of its own: for load generators
//! Outbox     trains and single datagrams of a regrouped batch
//! send_segments  one datagram train to one destination (UDP_SEGMENT), or single datagrams where the kernel refuses
//! ```
//!
//! Nothing here blocks, retries later or queues: what the kernel does not take is dropped and reported.

mod batch;
mod outbox;
mod replies;
mod segments;
mod socket;
mod sources;

pub use batch::{GRO_SLOT_BYTES, RecvBatch, Segments, SendBatch, SendReport};
pub use outbox::Outbox;
pub use replies::{InSlot, ReplyBatch};
pub use segments::{Unsent, send_segments};
pub use socket::{BindOptions, UdpSocket};
pub use sources::SourceBatch;

#[cfg(test)]
mod tests;
