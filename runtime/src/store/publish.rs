//! Tells the state of one node, again and again.

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

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
        tell: Box::new(tell),
        backoff: Backoff::new(BACKOFF_LONGEST, random::number()?),
        logged: None,
        told: 0,
    };
    Ok(Publication(context.control.spawn(task.run())))
}

struct Task {
    context: NodeContext,
    metrics: Metrics,
    tell: Box<dyn Tell>,
    backoff: Backoff,
    /// The last trouble that was logged.
    logged: Option<Trouble>,
    /// How often the state was told.
    told: u32,
}

impl Task {
    async fn run(mut self) {
        let mut turn: usize = 0;
        loop {
            let config = self.context.config.load();
            let Some(store) = &config.topology.network.state else {
                self.tell_hub();
                sleep(interval(&config.topology)).await;
                continue;
            };
            let servers = Servers::from(store);
            let opened = Connection::open(servers, turn, &config.credentials, PATIENCE).await;
            let since = clock::now();
            let trouble = match opened {
                Ok(connection) => self.serve(connection, &config).await,
                Err(trouble) => Some(trouble),
            };
            // Without a trouble there is another configuration, which may name another store.
            let Some(trouble) = trouble else { continue };
            turn = turn.wrapping_add(1);
            self.failed(trouble);
            let served = clock::now().saturating_duration_since(since);
            sleep(self.backoff.wait(served)).await;
        }
    }

    fn tell_hub(&mut self) {
        let (state, medians) = self.take(false);
        self.context.hub.tell(state, medians, clock::now());
    }

    /// What is to be told at this turn. Medians are told rarely, and at the first turn of a connection (`all`).
    fn take(&mut self, all: bool) -> (NodeState, Option<Medians>) {
        let due = all || self.told.is_multiple_of(MEDIANS_EVERY);
        self.told = self.told.wrapping_add(1);
        let name = &self.context.name;
        let medians = due.then(|| self.tell.medians()).flatten();
        let medians = medians.map(|prefixes| Medians::of(name, prefixes, clock::unix_s()));
        (NodeState::of(name, self.tell.state()), medians)
    }

    async fn serve(&mut self, mut connection: Connection, config: &Config) -> Option<Trouble> {
        self.metrics.up(true);
        self.logged = None;
        tracing::info!("the state store is told");
        let every = interval(&config.topology);
        let mut first = true;
        while self.context.config.generation() == config.generation {
            let commands = self.commands(std::mem::take(&mut first), config);
            let said = match timeout(PATIENCE, connection.run(&commands)).await {
                Ok(Ok(said)) => said,
                Ok(Err(trouble)) => return Some(trouble),
                Err(_) => return Some(Trouble::Timeout),
            };
            for said in said {
                match said {
                    Ok(_) => self.metrics.done(),
                    Err(Refusal::ReadOnly) => return Some(Trouble::ReadOnly),
                    Err(Refusal::Denied) => return Some(Trouble::Auth),
                    Err(
                        why @ (Refusal::Oom | Refusal::WrongType | Refusal::Lost | Refusal::Other),
                    ) => {
                        self.metrics.refused(why);
                    }
                }
            }
            sleep(every).await;
        }
        None
    }

    fn commands(&mut self, first: bool, config: &Config) -> Vec<Cmd> {
        let (state, medians) = self.take(first);
        let (topology, name) = (&config.topology, &self.context.name);
        let ttl_s = topology
            .network
            .state
            .as_ref()
            .map_or(1, |store| store.ttl_s);
        let state = serde_json::to_vec(&state).unwrap_or_default();
        let medians = medians.and_then(|medians| serde_json::to_vec(&medians).ok());
        let state =
            (state.len() <= STATE_BYTES_MAX).then(|| set(state_key(topology, name), state, ttl_s));
        let age_max_s = topology.steering.measured.age_max_s;
        let medians = medians
            .filter(|value| value.len() <= MEDIANS_BYTES_MAX)
            .map(|value| set(medians_key(topology, name), value, age_max_s));
        state.into_iter().chain(medians).collect()
    }

    fn failed(&mut self, trouble: Trouble) {
        self.metrics.trouble(trouble);
        // A cause is told once: the metrics say how often.
        if self.logged != Some(trouble) {
            self.logged = Some(trouble);
            let reason = trouble.as_str();
            tracing::warn!(reason, "the state store is not told: it is tried again");
        }
    }
}

fn set(key: String, value: Vec<u8>, ttl_s: u32) -> Cmd {
    let mut cmd = cmd("SET");
    cmd.arg(key).arg(value).arg("EX").arg(ttl_s);
    cmd
}
