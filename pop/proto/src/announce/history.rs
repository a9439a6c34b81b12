//! What a PoP that starts again must know of the process before it: when it fell, and whether it was announced when it ended.
//!
//! ```text
//! firsthop falls 1
//! announced               or: away
//! 1764533390              a fall, in seconds since the Unix epoch: FALLS_MAX lines at most
//! ```
//!
//! A process that ends as it was told says `away` at the end. One that was announced and did not has fallen once more. What is not here:
//! files.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::damping::{FALLS_MAX, WINDOW};
use super::{Announce, AnnounceConfig, Announcer};

/// No history is longer.
pub const HISTORY_BYTES_MAX: usize = 512;

const HEAD: &str = "firsthop falls 1";
const ANNOUNCED: &str = "announced";
const AWAY: &str = "away";

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    announced: bool,
    /// How long ago each fall was, oldest first.
    ages: Vec<Duration>,
}

/// A text that is no history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Longer than [`HISTORY_BYTES_MAX`], not UTF-8, or its last line has no end.
    #[error("not a text of whole lines")]
    Text,
    /// It begins otherwise.
    #[error("it does not begin as a history does")]
    Head,
    /// It does not say whether the process was announced.
    #[error("neither announced nor away")]
    State,
    /// A line that is no time.
    #[error("a fall at no time")]
    Fall,
    /// More falls than are remembered.
    #[error("too many falls")]
    Falls,
}

impl History {
    /// Reads one. A fall in the future, of a clock that was set back, is one of this moment.
    ///
    /// # Errors
    /// See [`HistoryError`].
    pub fn parse(text: &[u8], now_unix_s: u64) -> Result<Self, HistoryError> {
        let short = Some(text).filter(|text| text.len() <= HISTORY_BYTES_MAX);
        let text = short.and_then(|text| std::str::from_utf8(text).ok());
        let text = text.and_then(|text| text.strip_suffix('\n'));
        let mut lines = text.ok_or(HistoryError::Text)?.split('\n');
        if lines.next() != Some(HEAD) {
            return Err(HistoryError::Head);
        }
        let announced = match lines.next() {
            Some(ANNOUNCED) => true,
            Some(AWAY) => false,
            Some(_) | None => return Err(HistoryError::State),
        };
        let falls: Vec<u64> = lines
            .map(fall)
            .collect::<Option<_>>()
            .ok_or(HistoryError::Fall)?;
        if falls.len() > FALLS_MAX {
            return Err(HistoryError::Falls);
        }
        let ages = falls
            .into_iter()
            .map(|fell| Duration::from_secs(now_unix_s.saturating_sub(fell)));
        let mut ages: Vec<_> = ages.filter(|age| *age < WINDOW).collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { announced, ages })
    }

    /// Writes it.
    #[must_use]
    pub fn text(&self, now_unix_s: u64) -> String {
        let state = if self.announced { ANNOUNCED } else { AWAY };
        let mut text = format!("{HEAD}\n{state}\n");
        for age in &self.ages {
            let fell = now_unix_s.saturating_sub(age.as_secs());
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{fell}");
        }
        text
    }

    /// The same of a process that ended as it was told.
    #[must_use]
    pub fn ended(self) -> Self {
        Self {
            announced: false,
            ..self
        }
    }

    /// Falls within the last hour, and one if the process fell with its end.
    #[must_use]
    pub fn falls(&self) -> usize {
        self.ages.len() + usize::from(self.announced)
    }
}

/// `parse` would also take a sign, and zeros in front.
fn fall(line: &str) -> Option<u64> {
    let plain = line.bytes().all(|byte| byte.is_ascii_digit());
    let plain = plain && (line == "0" || !line.starts_with('0'));
    line.parse().ok().filter(|_| plain)
}

impl Announcer {
    /// Before anything else: what came of the process before this one.
    pub fn handle_history(&mut self, history: &History, now: Instant) {
        for age in &history.ages {
            self.damping.fell_ago(*age, now);
        }
        if history.announced {
            self.damping.fell(now);
        }
        self.sound_at = self.sound_at.max(now + self.need(now));
        self.settle(now);
    }

    /// What a process after this one must know, should this one end at this moment.
    #[must_use]
    pub fn history(&self, now: Instant) -> History {
        let mut ages: Vec<_> = self.damping.ages(now).collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        History {
            announced: self.announce == Announce::Up,
            ages,
        }
    }

    /// Changes whenever [`Self::history`] does for another reason than time.
    #[must_use]
    pub fn history_mark(&self) -> (bool, u64) {
        (self.announce == Announce::Up, self.damping.falls_ever())
    }

    /// Falls within the last hour.
    #[must_use]
    pub fn falls(&self, now: Instant) -> usize {
        self.damping.ages(now).count()
    }

    /// Other settings. What is announced stays so; whoever is on the way back waits no longer than they say.
    pub fn set_config(&mut self, config: AnnounceConfig, now: Instant) {
        self.config = config;
        let latest = now + self.need(now);
        self.sound_at = self.sound_at.min(latest);
        self.stay_until = self.stay_until.map(|until| until.min(latest));
        self.settle(now);
    }
}
