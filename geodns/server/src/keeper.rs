//! The keeper: the one thread that owns what answers are made from, and makes them anew when something changes.

use std::os::fd::AsFd as _;
use std::time::Instant;

use anyhow::Context as _;
use runtime::clock;
use runtime::node::{ConfigHandle, NodeContext, Shutdown, State};
use runtime::poll::{Poller, Waker};
use runtime::watch::IDLE_TURN_MAX;

use crate::world::{Current, World};

/// Owns the inputs of the [`World`].
pub(crate) struct Keeper {
    config: ConfigHandle,
    /// Of the configuration that was looked at last.
    generation: u64,
    shutdown: Shutdown,
    waker: Waker,
    current: Current,
}

impl Keeper {
    /// Makes the first world.
    ///
    /// # Errors
    /// The kernel gives no descriptor, or the certificates do not work.
    pub(crate) fn new(context: &NodeContext) -> anyhow::Result<(Self, Current)> {
        let waker = Waker::new().context("waker")?;
        context.shutdown.register(&waker);
        let current = Current::new(World::new(context.config.load())?);
        let keeper = Self {
            config: context.config.clone(),
            generation: current.load().config.generation,
            shutdown: context.shutdown.clone(),
            waker,
            current: current.clone(),
        };
        Ok((keeper, current))
    }

    /// Keeps until the node has stopped.
    pub(crate) fn run(mut self) {
        let mut poller = Poller::new();
        loop {
            let now = clock::now();
            // 1. what the node is told
            if self.ends(now) {
                return;
            }
            // 2. topology and credentials
            self.follow_config();
            let waited = poller.wait(&[self.waker.as_fd()], Some(IDLE_TURN_MAX));
            if waited.is_err() {
                tracing::warn!("waiting for something to do");
            }
            self.waker.drain();
        }
    }

    fn ends(&self, now: Instant) -> bool {
        match self.shutdown.state() {
            State::Running => false,
            State::Draining { deadline } => now >= deadline,
            State::Stopped => true,
        }
    }

    fn follow_config(&mut self) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        match World::new(config) {
            Ok(world) => self.current.store(world),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(error, "topology and credentials: the old ones stay");
            }
        }
    }
}
