//! The running nodes, as threads of this process or as processes of their own.

use std::path::PathBuf;
use std::time::Duration;

use super::plan::Node;

/// Where nodes find their files.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The topology they all read.
    pub(super) topology: PathBuf,
    /// Directory of credentials directories.
    pub(super) credentials: PathBuf,
    /// Log filter.
    pub(super) log: String,
}

/// A node that is not there any more though nobody ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// Its name.
    pub(super) name: String,
    /// How it ended.
    pub(super) how: String,
}

/// A way to run nodes.
pub(super) trait Nodes {
    /// Starts a node that does not run.
    ///
    /// # Errors
    /// When it cannot be started; then nothing of it is left.
    fn start(&mut self, node: &Node) -> anyhow::Result<()>;

    /// Ends a node without warning and waits until it is gone. One that does not run is fine.
    ///
    /// # Errors
    /// When it does not end.
    fn kill(&mut self, name: &str) -> anyhow::Result<()>;

    /// Nodes that ended by themselves since the last call.
    fn deaths(&mut self) -> Vec<Death>;

    /// Ends all nodes, and does so within `patience`.
    fn stop(&mut self, patience: Duration);

    /// Where a node runs, for the table.
    fn place(&self, name: &str) -> String;
}
