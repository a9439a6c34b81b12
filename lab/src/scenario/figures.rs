//! What a scenario did to its calls, out of the frames of each: silences around the faults, frames that were lost, and the PoPs that
//! carried them. Pure.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::paths::{Paths, Sample};
use crate::load::{Call, measured::Frame};

/// A stretch of time on the clock of the load, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// From when on frames count: all calls flow.
    pub from_us: u32,
    /// The first fault.
    pub event_us: u32,
    /// The last frame was sent.
    pub end_us: u32,
}

/// How one figure is spread over the calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Nine of ten are not above it.
    pub p90: f64,
    /// The largest.
    pub max: f64,
}

/// One direction of all calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Way {
    /// The longest time between two frames that ended after the first fault, in milliseconds: 20 is none.
    pub silence_ms: Spread,
    /// Frames lost, of all calls.
    pub lost: u64,
}

/// Everything about the calls of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Figures {
    /// Calls.
    pub sessions: usize,
    /// Calls that did not live to the end.
    pub sessions_lost: usize,
    /// Towards the far end.
    pub up: Way,
    /// From it.
    pub down: Way,
    /// The longest time in which the client itself stood still, in milliseconds: 20 is none. What is longer is the machine's doing.
    pub standstill_ms: f64,
    /// Median round trip before the first fault, in milliseconds.
    pub rtt_before_ms: f64,
    /// The same in the last second.
    pub rtt_after_ms: f64,
    /// Calls by the PoP that carried them before the first fault.
    pub path_before: BTreeMap<String, usize>,
    /// The same at the end.
    pub path_after: BTreeMap<String, usize>,
    /// Transceivers of the calls that were made later.
    pub later_calls: BTreeMap<String, usize>,
}

impl Figures {
    /// Of `calls`; `sessions` were to be made.
    #[must_use]
    pub fn of(calls: &[Call], sessions: usize, window: Window) -> Self {
        let lived: Vec<&Call> = calls.iter().filter(|call| !call.lost).collect();
        let before = |at: u32| (window.from_us..window.event_us).contains(&at);
        let last_s = window.end_us.saturating_sub(1_000_000)..window.end_us;
        Self {
            sessions,
            sessions_lost: sessions.saturating_sub(lived.len()),
            up: Way::of(&lived, window, |call| &call.up, Call::lost_up),
            down: Way::of(&lived, window, |call| &call.down, Call::lost_down),
            standstill_ms: standstill_ms(&lived, window),
            rtt_before_ms: median_rtt_ms(&lived, before),
            rtt_after_ms: median_rtt_ms(&lived, |at| last_s.contains(&at)),
            ..Self::default()
        }
    }

    /// Of one call of a browser: what its page measured of the downlink, and what the transceiver counted of the uplink.
    pub(super) fn of_browser(found: &Value, paths: &Paths, event: Instant, end: Instant) -> Self {
        let number = |field: &str| found.get(field).and_then(Value::as_f64).unwrap_or_default();
        let lived = found.get("state").and_then(Value::as_str) == Some("connected");
        let samples = paths.values().flatten();
        let samples: Vec<_> = samples.filter(|sample| sample.at <= end).collect();
        let silence_up_ms = longest_standstill_ms(&samples, event);
        Self {
            sessions: 1,
            sessions_lost: usize::from(!lived),
            up: Way {
                silence_ms: Spread::of(vec![silence_up_ms]),
                lost: 0,
            },
            down: Way {
                silence_ms: Spread::of(vec![number("silence_ms")]),
                lost: found
                    .get("lost")
                    .and_then(Value::as_u64)
                    .unwrap_or_default(),
            },
            ..Self::default()
        }
    }

    /// Field by field the middle one of several runs. Paths are those of the first.
    #[must_use]
    pub fn median(runs: &[Self]) -> Self {
        let of = |field: fn(&Self) -> f64| middle(runs.iter().map(field).collect());
        let count = |field: fn(&Self) -> u64| {
            let mut all: Vec<u64> = runs.iter().map(field).collect();
            all.sort_unstable();
            all.get(all.len() / 2).copied().unwrap_or_default()
        };
        let way = |mean: fn(&Self) -> f64,
                   p90: fn(&Self) -> f64,
                   max: fn(&Self) -> f64,
                   lost: fn(&Self) -> u64| Way {
            silence_ms: Spread {
                mean: of(mean),
                p90: of(p90),
                max: of(max),
            },
            lost: count(lost),
        };
        let lost = count(|run| run.sessions_lost as u64);
        Self {
            sessions_lost: usize::try_from(lost).unwrap_or(usize::MAX),
            up: way(
                |run| run.up.silence_ms.mean,
                |run| run.up.silence_ms.p90,
                |run| run.up.silence_ms.max,
                |run| run.up.lost,
            ),
            down: way(
                |run| run.down.silence_ms.mean,
                |run| run.down.silence_ms.p90,
                |run| run.down.silence_ms.max,
                |run| run.down.lost,
            ),
            rtt_before_ms: of(|run| run.rtt_before_ms),
            rtt_after_ms: of(|run| run.rtt_after_ms),
            ..runs.first().cloned().unwrap_or_default()
        }
    }
}

impl Way {
    fn of(
        calls: &[&Call],
        window: Window,
        frames: fn(&Call) -> &Vec<Frame>,
        lost: fn(&Call, Window) -> u64,
    ) -> Self {
        let silences = calls.iter().map(|call| silence_ms(frames(call), window));
        Self {
            silence_ms: Spread::of(silences.collect()),
            lost: calls.iter().map(|call| lost(call, window)).sum(),
        }
    }
}

impl Spread {
    /// Of values in any order.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let tenth = values.get((count * 9 / 10).min(count.saturating_sub(1)));
        Self {
            mean: values.iter().sum::<f64>() / count.max(1) as f64,
            p90: tenth.copied().unwrap_or_default(),
            max: values.last().copied().unwrap_or_default(),
        }
    }
}

impl Call {
    /// Frames that were sent in `window` and never heard by the far end.
    fn lost_up(&self, window: Window) -> u64 {
        let mut heard = vec![false; self.sent.len()];
        for frame in &self.up {
            if let Some(heard) = heard.get_mut(frame.number as usize) {
                *heard = true;
            }
        }
        let counts = |sent_us: u32| (window.from_us..=window.end_us).contains(&sent_us);
        let lost = self.sent.iter().zip(&heard);
        lost.filter(|(sent_us, heard)| counts(**sent_us) && !**heard)
            .count() as u64
    }

    /// Frames that the far end spoke, from the first that was heard in `window` on, and that were never heard.
    fn lost_down(&self, window: Window) -> u64 {
        let later = self
            .down
            .iter()
            .filter(|frame| frame.at_us >= window.from_us);
        let Some(first) = later.map(|frame| frame.number).min() else {
            return self.spoken.into();
        };
        let mut numbers: Vec<u32> = self.down.iter().map(|frame| frame.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let heard = numbers.iter().filter(|number| **number >= first).count() as u64;
        u64::from(self.spoken.saturating_sub(first)).saturating_sub(heard)
    }
}

/// The longest time after the first fault in which no call sent a frame that was due: the client did not run.
fn standstill_ms(calls: &[&Call], window: Window) -> f64 {
    let longest_us = |call: &&Call| {
        let pairs = call.sent.iter().zip(call.sent.iter().skip(1));
        let counts = |at_us: u32| (window.event_us..=window.end_us).contains(&at_us);
        let after = pairs.filter(|(_, later)| counts(**later));
        after.map(|(earlier, later)| later - earlier).max()
    };
    // One call may be late for reasons of its own; all of them are late together.
    let least_us = calls.iter().filter_map(longest_us).min();
    f64::from(least_us.unwrap_or_default()) / 1000.0
}

/// The longest time between two frames of which the later came after the first fault, up to the end.
#[must_use]
pub(super) fn silence_ms(frames: &[Frame], window: Window) -> f64 {
    let mut times: Vec<u32> = frames
        .iter()
        .map(|frame| frame.at_us)
        .filter(|at_us| *at_us >= window.from_us)
        .collect();
    times.sort_unstable();
    if times.is_empty() {
        times.push(window.from_us);
    }
    times.push(
        window
            .end_us
            .max(times.last().copied().unwrap_or(window.from_us)),
    );
    let pairs = times.iter().zip(times.iter().skip(1));
    let after = pairs.filter(|(_, later)| **later >= window.event_us);
    let longest_us = after.map(|(earlier, later)| later - earlier).max();
    f64::from(longest_us.unwrap_or_default()) / 1000.0
}

/// The longest time after `event` in which the transceiver counted no frame: as coarse as it was asked.
fn longest_standstill_ms(samples: &[&Sample], event: Instant) -> f64 {
    let mut last: Option<&Sample> = None;
    let mut longest = Duration::ZERO;
    for sample in samples {
        match last {
            Some(known) if known.heard == sample.heard => {
                if sample.at >= event {
                    longest = longest.max(sample.at - known.at);
                }
            }
            Some(_) | None => last = Some(sample),
        }
    }
    longest.as_secs_f64() * 1000.0
}

fn median_rtt_ms(calls: &[&Call], counts: impl Fn(u32) -> bool) -> f64 {
    let trips = calls.iter().flat_map(|call| &call.round_trips);
    let trips = trips.filter(|trip| counts(trip.at_us));
    middle(trips.map(|trip| f64::from(trip.took_us) / 1000.0).collect())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u32 = 1000;
    const WINDOW: Window = Window {
        from_us: 0,
        event_us: 1000 * MS,
        end_us: 3000 * MS,
    };

    /// One frame each 20 ms, but not those of `missing`.
    fn frames(missing: std::ops::Range<u32>) -> Vec<Frame> {
        let numbers = (0..150).filter(|number| !missing.contains(number));
        numbers
            .map(|number| Frame {
                number,
                at_us: number * 20 * MS + 7 * MS,
            })
            .collect()
    }

    fn call(missing: std::ops::Range<u32>) -> Call {
        Call {
            sent: (0..150).map(|number| number * 20 * MS).collect(),
            up: frames(missing.clone()),
            spoken: 150,
            down: frames(missing),
            ..Call::default()
        }
    }

    #[test]
    fn a_silence_counts_when_it_ends_after_the_fault() {
        for (missing, expected) in [
            (0..0, 20.0),
            (20..40, 20.0),
            (45..55, 220.0),
            (60..80, 420.0),
            // Until the end.
            (100..150, 1013.0),
            (0..150, 3000.0),
        ] {
            let found = silence_ms(&frames(missing.clone()), WINDOW);
            assert_eq!(found, expected, "{missing:?}");
        }
    }

    #[test]
    fn losses_are_counted_in_both_directions_from_the_window_on() {
        let window = Window {
            from_us: 200 * MS,
            ..WINDOW
        };
        for (missing, expected) in [(0..0, 0), (60..70, 10), (0..5, 0), (140..150, 10)] {
            let call = call(missing.clone());
            let lost = (call.lost_up(window), call.lost_down(window));
            assert_eq!(lost, (expected, expected), "{missing:?}");
        }
    }

    #[test]
    fn a_client_that_stood_still_is_found_out() {
        let mut late = call(0..0);
        for at_us in &mut late.sent[60..70] {
            *at_us = 1_400_000;
        }
        let one = Figures::of(&[late.clone(), call(0..0)], 2, WINDOW);
        assert_eq!(one.standstill_ms, 20.0);
        let all = Figures::of(&[late.clone(), late], 2, WINDOW);
        assert_eq!(all.standstill_ms, 220.0);
    }

    #[test]
    fn a_call_that_died_is_lost_and_spoils_no_other_figure() {
        let dead = Call {
            lost: true,
            ..call(50..150)
        };
        let figures = Figures::of(&[call(0..0), dead], 3, WINDOW);
        assert_eq!((figures.sessions, figures.sessions_lost), (3, 2));
        assert_eq!((figures.up.silence_ms.max, figures.up.lost), (20.0, 0));
    }

    #[test]
    fn spreads_and_medians() {
        let spread = Spread::of((1..=10).map(f64::from).collect());
        assert_eq!((spread.mean, spread.p90, spread.max), (5.5, 10.0, 10.0));
        assert_eq!(Spread::of(Vec::new()), Spread::default());
        let runs = [30..31, 60..90, 50..52].map(|missing| Figures::of(&[call(missing)], 1, WINDOW));
        let median = Figures::median(&runs);
        assert_eq!((median.up.lost, median.down.silence_ms.max), (2, 60.0));
    }
}
