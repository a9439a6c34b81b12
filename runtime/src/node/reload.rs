//! Reload: reads everything anew, and takes it only when all of it is good.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::args::NodeArgs;
use crate::credentials::FILES;
use crate::metrics::Counter;

use super::config::{self, StartError};
use super::{ConfigHandle, NodeContext, Shutdown};

/// Watches the files of a node and replaces its configuration.
pub(super) struct Reloader {
    program: &'static str,
    args: NodeArgs,
    config: ConfigHandle,
    shutdown: Shutdown,
    files: Vec<PathBuf>,
    /// As of the last load.
    loaded: Vec<Fingerprint>,
    /// As of the last look.
    seen: Vec<Fingerprint>,
    reloads_ok: Counter,
    reloads_refused: Counter,
}

/// What changes when a file is written or replaced; `None` for a file that is not there.
type Fingerprint = Option<(i64, i64, u64, u64)>;

impl Reloader {
    pub(super) fn new(program: &'static str, args: NodeArgs, context: &NodeContext) -> Self {
        let credentials = FILES.iter().map(|name| args.credentials.join(name));
        let files: Vec<PathBuf> = credentials.chain([args.topology.clone()]).collect();
        let reloads = |result| {
            context.metrics.counter(
                "config.reloads",
                "{reload}",
                "Reloads of topology and credentials.",
                &[("result", result)],
            )
        };
        let seen = fingerprints(&files);
        Self {
            program,
            config: context.config.clone(),
            shutdown: context.shutdown.clone(),
            loaded: seen.clone(),
            seen,
            files,
            args,
            reloads_ok: reloads("ok"),
            reloads_refused: reloads("refused"),
        }
    }

    /// Reloads when a file has changed and then stayed as it is for one interval, so that files written one after
    /// the other are read together.
    pub(super) fn poll(&mut self) {
        let seen = fingerprints(&self.files);
        let settled = seen == self.seen;
        self.seen = seen;
        if settled && self.seen != self.loaded {
            self.reload();
        }
    }

    /// Reloads: all or nothing.
    pub(super) fn reload(&mut self) {
        // Taken before the files are read: a file that changes meanwhile is read once more.
        self.loaded = fingerprints(&self.files);
        match self.try_reload() {
            Ok(()) => {
                self.reloads_ok.add(1);
                tracing::info!(
                    generation = self.config.generation(),
                    "configuration reloaded"
                );
                self.shutdown.wake_all();
            }
            Err(error) => {
                self.reloads_refused.add(1);
                tracing::error!(%error, "configuration not reloaded: the old one stays");
            }
        }
    }

    fn try_reload(&self) -> Result<(), StartError> {
        let next = config::load(self.program, &self.args)?;
        let current = self.config.load();
        config::check_settled(
            &self.args.topology,
            &self.args.node,
            &current.topology,
            &next.topology,
        )?;
        self.config.publish(next.topology, next.credentials);
        Ok(())
    }
}

fn fingerprints(files: &[PathBuf]) -> Vec<Fingerprint> {
    let fingerprint = |metadata: Metadata| {
        let (s, ns) = (metadata.mtime(), metadata.mtime_nsec());
        (s, ns, metadata.len(), metadata.ino())
    };
    files
        .iter()
        .map(|file| std::fs::metadata(file).ok().map(fingerprint))
        .collect()
}
