//! A program that is not ours: where it is, and one process of it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use crate::bench::world::PATH;
use crate::net::programs_dir;

/// Why a peer cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Missing(pub(crate) String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The version of boringtun-cli that is installed and measured.
const BORINGTUN_VERSION: &str = "0.7.1";

/// The program at this path.
pub(crate) fn debian(path: &str, package: &str) -> Result<PathBuf, Missing> {
    let missing = || Missing(format!("`apt-get install {package}` brings {path}"));
    let path = Path::new(path);
    path.exists().then(|| path.to_owned()).ok_or_else(missing)
}

/// boringtun-cli, built from crates.io the first time.
pub(super) fn boringtun() -> Result<PathBuf, Missing> {
    let missing = |error: anyhow::Error| Missing(format!("no boringtun-cli: {error:#}"));
    let dir = tools_dir().map_err(missing)?;
    let path = dir.join("bin/boringtun-cli");
    if !path.exists() {
        install_boringtun(&dir).map_err(missing)?;
    }
    Ok(path)
}

fn install_boringtun(root: &Path) -> anyhow::Result<()> {
    let status = Command::new("cargo")
        .args(["install", "boringtun-cli", "--version", BORINGTUN_VERSION])
        .args(["--locked", "--root"])
        .arg(root)
        .stdout(Stdio::null())
        .status()
        .context("running cargo install")?;
    anyhow::ensure!(status.success(), "cargo install: {status}");
    Ok(())
}

/// Beside the profiles, so that debug and release share it.
fn tools_dir() -> anyhow::Result<PathBuf> {
    let profile = programs_dir()?;
    Ok(profile.parent().unwrap_or(&profile).join("bench-tools"))
}

/// A directory for the files of a peer, empty.
pub(crate) fn work_dir(name: &str) -> anyhow::Result<PathBuf> {
    let dir = tools_dir()?.join(format!("{name}-{}", std::process::id()));
    if dir.exists() {
        std::fs::remove_dir_all(&dir)?;
    }
    std::fs::create_dir_all(&dir).context("making the directory of a peer")?;
    Ok(dir)
}

/// A UDP port of loopback that nobody has.
pub(super) fn free_port() -> anyhow::Result<SocketAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    Ok(socket.local_addr()?)
}

/// A process on [`PATH`], killed when dropped or when the thread that started it ends.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    dir: PathBuf,
    log: PathBuf,
}

impl Process {
    /// Starts `program` with what `arguments` adds; its output goes to a file in `dir`.
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        arguments: impl FnOnce(&mut Command),
    ) -> anyhow::Result<Self> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let log = dir.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .args(["taskset", "--cpu-list", &PATH.to_string()])
            .arg(program);
        arguments(&mut command);
        let child = command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {name}"))?;
        Ok(Self {
            name: name.into_owned(),
            child,
            dir: dir.to_owned(),
            log,
        })
    }

    /// Its process id: what starts it has become it.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails when it has ended, with what it said.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let said = std::fs::read_to_string(&self.log).unwrap_or_default();
                bail!("{} ended with {status}: {}", self.name, said.trim())
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Either call fails only when the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The other process of a pair may have removed it.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
