//! A far end that measures: the voice of a transceiver that notes when each frame came, and speaks at a pace of its own, so that a
//! silence towards it and a silence from it are two figures. The program `lab-transceiver` is a transceiver with it.
//!
//! ```text
//! client ──frame──► noted: its number (from the RTP sequence), and when
//! client ◄──frame── every 20 ms from the first one on, whatever comes meanwhile:
//!                   0xf8 (an Opus TOC) | number u32 | number of the last frame heard u32 | µs since then u32 | filler
//! client ──"report"──► falls silent, and says what it noted: [`Head`] as JSON, then entries of number u32 | µs u32
//! ```
//!
//! Any other message goes back as it came. It reads no clock: the transceiver tells it the time.

use std::time::{Duration, Instant};

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use transceiver::backend::{Backend, Channel, Frame, Message, Outbox};

/// One frame each.
pub(crate) const FRAME_INTERVAL: Duration = Duration::from_millis(20);
/// 20 ms at 48 kHz.
const FRAME_SAMPLES: u32 = 960;
/// Bytes of a frame: 32 kbit/s, as the load client's.
const FRAME_LEN: usize = 80;
/// CELT, full band, 20 ms, mono, one frame: whatever follows can be decoded.
const OPUS_TOC: u8 = 0xf8;
/// Frames that are noted at most: five minutes. What comes later is counted.
const NOTED_MAX: usize = 16_384;
/// Entries in one message of a report.
const ENTRIES_PER_MESSAGE: usize = 1024;
const ENTRY_LEN: usize = 8;
/// What a client says to be told.
pub(crate) const REPORT: &str = "report";

/// A frame that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) number: u32,
    /// Since the first one.
    pub(crate) at_us: u32,
}

/// What a report begins with.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Head {
    /// Frames spoken.
    pub(crate) spoken: u32,
    /// Frames noted, which follow.
    pub(crate) noted: u32,
    /// Frames heard after the notes were full.
    pub(crate) unnoted: u32,
}

/// What a spoken frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spoken {
    pub(crate) number: u32,
    /// The last one heard, and how long ago.
    pub(crate) heard: u32,
    pub(crate) age_us: u32,
}

impl Spoken {
    fn payload(self) -> Bytes {
        let mut payload = BytesMut::with_capacity(FRAME_LEN);
        payload.put_u8(OPUS_TOC);
        [self.number, self.heard, self.age_us]
            .into_iter()
            .for_each(|word| payload.put_u32(word));
        payload.resize(FRAME_LEN, 0);
        payload.freeze()
    }

    /// `None` for what no meter said.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (head, words) = payload.split_first()?;
        let mut words = words.as_chunks::<4>().0.iter().copied();
        let mut word = || words.next().map(u32::from_be_bytes);
        let spoken = Self {
            number: word()?,
            heard: word()?,
            age_us: word()?,
        };
        (*head == OPUS_TOC && payload.len() == FRAME_LEN).then_some(spoken)
    }
}

/// See the module head.
#[derive(Debug, Default)]
pub struct Meter {
    begun: Option<Instant>,
    next: Option<Instant>,
    payload_type: u8,
    spoken: u32,
    last: Option<(Heard, Instant)>,
    noted: Vec<Heard>,
    unnoted: u32,
}

impl Meter {
    /// The RTP sequence number counts on beyond 65,535.
    fn number(&self, sequence: u16) -> u32 {
        let Some((last, _)) = self.last else {
            return u32::from(sequence);
        };
        let [.., high, low] = last.number.to_be_bytes();
        let ahead = sequence.wrapping_sub(u16::from_be_bytes([high, low]));
        last.number.wrapping_add_signed(ahead.cast_signed().into())
    }

    fn note(&mut self, heard: Heard, now: Instant) {
        if self.noted.len() < NOTED_MAX {
            self.noted.push(heard);
        } else {
            self.unnoted += 1;
        }
        if self.last.is_none_or(|(last, _)| heard.number > last.number) {
            self.last = Some((heard, now));
        }
    }

    fn report(&mut self, channel: Channel, out: &mut Outbox) {
        self.next = None;
        let head = Head {
            spoken: self.spoken,
            noted: u32::try_from(self.noted.len()).unwrap_or(u32::MAX),
            unnoted: self.unnoted,
        };
        out.send_message(Message {
            channel,
            text: true,
            data: serde_json::to_vec(&head).unwrap_or_default().into(),
        });
        for entries in self.noted.chunks(ENTRIES_PER_MESSAGE) {
            let mut data = BytesMut::with_capacity(entries.len() * ENTRY_LEN);
            for heard in entries {
                data.put_u32(heard.number);
                data.put_u32(heard.at_us);
            }
            out.send_message(Message {
                channel,
                text: false,
                data: data.freeze(),
            });
        }
    }
}

/// Entries of one message of a report.
pub(crate) fn entries(message: &[u8]) -> impl Iterator<Item = Heard> {
    let entries = message.as_chunks::<ENTRY_LEN>().0.iter();
    entries.map(|entry| {
        let entry = u64::from_be_bytes(*entry);
        let word = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
        Heard {
            number: word(entry >> 32),
            at_us: word(entry),
        }
    })
}

impl Backend for Meter {
    fn handle_audio(&mut self, frame: Frame, now: Instant, _out: &mut Outbox) {
        let begun = *self.begun.get_or_insert(now);
        if self.last.is_none() {
            self.payload_type = frame.payload_type;
            self.next = Some(now + FRAME_INTERVAL);
        }
        let heard = Heard {
            number: self.number(frame.sequence),
            at_us: us(now - begun),
        };
        self.note(heard, now);
    }

    fn handle_message(&mut self, message: Message, _now: Instant, out: &mut Outbox) {
        if message.text && message.data == REPORT.as_bytes() {
            self.report(message.channel, out);
        } else {
            out.send_message(message);
        }
    }

    fn handle_channel_open(&mut self, _channel: Channel, _now: Instant, _out: &mut Outbox) {}

    fn handle_timeout(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(due) = self.next.filter(|due| *due <= now) {
            let Some((last, at)) = self.last else {
                return;
            };
            self.next = Some(due + FRAME_INTERVAL);
            let spoken = Spoken {
                number: self.spoken,
                heard: last.number,
                age_us: us(now - at),
            };
            let [.., high, low] = self.spoken.to_be_bytes();
            out.send_audio(Frame {
                payload_type: self.payload_type,
                sequence: u16::from_be_bytes([high, low]),
                timestamp: self.spoken.wrapping_mul(FRAME_SAMPLES),
                marker: false,
                payload: spoken.payload(),
            });
            self.spoken += 1;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.next
    }
}

pub(crate) fn us(elapsed: Duration) -> u32 {
    u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u16) -> Frame {
        Frame {
            payload_type: 111,
            sequence,
            timestamp: 0,
            marker: false,
            payload: Bytes::new(),
        }
    }

    #[test]
    fn numbers_go_on_where_sequence_numbers_begin_anew() {
        let now = runtime::clock::now();
        let (mut meter, mut out) = (Meter::default(), Outbox::default());
        for sequence in [65_534, 65_535, 1, 0, 2] {
            meter.handle_audio(frame(sequence), now, &mut out);
        }
        let numbers = meter.noted.iter().map(|heard| heard.number);
        assert!(numbers.eq([65_534, 65_535, 65_537, 65_536, 65_538]));
    }

    #[test]
    fn it_speaks_on_when_nothing_comes_and_stops_when_asked_for_its_notes() {
        let start = runtime::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let (mut meter, mut out) = (Meter::default(), Outbox::default());
        assert_eq!(meter.poll_timeout(), None);
        meter.handle_audio(frame(7), at(0), &mut out);
        meter.handle_audio(frame(8), at(30), &mut out);
        assert_eq!(meter.poll_timeout(), Some(at(20)));
        // The clock was looked at late: two are due.
        meter.handle_timeout(at(45), &mut out);
        assert_eq!(meter.spoken, 2);
        assert_eq!(meter.poll_timeout(), Some(at(60)));
        let report = Message {
            channel: Channel(1),
            text: true,
            data: REPORT.into(),
        };
        meter.handle_message(report, at(50), &mut out);
        assert_eq!(meter.poll_timeout(), None);
    }

    #[test]
    fn what_it_says_can_be_read() {
        let spoken = Spoken {
            number: 3,
            heard: 70_000,
            age_us: 19_000,
        };
        let payload = spoken.payload();
        assert_eq!(Spoken::parse(&payload), Some(spoken));
        assert_eq!(Spoken::parse(&payload[..20]), None);
        assert_eq!(Spoken::parse(&[0; FRAME_LEN]), None);
        let entry = [0, 0, 0, 9, 0, 1, 0, 0];
        let heard = Heard {
            number: 9,
            at_us: 65_536,
        };
        assert!(entries(&entry).eq([heard]));
    }
}
