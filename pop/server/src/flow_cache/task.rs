//! The task that speaks to Redis.
//!
//! ```text
//!             opened and answers a PING               nothing left to forget
//!   down ────────────────────────────► catching up ──────────────────────────► up
//!    ▲ ▲                                    │ trouble                           │ trouble, 3 batches of lookups
//!    │ └────────────────────────────────────┘                                   │ in a row without an answer
//!    └──────────────────────────────────────────────────────────────────────────┘
//!   down: waits (backoff with jitter), then tries the next server; for ever
//! ```
//!
//! When the PoP stops, what workers have said by then is written first. A panic is told and counted like a lost connection, and the task
//! goes on with what was still to be forgotten.

use std::collections::HashSet;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use pop_proto::Answer;
use runtime::clock;
use runtime::node::{ConfigHandle, NodeContext};
use runtime::redis_client::{Backoff, Connection, Refusal, Servers, Trouble};
use tokio::sync::watch;
use topology::FailoverGroup;

use crate::flow_cache::batch::{self, LOOKUPS_MAX, Looked, WRITES_MAX, Written};
use crate::flow_cache::entry::Entries;
use crate::flow_cache::forgets::Forgets;
use crate::flow_cache::health::{Health, Outcome};
use crate::flow_cache::metrics::Metrics;
use crate::flow_cache::queues::{Ask, Bell, Queues, Reply, What, Write};
use crate::flow_cache::status::{State, Status};
use crate::ingress::Addresses;

/// Longest wait before Redis is tried again, before jitter.
const BACKOFF_LONGEST: Duration = Duration::from_secs(5);
/// Batches of lookups in flight.
const LOOKUPS_IN_FLIGHT_MAX: usize = 8;
/// A connection that nothing was written to for so long is asked whether it is still there.
const QUIET_MAX: Duration = Duration::from_secs(1);
/// After a panic, nothing is done for so long.
const PANIC_PAUSE: Duration = Duration::from_secs(1);

/// See the module head.
pub(crate) struct Task {
    group: FailoverGroup,
    config: ConfigHandle,
    generation: u64,
    entries: Entries,
    queues: Arc<Queues>,
    status: Arc<Status>,
    metrics: Metrics,
    forgets: Forgets,
    backoff: Backoff,
    lookup_max: Duration,
    /// The last trouble that was logged.
    logged: Option<Trouble>,
    /// Counts attempts, to take the servers in turn.
    turn: usize,
    /// A write that begins the next batch, because its flow is in this one.
    held_back: Option<Write>,
    /// Becomes true, or loses its sender, when the PoP stops.
    stop: watch::Receiver<bool>,
}

impl Task {
    pub(crate) fn new(
        context: &NodeContext,
        (group, addresses): (&FailoverGroup, &Addresses),
        queues: Arc<Queues>,
        status: Arc<Status>,
        (seed, stop): (u64, watch::Receiver<bool>),
    ) -> Self {
        let ttl = Duration::from_secs(group.ttl_s.into());
        Self {
            group: group.clone(),
            generation: context.config.generation(),
            entries: Entries::new(&context.config, addresses.sockets().collect(), ttl),
            config: context.config.clone(),
            metrics: Metrics::new(&context.metrics, &queues),
            queues,
            status,
            forgets: Forgets::new(ttl),
            backoff: Backoff::new(BACKOFF_LONGEST, seed),
            lookup_max: Duration::from_millis(group.lookup_max_ms.into()),
            logged: None,
            turn: 0,
            held_back: None,
            stop,
        }
    }

    /// Until the PoP stops.
    pub(crate) async fn run(mut self, bell: UnixStream) {
        let bell = match Bell::new(bell) {
            Ok(bell) => bell,
            Err(error) => {
                tracing::error!(%error, "no flow cache: the runtime takes no descriptor");
                return;
            }
        };
        self.show(State::Down, None);
        while caught(self.connect_and_serve(&bell)).await.is_err() {
            self.metrics.panicked();
            self.show(State::Down, Some("panicked"));
            tokio::time::sleep(PANIC_PAUSE).await;
        }
        self.give_up();
    }

    async fn connect_and_serve(&mut self, bell: &Bell) {
        let mut stopped = self.stop.clone();
        let mut first = true;
        while !self.stops() {
            let config = self.config.load();
            let (group, turn) = (self.group.clone(), self.turn);
            let lookup_max = self.lookup_max;
            let opening = until(&mut stopped, async move {
                Connection::open(Servers::from(&group), turn, &config.credentials, lookup_max).await
            });
            let opened = if std::mem::take(&mut first) {
                self.begin(bell, opening).await
            } else {
                self.offline(bell, opening).await
            };
            let (served, trouble) = match opened {
                Some(Ok(connection)) => match self.use_connection(bell, connection).await {
                    (served, Some(trouble)) => (served, trouble),
                    (_, None) => return,
                },
                Some(Err(trouble)) => (Duration::ZERO, trouble),
                None => return,
            };
            self.turn = self.turn.wrapping_add(1);
            self.went_down(trouble);
            let wait = tokio::time::sleep(self.backoff.wait(served));
            self.offline(bell, until(&mut stopped, wait)).await;
        }
    }

    /// Whether the PoP stops.
    fn stops(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// Counts what was not written before the end.
    fn give_up(&mut self) {
        self.refuse_queued();
        self.forgets.give_up();
        self.show_forgets();
        if self.forgets.lost > 0 {
            let (group, entries) = (&self.group.name, self.forgets.lost);
            tracing::warn!(
                group,
                entries,
                "entries of ended sessions stay in the flow cache until they expire"
            );
        }
    }

    /// How long it served, and why no longer; without a reason when the PoP stops and all is written.
    async fn use_connection(
        &mut self,
        bell: &Bell,
        connection: Connection,
    ) -> (Duration, Option<Trouble>) {
        self.show(State::CatchingUp, None);
        let since = clock::now();
        self.forgets.try_all();
        while let Some(batch) = self.next_forgets() {
            let entries = self.entries.clone();
            let writing = batch::write(connection.clone(), entries, batch);
            let written = self.offline(bell, writing).await;
            if let Err(trouble) = self.written(written) {
                return (Duration::ZERO, Some(trouble));
            }
        }
        self.show(State::Up, None);
        self.queues.ups.fetch_add(1, Ordering::Relaxed);
        self.logged = None;
        tracing::info!(group = self.group.name, "the flow cache is in use");
        let trouble = self.serve(bell, connection).await;
        (clock::now().saturating_duration_since(since), trouble)
    }

    /// Waits for the first connection. Clients of a PoP that has just started are unknown to it all at once, so their questions may wait for it
    /// as long as a lookup may take, before each is told that there is no answer.
    async fn begin<T>(&mut self, bell: &Bell, opening: impl Future<Output = T>) -> T {
        tokio::pin!(opening);
        match tokio::time::timeout(self.lookup_max, &mut opening).await {
            Ok(opened) => opened,
            Err(_) => self.offline(bell, opening).await,
        }
    }

    /// Waits for `work` while nobody can be looked up.
    async fn offline<T>(&mut self, bell: &Bell, work: impl Future<Output = T>) -> T {
        let queues = Arc::clone(&self.queues);
        tokio::pin!(work);
        loop {
            self.refuse_queued();
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = bell.rings(&queues, true, true) => {}
            }
        }
    }

    fn refuse_queued(&mut self) {
        while let Some(ask) = self.queues.asks.pop() {
            self.answer(ask, Answer::Unavailable);
        }
        self.queues.wake_workers();
        let held_back = self.held_back.take();
        let queues = Arc::clone(&self.queues);
        for write in held_back
            .into_iter()
            .chain(std::iter::from_fn(|| queues.writes.pop()))
        {
            match write.what {
                What::Store => {
                    self.queues.stores.failed.fetch_add(1, Ordering::Release);
                    self.metrics.store_refused();
                }
                What::Forget => self.forgets.keep(write),
            }
        }
        self.show_forgets();
    }

    /// Until there is trouble; without any when the PoP stops and all is written.
    async fn serve(&mut self, bell: &Bell, connection: Connection) -> Option<Trouble> {
        let mut stopped = self.stop.clone();
        let queues = Arc::clone(&self.queues);
        let mut health = Health::default();
        let mut lookups: Lookups = FuturesUnordered::new();
        let mut writing: Option<Writing> = None;
        let mut quiet_since = clock::now();
        let trouble = loop {
            self.follow_config();
            while lookups.len() < LOOKUPS_IN_FLIGHT_MAX
                && let Some(asks) = self.next_asks()
            {
                let entries = self.entries.clone();
                let looked = batch::look_up(connection.clone(), entries, asks, self.lookup_max);
                lookups.push(looked.boxed());
            }
            if writing.is_none() {
                writing = self.next_writing(&connection, quiet_since);
            }
            let (more_asks, more_writes) =
                (lookups.len() < LOOKUPS_IN_FLIGHT_MAX, writing.is_none());
            let stops = self.stops();
            if stops && more_writes {
                break None;
            }
            tokio::select! {
                Some(looked) = lookups.next() => {
                    if let Some(trouble) = self.looked(&mut health, looked) {
                        break Some(trouble);
                    }
                }
                written = finished(&mut writing) => {
                    writing = None;
                    quiet_since = clock::now();
                    if let Err(trouble) = self.written(written) {
                        break Some(trouble);
                    }
                }
                () = bell.rings(&queues, more_asks, more_writes) => {}
                () = tokio::time::sleep(QUIET_MAX), if more_writes => {}
                () = told_to_stop(&mut stopped), if !stops => {}
            }
        };
        self.finish(bell, lookups, writing).await;
        trouble
    }

    /// What is under way when a connection is given up: each has a time limit, and none may be lost without an answer.
    async fn finish(&mut self, bell: &Bell, mut lookups: Lookups, writing: Option<Writing>) {
        let mut health = Health::default();
        while let Some(looked) = lookups.next().await {
            // The connection is given up already.
            let _ = self.looked(&mut health, looked);
        }
        if let Some(writing) = writing {
            let written = self.offline(bell, writing).await;
            let _ = self.written(written);
        }
    }

    fn next_asks(&self) -> Option<Vec<Ask>> {
        let asks: Vec<Ask> = std::iter::from_fn(|| self.queues.asks.pop())
            .take(LOOKUPS_MAX)
            .collect();
        (!asks.is_empty()).then_some(asks)
    }

    /// The next batch of writes; a PING when there has been none for a while.
    fn next_writing(&mut self, connection: &Connection, quiet_since: Instant) -> Option<Writing> {
        let batch = self.next_forgets().or_else(|| self.next_writes());
        if let Some(batch) = batch {
            let entries = self.entries.clone();
            return Some(batch::write(connection.clone(), entries, batch).boxed());
        }
        let quiet = clock::now().saturating_duration_since(quiet_since);
        (quiet >= QUIET_MAX).then(|| batch::ping(connection.clone()).boxed())
    }

    /// What could not be forgotten before.
    fn next_forgets(&mut self) -> Option<Vec<Write>> {
        let now = clock::now();
        let forgets = &mut self.forgets;
        let batch: Vec<Write> = std::iter::from_fn(|| forgets.next(now))
            .take(WRITES_MAX)
            .collect();
        self.show_forgets();
        (!batch.is_empty()).then_some(batch)
    }

    /// What workers have written, up to the first flow that comes a second time.
    fn next_writes(&mut self) -> Option<Vec<Write>> {
        let (mut batch, mut places) = (Vec::new(), HashSet::new());
        while batch.len() < WRITES_MAX
            && let Some(write) = self.held_back.take().or_else(|| self.queues.writes.pop())
        {
            if !places.insert(write.place) {
                self.held_back = Some(write);
                break;
            }
            batch.push(write);
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn looked(&self, health: &mut Health, looked: Looked) -> Option<Trouble> {
        self.metrics.took(looked.took);
        for (ask, answer, outcome) in looked.answers {
            self.metrics.lookup(outcome);
            self.answer(ask, answer);
        }
        self.queues.wake_workers();
        match looked.result {
            Ok(()) => {
                health.answered();
                None
            }
            Err(Trouble::Timeout) => health.silent().then_some(Trouble::Slow),
            Err(trouble) => Some(trouble),
        }
    }

    /// Counts what became of a batch. Deletions that were not done are kept.
    fn written(&mut self, written: Written) -> Result<(), Trouble> {
        let now = clock::now();
        let mut result = written.result;
        for (write, outcome) in written.outcomes {
            self.metrics.write(write.what, outcome);
            if write.what == What::Store {
                let stores = &self.queues.stores;
                let ended = if outcome == Outcome::Ok {
                    &stores.done
                } else {
                    &stores.failed
                };
                ended.fetch_add(1, Ordering::Release);
            }
            if write.what == What::Forget && outcome.may_be_undone() {
                self.forgets.keep_tried(write, now);
            }
            if outcome == Outcome::Refused(Refusal::ReadOnly) {
                result = Err(Trouble::ReadOnly);
            }
        }
        self.show_forgets();
        result
    }

    fn answer(&self, ask: Ask, answer: Answer) {
        let place = ask.place;
        self.queues.answer(ask.worker, Reply { place, answer });
    }

    fn follow_config(&mut self) {
        if self.config.generation() != self.generation {
            self.generation = self.config.generation();
            self.entries.reload(&self.config);
        }
    }

    fn show_forgets(&self) {
        let waiting = self.forgets.len();
        self.metrics.forgets(waiting, self.forgets.lost);
        self.status.set_forgets_waiting(waiting);
    }

    fn show(&self, state: State, failure: Option<&'static str>) {
        self.metrics.state(state);
        self.status.set(state, failure);
    }

    fn went_down(&mut self, trouble: Trouble) {
        self.metrics.trouble(trouble);
        self.show(State::Down, Some(trouble.as_str()));
        // A cause is told once: the metrics say how often.
        if self.logged != Some(trouble) {
            self.logged = Some(trouble);
            let (group, reason) = (&self.group.name, trouble.as_str());
            tracing::warn!(
                group,
                reason,
                "the flow cache is not in use: it is tried again"
            );
        }
    }
}

type Lookups = FuturesUnordered<BoxFuture<'static, Looked>>;
type Writing = BoxFuture<'static, Written>;

/// Why a future came to nothing.
struct Panicked;

/// Runs `work`; a panic in it ends it and nothing else. What it borrows is sound afterwards: queues, counters, and deletions in a list.
async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| {
        tracing::error!("the flow cache's task has panicked: it begins again");
        Panicked
    })
}

/// `work`, unless the PoP stops before it is done.
async fn until<T>(stop: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = told_to_stop(stop) => None,
        done = work => Some(done),
    }
}

async fn told_to_stop(stop: &mut watch::Receiver<bool>) {
    // Nobody is left to say so: that is the same.
    let _ = stop.wait_for(|stops| *stops).await;
}

/// The batch under way; never when there is none.
async fn finished(writing: &mut Option<Writing>) -> Written {
    match writing {
        Some(writing) => writing.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_noticed_and_ends_nothing_else() {
        let mut turns = 0;
        let mut turn = async || {
            turns += 1;
            assert!(turns > 1, "a bug");
        };
        assert!(caught(turn()).await.is_err());
        assert!(caught(turn()).await.is_ok());
    }
}
