//! What calls hear of failures: a few scenarios ([`crate::scenario`]), three runs of each, the middle one of every figure.

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::net::programs_dir;
use crate::scenario::{Outcome, Scenario, command, write};

/// Arguments of `lab bench failover`.
#[derive(Debug, Args)]
pub struct FailoverArguments {
    /// Runs of each scenario
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Where the report goes; a folder beside the programs if absent
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// One JSON object instead of lines for people
    #[arg(long)]
    json: bool,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct FailoverReport {
    /// Packets that all calls of a run lost in a planned drain, both directions together.
    pub drain_lost: u64,
    /// The longest silence of any call, of either direction, when routing leaves a PoP and Redis has the flows.
    pub withdraw_redis_silence_ms_max: f64,
    /// The same when the PoP is killed.
    pub kill_pop_redis_silence_ms_max: f64,
    /// The mean of the longest silence towards the far end when the PoP is killed and there is no Redis.
    pub kill_pop_noredis_silence_ms_mean: f64,
    /// The longest silence when the core relay is killed, with the topology's defaults.
    pub core_relay_kill_silence_ms_max: f64,
    /// The same with heartbeats of links twice as quick.
    pub core_relay_kill_quick_silence_ms_max: f64,
    /// The longest silence when the PoP is killed and started again at once.
    pub restart_same_pop_redis_ms_max: f64,
    /// Calls that ended, of all runs of all these scenarios.
    pub sessions_lost: usize,
    /// Everything, by scenario.
    pub scenarios: Vec<Outcome>,
}

/// Scenarios, in the order of the fields.
const SCENARIOS: [&str; 7] = [
    "drain-redis",
    "withdraw-redis",
    "kill-pop-redis",
    "kill-pop-noredis",
    "core-relay-kill",
    "core-relay-kill-quick",
    "restart-redis",
];

/// Runs them.
///
/// # Errors
/// Not root, or a scenario that cannot be run.
pub fn run(arguments: &FailoverArguments) -> anyhow::Result<FailoverReport> {
    let folder = match &arguments.out {
        Some(folder) => folder.clone(),
        None => programs_dir()?.join("failover-bench"),
    };
    let mut outcomes = Vec::new();
    for name in SCENARIOS {
        let outcome = command::repeat(&Scenario::find(name)?, arguments.runs, &folder)?;
        let ran = outcome.runs == arguments.runs;
        ensure!(ran, "{name}: {}", outcome.broken.join("; "));
        outcomes.push(outcome);
    }
    write(&outcomes, &folder)?;
    let [
        drain,
        withdraw,
        kill,
        kill_alone,
        relay,
        relay_quick,
        restart,
    ] = outcomes.as_slice()
    else {
        anyhow::bail!("a scenario is missing");
    };
    Ok(FailoverReport {
        drain_lost: drain.figures.up.lost + drain.figures.down.lost,
        withdraw_redis_silence_ms_max: longest(withdraw),
        kill_pop_redis_silence_ms_max: longest(kill),
        kill_pop_noredis_silence_ms_mean: kill_alone.figures.up.silence_ms.mean,
        core_relay_kill_silence_ms_max: longest(relay),
        core_relay_kill_quick_silence_ms_max: longest(relay_quick),
        restart_same_pop_redis_ms_max: longest(restart),
        sessions_lost: outcomes.iter().map(|outcome| outcome.sessions_lost).sum(),
        scenarios: outcomes,
    })
}

fn longest(outcome: &Outcome) -> f64 {
    let figures = &outcome.figures;
    figures.up.silence_ms.max.max(figures.down.silence_ms.max)
}

impl FailoverArguments {
    /// Runs it and prints what was found.
    ///
    /// # Errors
    /// See [`run`].
    pub fn print(&self) -> anyhow::Result<()> {
        use std::io::Write as _;
        let report = run(self)?;
        let mut out = std::io::stdout();
        if self.json {
            writeln!(out, "{}", serde_json::to_string(&report)?)?;
            return Ok(());
        }
        for outcome in &report.scenarios {
            writeln!(out, "{}", outcome.line())?;
        }
        Ok(())
    }
}
