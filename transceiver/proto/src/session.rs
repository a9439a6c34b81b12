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
//! gave them another address.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::credentials::LocalCredentials;
use crate::verdict::ReturnPath;

/// Paths a session keeps at most; a client has a handful of candidates.
pub(crate) const PATHS_MAX: usize = 8;
/// After an ICE restart the former credentials hold so long, or until the new ones are used.
pub(crate) const FORMER_TTL: Duration = Duration::from_secs(30);
/// Media moves a session to another of its paths when the selected one was silent so long: 50 packets of 20 ms.
pub(crate) const MEDIA_MOVES_AFTER: Duration = Duration::from_secs(1);
/// A check without nomination moves a session, or a way back, that was silent so long: two checks of a usual client.
pub(crate) const CHECK_MOVES_AFTER: Duration = Duration::from_secs(5);

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
        if nominated || self.selected_is_silent(CHECK_MOVES_AFTER, now) {
            self.selected = Some(client);
        }
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

    /// The media engine accepted a packet from `client`: it is alive, and reachable the way the packet came.
    pub(crate) fn authenticated(&mut self, client: ClientAddr, via: ReturnPath, now: Instant) {
        let silent = self.selected_is_silent(MEDIA_MOVES_AFTER, now);
        let Some(path) = self.path_mut(client) else {
            return;
        };
        path.hear(via, true, now);
        self.heard = Some(now);
        if silent {
            self.selected = Some(client);
        }
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
