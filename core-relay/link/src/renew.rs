//! Certificates that change while links stand: a link gets another connection before the one it has ends.
//!
//! ```text
//!  PoP                                    core relay
//!   |  --- handshake beside the old one -->|
//!   |  Ping that says `renews` ----------->|  takes the link over; the old connection is still read
//!   |<- Pong ------------------------------|
//!   takes it over; the old one is read for `down_after` more, then closed
//! ```
//!
//! Records use the old connection until the new one has taken over at that end, and numbers go on, so nothing is lost
//! or counted as lost. A renewal that fails leaves the old connection alone, unless its peer is no longer trusted, and is tried again
//! every [`RETRY_AFTER`]: the peer may learn of a CA later than we do. When certificates change once more between the Ping and the Pong,
//! the link is renewed again after the Pong.

use std::time::{Duration, Instant};

use quinn_proto::Side;
use rustls_pki_types::CertificateDer;

use crate::connection::{LinkConnection, Stage};
use crate::links::Links;
use crate::reason::{CloseCode, DownReason};
use crate::tls::Tls;
use crate::transport;

/// A renewal that failed is tried again after this: an operator who rotates a CA puts it in place within minutes.
const RETRY_AFTER: Duration = Duration::from_secs(5);

impl Links {
    /// Takes other certificates. Every link we dialed is renewed when ours, or the CAs we trust, are others than before;
    /// a link we accepted is closed when its peer would be refused by the CAs there are.
    pub fn reload(&mut self, tls: Tls, now: Instant) {
        let (other_ca, other_own) = (!self.tls.trusts_as(&tls), !self.tls.presents_as(&tls));
        self.tls = tls;
        self.refresh_server_config();
        if other_ca {
            self.close_untrusted(now);
        }
        if other_ca || other_own {
            for link in 0..self.links.len() {
                self.renew(link, now);
            }
        }
    }

    /// Dials once more for a link that is up; for one that is being dialed, once it is up.
    pub(crate) fn renew(&mut self, link: usize, now: Instant) {
        if let Some(state) = self.links.get_mut(link).and_then(Option::as_mut)
            && state.up_since.is_none()
        {
            state.renews_again = state.connection.is_some();
            return;
        }
        let config = transport::client(&self.tls, &self.config.link, self.config.congestion);
        let untrusted = self.link(link).and_then(|state| {
            state.dial.as_ref()?;
            state.up_since?;
            Some(self.distrust(state.connection?))
        });
        let Some(untrusted) = untrusted else { return };
        if self.renewal_may_serve(link) {
            if let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) {
                state.renews_again = true;
                state.renew_at = None;
                state.untrusted = untrusted;
            }
            return;
        }
        self.cancel_renewal(link, now);
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        let Some(dial) = state.dial.as_ref() else {
            return;
        };
        let dialed = self
            .endpoint
            .connect(now, config, dial.address, &state.peer);
        match dialed {
            Ok((handle, quic)) => {
                state.renewal = Some(handle.0);
                state.untrusted = untrusted;
                self.add_connection(handle.0, LinkConnection::new(quic, Some(link), now));
                self.drive(handle.0, now);
                self.enqueue(handle.0);
            }
            Err(error) => {
                tracing::debug!(%error, peer = %state.peer, "cannot renew");
                state.renew_at = Some(now + RETRY_AFTER);
            }
        }
    }

    /// Whether a renewal has got so far that the peer may send records on it already: closing it would lose them.
    fn renewal_may_serve(&self, link: usize) -> bool {
        let renewal = self.link(link).and_then(|state| state.renewal);
        renewal
            .and_then(|index| self.connections.get(index)?.as_ref())
            .is_some_and(|connection| connection.stage == Stage::Renewing)
    }

    /// Renews a link for which that had to wait.
    pub(crate) fn renew_again(&mut self, link: usize, now: Instant) {
        if let Some(state) = self.links.get_mut(link).and_then(Option::as_mut)
            && std::mem::take(&mut state.renews_again)
        {
            self.renew(link, now);
        }
    }

    /// The renewing connection carries a whole Ping and its Pong: the link is its own.
    pub(crate) fn renewed(&mut self, link: usize, index: usize, now: Instant) {
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        state.renewal = None;
        state.untrusted = None;
        let older = state.connection.replace(index);
        if let Some(connection) = self.connection(index) {
            connection.stage = Stage::Bound;
        }
        if let Some(older) = older {
            self.retire(older, now);
        }
        self.enqueue(index);
        self.renew_again(link, now);
    }

    /// From here on the connection is only read, and soon closed.
    pub(crate) fn retire(&mut self, index: usize, now: Instant) {
        let linger = Duration::from_millis(self.config.link.down_after_ms.into());
        if let Some(connection) = self.connection(index) {
            connection.retire_at = Some(now + linger);
        }
    }

    /// A connection of a link ended. Only that of the one that serves it ends the link.
    pub(crate) fn parted(&mut self, link: usize, index: usize, reason: DownReason, now: Instant) {
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        if state.connection == Some(index) {
            return self.link_lost(link, reason, now);
        }
        if state.renewal != Some(index) {
            return;
        }
        state.renewal = None;
        if let (Some(reason), Some(serving)) = (state.untrusted.take(), state.connection) {
            self.close_connection(serving, CloseCode::Untrusted, now);
            self.link_lost(link, reason, now);
            return;
        }
        state.renew_at = Some(now + RETRY_AFTER);
        self.renew_again(link, now);
    }

    /// Ends every connection of a link but the one that serves it.
    pub(crate) fn cancel_renewal(&mut self, link: usize, now: Instant) {
        let Some(state) = self.links.get_mut(link).and_then(Option::as_mut) else {
            return;
        };
        state.renewal = None;
        state.renews_again = false;
        state.renew_at = None;
        state.untrusted = None;
        let serving = state.connection;
        for index in 0..self.connections.len() {
            let other = self
                .connection(index)
                .is_some_and(|own| own.link == Some(link) && serving != Some(index));
            if other {
                self.close_connection(index, CloseCode::Retired, now);
            }
        }
    }

    /// Checks the peer of every accepted connection as its handshake would; one whose handshake is under way, at its end.
    fn close_untrusted(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            if let Some(connection) = self.connection(index)
                && connection.stage == Stage::Handshaking
            {
                connection.recheck = true;
                continue;
            }
            let Some(reason) = self.distrust(index) else {
                continue;
            };
            let Some(connection) = self.connection(index) else {
                continue;
            };
            if connection.quic.side() == Side::Client {
                // Its renewal decides.
                continue;
            }
            let link = connection.link.take();
            self.close_connection(index, CloseCode::Untrusted, now);
            if let Some(link) = link {
                self.parted(link, index, reason, now);
            }
        }
    }

    /// Why the peer of a connection would be refused, if it would. Until the handshake has passed, nothing is known of it.
    pub(crate) fn distrust(&self, index: usize) -> Option<DownReason> {
        let connection = self.connections.get(index)?.as_ref()?;
        if connection.stage == Stage::Closed {
            return None;
        }
        let identity = connection.quic.crypto_session().peer_identity()?;
        let chain = identity.downcast::<Vec<CertificateDer<'static>>>().ok()?;
        let link = connection.link.and_then(|link| self.link(link));
        let checked = match (connection.quic.side(), link) {
            (Side::Client, Some(link)) => self.tls.check_server(&chain, &link.peer),
            (Side::Client | Side::Server, _) => self.tls.check_client(&chain),
        };
        checked.err()
    }
}
