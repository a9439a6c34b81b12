//! What scenarios found, for people and for programs: a folder with `report.md`, `results.json` and a timeline of each run.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use super::figures::{Figures, Spread};
use super::file::Scenario;
use super::run::Run;
use super::svg;

/// A scenario and what its runs found.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Outcome {
    /// Name of the scenario.
    pub scenario: String,
    /// What happens.
    pub about: String,
    /// Whether it depends on how fast routing is.
    pub floor: bool,
    /// Runs.
    pub runs: usize,
    /// Runs that were done again because the machine stood still meanwhile.
    pub disturbed: usize,
    /// The middle of the runs, field by field.
    pub figures: Figures,
    /// Calls that did not live to the end, of all runs.
    pub sessions_lost: usize,
    /// What did not hold, in any run.
    pub broken: Vec<String>,
    /// What nodes complained about.
    pub complaints: Vec<String>,
}

impl Outcome {
    /// Of the runs of a scenario.
    #[must_use]
    pub fn new(scenario: &Scenario, runs: &[Run]) -> Self {
        let figures: Vec<Figures> = runs.iter().map(|run| run.figures.clone()).collect();
        Self {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            floor: scenario.floor,
            runs: runs.len(),
            disturbed: 0,
            figures: Figures::median(&figures),
            sessions_lost: figures.iter().map(|run| run.sessions_lost).sum(),
            broken: runs.iter().flat_map(|run| run.broken.clone()).collect(),
            complaints: runs
                .iter()
                .filter_map(|run| run.complaint.clone())
                .collect(),
        }
    }

    /// One line for a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        let Figures { up, down, .. } = &self.figures;
        let verdict = if self.broken.is_empty() {
            "ok"
        } else {
            "BROKEN"
        };
        format!(
            "{:<28} {verdict:<6} up {} ms, {} lost; down {} ms, {} lost; sessions lost {} of {}; {} -> {}",
            self.scenario,
            spread(up.silence_ms),
            up.lost,
            spread(down.silence_ms),
            down.lost,
            self.figures.sessions_lost,
            self.figures.sessions,
            names(&self.figures.path_before),
            names(&self.figures.path_after),
        )
    }
}

/// Writes the timelines of a scenario into `folder`.
///
/// # Errors
/// Files cannot be written.
pub(super) fn draw(scenario: &Scenario, runs: &[Run], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).context("the folder of a report")?;
    for (number, run) in (1..).zip(runs) {
        if run.calls.is_empty() {
            continue;
        }
        let title = format!("{}, run {number}", scenario.name);
        let file = folder.join(format!("{}-{number}.svg", scenario.name));
        fs::write(file, svg::timeline(&title, &scenario.about, run)).context("a timeline")?;
    }
    Ok(())
}

/// Makes the folder, and sees that a report can be written there.
///
/// # Errors
/// It cannot.
pub(super) fn prepare(folder: &Path) -> anyhow::Result<()> {
    let name = || format!("--out {}", folder.display());
    fs::create_dir_all(folder).with_context(name)?;
    let probe = folder.join(format!(".probe-{}", std::process::id()));
    fs::write(&probe, "").with_context(name)?;
    fs::remove_file(&probe).with_context(name)
}

/// Writes `report.md` and `results.json` into `folder`.
///
/// # Errors
/// Files cannot be written.
pub fn write(outcomes: &[Outcome], folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).context("the folder of a report")?;
    let json = serde_json::to_string_pretty(outcomes)?;
    fs::write(folder.join("results.json"), json).context("results.json")?;
    fs::write(folder.join("report.md"), page(outcomes, folder)).context("report.md")
}

fn page(outcomes: &[Outcome], folder: &Path) -> String {
    let mut page = "# Calls through failures\n\nSilences are mean / 90th percentile / longest, in milliseconds, of the longest time between two \
                    frames of each call; 20 is none. Of several runs, the middle one of each figure.\n\n"
        .to_owned();
    page += &table(outcomes);
    for outcome in outcomes {
        let _ = write!(page, "\n## {}\n\n{}\n", outcome.scenario, outcome.about);
        for broken in &outcome.broken {
            let _ = writeln!(page, "\n**Does not hold: {broken}**");
        }
        for complaint in &outcome.complaints {
            let _ = writeln!(page, "\nA node complained:\n\n```text\n{complaint}\n```");
        }
        for number in 1..=outcome.runs {
            let file = format!("{}-{number}.svg", outcome.scenario);
            if folder.join(&file).exists() {
                let _ = writeln!(page, "\n![{}, run {number}]({file})", outcome.scenario);
            }
        }
    }
    page
}

/// The rows that docs/failover.md has.
fn table(outcomes: &[Outcome]) -> String {
    let mut table = "| scenario | up: silence | up: lost | down: silence | down: lost | sessions lost | before → after | round trip |\n\
                     | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for outcome in outcomes {
        let figures = &outcome.figures;
        let floor = if outcome.floor { " ¹" } else { "" };
        let _ = writeln!(
            table,
            "| `{}`{floor} | {} | {} | {} | {} | {} of {} | {} → {} | {:.0} → {:.0} ms |",
            outcome.scenario,
            spread(figures.up.silence_ms),
            figures.up.lost,
            spread(figures.down.silence_ms),
            figures.down.lost,
            figures.sessions_lost,
            figures.sessions,
            names(&figures.path_before),
            names(&figures.path_after),
            figures.rtt_before_ms,
            figures.rtt_after_ms,
        );
    }
    if outcomes.iter().any(|outcome| outcome.floor) {
        table += "\n¹ A floor: routers of this world learn of a fault in milliseconds, those of the Internet in seconds.\n";
    }
    table
}

fn spread(spread: Spread) -> String {
    format!("{:.0} / {:.0} / {:.0}", spread.mean, spread.p90, spread.max)
}

fn names(calls: &std::collections::BTreeMap<String, usize>) -> String {
    let names: Vec<&str> = calls.keys().map(String::as_str).collect();
    if names.is_empty() {
        return "-".to_owned();
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_a_row_of_each_scenario_and_says_what_broke() {
        let mut outcome = Outcome {
            scenario: "kill-pop".to_owned(),
            about: "kill -9".to_owned(),
            floor: true,
            runs: 1,
            disturbed: 0,
            figures: Figures::default(),
            sessions_lost: 0,
            broken: Vec::new(),
            complaints: Vec::new(),
        };
        outcome.figures.up.silence_ms = Spread {
            mean: 20.4,
            p90: 30.0,
            max: 41.0,
        };
        outcome.figures.path_after.insert("fra".to_owned(), 25);
        assert!(outcome.line().contains(" ok "));
        outcome
            .broken
            .push("silence up, ms: 41, at most 20".to_owned());
        assert!(outcome.line().contains(" BROKEN "));
        let page = page(&[outcome], Path::new("/nowhere"));
        assert!(
            page.contains("| `kill-pop` ¹ | 20 / 30 / 41 | 0 |"),
            "{page}"
        );
        assert!(page.contains("Does not hold: silence up, ms: 41"));
        assert!(page.contains("¹ A floor"));
    }
}
