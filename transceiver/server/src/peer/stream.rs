//! Which of a client's RTP streams is the voice, how complete it is, and how what a backend sends stays one stream.
//!
//! A client has one voice, but its SSRC may change when it renegotiates, and it may offer several audio m-lines. The backend
//! hears one stream at a time; another takes over when the present one has been silent for [`TAKEOVER_AFTER`]. What goes
//! back is one SSRC for ever, so sequence numbers and timestamps go on where they were (RFC 3550 §5.1).

use std::time::{Duration, Instant};

/// Silence after which another stream of the client becomes its voice.
const TAKEOVER_AFTER: Duration = Duration::from_millis(500);
/// Samples between the last frame of one stream and the first of the next: 20 ms at 48 kHz.
const TAKEOVER_SAMPLES: u32 = 960;
/// A sequence number this far from the highest one is a sender that began anew, not a loss (RFC 3550 §A.1, MAX_DROPOUT).
const DROPOUT_MAX: u16 = 3000;

/// The voice of a client, as it comes in.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    current: Option<Current>,
    streams: u32,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    ssrc: u32,
    highest: u16,
    heard: Instant,
}

/// What a packet does to the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// The next one, after this many that are missing.
    Ahead(u16),
    /// One that was taken for missing.
    Late,
    /// One of a stream that is not the voice.
    Other,
}

impl Inbound {
    pub(super) fn handle_packet(&mut self, ssrc: u32, sequence: u16, now: Instant) -> Arrival {
        let Some(current) = self
            .current
            .as_mut()
            .filter(|current| current.ssrc == ssrc || now < current.heard + TAKEOVER_AFTER)
        else {
            self.begin(ssrc, sequence, now);
            return Arrival::Ahead(0);
        };
        if current.ssrc != ssrc {
            return Arrival::Other;
        }
        current.heard = now;
        let ahead = sequence.wrapping_sub(current.highest);
        let behind = current.highest.wrapping_sub(sequence);
        if ahead.min(behind) > DROPOUT_MAX {
            self.begin(ssrc, sequence, now);
            return Arrival::Ahead(0);
        }
        if (1..=DROPOUT_MAX).contains(&ahead) {
            current.highest = sequence;
            return Arrival::Ahead(ahead - 1);
        }
        Arrival::Late
    }

    fn begin(&mut self, ssrc: u32, sequence: u16, now: Instant) {
        self.streams += 1;
        self.current = Some(Current {
            ssrc,
            highest: sequence,
            heard: now,
        });
    }

    /// Counts up with each takeover: frames of one number belong together.
    pub(super) const fn number(&self) -> u32 {
        self.streams
    }
}

/// What goes back to the client.
#[derive(Debug, Default)]
pub(super) struct Outbound {
    stream: u32,
    sequence_offset: u16,
    timestamp_offset: u32,
    last: Option<(u16, u32)>,
}

impl Outbound {
    /// Sequence number and timestamp on the wire for a frame that answers inbound stream `stream`.
    pub(super) fn map(&mut self, stream: u32, sequence: u16, timestamp: u32) -> (u16, u32) {
        if let Some((last_sequence, last_timestamp)) = self.last.filter(|_| stream != self.stream) {
            let next = last_timestamp.wrapping_add(TAKEOVER_SAMPLES);
            self.sequence_offset = last_sequence.wrapping_add(1).wrapping_sub(sequence);
            self.timestamp_offset = next.wrapping_sub(timestamp);
        }
        self.stream = stream;
        let mapped = (
            sequence.wrapping_add(self.sequence_offset),
            timestamp.wrapping_add(self.timestamp_offset),
        );
        let newer = |(last, _): (u16, u32)| mapped.0.wrapping_sub(last).cast_signed() > 0;
        if self.last.is_none_or(newer) {
            self.last = Some(mapped);
        }
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_late_packets_wraps_and_restarts() {
        let now = runtime::clock::now();
        let mut inbound = Inbound::default();
        let steps = [
            (65_533, Arrival::Ahead(0)),
            (65_534, Arrival::Ahead(0)),
            (1, Arrival::Ahead(2)),
            (0, Arrival::Late),
            (2, Arrival::Ahead(0)),
            (2 + DROPOUT_MAX, Arrival::Ahead(DROPOUT_MAX - 1)),
            (40_000, Arrival::Ahead(0)),
            (40_001, Arrival::Ahead(0)),
        ];
        for (sequence, arrival) in steps {
            assert_eq!(
                inbound.handle_packet(7, sequence, now),
                arrival,
                "{sequence}"
            );
        }
        assert_eq!(inbound.number(), 2);
    }

    #[test]
    fn another_stream_takes_over_only_from_a_silent_one() {
        let now = runtime::clock::now();
        let mut inbound = Inbound::default();
        assert_eq!(inbound.handle_packet(7, 1, now), Arrival::Ahead(0));
        let soon = now + TAKEOVER_AFTER / 2;
        assert_eq!(inbound.handle_packet(8, 500, soon), Arrival::Other);
        assert_eq!(inbound.handle_packet(7, 2, soon), Arrival::Ahead(0));
        let later = soon + TAKEOVER_AFTER;
        assert_eq!(inbound.handle_packet(8, 900, later), Arrival::Ahead(0));
        assert_eq!(inbound.handle_packet(7, 3, later), Arrival::Other);
        assert_eq!(inbound.number(), 2);
    }

    #[test]
    fn what_goes_back_is_one_stream() {
        let mut outbound = Outbound::default();
        assert_eq!(outbound.map(1, 65_535, 1_000), (65_535, 1_000));
        assert_eq!(outbound.map(1, 0, 1_960), (0, 1_960));
        assert_eq!(outbound.map(2, 900, 77), (1, 2_920));
        assert_eq!(outbound.map(2, 902, 1_997), (3, 4_840));
        assert_eq!(outbound.map(2, 901, 1_037), (2, 3_880));
        assert_eq!(outbound.map(3, 5, 5), (4, 5_800));
    }
}
