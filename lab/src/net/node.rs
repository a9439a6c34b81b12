//! One node: a child process, its log and its end.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use topology::Topology;

use super::shape::Shape;

/// The programs that are nodes of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `pop`
    Pop,
    /// `core-relay`
    CoreRelay,
    /// `transceiver`
    Transceiver,
    /// `geodns`
    GeoDns,
}

impl Program {
    const fn file_name(self) -> &'static str {
        match self {
            Self::Pop => "pop",
            Self::CoreRelay => "core-relay",
            Self::Transceiver => "transceiver",
            Self::GeoDns => "geodns",
        }
    }
}

/// Lines of a log that an error shows.
const TAIL_LINES: usize = 15;

pub(super) struct Node {
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) admin: SocketAddr,
    dir: PathBuf,
    processor: Option<usize>,
    /// Whether the voice of a transceiver measures.
    meters: bool,
    /// Arguments that only this program knows.
    more: Vec<OsString>,
    child: Option<Child>,
    /// The child was told to end.
    ending: bool,
}

/// Every node of a topology, core relays first: who listens before who dials.
pub(super) fn all(topology: &Topology, dir: &Path, shape: &Shape) -> Vec<Node> {
    let node = |program, name: &str, admin| Node {
        name: name.to_owned(),
        program,
        admin,
        dir: dir.to_owned(),
        processor: shape.processor,
        meters: shape.meters,
        more: Vec::new(),
        child: None,
        ending: false,
    };
    let relays = topology
        .regions
        .iter()
        .flat_map(|region| &region.core_relays);
    let transceivers = topology
        .regions
        .iter()
        .flat_map(|region| &region.transceivers.nodes);
    let geodns = topology.geodns.iter();
    let databases = shape.geo_databases.iter();
    let databases: Vec<_> = databases
        .flat_map(|file| ["--geo-db".into(), file.clone().into()])
        .collect();
    let geodns = geodns.map(|own| Node {
        more: databases.clone(),
        ..node(Program::GeoDns, &own.name, own.admin)
    });
    relays
        .map(|relay| node(Program::CoreRelay, &relay.name, relay.admin))
        .chain(transceivers.map(|own| node(Program::Transceiver, &own.name, own.admin)))
        .chain(
            topology
                .pops
                .iter()
                .map(|pop| node(Program::Pop, &pop.name, pop.admin)),
        )
        .chain(geodns)
        .collect()
}

impl Node {
    /// Starts the process. It dies with the thread that called this (`PR_SET_PDEATHSIG`, set by setpriv(1)).
    pub(super) fn spawn(&mut self) -> anyhow::Result<()> {
        if self.child.is_some() {
            bail!("{} is running", self.name);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file())
            .context("opening a log")?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(processor) = self.processor {
            command.args(["taskset", "--cpu-list", &processor.to_string()]);
        }
        let child = command
            .arg(program(self.file_name())?)
            .arg("--topology")
            .arg(self.dir.join("topology.yaml"))
            .args(["--node", &self.name, "--credentials"])
            .arg(self.dir.join("credentials").join(&self.name))
            .args(["--log", "info", "--log-format", "json"])
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", self.name))?;
        self.child = Some(child);
        self.ending = false;
        Ok(())
    }

    const fn file_name(&self) -> &'static str {
        match self.program {
            Program::Transceiver if self.meters => "lab-transceiver",
            Program::Pop | Program::CoreRelay | Program::Transceiver | Program::GeoDns => {
                self.program.file_name()
            }
        }
    }

    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        let child = self.child.as_ref();
        Ok(child
            .with_context(|| format!("{} is not running", self.name))?
            .id())
    }

    pub(super) const fn is_running(&self) -> bool {
        self.child.is_some()
    }

    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.end();
        Ok(())
    }

    pub(super) fn signal_end(&mut self) -> anyhow::Result<()> {
        self.ending = true;
        self.signal(Signal::SIGTERM)
    }

    pub(super) fn hang_up(&self) -> anyhow::Result<()> {
        self.signal(Signal::SIGHUP)
    }

    /// How it ended, once it has.
    pub(super) fn try_end(&mut self) -> Option<ExitStatus> {
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    /// Fails when the process has ended and nobody asked it to.
    pub(super) fn check_alive(&mut self) -> anyhow::Result<()> {
        if self.ending {
            return Ok(());
        }
        match self.try_end() {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}\n{}", self.name, self.log_tail()),
        }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    pub(super) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines.get(lines.len().saturating_sub(TAIL_LINES)..);
        let tail = tail.unwrap_or_default().join("\n");
        format!("end of {}:\n{tail}", self.log_file().display())
    }

    /// Ends it now, however it is.
    pub(super) fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Either call fails only when the process is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.pid()?.try_into()?);
        kill(pid, signal).with_context(|| format!("{signal} to {}", self.name))
    }

    fn log_file(&self) -> PathBuf {
        self.dir.join(format!("{}.log", self.name))
    }
}

/// A program of this workspace, built in the profile of the running executable.
pub(crate) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = programs_dir()?.join(name);
    if !path.exists() {
        bail!(
            "{} is not built: `cargo xtask test` builds it, or `cargo build -p pop -p core-relay -p transceiver -p geodns -p firsthop`",
            path.display()
        );
    }
    Ok(path)
}

/// Where the programs are: `FIRSTHOP_BIN_DIR`, or `target/PROFILE`, from where this executable lies: there, or in its `deps`.
///
/// # Errors
/// The executable's path cannot be read.
pub fn programs_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("FIRSTHOP_BIN_DIR") {
        return Ok(dir.into());
    }
    let exe = std::env::current_exe().context("reading the path of this executable")?;
    let dir = exe.parent().context("this executable lies nowhere")?;
    let dir = if dir.ends_with("deps") {
        dir.parent().unwrap_or(dir)
    } else {
        dir
    };
    Ok(dir.to_owned())
}
