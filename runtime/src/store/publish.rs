//! Tells the state of one node, again and again, to every server of the store: each has a connection of its own, and none waits for another.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use topology::Topology;

use super::metrics::Metrics;
use super::state::Told;
use super::{
    BACKOFF_LONGEST, MEDIANS_BYTES_MAX, MEDIANS_EVERY, Medians, NodeState, PrefixMedian,
    STATE_BYTES_MAX, interval, medians_key, state_key,
};
use crate::node::{Config, NodeContext};
use crate::redis_client::{Backoff, Cmd, Connection, PATIENCE, Refusal, Servers, Trouble, cmd};
use crate::{clock, random};

/// What a node has to tell. Called on the control runtime: it must not block.
pub trait Tell: Send + 'static {
    /// Its state at this moment.
    fn state(&mut self) -> Told;

    /// Round trips to its clients, by prefix; `None` for a node that measures none.
    fn medians(&mut self) -> Option<Vec<PrefixMedian>> {
        None
    }
}

/// A node that tells its state until this is dropped.
#[derive(Debug)]
pub struct Publication(JoinHandle<()>);

impl Drop for Publication {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Begins to tell. The store is not waited for.
///
/// # Errors
/// No random number is left.
pub fn publish(context: &NodeContext, tell: impl Tell) -> anyhow::Result<Publication> {
    let task = Task {
        context: context.clone(),
        metrics: Metrics::new(&context.metrics, "tell"),
        source: Mutex::new(Source::new(&context.name, tell)),
        seed: random::number()?,
    };
    Ok(Publication(context.control.spawn(task.run())))
}

struct Task {
    context: NodeContext,
    metrics: Metrics,
    source: Mutex<Source>,
    seed: u64,
}

/// Where what is told comes from. Servers that are told at about the same time are told the same.
struct Source {
    name: String,
    tell: Box<dyn Tell>,
    last: Option<(NodeState, Instant)>,
    began: Instant,
    began_ms: u64,
}

/// One server, or a Cluster.
struct Link<'a> {
    at: usize,
    servers: Servers<'a>,
    /// How often the state was told, over all connections: medians are due as rarely on a line that breaks.
    told: u32,
}

impl Source {
    fn new(name: &str, tell: impl Tell) -> Self {
        Self {
            name: name.to_owned(),
            tell: Box::new(tell),
            last: None,
            began: clock::now(),
            began_ms: clock::unix_ms(),
        }
    }

    /// The state, no older than half an interval.
    fn state(&mut self, every: Duration) -> NodeState {
        let now = clock::now();
        let last = self.last.take();
        let last = last.filter(|(_, at)| now.saturating_duration_since(*at) < every / 2);
        let (state, at) = last.unwrap_or_else(|| {
            let ran = now.saturating_duration_since(self.began).as_millis();
            let told_ms = self
                .began_ms
                .saturating_add(u64::try_from(ran).unwrap_or(u64::MAX));
            let state = NodeState::of(&self.name, self.tell.state(), told_ms);
            (state, now)
        });
        self.last = Some((state.clone(), at));
        state
    }

    fn medians(&mut self) -> Option<Medians> {
        let prefixes = self.tell.medians()?;
        Some(Medians::of(&self.name, prefixes, clock::unix_s()))
    }
}

impl Task {
    async fn run(self) {
        let mut hub_told = 0;
        loop {
            let config = self.context.config.load();
            let Some(store) = &config.topology.network.state else {
                self.tell_hub(hub_told);
                hub_told = hub_told.wrapping_add(1);
                sleep(interval(&config.topology)).await;
                continue;
            };
            self.metrics.begin();
            let links = Servers::of_state(store).enumerate();
            let links = links.map(|(at, servers)| Link {
                at,
                servers,
                told: 0,
            });
            let telling = join_all(links.map(|link| self.keep_telling(link, &config)));
            // Another configuration may name other servers. None of these is waited for.
            tokio::select! {
                _ = telling => {}
                () = self.context.config.outdated(config.generation) => {}
            }
        }
    }

    fn tell_hub(&self, told: u32) {
        let mut source = self.source();
        let medians = is_due(told).then(|| source.medians()).flatten();
        let state = source.state(Duration::ZERO);
        self.context.hub.tell(state, medians, clock::now());
    }

    async fn keep_telling(&self, mut link: Link<'_>, config: &Config) {
        let seed = self.seed.wrapping_add(u64::try_from(link.at).unwrap_or(0));
        let mut backoff = Backoff::new(BACKOFF_LONGEST, seed);
        let mut logged = None;
        let mut turn: usize = 0;
        loop {
            let opened = Connection::open(link.servers, turn, &config.credentials, PATIENCE).await;
            let since = clock::now();
            let trouble = match opened {
                Ok(connection) => {
                    logged = None;
                    self.serve(&mut link, connection, config).await
                }
                Err(trouble) => trouble,
            };
            turn = turn.wrapping_add(1);
            self.metrics.trouble(link.at, trouble);
            // A cause is told once: the metrics say how often.
            if logged != Some(trouble) {
                logged = Some(trouble);
                let (reason, server) = (trouble.as_str(), link.at);
                tracing::warn!(
                    reason,
                    server,
                    "the state store is not told: it is tried again"
                );
            }
            let served = clock::now().saturating_duration_since(since);
            sleep(backoff.wait(served)).await;
        }
    }

    async fn serve(
        &self,
        link: &mut Link<'_>,
        mut connection: Connection,
        config: &Config,
    ) -> Trouble {
        self.metrics.up(link.at, true);
        tracing::info!(server = link.at, "the state store is told");
        let topology = &config.topology;
        loop {
            let is_due = is_due(link.told);
            link.told = link.told.wrapping_add(1);
            if let Err(trouble) = self.tell(&mut connection, self.state(topology)).await {
                return trouble;
            }
            // By themselves: they are long, and the state is told whatever becomes of them.
            let medians = is_due.then(|| self.medians(topology)).flatten();
            if let Err(trouble) = self.tell(&mut connection, medians).await {
                return trouble;
            }
            sleep(interval(topology)).await;
        }
    }

    async fn tell(&self, connection: &mut Connection, command: Option<Cmd>) -> Result<(), Trouble> {
        let Some(command) = command else {
            return Ok(());
        };
        let said = timeout(PATIENCE, connection.run(&[command])).await;
        for said in said.map_err(|_| Trouble::Timeout)?? {
            match said {
                Ok(_) => self.metrics.done(),
                Err(Refusal::ReadOnly) => return Err(Trouble::ReadOnly),
                Err(Refusal::Denied) => return Err(Trouble::Auth),
                Err(why @ (Refusal::Oom | Refusal::WrongType | Refusal::Lost | Refusal::Other)) => {
                    self.metrics.refused(why);
                }
            }
        }
        Ok(())
    }

    fn state(&self, topology: &Topology) -> Option<Cmd> {
        let state = self.source().state(interval(topology));
        let value = serde_json::to_vec(&state).unwrap_or_default();
        let store = topology.network.state.as_ref();
        let ttl_s = store.map_or(1, |store| store.ttl_s);
        let key = state_key(topology, &self.context.name);
        (value.len() <= STATE_BYTES_MAX).then(|| set(key, value, ttl_s))
    }

    fn medians(&self, topology: &Topology) -> Option<Cmd> {
        let medians = self.source().medians()?;
        let value = serde_json::to_vec(&medians).ok()?;
        let key = medians_key(topology, &self.context.name);
        let age_max_s = topology.steering.measured.age_max_s;
        (value.len() <= MEDIANS_BYTES_MAX).then(|| set(key, value, age_max_s))
    }

    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether medians are told at this turn.
const fn is_due(told: u32) -> bool {
    told.is_multiple_of(MEDIANS_EVERY)
}

fn set(key: String, value: Vec<u8>, ttl_s: u32) -> Cmd {
    let mut cmd = cmd("SET");
    cmd.arg(key).arg(value).arg("EX").arg(ttl_s);
    cmd
}
