//! Watches what all nodes tell.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use topology::Topology;

use super::metrics::{Answered, Metrics};
use super::reading::{States, Values};
use super::{
    BACKOFF_LONGEST, MEDIANS_BYTES_MAX, MEDIANS_EVERY, Medians, NodeState, STATE_BYTES_MAX,
    Unreadable, interval, medians_key, state_key,
};
use crate::node::{Config, NodeContext};
use crate::redis_client::{
    Backoff, Cmd, Connection, PATIENCE, Refusal, Said, Servers, Trouble, Value, cmd,
};
use crate::{clock, random};

/// Keys in one batch of reads.
const BATCH: usize = 64;

/// What all nodes tell, kept current until this is dropped.
#[derive(Debug)]
pub struct Watch {
    states: watch::Receiver<Arc<States>>,
    task: JoinHandle<()>,
}

impl Watch {
    /// What is known.
    #[must_use]
    pub fn load(&self) -> Arc<States> {
        Arc::clone(&self.states.borrow())
    }

    /// Waits for the next reading, or for news that there was none.
    pub async fn changed(&mut self) {
        if self.states.changed().await.is_err() {
            // The task ends with the runtime.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Begins to watch. The store is not waited for: until it has answered, nothing is known.
///
/// # Errors
/// No random number is left.
pub fn watch(context: &NodeContext) -> anyhow::Result<Watch> {
    let (tell, states) = watch::channel(Arc::default());
    let task = Task {
        context: context.clone(),
        metrics: Metrics::new(&context.metrics, "watch"),
        answered: Answered::observe(&context.metrics),
        states: States::default(),
        tell,
        backoff: Backoff::new(BACKOFF_LONGEST, random::number()?),
        logged: None,
        readings: 0,
    };
    let task = context.control.spawn(task.run());
    Ok(Watch { states, task })
}

struct Task {
    context: NodeContext,
    metrics: Metrics,
    answered: Answered,
    states: States,
    tell: watch::Sender<Arc<States>>,
    backoff: Backoff,
    logged: Option<Trouble>,
    readings: u32,
}

impl Task {
    async fn run(mut self) {
        let mut turn: usize = 0;
        loop {
            let config = self.context.config.load();
            let Some(store) = &config.topology.network.state else {
                self.read_hub(&config.topology);
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

    fn read_hub(&mut self, topology: &Topology) {
        let (hub, now) = (&self.context.hub, clock::now());
        let states = nodes(topology).map(|name| (name.clone(), hub.state(&name, now).map(Ok)));
        let medians = pops(topology).map(|name| (name.clone(), hub.medians(&name).map(Ok)));
        let (states, medians) = (states.collect(), medians.collect());
        self.states.took_states(states, now);
        self.states.took_medians(medians);
        self.show();
    }

    async fn serve(&mut self, mut connection: Connection, config: &Config) -> Option<Trouble> {
        self.logged = None;
        self.readings = 0;
        tracing::info!("the state store is watched");
        let every = interval(&config.topology);
        while self.context.config.generation() == config.generation {
            if let Err(trouble) = self.read(&mut connection, &config.topology).await {
                return Some(trouble);
            }
            self.metrics.up(true);
            self.show();
            sleep(every).await;
        }
        None
    }

    async fn read(
        &mut self,
        connection: &mut Connection,
        topology: &Topology,
    ) -> Result<(), Trouble> {
        let names: Vec<String> = nodes(topology).collect();
        let key = |name: &str| state_key(topology, name);
        let states = self
            .values(connection, names, (&key, STATE_BYTES_MAX), NodeState::parse)
            .await?;
        self.states.took_states(states, clock::now());
        if self.readings.is_multiple_of(MEDIANS_EVERY) {
            let names: Vec<String> = pops(topology).collect();
            let key = |name: &str| medians_key(topology, name);
            let medians = self
                .values(connection, names, (&key, MEDIANS_BYTES_MAX), Medians::parse)
                .await?;
            self.states.took_medians(medians);
        }
        self.readings = self.readings.wrapping_add(1);
        Ok(())
    }

    /// Reads a value for each name. Whatever somebody put under a key, little more than a value of ours comes back.
    async fn values<T>(
        &self,
        connection: &mut Connection,
        names: Vec<String>,
        (key, bytes_max): (&(dyn Fn(&str) -> String + Sync), usize),
        parse: fn(&[u8], &str) -> Result<T, Unreadable>,
    ) -> Result<Values<T>, Trouble> {
        let mut values = Vec::with_capacity(names.len());
        for batch in names.chunks(BATCH) {
            let commands: Vec<Cmd> = batch.iter().map(|name| get(key(name), bytes_max)).collect();
            let said = timeout(PATIENCE, connection.run(&commands)).await;
            let said = said.map_err(|_| Trouble::Timeout)??;
            for (name, said) in batch.iter().zip(said) {
                let value = self.value(said)?;
                let value = value.map(|bytes| parse(&bytes, name));
                match &value {
                    Some(Err(why)) => self.metrics.unreadable(*why),
                    Some(Ok(_)) => self.metrics.done(),
                    None => {}
                }
                values.push((name.clone(), value));
            }
        }
        Ok(values)
    }

    /// What is under a key; something that is no string is unreadable, and reads as no JSON.
    fn value(&self, said: Said) -> Result<Option<Vec<u8>>, Trouble> {
        match said {
            Ok(Value::BulkString(bytes)) if bytes.is_empty() => Ok(None),
            Ok(Value::BulkString(bytes)) => Ok(Some(bytes)),
            Ok(Value::Nil) => Ok(None),
            Ok(_) | Err(Refusal::WrongType) => Ok(Some(Vec::new())),
            Err(Refusal::Denied) => Err(Trouble::Auth),
            Err(why @ (Refusal::Oom | Refusal::ReadOnly | Refusal::Lost | Refusal::Other)) => {
                self.metrics.refused(why);
                Err(Trouble::Closed)
            }
        }
    }

    fn show(&self) {
        if let Some(at) = self.states.answered_at {
            self.answered.at(at);
        }
        self.tell.send_replace(Arc::new(self.states.clone()));
    }

    fn failed(&mut self, trouble: Trouble) {
        self.metrics.trouble(trouble);
        self.states.lost();
        self.tell.send_replace(Arc::new(self.states.clone()));
        if self.logged != Some(trouble) {
            self.logged = Some(trouble);
            let reason = trouble.as_str();
            tracing::warn!(
                reason,
                "the state store does not answer: the last known state stays"
            );
        }
    }
}

fn get(key: String, bytes_max: usize) -> Cmd {
    let mut cmd = cmd("GETRANGE");
    cmd.arg(key).arg(0).arg(bytes_max);
    cmd
}

fn pops(topology: &Topology) -> impl Iterator<Item = String> + '_ {
    topology.pops.iter().map(|pop| pop.name.clone())
}

/// Every node whose state counts for steering.
fn nodes(topology: &Topology) -> impl Iterator<Item = String> + '_ {
    let of_regions = topology.regions.iter().flat_map(|region| {
        let relays = region.core_relays.iter().map(|relay| relay.name.clone());
        let transceivers = region.transceivers.nodes.iter();
        relays.chain(transceivers.map(|node| node.name.clone()))
    });
    pops(topology).chain(of_regions)
}
