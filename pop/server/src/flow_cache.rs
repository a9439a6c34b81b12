//! The flow cache: the Redis of the PoP's failover group, where flows outlive this process.
//!
//! ```text
//!  worker 0 ─┐ asks, writes (lock-free, bounded)           ┌ lookups: several batches in flight, each with a time limit
//!  worker 1 ─┼──────────────────────────────────► one task ┤                                                ◄────► Redis
//!  worker n ─┘ ◄──────────────────────────────── answers   └ writes: one batch in flight, in order
//! ```
//!
//! A worker pushes and pops; it never waits, and sees Redis only as answers. The task runs on the node's control runtime. While Redis
//! cannot be used, questions are answered `Unavailable` at once, stores are dropped and counted (flows in use
//! are stored again once it is back), and what is to be forgotten is kept until it can be, or until its entry has expired by itself.
//!
//! What is not here: which flow is stored when, who may ask, and what is held meanwhile (`pop_proto`); how values and keys
//! are made (`wire::flow_record`).

mod batch;
mod entry;
mod forgets;
mod health;
mod metrics;
mod port;
mod queues;
mod status;
mod task;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use runtime::node::{Config, NodeContext};
use runtime::poll::Waker;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use topology::Pop;

pub(crate) use port::Port;
pub(crate) use status::{CacheView, State, Status};

use crate::flow_cache::queues::Queues;
use crate::flow_cache::task::Task;
use crate::ingress::Addresses;
use runtime::random;

/// How long a PoP that stops waits for what is still to be written.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The flow cache of a PoP, from start to stop.
pub(crate) struct FlowCache {
    queues: Arc<Queues>,
    status: Arc<Status>,
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
    task: JoinHandle<()>,
}

impl FlowCache {
    /// Starts the task; `None` without a failover group. Redis is not waited for.
    ///
    /// # Errors
    /// No descriptor or no random number is left.
    pub(crate) fn start(
        context: &NodeContext,
        config: &Config,
        pop: &Pop,
        addresses: &Addresses,
    ) -> anyhow::Result<Option<Self>> {
        let Some(group) = config.topology.failover_group_of(pop) else {
            return Ok(None);
        };
        let (queues, bell) = Queues::new(pop.workers)?;
        let queues = Arc::new(queues);
        let status = Arc::new(Status::new(group));
        let (stop, stopped) = watch::channel(false);
        let task = Task::new(
            context,
            (group, addresses),
            Arc::clone(&queues),
            Arc::clone(&status),
            (random::number()?, stopped),
        );
        let (tell, ended) = mpsc::sync_channel(1);
        let task = context.control.spawn(async move {
            task.run(bell).await;
            // Nobody listens when it did not end in time.
            let _ = tell.try_send(());
        });
        Ok(Some(Self {
            queues,
            status,
            stop,
            ended,
            task,
        }))
    }

    /// A worker's end. An answer wakes `waker`.
    pub(crate) fn port(&self, worker: u8, waker: &Waker) -> Port {
        self.queues.set_waker(worker, waker);
        Port::new(Arc::clone(&self.queues), worker)
    }

    /// What becomes of what workers store.
    pub(crate) fn stores(&self) -> StoresSeen {
        StoresSeen(Arc::clone(&self.queues))
    }

    /// What `/state` shows.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }
}

/// Looks at stores without a lock.
pub(crate) struct StoresSeen(Arc<Queues>);

impl StoresSeen {
    /// Stores that workers have said.
    pub(crate) fn said(&self) -> u64 {
        self.0.stores.said()
    }

    /// Of them, those that have come to an end, and how many of these failed.
    pub(crate) fn ended(&self) -> (u64, u64) {
        self.0.stores.ended()
    }
}

impl Drop for FlowCache {
    /// Lets the task write what workers have said, for [`FLUSH_MAX`] at most. Blocks: not inside a task.
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if self.ended.recv_timeout(FLUSH_MAX).is_err() {
            tracing::warn!("the flow cache was not told all that was left to say");
        }
        self.task.abort();
    }
}
