//! What a stretch of traffic came to.

use std::fmt;
use std::time::Duration;

use super::ledger::{Line, Tally, Way};

/// One way of a stretch of traffic.
#[derive(Clone, Debug)]
pub struct Report {
    /// Sent in the stretch.
    pub sent: u64,
    /// Of them, arrived at least once.
    pub delivered: u64,
    /// Lost by paths while the stretch lasted and until it had drained.
    pub lost: u64,
    /// Time in programs beyond what the paths took: half of the packets had less.
    pub added_p50: Duration,
    /// 99 of 100 had less.
    pub added_p99: Duration,
    /// The most.
    pub added_max: Duration,
}

/// Voice does not notice so little.
const ADDED_P99_MAX: Duration = Duration::from_millis(1);

impl Report {
    /// Of the lines of a stretch, and the books before and after it.
    #[must_use]
    pub fn new(lines: &[Line], way: Way, before: &Tally, after: &Tally) -> Self {
        let lines: Vec<_> = lines.iter().filter(|line| line.way == way).collect();
        let mut added: Vec<_> = lines.iter().filter_map(|line| added(line)).collect();
        added.sort_unstable();
        let part = |percent: usize| {
            let at = (added.len() * percent / 100).min(added.len().saturating_sub(1));
            added.get(at).copied().unwrap_or_default()
        };
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Self {
            sent: count(lines.len()),
            delivered: count(added.len()),
            lost: after.lost_total() - before.lost_total(),
            added_p50: part(50),
            added_p99: part(99),
            added_max: part(100),
        }
    }

    /// Delivered, in millionths of what was sent.
    #[must_use]
    pub fn delivered_ppm(&self) -> u64 {
        (self.delivered * 1_000_000)
            .checked_div(self.sent)
            .unwrap_or_default()
    }

    /// The bar for a link under voice: delivers what its path delivers, and adds no time that counts.
    ///
    /// # Errors
    /// What is not met, for people.
    pub fn meets_bar(&self) -> Result<(), String> {
        let arrives = self.sent.saturating_sub(self.lost);
        // A thousandth of what is sent may be on its way when the stretch begins or ends.
        if self.delivered + self.sent / 1000 < arrives {
            return Err(format!("delivers less than its path: {self}"));
        }
        if self.added_p99 > ADDED_P99_MAX {
            return Err(format!("adds time: {self}"));
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |ppm: u64| format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100);
        let path = (self.sent.saturating_sub(self.lost) * 1_000_000).checked_div(self.sent);
        write!(
            f,
            "sent {} delivered {} (path {}) added p50 {:?} p99 {:?} max {:?}",
            self.sent,
            percent(self.delivered_ppm()),
            percent(path.unwrap_or_default()),
            self.added_p50,
            self.added_p99,
            self.added_max
        )
    }
}

fn added(line: &Line) -> Option<Duration> {
    let arrived_at = line.arrived_at?;
    let total = arrived_at.saturating_sub(line.sent_at);
    Some(total.saturating_sub(line.on_paths))
}
