//! One step: a program run to its end, announced and timed. What each took is kept for a closing table.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::workspace::Workspace;

/// A named command. Output goes where ours goes; what we say ourselves goes to stderr, so stdout stays the program's.
pub(crate) struct Step {
    name: String,
    command: Command,
}

impl Step {
    /// A program in the root of the workspace.
    pub(crate) fn new(name: &str, program: impl AsRef<OsStr>, root: &Path) -> Self {
        let mut command = Command::new(program);
        command.current_dir(root);
        // Cargo describes this package to us; a build script that looks (ring's does) would build again.
        for (key, _) in std::env::vars_os() {
            let of_package = [
                "CARGO_PKG_",
                "CARGO_MANIFEST_",
                "CARGO_CRATE_",
                "CARGO_BIN_",
            ];
            if of_package
                .iter()
                .any(|prefix| key.to_string_lossy().starts_with(prefix))
            {
                command.env_remove(key);
            }
        }
        Self {
            name: name.to_owned(),
            command,
        }
    }

    /// The cargo that runs us.
    pub(crate) fn cargo(name: &str, workspace: &Workspace) -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Self::new(name, cargo, &workspace.root)
    }

    pub(crate) fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// When the program cannot be started or fails; the error names the step.
    pub(crate) fn run(mut self) -> anyhow::Result<()> {
        let (name, line) = (&self.name, self.line());
        eprintln!("==> {name}: {line}");
        let clock = Stopwatch::start();
        let status = self
            .command
            .status()
            .with_context(|| format!("step `{name}` cannot start: {line}"))?;
        let took_s = clock.elapsed().as_secs_f64();
        TIMES
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Took {
                name: name.clone(),
                seconds: took_s,
                passed: status.success(),
            });
        if !status.success() {
            eprintln!("<== {name}: FAILED after {took_s:.1} s");
            bail!("step `{name}` failed ({status}): {line}");
        }
        eprintln!("<== {name}: {took_s:.1} s");
        Ok(())
    }

    /// The command as one would type it.
    fn line(&self) -> String {
        let set = self
            .command
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?)))
            .map(|(key, value)| format!("{}={}", key.display(), quoted(value)));
        let program = Path::new(self.command.get_program());
        let program = program.file_name().unwrap_or(program.as_os_str());
        let arguments = self.command.get_args().map(quoted);
        set.chain([quoted(program)])
            .chain(arguments)
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// What a step took.
struct Took {
    name: String,
    seconds: f64,
    passed: bool,
}

/// Of every step of this process, in the order of their ends: a few dozen.
static TIMES: Mutex<Vec<Took>> = Mutex::new(Vec::new());

/// What each step so far took; empty when there were fewer than two.
pub(crate) fn times() -> String {
    table(&TIMES.lock().unwrap_or_else(PoisonError::into_inner))
}

fn table(times: &[Took]) -> String {
    if times.len() < 2 {
        return String::new();
    }
    let mut text = String::from("step                                  seconds\n");
    for took in times {
        let failed = if took.passed { "" } else { "  FAILED" };
        // Writing to a string does not fail.
        let _written = writeln!(text, "{:36} {:8.1}{failed}", took.name, took.seconds);
    }
    let all: f64 = times.iter().map(|took| took.seconds).sum();
    let _written = writeln!(text, "{:36} {all:8.1}", "all");
    text
}

fn quoted(text: &OsStr) -> String {
    let text = text.to_string_lossy();
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || "*$'\"\\".contains(c)) {
        format!("'{}'", text.replace('\'', r"'\''"))
    } else {
        text.into_owned()
    }
}

/// Time since a start.
pub(crate) struct Stopwatch(Instant);

#[expect(
    clippy::disallowed_methods,
    reason = "xtask links nothing of firsthop, runtime::clock included"
)]
impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Step {
        Step::new("probe", "sh", Path::new("/")).args(["-c", script])
    }

    #[test]
    fn a_failing_step_names_itself() {
        assert!(shell("exit 0").run().is_ok());
        let error = shell("exit 7").run().unwrap_err().to_string();
        assert!(error.contains("`probe`") && error.contains('7'), "{error}");
        let absent = Step::new("probe", "/no/such/program", Path::new("/")).run();
        assert!(
            absent
                .unwrap_err()
                .to_string()
                .contains("`probe` cannot start")
        );
    }

    #[test]
    fn a_step_prints_as_it_would_be_typed() {
        let step = shell("echo it's").env("KEY", "a b");
        assert_eq!(step.line(), r"KEY='a b' sh -c 'echo it'\''s'");
    }

    #[test]
    fn the_closing_table_has_each_step_and_says_which_failed() {
        let took = |name: &str, seconds, passed| Took {
            name: name.to_owned(),
            seconds,
            passed,
        };
        assert_eq!(table(&[took("alone", 1.0, true)]), "");
        let text = table(&[took("format", 1.25, true), took("clippy", 40.0, false)]);
        let lines: Vec<_> = text.lines().collect();
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_owned).collect() };
        assert_eq!(lines.len(), 4);
        assert_eq!(words(lines[1]), ["format", "1.2"]);
        assert_eq!(words(lines[2]), ["clippy", "40.0", "FAILED"]);
        assert_eq!(words(lines[3]), ["all", "41.2"]);
    }
}
