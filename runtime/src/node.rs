//! The life of a node: flags, configuration, signals, drain, reload.
//!
//! ```text
//! main: flags -> topology + credentials -> start(context) -> Running
//!                                                              |  SIGHUP, changed file: reload, or keep the old
//!                                                              v
//!        first SIGTERM/SIGINT: Draining{deadline} --deadline or second signal--> Stopped --threads end--> exit 0
//! ```
//!
//! Exit codes: 0 ended as told, 1 could not start or a worker ended unasked, 2 flags, topology or credentials wrong
//! (one line on stderr, nothing started).

mod config;
mod lifecycle;
mod reload;
mod running;
mod shutdown;

pub use config::{Config, ConfigHandle, StartError, load};
pub use lifecycle::{Checks, Refused, Start, main, main_checked, main_of, main_with};
pub use running::Running;
pub use shutdown::{Shutdown, State};

use std::path::PathBuf;

use crate::control::Control;
use crate::metrics::Registry;
use crate::store::Hub;
use crate::watch::Watch;

/// What a node needs to start. Clones share everything.
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// Its name in the topology.
    pub name: String,
    /// Topology and credentials, as of the last good reload.
    pub config: ConfigHandle,
    /// Its metrics.
    pub metrics: Registry,
    /// Tells it to drain and to stop.
    pub shutdown: Shutdown,
    /// Runs its async control work.
    pub control: Control,
    /// Watches its workers.
    pub watch: Watch,
    /// Where it keeps what must outlive it.
    pub state_dir: Option<PathBuf>,
    /// What nodes of this process tell each other where the topology names no state store.
    pub hub: Hub,
}

impl NodeContext {
    /// A context of its own for a node that shares its process with others.
    #[must_use]
    pub fn new(program: &str, name: &str, config: Config, control: Control) -> Self {
        let metrics = Registry::new(program, name);
        let config = ConfigHandle::new(config);
        config::observe(&config, &metrics);
        metrics.observe_counter(
            "log.lines_dropped",
            "{line}",
            "Log lines of the process that were dropped because whoever reads stderr does not.",
            &[],
            crate::logging::dropped,
        );
        let watch = Watch::start(&metrics, &control);
        Self {
            name: name.to_owned(),
            config,
            metrics,
            shutdown: Shutdown::new(),
            control,
            watch,
            state_dir: None,
            hub: Hub::default(),
        }
    }

    /// The same, for a node that keeps something.
    #[must_use]
    pub fn with_state_dir(mut self, dir: Option<PathBuf>) -> Self {
        self.state_dir = dir;
        self
    }

    /// The same, for a process whose nodes know each other.
    #[must_use]
    pub fn with_hub(mut self, hub: Hub) -> Self {
        self.hub = hub;
        self
    }
}
