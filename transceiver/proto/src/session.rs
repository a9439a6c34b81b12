//! One session: its credentials, the paths that proved themselves, and when it was last heard.
//!
//! A path is a client address and the way back to it. What an authenticated packet moves:
//!
//! ```text
//!                                   way back of its path                 selected path
//! check with USE-CANDIDATE          always                               always
//! check without                     same PoP and ingress, or the way     the selected one was silent for CHECK_MOVES_AFTER
//!                                   was silent for CHECK_MOVES_AFTER
//! SRTP, SRTCP                       always                               the selected one was silent for MEDIA_MOVES_AFTER
//! ```
//!
//! The client controls: it nominates, and it sends media where it means to. A check without nomination may be one that only
//! probes another PoP, so it moves nothing that works. Silence covers clients that do not nominate again after their NAT
//! gave them another address; where their media came from already, a short one does (GUEST_MOVES_AFTER) that ten packets fill.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::credentials::LocalCredentials;
use crate::guest::{Guest, Tries, TryRate};
use crate::streams::STREAMS_MAX;
use crate::verdict::ReturnPath;

/// Paths a session keeps at most; a client has a handful of candidates.
pub(crate) const PATHS_MAX: usize = 8;
/// After an ICE restart the former credentials hold so long, or until the new ones are used.
pub(crate) const FORMER_TTL: Duration = Duration::from_secs(30);
/// Media moves a session to another of its paths when the selected one was silent so long: 50 packets of 20 ms.
pub(crate) const MEDIA_MOVES_AFTER: Duration = Duration::from_secs(1);
/// A check without nomination moves a session, or a way back, that was silent so long: two checks of a usual client.
pub(crate) const CHECK_MOVES_AFTER: Duration = Duration::from_secs(5);

/// A check without nomination from where media comes moves a session whose selected path was silent so long, if ten packets came
/// from there meanwhile. A client that says nothing most of the time is silent too, so time alone says little.
pub(crate) const GUEST_MOVES_AFTER: Duration = Duration::from_millis(200);
/// A stream that found no place among others of its SSRC seeks one again after so long.
const STREAM_RETRY: Duration = Duration::from_secs(1);

/// Transactions remembered against replay: several minutes of a usual client's checks.
const TRANSACTIONS_MAX: usize = 64;

/// How far a session has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionPhase {
    /// No authenticated packet yet.
    Pending,
    /// At least one path has proved itself; none is nominated.
    Bound,
    /// A path is nominated.
    Connected,
}

/// A path that proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSnapshot {
    /// The client's address on this path.
    pub client: ClientAddr,
    /// The way back to it.
    pub via: ReturnPath,
    /// When the last authenticated packet came by it.
    pub heard: Instant,
    /// Whether it is the one media leaves by.
    pub selected: bool,
}

#[derive(Clone, Copy, Debug)]
struct Path {
    client: ClientAddr,
    via: ReturnPath,
    heard: Instant,
    /// When the last authenticated packet came through the PoP and ingress of `via`.
    via_heard: Instant,
}

impl Path {
    /// An authenticated packet came by `via`; `moves`: the client means this way, whatever worked before.
    fn hear(&mut self, via: ReturnPath, moves: bool, now: Instant) {
        self.heard = now;
        let same_place = (self.via.tag.pop, self.via.tag.ingress) == (via.tag.pop, via.tag.ingress);
        if moves || same_place || now >= self.via_heard + CHECK_MOVES_AFTER {
            self.via = via;
            self.via_heard = now;
        }
    }
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) local: LocalCredentials,
    pub(crate) former: Option<(LocalCredentials, Instant)>,
    /// The client's ufrag, once signaling has told it.
    pub(crate) remote_ufrag: Box<str>,
    pub(crate) former_remote_ufrag: Option<Box<str>>,
    pub(crate) created: Instant,
    pub(crate) heard: Option<Instant>,
    /// DTLS is up.
    pub(crate) media_up: bool,
    paths: Vec<Path>,
    selected: Option<ClientAddr>,
    transactions: VecDeque<([u8; 12], ClientAddr)>,
    /// An address that media came from, and that may not have it all.
    pub(crate) guest: Option<Guest>,
    /// SSRCs of media that verified and by which the session is found, the latest last.
    streams: Vec<u32>,
    /// When a stream that found no place may seek one again.
    stream_retry_at: Option<Instant>,
    /// Packets that are tried here because of their stream alone.
    pub(crate) tries: Tries,
}

/// What an authentic packet of media changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Its address is the guest.
    pub(crate) guest: bool,
    /// The guest it displaced.
    pub(crate) displaced: Option<ClientAddr>,
}

/// What a check changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) connected: bool,
    /// The address that gave way to another one, and the way back to it.
    pub(crate) forgotten: Option<(ClientAddr, ReturnPath)>,
}

impl Session {
    pub(crate) fn new(local: LocalCredentials, remote_ufrag: &str, now: Instant) -> Self {
        Self {
            local,
            former: None,
            remote_ufrag: remote_ufrag.into(),
            former_remote_ufrag: None,
            created: now,
            heard: None,
            media_up: false,
            paths: Vec::new(),
            selected: None,
            transactions: VecDeque::new(),
            guest: None,
            streams: Vec::new(),
            stream_retry_at: None,
            tries: Tries::new(TryRate::SESSION),
        }
    }

    pub(crate) const fn phase(&self) -> SessionPhase {
        match (self.selected, self.heard) {
            (Some(_), _) => SessionPhase::Connected,
            (None, Some(_)) => SessionPhase::Bound,
            (None, None) => SessionPhase::Pending,
        }
    }

    /// Whether an authentic check repeats one that came from another address. Whoever can listen can repeat a check, but
    /// not make one.
    pub(crate) fn is_replay(&mut self, transaction: &[u8; 12], client: ClientAddr) -> bool {
        if let Some((_, from)) = self
            .transactions
            .iter()
            .find(|(known, _)| known == transaction)
        {
            return *from != client;
        }
        if self.transactions.len() >= TRANSACTIONS_MAX {
            self.transactions.pop_front();
        }
        self.transactions.push_back((*transaction, client));
        false
    }

    /// An authenticated check came from `client` by `via`.
    pub(crate) fn checked(
        &mut self,
        client: ClientAddr,
        via: ReturnPath,
        nominated: bool,
        now: Instant,
    ) -> Checked {
        self.heard = Some(now);
        let forgotten = self.learn(client, via, nominated, now);
        let connected = nominated && self.selected.is_none();
        let speaks = self
            .guest
            .is_some_and(|guest| guest.client == client && guest.speaks());
        if nominated
            || self.selected_is_silent(CHECK_MOVES_AFTER, now)
            || (speaks && self.selected_is_silent(GUEST_MOVES_AFTER, now))
        {
            self.selected = Some(client);
        }
        self.selected_heard(client);
        Checked {
            connected,
            forgotten,
        }
    }

    fn learn(
        &mut self,
        client: ClientAddr,
        via: ReturnPath,
        nominated: bool,
        now: Instant,
    ) -> Option<(ClientAddr, ReturnPath)> {
        if let Some(path) = self.path_mut(client) {
            path.hear(via, nominated, now);
            return None;
        }
        let forgotten = if self.paths.len() >= PATHS_MAX {
            self.forget_oldest()
        } else {
            None
        };
        self.paths.push(Path {
            client,
            via,
            heard: now,
            via_heard: now,
        });
        forgotten
    }

    /// Whether there is a selected path and nothing authenticated came by it for `time`.
    fn selected_is_silent(&self, time: Duration, now: Instant) -> bool {
        self.selected
            .and_then(|selected| self.paths.iter().find(|path| path.client == selected))
            .is_some_and(|path| now >= path.heard + time)
    }

    fn path_mut(&mut self, client: ClientAddr) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.client == client)
    }

    fn forget_oldest(&mut self) -> Option<(ClientAddr, ReturnPath)> {
        let (index, _) = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| Some(path.client) != self.selected)
            .min_by_key(|(_, path)| path.heard)?;
        let path = self.paths.swap_remove(index);
        Some((path.client, path.via))
    }

    /// The media engine accepted a packet of `len` bytes from `client`: it is alive. When `client` is an address of its own, it is
    /// reachable the way the packet came; any other address is a guest.
    pub(crate) fn authenticated(
        &mut self,
        client: ClientAddr,
        via: ReturnPath,
        len: usize,
        now: Instant,
    ) -> Heard {
        self.heard = Some(now);
        let silent = self.selected_is_silent(MEDIA_MOVES_AFTER, now);
        if let Some(path) = self.path_mut(client) {
            path.hear(via, true, now);
            if silent {
                self.selected = Some(client);
            }
            self.selected_heard(client);
            // A guest that has proved itself gets copies until it is selected.
            if let Some(guest) = self.guest.as_mut().filter(|guest| guest.client == client) {
                guest.hear(via, len, now);
            }
            return Heard::default();
        }
        let known = self.guest.filter(|guest| guest.client == client);
        let displaced = self.guest.filter(|_| known.is_none());
        let mut guest = known.unwrap_or_else(|| Guest::new(client, via, now));
        guest.hear(via, len, now);
        self.guest = Some(guest);
        Heard {
            guest: true,
            displaced: displaced.map(|guest| guest.client),
        }
    }

    /// Something authentic came from `client`: if that is the selected path, the guest does not speak alone.
    fn selected_heard(&mut self, client: ClientAddr) {
        if self.selected == Some(client)
            && let Some(guest) = &mut self.guest
        {
            guest.is_not_alone();
        }
    }

    /// Where a copy of a packet of `len` bytes may go beside the selected path, because as much came from there. It is paid for.
    pub(crate) fn copy_to(&mut self, len: usize) -> Option<(ClientAddr, ReturnPath)> {
        let selected = self.selected;
        let guest = self.guest.as_mut()?;
        let fits = Some(guest.client) != selected && guest.spend(len);
        fits.then_some((guest.client, guest.via))
    }

    /// A packet of the stream `ssrc` verified. Whether the session should be found by it, and is not yet.
    pub(crate) fn wants_stream(&self, ssrc: u32, now: Instant) -> bool {
        !self.streams.contains(&ssrc) && self.stream_retry_at.is_none_or(|at| now >= at)
    }

    /// The session is found by `ssrc` from here on. The stream that gives way to it.
    pub(crate) fn keep_stream(&mut self, ssrc: u32) -> Option<u32> {
        let oldest = (self.streams.len() >= STREAMS_MAX).then(|| self.streams.remove(0));
        self.streams.push(ssrc);
        oldest
    }

    /// Others have all places of a stream.
    pub(crate) fn miss_stream(&mut self, now: Instant) {
        self.stream_retry_at = Some(now + STREAM_RETRY);
    }

    pub(crate) fn streams(&self) -> &[u32] {
        &self.streams
    }

    /// The guest, if it is there no more: silent too long, or the selected path.
    pub(crate) fn take_past_guest(&mut self, now: Instant) -> Option<Guest> {
        let selected = self.selected;
        self.guest
            .take_if(|guest| guest.is_gone(now) || Some(guest.client) == selected)
    }

    /// Where media leaves.
    pub(crate) fn selected(&self) -> Option<(ClientAddr, ReturnPath)> {
        let client = self.selected?;
        self.paths
            .iter()
            .find(|path| path.client == client)
            .map(|path| (path.client, path.via))
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = PathSnapshot> + '_ {
        self.paths.iter().map(|path| PathSnapshot {
            client: path.client,
            via: path.via,
            heard: path.heard,
            selected: Some(path.client) == self.selected,
        })
    }
}
