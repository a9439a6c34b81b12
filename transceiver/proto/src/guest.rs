//! An address that a session's media came from, and that has not shown by a check that it wants any: a NAT has given the client another
//! port, or somebody forwards what he has overheard.
//!
//! ```text
//!  packet of unknown ──verifies──► guest ──check from there verifies, selected path silent──► the session's path
//!  address                          │ 5 s without a packet that verifies, or another guest
//!                                   ▼
//!                                 gone
//! ```
//!
//! Who is the guest decides where copies go, and nothing of what is heard: media of the session verifies from any address.
//!
//! A guest gets copies of what goes down, and never more than came from it: neither more packets nor more bytes. So with headers counted
//! too, an address that is not the client's gets at most what somebody spent to send from it.

use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::verdict::ReturnPath;

/// A guest is gone when nothing that verifies came from it for so long: two checks of a usual client.
pub(crate) const GUEST_SILENCE_MAX: Duration = Duration::from_secs(5);
/// What a guest is credited with at most, so that a long talker is not owed a burst: about a second of voice.
const CREDIT_PACKETS_MAX: u32 = 64;
const CREDIT_BYTES_MAX: usize = 16 * 1024;
/// Packets from a guest alone that tell a client that moved from one that pauses: as many frames as [`crate::session`] waits for.
const ALONE_MIN: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest {
    pub(crate) client: ClientAddr,
    pub(crate) via: ReturnPath,
    pub(crate) heard: Instant,
    packets: u32,
    bytes: usize,
    /// Packets that verified from there since the selected path was heard.
    alone: u32,
}

impl Guest {
    pub(crate) const fn new(client: ClientAddr, via: ReturnPath, now: Instant) -> Self {
        Self {
            client,
            via,
            heard: now,
            packets: 0,
            bytes: 0,
            alone: 0,
        }
    }

    /// A packet from there verified.
    pub(crate) fn hear(&mut self, via: ReturnPath, len: usize, now: Instant) {
        self.via = via;
        self.heard = now;
        self.packets = (self.packets + 1).min(CREDIT_PACKETS_MAX);
        self.bytes = (self.bytes + len).min(CREDIT_BYTES_MAX);
        self.alone = self.alone.saturating_add(1);
    }

    /// The selected path was heard.
    pub(crate) const fn is_not_alone(&mut self) {
        self.alone = 0;
    }

    /// Whether so much came from there since the selected path was heard that the client means it.
    pub(crate) const fn speaks(&self) -> bool {
        self.alone >= ALONE_MIN
    }

    /// Whether a packet of `len` bytes may go there; it is paid for.
    pub(crate) fn spend(&mut self, len: usize) -> bool {
        let (Some(packets), Some(bytes)) =
            (self.packets.checked_sub(1), self.bytes.checked_sub(len))
        else {
            return false;
        };
        (self.packets, self.bytes) = (packets, bytes);
        true
    }

    pub(crate) fn is_gone(&self, now: Instant) -> bool {
        now >= self.heard + GUEST_SILENCE_MAX
    }
}

/// How many packets the media engines try of which only the stream says whose they may be: forged ones that name a known SSRC cost a
/// decryption each.
#[derive(Debug)]
pub(crate) struct Tries {
    rate: TryRate,
    /// When the present rate would be used up.
    ahead: Option<Instant>,
}

/// Tries a second, and at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TryRate {
    per_s: u32,
    burst: u32,
}

impl TryRate {
    /// Of one session: whoever forges packets of one caller's stream leaves the other callers theirs.
    pub(crate) const SESSION: Self = Self {
        per_s: 50,
        burst: 25,
    };
    /// Of all.
    pub(crate) const ALL: Self = Self {
        per_s: 2_000,
        burst: 500,
    };
}

impl Tries {
    pub(crate) const fn new(rate: TryRate) -> Self {
        Self { rate, ahead: None }
    }

    /// Whether there is a try left.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let interval = Duration::from_secs(1) / self.rate.per_s;
        let next = self.ahead.map_or(now, |ahead| ahead.max(now)) + interval;
        let fits = next - now <= interval * self.rate.burst;
        if fits {
            self.ahead = Some(next);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use wire::{PopId, Tag};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
    fn start() -> Instant {
        Instant::now()
    }

    fn via() -> ReturnPath {
        ReturnPath {
            relay: SocketAddr::from(([127, 0, 1, 1], 7543)),
            tag: Tag {
                pop: PopId(1),
                worker: 0,
                ingress: 0,
            },
        }
    }

    #[test]
    fn a_guest_gets_neither_more_packets_nor_more_bytes_than_came() {
        let now = start();
        let mut guest = Guest::new(ClientAddr::new(([192, 0, 2, 1], 9).into()), via(), now);
        assert!(!guest.spend(0), "nothing came");
        guest.hear(via(), 100, now);
        assert!(!guest.spend(101));
        assert!(guest.spend(40));
        assert!(!guest.spend(1), "one packet came");
        guest.hear(via(), 10, now);
        assert!(guest.spend(70), "bytes of both");
        for _ in 0..1000 {
            guest.hear(via(), 1400, now);
        }
        let small = (0..1000).filter(|_| guest.spend(1)).count();
        assert_eq!(small, 64, "credit is bounded");
        for _ in 0..1000 {
            guest.hear(via(), 1400, now);
        }
        assert_eq!((0..1000).filter(|_| guest.spend(1400)).count(), 11);
    }

    #[test]
    fn tries_are_bounded() {
        let start = start();
        for (rate, expected) in [
            (TryRate::ALL, [500, 0, 200, 500]),
            (TryRate::SESSION, [25, 0, 5, 25]),
        ] {
            let mut tries = Tries::new(rate);
            let moments = [0, 0, 100, 9_000].map(Duration::from_millis);
            let taken =
                moments.map(|since| (0..10_000).filter(|_| tries.take(start + since)).count());
            assert_eq!(taken, expected, "{rate:?}");
        }
    }
}
