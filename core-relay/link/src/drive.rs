//! What a connection does to its link: events, timers, datagrams, heartbeats, redial.

use std::time::Instant;

use bytes::Bytes;
use quinn_proto::{ConnectionHandle, EndpointEvent, Event};
use wire::record::{DATAGRAM_HEADER_LEN, DatagramKind, open_datagram};

use crate::connection::{LinkConnection, Stage};
use crate::heartbeat::{Heartbeat, pong};
use crate::link::LinkId;
use crate::links::{LinkEvent, Links};
use crate::reason::{CloseCode, DownReason, LinkDrop};
use crate::transport;

/// Datagrams that wait for [`Links::next_datagram`] at most.
const INBOX_MAX: usize = 8192;
/// Events that wait for [`Links::next_event`] at most; the oldest gives way.
const EVENTS_MAX: usize = 1024;

/// The connection itself.
impl Links {
    /// Handles what a connection tells and what it wants of the endpoint, to be called after every change to it.
    /// Returns whether there was anything, so that it may have something to send.
    pub(crate) fn drive(&mut self, index: usize, now: Instant) -> bool {
        let mut changed = false;
        // What happened before what the endpoint must know: the last word to the endpoint forgets the connection.
        while let Some(connection) = self.connection(index) {
            let Some(event) = connection.quic.poll() else {
                break;
            };
            changed = true;
            match event {
                Event::Connected => self.connected(index, now),
                Event::ConnectionLost { reason } => {
                    self.connection_lost(index, DownReason::of(&reason), now);
                }
                Event::HandshakeDataReady
                | Event::Stream(_)
                | Event::DatagramReceived
                | Event::DatagramsUnblocked => {}
            }
        }
        while let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut) {
            let Some(event) = connection.quic.poll_endpoint_events() else {
                connection.deadline = connection.quic.poll_timeout();
                break;
            };
            changed = true;
            let drained = event.is_drained();
            let answer = self.endpoint.handle_event(ConnectionHandle(index), event);
            if let Some(event) = answer {
                connection.quic.handle_event(event);
            }
            if drained {
                self.drop_connection(index, now);
            }
        }
        changed
    }

    pub(crate) fn enqueue(&mut self, index: usize) {
        if let Some(connection) = self.connections.get_mut(index).and_then(Option::as_mut)
            && !connection.queued
        {
            connection.queued = true;
            self.ready.push_back(index);
        }
    }

    pub(crate) fn add_connection(&mut self, index: usize, connection: LinkConnection) {
        if self.connections.len() <= index {
            self.connections.resize_with(index + 1, || None);
        }
        if let Some(slot) = self.connections.get_mut(index) {
            *slot = Some(Box::new(connection));
        }
    }

    /// Closes a connection with a reason for the peer, and detaches it from its link without touching the link.
    pub(crate) fn close_connection(&mut self, index: usize, code: CloseCode, now: Instant) {
        if let Some(connection) = self.connection(index)
            && connection.stage != Stage::Closed
        {
            connection.close(code, now);
            connection.deadline = connection.quic.poll_timeout();
            self.enqueue(index);
        }
    }

    /// Forgets a connection without a word.
    pub(crate) fn abandon_connection(&mut self, index: usize, now: Instant) {
        self.endpoint
            .handle_event(ConnectionHandle(index), EndpointEvent::drained());
        self.drop_connection(index, now);
    }

    fn drop_connection(&mut self, index: usize, now: Instant) {
        self.ready.retain(|ready| *ready != index);
        if let Some(link) = self.connection(index).and_then(|own| own.link.take()) {
            self.parted(link, index, DownReason::Closed, now);
        }
        if let Some(place) = self.connections.get_mut(index) {
            *place = None;
        }
    }

    fn connected(&mut self, index: usize, now: Instant) {
        let Some(connection) = self
            .connections
            .get_mut(index)
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        let recheck = connection.recheck;
        let Some(link) = connection.link else {
            return self.identify(index, now);
        };
        if recheck && let Some(reason) = self.distrust(index) {
            self.close_connection(index, CloseCode::Untrusted, now);
            return self.parted(link, index, reason, now);
        }
        let Some(connection) = self
            .connections
            .get_mut(index)
            .and_then(Option::as_deref_mut)
        else {
            return;
        };
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        if state.renewal == Some(index) {
            connection.stage = Stage::Renewing;
        } else {
            connection.stage = Stage::Bound;
            state.attach(index, connection, &self.config.link, now);
        }
        self.send_ping(link, now);
    }

    fn connection_lost(&mut self, index: usize, reason: DownReason, now: Instant) {
        let Some(connection) = self.connection(index) else {
            return;
        };
        let half_open = connection.is_half_open();
        let from = connection.quic.remote_address();
        connection.stage = Stage::Closed;
        connection.retire_at = None;
        match connection.link.take() {
            Some(link) => self.parted(link, index, reason, now),
            None if half_open => self.refuse(from, reason),
            None => {}
        }
    }

    pub(crate) fn connection_timeout(&mut self, index: usize, now: Instant) {
        let attempt_max = transport::attempt_max(&self.config.link);
        let Some(connection) = self.connection(index) else {
            return;
        };
        if connection.is_half_open() && now >= connection.opened + attempt_max {
            return self.attempt_expired(index, now);
        }
        if connection.retire_at.is_some_and(|at| now >= at) {
            connection.retire_at = None;
            return self.close_connection(index, CloseCode::Retired, now);
        }
        if connection.deadline.is_some_and(|deadline| now >= deadline) {
            connection.quic.handle_timeout(now);
            self.drive(index, now);
            self.enqueue(index);
        }
    }

    fn attempt_expired(&mut self, index: usize, now: Instant) {
        let Some(connection) = self.connection(index) else {
            return;
        };
        let from = connection.quic.remote_address();
        let unbound = connection.stage != Stage::Handshaking;
        let reason = connection.expired();
        match connection.link.take() {
            Some(link) => self.parted(link, index, reason, now),
            None => self.refuse(from, reason),
        }
        if unbound {
            self.close_connection(index, CloseCode::NoHeartbeat, now);
        } else {
            self.abandon_connection(index, now);
        }
    }
}

/// Datagrams.
impl Links {
    /// Takes what quinn received before anything can push it out of quinn's buffer.
    pub(crate) fn take_datagrams(&mut self, index: usize, now: Instant) {
        while let Some(datagram) = self
            .connection(index)
            .and_then(|connection| connection.quic.datagrams().recv())
        {
            self.take_datagram(index, &datagram, now);
        }
    }

    fn take_datagram(&mut self, index: usize, datagram: &Bytes, now: Instant) {
        let Ok((kind, sequence, body)) = open_datagram(datagram) else {
            self.drops.add(LinkDrop::Malformed, 1);
            return;
        };
        let bound = self
            .connection(index)
            .and_then(|connection| connection.link);
        let link = match (bound, kind) {
            (Some(link), _) => Some(link),
            (None, DatagramKind::Ping) => {
                Heartbeat::parse(body).and_then(|heartbeat| self.bind(index, &heartbeat, now))
            }
            (None, DatagramKind::Pong | DatagramKind::Records) => None,
        };
        let Some(link) = link else {
            self.drops.add(LinkDrop::Unbound, 1);
            return;
        };
        if let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) {
            state.health.heard(sequence, now);
            if state.is_judged_otherwise() {
                self.judge(link, now);
            }
        }
        match kind {
            DatagramKind::Records => self.take_records(link, datagram.slice_ref(body)),
            DatagramKind::Ping => self.take_ping(index, link, body, now),
            DatagramKind::Pong => self.take_pong(index, link, body, now),
        }
    }

    fn take_records(&mut self, link: usize, body: Bytes) {
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        state.datagrams_received += 1;
        state.bytes_received += u64::try_from(body.len()).unwrap_or_default();
        if self.inbox.len() >= INBOX_MAX {
            state.drops.add(LinkDrop::InboxFull, 1);
            return;
        }
        if let Some(id) = self.id(link) {
            self.inbox.push_back((id, body));
        }
    }

    fn take_ping(&mut self, index: usize, link: usize, body: &[u8], now: Instant) {
        let late_min = self.late_min();
        let Some(heartbeat) = Heartbeat::parse(body) else {
            self.drops.add(LinkDrop::Malformed, 1);
            return;
        };
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        let changed = state.peer_draining != heartbeat.draining;
        state.peer_draining = heartbeat.draining;
        state.peer_loss_ppm = heartbeat.loss_ppm;
        let overdue = now.saturating_duration_since(state.next_ping);
        state.health.told(heartbeat.deaf && overdue < late_min, now);
        let answer = pong(state.next_sequence(), body);
        let up = state.up_since.is_some();
        if let Some(connection) = self.connection(index) {
            connection.send_heartbeat(answer);
        }
        self.judge(link, now);
        if let Some(link) = self.id(link).filter(|_| changed && up) {
            self.event(LinkEvent::Draining {
                link,
                draining: heartbeat.draining,
            });
        }
    }

    fn take_pong(&mut self, index: usize, link: usize, body: &[u8], now: Instant) {
        let now_us = self.now_us(now);
        let Some(heartbeat) = Heartbeat::parse(body) else {
            self.drops.add(LinkDrop::Malformed, 1);
            return;
        };
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        let full = DATAGRAM_HEADER_LEN + body.len() >= state.datagram_len_max();
        let counts = state.health.echoed(heartbeat.sent_us, now_us, full, now);
        if !(counts && full) {
            return;
        }
        if state.renewal == Some(index) {
            self.renewed(link, index, now);
        } else if state.up_since.is_none() {
            self.link_up(link, now);
        }
    }

    pub(crate) fn send_ping(&mut self, link: usize, now: Instant) {
        let sent_us = self.now_us(now);
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        let Some(index) = state.connection else {
            return;
        };
        state.health.tick();
        state.next_ping =
            now + std::time::Duration::from_millis(self.config.link.heartbeat_ms.into());
        let heartbeat = Heartbeat {
            draining: self.draining,
            renews: false,
            deaf: state.health.is_silent(),
            worker: self.config.worker,
            loss_ppm: state.health.loss_ppm(),
            sent_us,
        };
        state.says_deaf = heartbeat.deaf;
        let len = state.next_ping_len();
        let ping = heartbeat.ping(state.next_sequence(), len);
        let renewal = state.renewal;
        if let Some(connection) = self.connection(index) {
            connection.send_heartbeat(ping);
            self.enqueue(index);
        }
        if let Some(renewal) = renewal {
            self.send_renewal(link, renewal, heartbeat);
        }
    }

    /// A Ping of full size on the connection that is to take over.
    fn send_renewal(&mut self, link: usize, index: usize, heartbeat: Heartbeat) {
        let ready = self
            .connection(index)
            .is_some_and(|own| own.stage == Stage::Renewing);
        let state = self.links.get_mut(link).and_then(Option::as_mut);
        let Some(state) = state.filter(|_| ready) else {
            return;
        };
        let renews = Heartbeat {
            renews: true,
            ..heartbeat
        };
        let ping = renews.ping(state.next_sequence(), state.datagram_len_max());
        if let Some(connection) = self.connection(index) {
            connection.send_heartbeat(ping);
            self.enqueue(index);
        }
    }

    fn now_us(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.epoch).as_micros()).unwrap_or(u64::MAX)
    }
}

/// The link.
impl Links {
    pub(crate) fn link_up(&mut self, index: usize, now: Instant) {
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        state.came_up(now);
        let (peer, worker, draining) = (state.peer.clone(), state.worker, state.peer_draining);
        if let Some(link) = self.id(index) {
            self.event(LinkEvent::Up { link, peer, worker });
            if draining {
                self.event(LinkEvent::Draining { link, draining });
            }
        }
        self.renew_again(index, now);
    }

    /// The link lost its connection, or an attempt to make one failed.
    pub(crate) fn link_lost(&mut self, index: usize, reason: DownReason, now: Instant) {
        let closed = self.closed;
        let Some(id) = self.id(index) else { return };
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        if state.connection.is_none() {
            return;
        }
        let reason = state.refine(reason);
        let serving = state.connection;
        let unsent = serving
            .and_then(|serving| self.connection(serving))
            .map_or(0, LinkConnection::unsent_records);
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let up_since = state.detach(unsent);
        self.cancel_renewal(index, now);
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let (peer, worker) = (state.peer.clone(), state.worker);
        let dials = state.dial.is_some();
        if let Some(dial) = state.dial.as_mut().filter(|_| !closed) {
            if reason == DownReason::Duplicate {
                dial.redial.duplicate(now, &mut self.jitter);
            } else {
                dial.redial.lost(up_since, now, &mut self.jitter);
            }
        }
        if up_since.is_some() {
            self.downs.add(reason);
            self.event(LinkEvent::Down {
                link: id,
                peer,
                worker,
                reason,
            });
        } else if dials {
            self.refused.add(reason);
            self.event(LinkEvent::DialFailed { link: id, reason });
        }
    }

    pub(crate) fn link_timeout(&mut self, index: usize, now: Instant) {
        let attempt_max = transport::attempt_max(&self.config.link);
        let Some(state) = self.link(index) else {
            return;
        };
        let Some(connection) = state.connection else {
            let due = state.dial.as_ref().and_then(|dial| dial.redial.at());
            if due.is_some_and(|due| now >= due) && !self.closed {
                self.dial(index, now);
            }
            return;
        };
        if state.datagram_len_max() == 0 {
            return;
        }
        let stuck = state.up_since.is_none() && now >= state.attached_at + attempt_max;
        let verdict = stuck.then_some(DownReason::NoEcho);
        if let Some(reason) = state.health.verdict(now).or(verdict) {
            let code = if reason == DownReason::Mtu {
                CloseCode::Mtu
            } else {
                CloseCode::Deaf
            };
            self.close_connection(connection, code, now);
            self.link_lost(index, reason, now);
            return;
        }
        let renews = state.renew_at.is_some_and(|at| now >= at);
        self.listen(index, now);
        let Some(state) = self.link(index) else {
            return;
        };
        if now >= state.next_ping {
            self.send_ping(index, now);
        }
        if renews {
            self.renew(index, now);
        }
    }

    fn dial(&mut self, index: usize, now: Instant) {
        let config = transport::client(&self.tls, &self.config.link, self.config.congestion);
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let Some(dial) = state.dial.as_mut() else {
            return;
        };
        dial.redial.dialing();
        match self
            .endpoint
            .connect(now, config, dial.address, &state.peer)
        {
            Ok((handle, quic)) => {
                state.dialing(handle.0);
                self.add_connection(handle.0, LinkConnection::new(quic, Some(index), now));
                self.drive(handle.0, now);
                self.enqueue(handle.0);
            }
            Err(error) => {
                tracing::debug!(%error, peer = %state.peer, "cannot dial");
                dial.redial.lost(None, now, &mut self.jitter);
                self.refused.add(DownReason::Protocol);
            }
        }
    }

    pub(crate) fn id(&self, index: usize) -> Option<LinkId> {
        Some(LinkId {
            index: u32::try_from(index).ok()?,
            generation: self.link(index)?.generation,
        })
    }

    pub(crate) fn event(&mut self, event: LinkEvent) {
        if self.events.len() >= EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::Congestion;
    use crate::links::LinksConfig;
    use crate::redial::Jitter;
    use crate::tls::Tls;
    use rustls_pki_types::PrivateKeyDer;
    use topology::Link;

    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary epoch for an invented clock"
    )]
    fn links() -> (Links, Instant) {
        let key = rcgen::generate_simple_self_signed(vec!["relay-a".to_owned()]).unwrap();
        let der = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let chain = vec![key.cert.der().clone()];
        let tls = Tls::from_der(chain.clone(), chain, der, || 0).unwrap();
        let config = LinksConfig {
            worker: 0,
            link: Link::default(),
            seed: [1; 32],
            congestion: Congestion::default(),
        };
        let now = Instant::now();
        (Links::acceptor(config, tls, &[], now), now)
    }

    /// Whatever an authenticated peer puts into a datagram is refused or taken, and counted.
    #[test]
    fn any_datagram_is_refused_or_taken() {
        let (mut links, now) = links();
        let id = links.add_link("pop-a".into(), 0, None, now);
        let link = usize::try_from(id.index).unwrap();
        let mut jitter = Jitter::new(0x5eed);
        for round in 0..200_000u32 {
            let len = usize::try_from(jitter.next() % 64).unwrap();
            let mut datagram: Vec<u8> = (0..len).map(|_| jitter.next().to_be_bytes()[7]).collect();
            if let Some(first) = datagram.first_mut().filter(|_| round % 8 != 0) {
                *first = wire::record::MAGIC;
            }
            if let Some(kind) = datagram.get_mut(1).filter(|_| round % 4 != 0) {
                *kind %= 4;
            }
            let datagram = Bytes::from(datagram);
            links.take_datagram(0, &datagram, now);
            if let Ok((kind, sequence, body)) = open_datagram(&datagram) {
                if let Some(state) = links.links.get_mut(link).and_then(Option::as_mut) {
                    state.health.heard(sequence, now);
                }
                match kind {
                    DatagramKind::Records => links.take_records(link, datagram.slice_ref(body)),
                    DatagramKind::Ping => links.take_ping(0, link, body, now),
                    DatagramKind::Pong => links.take_pong(0, link, body, now),
                }
            }
        }
        assert!(links.inbox.len() <= INBOX_MAX && links.events.len() <= EVENTS_MAX);
        for reason in [LinkDrop::Malformed, LinkDrop::Unbound, LinkDrop::InboxFull] {
            assert!(links.drops().count(reason) > 0, "{reason:?}");
        }
    }
}
