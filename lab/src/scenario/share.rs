//! `rate=80%` in a fault: a bottleneck of so much of what that way carried before the first fault. Pure, but for the world that is asked.
//!
//! ```text
//! set lon>eu-r1 rate=80% queue_ms=50   ──►   set lon>eu-r1 rate_kbit_s=1650 queue_ms=50
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

/// What asks for it.
const KEY: &str = "rate=";
/// Per cent at most: more than everything shows a queue that is never used.
const PERCENT_MAX: u64 = 1_000;

/// What each way carried in some time, in kbit a second, by its two ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried(BTreeMap<(String, String), u64>);

/// Whether a line has such a rate.
///
/// # Errors
/// It has one that is none, or not of one way between two nodes.
pub(super) fn is_in(line: &str) -> anyhow::Result<bool> {
    Ok(percent(line)?.is_some())
}

fn percent(line: &str) -> anyhow::Result<Option<u64>> {
    let words = || line.split_whitespace();
    let Some(word) = words().find(|word| word.starts_with(KEY)) else {
        return Ok(None);
    };
    let number = word
        .strip_prefix(KEY)
        .and_then(|word| word.strip_suffix('%'));
    let percent = number.and_then(|number| number.parse().ok());
    let percent = percent.filter(|percent| (1..=PERCENT_MAX).contains(percent));
    let percent = percent
        .with_context(|| format!("`{word}`: 1 to {PERCENT_MAX} per cent, as in rate=80%"))?;
    ensure!(
        words().next() == Some("set") && way(line).is_some(),
        "`{line}`: a share is of one way, as in set A>B rate=80%"
    );
    Ok(Some(percent))
}

fn way(line: &str) -> Option<(&str, &str)> {
    let (from, to) = line.split_whitespace().nth(1)?.split_once('>')?;
    let named = |node: &str| !node.is_empty() && node != "*";
    (named(from) && named(to)).then_some((from, to))
}

impl Carried {
    /// Between two answers to `stats`.
    pub(super) fn between(before: &Value, after: &Value, took: Duration) -> Self {
        let (before, after) = (bytes(before), bytes(after));
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let each = after.into_iter().map(|(way, bytes)| {
            let earlier = before.get(&way).copied().unwrap_or_default();
            let kbit_s = bytes.saturating_sub(earlier).saturating_mul(8) / ms;
            (way, kbit_s)
        });
        Self(each.collect())
    }

    /// The line with a figure in place of the share; another as it is.
    ///
    /// # Errors
    /// The share is none, or there is no such way, or it carried nothing.
    pub(super) fn resolve(&self, line: &str) -> anyhow::Result<String> {
        let Some(percent) = percent(line)? else {
            return Ok(line.to_owned());
        };
        let (from, to) = way(line).context("a way")?;
        let way = (from.to_owned(), to.to_owned());
        let carried = self.0.get(&way).copied().unwrap_or_default();
        let kbit_s = carried.saturating_mul(percent) / 100;
        ensure!(kbit_s > 0, "`{line}`: that way carried nothing before");
        let words = line.split_whitespace().map(|word| {
            if word.starts_with(KEY) {
                format!("rate_kbit_s={kbit_s}")
            } else {
                word.to_owned()
            }
        });
        Ok(words.collect::<Vec<_>>().join(" "))
    }
}

fn bytes(stats: &Value) -> BTreeMap<(String, String), u64> {
    let ways = stats.get("ways").and_then(Value::as_array);
    let ways = ways.into_iter().flatten().filter_map(|way| {
        let end = |key: &str| way.get(key)?.as_str().map(str::to_owned);
        let bytes = way.get("did")?.get("bytes")?.as_u64()?;
        Some(((end("from")?, end("to")?), bytes))
    });
    ways.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn stats(bytes: u64) -> Value {
        json!({ "ways": [
            { "from": "lon", "to": "eu-r1", "did": { "packets": 7, "bytes": bytes } },
            { "from": "eu-r1", "to": "lon", "did": { "packets": 0, "bytes": 0 } },
        ], "unrouted": 0 })
    }

    #[test]
    fn a_share_becomes_the_figure_of_what_the_way_carried() {
        let carried = Carried::between(&stats(1_000), &stats(501_000), Duration::from_secs(2));
        for (line, figure) in [
            (
                "set lon>eu-r1 rate=80% queue_ms=50",
                "set lon>eu-r1 rate_kbit_s=1600 queue_ms=50",
            ),
            (
                "set lon>eu-r1 queue_ms=50 rate=100%",
                "set lon>eu-r1 queue_ms=50 rate_kbit_s=2000",
            ),
            ("set lon>eu-r1 rate_kbit_s=5", "set lon>eu-r1 rate_kbit_s=5"),
            ("kill lon", "kill lon"),
        ] {
            assert_eq!(carried.resolve(line).unwrap(), figure);
        }
        for line in [
            "set eu-r1>lon rate=80%",
            "set lon>nowhere rate=80%",
            "set lon>eu-r1 rate=0%",
            "set lon>eu-r1 rate=1001%",
            "set lon>eu-r1 rate=80",
            "set lon eu-r1 rate=80%",
            "set *>eu-r1 rate=80%",
            "cut lon>eu-r1 rate=80%",
        ] {
            assert!(carried.resolve(line).is_err(), "{line}");
        }
        assert!(!is_in("cut lon>eu-r1").unwrap());
        assert!(is_in("set lon>RELAY rate=80%").unwrap());
    }
}
