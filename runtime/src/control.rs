//! Where async control work runs: admin HTTP, signaling, telemetry. One small tokio runtime that the nodes of a
//! process share; packets never pass through it.

use std::future::Future;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// A tokio runtime of one worker thread. Clones share it; tasks end when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// `None` only while it is being dropped.
    runtime: Option<Runtime>,
    handle: Handle,
}

impl Control {
    /// Starts the thread.
    ///
    /// # Errors
    /// The kernel gives no thread or descriptor.
    pub fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(8)
            .thread_name("control")
            .enable_all()
            .build()?;
        let handle = runtime.handle().clone();
        Ok(Self {
            shared: Arc::new(Shared {
                runtime: Some(runtime),
                handle,
            }),
        })
    }

    /// Runs a task in the background.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.shared.handle.spawn(task)
    }

    /// Runs `task` on this thread until it ends. Not from inside a task.
    pub fn block_on<F: Future>(&self, task: F) -> F::Output {
        self.shared.handle.block_on(task)
    }

    /// For libraries that want the handle, and for `enter`.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.shared.handle
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // A plain drop waits for blocking tasks and panics when the last clone goes inside a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
