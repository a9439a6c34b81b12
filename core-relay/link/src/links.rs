//! All links of one worker: the endpoint, its connections, and the verbs of the event loop.
//!
//! A worker that dials ([`Links::set_targets`]) and one that accepts ([`Links::set_allowed`]) use the same type, and
//! one endpoint may do both. What a connection does beneath is in `drive.rs`, accepting in `accept.rs`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use quinn_proto::{DatagramEvent, Endpoint};
use topology::Link;
use wire::record::RecordHeader;

use crate::congestion::Congestion;
use crate::connection::LinkConnection;
use crate::link::{Dial, LinkId, LinkState, LinkStats};
use crate::reason::{CloseCode, DownCounts, DownReason, LinkDrop, LinkDrops};
use crate::redial::{Jitter, Redial};
use crate::tls::Tls;
use crate::transport;

/// What a worker's links need to know.
#[derive(Clone, Debug)]
pub struct LinksConfig {
    /// Our worker thread, told to the peer in heartbeats.
    pub worker: u8,
    /// `network.link` of the topology.
    pub link: Link,
    /// Seed of everything random that this crate chooses; fresh for each process and worker.
    pub seed: [u8; 32],
    /// The congestion controller; the default in every program.
    pub congestion: Congestion,
}

/// A peer we dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Node name; the identity its certificate must have.
    pub name: String,
    /// Worker thread of the peer that listens at `address`.
    pub worker: u8,
    /// Where it listens.
    pub address: SocketAddr,
}

/// A peer we accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Node name; the identity its certificate must have.
    pub name: String,
    /// How many workers it has; one link each.
    pub workers: u8,
}

/// A UDP payload to send, or several of `segment` bytes each (the last may be shorter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// Bytes of the buffer in use.
    pub len: usize,
    /// Bytes of one UDP payload when there are several.
    pub segment: Option<usize>,
}

/// What happened to a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkEvent {
    /// Records may be sent.
    Up {
        /// The link.
        link: LinkId,
        /// Node name of the peer.
        peer: Arc<str>,
        /// Worker thread of the peer.
        worker: u8,
    },
    /// Records can no longer be sent. A link that we dial is dialed again.
    Down {
        /// The link.
        link: LinkId,
        /// Node name of the peer.
        peer: Arc<str>,
        /// Worker thread of the peer.
        worker: u8,
        /// Why.
        reason: DownReason,
    },
    /// The peer began or ceased to drain.
    Draining {
        /// The link.
        link: LinkId,
        /// Whether it drains.
        draining: bool,
    },
    /// A link that is up became suspect, or is so no longer; what is down is not suspect.
    Suspect {
        /// The link.
        link: LinkId,
        /// Whether it is.
        suspect: bool,
    },
    /// An attempt to dial failed; the next one follows.
    DialFailed {
        /// The link.
        link: LinkId,
        /// Why.
        reason: DownReason,
    },
    /// Somebody tried to connect and was refused.
    Refused {
        /// Where from.
        from: SocketAddr,
        /// Why.
        reason: DownReason,
    },
}

/// Stateless answers that wait for [`Links::poll_transmit`] at most.
const ANSWERS_MAX: usize = 32;

/// All links of one worker.
pub struct Links {
    pub(crate) config: LinksConfig,
    pub(crate) tls: Tls,
    pub(crate) endpoint: Endpoint,
    /// By the number in quinn's handle.
    pub(crate) connections: Vec<Option<Box<LinkConnection>>>,
    pub(crate) links: Vec<Option<LinkState>>,
    next_generation: u32,
    pub(crate) allowed: Vec<(Arc<str>, u8)>,
    pub(crate) epoch: Instant,
    pub(crate) jitter: Jitter,
    pub(crate) draining: bool,
    pub(crate) closed: bool,
    pub(crate) inbox: VecDeque<(LinkId, Bytes)>,
    pub(crate) events: VecDeque<LinkEvent>,
    answers: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Connections that may have something to send.
    pub(crate) ready: VecDeque<usize>,
    /// Links with an open datagram.
    opened: Vec<u32>,
    /// The queue of a link has become half full.
    pressed: bool,
    pub(crate) scratch: Vec<u8>,
    pub(crate) drops: LinkDrops,
    pub(crate) refused: DownCounts,
    pub(crate) downs: DownCounts,
}

impl Links {
    /// Links that dial `targets`.
    #[must_use]
    pub fn dialer(config: LinksConfig, tls: Tls, targets: &[Target], now: Instant) -> Self {
        let mut links = Self::new(config, tls, now);
        links.set_targets(targets, now);
        links
    }

    /// Links that accept `allowed`.
    #[must_use]
    pub fn acceptor(config: LinksConfig, tls: Tls, allowed: &[Allowed], now: Instant) -> Self {
        let mut links = Self::new(config, tls, now);
        links.set_allowed(allowed, now);
        links
    }

    fn new(config: LinksConfig, tls: Tls, now: Instant) -> Self {
        let endpoint = transport::endpoint(&tls, &config.link, config.worker, config.seed);
        let seed = config
            .seed
            .first_chunk::<8>()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes));
        Self {
            endpoint: Endpoint::new(endpoint, None, false, None),
            config,
            tls,
            connections: Vec::new(),
            links: Vec::new(),
            next_generation: 0,
            allowed: Vec::new(),
            epoch: now,
            jitter: Jitter::new(seed),
            draining: false,
            closed: false,
            inbox: VecDeque::new(),
            events: VecDeque::new(),
            answers: VecDeque::new(),
            ready: VecDeque::new(),
            opened: Vec::new(),
            pressed: false,
            scratch: Vec::new(),
            drops: LinkDrops::default(),
            refused: DownCounts::default(),
            downs: DownCounts::default(),
        }
    }

    /// Whom to dial. Links of targets that stay are left alone; a target that is gone is closed.
    /// Returns the links in the order of `targets`.
    pub fn set_targets(&mut self, targets: &[Target], now: Instant) -> Vec<LinkId> {
        for index in 0..self.links.len() {
            let gone = self.link(index).is_some_and(|link| {
                link.dial.as_ref().is_some_and(|dial| {
                    !targets.iter().any(|target| {
                        *target.name == *link.peer
                            && target.worker == link.worker
                            && target.address == dial.address
                    })
                })
            });
            if gone {
                self.remove_link(index, now);
            }
        }
        targets
            .iter()
            .map(|target| self.target_link(target, now))
            .collect()
    }

    fn target_link(&mut self, target: &Target, now: Instant) -> LinkId {
        let existing = self.find_link(|link| {
            link.dial.is_some() && *link.peer == *target.name && link.worker == target.worker
        });
        if let Some(id) = existing {
            return id;
        }
        let dial = Dial {
            address: target.address,
            redial: Redial::first(now, &mut self.jitter),
        };
        self.add_link(
            Arc::from(target.name.as_str()),
            target.worker,
            Some(dial),
            now,
        )
    }

    pub(crate) fn find_link(&self, wanted: impl Fn(&LinkState) -> bool) -> Option<LinkId> {
        self.links.iter().zip(0u32..).find_map(|(link, index)| {
            let link = link.as_ref().filter(|link| wanted(link))?;
            Some(LinkId {
                index,
                generation: link.generation,
            })
        })
    }

    pub(crate) fn add_link(
        &mut self,
        peer: Arc<str>,
        worker: u8,
        dial: Option<Dial>,
        now: Instant,
    ) -> LinkId {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let link = LinkState::new(peer, worker, generation, dial, &self.config.link, now);
        let free = self.links.iter().position(Option::is_none);
        let index = free.unwrap_or(self.links.len());
        match self.links.get_mut(index) {
            Some(slot) => *slot = Some(link),
            None => self.links.push(Some(link)),
        }
        LinkId {
            index: u32::try_from(index).unwrap_or(u32::MAX),
            generation,
        }
    }

    pub(crate) fn remove_link(&mut self, index: usize, now: Instant) {
        if let Some(connection) = self.link(index).and_then(|link| link.connection) {
            self.close_connection(connection, CloseCode::Removed, now);
        }
        self.link_lost(index, DownReason::Removed, now);
        if let Some(slot) = self.links.get_mut(index) {
            if let Some(link) = slot {
                self.drops.add_all(&link.drops);
            }
            *slot = None;
        }
    }

    /// Tells every peer that we drain (or no longer do). Links stay up.
    pub fn drain(&mut self, draining: bool, now: Instant) {
        self.draining = draining;
        for link in self.links.iter_mut().flatten() {
            link.next_ping = now;
        }
        self.handle_timeout(now);
    }

    /// Closes every link and makes no further one. What remains to be sent says so to the peers.
    pub fn close(&mut self, now: Instant) {
        self.closed = true;
        self.refresh_server_config();
        for index in 0..self.connections.len() {
            self.close_connection(index, CloseCode::Stopping, now);
        }
        for index in 0..self.links.len() {
            self.link_lost(index, DownReason::Closed, now);
        }
    }

    /// A UDP payload arrived. An owned buffer is taken as it is, a slice is copied.
    pub fn handle_packet(&mut self, from: SocketAddr, packet: impl Into<BytesMut>, now: Instant) {
        let packet = packet.into();
        let mut answer = std::mem::take(&mut self.scratch);
        answer.clear();
        match self
            .endpoint
            .handle(now, from, None, None, packet, &mut answer)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connection(handle.0) {
                    connection.quic.handle_event(event);
                    self.take_datagrams(handle.0, now);
                    self.drive(handle.0, now);
                    self.enqueue(handle.0);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.handle_incoming(incoming, now, &mut answer);
            }
            Some(DatagramEvent::Response(transmit)) => {
                self.answer(transmit.destination, &answer, transmit.size);
            }
            None => {}
        }
        self.scratch = answer;
    }

    /// The clock reached what [`Self::poll_timeout`] said, or later.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.excuse_standstill(now);
        for index in 0..self.connections.len() {
            self.connection_timeout(index, now);
        }
        for index in 0..self.links.len() {
            self.link_timeout(index, now);
        }
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let attempt_max = transport::attempt_max(&self.config.link);
        let connections = self.connections.iter().flatten().filter_map(|connection| {
            let attempt = connection
                .is_half_open()
                .then(|| connection.opened + attempt_max);
            [connection.deadline, attempt, connection.retire_at]
                .into_iter()
                .flatten()
                .min()
        });
        let links = self.links.iter().flatten().filter_map(|link| {
            if link.connection.is_none() {
                return link.dial.as_ref()?.redial.at();
            }
            // A connection that is still being made has its own deadline.
            let renewal = link.renew_at.into_iter();
            let known =
                (link.datagram_len_max() > 0).then(|| link.next_ping.min(link.health.deadline()));
            known.map(|known| renewal.fold(known, Instant::min))
        });
        connections.chain(links).min()
    }

    /// Packs one record into the link's open datagram; a record that does not fit is split.
    /// The datagram leaves when it is full or at [`Self::flush`].
    ///
    /// # Errors
    /// [`LinkDrop::NotUp`], [`LinkDrop::TooLarge`]; either is counted.
    pub fn put_record(
        &mut self,
        id: LinkId,
        header: &RecordHeader,
        payload: &[u8],
    ) -> Result<(), LinkDrop> {
        let Some(link) = self.link_of(id) else {
            self.drops.add(LinkDrop::NotUp, 1);
            return Err(LinkDrop::NotUp);
        };
        let put = if link.up_since.is_some() {
            link.put(header, payload)
        } else {
            Err(LinkDrop::NotUp)
        };
        match put {
            Ok(()) => {
                self.pressed |= link.becomes_pressed();
                if !self.opened.contains(&id.index) {
                    self.opened.push(id.index);
                }
            }
            Err(reason) => link.drops.add(reason, 1),
        }
        put
    }

    /// Ends a batch: every open datagram is ready to be sent.
    pub fn flush(&mut self) {
        while let Some(index) = self.opened.pop() {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let Some(link) = self.links.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            link.seal();
            if let Some(connection) = link.connection {
                self.enqueue(connection);
            }
        }
    }

    /// Whether a link has become half full of what may leave at once: before more is put, [`Self::flush`] and send. Once for each time
    /// that it becomes so; what a link still holds then waits for its rate.
    #[must_use]
    pub const fn wants_sending(&self) -> bool {
        self.pressed
    }

    /// Bytes of records that fit into one datagram of the link; 0 while it is down.
    #[must_use]
    pub fn room(&self, id: LinkId) -> usize {
        self.link_at(id)
            .filter(|link| link.up_since.is_some())
            .map_or(0, LinkState::room)
    }

    /// The body of the next datagram of records, for [`wire::record::Records`].
    pub fn next_datagram(&mut self) -> Option<(LinkId, Bytes)> {
        self.inbox.pop_front()
    }

    /// What happened since the last call.
    pub fn next_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front()
    }

    /// The next UDP payloads to send, in `buffer`, which is emptied first.
    pub fn poll_transmit(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<Transmit> {
        buffer.clear();
        self.pressed = false;
        if let Some((to, answer)) = self.answers.pop_front() {
            buffer.extend_from_slice(&answer);
            return Some(Transmit {
                to,
                len: answer.len(),
                segment: None,
            });
        }
        while let Some(index) = self.ready.front().copied() {
            if let Some(transmit) = self.transmit_connection(index, now, buffer) {
                return Some(transmit);
            }
            self.ready.pop_front();
            if let Some(connection) = self.connection(index) {
                connection.queued = false;
            }
            if self.drive(index, now) {
                self.enqueue(index);
            }
        }
        None
    }

    fn transmit_connection(
        &mut self,
        index: usize,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let connection = self.connections.get_mut(index)?.as_mut()?;
        let mut link = connection
            .link
            .and_then(|link| self.links.get_mut(link))
            .and_then(Option::as_mut);
        if let Some(link) = link.as_mut()
            && link.connection == Some(index)
            && link.wants_to_send()
        {
            link.pump(connection);
        }
        let transmit = connection
            .quic
            .poll_transmit(now, transport::SEGMENTS_MAX, buffer)?;
        Some(Transmit {
            to: transmit.destination,
            len: transmit.size,
            segment: transmit.segment_size,
        })
    }

    /// What a link is like; `None` when the topology no longer names its peer.
    #[must_use]
    pub fn stats(&self, id: LinkId) -> Option<LinkStats> {
        self.link_at(id).map(|link| link.stats(id.index))
    }

    /// Every link, up or not.
    pub fn all_stats(&self) -> impl Iterator<Item = LinkStats> + '_ {
        self.links
            .iter()
            .zip(0u32..)
            .filter_map(|(link, index)| Some(link.as_ref()?.stats(index)))
    }

    /// Drops of this worker, by reason, all links together.
    #[must_use]
    pub fn drops(&self) -> LinkDrops {
        let mut drops = self.drops;
        for link in self.links.iter().flatten() {
            drops.add_all(&link.drops);
        }
        drops
    }

    /// Connections there are, those being made and closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.iter().flatten().count()
    }

    /// How many links went down, by reason.
    #[must_use]
    pub const fn downs(&self) -> &DownCounts {
        &self.downs
    }

    /// How many attempts to connect were refused or failed, ours and others', by reason.
    #[must_use]
    pub const fn refused(&self) -> &DownCounts {
        &self.refused
    }
}

impl Links {
    pub(crate) fn connection(&mut self, index: usize) -> Option<&mut LinkConnection> {
        self.connections.get_mut(index)?.as_deref_mut()
    }

    pub(crate) fn link(&self, index: usize) -> Option<&LinkState> {
        self.links.get(index)?.as_ref()
    }

    pub(crate) fn link_at(&self, id: LinkId) -> Option<&LinkState> {
        self.link(usize::try_from(id.index).ok()?)
            .filter(|link| link.generation == id.generation)
    }

    fn link_of(&mut self, id: LinkId) -> Option<&mut LinkState> {
        self.links
            .get_mut(usize::try_from(id.index).ok()?)?
            .as_mut()
            .filter(|link| link.generation == id.generation)
    }

    /// Queues a stateless answer; one too many is dropped, as the network might have done.
    pub(crate) fn answer(&mut self, to: SocketAddr, buffer: &[u8], len: usize) {
        if self.answers.len() >= ANSWERS_MAX {
            self.drops.add(LinkDrop::AnswersFull, 1);
        } else if let Some(answer) = buffer.get(..len) {
            self.answers.push_back((to, answer.to_vec()));
        }
    }
}
