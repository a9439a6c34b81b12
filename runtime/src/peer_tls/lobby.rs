//! Where connections are while nobody knows whose they are. They hold none of the places of those who have shown a certificate, and
//! they are bounded by making room, not by turning away: one too many ends the oldest. So a flood of connections that say nothing costs
//! a node at most its own handshake, and only when that takes longer than the flood needs to fill the lobby.
//!
//! It does not know TLS.

use std::collections::VecDeque;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::source;

/// Connections in a lobby at most; one more ends the oldest of all.
pub const GUESTS_MAX: usize = 1_024;
/// Connections of one [source] at most; one more ends the oldest of that source.
pub const GUESTS_PER_SOURCE_MAX: usize = 64;

/// See the module head. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Lobby(Arc<Mutex<VecDeque<Guest>>>);

#[derive(Debug)]
struct Guest {
    source: IpAddr,
    /// Dropped: it has to leave. Closed: it has left.
    stays: oneshot::Sender<()>,
}

/// A connection in the lobby.
#[derive(Debug)]
pub struct Visit(oneshot::Receiver<()>);

impl Lobby {
    /// A connection from `source` comes in.
    #[must_use]
    pub fn enter(&self, source: IpAddr) -> Visit {
        let source = source::of(source);
        let (stays, visit) = oneshot::channel();
        let mut guests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked through only when there may be one too many: at a normal pace whoever is in front has long left.
        while guests.front().is_some_and(|guest| guest.stays.is_closed()) {
            guests.pop_front();
        }
        if guests.len() >= GUESTS_PER_SOURCE_MAX {
            make_room(&mut guests, source);
        }
        guests.push_back(Guest { source, stays });
        Visit(visit)
    }
}

/// Those who have left are forgotten; the oldest goes where there would be one too many.
fn make_room(guests: &mut VecDeque<Guest>, source: IpAddr) {
    guests.retain(|guest| !guest.stays.is_closed());
    let of_source = |guest: &Guest| guest.source == source;
    if guests.iter().filter(|guest| of_source(guest)).count() >= GUESTS_PER_SOURCE_MAX {
        let oldest = guests.iter().position(of_source);
        oldest.map(|oldest| guests.remove(oldest));
    } else if guests.len() >= GUESTS_MAX {
        guests.pop_front();
    }
}

impl Visit {
    /// What the connection does to show whose it is; `None` when it had to leave first.
    pub async fn during<T>(self, showing: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            shown = showing => Some(shown),
            _ = self.0 => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: usize) -> IpAddr {
        IpAddr::V4(u32::try_from(number).unwrap().into())
    }

    fn has_to_leave(visit: &mut Visit) -> bool {
        visit.0.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    #[test]
    fn one_too_many_of_a_source_ends_its_oldest_and_nobody_elses() {
        let lobby = Lobby::default();
        let mut node = lobby.enter(source(1));
        let mut flood: Vec<_> = (0..10 * GUESTS_MAX)
            .map(|_| lobby.enter(source(2)))
            .collect();
        assert!(!has_to_leave(&mut node));
        let left = flood
            .iter_mut()
            .filter_map(|visit| has_to_leave(visit).then_some(()));
        assert_eq!(left.count(), flood.len() - GUESTS_PER_SOURCE_MAX);
        assert!(!has_to_leave(flood.last_mut().unwrap()));
    }

    #[test]
    fn one_too_many_ends_the_oldest_and_those_who_left_count_no_more() {
        let lobby = Lobby::default();
        // Half of them leave at once.
        let mut held = Vec::new();
        for i in 0..GUESTS_MAX {
            drop(lobby.enter(source(GUESTS_MAX + i)));
            held.push(lobby.enter(source(i)));
        }
        assert!(!held.iter_mut().any(has_to_leave), "there is room");
        let mut more: Vec<_> = (0..5)
            .map(|i| lobby.enter(source(4 * GUESTS_MAX + i)))
            .collect();
        let left: Vec<_> = held.iter_mut().map(has_to_leave).collect();
        assert_eq!(left.iter().filter(|left| **left).count(), 5);
        assert!(left[..5].iter().all(|left| *left), "the oldest");
        assert!(!more.iter_mut().any(has_to_leave));
        let guests = lobby.0.lock().unwrap().len();
        assert!(guests <= GUESTS_MAX, "{guests}");
    }
}
