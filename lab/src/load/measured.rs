//! What a session measures together with a far end that measures ([`crate::meter`]): each frame of either direction with the time it
//! was sent and the time it came, on one clock.
//!
//! The far end counts time from the first frame it heard. Its clock is laid over ours so that the quickest frame took half of
//! the quickest round trip.

use crate::meter::{self, Head, Heard, Spoken};

/// A session's own notes, and those of its far end as they come in.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// `TRANSCEIVER/ID`.
    pub(super) name: String,
    /// By number: when it was sent, in microseconds.
    sent: Vec<u32>,
    frames: Vec<Frame>,
    round_trips: Vec<RoundTrip>,
    head: Option<Head>,
    noted: Vec<Heard>,
}

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// From 0, in the order they were sent.
    pub number: u32,
    /// Microseconds since the load began.
    pub at_us: u32,
}

/// How long a frame and an answer took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// When the answer came, in microseconds since the load began.
    pub at_us: u32,
    /// How long.
    pub took_us: u32,
}

/// A session with both directions of its media. Times are microseconds since the load began.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// `TRANSCEIVER/ID`.
    pub name: String,
    /// By number: when a frame was sent to the far end.
    pub sent: Vec<u32>,
    /// Frames that the far end heard, by time.
    pub up: Vec<Frame>,
    /// Frames that the far end had spoken when the call ended.
    pub spoken: u32,
    /// Those that were heard, by time.
    pub down: Vec<Frame>,
    /// Round trips.
    pub round_trips: Vec<RoundTrip>,
    /// It did not live to the end, or its far end had no more to say about it.
    pub lost: bool,
}

impl Measured {
    pub(super) fn handle_sent(&mut self, number: u32, at_us: u32) {
        // Numbers of frames that could not be sent are skipped.
        let index = number as usize;
        if index >= self.sent.len() {
            self.sent.resize(index, at_us);
            self.sent.push(at_us);
        }
    }

    /// Whether it was one of the far end's.
    pub(super) fn handle_frame(&mut self, payload: &[u8], at_us: u32) -> bool {
        let Some(spoken) = Spoken::parse(payload) else {
            return false;
        };
        self.frames.push(Frame {
            number: spoken.number,
            at_us,
        });
        if let Some(sent_us) = self.sent.get(spoken.heard as usize) {
            let took_us = at_us.saturating_sub(*sent_us);
            self.round_trips.push(RoundTrip {
                at_us,
                took_us: took_us.saturating_sub(spoken.age_us),
            });
        }
        true
    }

    /// Whether the message was of a report.
    pub(super) fn handle_message(&mut self, data: &[u8], text: bool) -> bool {
        if !text {
            self.noted.extend(meter::entries(data));
            return true;
        }
        let head = serde_json::from_slice(data).ok();
        self.head = self.head.or(head);
        head.is_some()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.head
            .is_some_and(|head| self.noted.len() >= head.noted as usize)
    }

    pub(super) fn call(&self, lost: bool) -> Call {
        Call {
            name: self.name.clone(),
            sent: self.sent.clone(),
            up: self.up(),
            spoken: self.head.map_or(0, |head| head.spoken),
            down: self.frames.clone(),
            round_trips: self.round_trips.clone(),
            lost: lost || !self.is_complete() || self.head.is_some_and(|head| head.unnoted > 0),
        }
    }

    /// The far end's notes on our clock.
    fn up(&self) -> Vec<Frame> {
        let way_us = |heard: &Heard| {
            let sent_us = self.sent.get(heard.number as usize)?;
            Some(i64::from(heard.at_us) - i64::from(*sent_us))
        };
        let quickest_us = self.noted.iter().filter_map(way_us).min();
        let trips = self.round_trips.iter().map(|trip| trip.took_us);
        let half_us = i64::from(trips.min().unwrap_or_default()) / 2;
        let ahead_us = quickest_us.unwrap_or_default() - half_us;
        let on_our_clock = |heard: &Heard| Frame {
            number: heard.number,
            at_us: u32::try_from(i64::from(heard.at_us) - ahead_us).unwrap_or_default(),
        };
        self.noted.iter().map(on_our_clock).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clocks_become_one() {
        let mut measured = Measured::default();
        for number in 0..3 {
            measured.handle_sent(number, 1_000_000 + number * 20_000);
        }
        // 7 ms a way, and the second frame waited 30 ms more.
        measured.noted = [(0, 0), (1, 50_000), (2, 50_000)]
            .map(|(number, at_us)| Heard { number, at_us })
            .to_vec();
        measured.round_trips = [20_000, 14_000]
            .map(|took_us| RoundTrip { at_us: 0, took_us })
            .to_vec();
        let at = measured.up().into_iter().map(|frame| frame.at_us);
        assert!(at.eq([1_007_000, 1_057_000, 1_057_000]));
    }

    #[test]
    fn a_report_without_its_end_is_a_call_that_is_lost() {
        let mut measured = Measured::default();
        assert!(!measured.handle_message(b"hello", true));
        assert!(measured.handle_message(br#"{"spoken":9,"noted":1,"unnoted":0}"#, true));
        assert!(measured.call(false).lost);
        assert!(measured.handle_message(&[0; 8], false));
        let call = measured.call(false);
        assert_eq!((call.lost, call.spoken, call.up.len()), (false, 9, 1));
        assert!(measured.call(true).lost);
    }
}
