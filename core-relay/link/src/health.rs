//! What one connection tells about its path: round-trip time, jitter, loss, and whether the return is alive.
//!
//! ```text
//!  heard   any datagram of the peer: its heartbeats, its echoes, its records
//!  echoed  a Pong that carries one of our own recent Pings
//!  proven  an echoed Ping of full size; only the end that dials sends such Pings, and the Pong is as long
//!
//!  not heard for suspect_after     -> suspect  see `suspicion.rs`; the connection stays
//!  not heard for down_after        -> Silent   the return is dead, even if we can still send
//!  not echoed for 2 x down_after   -> NoEcho   we hear the peer, it does not hear us
//!  not proven for 4 x down_after   -> Mtu      what is small passes, what is large does not
//! ```
//!
//! A path that fails in one direction is seen first by the end that stops hearing; it closes the connection, and the
//! close reaches the other end over the direction that works. `NoEcho` is for when that close was lost. It waits
//! twice as long because a round trip is lost twice as often as a packet. `Mtu` waits twice as long again, because only
//! every second Ping is of full size.
//!
//! Silence is that of the peer only while we listen: [`Health::excuse`] takes out the time in which this thread stood still.

use std::time::{Duration, Instant};

use topology::Link;
use wire::sequence::{Arrivals, Receipts};

use crate::reason::DownReason;

/// Heartbeat intervals that the loss figure looks back over.
const WINDOWS: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct Health {
    down_after: Duration,
    suspect_after: Duration,
    heard_at: Instant,
    /// Not heard for `suspect_after`, as of the last [`Self::listen`].
    silent: bool,
    /// The peer says that it is us whom it does not hear.
    deaf_peer: bool,
    /// What the peer says of our silence before this is due to us: we stood still.
    steady_from: Instant,
    echoed_at: Instant,
    /// When a Ping of full size was last echoed; absent where none are sent.
    proven_at: Option<Instant>,
    echoed: bool,
    rtt_us: u32,
    jitter_us: u32,
    last_rtt_us: u32,
    sequence: Sequence,
}

impl Health {
    /// At the moment a connection is established, at the end that proves the size (`proves`) or at the other.
    pub(crate) fn new(link: &Link, proves: bool, now: Instant) -> Self {
        Self {
            down_after: Duration::from_millis(link.down_after_ms.into()),
            suspect_after: link.suspect_after(),
            heard_at: now,
            silent: false,
            deaf_peer: false,
            steady_from: now,
            echoed_at: now,
            proven_at: proves.then_some(now),
            echoed: false,
            rtt_us: 0,
            jitter_us: 0,
            last_rtt_us: 0,
            sequence: Sequence::default(),
        }
    }

    /// A datagram with this sequence number arrived.
    pub(crate) fn heard(&mut self, sequence: u16, now: Instant) {
        self.heard_at = self.heard_at.max(now);
        self.silent = false;
        self.sequence.received(sequence);
    }

    /// Looks whether the peer has been silent for so long that the link is suspect.
    pub(crate) fn listen(&mut self, now: Instant) {
        self.silent = now >= self.heard_at + self.suspect_after;
    }

    /// The peer says whether it hears us.
    pub(crate) fn told(&mut self, deaf: bool, now: Instant) {
        self.deaf_peer = deaf && now >= self.steady_from;
    }

    /// We stood still for this long: nothing was heard or sent, and that says nothing of the peer.
    pub(crate) fn excuse(&mut self, late: Duration, now: Instant) {
        let shift = |at: Instant| (at + late).min(now);
        self.heard_at = shift(self.heard_at);
        self.echoed_at = shift(self.echoed_at);
        self.proven_at = self.proven_at.map(shift);
        self.steady_from = now + self.suspect_after;
    }

    /// Whether the peer is silent.
    pub(crate) const fn is_silent(&self) -> bool {
        self.silent
    }

    /// Whether one of the two ends does not hear the other.
    pub(crate) const fn is_suspect(&self) -> bool {
        self.silent || self.deaf_peer
    }

    /// Whether the path works both ways by the latest evidence there can be. When everything fails at once, the last echo of one link and
    /// the last word on another are a heartbeat apart at most; half of `suspect_after` is no less than one, and no more than what it
    /// leaves of itself without one.
    pub(crate) fn answers(&self, now: Instant) -> bool {
        self.echoed && now <= self.echoed_at + self.suspect_after / 2
    }

    /// A Pong came back for a Ping sent at `sent_us` of the same clock as `now_us`. Returns whether it counts:
    /// a stamp from the future or older than the detection time proves nothing. `full`: it was of full size.
    pub(crate) fn echoed(&mut self, sent_us: u64, now_us: u64, full: bool, now: Instant) -> bool {
        let Some(rtt_us) = now_us.checked_sub(sent_us) else {
            return false;
        };
        if Duration::from_micros(rtt_us) > self.down_after * 2 {
            return false;
        }
        let rtt_us = u32::try_from(rtt_us).unwrap_or(u32::MAX);
        if self.echoed {
            self.jitter_us = smooth(self.jitter_us, rtt_us.abs_diff(self.last_rtt_us), 16);
            self.rtt_us = smooth(self.rtt_us, rtt_us, 8);
        } else {
            self.rtt_us = rtt_us;
        }
        self.last_rtt_us = rtt_us;
        self.echoed = true;
        self.echoed_at = self.echoed_at.max(now);
        if full {
            self.proven_at = self.proven_at.map(|at| at.max(now));
        }
        true
    }

    /// Why the connection must be given up, if it must.
    pub(crate) fn verdict(&self, now: Instant) -> Option<DownReason> {
        if now >= self.heard_at + self.down_after {
            Some(DownReason::Silent)
        } else if now >= self.echoed_at + self.down_after * 2 {
            Some(DownReason::NoEcho)
        } else if self.proof_ends().is_some_and(|end| now >= end) {
            Some(DownReason::Mtu)
        } else {
            None
        }
    }

    fn proof_ends(&self) -> Option<Instant> {
        Some(self.proven_at? + self.down_after * 4)
    }

    /// When [`Self::verdict`] or [`Self::listen`] may say otherwise.
    pub(crate) fn deadline(&self) -> Instant {
        let silent_after = if self.silent {
            self.down_after
        } else {
            self.suspect_after.min(self.down_after)
        };
        let alive = (self.heard_at + silent_after).min(self.echoed_at + self.down_after * 2);
        self.proof_ends().map_or(alive, |end| end.min(alive))
    }

    /// Once per heartbeat interval: closes a window of the loss figure.
    pub(crate) fn tick(&mut self) {
        self.sequence.rotate();
    }

    /// Smoothed round-trip time.
    pub(crate) const fn rtt_us(&self) -> u32 {
        self.rtt_us
    }

    /// Smoothed difference between successive round-trip times (as RFC 3550 §6.4.1 smooths it).
    pub(crate) const fn jitter_us(&self) -> u32 {
        self.jitter_us
    }

    /// Datagrams of the peer that arrived, were lost, or came out of order.
    pub(crate) const fn arrivals(&self) -> Arrivals {
        self.sequence.receipts.arrivals()
    }

    /// Share of the peer's datagrams that did not arrive, in parts per million.
    pub(crate) fn loss_ppm(&self) -> u32 {
        self.sequence.loss_ppm()
    }
}

fn smooth(old: u32, sample: u32, weight: u32) -> u32 {
    let sum = u64::from(old) * u64::from(weight - 1) + u64::from(sample);
    u32::try_from(sum / u64::from(weight)).unwrap_or(u32::MAX)
}

/// Counts expected and received datagrams. QUIC removes duplicates, so a late one is simply received late.
#[derive(Clone, Debug, Default)]
struct Sequence {
    receipts: Receipts,
    /// Expected and received.
    current: (u32, u32),
    windows: [(u32, u32); WINDOWS],
    next_window: usize,
}

impl Sequence {
    fn received(&mut self, sequence: u16) {
        self.current.0 += u32::from(self.receipts.received(sequence));
        self.current.1 += 1;
    }

    fn rotate(&mut self) {
        if let Some(window) = self.windows.get_mut(self.next_window) {
            *window = self.current;
        }
        self.next_window = (self.next_window + 1) % WINDOWS;
        self.current = (0, 0);
    }

    fn loss_ppm(&self) -> u32 {
        let (expected, received) = self
            .windows
            .iter()
            .chain([&self.current])
            .fold((0u64, 0u64), |(e, r), (expected, received)| {
                (e + u64::from(*expected), r + u64::from(*received))
            });
        let lost = expected.saturating_sub(received);
        (lost * 1_000_000)
            .checked_div(expected)
            .and_then(|ppm| u32::try_from(ppm).ok())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary epoch for an invented clock"
    )]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn silence_and_missing_echo_are_told_apart() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        assert_eq!(health.verdict(start + ms(499)), None);
        assert_eq!(health.deadline(), start + ms(250));
        health.listen(start + ms(250));
        assert_eq!(health.deadline(), start + ms(500));
        assert_eq!(health.verdict(start + ms(500)), Some(DownReason::Silent));
        for at in (100..1100).step_by(100) {
            health.heard(0, start + ms(at));
        }
        assert_eq!(health.verdict(start + ms(999)), None);
        assert_eq!(health.verdict(start + ms(1000)), Some(DownReason::NoEcho));
        assert!(health.echoed(1_000_000, 1_080_000, false, start + ms(1000)));
        assert_eq!(health.verdict(start + ms(1400)), None);
    }

    #[test]
    fn silence_is_suspect_until_anything_is_heard() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        for (at, silent) in [(0, false), (249, false), (250, true), (400, true)] {
            health.listen(start + ms(at));
            assert_eq!(
                (health.is_silent(), health.is_suspect()),
                (silent, silent),
                "{at}"
            );
        }
        health.heard(0, start + ms(400));
        assert!(!health.is_suspect());
        health.listen(start + ms(649));
        assert!(!health.is_suspect());
    }

    #[test]
    fn a_peer_that_hears_nothing_makes_the_link_suspect_as_long_as_it_says_so() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        health.told(true, start);
        assert_eq!((health.is_silent(), health.is_suspect()), (false, true));
        health.heard(0, start + ms(10));
        assert!(health.is_suspect());
        health.told(false, start + ms(10));
        assert!(!health.is_suspect());
    }

    #[test]
    fn time_in_which_we_stood_still_is_nobodys_silence() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), true, start);
        health.heard(0, start + ms(80));
        // A turn that was due after 100 ms came after 900.
        health.excuse(ms(800), start + ms(900));
        assert_eq!(health.verdict(start + ms(900)), None);
        health.listen(start + ms(900));
        assert!(!health.is_suspect());
        // From then on time counts again, from where it stood: 20 ms of silence had been heard.
        health.listen(start + ms(1129));
        assert!(!health.is_suspect());
        health.listen(start + ms(1130));
        assert!(health.is_suspect());
        assert_eq!(health.verdict(start + ms(1379)), None);
        assert_eq!(health.verdict(start + ms(1380)), Some(DownReason::Silent));
        // That the peer did not hear us meanwhile is our doing, until it may have heard us for long enough.
        for (at, suspect) in [(900, false), (1149, false), (1150, true)] {
            health.heard(1, start + ms(at));
            health.told(true, start + ms(at));
            assert_eq!(health.is_suspect(), suspect, "{at}");
        }
    }

    #[test]
    fn a_link_answers_when_its_last_echo_is_no_older_than_half_of_what_makes_it_suspect() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        assert!(!health.answers(start), "nothing was echoed so far");
        assert!(health.echoed(0, 80_000, false, start));
        assert!(health.answers(start + ms(125)));
        assert!(!health.answers(start + ms(126)));
    }

    #[test]
    fn small_echoes_do_not_prove_the_size() {
        let start = epoch();
        for (proves, full, verdict) in [
            (true, false, Some(DownReason::Mtu)),
            (true, true, None),
            (false, false, None),
        ] {
            let mut health = Health::new(&Link::default(), proves, start);
            for at in (100..=2000).step_by(100) {
                health.heard(0, start + ms(at));
                assert!(health.echoed(0, 80_000, full, start + ms(at)));
                assert!(at == 2000 || health.verdict(start + ms(at)).is_none());
            }
            assert_eq!(health.verdict(start + ms(2000)), verdict);
            assert_eq!(verdict.is_some(), health.deadline() <= start + ms(2000));
        }
    }

    #[test]
    fn rtt_and_jitter_are_smoothed() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        assert!(health.echoed(0, 80_000, false, start));
        assert_eq!((health.rtt_us(), health.jitter_us()), (80_000, 0));
        assert!(health.echoed(0, 96_000, false, start));
        assert_eq!((health.rtt_us(), health.jitter_us()), (82_000, 1000));
    }

    #[test]
    fn stamps_from_the_future_or_the_past_prove_nothing() {
        let start = epoch();
        let mut health = Health::new(&Link::default(), false, start);
        assert!(!health.echoed(11, 10, false, start));
        assert!(!health.echoed(0, 1_000_001, false, start));
        assert_eq!(health.rtt_us(), 0);
    }

    #[test]
    fn loss_counts_gaps_across_the_wrap_and_forgives_reordering() {
        let mut sequence = Sequence::default();
        for n in 0..1000u16 {
            let n = n.wrapping_add(65_000);
            // Every tenth is lost, every pair swapped.
            if n % 10 != 0 {
                sequence.received(n ^ 1);
            }
        }
        let loss = sequence.loss_ppm();
        assert!((95_000..=105_000).contains(&loss), "{loss}");
    }

    #[test]
    fn loss_is_forgotten_after_the_windows() {
        let mut sequence = Sequence::default();
        sequence.received(0);
        sequence.received(9);
        assert_eq!(sequence.loss_ppm(), 800_000);
        for _ in 0..=WINDOWS {
            sequence.rotate();
        }
        assert_eq!(sequence.loss_ppm(), 0);
    }
}
