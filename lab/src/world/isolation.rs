//! What keeps a world apart from the machine, and makes an end of it: namespaces of mounts, networks and processes that nobody
//! outside sees, held by one thread.
//!
//! ```text
//! this process
//!   └── thread `anchor`      mounts and network of its own: /run is empty, so `ip netns` names nothing of the machine's
//!         └── pid 1          of a process namespace; dies with the thread (PR_SET_PDEATHSIG), and all programs with it
//! ```
//!
//! The kernel makes the end whatever becomes of us: a `kill -9` of this process ends its threads, pid 1 hears of it, the
//! kernel kills everybody in its namespace, and networks that nobody is in are gone with their devices.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::interrupt::{OnInterrupt, on_interrupt};

/// What a thread that enters a place of the world brings along.
#[derive(Debug)]
pub(super) struct Isolation {
    init: Child,
    processes: File,
    /// Before pid 1 is waited for: its number is its own until then.
    on_interrupt: Option<OnInterrupt>,
    end: Option<SyncSender<()>>,
    anchor: Option<JoinHandle<()>>,
}

impl Isolation {
    /// Runs `prepare` where the world's namespaces are made, and keeps what it returns apart.
    ///
    /// # Errors
    /// Not root, or what `prepare` returns.
    pub(super) fn new<T: Send + 'static>(
        prepare: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
    ) -> anyhow::Result<(Self, T)> {
        let (end, ended) = mpsc::sync_channel(1);
        let (tell, told) = mpsc::sync_channel(1);
        let anchor = std::thread::Builder::new().name("anchor".to_owned());
        let anchor = anchor.spawn(move || hold(prepare, &tell, &ended))?;
        let (init, prepared) = told.recv().context("the anchor of a world broke")??;
        let processes = format!("/proc/{}/ns/pid", init.id());
        let pid = init.id();
        let isolation = Self {
            processes: File::open(processes).context("the process namespace of a world")?,
            on_interrupt: Some(on_interrupt(move || kill_all(pid))),
            init,
            end: Some(end),
            anchor: Some(anchor),
        };
        Ok((isolation, prepared))
    }

    /// Puts the next children of the calling thread among the world's processes. The thread can start no thread any more.
    pub(super) fn enter(&self) -> anyhow::Result<()> {
        setns(self.processes.as_fd(), CloneFlags::CLONE_NEWPID)
            .context("entering the process namespace of a world")
    }

    /// Pid 1, as this process sees it.
    pub(super) fn pid(&self) -> u32 {
        self.init.id()
    }

    /// Kills everybody. Their parents have to hear of it before [`Self`] is dropped.
    pub(super) fn kill(&self) {
        // It was not waited for, so the number is its own.
        kill_all(self.init.id());
    }
}

/// Kills pid 1 of a world, and with it everybody else.
fn kill_all(pid: u32) {
    let pid = i32::try_from(pid).map(Pid::from_raw);
    let _dead = pid.map(|pid| kill(pid, Signal::SIGKILL));
}

impl Drop for Isolation {
    fn drop(&mut self) {
        self.kill();
        self.on_interrupt = None;
        let _ended = self.init.wait();
        self.end = None;
        if let Some(anchor) = self.anchor.take() {
            let _ended = anchor.join();
        }
    }
}

/// What the anchor does: makes everything, says so, and lives until it is told otherwise.
fn hold<T>(
    prepare: impl FnOnce() -> anyhow::Result<T>,
    tell: &SyncSender<anyhow::Result<(Child, T)>>,
    ended: &Receiver<()>,
) {
    let made = apart().and_then(|()| {
        let prepared = prepare()?;
        // From here on this thread starts no thread: what `prepare` needs of them it has.
        unshare(CloneFlags::CLONE_NEWPID).context("a process namespace")?;
        let init = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "sleep", "infinity"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting pid 1")?;
        Ok((init, prepared))
    });
    if tell.send(made).is_ok() {
        let _nobody_wants_it_any_more = ended.recv();
    }
}

/// Mounts and a network of the calling thread's own.
fn apart() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET)
        .context("a world needs namespaces of its own: run it as root")?;
    run(Command::new("mount").args(["--make-rprivate", "/"]))?;
    run(Command::new("mount").args(["-t", "tmpfs", "none", "/run"]))?;
    run(Command::new("ip").args(["link", "set", "lo", "up"]))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", error.trim());
    }
    Ok(())
}
