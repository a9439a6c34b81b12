//! A link: the durable pair (peer node, peer worker), whatever connection serves it at the moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BufMut as _;
use topology::Link;
use wire::record::{self, DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader};
use wire::sequence::Arrivals;

use crate::arena::Arena;
use crate::connection::{LinkConnection, Refused};
use crate::health::Health;
use crate::queue::{Packed, SendQueue};
use crate::reason::{DownReason, LinkDrop, LinkDrops};
use crate::redial::Redial;

/// Names a link as long as the topology names its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// What a link is like.
#[derive(Clone, Debug)]
pub struct LinkStats {
    /// The link.
    pub id: LinkId,
    /// Node name of the peer.
    pub peer: Arc<str>,
    /// Worker thread of the peer.
    pub worker: u8,
    /// Since when it is up; `None` while it is down.
    pub up_since: Option<Instant>,
    /// Whether the peer says that it drains.
    pub draining: bool,
    /// Whether it is up and one of the two ends does not hear the other lately.
    pub suspect: bool,
    /// How often it was suspect.
    pub suspected: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Smoothed variation of the round-trip time.
    pub jitter_us: u32,
    /// Loss from the peer to us, in parts per million, over the last 16 heartbeats.
    pub loss_ppm: u32,
    /// Loss from us to the peer, as the peer last said.
    pub peer_loss_ppm: u32,
    /// Datagrams of the peer that arrived, were lost, or came out of order, heartbeats included.
    pub arrivals: Arrivals,
    /// How often it came up.
    pub ups: u64,
    /// Datagrams of records handed to QUIC.
    pub datagrams_sent: u64,
    /// Datagrams of records received.
    pub datagrams_received: u64,
    /// Bytes of the datagrams sent.
    pub bytes_sent: u64,
    /// Bytes of the datagrams received.
    pub bytes_received: u64,
    /// What was dropped, by reason.
    pub drops: LinkDrops,
}

pub(crate) struct LinkState {
    pub(crate) peer: Arc<str>,
    pub(crate) worker: u8,
    pub(crate) generation: u32,
    /// Where to dial, for a link we dial.
    pub(crate) dial: Option<Dial>,
    /// Index of the connection that serves it or is being made for it.
    pub(crate) connection: Option<usize>,
    /// Index of the connection that is to take over from it.
    pub(crate) renewal: Option<usize>,
    /// Certificates changed once more meanwhile: the one that takes over is to be renewed in turn.
    pub(crate) renews_again: bool,
    /// When a renewal that failed is tried again.
    pub(crate) renew_at: Option<Instant>,
    /// Why the present connection must end if that one fails.
    pub(crate) untrusted: Option<DownReason>,
    pub(crate) up_since: Option<Instant>,
    /// When the present connection was established.
    pub(crate) attached_at: Instant,
    pub(crate) health: Health,
    pub(crate) next_ping: Instant,
    /// Pings sent on the present connection.
    pub(crate) pings: u32,
    /// Where connections came from that a newer one took the link from.
    pub(crate) replaced: Replaced,
    pub(crate) peer_draining: bool,
    pub(crate) peer_loss_ppm: u32,
    /// What was said last of whether it is suspect: to our side, and to the peer.
    pub(crate) suspect: bool,
    pub(crate) says_deaf: bool,
    pub(crate) suspected: u64,
    /// Largest datagram of the present connection.
    datagram_len_max: usize,
    sequence: u16,
    fragment_id: u16,
    /// Holds records that wait for their datagram to be full or flushed; it starts with room for the header.
    arena: Arena,
    open_records: u64,
    queue: SendQueue,
    /// Whether the queue was half full when it was last looked at.
    is_pressed: bool,
    /// Of connections before the present one.
    earlier_arrivals: Arrivals,
    ups: u64,
    datagrams_sent: u64,
    pub(crate) datagrams_received: u64,
    bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) drops: LinkDrops,
}

/// The last few addresses that lost the link to a newer connection. One that comes back is the socket of a process that
/// lives on: a process that was started again has another port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replaced {
    from: [Option<SocketAddr>; REPLACED_MAX],
    next: usize,
}

/// Processes of one name told apart.
const REPLACED_MAX: usize = 4;

impl Replaced {
    /// A connection from `newer` takes the link from one of `older`. Returns why, from the older one's view.
    pub(crate) fn note(&mut self, older: SocketAddr, newer: SocketAddr) -> DownReason {
        if older == newer {
            return DownReason::Replaced;
        }
        let returns = self.from.contains(&Some(newer));
        if let Some(place) = self.from.get_mut(self.next) {
            *place = Some(older);
        }
        self.next = (self.next + 1) % REPLACED_MAX;
        if returns {
            DownReason::Duplicate
        } else {
            DownReason::Replaced
        }
    }
}

pub(crate) struct Dial {
    pub(crate) address: SocketAddr,
    pub(crate) redial: Redial,
}

impl LinkState {
    pub(crate) fn new(
        peer: Arc<str>,
        worker: u8,
        generation: u32,
        dial: Option<Dial>,
        link: &Link,
        now: Instant,
    ) -> Self {
        Self {
            peer,
            worker,
            generation,
            dial,
            connection: None,
            renewal: None,
            renews_again: false,
            renew_at: None,
            untrusted: None,
            up_since: None,
            attached_at: now,
            health: Health::new(link, false, now),
            next_ping: now,
            pings: 0,
            replaced: Replaced::default(),
            peer_draining: false,
            peer_loss_ppm: 0,
            suspect: false,
            says_deaf: false,
            suspected: 0,
            datagram_len_max: 0,
            sequence: 0,
            fragment_id: 0,
            arena: Arena::default(),
            open_records: 0,
            queue: SendQueue::of(link),
            is_pressed: false,
            earlier_arrivals: Arrivals::default(),
            ups: 0,
            datagrams_sent: 0,
            datagrams_received: 0,
            bytes_sent: 0,
            bytes_received: 0,
            drops: LinkDrops::default(),
        }
    }

    /// A connection serves the link from here on.
    pub(crate) fn attach(
        &mut self,
        index: usize,
        connection: &mut LinkConnection,
        link: &Link,
        now: Instant,
    ) {
        self.connection = Some(index);
        self.attached_at = now;
        self.earlier_arrivals = self.arrivals();
        self.health = Health::new(link, self.dial.is_some(), now);
        self.next_ping = now;
        self.pings = 0;
        self.peer_draining = false;
        self.peer_loss_ppm = 0;
        self.says_deaf = false;
        self.sequence = 0;
        self.datagram_len_max = connection.quic.datagrams().max_size().unwrap_or_default();
    }

    /// A connection is being made for the link.
    pub(crate) const fn dialing(&mut self, index: usize) {
        self.connection = Some(index);
        self.datagram_len_max = 0;
    }

    /// The link is up: records may be sent.
    pub(crate) fn came_up(&mut self, now: Instant) {
        self.up_since = Some(now);
        self.ups += 1;
    }

    /// Why the link, or the attempt to bring it up, is lost. The handshake passed, so the path is open both ways; a
    /// link that does not come up then lacks the echo of its full-size Pings.
    pub(crate) const fn refine(&self, reason: DownReason) -> DownReason {
        let connected = self.datagram_len_max > 0;
        let proving = self.dial.is_some() && self.up_since.is_none() && connected;
        let unheard = matches!(
            reason,
            DownReason::Silent | DownReason::NoEcho | DownReason::DeafPeer
        );
        if proving && unheard {
            DownReason::Mtu
        } else {
            reason
        }
    }

    /// No connection serves the link any more. What waited is dropped and counted, with the `unsent` records that the connection
    /// had taken.
    pub(crate) fn detach(&mut self, unsent: u64) -> Option<Instant> {
        self.seal();
        let dropped = self.queue.clear();
        self.drops.add(LinkDrop::NotUp, dropped + unsent);
        self.is_pressed = false;
        self.connection = None;
        self.suspect = false;
        self.up_since.take()
    }

    pub(crate) const fn next_sequence(&mut self) -> u16 {
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        sequence
    }

    /// Bytes of records that fit into one datagram.
    pub(crate) const fn room(&self) -> usize {
        self.datagram_len_max.saturating_sub(DATAGRAM_HEADER_LEN)
    }

    /// Bytes of the next Ping: of full size until the link is up, and every second time from then on, where it is us who
    /// dialed. 0 means as short as it can be.
    pub(crate) const fn next_ping_len(&mut self) -> usize {
        let turn = self.pings;
        self.pings = turn.wrapping_add(1);
        let proves = self.up_since.is_none() || turn.is_multiple_of(2);
        if self.dial.is_some() && proves {
            self.datagram_len_max
        } else {
            0
        }
    }

    /// Whether a connection serves it that has passed its handshake.
    pub(crate) const fn is_attached(&self) -> bool {
        self.connection.is_some() && self.datagram_len_max > 0
    }

    /// Largest datagram, for a heartbeat that proves the path.
    pub(crate) const fn datagram_len_max(&self) -> usize {
        self.datagram_len_max
    }

    /// Packs one record; returns whether anything waits to be flushed or sent.
    pub(crate) fn put(&mut self, header: &RecordHeader, payload: &[u8]) -> Result<(), LinkDrop> {
        let room = self.room();
        if header.encoded_len() + payload.len() <= room {
            self.pack(header, payload);
            return Ok(());
        }
        if header.fragment.is_some() {
            return Err(LinkDrop::TooLarge);
        }
        let id = self.fragment_id;
        let parts = record::split(*header, payload, room, id).ok_or(LinkDrop::TooLarge)?;
        self.fragment_id = id.wrapping_add(1);
        for part in parts {
            self.pack(&part.header, part.payload);
        }
        Ok(())
    }

    fn pack(&mut self, header: &RecordHeader, payload: &[u8]) {
        let len = header.encoded_len() + payload.len();
        if self.arena.open().len() + len > self.datagram_len_max {
            self.seal();
        }
        if self.arena.open().is_empty() {
            self.arena.reserve(self.datagram_len_max);
            self.arena.open().put_bytes(0, DATAGRAM_HEADER_LEN);
        }
        record::put_record(self.arena.open(), header, payload);
        self.open_records += 1;
    }

    /// Moves the open datagram, if any, to the send queue.
    pub(crate) fn seal(&mut self) {
        if self.arena.open().is_empty() {
            return;
        }
        let sequence = self.next_sequence();
        let mut datagram = self.arena.open().split();
        if let Some(head) = datagram.first_chunk_mut::<DATAGRAM_HEADER_LEN>() {
            *head = record::datagram_header(DatagramKind::Records, sequence);
        }
        let dropped = self.queue.push(Packed {
            bytes: datagram.freeze(),
            records: std::mem::take(&mut self.open_records),
        });
        self.drops.add(LinkDrop::QueueFull, dropped);
    }

    /// Whether the queue has become half full since it was last sent from.
    pub(crate) fn becomes_pressed(&mut self) -> bool {
        let before = std::mem::replace(&mut self.is_pressed, self.queue.is_half_full());
        self.is_pressed && !before
    }

    /// Hands queued datagrams to quinn as long as it takes them.
    pub(crate) fn pump(&mut self, connection: &mut LinkConnection) {
        while let Some(Packed { bytes, records }) = self.queue.pop() {
            let len = u64::try_from(bytes.len()).unwrap_or_default();
            match connection.offer(bytes, records) {
                Ok(()) => {
                    self.datagrams_sent += 1;
                    self.bytes_sent += len;
                }
                Err(Refused::Later(bytes)) => {
                    self.queue.unpop(Packed { bytes, records });
                    return;
                }
                Err(Refused::Never) => self.drops.add(LinkDrop::TooLarge, records),
            }
        }
    }

    fn arrivals(&self) -> Arrivals {
        self.earlier_arrivals.plus(self.health.arrivals())
    }

    pub(crate) fn wants_to_send(&self) -> bool {
        !self.queue.is_empty()
    }

    pub(crate) fn stats(&self, index: u32) -> LinkStats {
        LinkStats {
            id: LinkId {
                index,
                generation: self.generation,
            },
            peer: Arc::clone(&self.peer),
            worker: self.worker,
            up_since: self.up_since,
            draining: self.peer_draining,
            suspect: self.suspect,
            suspected: self.suspected,
            rtt_us: self.health.rtt_us(),
            jitter_us: self.health.jitter_us(),
            loss_ppm: self.health.loss_ppm(),
            peer_loss_ppm: self.peer_loss_ppm,
            arrivals: self.arrivals(),
            ups: self.ups,
            datagrams_sent: self.datagrams_sent,
            datagrams_received: self.datagrams_received,
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
            drops: self.drops,
        }
    }
}
