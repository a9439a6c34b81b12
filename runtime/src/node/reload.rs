//! Reload: reads everything anew, and takes it only when all of it is good.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::args::NodeArgs;
use crate::credentials::FILES;
use crate::metrics::Counter;

use super::config::{self, Config, StartError};
use super::{ConfigHandle, NodeContext, Shutdown};

/// Watches the files of a node and replaces its configuration.
pub(super) struct Reloader {
    program: &'static str,
    args: NodeArgs,
    config: ConfigHandle,
    shutdown: Shutdown,
    files: Files,
    check: fn(&Config) -> Result<(), String>,
    reloads_ok: Counter,
    reloads_refused: Counter,
}

/// The files a configuration comes from.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// As of the last load.
    loaded: Vec<Fingerprint>,
    /// As of the last look.
    seen: Vec<Fingerprint>,
}

impl Files {
    /// Take it before the first load: what changes meanwhile is then loaded again.
    pub(super) fn of(args: &NodeArgs) -> Self {
        let credentials = FILES.iter().map(|name| args.credentials.join(name));
        let paths: Vec<PathBuf> = credentials.chain([args.topology.clone()]).collect();
        let seen = fingerprints(&paths);
        Self {
            paths,
            loaded: seen.clone(),
            seen,
        }
    }

    /// Whether a file has changed since the last load, and not since the last look.
    fn settled_anew(&mut self) -> bool {
        let seen = fingerprints(&self.paths);
        let settled = seen == self.seen;
        self.seen = seen;
        settled && self.seen != self.loaded
    }
}

/// What changes when a file is written or replaced; `None` for a file that is not there.
type Fingerprint = Option<(i64, i64, u64, u64)>;

impl Reloader {
    pub(super) fn new(
        program: &'static str,
        args: NodeArgs,
        files: Files,
        context: &NodeContext,
        check: fn(&Config) -> Result<(), String>,
    ) -> Self {
        let reloads = |result| {
            context.metrics.counter(
                "config.reloads",
                "{reload}",
                "Reloads of topology and credentials.",
                &[("result", result)],
            )
        };
        Self {
            program,
            args,
            config: context.config.clone(),
            shutdown: context.shutdown.clone(),
            files,
            check,
            reloads_ok: reloads("ok"),
            reloads_refused: reloads("refused"),
        }
    }

    /// Reloads when a file has changed and then stayed as it is for one interval, so that files written one after
    /// the other are read together.
    pub(super) fn poll(&mut self) {
        if self.files.settled_anew() {
            self.reload();
        }
    }

    /// Reloads: all or nothing.
    pub(super) fn reload(&mut self) {
        // Taken before the files are read: a file that changes meanwhile is read once more.
        self.files.loaded = fingerprints(&self.files.paths);
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
        if current.credentials.whip_secret.is_some() && next.credentials.whip_secret.is_none() {
            return Err(StartError::SecretGone);
        }
        (self.check)(&next).map_err(StartError::Unfit)?;
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
