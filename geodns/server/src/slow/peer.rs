//! Whoever is at the other end of a connection: where, since when, and when it asked last.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::answer::Transport;
use super::places::Place;

/// See the module head.
pub(super) struct Peer {
    pub(super) source: SocketAddr,
    pub(super) transport: Transport,
    place: Place,
    since: Instant,
    /// Counted from `since`.
    asked_us: AtomicU64,
}

impl Peer {
    pub(super) const fn new(
        source: SocketAddr,
        transport: Transport,
        place: Place,
        now: Instant,
    ) -> Self {
        Self {
            source,
            transport,
            place,
            since: now,
            asked_us: AtomicU64::new(0),
        }
    }

    /// It asks. Whoever waits longer than it gives up its place sooner.
    pub(super) fn asked(&self, now: Instant) {
        let us = u64::try_from(self.age(now).as_micros()).unwrap_or(u64::MAX);
        self.asked_us.store(us, Ordering::Relaxed);
        self.place.asked();
    }

    /// Since it came.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Since it asked last, or came.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let asked = Duration::from_micros(self.asked_us.load(Ordering::Relaxed));
        self.age(now).saturating_sub(asked)
    }
}
