//! Stops one thread of a running program and lets it go on: a worker that hangs, with everything around it alive.
//!
//! `SIGSTOP` stops a whole process; ptrace(2) stops one thread. The kernel wants the thread that took hold of another to
//! let it go, so a [`Frozen`] stays where it was made.

use std::fs;
use std::marker::PhantomData;

use anyhow::Context;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A thread that is stopped until this is dropped.
#[derive(Debug)]
pub struct Frozen {
    thread: Pid,
    _stays_here: PhantomData<*const ()>,
}

impl Frozen {
    /// Stops the thread of process `pid` that is called `name` and is not its first one, which bears the program's name.
    ///
    /// # Errors
    /// There is no such thread, or the kernel does not let this process trace it.
    pub fn thread_named(pid: u32, name: &str) -> anyhow::Result<Self> {
        let thread = find(pid, name).with_context(|| format!("no thread `{name}` in {pid}"))?;
        ptrace::seize(thread, ptrace::Options::empty()).context("taking hold of a thread")?;
        let frozen = Self {
            thread,
            _stays_here: PhantomData,
        };
        ptrace::interrupt(thread).context("stopping a thread")?;
        waitpid(thread, Some(WaitPidFlag::__WALL)).context("waiting for a thread to stop")?;
        Ok(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Fails only when the thread is gone.
        let _ = ptrace::detach(self.thread, None);
    }
}

fn find(pid: u32, name: &str) -> Option<Pid> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let first = pid.to_string();
    let named = |thread: &fs::DirEntry| {
        let comm = fs::read_to_string(thread.path().join("comm"));
        thread.file_name() != *first && comm.is_ok_and(|comm| comm.trim_end() == name)
    };
    let thread = threads.filter_map(Result::ok).find(named)?;
    let id: i32 = thread.file_name().to_str()?.parse().ok()?;
    Some(Pid::from_raw(id))
}
