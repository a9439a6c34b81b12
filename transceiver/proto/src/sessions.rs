//! All sessions of a transceiver: the ICE-lite agent, the demultiplexer and the reaper.

mod media;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use wire::hint::{Hint, KeyRing, Minute, Ufrag};
use wire::stun::PacketKind;
use wire::{ClientAddr, Owner};

use crate::addresses::Addresses;
use crate::credentials::{LocalCredentials, Password, RANDOM_LEN};
use crate::guest::{Tries, TryRate};
use crate::session::{
    CHECK_MOVES_AFTER, FORMER_TTL, PATHS_MAX, PathSnapshot, Session, SessionPhase,
};
use crate::streams::Streams;
use crate::stun::{self, Request, RequestError};
use crate::verdict::{DropReason, ReturnPath, Verdict};

/// Bounds and times.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions at most.
    pub sessions_max: u32,
    /// Of them, sessions without an authenticated packet yet.
    pub pending_max: u32,
    /// How long a session may stay pending.
    pub pending_ttl: Duration,
    /// How long a session lives without an authenticated packet.
    pub vanish_after: Duration,
}

/// What [`Sessions`] is made of.
#[derive(Debug)]
pub struct Config {
    /// Ourselves, as hints name us.
    pub owner: Owner,
    /// Bounds and times.
    pub limits: Limits,
    /// Keys that hints are sealed with.
    pub keys: Arc<KeyRing>,
    /// Seed of the index hashes; must be unpredictable.
    pub hash_seed: u64,
}

/// Place of a session in the table; reused after [`Command::Ended`] was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// Why no session was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// `sessions_max` reached.
    #[error("no room for another session")]
    Full,
    /// `pending_max` reached.
    #[error("too many sessions wait for their client")]
    Pending,
    /// The random bytes gave a ufrag that is in use; draw again.
    #[error("ufrag in use")]
    Collision,
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Asked for: DELETE, admin, drain, DTLS close.
    Asked,
    /// No authenticated packet within `pending_ttl`.
    NeverCame,
    /// No authenticated packet for `vanish_after`.
    Vanished,
    /// Checks came, and no DTLS handshake was completed.
    NoHandshake,
}

/// Rare work for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The session is gone from every index: drop what belongs to it.
    Ended {
        /// Where it was.
        slot: Slot,
        /// Why.
        reason: EndReason,
    },
    /// A session that ended, has too many addresses, or whose guest fell silent was the last one at this client address: send an end record this way,
    /// so that the PoP forgets whose the address is.
    Released {
        /// The address.
        client: ClientAddr,
        /// The way back of the session that left it.
        via: ReturnPath,
    },
}

/// How full the table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Sessions.
    pub sessions: u32,
    /// Of them, pending ones.
    pub pending: u32,
    /// Client addresses bound.
    pub addresses: u32,
    /// Client addresses that media comes from and that no check has proved.
    pub guests: u32,
    /// Streams known by their SSRC.
    pub streams: u32,
}

/// Beyond `pending_ttl`, a session without DTLS lives so long: several retransmissions of a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(30);
/// How often the reaper looks.
const REAP_INTERVAL: Duration = Duration::from_millis(250);

/// See the module head.
pub struct Sessions {
    owner: Owner,
    limits: Limits,
    keys: Arc<KeyRing>,
    slots: Vec<Option<Session>>,
    free: Vec<Slot>,
    by_ufrag: HashMap<Ufrag, Slot, foldhash::fast::FixedState>,
    by_address: Addresses,
    /// Addresses that media of a session came from and that no check has proved: one of each session at most.
    guests: HashMap<ClientAddr, Slot, foldhash::fast::FixedState>,
    streams: Streams,
    tries: Tries,
    sessions: u32,
    pending: u32,
    reap_at: Option<Instant>,
    commands: VecDeque<Command>,
    answer: Vec<u8>,
}

impl Sessions {
    /// An empty table.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let addresses_max = config.limits.sessions_max as usize * PATHS_MAX;
        Self {
            owner: config.owner,
            limits: config.limits,
            keys: config.keys,
            slots: Vec::new(),
            free: Vec::new(),
            by_ufrag: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(config.hash_seed)),
            by_address: Addresses::new(addresses_max, config.hash_seed.rotate_left(32)),
            guests: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(
                config.hash_seed.rotate_left(16),
            )),
            streams: Streams::new(config.hash_seed.rotate_left(48)),
            tries: Tries::new(TryRate::ALL),
            sessions: 0,
            pending: 0,
            reap_at: None,
            commands: VecDeque::new(),
            answer: Vec::with_capacity(256),
        }
    }

    /// Other keys for hints issued from here on. Ufrags already issued stay as they are.
    pub fn set_keys(&mut self, keys: Arc<KeyRing>) {
        self.keys = keys;
    }

    /// Other bounds; sessions above a smaller one live on.
    pub const fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.by_address
            .set_max(limits.sessions_max as usize * PATHS_MAX);
    }

    /// Makes a session for a client whose own ufrag is `remote_ufrag`.
    ///
    /// # Errors
    /// See [`CreateError`].
    pub fn create(
        &mut self,
        remote_ufrag: &str,
        random: [u8; RANDOM_LEN],
        now: Instant,
        minute: Minute,
    ) -> Result<(Slot, LocalCredentials), CreateError> {
        if self.sessions >= self.limits.sessions_max {
            return Err(CreateError::Full);
        }
        if self.pending >= self.limits.pending_max {
            return Err(CreateError::Pending);
        }
        let local = self.issue(random, minute).ok_or(CreateError::Collision)?;
        let session = Session::new(local.clone(), remote_ufrag, now);
        let slot = self.place(session);
        self.by_ufrag.insert(local.ufrag, slot);
        self.sessions += 1;
        self.pending += 1;
        self.reap_at.get_or_insert(now + REAP_INTERVAL);
        Ok((slot, local))
    }

    /// Credentials that no session has; `None` when the random bytes collide.
    fn issue(&self, random: [u8; RANDOM_LEN], minute: Minute) -> Option<LocalCredentials> {
        let [r0, r1, r2, password @ ..] = random;
        let ufrag = self.keys.seal(
            Hint {
                owner: self.owner,
                issued: minute,
            },
            [r0, r1, r2],
        );
        (!self.by_ufrag.contains_key(&ufrag)).then(|| LocalCredentials {
            ufrag,
            password: Password::new(password),
        })
    }

    fn place(&mut self, session: Session) -> Slot {
        if let Some(slot) = self.free.pop()
            && let Some(place) = self.slots.get_mut(slot.0 as usize)
        {
            *place = Some(session);
            return slot;
        }
        self.slots.push(Some(session));
        Slot(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    /// ICE restart (RFC 8445 §2.4): new credentials for both sides. The former ones hold until the new ones are used, or 30 s.
    ///
    /// # Errors
    /// [`CreateError::Collision`], also when there is no such session.
    pub fn restart(
        &mut self,
        slot: Slot,
        remote_ufrag: &str,
        random: [u8; RANDOM_LEN],
        now: Instant,
        minute: Minute,
    ) -> Result<LocalCredentials, CreateError> {
        let local = self.issue(random, minute).ok_or(CreateError::Collision)?;
        let session = self.session_mut(slot).ok_or(CreateError::Collision)?;
        let former = std::mem::replace(&mut session.local, local.clone());
        let before = session.former.replace((former, now + FORMER_TTL));
        let remote = std::mem::replace(&mut session.remote_ufrag, remote_ufrag.into());
        session.former_remote_ufrag = Some(remote);
        if let Some((credentials, _)) = before {
            self.by_ufrag.remove(&credentials.ufrag);
        }
        self.by_ufrag.insert(local.ufrag, slot);
        Ok(local)
    }

    /// Decides on a client's packet that came by `via`. `offered`: its PoP does not know whose client it is.
    pub fn handle_packet(
        &mut self,
        via: ReturnPath,
        client: ClientAddr,
        packet: &[u8],
        offered: bool,
        now: Instant,
    ) -> Verdict {
        if PacketKind::of(packet) != PacketKind::Stun {
            return self
                .media(client, packet, offered, now)
                .unwrap_or_else(Verdict::Drop);
        }
        match Request::parse(packet) {
            Ok(request) => self
                .check(via, client, &request, now)
                .unwrap_or_else(Verdict::Drop),
            Err(RequestError::NotBinding) => Verdict::Drop(DropReason::UnexpectedStun),
            Err(RequestError::Malformed(_) | RequestError::Fingerprint) => {
                Verdict::Drop(DropReason::StunMalformed)
            }
        }
    }

    fn check(
        &mut self,
        via: ReturnPath,
        client: ClientAddr,
        request: &Request<'_>,
        now: Instant,
    ) -> Result<Verdict, DropReason> {
        let (ours, theirs) = request.ufrags().ok_or(DropReason::StunMalformed)?;
        let slot = self.slot_of(ours).ok_or(DropReason::UnknownUfrag)?;
        let local = self.authenticate(slot, ours, theirs, request)?;
        if !self.by_address.has_room(client) {
            return Err(DropReason::AddressesFull);
        }
        let session = self.session_mut(slot).ok_or(DropReason::UnknownUfrag)?;
        if session.is_replay(request.transaction_id(), client) {
            return Err(DropReason::ReplayedCheck);
        }
        if !request.unknown().is_empty() {
            stun::unknown_attributes(
                &mut self.answer,
                request.transaction_id(),
                request.unknown(),
                local.password.as_bytes(),
            );
            return Ok(Verdict::Answer {
                slot,
                connected: false,
            });
        }
        if request.controlled {
            stun::role_conflict(
                &mut self.answer,
                request.transaction_id(),
                local.password.as_bytes(),
            );
            return Ok(Verdict::Answer {
                slot,
                connected: false,
            });
        }
        let connected = self.checked(slot, via, client, request.use_candidate, now);
        self.forget_former(slot, &local);
        let source = client.socket_addr();
        stun::success_response(
            &mut self.answer,
            request.transaction_id(),
            source,
            local.password.as_bytes(),
        );
        Ok(Verdict::Answer { slot, connected })
    }

    fn slot_of(&self, ufrag: &[u8]) -> Option<Slot> {
        self.by_ufrag.get(&Ufrag::from_request(ufrag)?).copied()
    }

    /// The credentials a request was made with, when they are good.
    fn authenticate(
        &self,
        slot: Slot,
        ours: &[u8],
        theirs: &[u8],
        request: &Request<'_>,
    ) -> Result<LocalCredentials, DropReason> {
        let session = self.session(slot).ok_or(DropReason::UnknownUfrag)?;
        let former = session.former.as_ref().map(|(credentials, _)| credentials);
        let local = [Some(&session.local), former]
            .into_iter()
            .flatten()
            .find(|credentials| credentials.ufrag.as_bytes() == ours)
            .ok_or(DropReason::UnknownUfrag)?;
        if !request.is_authentic(local.password.as_bytes()) {
            return Err(DropReason::BadIntegrity);
        }
        let known = [
            Some(&session.remote_ufrag),
            session.former_remote_ufrag.as_ref(),
        ];
        if !known
            .into_iter()
            .flatten()
            .any(|ufrag| ufrag.is_empty() || ufrag.as_bytes() == theirs)
        {
            return Err(DropReason::WrongPeerUfrag);
        }
        Ok(local.clone())
    }

    fn checked(
        &mut self,
        slot: Slot,
        via: ReturnPath,
        client: ClientAddr,
        nominated: bool,
        now: Instant,
    ) -> bool {
        let Some(session) = self.session_mut(slot) else {
            return false;
        };
        let was_pending = session.phase() == SessionPhase::Pending;
        let checked = session.checked(client, via, nominated, now);
        self.pending -= u32::from(was_pending);
        if let Some((forgotten, via)) = checked.forgotten {
            self.leave(slot, forgotten, via);
        }
        let displace = self.second_is_silent(client, now);
        self.by_address.bind(client, slot, displace);
        self.dismiss_guest(slot, now);
        checked.connected
    }

    /// Whether the second claimant of an address has gone quiet, so that another may take its place.
    fn second_is_silent(&self, client: ClientAddr, now: Instant) -> bool {
        let second = self.by_address.find(client).and_then(|bound| bound.second);
        let heard = second.and_then(|slot| self.session(slot)?.heard);
        heard.is_none_or(|heard| now >= heard + CHECK_MOVES_AFTER)
    }

    /// The client has used the new credentials of an ICE restart: the former ones end.
    fn forget_former(&mut self, slot: Slot, used: &LocalCredentials) {
        let Some(session) = self
            .session_mut(slot)
            .filter(|session| session.local.ufrag == used.ufrag)
        else {
            return;
        };
        session.former_remote_ufrag = None;
        if let Some((former, _)) = session.former.take() {
            self.by_ufrag.remove(&former.ufrag);
        }
    }

    /// The answer of the last [`Verdict::Answer`].
    #[must_use]
    pub fn answer(&self) -> &[u8] {
        &self.answer
    }

    /// DTLS of the session is up.
    pub fn handle_media_up(&mut self, slot: Slot) {
        if let Some(session) = self.session_mut(slot) {
            session.media_up = true;
        }
    }

    /// Where media of the session leaves, once a path is nominated.
    #[must_use]
    pub fn selected(&self, slot: Slot) -> Option<(ClientAddr, ReturnPath)> {
        self.session(slot)?.selected()
    }

    /// Ends a session because somebody asked.
    pub fn end(&mut self, slot: Slot) {
        self.remove(slot, EndReason::Asked);
    }

    fn remove(&mut self, slot: Slot, reason: EndReason) {
        let Some(session) = self.slots.get_mut(slot.0 as usize).and_then(Option::take) else {
            return;
        };
        self.sessions -= 1;
        self.pending -= u32::from(session.phase() == SessionPhase::Pending);
        self.by_ufrag.remove(&session.local.ufrag);
        if let Some((former, _)) = &session.former {
            self.by_ufrag.remove(&former.ufrag);
        }
        self.free.push(slot);
        self.commands.push_back(Command::Ended { slot, reason });
        for ssrc in session.streams() {
            self.streams.remove(*ssrc, slot);
        }
        // Before its paths: one of them may be the same address, and is released once.
        if let Some(guest) = session.guest {
            self.leave_guest(slot, guest.client, guest.via);
        }
        for PathSnapshot { client, via, .. } in session.paths() {
            self.leave(slot, client, via);
        }
    }

    /// A session is no longer at an address.
    fn leave(&mut self, slot: Slot, client: ClientAddr, via: ReturnPath) {
        self.by_address.unbind(client, slot);
        self.release(client, via);
    }

    fn release(&mut self, client: ClientAddr, via: ReturnPath) {
        // Another session of ours at the address still needs the PoP to know us.
        if self.by_address.find(client).is_none() && !self.guests.contains_key(&client) {
            self.commands.push_back(Command::Released { client, via });
        }
    }

    /// Reaps what is due. Call when [`Self::poll_timeout`] says so.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.reap_at.is_none_or(|at| at > now) {
            return;
        }
        for index in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            let slot = Slot(index);
            self.expire_former(slot, now);
            self.dismiss_guest(slot, now);
            if let Some(reason) = self
                .session(slot)
                .and_then(|session| self.due(session, now))
            {
                self.remove(slot, reason);
            }
        }
        self.reap_at = (self.sessions > 0).then(|| now + REAP_INTERVAL);
    }

    fn due(&self, session: &Session, now: Instant) -> Option<EndReason> {
        match session.heard {
            None => {
                (now >= session.created + self.limits.pending_ttl).then_some(EndReason::NeverCame)
            }
            Some(heard) if now >= heard + self.limits.vanish_after => Some(EndReason::Vanished),
            Some(_) => {
                let deadline = session.created + self.limits.pending_ttl + HANDSHAKE_MAX;
                (!session.media_up && now >= deadline).then_some(EndReason::NoHandshake)
            }
        }
    }

    fn expire_former(&mut self, slot: Slot, now: Instant) {
        let Some(session) = self.session_mut(slot) else {
            return;
        };
        if session
            .former
            .as_ref()
            .is_some_and(|(_, until)| now >= *until)
            && let Some((former, _)) = session.former.take()
        {
            session.former_remote_ufrag = None;
            self.by_ufrag.remove(&former.ufrag);
        }
    }

    /// When [`Self::handle_timeout`] is due next.
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.reap_at
    }

    /// Rare work that earlier calls left.
    pub fn next_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// How full the table is.
    #[must_use]
    pub fn load(&self) -> Load {
        Load {
            sessions: self.sessions,
            pending: self.pending,
            addresses: u32::try_from(self.by_address.len()).unwrap_or(u32::MAX),
            guests: u32::try_from(self.guests.len()).unwrap_or(u32::MAX),
            streams: u32::try_from(self.streams.len()).unwrap_or(u32::MAX),
        }
    }

    /// Our credentials of the session's present ICE session.
    #[must_use]
    pub fn local(&self, slot: Slot) -> Option<&LocalCredentials> {
        self.session(slot).map(|session| &session.local)
    }

    /// How far a session has come.
    #[must_use]
    pub fn phase(&self, slot: Slot) -> Option<SessionPhase> {
        self.session(slot).map(Session::phase)
    }

    /// Paths of a session that have proved themselves.
    pub fn paths(&self, slot: Slot) -> impl Iterator<Item = PathSnapshot> + '_ {
        self.session(slot).into_iter().flat_map(Session::paths)
    }

    fn session(&self, slot: Slot) -> Option<&Session> {
        self.slots.get(slot.0 as usize)?.as_ref()
    }

    fn session_mut(&mut self, slot: Slot) -> Option<&mut Session> {
        self.slots.get_mut(slot.0 as usize)?.as_mut()
    }
}
