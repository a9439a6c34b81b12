//! One session: its credentials, the paths that proved themselves, and when it was last heard.

use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::credentials::LocalCredentials;
use crate::verdict::ReturnPath;

/// Paths a session keeps at most; a client has a handful of candidates.
pub(crate) const PATHS_MAX: usize = 8;
/// After an ICE restart the former credentials hold so long, or until the new ones are used.
pub(crate) const FORMER_TTL: Duration = Duration::from_secs(30);

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
    paths: Vec<Path>,
    selected: Option<ClientAddr>,
}

/// What a check changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) connected: bool,
    pub(crate) forgotten: Option<ClientAddr>,
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
            paths: Vec::new(),
            selected: None,
        }
    }

    pub(crate) const fn phase(&self) -> SessionPhase {
        match (self.selected, self.heard) {
            (Some(_), _) => SessionPhase::Connected,
            (None, Some(_)) => SessionPhase::Bound,
            (None, None) => SessionPhase::Pending,
        }
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
        let forgotten = self.touch(client, via, now);
        let connected = nominated && self.selected.is_none();
        if nominated {
            self.selected = Some(client);
        }
        Checked {
            connected,
            forgotten,
        }
    }

    fn touch(&mut self, client: ClientAddr, via: ReturnPath, now: Instant) -> Option<ClientAddr> {
        if let Some(path) = self.paths.iter_mut().find(|path| path.client == client) {
            path.via = via;
            path.heard = now;
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
        });
        forgotten
    }

    fn forget_oldest(&mut self) -> Option<ClientAddr> {
        let (index, _) = self
            .paths
            .iter()
            .enumerate()
            .filter(|(_, path)| Some(path.client) != self.selected)
            .min_by_key(|(_, path)| path.heard)?;
        Some(self.paths.swap_remove(index).client)
    }

    /// The media engine accepted a packet from `client`: it is alive, and reachable the way the packet came.
    pub(crate) fn authenticated(&mut self, client: ClientAddr, via: ReturnPath, now: Instant) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.client == client) {
            path.via = via;
            path.heard = now;
            self.heard = Some(now);
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
