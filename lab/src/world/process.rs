//! One process of a world: how it is started, its log, and what became of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::isolation::Isolation;
use super::place::Place;

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 15;

/// A program with its arguments, in its place.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    place: Place,
    log: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(super) fn new(
        name: &str,
        program: PathBuf,
        arguments: Vec<OsString>,
        place: &Place,
        log: PathBuf,
    ) -> Self {
        Self {
            name: name.to_owned(),
            program,
            arguments,
            place: place.clone(),
            log,
            child: None,
        }
    }

    /// Starts it. Its log goes on where it ended.
    pub(super) fn start(&mut self, isolation: &Isolation) -> anyhow::Result<()> {
        if self.is_running() {
            bail!("{} is running", self.name);
        }
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| self.log.display().to_string())?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("a log")?)
            .stderr(log);
        self.child = Some(self.place.spawn(isolation, &mut command)?);
        Ok(())
    }

    /// Whether it was started and has not ended.
    pub(super) fn is_running(&mut self) -> bool {
        let ended = self.child.as_mut().map(Child::try_wait);
        matches!(ended, Some(Ok(None)))
    }

    /// Fails when it was started and has ended, and nobody ended it here.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let ended = self.child.as_mut().map(Child::try_wait);
        match ended {
            Some(Ok(Some(status))) => bail!("{} ended with {status}\n{}", self.name, self.tail()),
            None | Some(Ok(None) | Err(_)) => Ok(()),
        }
    }

    /// Process id, as this process sees it.
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        let child = self.child.as_ref();
        let child = child.with_context(|| format!("{} does not run", self.name))?;
        Ok(child.id())
    }

    pub(super) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if !self.is_running() {
            bail!("{} does not run", self.name);
        }
        let pid = Pid::from_raw(self.pid()?.try_into()?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.name))
    }

    /// `kill -9`, if it runs; it is gone afterwards.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Either call fails only when the process is gone already.
            let _gone = child.kill();
            let _gone = child.wait();
        }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(super) fn tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL_LINES)..);
        let tail = tail.unwrap_or_default().join("\n");
        format!("end of {}:\n{tail}", self.log.display())
    }
}
