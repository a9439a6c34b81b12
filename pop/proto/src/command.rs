//! What the flow table asks of the flow cache: rare, queued, bounded.

use std::collections::VecDeque;

use wire::{ClientAddr, Owner};

/// Something for whoever speaks to the flow cache. `ingress` is the index of the ingress address the client speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Remember that `owner` has this client, for the time an entry lives. Said again before that is over, for as long
    /// as the owner is heard.
    Store {
        /// The client.
        client: ClientAddr,
        /// The ingress it speaks to.
        ingress: u8,
        /// Whose it is.
        owner: Owner,
    },
    /// The session is over: delete the entry if it names `owner`.
    Forget {
        /// The client.
        client: ClientAddr,
        /// The ingress it spoke to.
        ingress: u8,
        /// Whose it was.
        owner: Owner,
    },
    /// Whose client is this? `Flows::handle_answer` takes the answer.
    Ask {
        /// The client.
        client: ClientAddr,
        /// The ingress it speaks to.
        ingress: u8,
    },
}

/// What the flow cache says to a [`Command::Ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// This owner has the client.
    Owner(Owner),
    /// The cache has no usable entry.
    Unknown,
    /// The cache cannot be asked at the moment.
    Unavailable,
}

/// Commands waiting to be taken, at most.
pub(crate) const COMMANDS_MAX: usize = 4096;
/// Of them, stores: the last places are for what cannot be said again.
pub(crate) const STORES_MAX: usize = COMMANDS_MAX / 4 * 3;

/// The queue of commands.
pub(crate) struct Commands(VecDeque<Command>);

impl Commands {
    /// Takes its memory at once when it is going to be used.
    pub(crate) fn new(used: bool) -> Self {
        Self(VecDeque::with_capacity(if used { COMMANDS_MAX } else { 0 }))
    }

    /// Whether there was a place.
    #[must_use]
    pub(crate) fn push(&mut self, command: Command) -> bool {
        let bound = match command {
            Command::Store { .. } => STORES_MAX,
            Command::Forget { .. } | Command::Ask { .. } => COMMANDS_MAX,
        };
        let fits = self.0.len() < bound;
        if fits {
            self.0.push_back(command);
        }
        fits
    }

    pub(crate) fn pop(&mut self) -> Option<Command> {
        self.0.pop_front()
    }

    /// Whether they should be taken before more input: half of the places are left.
    pub(crate) fn are_many(&self) -> bool {
        self.0.len() >= COMMANDS_MAX / 2
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= COMMANDS_MAX
    }
}
