//! Nodes as processes of their own: this program again, as `firsthop node KIND`.
//!
//! A child never outlives this process, however that ends: the kernel kills it together with the thread that started
//! it (`PR_SET_PDEATHSIG`), which is the main thread. Children are in a process group of their own, so that Ctrl-C in
//! a terminal reaches this process alone, which then ends them.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};

use super::nodes::{Death, Files, Nodes};
use super::plan::Node;
use crate::certs::credentials_dir;

/// The children.
pub(super) struct Processes {
    files: Files,
    children: Vec<(String, Child)>,
}

impl Processes {
    /// None yet.
    pub(super) const fn new(files: Files) -> Self {
        Self {
            files,
            children: Vec::new(),
        }
    }

    /// Forgets children that have ended; what is left still runs.
    fn reap(&mut self) -> Vec<Death> {
        let mut deaths = Vec::new();
        self.children.retain_mut(|(name, child)| {
            let how = match child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            };
            deaths.push(Death {
                name: name.clone(),
                how,
            });
            false
        });
        deaths
    }
}

impl Nodes for Processes {
    fn start(&mut self, node: &Node) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("finding this program's file")?;
        let child = Command::new(program)
            .args(["node", node.kind.command(), "--node", &node.name])
            .arg("--topology")
            .arg(&self.files.topology)
            .arg("--credentials")
            .arg(credentials_dir(&self.files.credentials, &node.name))
            .args(["--log", &self.files.log])
            .args(["--die-with", &std::process::id().to_string()])
            // A service manager that waits for this process waits for none of these.
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {}", node.name))?;
        self.children.push((node.name.clone(), child));
        Ok(())
    }

    fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(position) = self.children.iter().position(|(other, _)| other == name) else {
            return Ok(());
        };
        let (_, mut child) = self.children.swap_remove(position);
        child.kill().with_context(|| format!("killing {name}"))?;
        child
            .wait()
            .with_context(|| format!("waiting for {name}"))?;
        Ok(())
    }

    fn deaths(&mut self) -> Vec<Death> {
        self.reap()
    }

    /// With SIGKILL, all before the first is waited for: nodes have nothing to save, and none is left to report that
    /// the others are gone.
    fn stop(&mut self, _patience: Duration) {
        for (name, child) in &mut self.children {
            if let Err(error) = child.kill() {
                tracing::warn!(%name, %error, "cannot kill");
            }
        }
        for (_, mut child) in self.children.drain(..) {
            let _reaped = child.wait();
        }
    }

    fn place(&self, name: &str) -> String {
        self.children
            .iter()
            .find(|(other, _)| other == name)
            .map_or_else(
                || "gone".to_owned(),
                |(_, child)| format!("pid {}", child.id()),
            )
    }
}

/// Makes the kernel kill this process when `parent`, which started it, ends.
///
/// # Errors
/// When `parent` has ended already, or the kernel refuses.
pub(crate) fn die_with(parent: i32) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("asking to be killed with the parent process")?;
    // The parent may have ended before the request; then this process has another parent by now.
    if rustix::process::getppid() != Pid::from_raw(parent) {
        bail!("process {parent}, which this one must not outlive, has ended");
    }
    Ok(())
}
