//! The engine's thread. Its loop lists its sources in order of priority:
//!
//! 1. what the node is told: stop, drain, another configuration;
//! 2. core relays: up to [`BATCHES_MAX`] batches; the answers of a batch leave at its end;
//! 3. requests of signaling: up to [`REQUESTS_MAX`];
//! 4. timers of sessions;
//! 5. figures, a few times a second.
//!
//! Then it waits for the socket, the waker or the next timer, or not at all while a source had more than its share.

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use runtime::clock;
use runtime::node::{Config, ConfigHandle, NodeContext, Shutdown, State};
use runtime::poll::{Poller, Waker};
use runtime::udp::{BindOptions, GRO_SLOT_BYTES, RecvBatch, UdpSocket};
use runtime::watch::Heart;
use topology::{Region, Transceiver};
use transceiver_proto::DropReason;

use crate::backend::Voice;
use crate::engine::core::Core;
use crate::engine::handle::EngineQueue;
use crate::engine::metrics::Metrics;
use crate::engine::state::{Board, EngineState};

/// Batches taken from the socket in a turn.
const BATCHES_MAX: usize = 4;
/// Requests answered in a turn: an offer takes about a millisecond.
const REQUESTS_MAX: usize = 4;
/// GRO buffers of the socket.
const SLOTS: usize = 16;
/// How often figures are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct Worker {
    core: Core,
    queue: EngineQueue,
    config: ConfigHandle,
    generation: u64,
    shutdown: Shutdown,
    waker: Waker,
    socket: UdpSocket,
    batch: RecvBatch,
    metrics: Metrics,
    board: Arc<Board>,
    publish_at: Instant,
    heart: Heart,
}

impl Worker {
    /// Binds the socket. The kernel queues what arrives until the worker runs.
    pub(crate) fn new(
        context: &NodeContext,
        config: &Config,
        (region, node): (&Region, &Transceiver),
        (queue, waker): (EngineQueue, Waker),
        board: Arc<Board>,
        voice: Voice,
    ) -> anyhow::Result<Self> {
        let address = SocketAddr::new(node.address, region.transceivers.port);
        let options = BindOptions {
            gro: true,
            ..BindOptions::default()
        };
        let socket =
            UdpSocket::bind(address, &options).with_context(|| format!("bind {address}"))?;
        socket.observe(&context.metrics, &[("socket", "records")]);
        context.shutdown.register(&waker);
        Ok(Self {
            core: Core::new(
                &config.topology,
                &config.credentials.hint_keys,
                (region, node),
                voice,
            )?,
            queue,
            config: context.config.clone(),
            generation: config.generation,
            shutdown: context.shutdown.clone(),
            waker,
            socket,
            batch: RecvBatch::new(SLOTS, GRO_SLOT_BYTES),
            metrics: Metrics::new(&context.metrics),
            board,
            publish_at: clock::now(),
            heart: context.watch.heart("engine"),
        })
    }

    /// Runs until the node has stopped, or has drained.
    pub(crate) fn run(mut self) {
        let mut poller = Poller::new();
        loop {
            self.heart.beat();
            let now = clock::now();
            // 1. what the node is told
            if self.ends(now) {
                break;
            }
            self.follow_config();
            // 2. core relays
            let mut more = self.take_records(now);
            // 3. signaling
            more |= self.take_requests(now);
            // 4. timers
            if self.core.poll_timeout().is_some_and(|due| due <= now) {
                self.core.handle_timeout(now);
            }
            self.core.egress.flush(&self.socket, &mut self.core.drops);
            // 5. figures
            self.publish(now);
            if !more {
                self.wait(&mut poller);
            }
        }
        self.finish();
    }

    fn ends(&mut self, now: Instant) -> bool {
        match self.shutdown.state() {
            State::Running => return false,
            State::Stopped => return true,
            State::Draining { deadline } if now >= deadline => return true,
            State::Draining { .. } => {}
        }
        if !self.core.draining {
            self.core.draining = true;
            self.publish_at = now;
            tracing::info!(
                sessions = self.core.load().sessions,
                "draining: no new sessions"
            );
        }
        self.core.load().sessions == 0
    }

    /// Says goodbye to every client.
    fn finish(&mut self) {
        let now = clock::now();
        self.core.draining = true;
        self.core.close_all(now);
        self.core.egress.flush(&self.socket, &mut self.core.drops);
        self.publish_at = now;
        self.publish(now);
    }

    fn follow_config(&mut self) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        match config.topology.transceiver_named(&self.core.transceiver) {
            Some((region, _)) => {
                let keys = &config.credentials.hint_keys;
                self.core.reload(&config.topology, keys, region);
            }
            // The node refuses such a topology before it is published.
            None => tracing::warn!(
                "the topology no longer names this transceiver: it goes on as it was"
            ),
        }
    }

    /// Uplink. Returns whether the socket had more than its share.
    fn take_records(&mut self, now: Instant) -> bool {
        for _ in 0..BATCHES_MAX {
            let filled = match self.batch.recv(&self.socket) {
                Ok(filled) => filled,
                Err(error) => {
                    tracing::debug!(%error, "receiving records");
                    0
                }
            };
            for (from, datagram) in self.batch.iter() {
                self.core.handle_datagram(from, datagram, now);
            }
            self.core.egress.flush(&self.socket, &mut self.core.drops);
            if filled < self.batch.slots() {
                return false;
            }
        }
        true
    }

    fn take_requests(&mut self, now: Instant) -> bool {
        for _ in 0..REQUESTS_MAX {
            let Some(request) = self.queue.next_request() else {
                return false;
            };
            self.core.handle_request(request, now);
            self.queue.set_load(self.core.load());
        }
        true
    }

    fn wait(&self, poller: &mut Poller) {
        let now = clock::now();
        let deadline = match self.shutdown.state() {
            State::Draining { deadline } => Some(deadline),
            State::Running | State::Stopped => None,
        };
        let next = self.core.poll_timeout().into_iter().chain(deadline).min();
        let timeout = next.map_or(PUBLISH_INTERVAL, |next| {
            next.saturating_duration_since(now).min(PUBLISH_INTERVAL)
        });
        if let Err(error) = poller.wait(&[self.waker.as_fd(), self.socket.as_fd()], Some(timeout)) {
            tracing::warn!(%error, "waiting for the socket");
        }
        self.waker.drain();
    }

    fn publish(&mut self, now: Instant) {
        self.queue.set_load(self.core.load());
        if now < self.publish_at {
            return;
        }
        self.publish_at = now + PUBLISH_INTERVAL;
        self.metrics.publish(&self.core);
        self.heart
            .packets(self.core.packets_in + self.core.egress.packets);
        let load = self.core.sessions.load();
        self.board.show(EngineState {
            node: self.core.transceiver.clone(),
            region: self.core.region.clone(),
            draining: self.core.draining,
            sessions: load.sessions,
            pending: load.pending,
            addresses: load.addresses,
            packets_in: self.core.packets_in,
            packets_out: self.core.egress.packets,
            rtp_in: self.core.media.rtp_in,
            rtp_out: self.core.media.rtp_out,
            rtp_lost: self.core.media.rtp_lost,
            drops: DropReason::ALL
                .iter()
                .map(|reason| (reason.as_str(), self.core.drops.get(*reason)))
                .filter(|(_, total)| *total > 0)
                .collect(),
            ended: self.core.ended.by_reason().into(),
            config_generation: self.generation,
        });
    }
}
