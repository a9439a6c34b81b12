//! A scenario file: conditions, traffic, faults at their times, and what must hold. It reads like a plan:
//!
//! ```yaml
//! about: kill -9 of the PoP that carries the calls; the next one finds their flows in Redis
//! world: small
//! network: { flow_cache: true }       # what differs from the world's topology
//! conditions: [set r-lon r-fra jitter_ms=0.2]
//! calls: { from: c-lon, count: 25, transceiver: eu-t1 }
//! faults:                             # times count from when all calls have flowed for a second
//!   - { at_ms: 0, do: kill lon }
//! watch_s: 5
//! must: { sessions_lost: 0, silence_up_ms: 150, path: [lon, fra] }
//! ```

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, anyhow, ensure};
use serde::Deserialize;

use super::{check, share};
use crate::world::Fault;
use crate::yaml::{self, Wrong};

/// Calls of a scenario at most: all of them run on one thread.
const CALLS_MAX: usize = 500;
/// A scenario watches no longer.
const WATCH_S_MAX: u32 = 120;
/// Faults of a scenario at most.
const FAULTS_MAX: usize = 64;

/// A scenario.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Of its file.
    #[serde(skip)]
    pub name: String,
    /// What happens, for people.
    pub about: String,
    /// Name or path of a world file.
    pub world: String,
    /// What differs from the world's topology.
    #[serde(default)]
    pub network: Change,
    /// Orders to the WAN emulator before anything else.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// The traffic.
    pub calls: Calls,
    /// What happens, in the order of its times.
    pub faults: Vec<Event>,
    /// How long the calls go on after the first fault.
    pub watch_s: u32,
    /// What must hold.
    #[serde(default)]
    pub must: Must,
    /// Whether it is among the few that every change is tested with.
    #[serde(default)]
    pub always: bool,
    /// A figure that depends on how fast routing learns of a fault: on the Internet that is seconds.
    #[serde(default)]
    pub floor: bool,
}

/// Changes to a topology.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// Whether PoPs share their flows.
    pub flow_cache: bool,
    /// Whether PoPs offer media of unknown clients to transceivers; as the topology says, if absent.
    pub offer_unknown: Option<bool>,
    /// Interval of BFD; `bfd: false` in every session when 0.
    pub bfd_ms: Option<u32>,
    /// Silence after which a link of the backbone is down; heartbeats are a fifth of it.
    pub link_down_after_ms: Option<u32>,
    /// UDP payload that the links of the backbone carry.
    pub link_mtu_bytes: Option<u16>,
    /// Hold time of BGP.
    pub hold_s: Option<u16>,
}

impl Default for Change {
    fn default() -> Self {
        Self {
            flow_cache: true,
            offer_unknown: None,
            bfd_ms: None,
            link_down_after_ms: None,
            link_mtu_bytes: None,
            hold_s: None,
        }
    }
}

/// Who calls whom.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calls {
    /// A client node.
    pub from: String,
    /// How many.
    #[serde(default = "count")]
    pub count: usize,
    /// Where the calls are made.
    pub transceiver: String,
    /// Over IPv6.
    #[serde(default)]
    pub v6: bool,
    /// By which program.
    #[serde(default)]
    pub by: Caller,
}

/// A program that calls.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Caller {
    /// The load client.
    #[default]
    Load,
    /// A browser; one call.
    Chromium,
}

const fn count() -> usize {
    25
}

/// Something that happens.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// When.
    pub at_ms: u32,
    /// What.
    #[serde(rename = "do")]
    pub act: Act,
}

/// What happens.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub enum Act {
    /// Something in the world.
    World(Fault),
    /// `rebind`: the clients go on from other ports, as behind a NAT that forgot them.
    Rebind,
    /// `roam`: the clients go on from another address.
    Roam,
    /// `call N at TRANSCEIVER`: so many more calls, made there.
    Call(usize, String),
}

/// A line that is nothing that can happen.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{line}`: `rebind`, `roam`, `call N at TRANSCEIVER`, or what happens to a world: {world}")]
pub struct ActError {
    line: String,
    world: String,
}

impl FromStr for Act {
    type Err = ActError;

    fn from_str(line: &str) -> Result<Self, ActError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let wrong = |world: String| ActError {
            line: line.to_owned(),
            world,
        };
        match words.as_slice() {
            ["rebind"] => Ok(Self::Rebind),
            ["roam"] => Ok(Self::Roam),
            ["call", count, "at", transceiver] => {
                let count = count.parse().ok();
                let count = count.filter(|count| (1..=CALLS_MAX).contains(count));
                let count = count.ok_or_else(|| wrong("no number of calls".to_owned()))?;
                Ok(Self::Call(count, (*transceiver).to_owned()))
            }
            _ => {
                let fault = line.parse::<Fault>();
                fault
                    .map(Self::World)
                    .map_err(|error| wrong(error.to_string()))
            }
        }
    }
}

impl TryFrom<String> for Act {
    type Error = ActError;

    fn try_from(line: String) -> Result<Self, ActError> {
        line.parse()
    }
}

impl std::fmt::Display for Act {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::World(fault) => write!(f, "{fault}"),
            Self::Rebind => f.write_str("rebind"),
            Self::Roam => f.write_str("roam"),
            Self::Call(count, transceiver) => write!(f, "call {count} at {transceiver}"),
        }
    }
}

/// Bounds of what may be measured; what is absent is not checked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Must {
    /// Calls that did not live to the end, at most.
    pub sessions_lost: usize,
    /// Longest silence of any call, towards the far end.
    pub silence_up_ms: Option<f64>,
    /// The same, from it.
    pub silence_down_ms: Option<f64>,
    /// Frames of all calls that were lost, towards the far end.
    pub lost_up: Option<u64>,
    /// The same, from it.
    pub lost_down: Option<u64>,
    /// The PoP of every call before the first fault, and at the end.
    pub path: Option<(String, String)>,
    /// The transceiver of the calls that were made later.
    pub later_calls_at: Option<String>,
}

/// Where the scenarios of this repository are.
#[must_use]
pub fn scenarios_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// The file is not there, or is none, or its world is not as it says; the text says where, and what is wrong.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(|| file.clone())?;
        let mut scenario = Self::parse(&text).map_err(|error| match error.downcast::<Wrong>() {
            Ok(wrong) => anyhow!(wrong.at(&file)),
            Err(error) => error.context(file.clone()),
        })?;
        check::announced(&scenario, &text).map_err(|error| match error.downcast::<Wrong>() {
            Ok(wrong) => anyhow!(wrong.at(&file)),
            Err(error) => error.context(file.clone()),
        })?;
        check::check(&scenario).context(file)?;
        let stem = path.file_stem().unwrap_or_default();
        scenario.name = stem.to_string_lossy().into_owned();
        Ok(scenario)
    }

    /// One of this repository by name, or any by path.
    ///
    /// # Errors
    /// See [`Self::load`].
    pub fn find(name: &str) -> anyhow::Result<Self> {
        let own = scenarios_dir().join(format!("{name}.yaml"));
        if own.exists() {
            return Self::load(&own);
        }
        Self::load(Path::new(name))
    }

    /// All of this repository, by name.
    ///
    /// # Errors
    /// See [`Self::load`].
    pub fn all() -> anyhow::Result<Vec<Self>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(scenarios_dir()).context("the scenarios")? {
            paths.push(entry?.path());
        }
        paths.sort();
        paths.iter().map(|path| Self::load(path)).collect()
    }

    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let scenario: Self = yaml::parse(text)?;
        let calls = &scenario.calls;
        let few = (1..=CALLS_MAX).contains(&calls.count);
        ensure!(few, "calls.count: 1 to {CALLS_MAX}");
        let one = calls.by == Caller::Load || calls.count == 1;
        ensure!(one, "calls.count: a browser makes one call");
        let faults = &scenario.faults;
        let some = (1..=FAULTS_MAX).contains(&faults.len());
        ensure!(some, "faults: 1 to {FAULTS_MAX}");
        let ordered = faults.is_sorted_by_key(|event| event.at_ms);
        ensure!(ordered, "faults: in the order of their times");
        let watch = (1..=WATCH_S_MAX).contains(&scenario.watch_s);
        ensure!(watch, "watch_s: 1 to {WATCH_S_MAX}");
        let last = faults.last().map_or(0, |event| event.at_ms);
        let seen = last < scenario.watch_s * 1000;
        ensure!(seen, "watch_s: the last fault comes after it");
        for event in faults {
            let shares = share::is_in(&event.act.to_string()).context("faults")?;
            let able = calls.by == Caller::Load || !shares;
            ensure!(
                able,
                "faults: a share of what a browser sends is not measured"
            );
        }
        let moves = |event: &Event| matches!(event.act, Act::Rebind | Act::Call(..));
        let able = calls.by == Caller::Load || !faults.iter().any(moves);
        ensure!(able, "faults: a browser does not rebind, or call again");
        Ok(scenario)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
about: a test
world: small
calls: { from: c-lon, transceiver: eu-t1 }
faults:
  - { at_ms: 0, do: kill lon }
  - { at_ms: 500, do: cut lon>r-lon }
  - { at_ms: 500, do: call 3 at eu-t2 }
watch_s: 3
must: { silence_up_ms: 150, path: [lon, fra] }
";

    #[test]
    fn a_scenario_is_read() {
        let scenario = Scenario::parse(GOOD).unwrap();
        assert_eq!((scenario.calls.count, scenario.watch_s), (25, 3));
        assert!(scenario.network.flow_cache);
        let lines = scenario.faults.iter().map(|event| event.act.to_string());
        assert!(lines.eq(["kill lon", "cut lon>r-lon", "call 3 at eu-t2"]));
        assert_eq!(scenario.must.path.unwrap().1, "fra");
    }

    #[test]
    fn what_is_none_says_why_and_where() {
        for (from, to, why) in [
            ("about: a test", "about: a test\nabuot: b", "abuot"),
            ("do: kill lon", "do: explode lon", "`explode lon`: `rebind`"),
            ("do: kill lon", "do: call 0 at x", "no number of calls"),
            (
                "do: kill lon",
                "do: set a b rate=80%",
                "a share is of one way",
            ),
            ("at_ms: 0", "at_ms: 600", "in the order of their times"),
            ("watch_s: 3", "watch_s: 0", "watch_s: 1 to 120"),
            (
                "at_ms: 500, do: call",
                "at_ms: 3000, do: call",
                "comes after it",
            ),
            ("eu-t1 }", "eu-t1, count: 0 }", "calls.count: 1 to 500"),
            (
                "eu-t1 }",
                "eu-t1, by: chromium }",
                "a browser makes one call",
            ),
            ("silence_up_ms", "silence_ms", "silence_ms"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD, "{from}");
            let error = format!("{:#}", Scenario::parse(&text).unwrap_err());
            assert!(error.contains(why), "{to}: {error}");
        }
        let error = Scenario::parse(&GOOD.replace("kill lon", "kill")).unwrap_err();
        assert!(format!("{error:#}").contains("line 6"), "{error:#}");
    }

    #[test]
    fn all_of_the_repository_can_be_read() {
        let all = Scenario::all().unwrap();
        assert!(all.len() > 20, "{} scenarios", all.len());
        assert!(all.iter().any(|scenario| scenario.always));
    }
}
