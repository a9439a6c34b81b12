//! A session as the engine holds it: its connection, its voice, its names.

use std::net::SocketAddr;
use std::time::Instant;

use transceiver_proto::dtls::Gate;
use transceiver_proto::{DropReason, Drops};
use wire::stun::PacketKind;

use crate::backend::Backend;
use crate::engine::core::Media;
use crate::engine::handle::{Precondition, SessionError, SessionKey};
use crate::peer::{Peer, PeerCounters, Taken};

pub(crate) struct Live {
    pub(crate) peer: Peer,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) key: SessionKey,
    pub(crate) id: u64,
    pub(crate) etag: String,
    /// The client's password; another one in an offer asks for an ICE restart.
    pub(crate) remote_password: String,
    /// The client's ufrag of the present ICE session.
    pub(crate) remote_ufrag: String,
    /// Candidates of the answer, repeated in later answers.
    pub(crate) ingress: Vec<SocketAddr>,
    pub(crate) created_unix_s: u64,
    /// What of the connection's figures is in the totals.
    pub(crate) counted: PeerCounters,
    /// The timer that stands for this session, if any.
    pub(crate) deadline: Option<Instant>,
    /// Bounds DTLS that is not authenticated.
    pub(crate) gate: Gate,
    pub(crate) packets_in: u64,
    pub(crate) bytes_in: u64,
    pub(crate) packets_out: u64,
    pub(crate) bytes_out: u64,
}

/// What a packet did to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) taken: Taken,
    /// Why it counts as dropped when every session refuses it.
    pub(crate) refusal: DropReason,
    /// DTLS is up.
    pub(crate) up: bool,
    /// The client has closed DTLS.
    pub(crate) closed: bool,
}

impl Live {
    pub(crate) fn handle_packet(&mut self, packet: &[u8], now: Instant) -> Outcome {
        let is_dtls = PacketKind::of(packet) == PacketKind::Dtls;
        let up = self.peer.is_connected();
        if is_dtls && self.gate.handle_datagram(packet, up).is_err() {
            return Outcome {
                taken: Taken::Refused,
                refusal: DropReason::DtlsRefused,
                up,
                closed: false,
            };
        }
        let taken = self.peer.handle_packet(packet, self.backend.as_mut(), now);
        if taken != Taken::Refused {
            self.packets_in += 1;
            self.bytes_in += u64::try_from(packet.len()).unwrap_or_default();
        }
        Outcome {
            taken,
            refusal: DropReason::MediaRefused,
            up: self.peer.is_connected(),
            // An alert may follow other records in its datagram.
            closed: is_dtls && self.peer.is_closed(),
        }
    }

    pub(crate) fn connect(&mut self, now: Instant) {
        self.peer.connect(self.backend.as_mut(), now);
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.peer.handle_timeout(self.backend.as_mut(), now);
    }

    /// When to call [`Self::handle_timeout`]: the connection's time or its voice's, whichever comes first.
    pub(crate) fn poll_timeout(&mut self) -> Option<Instant> {
        let of_both = [self.peer.poll_timeout(), self.backend.poll_timeout()];
        of_both.into_iter().flatten().min()
    }

    /// Adds what the connection has counted since the last call to the totals.
    pub(crate) fn count(&mut self, media: &mut Media, drops: &mut Drops) {
        let (new, old) = (self.peer.counters(), self.counted);
        media.rtp_in += new.rtp_in - old.rtp_in;
        media.rtp_out += new.rtp_out - old.rtp_out;
        // A late packet takes a loss back; a total never falls.
        media.rtp_lost += new.rtp_lost.saturating_sub(old.rtp_lost);
        media.messages_in += new.messages_in - old.messages_in;
        media.messages_out += new.messages_out - old.messages_out;
        drops.add(
            DropReason::BackendRefused,
            new.backend_refused - old.backend_refused,
        );
        self.counted = new;
    }

    /// RFC 9110 §13.1.1 for our one entity tag.
    pub(crate) fn check(&self, precondition: &Precondition) -> Result<(), SessionError> {
        match precondition {
            Precondition::Any => Ok(()),
            Precondition::Etag(etag) if *etag == self.etag => Ok(()),
            Precondition::Etag(_) => Err(SessionError::EtagMismatch),
        }
    }
}
