//! Watches what all nodes tell: every server of the store is read by itself, and all readings go into one [`States`].

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
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

/// States in one batch of reads.
const BATCH: usize = 64;
/// Medians in one batch, and in one reading, at most: they are long, and whatever a reading costs, states are read again soon. Fewer
/// where so many do not arrive in time.
const MEDIANS_BATCH_MAX: usize = 4;

/// Why a connection is given up.
enum Ended {
    /// The server does not answer.
    Lost(Trouble),
    /// It said what states are, and could not say medians. That is no news of any node.
    OverMedians(Trouble),
}

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
        states: Mutex::default(),
        tell,
        seed: random::number()?,
    };
    let task = context.control.spawn(task.run());
    Ok(Watch { states, task })
}

struct Task {
    context: NodeContext,
    metrics: Metrics,
    answered: Answered,
    states: Mutex<States>,
    tell: watch::Sender<Arc<States>>,
    seed: u64,
}

/// One server, or a Cluster.
struct Link<'a> {
    at: usize,
    servers: Servers<'a>,
    /// Readings, of all connections: medians are due as rarely on a line that breaks.
    readings: u32,
    /// Medians in one reading.
    batch: usize,
    /// Whether any of this round did not arrive.
    is_late: bool,
    /// PoPs whose medians are still to be read in this round. It outlives connections: what cannot be read in time is left for the next
    /// round, and keeps nobody else from being read.
    pops: VecDeque<String>,
}

impl Task {
    async fn run(self) {
        loop {
            let config = self.context.config.load();
            let topology = &config.topology;
            self.states()
                .begin(|name| topology.pop_named(name).is_some());
            let Some(store) = &topology.network.state else {
                self.read_hub(topology);
                sleep(interval(topology)).await;
                continue;
            };
            self.metrics.begin();
            let links = Servers::of_state(store).enumerate();
            let links = links.map(|(at, servers)| Link {
                at,
                servers,
                readings: 0,
                batch: MEDIANS_BATCH_MAX,
                is_late: false,
                pops: VecDeque::new(),
            });
            let reading = join_all(links.map(|link| self.keep_reading(link, &config)));
            // Another configuration may name other servers. None of these is waited for: what was read is kept.
            tokio::select! {
                _ = reading => {}
                () = self.context.config.outdated(config.generation) => {}
            }
        }
    }

    fn read_hub(&self, topology: &Topology) {
        let (hub, now) = (&self.context.hub, clock::now());
        let states = nodes(topology).map(|name| (name.clone(), hub.state(&name, now).map(Ok)));
        let medians = pops(topology).map(|name| (name.clone(), hub.medians(&name).map(Ok)));
        let (states, medians) = (states.collect(), medians.collect());
        let mut known = self.states();
        known.took_states(0, states, now);
        known.took_medians(0, medians);
        drop(known);
        self.show();
    }

    async fn keep_reading(&self, mut link: Link<'_>, config: &Config) {
        let seed = self.seed.wrapping_add(u64::try_from(link.at).unwrap_or(0));
        let mut backoff = Backoff::new(BACKOFF_LONGEST, seed);
        let mut logged = None;
        let mut turn: usize = 0;
        loop {
            let opened = Connection::open(link.servers, turn, &config.credentials, PATIENCE).await;
            let since = clock::now();
            let ended = match opened {
                Ok(connection) => {
                    logged = None;
                    self.serve(&mut link, connection, config).await
                }
                Err(trouble) => Ended::Lost(trouble),
            };
            turn = turn.wrapping_add(1);
            let trouble = match ended {
                Ended::Lost(trouble) => trouble,
                Ended::OverMedians(trouble) => {
                    self.metrics.trouble(link.at, trouble);
                    link.ask_for_less(trouble);
                    sleep(interval(&config.topology)).await;
                    continue;
                }
            };
            self.metrics.trouble(link.at, trouble);
            self.states().lost(link.at);
            self.show();
            if logged != Some(trouble) {
                logged = Some(trouble);
                let (reason, server) = (trouble.as_str(), link.at);
                tracing::warn!(
                    reason,
                    server,
                    "the state store does not answer: the last known state stays"
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
    ) -> Ended {
        tracing::info!(server = link.at, "the state store is watched");
        let topology = &config.topology;
        loop {
            if let Err(trouble) = self.read(link, &mut connection, topology).await {
                return Ended::Lost(trouble);
            }
            if let Err(trouble) = self.read_medians(link, &mut connection, topology).await {
                return Ended::OverMedians(trouble);
            }
            sleep(interval(topology)).await;
        }
    }

    async fn read(
        &self,
        link: &Link<'_>,
        connection: &mut Connection,
        topology: &Topology,
    ) -> Result<(), Trouble> {
        let names: Vec<String> = nodes(topology).collect();
        let key = |name: &str| state_key(topology, name);
        let states = self
            .values(connection, names, (&key, STATE_BYTES_MAX), NodeState::parse)
            .await?;
        self.states().took_states(link.at, states, clock::now());
        self.metrics.up(link.at, true);
        self.show();
        Ok(())
    }

    async fn read_medians(
        &self,
        link: &mut Link<'_>,
        connection: &mut Connection,
        topology: &Topology,
    ) -> Result<(), Trouble> {
        let names = link.due(topology);
        if names.is_empty() {
            return Ok(());
        }
        let key = |name: &str| medians_key(topology, name);
        let medians = self
            .values(connection, names, (&key, MEDIANS_BYTES_MAX), Medians::parse)
            .await?;
        self.states().took_medians(link.at, medians);
        self.show();
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

    fn states(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self) {
        let states = self.states().clone();
        if let Some(at) = states.answered_at {
            self.answered.at(at);
        }
        self.tell.send_replace(Arc::new(states));
    }
}

impl Link<'_> {
    /// PoPs whose medians this reading is for.
    fn due(&mut self, topology: &Topology) -> Vec<String> {
        if self.pops.is_empty() && self.readings.is_multiple_of(MEDIANS_EVERY) {
            self.pops.extend(pops(topology));
            let more = usize::from(!self.is_late);
            self.batch = (self.batch + more).min(MEDIANS_BATCH_MAX);
            self.is_late = false;
        }
        self.readings = self.readings.wrapping_add(1);
        let most = self.pops.len().min(self.batch);
        self.pops.drain(..most).collect()
    }

    /// Medians did not arrive: half as many are read at once, until a whole round has arrived.
    fn ask_for_less(&mut self, trouble: Trouble) {
        if self.batch == MEDIANS_BATCH_MAX {
            let (reason, server) = (trouble.as_str(), self.at);
            tracing::warn!(
                reason,
                server,
                "the state store does not say medians: fewer are asked for at once"
            );
        }
        self.batch = (self.batch / 2).max(1);
        self.is_late = true;
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
