//! What passes between workers and the task: bounded queues without locks, and who is to be woken.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context as _;
use crossbeam_queue::ArrayQueue;
use pop_proto::Answer;
use runtime::poll::Waker;
use wire::{ClientAddr, Owner};

/// Questions of all workers that wait for the task.
pub(crate) const ASKS_MAX: usize = 4096;
/// Stores and forgets of all workers that wait for the task.
pub(crate) const WRITES_MAX: usize = 1 << 14;
/// Answers that wait for one worker: more than it has questions open.
pub(crate) const ANSWERS_MAX: usize = 4096;

/// Whose client is this?
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) client: ClientAddr,
    /// Index of the ingress it speaks to.
    pub(crate) ingress: u8,
}

#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) worker: u8,
    pub(crate) place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Store,
    Forget,
}

#[derive(Clone, Copy)]
pub(crate) struct Write {
    pub(crate) what: What,
    pub(crate) place: Place,
    pub(crate) owner: Owner,
    /// When a worker said so.
    pub(crate) said: Instant,
}

#[derive(Clone, Copy)]
pub(crate) struct Reply {
    pub(crate) place: Place,
    pub(crate) answer: Answer,
}

/// What found no place in a queue.
#[derive(Default)]
pub(crate) struct Dropped {
    pub(crate) asks: AtomicU64,
    pub(crate) stores: AtomicU64,
    pub(crate) forgets: AtomicU64,
    pub(crate) answers: AtomicU64,
}

/// What became of the stores that workers said: each is done or failed in the end.
#[derive(Default)]
pub(crate) struct Stores {
    pub(crate) said: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) failed: AtomicU64,
}

impl Stores {
    /// Stores that workers have said.
    pub(crate) fn said(&self) -> u64 {
        self.said.load(Ordering::Acquire)
    }

    /// Of them, those that have come to an end, and how many of these failed.
    pub(crate) fn ended(&self) -> (u64, u64) {
        let failed = self.failed.load(Ordering::Acquire);
        (self.done.load(Ordering::Acquire) + failed, failed)
    }
}

/// See the module head.
pub(crate) struct Queues {
    pub(crate) stores: Stores,
    pub(crate) asks: ArrayQueue<Ask>,
    pub(crate) writes: ArrayQueue<Write>,
    answers: Vec<Line>,
    /// Wakes the task.
    rope: UnixStream,
    /// Whether the task is awake, or about to be.
    awake: AtomicBool,
    /// How often Redis has come into use.
    pub(crate) ups: AtomicU64,
    pub(crate) dropped: Dropped,
}

/// The way to one worker.
struct Line {
    answers: ArrayQueue<Reply>,
    waker: OnceLock<Waker>,
}

impl Queues {
    /// The queues, and what [`Bell`] is made of.
    pub(crate) fn new(workers: u8) -> anyhow::Result<(Self, UnixStream)> {
        let line = |_| Line {
            answers: ArrayQueue::new(ANSWERS_MAX),
            waker: OnceLock::new(),
        };
        let (rope, bell) = UnixStream::pair().context("flow cache: a pair of sockets")?;
        rope.set_nonblocking(true).context("flow cache: socket")?;
        bell.set_nonblocking(true).context("flow cache: socket")?;
        let queues = Self {
            stores: Stores::default(),
            asks: ArrayQueue::new(ASKS_MAX),
            writes: ArrayQueue::new(WRITES_MAX),
            answers: (0..workers).map(line).collect(),
            rope,
            awake: AtomicBool::new(false),
            ups: AtomicU64::new(0),
            dropped: Dropped::default(),
        };
        Ok((queues, bell))
    }

    pub(crate) fn push_ask(&self, ask: Ask) {
        if self.asks.push(ask).is_err() {
            self.dropped.asks.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn push_write(&self, write: Write) {
        let is_store = write.what == What::Store;
        if is_store {
            self.stores.said.fetch_add(1, Ordering::Relaxed);
        }
        if self.writes.push(write).is_err() {
            let dropped = if is_store {
                self.stores.failed.fetch_add(1, Ordering::Release);
                &self.dropped.stores
            } else {
                &self.dropped.forgets
            };
            dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether there is a place for many more writes.
    pub(crate) fn has_room(&self) -> bool {
        self.writes.len() < WRITES_MAX / 2
    }

    /// Wakes the task, with a call to the kernel only if it sleeps.
    pub(crate) fn wake_task(&self) {
        if !self.awake.swap(true, Ordering::SeqCst) {
            // Full: it rings already.
            let _ = (&self.rope).write(&[1]);
        }
    }

    /// What wakes a worker for its answers. Once for each, before it has asked anything.
    pub(crate) fn set_waker(&self, worker: u8, waker: &Waker) {
        if let Some(line) = self.answers.get(usize::from(worker)) {
            line.waker.get_or_init(|| waker.clone());
        }
    }

    pub(crate) fn answer(&self, worker: u8, reply: Reply) {
        let Some(line) = self.answers.get(usize::from(worker)) else {
            return;
        };
        if line.answers.push(reply).is_err() {
            self.dropped.answers.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn wake_workers(&self) {
        for line in self.answers.iter().filter(|line| !line.answers.is_empty()) {
            if let Some(waker) = line.waker.get() {
                waker.wake();
            }
        }
    }

    pub(crate) fn next_answer(&self, worker: u8) -> Option<Reply> {
        self.answers.get(usize::from(worker))?.answers.pop()
    }
}

/// The task's end of the rope: it waits in the runtime's poll, so ringing it takes no lock of the runtime.
pub(crate) struct Bell(tokio::net::UnixStream);

impl Bell {
    /// Inside the runtime.
    pub(crate) fn new(bell: UnixStream) -> std::io::Result<Self> {
        tokio::net::UnixStream::from_std(bell).map(Self)
    }

    /// Until something may have been pushed, or is in a queue that the caller could take from.
    pub(crate) async fn rings(&self, queues: &Queues, asks: bool, writes: bool) {
        queues.awake.store(false, Ordering::SeqCst);
        // Whoever pushed before the flag fell did not ring.
        let waiting = (asks && !queues.asks.is_empty()) || (writes && !queues.writes.is_empty());
        if !waiting && self.0.readable().await.is_ok() {
            // At most a few: one ring for each time the flag fell.
            let _ = self.0.try_read(&mut [0; 64]);
        }
        queues.awake.store(true, Ordering::SeqCst);
    }
}
