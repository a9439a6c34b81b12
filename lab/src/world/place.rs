//! A network namespace by its descriptor: it can be entered from anywhere in this process, though its name is known only inside the
//! world.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::process::{Child, Command};
use std::sync::Arc;

use anyhow::Context as _;
use nix::sched::{CloneFlags, setns};

use super::isolation::Isolation;
use crate::wan::{Namespace, Plan};

/// A namespace of a world.
#[derive(Clone, Debug)]
pub struct Place {
    name: String,
    network: Arc<File>,
}

impl Place {
    /// That of a node; to be called where the world's namespaces are made.
    pub(super) fn open(plan: &Plan, node: &str) -> anyhow::Result<Self> {
        let namespace = Namespace::of(plan, node);
        let file = File::open(namespace.path()).with_context(|| node.to_owned())?;
        Ok(Self {
            name: node.to_owned(),
            network: Arc::new(file),
        })
    }

    /// Runs `work` on a thread inside; what it opens stays inside.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().and_then(|()| work()));
            match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Starts a program inside, among the world's processes.
    pub(super) fn spawn(
        &self,
        isolation: &Isolation,
        command: &mut Command,
    ) -> anyhow::Result<Child> {
        self.run(|| {
            isolation.enter()?;
            command.spawn().with_context(|| format!("{command:?}"))
        })
    }

    /// Sets values of /proc/sys.
    pub(super) fn set(&self, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        self.run(|| {
            settings.iter().try_for_each(|(key, value)| {
                let file = format!("/proc/sys/net/{key}");
                fs::write(&file, value).with_context(|| file.clone())
            })
        })
    }

    fn enter(&self) -> anyhow::Result<()> {
        setns(self.network.as_fd(), CloneFlags::CLONE_NEWNET)
            .with_context(|| format!("entering {}", self.name))
    }
}
