//! A node that has started.

use std::thread::JoinHandle;

/// The threads of a node, and what to do when they have ended. Make it after every socket is bound and every thread
/// runs: until then, an error simply drops what there is.
pub struct Running {
    threads: Vec<JoinHandle<()>>,
    on_stop: Box<dyn FnOnce() + Send>,
}

impl Running {
    /// `threads`: at least one; they end when [`super::Shutdown`] says so, or when they have drained. `on_stop` runs
    /// when all have ended; what it owns (an admin server, say) lives until then.
    #[must_use]
    pub fn new(threads: Vec<JoinHandle<()>>, on_stop: impl FnOnce() + Send + 'static) -> Self {
        debug_assert!(!threads.is_empty(), "a node without a thread ends at once");
        Self {
            threads,
            on_stop: Box::new(on_stop),
        }
    }

    /// Whether every thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Blocks until every thread has ended.
    pub fn join(self) {
        for thread in self.threads {
            // A worker that panics aborts the process; another kind of thread has printed its panic.
            if thread.join().is_err() {
                tracing::error!("a thread of this node panicked");
            }
        }
        (self.on_stop)();
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("threads", &self.threads.len())
            .finish_non_exhaustive()
    }
}
