//! Compiles in the background, one job at a time: seconds of work that must not delay a drain or a certificate.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use geodns_policy::compile::{CompileError, compile};
use geodns_policy::databases::Databases;
use geodns_policy::{Measured, Ranking, Snapshot};
use runtime::clock;
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

/// The thread panicked; its message is in the log, and the job is lost.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Died;

/// The thread. It ends with this value, after the job it has.
pub(super) struct Compiler<J, D> {
    jobs: SyncSender<J>,
    done: Receiver<D>,
    busy: bool,
}

impl<J: Send + 'static, D: Send + 'static> Compiler<J, D> {
    /// Starts the thread, which does `work`; `waker` is told when a job is done.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(super) fn start(waker: Waker, work: fn(J) -> D) -> anyhow::Result<Self> {
        let (jobs, inbox) = sync_channel::<J>(1);
        let (tell, done) = sync_channel(1);
        thread::Builder::new()
            .name("compiler".to_owned())
            .spawn(move || {
                run_last();
                for job in inbox {
                    if tell.send(work(job)).is_err() {
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
    pub(super) fn begin(&mut self, job: J) {
        self.busy = self.busy || self.jobs.try_send(job).is_ok();
    }

    /// What is done.
    ///
    /// # Errors
    /// The thread is no more: another one is to be started.
    pub(super) fn take(&mut self) -> Result<Option<D>, Died> {
        match self.done.try_recv() {
            Ok(done) => {
                self.busy = false;
                Ok(Some(done))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(Died),
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
    let compiled = compile(&snapshot, &job.databases);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn halved(job: u32) -> u32 {
        assert!(job.is_multiple_of(2), "an odd job");
        job / 2
    }

    fn wait(compiler: &mut Compiler<u32, u32>) -> Result<u32, Died> {
        let end = clock::now() + Duration::from_secs(10);
        loop {
            if let Some(done) = compiler.take()? {
                return Ok(done);
            }
            assert!(clock::now() < end, "nothing comes");
            thread::yield_now();
        }
    }

    #[test]
    fn a_job_that_panics_is_told_and_another_thread_does_the_next() {
        let waker = Waker::new().unwrap();
        let mut compiler = Compiler::start(waker.clone(), halved).unwrap();
        compiler.begin(8);
        assert_eq!(wait(&mut compiler), Ok(4));
        compiler.begin(7);
        assert!(compiler.is_busy());
        assert_eq!(wait(&mut compiler), Err(Died));
        compiler = Compiler::start(waker, halved).unwrap();
        assert!(!compiler.is_busy());
        compiler.begin(6);
        assert_eq!(wait(&mut compiler), Ok(3));
    }
}
