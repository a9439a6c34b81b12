//! The packets of calls while they are under way: numbered, counted once, timed.

use std::time::{Duration, Instant};

use serde::Serialize;

/// Bytes of a packet: 20 ms of Opus with its SRTP around it, roughly.
const PACKET_LEN: usize = 160;
/// Round trips of which percentiles are taken at most.
const ROUND_TRIPS_MAX: usize = 1 << 20;

/// What became of the packets of a time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Figures {
    /// Packets sent.
    pub sent: u64,
    /// Packets whose echo came.
    pub received: u64,
    /// Echoes that came twice, or that nobody had sent.
    pub strange: u64,
    /// Echoes that the kernel dropped in front of the clients: the lab's loss, not the network's.
    pub overflows: u64,
    /// Half of the echoes came within this.
    pub p50: Duration,
    /// All but a hundredth came within this.
    pub p99: Duration,
}

impl Figures {
    /// Packets whose echo did not come.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// Packets under way.
///
/// ```text
/// 0 0x80 | 1 zero | 8 number u64 | 16 sent, µs after the beginning, u64 | 24 filler
/// ```
pub(super) struct Talk {
    pub(super) began: Instant,
    pub(super) sent: u64,
    pub(super) refused: u64,
    skipped: u64,
    received: u64,
    strange: u64,
    /// A bit for each number whose echo came.
    seen: Vec<u64>,
    round_trips_us: Vec<u32>,
}

impl Talk {
    pub(super) const fn new(began: Instant) -> Self {
        Self {
            began,
            sent: 0,
            refused: 0,
            skipped: 0,
            received: 0,
            strange: 0,
            seen: Vec::new(),
            round_trips_us: Vec::new(),
        }
    }

    /// Leaves a number out: whose turn it is has no flow yet.
    pub(super) fn skip(&mut self) {
        self.mark(self.sent);
        self.sent += 1;
        self.skipped += 1;
    }

    pub(super) fn packet(&self, now: Instant) -> [u8; PACKET_LEN] {
        let mut packet = [0x55; PACKET_LEN];
        let sent_us = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        let head = [
            0x8000_0000_0000_0000_u64.to_be_bytes(),
            self.sent.to_be_bytes(),
            sent_us.to_be_bytes(),
        ]
        .concat();
        for (slot, byte) in packet.iter_mut().zip(head) {
            *slot = byte;
        }
        packet
    }

    pub(super) fn take(&mut self, packet: &[u8], now: Instant) {
        let number = |at: usize| {
            let bytes = packet.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_be_bytes(*bytes))
        };
        let (Some(index), Some(sent_us)) = (number(8), number(16)) else {
            self.strange += 1;
            return;
        };
        if packet.len() != PACKET_LEN || index >= self.sent || !self.mark(index) {
            self.strange += 1;
            return;
        }
        self.received += 1;
        if self.round_trips_us.len() < ROUND_TRIPS_MAX {
            let now_us = (now - self.began).as_micros();
            let took_us = now_us.saturating_sub(sent_us.into());
            self.round_trips_us
                .push(u32::try_from(took_us).unwrap_or(u32::MAX));
        }
    }

    /// Whether it is the first echo of this number.
    fn mark(&mut self, index: u64) -> bool {
        let word = usize::try_from(index / 64).unwrap_or(usize::MAX);
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let bit = 1_u64 << (index % 64);
        let Some(bits) = self.seen.get_mut(word) else {
            return false;
        };
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.received + self.refused + self.skipped >= self.sent
    }

    pub(super) fn figures(mut self, overflows: u64) -> Figures {
        self.round_trips_us.sort_unstable();
        let at = |hundredths: usize| {
            let index = self.round_trips_us.len() * hundredths / 100;
            let us = self.round_trips_us.get(index).copied().unwrap_or(0);
            Duration::from_micros(us.into())
        };
        Figures {
            sent: self.sent - self.refused - self.skipped,
            received: self.received,
            strange: self.strange,
            overflows,
            p50: at(50),
            p99: at(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::clock;

    use super::*;

    #[test]
    fn every_packet_is_counted_once() {
        let now = clock::now();
        let mut talk = Talk::new(now);
        let packets: Vec<_> = (0..200)
            .map(|_| {
                let packet = talk.packet(now);
                talk.sent += 1;
                packet
            })
            .collect();
        let later = now + Duration::from_millis(3);
        for packet in packets.iter().rev().chain(&packets[..5]) {
            talk.take(packet, later);
        }
        talk.take(b"short", later);
        let mut unsent = packets[0];
        unsent[8] = 0xff;
        talk.take(&unsent, later);
        assert!(talk.is_complete());
        let figures = talk.figures(0);
        assert_eq!(
            (figures.received, figures.lost(), figures.strange),
            (200, 0, 7)
        );
        assert_eq!(
            (figures.p50, figures.p99),
            (Duration::from_millis(3), Duration::from_millis(3))
        );
    }
}
