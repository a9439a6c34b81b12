//! One client's WebRTC connection: DTLS, SRTP and SCTP, by the sans-IO `rtc` crate. Only this directory knows `rtc`.
//!
//! `rtc` runs behind one constant virtual ICE pair: it never sees a client's address, candidate, ufrag or ICE restart. The
//! ICE-lite agent that clients speak to is `transceiver_proto`; here a nominated check is synthesised once, and all STUN
//! that `rtc` emits is answered on the spot and goes nowhere.
//!
//! ```text
//! client ──check──► transceiver_proto ──connected──► Peer::connect: virtual check ⇄ rtc
//! client ──DTLS, SRTP──────────────────────────────► Peer::handle_packet ───────► rtc ──► backend
//! ```
//!
//! `rtc` parses what clients send, and it may panic where it should refuse. That ends one session, not the calls of all the
//! others: every call into it is caught here, and a [`Peer`] that panicked does nothing any more.

#[cfg(test)]
pub(crate) mod client;
mod connection;
mod factory;
mod ssrc;
mod stream;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use bytes::Bytes;
use rtc::shared::error::Error as RtcError;

pub use self::factory::PeerFactory;

use self::connection::Connection;
use crate::backend::Backend;

/// Why `rtc` refused something.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// An offer, a candidate or a setting.
    #[error("media engine: {0}")]
    Engine(#[from] RtcError),
    /// The DTLS certificate of this process.
    #[error("DTLS certificate: {0}")]
    Certificate(String),
    /// It panicked; the session is over.
    #[error("media engine: panicked")]
    Panicked,
}

/// What a packet turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// SRTP or SRTCP whose tag verified: the sender is the client.
    Authenticated,
    /// Processed; it proves nothing.
    Processed,
    /// Refused.
    Refused,
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerCounters {
    /// RTP packets received.
    pub rtp_in: u64,
    /// RTP packets sent.
    pub rtp_out: u64,
    /// RTP packets that did not come in their turn, from gaps in sequence numbers; late ones are taken off again.
    pub rtp_lost: u64,
    /// RTP packets of streams beside the voice; the backend does not hear them.
    pub rtp_other: u64,
    /// Data-channel messages received.
    pub messages_in: u64,
    /// Data-channel messages sent.
    pub messages_out: u64,
    /// What a full buffer or a channel that is not open cost of what the backend sent.
    pub backend_refused: u64,
}

/// One client's connection.
pub struct Peer {
    connection: Connection,
    panicked: bool,
}

impl Peer {
    /// Answers an offer whose ICE lines name the virtual peer. Returns the answer with `rtc`'s own ICE lines in it.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub fn answer(
        factory: &PeerFactory,
        offer: String,
        ssrc: u32,
        now: Instant,
    ) -> Result<(Self, String), PeerError> {
        let made = catch_unwind(AssertUnwindSafe(|| {
            Connection::answer(factory, offer, ssrc, now)
        }));
        let (connection, answer) = made.unwrap_or(Err(PeerError::Panicked))?;
        let peer = Self {
            connection,
            panicked: false,
        };
        Ok((peer, answer))
    }

    /// Answers another offer of the same client.
    ///
    /// # Errors
    /// When `rtc` refuses the offer.
    pub fn reanswer(&mut self, offer: String, now: Instant) -> Result<String, PeerError> {
        self.guarded(|connection| connection.reanswer(offer, now))
            .unwrap_or(Err(PeerError::Panicked))
    }

    /// The client has nominated a path: lets the virtual pair come up, so that DTLS may begin.
    pub fn connect(&mut self, backend: &mut dyn Backend, now: Instant) {
        self.guarded(|connection| connection.connect(backend, now));
    }

    /// A packet that `transceiver_proto` let through for this session.
    pub fn handle_packet(
        &mut self,
        packet: &[u8],
        backend: &mut dyn Backend,
        now: Instant,
    ) -> Taken {
        self.guarded(|connection| connection.handle_packet(packet, backend, now))
            .unwrap_or(Taken::Refused)
    }

    /// The next datagram for the client.
    pub fn next_datagram(&mut self) -> Option<Bytes> {
        self.connection.next_datagram()
    }

    /// The clock reached what [`Self::poll_timeout`] said.
    pub fn handle_timeout(&mut self, backend: &mut dyn Backend, now: Instant) {
        self.guarded(|connection| connection.handle_timeout(backend, now));
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&mut self) -> Option<Instant> {
        self.guarded(Connection::poll_timeout).flatten()
    }

    /// Says goodbye: DTLS close_notify is among the datagrams afterwards.
    pub fn close(&mut self, now: Instant) {
        self.guarded(|connection| connection.close(now));
    }

    /// Whether the client has closed DTLS. `rtc` raises no event for it, so it is asked after a packet that held an alert.
    pub fn is_closed(&mut self) -> bool {
        self.guarded(Connection::is_closed).unwrap_or(false)
    }

    /// Whether the connection must end: `rtc` panicked, or the client opened more than we keep state for.
    #[must_use]
    pub const fn is_failed(&self) -> bool {
        self.panicked || self.connection.is_excessive()
    }

    /// Whether DTLS is up.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    /// State of the connection, in the words of the W3C.
    #[must_use]
    pub fn state(&self) -> String {
        self.connection.state()
    }

    /// Figures.
    #[must_use]
    pub const fn counters(&self) -> PeerCounters {
        self.connection.counters()
    }

    /// `None` when it panics, or did before. Whatever state that left behind is not looked at again but for its figures.
    fn guarded<T>(&mut self, call: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        if self.panicked {
            return None;
        }
        let connection = &mut self.connection;
        let outcome = catch_unwind(AssertUnwindSafe(|| call(connection))).ok();
        self.panicked = outcome.is_none();
        outcome
    }
}
