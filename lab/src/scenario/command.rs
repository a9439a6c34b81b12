//! `lab run`.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::Args;

use super::report::{self, Outcome};
use super::{Scenario, run};
use crate::net::programs_dir;

/// Runs that are done again because the machine stood still meanwhile, at most.
const DISTURBED_MAX: usize = 3;
/// Runs of a scenario at most.
const RUNS_MAX: usize = 100;

/// Arguments of `lab run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// Names or files of scenarios; `all`: every one of the repository, `always`: those that every change is tested with
    #[arg(required = true)]
    scenarios: Vec<String>,
    /// How often each is run; figures are the middle ones
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Where the report goes; a folder beside the programs if absent
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// One JSON array instead of lines for people
    #[arg(long)]
    json: bool,
}

impl RunArguments {
    /// Runs the scenarios, one after the other. Returns whether everything held.
    ///
    /// # Errors
    /// A scenario that is none, or a report that cannot be written. One that cannot be run is in the report as broken.
    pub fn run(&self) -> anyhow::Result<bool> {
        let scenarios = chosen(&self.scenarios)?;
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => programs_dir()?.join("failover-report"),
        };
        ensure!(
            (1..=RUNS_MAX).contains(&self.runs),
            "--runs: 1 to {RUNS_MAX}"
        );
        // Minutes later it would be too late to find that it cannot be written.
        report::prepare(&folder)?;
        let mut outcomes = Vec::new();
        for scenario in &scenarios {
            let outcome = repeat(scenario, self.runs, &folder)?;
            if !self.json {
                writeln!(std::io::stdout(), "{}", outcome.line())?;
                for broken in &outcome.broken {
                    writeln!(std::io::stdout(), "    {broken}")?;
                }
            }
            outcomes.push(outcome);
            // A report of what was found so far, should a later one never end.
            report::write(&outcomes, &folder)?;
        }
        if self.json {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&outcomes)?)?;
        } else {
            writeln!(
                std::io::stdout(),
                "report: {}",
                folder.join("report.md").display()
            )?;
        }
        Ok(outcomes.iter().all(|outcome| outcome.broken.is_empty()))
    }
}

fn chosen(names: &[String]) -> anyhow::Result<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    for name in names {
        match name.as_str() {
            "all" => scenarios.extend(Scenario::all()?),
            "always" => {
                let all = Scenario::all()?.into_iter();
                scenarios.extend(all.filter(|scenario| scenario.always));
            }
            name => scenarios.push(Scenario::find(name)?),
        }
    }
    Ok(scenarios)
}

/// Runs a scenario `runs` times and draws each.
///
/// # Errors
/// The report cannot be written.
pub fn repeat(
    scenario: &Scenario,
    runs: usize,
    folder: &std::path::Path,
) -> anyhow::Result<Outcome> {
    ensure!((1..=RUNS_MAX).contains(&runs), "1 to {RUNS_MAX} runs");
    let mut found = Vec::new();
    let mut failed = Vec::new();
    let mut disturbed = 0;
    while found.len() + failed.len() < runs {
        match run(scenario) {
            Ok(run) if run.is_disturbed() && disturbed < DISTURBED_MAX => disturbed += 1,
            Ok(run) => found.push(run),
            Err(error) => failed.push(format!("could not be run: {error:#}")),
        }
    }
    report::draw(scenario, &found, folder).context("drawing")?;
    let mut outcome = Outcome::new(scenario, &found);
    outcome.disturbed = disturbed;
    outcome.broken.extend(failed);
    Ok(outcome)
}
