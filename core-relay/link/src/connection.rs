//! One QUIC connection beneath a link, from its first packet until it is drained.
//!
//! ```text
//!   dialed     Handshaking ---------------------> Bound --> Closed
//!   accepted   Handshaking --> Unbound --(Ping)-> Bound --> Closed
//!   renewal    Handshaking --> Renewing -(Pong)-> Bound --> Closed      dialed for a link that has another one
//! ```
//! Unbound: the certificate told the node, no heartbeat has told the worker yet.

use std::collections::VecDeque;
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
    handed_over: HandedOver,
}

impl LinkConnection {
    pub(crate) fn new(mut quic: Connection, link: Option<usize>, now: Instant) -> Self {
        let handed_over = HandedOver::new(quic.datagrams().send_buffer_space());
        Self {
            handed_over,
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
        if self.hand_over(datagram, 0).is_err() {
            tracing::debug!("heartbeat found no place in the send buffer");
        }
    }

    /// Hands quinn one datagram of `records`; gives it back when the buffer has its share of records.
    pub(crate) fn offer(&mut self, datagram: Bytes, records: u64) -> Result<(), Refused> {
        if self.quic.datagrams().send_buffer_space() < HEARTBEAT_ROOM_BYTES + datagram.len() {
            return Err(Refused::Later(datagram));
        }
        self.hand_over(datagram, records)
            .map_err(|error| match error {
                SendDatagramError::Blocked(datagram) => Refused::Later(datagram),
                SendDatagramError::UnsupportedByPeer
                | SendDatagramError::Disabled
                | SendDatagramError::TooLarge => Refused::Never,
            })
    }

    fn hand_over(&mut self, datagram: Bytes, records: u64) -> Result<(), SendDatagramError> {
        let mut datagrams = self.quic.datagrams();
        let before = datagrams.send_buffer_space();
        datagrams.send(datagram, false)?;
        let after = datagrams.send_buffer_space();
        self.handed_over.note(before, after, records);
        Ok(())
    }

    /// Records that quinn has taken and not put into a packet.
    pub(crate) fn unsent_records(&mut self) -> u64 {
        let space = self.quic.datagrams().send_buffer_space();
        self.handed_over.records_in(space)
    }
}

/// What quinn's send buffer holds, in records. quinn tells how much room is left; datagrams leave in the order they came, so the
/// youngest that fill the rest are still there.
#[derive(Debug)]
struct HandedOver {
    /// Room in the empty buffer.
    room: usize,
    /// What each datagram took of it, and its records; no older ones than may be there.
    datagrams: VecDeque<(usize, u64)>,
    bytes: usize,
}

impl HandedOver {
    const fn new(room: usize) -> Self {
        Self {
            room,
            datagrams: VecDeque::new(),
            bytes: 0,
        }
    }

    /// A datagram took the room from `before` to `after`.
    fn note(&mut self, before: usize, after: usize, records: u64) {
        let cost = before.saturating_sub(after);
        self.datagrams.push_back((cost, records));
        self.bytes += cost;
        let held = self.room.saturating_sub(after);
        while let Some((oldest, _)) = self.datagrams.front()
            && self.bytes - oldest >= held
        {
            self.bytes -= oldest;
            self.datagrams.pop_front();
        }
    }

    fn records_in(&self, space: usize) -> u64 {
        let mut held = self.room.saturating_sub(space);
        let youngest = self.datagrams.iter().rev();
        let there = youngest.take_while(|(cost, _)| {
            let there = held > 0;
            held = held.saturating_sub(*cost);
            there
        });
        there.map(|(_, records)| records).sum()
    }
}

/// Why quinn did not take a datagram.
pub(crate) enum Refused {
    Later(Bytes),
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_datagrams_that_fill_the_buffer_are_unsent() {
        let mut handed = HandedOver::new(1000);
        handed.note(1000, 900, 1);
        handed.note(900, 850, 2);
        handed.note(850, 700, 3);
        assert_eq!(handed.records_in(700), 6);
        assert_eq!(handed.records_in(800), 5, "the oldest has left");
        assert_eq!(handed.records_in(1000), 0);
        // It forgets what has left.
        handed.note(1000, 990, 4);
        assert_eq!((handed.datagrams.len(), handed.records_in(990)), (1, 4));
    }
}
