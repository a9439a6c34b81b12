//! One QUIC connection beneath a link, from its first packet until it is drained.
//!
//! ```text
//!   dialed     Handshaking ---------------------> Bound --> Closed
//!   accepted   Handshaking --> Unbound --(Ping)-> Bound --> Closed
//!   renewal    Handshaking --> Renewing -(Pong)-> Bound --> Closed      dialed for a link that has another one
//! ```
//! Unbound: the certificate told the node, no heartbeat has told the worker yet.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{Connection, SendDatagramError};

use crate::reason::{CloseCode, DownReason};
use crate::transport::HEARTBEAT_ROOM_BYTES;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Handshaking,
    Unbound { peer: Arc<str> },
    Renewing,
    Bound,
    Closed,
}

pub(crate) struct LinkConnection {
    pub(crate) quic: Connection,
    pub(crate) stage: Stage,
    /// Index of the link it serves; absent for an accepted one that is not bound, and once closed.
    pub(crate) link: Option<usize>,
    pub(crate) opened: Instant,
    /// quinn's next timer, cached after every change.
    pub(crate) deadline: Option<Instant>,
    /// When it closes because another one serves its link; until then it is read.
    pub(crate) retire_at: Option<Instant>,
    /// The CAs changed during its handshake, which goes on with those of before: its peer is checked once more at the end.
    pub(crate) recheck: bool,
    /// Whether it waits in the list of connections that may have something to send.
    pub(crate) queued: bool,
}

impl LinkConnection {
    pub(crate) const fn new(quic: Connection, link: Option<usize>, now: Instant) -> Self {
        Self {
            quic,
            stage: Stage::Handshaking,
            link,
            opened: now,
            deadline: None,
            retire_at: None,
            recheck: false,
            queued: false,
        }
    }

    /// Whether it counts against the bound on unfinished attempts.
    pub(crate) const fn is_half_open(&self) -> bool {
        matches!(
            self.stage,
            Stage::Handshaking | Stage::Unbound { .. } | Stage::Renewing
        )
    }

    /// Why an attempt came to nothing in its time. Once the handshake has passed, only the full-size heartbeat can be
    /// missing. (Packets of the handshake are of `mtu_bytes`, too: on a path that has never carried them the peer is
    /// unreachable, whatever the cause.)
    pub(crate) const fn expired(&self) -> DownReason {
        match self.stage {
            Stage::Unbound { .. } | Stage::Renewing | Stage::Bound => DownReason::Mtu,
            Stage::Handshaking | Stage::Closed => DownReason::Unreachable,
        }
    }

    pub(crate) fn close(&mut self, code: CloseCode, now: Instant) {
        self.quic.close(
            now,
            code.var_int(),
            Bytes::from_static(code.text().as_bytes()),
        );
        self.stage = Stage::Closed;
        self.link = None;
        self.retire_at = None;
    }

    /// Queues a heartbeat ahead of the records that the link still holds.
    /// One that finds no place is lost, as on the wire.
    pub(crate) fn send_heartbeat(&mut self, datagram: Bytes) {
        if self.quic.datagrams().send(datagram, false).is_err() {
            tracing::debug!("heartbeat found no place in the send buffer");
        }
    }

    /// Hands quinn one datagram of records; gives it back when the buffer has its share of records.
    pub(crate) fn offer(&mut self, datagram: Bytes) -> Result<(), Refused> {
        let mut datagrams = self.quic.datagrams();
        if datagrams.send_buffer_space() < HEARTBEAT_ROOM_BYTES + datagram.len() {
            return Err(Refused::Later(datagram));
        }
        datagrams
            .send(datagram, false)
            .map_err(|error| match error {
                SendDatagramError::Blocked(datagram) => Refused::Later(datagram),
                SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::TooLarge => Refused::Never,
            })
    }
}

/// Why quinn did not take a datagram.
pub(crate) enum Refused {
    Later(Bytes),
    Never,
}
