//! Accepting: who may connect, how many unfinished attempts there may be, and which link a connection serves.
//!
//! Unfinished attempts are bounded, and a stranger can make us hold no more than that. From half the bound on, the
//! address must prove itself first (Retry, RFC 9000 §8.1.2), which costs no state: a flood of forged Initials then
//! cannot keep PoPs out.

use std::sync::Arc;
use std::time::Instant;

use quinn_proto::Incoming;
use rustls_pki_types::CertificateDer;

use crate::connection::{LinkConnection, Stage};
use crate::heartbeat::Heartbeat;
use crate::links::{Allowed, LinkEvent, Links, LinksConfig};
use crate::reason::{CloseCode, DownReason, LinkDrop};
use crate::tls;
use crate::transport;

/// Unfinished attempts beyond one for each link that may come up.
const HALF_OPEN_SPARE: usize = 64;

impl Links {
    /// Whom to accept. Links of names that stay are left alone; the links of others are closed.
    pub fn set_allowed(&mut self, allowed: &[Allowed], now: Instant) {
        self.allowed = allowed
            .iter()
            .map(|peer| (Arc::from(peer.name.to_ascii_lowercase()), peer.workers))
            .collect();
        for index in 0..self.links.len() {
            let gone = self.link(index).is_some_and(|link| {
                link.dial.is_none() && !self.is_allowed(&link.peer, link.worker)
            });
            if gone {
                self.remove_link(index, now);
            }
        }
        self.refresh_server_config();
    }

    pub(crate) fn refresh_server_config(&mut self) {
        let accepts = !self.closed && !self.allowed.is_empty();
        let LinksConfig {
            link,
            worker,
            congestion,
            ..
        } = &self.config;
        let config = accepts.then(|| transport::server(&self.tls, link, *congestion, *worker));
        self.endpoint.set_server_config(config);
    }

    fn is_allowed(&self, name: &str, worker: u8) -> bool {
        self.allowed
            .iter()
            .any(|(allowed, workers)| **allowed == *name && worker < *workers)
    }

    fn half_open_max(&self) -> usize {
        let links: usize = self
            .allowed
            .iter()
            .map(|(_, workers)| usize::from(*workers))
            .sum();
        HALF_OPEN_SPARE + links
    }

    pub(crate) fn handle_incoming(
        &mut self,
        incoming: Incoming,
        now: Instant,
        answer: &mut Vec<u8>,
    ) {
        let half_open = self
            .connections
            .iter()
            .flatten()
            .filter(|connection| connection.is_half_open())
            .count();
        let half_open_max = self.half_open_max();
        answer.clear();
        if half_open >= half_open_max || !self.make_room(now) {
            self.drops.add(LinkDrop::HalfOpenFull, 1);
            self.endpoint.ignore(incoming);
            return;
        }
        let to = incoming.remote_address();
        if half_open >= half_open_max / 2 && incoming.may_retry() {
            // Only an address that has proven itself may not be asked again, and `may_retry` excludes it.
            if let Ok(transmit) = self.endpoint.retry(incoming, answer) {
                self.answer(to, answer, transmit.size);
            }
            return;
        }
        match self.endpoint.accept(incoming, now, answer, None) {
            Ok((handle, quic)) => {
                self.add_connection(handle.0, LinkConnection::new(quic, None, now));
                self.drive(handle.0, now);
                self.enqueue(handle.0);
            }
            Err(error) => {
                self.refuse(to, DownReason::of(&error.cause));
                if let Some(transmit) = error.response {
                    self.answer(to, answer, transmit.size);
                }
            }
        }
    }

    /// Keeps the number of connections bounded: two for each link (an older and a newer one) beside the unfinished ones.
    /// One that is closed and only lingers for its peer (RFC 9000 §10.2) gives way.
    fn make_room(&mut self, now: Instant) -> bool {
        let links = self.half_open_max() - HALF_OPEN_SPARE;
        if self.connections() < self.half_open_max() + 2 * links {
            return true;
        }
        let lingers = |connection: &Option<Box<LinkConnection>>| {
            connection
                .as_ref()
                .is_some_and(|connection| connection.stage == Stage::Closed)
        };
        let Some(index) = self.connections.iter().position(lingers) else {
            return false;
        };
        self.abandon_connection(index, now);
        true
    }

    pub(crate) fn refuse(&mut self, from: std::net::SocketAddr, reason: DownReason) {
        self.refused.add(reason);
        self.event(LinkEvent::Refused { from, reason });
    }

    /// An accepted connection finished its handshake: its certificate must name somebody we accept.
    pub(crate) fn identify(&mut self, index: usize, now: Instant) {
        let Some(connection) = self.connections.get(index).and_then(Option::as_ref) else {
            return;
        };
        let from = connection.quic.remote_address();
        if connection.recheck
            && let Some(reason) = self.distrust(index)
        {
            self.refuse(from, reason);
            return self.close_connection(index, CloseCode::Untrusted, now);
        }
        let name = connection
            .quic
            .crypto_session()
            .peer_identity()
            .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok())
            .and_then(|chain| {
                tls::first_allowed_name(chain.first()?, |name| self.allowed_name(name))
            });
        match (name, self.connection(index)) {
            (Some(peer), Some(connection)) => connection.stage = Stage::Unbound { peer },
            (None, _) | (_, None) => {
                self.refuse(from, DownReason::Identity);
                self.close_connection(index, CloseCode::Identity, now);
            }
        }
    }

    fn allowed_name(&self, name: &str) -> Option<Arc<str>> {
        self.allowed
            .iter()
            .find(|(allowed, _)| allowed.eq_ignore_ascii_case(name))
            .map(|(allowed, _)| Arc::clone(allowed))
    }

    /// The first heartbeat of an accepted connection told the worker: the connection serves that link from here on.
    /// A connection that served it before is of a process that is gone, so the newer one wins at once.
    /// A connection that renews one is of the same process, and the link stays up.
    pub(crate) fn bind(
        &mut self,
        index: usize,
        heartbeat: &Heartbeat,
        now: Instant,
    ) -> Option<usize> {
        let worker = heartbeat.worker;
        let connection = self.connection(index)?;
        let Stage::Unbound { peer } = &connection.stage else {
            return None;
        };
        let peer = Arc::clone(peer);
        let from = connection.quic.remote_address();
        if !self.is_allowed(&peer, worker) {
            self.refuse(from, DownReason::Identity);
            self.close_connection(index, CloseCode::Identity, now);
            return None;
        }
        let existing = self
            .find_link(|link| link.dial.is_none() && link.peer == peer && link.worker == worker);
        let id = existing.unwrap_or_else(|| self.add_link(peer, worker, None, now));
        let link = usize::try_from(id.index).ok()?;
        if let Some(older) = self.link(link)?.connection
            && heartbeat.renews
        {
            let connection = self.connection(index)?;
            connection.stage = Stage::Bound;
            connection.link = Some(link);
            self.links.get_mut(link)?.as_mut()?.connection = Some(index);
            self.retire(older, now);
            return Some(link);
        }
        if let Some(older) = self.link(link)?.connection {
            let older_from = self.connection(older)?.quic.remote_address();
            let state = self.links.get_mut(link)?.as_mut()?;
            let reason = state.replaced.note(older_from, from);
            self.close_connection(older, CloseCode::Replaced, now);
            self.link_lost(link, reason, now);
        }
        let connection = self.connections.get_mut(index)?.as_deref_mut()?;
        connection.stage = Stage::Bound;
        connection.link = Some(link);
        self.links
            .get_mut(link)?
            .as_mut()?
            .attach(index, connection, &self.config.link, now);
        self.link_up(link, now);
        Some(link)
    }
}
