//! Network namespaces of a plan, by name, as `ip netns` makes them; and what is done inside one.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use nix::sched::{CloneFlags, setns};

use super::plan::Plan;

/// Where `ip netns` keeps them.
const DIRECTORY: &str = "/run/netns";

/// A namespace that exists.
#[derive(Clone, Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The one of `node`.
    #[must_use]
    pub fn of(plan: &Plan, node: &str) -> Self {
        Self {
            name: plan.namespace(node),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn path(&self) -> PathBuf {
        Path::new(DIRECTORY).join(&self.name)
    }

    fn exists(&self) -> bool {
        self.path().exists()
    }

    /// Runs `work` on a thread inside; what it opens stays inside.
    ///
    /// # Errors
    /// Not root, or no such namespace; or what `work` returns.
    pub fn run<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let enter = || {
            let file = File::open(self.path()).with_context(|| self.name.clone())?;
            setns(file, CloneFlags::CLONE_NEWNET).with_context(|| self.name.clone())
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| enter().and_then(|()| work()));
            match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Runs lines of `ip` inside, all at once.
    pub(crate) fn ip(&self, lines: &str) -> anyhow::Result<()> {
        ip(&["-n", &self.name], lines)
    }
}

/// Makes the namespace of every node, with its loopback up.
pub(crate) fn create(plan: &Plan) -> anyhow::Result<()> {
    let all: Vec<Namespace> = all(plan).collect();
    if let Some(stale) = all.iter().find(|namespace| namespace.exists()) {
        bail!(
            "namespace {} exists: `lab wan down` removes what an earlier run left",
            stale.name
        );
    }
    let lines: String = all
        .iter()
        .map(|namespace| format!("netns add {}\n", namespace.name))
        .collect();
    ip(&[], &lines)?;
    all.iter()
        .try_for_each(|namespace| namespace.ip("link set lo up\n"))
}

/// Removes the namespaces of a plan that there are, and no other. May be done twice.
///
/// # Errors
/// Not root.
pub fn remove(plan: &Plan) -> anyhow::Result<()> {
    let there = all(plan).filter(Namespace::exists);
    let lines: String = there
        .map(|namespace| format!("netns del {}\n", namespace.name))
        .collect();
    ip(&[], &lines)
}

fn all(plan: &Plan) -> impl Iterator<Item = Namespace> {
    let nodes = plan.all_nodes().into_iter();
    nodes.map(|node| Namespace::of(plan, node))
}

fn ip(arguments: &[&str], lines: &str) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut child = Command::new("ip")
        .args(arguments)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("running ip")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.as_bytes()).context("telling ip")?;
    }
    let output = child.wait_with_output().context("waiting for ip")?;
    if !output.status.success() {
        bail!("ip: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
