//! Nodes as threads of this process, each with a context of its own: its configuration, metrics and shutdown.

use std::net::{SocketAddr, TcpListener};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, bail};
use runtime::args::NodeArgs;
use runtime::control::Control;
use runtime::logging::Format;
use runtime::node::{NodeContext, Shutdown};
use runtime::store::Hub;

use super::nodes::{Death, Files, Nodes};
use super::plan::Node;
use crate::certs::credentials_dir;

/// Between two looks at nodes that are asked to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// By when a killed node has ended: its threads look at their shutdown state once per turn.
const KILL_WITHIN: Duration = Duration::from_secs(2);

/// The nodes.
pub(super) struct InProcess {
    files: Files,
    control: Control,
    /// They know each other's state by it.
    hub: Hub,
    running: Vec<One>,
}

struct One {
    name: String,
    admin: SocketAddr,
    shutdown: Shutdown,
    /// Ends when all threads of the node have.
    join: JoinHandle<()>,
}

impl InProcess {
    /// None yet. Their control work shares `control`.
    pub(super) fn new(files: Files, control: Control) -> Self {
        Self {
            files,
            control,
            hub: Hub::default(),
            running: Vec::new(),
        }
    }

    fn args(&self, node: &Node) -> NodeArgs {
        NodeArgs {
            topology: self.files.topology.clone(),
            node: node.name.clone(),
            credentials: credentials_dir(&self.files.credentials, &node.name),
            state_dir: None,
            check: false,
            print_config: false,
            log: self.files.log.clone(),
            log_format: Format::Text,
        }
    }
}

impl Nodes for InProcess {
    fn start(&mut self, node: &Node) -> anyhow::Result<()> {
        let program = node.kind.command();
        let config = runtime::node::load(program, &self.args(node))?;
        let context = NodeContext::new(program, &node.name, config, self.control.clone())
            .with_hub(self.hub.clone());
        let shutdown = context.shutdown.clone();
        let running = (node.kind.start())(context)
            .with_context(|| format!("starting {} {}", node.kind.noun(), node.name))?;
        let join = thread::Builder::new()
            .name(format!("join-{}", node.name))
            .spawn(move || running.join())?;
        self.running.push(One {
            name: node.name.clone(),
            admin: node.admin,
            shutdown,
            join,
        });
        Ok(())
    }

    fn kill(&mut self, name: &str) -> anyhow::Result<()> {
        let Some(position) = self.running.iter().position(|one| one.name == name) else {
            return Ok(());
        };
        let one = self.running.swap_remove(position);
        one.shutdown.stop();
        // The admin listener ends on the control thread, a moment after the node's own threads.
        let gone = || one.join.is_finished() && TcpListener::bind(one.admin).is_ok();
        if !within(KILL_WITHIN, gone) {
            bail!("{name} does not end");
        }
        Ok(())
    }

    fn deaths(&mut self) -> Vec<Death> {
        let ended = self.running.extract_if(.., |one| one.join.is_finished());
        ended
            .map(|one| Death {
                name: one.name,
                how: "all its threads ended".to_owned(),
            })
            .collect()
    }

    fn stop(&mut self, patience: Duration) {
        for one in &self.running {
            one.shutdown.stop();
        }
        let ended = |one: &One| one.join.is_finished();
        within(patience, || self.running.iter().all(ended));
        for one in self.running.iter().filter(|one| !ended(one)) {
            tracing::warn!(name = %one.name, "does not end when told to");
        }
        self.running.clear();
    }

    fn place(&self, _name: &str) -> String {
        "threads".to_owned()
    }
}

/// Waits for `reached` and says whether it came.
fn within(patience: Duration, reached: impl Fn() -> bool) -> bool {
    let deadline = runtime::clock::now() + patience;
    loop {
        if reached() {
            return true;
        }
        if runtime::clock::now() > deadline {
            return false;
        }
        thread::sleep(LOOK_INTERVAL);
    }
}
