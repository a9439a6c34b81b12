//! Compiles in the background, one job at a time: seconds of work that must not delay a drain or a certificate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use geodns_policy::compile::{CompileError, MEMORY_LEN, compile};
use geodns_policy::databases::Databases;
use geodns_policy::{Measured, Ranking, Snapshot};
use runtime::clock;
use runtime::memory;
use runtime::node::Config;
use runtime::poll::Waker;
use runtime::thread::run_last;

use super::site::Site;
use crate::world::Map;

/// What is compiled.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) config: Arc<Config>,
    pub(super) site: Arc<Site>,
    pub(super) measured: Arc<Measured>,
    pub(super) databases: Arc<Databases>,
}

/// What came of it.
pub(super) struct Done {
    pub(super) job: Job,
    pub(super) result: Result<Compiled, CompileError>,
    pub(super) took: Duration,
}

/// Tables and their lists.
#[derive(Clone)]
pub(super) struct Compiled {
    pub(super) map: Arc<Map>,
    pub(super) lists: Arc<[Ranking]>,
}

/// The thread. It ends with this value, after the job it has.
pub(super) struct Compiler {
    jobs: SyncSender<Job>,
    done: Receiver<Done>,
    busy: bool,
}

impl Compiler {
    /// Starts the thread; `waker` is told when a job is done.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(waker: Waker) -> anyhow::Result<Self> {
        let (jobs, inbox) = sync_channel::<Job>(1);
        let (tell, done) = sync_channel(1);
        thread::Builder::new()
            .name("compiler".to_owned())
            .spawn(move || {
                run_last();
                for job in inbox {
                    if tell.send(run(job)).is_err() {
                        return;
                    }
                    waker.wake();
                }
            })
            .context("starting the compiler")?;
        Ok(Self {
            jobs,
            done,
            busy: false,
        })
    }

    /// Whether a job is under way.
    pub(super) const fn is_busy(&self) -> bool {
        self.busy
    }

    /// Begins a job, when none is under way.
    pub(super) fn begin(&mut self, job: Job) {
        self.busy = self.busy || self.jobs.try_send(job).is_ok();
    }

    /// What is done.
    pub(super) fn take(&mut self) -> Option<Done> {
        match self.done.try_recv() {
            Ok(done) => {
                self.busy = false;
                Some(done)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                // It panicked; its message is in the log. The tables stay as they are.
                self.busy = true;
                None
            }
        }
    }
}

/// Compiles.
pub(super) fn run(job: Job) -> Done {
    let began = clock::now();
    let snapshot = Snapshot {
        measured: Arc::clone(&job.measured),
        ..Snapshot::of((*job.site.plan).clone())
    };
    let compiled = compile(&snapshot, &job.databases, memory::zeros(MEMORY_LEN));
    let result = compiled.map(|compiled| Compiled {
        map: Arc::new(Map {
            tables: compiled.tables,
            figures: compiled.figures,
        }),
        lists: compiled.lists.into(),
    });
    Done {
        job,
        result,
        took: clock::now().saturating_duration_since(began),
    }
}
