//! One worker: a pinned thread with a socket at every address of the node. Its loop lists its sources in order of priority:
//!
//! 1. what the node is told: stop, drain, another configuration;
//! 2. sockets: up to [`BATCHES_MAX`] batches of each; the answers of a batch leave at its end;
//! 3. figures, a few times a second.
//!
//! Then it waits for a socket, the waker or the next publication, or not at all while a socket had more than its share.
//! A draining worker goes on answering until nobody asks any more: whoever withdraws the address needs a moment until it is heard.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use geodns_proto::cookie::Secrets;
use geodns_proto::counts::DropReason;
use geodns_proto::respond::{BUFFER_BYTES, Pending, Responder, Time, Verdict};
use geodns_proto::select::{Locate, Served};
use runtime::clock;
use runtime::memory;
use runtime::node::{Config, ConfigHandle, NodeContext, Shutdown, State};
use runtime::poll::{Poller, Ready, Waker};
use runtime::random;
use runtime::udp::{ReplyBatch, UdpSocket};
use runtime::watch::Heart;

use super::hand_over::SlowQueue;
use super::metrics::Metrics;
use super::{ADDRESSES_MAX, Answers, limits, secrets};

/// Queries of one batch.
const SLOTS: usize = 32;
/// Batches taken from one socket in a turn.
const BATCHES_MAX: usize = 8;
/// Turns that empty a receive buffer, which holds some 5,000 queries.
const LAST_TURNS_MAX: usize = 64;
/// Places in a wait: the waker, then the sockets.
const WAKER: usize = 0;
const FIRST_SOCKET: usize = 1;
/// How often figures are published, and the time of day is looked at.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// A draining worker ends when nobody asked for this long, be it over UDP or a connection, ...
const DRAIN_IDLE: Duration = Duration::from_secs(1);
/// ... or after this.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// What a worker is told at the beginning.
pub(super) struct Plan {
    pub(super) index: u8,
    pub(super) workers: u8,
    /// Secrets for as long as there is no file of them.
    pub(super) drawn: Secrets,
}

/// See the module head.
pub struct Worker<L> {
    plan: Plan,
    config: ConfigHandle,
    generation: u64,
    shutdown: Shutdown,
    waker: Waker,
    poller: Poller,
    sockets: Vec<UdpSocket>,
    batch: ReplyBatch,
    pending: [Pending; SLOTS],
    answers: Answers<L>,
    answers_generation: u64,
    served: Arc<Served<L>>,
    responder: Responder,
    slow: SlowQueue,
    day: Day,
    send_failures: u64,
    oversize: u64,
    metrics: Metrics,
    publish_at: Instant,
    drain: Option<Drain>,
    heart: Heart,
}

/// The time of day, which is looked at rarely, and the monotonic time then.
#[derive(Clone, Copy, Debug)]
struct Day {
    start: Instant,
    at: Instant,
    unix_s: u64,
}

#[derive(Clone, Copy, Debug)]
struct Drain {
    until: Instant,
    asked: Instant,
    queries: u64,
}

impl<L: Locate> Worker<L> {
    pub(super) fn new(
        context: &NodeContext,
        config: &Config,
        plan: Plan,
        sockets: Vec<UdpSocket>,
        answers: Answers<L>,
        slow: SlowQueue,
    ) -> anyhow::Result<Self> {
        let now = clock::now();
        let waker = Waker::new().context("waker")?;
        context.shutdown.register(&waker);
        let secrets = secrets(&config.credentials)
            .context("cookie.keys")?
            .unwrap_or_else(|| plan.drawn.clone());
        let limits = limits(config, plan.workers);
        let answers_generation = answers.generation();
        Ok(Self {
            config: context.config.clone(),
            generation: config.generation,
            shutdown: context.shutdown.clone(),
            waker,
            poller: Poller::new(),
            sockets,
            batch: ReplyBatch::new(SLOTS, BUFFER_BYTES),
            pending: [Pending::EMPTY; SLOTS],
            answers_generation,
            served: answers.load(),
            answers,
            responder: Responder::new(&context.name, secrets, limits, random::number()?),
            slow,
            day: Day {
                start: now,
                at: now,
                unix_s: clock::unix_s(),
            },
            send_failures: 0,
            oversize: 0,
            metrics: Metrics::new(&context.metrics),
            publish_at: now,
            drain: None,
            heart: context.watch.heart(&plan.index.to_string()),
            plan,
        })
    }

    /// Runs until the node has stopped, or has drained.
    pub fn run(mut self) {
        let mut ready = Ready::ALL;
        loop {
            self.heart.beat();
            let now = clock::now();
            // 1. what the node is told
            if self.ends(now) {
                break;
            }
            self.follow_config();
            // 2. sockets
            let mut more = false;
            for socket in 0..self.sockets.len() {
                more |= ready.is_ready(FIRST_SOCKET + socket) && self.take(socket, now);
            }
            // 3. figures
            self.publish(now);
            ready = if more { Ready::ALL } else { self.wait(now) };
        }
        self.finish();
        let now = clock::now();
        self.publish_at = now;
        self.publish(now);
    }

    /// Takes nothing more, and answers what was received before.
    fn finish(&mut self) {
        for socket in &self.sockets {
            if let Err(error) = socket.stop_receiving() {
                tracing::debug!(%error, "the last queries may be lost");
            }
        }
        for socket in 0..self.sockets.len() {
            let mut turns = 0..LAST_TURNS_MAX;
            while turns.next().is_some() && self.take(socket, clock::now()) {}
        }
    }

    fn ends(&mut self, now: Instant) -> bool {
        let until = match self.shutdown.state() {
            State::Running => return false,
            State::Stopped => return true,
            State::Draining { deadline } => deadline.min(now + DRAIN_MAX),
        };
        let queries = self.responder.counts().queries + self.slow.over_streams();
        let drain = self.drain.get_or_insert(Drain {
            until,
            asked: now,
            queries,
        });
        if drain.queries != queries {
            drain.queries = queries;
            drain.asked = now;
        }
        now >= drain.until || now.saturating_duration_since(drain.asked) >= DRAIN_IDLE
    }

    /// Takes over limits and secrets of a reloaded configuration.
    fn follow_config(&mut self) {
        if self.config.generation() == self.generation {
            return;
        }
        let config = self.config.load();
        self.generation = config.generation;
        match secrets(&config.credentials) {
            Ok(secrets) => {
                let secrets = secrets.unwrap_or_else(|| self.plan.drawn.clone());
                self.responder
                    .set(secrets, limits(&config, self.plan.workers));
            }
            Err(error) => {
                tracing::warn!(%error, "cookie.keys: secrets and limits stay as they were");
            }
        }
    }

    /// Returns whether the socket had more than its share.
    fn take(&mut self, socket: usize, mut now: Instant) -> bool {
        for batch in 0..BATCHES_MAX {
            let Some(socket) = self.sockets.get(socket) else {
                return false;
            };
            if batch > 0 {
                now = clock::now();
            }
            let filled = match self.batch.recv(socket) {
                Ok(filled) => filled,
                Err(error) => {
                    tracing::debug!(%error, "receiving queries");
                    return false;
                }
            };
            if self.answers.generation() != self.answers_generation {
                self.answers_generation = self.answers.generation();
                self.served = self.answers.load();
            }
            let now = self.day.time(now);
            Answering {
                batch: &mut self.batch,
                pending: &mut self.pending,
                responder: &mut self.responder,
                served: &self.served,
                slow: &self.slow,
                socket,
            }
            .run(filled, now);
            let report = self.batch.flush(socket);
            let failed = report.failed + report.would_block;
            self.send_failures += u64::try_from(failed).unwrap_or_default();
            // Under load the next batch is there by now, and asking for it costs less than a wait that does not wait.
            if filled == 0 {
                return false;
            }
        }
        true
    }

    fn publish(&mut self, now: Instant) {
        if now < self.publish_at {
            return;
        }
        self.publish_at = now + PUBLISH_INTERVAL;
        self.day.look(now);
        let truncated = self.batch.truncated();
        for _ in self.oversize..truncated {
            self.responder.counts_mut().dropped(DropReason::Oversize);
        }
        self.oversize = truncated;
        let counts = self.responder.counts();
        self.heart.packets(counts.queries);
        self.metrics.publish(
            counts,
            self.responder.limits_displaced(),
            self.send_failures,
        );
    }

    fn wait(&mut self, now: Instant) -> Ready {
        let mut fds = [self.waker.as_fd(); FIRST_SOCKET + ADDRESSES_MAX];
        for (fd, socket) in fds.iter_mut().skip(FIRST_SOCKET).zip(&self.sockets) {
            *fd = socket.as_fd();
        }
        let fds = fds.get(..FIRST_SOCKET + self.sockets.len());
        let timeout = self.publish_at.saturating_duration_since(now);
        let ready = self.poller.wait(fds.unwrap_or_default(), Some(timeout));
        match ready {
            Ok(ready) => {
                if ready.is_ready(WAKER) {
                    self.waker.drain();
                }
                ready
            }
            Err(error) => {
                tracing::debug!(%error, "waiting for queries");
                Ready::ALL
            }
        }
    }
}

/// What one batch is answered with.
struct Answering<'a, L> {
    batch: &'a mut ReplyBatch,
    pending: &'a mut [Pending; SLOTS],
    responder: &'a mut Responder,
    served: &'a Served<L>,
    slow: &'a SlowQueue,
    socket: &'a UdpSocket,
}

impl<L: Locate> Answering<'_, L> {
    /// The three passes of [`geodns_proto::respond`].
    fn run(&mut self, filled: usize, now: Time) {
        let pending = self.pending.iter_mut().take(filled);
        for (slot, pending) in pending.enumerate() {
            let Some(request) = self.batch.request(slot) else {
                continue;
            };
            let rendered = &self.served.rendered;
            *pending = self
                .responder
                .read(rendered, request.buffer, request.len, request.source);
            if let Some(word) = pending.first_word(&*self.served.tables) {
                memory::fetch_ahead(word);
            }
        }
        for pending in self.pending.iter_mut().take(filled) {
            pending.locate(&*self.served.tables);
        }
        for slot in 0..filled {
            self.answer(slot, now);
        }
    }

    fn answer(&mut self, slot: usize, now: Time) {
        let (Some(request), Some(pending)) = (self.batch.request(slot), self.pending.get(slot))
        else {
            return;
        };
        let (source, len) = (request.source, request.len);
        let verdict = self
            .responder
            .answer(self.served, pending, request.buffer, source.ip(), now);
        match verdict {
            Verdict::Answer { len } => self.batch.reply(slot, len),
            Verdict::Slow(_) => {
                let packet = request.buffer.get(..len).unwrap_or_default();
                if !self.slow.offer(self.socket, source, packet) {
                    self.responder.counts_mut().dropped(DropReason::SlowFull);
                }
            }
            Verdict::Drop(_) => {}
        }
    }
}

impl Day {
    fn look(&mut self, now: Instant) {
        self.at = now;
        self.unix_s = clock::unix_s();
    }

    fn time(&self, now: Instant) -> Time {
        let since = |earlier| now.saturating_duration_since(earlier);
        let [.., a, b, c, d] = (self.unix_s + since(self.at).as_secs()).to_be_bytes();
        Time {
            monotonic_us: u64::try_from(since(self.start).as_micros()).unwrap_or(u64::MAX),
            unix_s: u32::from_be_bytes([a, b, c, d]),
        }
    }
}
