//! What signaling asks: each request is answered at once, whoever asked may have gone.

use std::net::SocketAddr;
use std::time::Instant;

use transceiver_proto::credentials::RANDOM_LEN;
use transceiver_proto::dtls::Gate;
use transceiver_proto::{CreateError, LocalCredentials, SessionPhase, Slot};

use crate::engine::core::Core;
use crate::engine::handle::{
    Answer, Created, IceParameters, OfferError, Precondition, Request, SessionError, SessionKey,
    SessionSnapshot, SessionState,
};
use crate::engine::live::Live;
use crate::engine::sdp::{self, Offer, SdpError};
use crate::peer::{Peer, PeerCounters, PeerError};

/// Draws of a ufrag at most.
const DRAWS_MAX: usize = 4;

impl Core {
    pub(crate) fn handle_request(&mut self, request: Request, now: Instant) {
        // A requester that has gone needs no answer.
        match request {
            Request::Create {
                offer,
                ingress,
                reply,
            } => {
                let created = self.create(&offer, ingress, now);
                let key = created.as_ref().ok().map(|created| created.key);
                if reply.send(created).is_err()
                    && let Some(slot) = key.and_then(|key| self.by_key.get(&key).copied())
                {
                    self.close(slot, now);
                }
            }
            Request::Renegotiate {
                key,
                precondition,
                offer,
                reply,
            } => {
                let _ = reply.send(self.renegotiate(key, &precondition, &offer, now));
            }
            Request::RestartIce {
                key,
                precondition,
                ufrag,
                pwd,
                reply,
            } => {
                let _ = reply.send(self.restart(key, &precondition, ufrag, pwd, now));
            }
            Request::Trickle {
                key,
                precondition,
                ufrag,
                reply,
            } => {
                let _ = reply.send(self.trickle(key, &precondition, ufrag.as_deref()));
            }
            Request::End { key, reply } => {
                let slot = self.by_key.get(&key).copied();
                let _ = reply.send(self.end(slot, now));
            }
            Request::EndById { id, reply } => {
                let slot = self.by_id.get(&id).copied();
                let _ = reply.send(self.end(slot, now));
            }
            Request::List { reply } => {
                let _ = reply.send(
                    self.by_id
                        .values()
                        .filter_map(|slot| self.snapshot(*slot))
                        .collect(),
                );
            }
            Request::Get { id, reply } => {
                let slot = self.by_id.get(&id);
                let _ = reply.send(
                    slot.and_then(|slot| self.snapshot(*slot))
                        .ok_or(SessionError::NotFound),
                );
            }
        }
    }

    fn create(
        &mut self,
        offer: &str,
        ingress: Vec<SocketAddr>,
        now: Instant,
    ) -> Result<Created, OfferError> {
        if self.draining {
            return Err(OfferError::Draining);
        }
        let offer = sdp::inward(offer).map_err(|error| match error {
            SdpError::NotSdp => OfferError::NotSdp,
            SdpError::NoAudio => OfferError::NoAudio,
            SdpError::Unsupported(why) => OfferError::Unsupported(why),
        })?;
        let (slot, local) = self
            .draw(|core, random| {
                core.sessions
                    .create(&offer.ufrag, random, now, Self::minute())
            })
            .map_err(|error| match error {
                CreateError::Full => OfferError::Full,
                CreateError::Pending => OfferError::Pending,
                CreateError::Collision => OfferError::Busy,
            })?;
        let created = self.connect_peer(slot, offer, &local, ingress, now);
        if created.is_err() {
            self.sessions.end(slot);
            self.run_commands();
        }
        created
    }

    fn connect_peer(
        &mut self,
        slot: Slot,
        offer: Offer,
        local: &LocalCredentials,
        ingress: Vec<SocketAddr>,
        now: Instant,
    ) -> Result<Created, OfferError> {
        let key = SessionKey(self.random.bytes().ok_or(OfferError::Busy)?);
        let ssrc = u32::from_be_bytes(self.random.bytes().ok_or(OfferError::Busy)?);
        let etag = self.etag().ok_or(OfferError::Busy)?;
        let (peer, answer) =
            Peer::answer(&self.factory, offer.inward, ssrc, now).map_err(refused)?;
        self.last_id += 1;
        let id = self.last_id;
        let answer = sdp::outward(&answer, local, &ingress);
        let live = Live {
            peer,
            backend: (self.voice)(),
            key,
            id,
            etag: etag.clone(),
            remote_password: offer.password,
            remote_ufrag: offer.ufrag,
            ingress,
            created_unix_s: runtime::clock::unix_s(),
            counted: PeerCounters::default(),
            deadline: None,
            gate: Gate::default(),
            packets_in: 0,
            bytes_in: 0,
            packets_out: 0,
            bytes_out: 0,
        };
        self.place(slot, live, now);
        Ok(Created {
            key,
            id,
            answer,
            etag,
        })
    }

    /// A fresh entity tag: names one ICE session of one session.
    fn etag(&self) -> Option<String> {
        Some(format!("{:016x}", u64::from_be_bytes(self.random.bytes()?)))
    }

    fn renegotiate(
        &mut self,
        key: SessionKey,
        precondition: &Precondition,
        offer: &str,
        now: Instant,
    ) -> Result<Answer, SessionError> {
        let slot = self.find(key, precondition)?;
        let offer = sdp::inward(offer).map_err(|error| match error {
            SdpError::NotSdp => SessionError::BadSdp("not an SDP offer"),
            SdpError::NoAudio => SessionError::BadSdp("the offer has no audio"),
            SdpError::Unsupported(why) => SessionError::BadSdp(why),
        })?;
        let live = self.live_mut(slot).ok_or(SessionError::NotFound)?;
        let answer = live.peer.reanswer(offer.inward, now).map_err(|error| {
            tracing::debug!(%error, "another offer refused");
            SessionError::BadSdp("the media engine refused the offer")
        })?;
        let restart = live.remote_password != offer.password || live.remote_ufrag != offer.ufrag;
        let local = if restart {
            self.new_credentials(slot, offer.ufrag, offer.password, now)?
        } else {
            self.sessions
                .local(slot)
                .ok_or(SessionError::NotFound)?
                .clone()
        };
        self.touched(slot, now);
        let live = self.live(slot).ok_or(SessionError::NotFound)?;
        Ok(Answer {
            sdp: sdp::outward(&answer, &local, &live.ingress),
            etag: live.etag.clone(),
        })
    }

    fn restart(
        &mut self,
        key: SessionKey,
        precondition: &Precondition,
        ufrag: String,
        password: String,
        now: Instant,
    ) -> Result<IceParameters, SessionError> {
        let slot = self.find(key, precondition)?;
        let local = self.new_credentials(slot, ufrag, password, now)?;
        let live = self.live(slot).ok_or(SessionError::NotFound)?;
        Ok(IceParameters {
            ufrag: local.ufrag.as_str().to_owned(),
            pwd: local.password.as_str().to_owned(),
            etag: live.etag.clone(),
        })
    }

    /// RFC 8445 §2.4: both sides' credentials change, and with them the entity tag (RFC 9725 §4.3.1).
    fn new_credentials(
        &mut self,
        slot: Slot,
        ufrag: String,
        password: String,
        now: Instant,
    ) -> Result<LocalCredentials, SessionError> {
        let etag = self.etag().ok_or(SessionError::Busy)?;
        let local = self
            .draw(|core, random| {
                core.sessions
                    .restart(slot, &ufrag, random, now, Self::minute())
            })
            .map_err(|_| SessionError::Busy)?;
        let live = self.live_mut(slot).ok_or(SessionError::NotFound)?;
        live.remote_ufrag = ufrag;
        live.remote_password = password;
        live.etag = etag;
        Ok(local)
    }

    /// Issues credentials; draws again while the ufrag is in use. 24 bits are random within a minute, so that two draws
    /// hardly ever fail at a full table.
    fn draw<T>(
        &mut self,
        mut issue: impl FnMut(&mut Self, [u8; RANDOM_LEN]) -> Result<T, CreateError>,
    ) -> Result<T, CreateError> {
        let mut outcome = Err(CreateError::Collision);
        for _ in 0..DRAWS_MAX {
            let random = self.random.bytes().ok_or(CreateError::Collision)?;
            outcome = issue(self, random);
            if !matches!(outcome, Err(CreateError::Collision)) {
                break;
            }
        }
        outcome
    }

    fn trickle(
        &self,
        key: SessionKey,
        precondition: &Precondition,
        ufrag: Option<&str>,
    ) -> Result<(), SessionError> {
        let slot = self.find(key, precondition)?;
        let live = self.live(slot).ok_or(SessionError::NotFound)?;
        match ufrag {
            Some(ufrag) if ufrag != live.remote_ufrag => Err(SessionError::EtagMismatch),
            Some(_) | None => Ok(()),
        }
    }

    fn end(&mut self, slot: Option<Slot>, now: Instant) -> Result<(), SessionError> {
        self.close(slot.ok_or(SessionError::NotFound)?, now);
        Ok(())
    }

    fn find(&self, key: SessionKey, precondition: &Precondition) -> Result<Slot, SessionError> {
        let slot = self
            .by_key
            .get(&key)
            .copied()
            .ok_or(SessionError::NotFound)?;
        self.live(slot)
            .ok_or(SessionError::NotFound)?
            .check(precondition)?;
        Ok(slot)
    }

    fn snapshot(&self, slot: Slot) -> Option<SessionSnapshot> {
        let live = self.live(slot)?;
        let selected = self.sessions.selected(slot);
        let place = selected.map(|(_, via)| self.relays.place(via));
        let counters = live.peer.counters();
        Some(SessionSnapshot {
            id: live.id,
            state: self.state(slot, live),
            created_unix_s: live.created_unix_s,
            transceiver: self.transceiver.clone(),
            region: self.region.clone(),
            pop: place.as_ref().and_then(|place| place.pop.clone()),
            worker: selected.map(|(_, via)| via.tag.worker),
            ingress: place.as_ref().and_then(|place| place.ingress),
            core_relay: place.and_then(|place| place.core_relay),
            client: selected.map(|(client, _)| format!("{client:?}")),
            paths: self.sessions.paths(slot).count(),
            packets_in: live.packets_in,
            bytes_in: live.bytes_in,
            packets_out: live.packets_out,
            bytes_out: live.bytes_out,
            rtp_in: counters.rtp_in,
            rtp_out: counters.rtp_out,
            rtp_lost: counters.rtp_lost,
            rtc_state: live.peer.state(),
        })
    }

    fn state(&self, slot: Slot, live: &Live) -> SessionState {
        match self.sessions.phase(slot) {
            Some(SessionPhase::Pending) | None => SessionState::Pending,
            Some(SessionPhase::Bound | SessionPhase::Connected) if live.peer.is_connected() => {
                SessionState::Connected
            }
            Some(SessionPhase::Bound | SessionPhase::Connected) => SessionState::Connecting,
        }
    }
}

fn refused(error: PeerError) -> OfferError {
    tracing::debug!(%error, "offer refused");
    OfferError::Unsupported("the media engine refused the offer")
}
