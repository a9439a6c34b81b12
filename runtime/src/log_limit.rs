//! Bounds a kind of log line that others can cause as often as they like: peers that flap, strangers that knock.
//!
//! It counts nothing for metrics: what is not logged is counted by whoever saw it.

use std::time::{Duration, Instant};

/// At most so many lines in so much time.
#[derive(Clone, Copy, Debug)]
pub struct LogLimit {
    lines_max: u32,
    interval: Duration,
    /// End of the interval that the first line began.
    ends_at: Option<Instant>,
    lines: u32,
    unlogged: u64,
}

impl LogLimit {
    /// `lines_max` lines in `interval`, which begins with the first of them.
    #[must_use]
    pub const fn new(lines_max: u32, interval: Duration) -> Self {
        Self {
            lines_max,
            interval,
            ends_at: None,
            lines: 0,
            unlogged: 0,
        }
    }

    /// Whether something that happens at `now` is logged: then how many lines were left out since the last that was.
    pub fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.ends_at.is_none_or(|end| now >= end) {
            self.ends_at = Some(now + self.interval);
            self.lines = 0;
        }
        if self.lines >= self.lines_max {
            self.unlogged = self.unlogged.saturating_add(1);
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn so_many_lines_an_interval_and_how_many_were_left_out() {
        let start = clock::now();
        let mut limit = LogLimit::new(2, Duration::from_secs(10));
        let table = [
            (0, Some(0)),
            (3, Some(0)),
            (3, None),
            (9, None),
            (10, Some(2)),
            (11, Some(0)),
            (19, None),
            (40, Some(1)),
            (49, Some(0)),
            (50, Some(0)),
        ];
        for (second, answer) in table {
            let at = start + Duration::from_secs(second);
            assert_eq!(limit.admit(at), answer, "second {second}");
        }
    }

    #[test]
    fn a_flood_is_one_line_an_interval() {
        let start = clock::now();
        let mut limit = LogLimit::new(1, Duration::from_secs(10));
        let lines = (0..100_000)
            .filter_map(|ms| limit.admit(start + Duration::from_millis(ms)))
            .collect::<Vec<_>>();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines.iter().sum::<u64>(), 9 * 9_999);
    }
}
