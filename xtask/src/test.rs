//! `cargo xtask test`: unit, property and fuzz-replay tests in the dev profile, then end-to-end tests in release.
//!
//! End-to-end tests are integration tests named `e2e_*`. They and the programs they start are built in release,
//! because they hold real packet rates that an unoptimised build does not, and because what is tested should be what
//! is shipped; assertions on arithmetic are on in the dev profile, where everything else runs. They run one at a time:
//! they share the machine's processors and loopback addresses. They find the programs in `FIRSTHOP_BIN_DIR`. Tests of one target run one
//! at a time too, but for those of [`MOSTLY_WAITING`], which mostly wait.

use anyhow::ensure;

use crate::step::{Step, Stopwatch};
use crate::workspace::Workspace;
use crate::{geo_database, packages};

/// Which tests.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only tests that run inside one process.
    #[arg(long, conflicts_with = "e2e")]
    unit: bool,
    /// Only end-to-end tests.
    #[arg(long)]
    e2e: bool,
    /// Only end-to-end tests of the targets with this text in their name; implies --e2e.
    #[arg(long, value_name = "TEXT", conflicts_with = "unit")]
    only: Option<String>,
}

/// A program that installs what end-to-end tests need, when the workspace has it.
const SETUP: &str = "e2e-setup";

pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> anyhow::Result<()> {
    let clock = Stopwatch::start();
    let only = arguments.only.as_deref();
    let end_to_end_tests = match arguments.unit {
        true => Vec::new(),
        false => select(workspace, only.unwrap_or_default())?,
    };
    if !arguments.e2e && only.is_none() {
        in_process(workspace)?;
    }
    if !end_to_end_tests.is_empty() {
        end_to_end(workspace, &end_to_end_tests)?;
    }
    eprintln!("all tests passed in {:.0} s", clock.elapsed().as_secs_f64());
    Ok(())
}

/// Targets whose tests mostly wait, each in a namespace of its own: three at a time.
const MOSTLY_WAITING: &[&str] = &["e2e_announce"];

/// Builds every program in release. One build for all, so that features are the same for each.
pub(crate) fn build_programs(workspace: &Workspace) -> anyhow::Result<()> {
    Step::cargo("build programs", workspace)
        .args(["build", "--locked", "--release", "--workspace", "--bins"])
        .run()
}

fn in_process(workspace: &Workspace) -> anyhow::Result<()> {
    packages::install(workspace, packages::IN_PROCESS)?;
    Step::cargo("unit tests", workspace)
        .args(["test", "--locked", "--workspace", "--no-fail-fast"])
        .args(["--lib", "--bins"])
        .args(workspace.plain_tests().flat_map(|name| ["--test", name]))
        .run()?;
    Step::cargo("documentation tests", workspace)
        .args(["test", "--locked", "--workspace", "--doc"])
        .run()
}

/// End-to-end tests with `text` in their name. None is an error: a misspelt name must not look like a pass.
fn select<'a>(workspace: &'a Workspace, text: &str) -> anyhow::Result<Vec<&'a str>> {
    let all = workspace.end_to_end_tests();
    let tests: Vec<_> = all.filter(|name| name.contains(text)).collect();
    ensure!(
        !tests.is_empty(),
        "no end-to-end test has `{text}` in its name"
    );
    Ok(tests)
}

fn end_to_end(workspace: &Workspace, tests: &[&str]) -> anyhow::Result<()> {
    packages::install(workspace, packages::END_TO_END)?;
    geo_database::fetch(workspace)?;
    // In one build: what tests depend on sets features of what programs depend on, and two builds would make the same crates twice.
    Step::cargo("build programs and end-to-end tests", workspace)
        .args(["build", "--locked", "--release", "--workspace", "--bins"])
        .args(tests.iter().flat_map(|name| ["--test", name]))
        .run()?;
    if workspace.has_program(SETUP) {
        workspace.program(SETUP)?.run()?;
    }
    all_of(tests.iter().map(|test| {
        Step::cargo(test, workspace)
            .args(["test", "--locked", "--release", "--workspace"])
            // Some report what they measured.
            .args(["--test", test, "--", threads(test), "--show-output"])
            .env("FIRSTHOP_BIN_DIR", workspace.programs_dir())
    }))
}

fn threads(test: &str) -> &'static str {
    if MOSTLY_WAITING.contains(&test) {
        "--test-threads=3"
    } else {
        "--test-threads=1"
    }
}

/// Runs each step whatever became of those before it: one run says of every test whether it passes.
fn all_of(steps: impl Iterator<Item = Step>) -> anyhow::Result<()> {
    let failures: Vec<_> = steps
        .filter_map(|step| step.run().err())
        .map(|error| format!("{error:#}"))
        .collect();
    ensure!(
        failures.is_empty(),
        "{} failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_failure_stops_no_other_step() {
        let shell = |script: &str| Step::new(script, "sh", Path::new("/")).args(["-c", script]);
        let mark = std::env::temp_dir().join(format!("xtask-steps-{}", std::process::id()));
        let last = format!("touch {}", mark.display());
        let found = all_of(["exit 3", "exit 4", &last].into_iter().map(shell));
        let error = found.unwrap_err().to_string();
        assert!(
            error.contains("`exit 3`") && error.contains("`exit 4`"),
            "{error}"
        );
        std::fs::remove_file(&mark).unwrap();
        assert!(all_of(["exit 0"].into_iter().map(shell)).is_ok());
    }
}
