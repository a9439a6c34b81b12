//! A timeline of one run: round trips, and for each call both directions with who carried it, what was lost and how long nothing came.
//! Plain SVG, written by hand: a few lines and rectangles need no library.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::run::Run;
use crate::load::{Call, measured::Frame};

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
/// Of the panel of round trips.
const RTT_TOP: f64 = 60.0;
const RTT_HEIGHT: f64 = 160.0;
/// Of the panel of calls.
const CALLS_TOP: f64 = 270.0;
const STRIP_HEIGHT: f64 = 4.0;
const CALL_HEIGHT: f64 = 11.0;
/// What is shown before the first fault.
const BEFORE_US: u32 = 1_000_000;
/// A silence longer than this is a gap: three frames.
const GAP_US: u32 = 60_000;
/// One point of a line of round trips for so long.
const RTT_STEP_US: u32 = 40_000;
/// Of PoPs, in the order of their names.
const COLOURS: [&str; 8] = [
    "#1f77b4", "#ff7f0e", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#17becf",
];

/// Draws a run.
#[must_use]
pub(super) fn timeline(title: &str, about: &str, run: &Run) -> String {
    let canvas = Canvas::new(run);
    let height = CALLS_TOP + canvas.calls.len() as f64 * CALL_HEIGHT + 50.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut svg, LEFT, 20.0, "font-size=\"15\"", title);
    text(&mut svg, LEFT, 36.0, "fill=\"#555\"", about);
    canvas.axis(&mut svg, height);
    canvas.round_trips(&mut svg);
    canvas.all_calls(&mut svg);
    canvas.marks(&mut svg, height);
    canvas.legend(&mut svg, height);
    svg.push_str("</svg>\n");
    svg
}

struct Canvas<'a> {
    run: &'a Run,
    calls: Vec<&'a Call>,
    from_us: u32,
    to_us: u32,
    colours: BTreeMap<&'a str, &'static str>,
}

impl<'a> Canvas<'a> {
    fn new(run: &'a Run) -> Self {
        let pops = run.paths.values().flatten().map(|(_, pop)| pop.as_str());
        let pops: std::collections::BTreeSet<&str> = pops.collect();
        Self {
            run,
            calls: run.calls.iter().collect(),
            from_us: run.window.event_us.saturating_sub(BEFORE_US),
            to_us: run.window.end_us,
            colours: pops.into_iter().zip(COLOURS.into_iter().cycle()).collect(),
        }
    }

    fn x(&self, at_us: u32) -> f64 {
        let at_us = at_us.clamp(self.from_us, self.to_us) - self.from_us;
        let all_us = (self.to_us - self.from_us).max(1);
        LEFT + f64::from(at_us) / f64::from(all_us) * (WIDTH - LEFT - RIGHT)
    }

    fn shows(&self, at_us: u32) -> bool {
        (self.from_us..=self.to_us).contains(&at_us)
    }

    /// Seconds from the first fault.
    fn axis(&self, svg: &mut String, height: f64) {
        let bottom = height - 40.0;
        let event = self.run.window.event_us;
        let mut at_us = self.from_us;
        while at_us <= self.to_us {
            let x = self.x(at_us);
            let s = (f64::from(at_us) - f64::from(event)) / 1e6;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{RTT_TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#eee\"/>"
            );
            text(
                svg,
                x - 8.0,
                bottom + 12.0,
                "fill=\"#555\"",
                &format!("{s:.0} s"),
            );
            at_us += BEFORE_US;
        }
    }

    fn round_trips(&self, svg: &mut String) {
        let shown = self.calls.iter().flat_map(|call| &call.round_trips);
        let shown = shown.filter(|trip| self.shows(trip.at_us));
        let most_us = shown.map(|trip| trip.took_us).max().unwrap_or(1);
        let y = |took_us: u32| {
            RTT_TOP + RTT_HEIGHT * (1.0 - f64::from(took_us) / f64::from(most_us) / 1.05)
        };
        for share in [0, 1, 2] {
            let took_us = most_us / 2 * share;
            let ms = f64::from(took_us) / 1000.0;
            text(
                svg,
                8.0,
                y(took_us) + 4.0,
                "fill=\"#555\"",
                &format!("{ms:.0} ms"),
            );
        }
        text(svg, 8.0, RTT_TOP - 6.0, "fill=\"#555\"", "round trip");
        for call in &self.calls {
            let mut points = String::new();
            let mut next_us = self.from_us;
            for trip in call
                .round_trips
                .iter()
                .filter(|trip| self.shows(trip.at_us))
            {
                if trip.at_us >= next_us {
                    let _ = write!(points, "{:.1},{:.1} ", self.x(trip.at_us), y(trip.took_us));
                    next_us = trip.at_us + RTT_STEP_US;
                }
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{points}\" fill=\"none\" stroke=\"#444\" stroke-opacity=\"0.35\" stroke-width=\"0.8\"/>"
            );
        }
    }

    fn all_calls(&self, svg: &mut String) {
        text(
            svg,
            8.0,
            CALLS_TOP - 8.0,
            "fill=\"#555\"",
            "calls: above up, below down",
        );
        for (row, call) in self.calls.iter().enumerate() {
            let top = CALLS_TOP + row as f64 * CALL_HEIGHT;
            let number = call.name.rsplit('/').next().unwrap_or_default();
            let colour = if call.lost {
                "fill=\"#d62728\""
            } else {
                "fill=\"#555\""
            };
            text(svg, LEFT - 22.0, top + 8.0, colour, number);
            self.strip(svg, top, call, &call.up);
            self.strip(svg, top + STRIP_HEIGHT + 1.0, call, &call.down);
        }
    }

    /// One direction of a call: a bar where frames came, in the colour of the PoP, and a frame of red around each gap.
    fn strip(&self, svg: &mut String, top: f64, call: &Call, frames: &[Frame]) {
        let mut times: Vec<u32> = frames.iter().map(|frame| frame.at_us).collect();
        times.retain(|at_us| self.shows(*at_us));
        times.sort_unstable();
        let path = self.run.paths.get(&call.name);
        let mut changes: Vec<u32> = Vec::new();
        if let Some(path) = path {
            let pairs = path.iter().zip(path.iter().skip(1));
            changes.extend(pairs.filter(|(a, b)| a.1 != b.1).map(|(_, b)| b.0));
        }
        let mut begin = self.from_us;
        let mut last = self.from_us;
        for at_us in times.into_iter().chain([self.to_us]) {
            let gap = at_us - last > GAP_US;
            let changed = changes
                .iter()
                .find(|change| (last..at_us).contains(*change));
            if gap || changed.is_some() || at_us == self.to_us {
                self.bar(svg, top, (begin, last), self.colour(path, begin));
                if gap {
                    self.bar(
                        svg,
                        top,
                        (last, at_us),
                        "none\" stroke=\"#d62728\" stroke-width=\"0.6",
                    );
                }
                begin = at_us;
            }
            last = at_us;
        }
    }

    fn colour(&self, path: Option<&Vec<(u32, String)>>, at_us: u32) -> &'static str {
        let known = path.and_then(|path| path.iter().take_while(|(at, _)| *at <= at_us).last());
        let colour = known.and_then(|(_, pop)| self.colours.get(pop.as_str()));
        colour.copied().unwrap_or("#bbb")
    }

    fn bar(&self, svg: &mut String, top: f64, (from_us, to_us): (u32, u32), fill: &str) {
        let (x, end) = (self.x(from_us), self.x(to_us));
        let width = (end - x).max(0.3);
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{STRIP_HEIGHT}\" fill=\"{fill}\"/>"
        );
    }

    fn marks(&self, svg: &mut String, height: f64) {
        for (number, (at_us, act)) in self.run.marks.iter().enumerate() {
            let x = self.x(*at_us);
            let bottom = height - 40.0;
            let y = RTT_TOP + 10.0 + (number % 6) as f64 * 12.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{RTT_TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\" stroke=\"#d62728\" stroke-dasharray=\"4 3\"/>"
            );
            text(svg, x + 4.0, y, "fill=\"#d62728\"", act);
        }
    }

    fn legend(&self, svg: &mut String, height: f64) {
        for (number, (pop, colour)) in self.colours.iter().enumerate() {
            let x = LEFT + number as f64 * 90.0;
            let y = height - 14.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
                y - 9.0
            );
            text(svg, x + 14.0, y, "fill=\"#333\"", pop);
        }
    }
}

fn text(svg: &mut String, x: f64, y: f64, style: &str, said: &str) {
    let said = said
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{said}</text>");
}

#[cfg(test)]
mod tests {
    use super::super::figures::{Figures, Window};
    use super::*;
    use crate::load::measured::RoundTrip;

    #[test]
    fn a_gap_and_a_change_of_path_are_seen() {
        let frames = |missing: std::ops::Range<u32>| -> Vec<Frame> {
            let numbers = (0..150).filter(|number| !missing.contains(number));
            numbers
                .map(|number| Frame {
                    number,
                    at_us: number * 20_000,
                })
                .collect()
        };
        let call = Call {
            name: "t1/1".to_owned(),
            up: frames(50..80),
            down: frames(0..0),
            round_trips: vec![RoundTrip {
                at_us: 500_000,
                took_us: 20_000,
            }],
            ..Call::default()
        };
        let path = [(0, "lon"), (1_600_000, "fra")].map(|(at, pop)| (at, pop.to_owned()));
        let run = Run {
            figures: Figures::default(),
            calls: vec![call],
            window: Window {
                from_us: 0,
                event_us: 1_000_000,
                end_us: 3_000_000,
            },
            marks: vec![(1_000_000, "cut lon>r-lon".to_owned())],
            paths: [("t1/1".to_owned(), path.to_vec())].into(),
            broken: Vec::new(),
            complaint: None,
        };
        let svg = timeline("t", "a < b", &run);
        assert_eq!(svg.matches("stroke=\"#d62728\" stroke-width").count(), 1);
        assert!(svg.contains("cut lon&gt;r-lon") && svg.contains("a &lt; b"));
        for (pop, colour) in [("fra", COLOURS[0]), ("lon", COLOURS[1])] {
            assert!(svg.contains(&format!(">{pop}</text>")), "{pop}");
            // In the legend, and in both strips.
            assert!(svg.matches(colour).count() >= 3, "{pop}");
        }
    }
}
