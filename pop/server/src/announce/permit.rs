//! The permits to be away, in the Redis of `network.state`: a task on the control runtime that the announce thread never waits for.
//!
//! ```text
//! firsthop:permit:NETWORK:SLOT    name of the PoP that is away     SET NX PX, PEXPIRE, DEL
//! firsthop:announce:NETWORK:POP   up | draining | ready | withdrawn   SET PX, every second
//! ```
//!
//! Whoever wants a permit looks at both: a PoP that tells nothing, or tells that it does not announce, is away with or without a slot.
//!
//! What is not here: which slot is wanted and how long one counts (`pop_proto::announce::permits`).

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pop_proto::announce::permits::{Ask, Holder, Look, PERMIT_TTL, Permits};
use pop_proto::announce::{Announce, Peers, Permit};
use runtime::node::{Config, NodeContext};
use runtime::redis_client::{
    Backoff, Cmd, Connection, PATIENCE, Refusal, Said, Servers, Trouble, Value, cmd,
};
use runtime::{clock, random};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use topology::{Pop, Topology};

/// What every key of a permit begins with; an ACL names it.
const PERMIT_PREFIX: &str = "firsthop:permit:";
/// The same for what PoPs tell each other of their announcements.
const ANNOUNCE_PREFIX: &str = "firsthop:announce:";
/// How often a permit is asked for or confirmed, and the own state told.
const INTERVAL: Duration = Duration::from_secs(1);
/// What a PoP tells counts so long.
const TELL_TTL: Duration = Duration::from_secs(4);
/// Longest wait before Redis is tried again, before jitter.
const BACKOFF_LONGEST: Duration = Duration::from_secs(2);
/// Questions in a row that lead to a permit.
const ASKS_MAX: usize = 4;
/// Other PoPs that are looked at; more are believed to announce.
const PEERS_MAX: usize = 1024;
/// Bytes of a value that are read: a name or a state.
const VALUE_BYTES_MAX: u32 = 255;

/// Longest wait for who else is up: after it, nobody can tell.
const CENSUS_MAX: Duration = Duration::from_secs(1);

/// The announce thread's side. The task ends with it.
pub(super) struct Office {
    counter: Arc<Counter>,
    task: JoinHandle<()>,
}

/// What both sides see.
#[derive(Debug)]
struct Counter {
    wanted: AtomicBool,
    telling: AtomicU8,
    /// It is ordered to drain, or about to be: it tells so, though it is still up.
    leaves: AtomicBool,
    slots: AtomicU32,
    said: Mutex<Answer>,
    bell: Notify,
    /// How often it was asked who is up.
    asked: AtomicU64,
    heard: watch::Sender<Heard>,
}

/// Of which question, what the answer is.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    asked: u64,
    others: Option<Others>,
}

/// The other PoPs that clients can go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Others {
    pub(super) up: u32,
    /// So many are to be.
    pub(super) wanted: u32,
}

/// Asks who else is up, for whoever orders this PoP to leave.
#[derive(Clone, Debug)]
pub(super) struct Census {
    counter: Arc<Counter>,
}

impl Census {
    /// Whether the others are told that it leaves.
    pub(super) fn leave(&self, leaves: bool) {
        if self.counter.leaves.swap(leaves, Ordering::Relaxed) != leaves {
            self.counter.bell.notify_one();
        }
    }

    /// Whoever is up and does not leave. `None` where nobody can tell, or there are no others.
    pub(super) async fn others(&self) -> Option<Others> {
        let counter = &self.counter;
        let asked = counter.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut heard = counter.heard.subscribe();
        counter.bell.notify_one();
        let heard = timeout(CENSUS_MAX, heard.wait_for(|heard| heard.asked >= asked)).await;
        heard.ok()?.ok()?.others
    }
}

/// What there is to say.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    pub(super) permit: Permit,
    pub(super) peers: Peers,
}

/// What a PoP tells the others.
const TELLINGS: [&str; 4] = ["withdrawn", "ready", "draining", "up"];
/// Those of PoPs that clients reach.
const ANNOUNCED: [&str; 2] = ["up", "draining"];
/// Place of `draining` in [`TELLINGS`].
const DRAINING: u8 = 2;

impl Office {
    pub(super) fn open(context: &NodeContext, pop: &Pop) -> anyhow::Result<Self> {
        let (pops, min_announced) = counts(&context.config.load().topology);
        let permits = Permits::new(pops, min_announced, pop.id.into());
        let counter = Arc::new(Counter {
            wanted: AtomicBool::new(true),
            telling: AtomicU8::new(0),
            leaves: AtomicBool::new(false),
            slots: AtomicU32::new(permits.slots()),
            said: Mutex::default(),
            bell: Notify::new(),
            asked: AtomicU64::new(0),
            heard: watch::Sender::new(Heard::default()),
        });
        let refused = context.metrics.counter(
            "pop.announce.store_full",
            "{command}",
            "Commands about permits that the Redis of network.state refused for want of memory.",
            &[],
        );
        let task = Task {
            context: context.clone(),
            pop: pop.name.clone(),
            counter: Arc::clone(&counter),
            permits,
            backoff: Backoff::new(BACKOFF_LONGEST, random::number()?),
            logged: None,
            full: Full {
                refused,
                told: false,
            },
        };
        let task = context.control.spawn(task.run());
        Ok(Self { counter, task })
    }

    /// What is known, unless it is being written at this moment.
    pub(super) fn said(&self) -> Option<Answer> {
        self.counter.said.try_lock().ok().map(|said| *said)
    }

    pub(super) fn tell(&self, wanted: bool, announce: Announce, ready: bool) {
        let telling = match announce {
            Announce::Withdrawn => u8::from(ready),
            Announce::Draining => DRAINING,
            Announce::Up => 3,
        };
        let told = self.counter.telling.swap(telling, Ordering::Relaxed);
        let was = self.counter.wanted.swap(wanted, Ordering::Relaxed);
        if was != wanted || told != telling {
            self.counter.bell.notify_one();
        }
    }

    pub(super) fn census(&self) -> Census {
        let counter = Arc::clone(&self.counter);
        Census { counter }
    }

    pub(super) fn slots(&self) -> u32 {
        self.counter.slots.load(Ordering::Relaxed)
    }
}

impl Drop for Office {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Task {
    context: NodeContext,
    pop: String,
    counter: Arc<Counter>,
    permits: Permits,
    backoff: Backoff,
    /// The last trouble that was logged.
    logged: Option<Trouble>,
    full: Full,
}

/// A Redis without memory for what is told: the others count this PoP as gone.
struct Full {
    refused: runtime::metrics::Counter,
    told: bool,
}

impl Full {
    /// A lack of memory is told once, until there is some again.
    fn note(&mut self, said: &[Said]) {
        let refused = said.iter().filter(|said| matches!(said, Err(Refusal::Oom)));
        let refused = u64::try_from(refused.count()).unwrap_or(u64::MAX);
        self.refused.add(refused);
        let is_new = !std::mem::replace(&mut self.told, refused > 0);
        if refused > 0 && is_new {
            tracing::warn!(
                "the Redis of network.state has no memory left: other PoPs count this one as gone, and no permit is given"
            );
        }
    }
}

impl Task {
    async fn run(mut self) {
        loop {
            let config = self.context.config.load();
            let (pops, min_announced) = counts(&config.topology);
            self.permits.set_pops(pops, min_announced);
            let slots = self.permits.slots();
            self.counter.slots.store(slots, Ordering::Relaxed);
            // The first of several servers, always: permits of another would be other permits.
            let store = config.topology.network.state.as_ref();
            let Some(servers) = store.and_then(|store| Servers::of_state(store).next()) else {
                self.nobody_tells();
                // Either way it is looked at again.
                let _ = timeout(INTERVAL, self.counter.bell.notified()).await;
                continue;
            };
            let opened = Connection::open(servers, 0, &config.credentials, PATIENCE).await;
            let since = clock::now();
            let trouble = match opened {
                Ok(connection) => self.serve(connection, &config).await,
                Err(trouble) => Some(trouble),
            };
            let Some(trouble) = trouble else { continue };
            self.failed(trouble);
            let served = clock::now().saturating_duration_since(since);
            tokio::time::sleep(self.backoff.wait(served)).await;
        }
    }

    /// Until there is trouble, or another configuration.
    async fn serve(&mut self, mut connection: Connection, config: &Config) -> Option<Trouble> {
        self.logged = None;
        while self.context.config.generation() == config.generation {
            if let Err(trouble) = self.round(&mut connection, config).await {
                return Some(trouble);
            }
            let bell = self.counter.bell.notified();
            // Either way there is another round.
            let _ = timeout(INTERVAL, bell).await;
        }
        None
    }

    async fn round(&mut self, connection: &mut Connection, config: &Config) -> Result<(), Trouble> {
        let network = &config.topology.network.name;
        let asked = self.counter.asked.load(Ordering::Relaxed);
        let mut telling = self.counter.telling.load(Ordering::Relaxed);
        if self.counter.leaves.load(Ordering::Relaxed) {
            telling = telling.min(DRAINING);
        }
        let telling = usize::from(telling);
        let telling = TELLINGS.get(telling).copied().unwrap_or_default();
        let own = announce_key(network, &self.pop);
        let mut tell = cmd("SET");
        tell.arg(own).arg(telling).arg("PX").arg(ms(TELL_TTL));
        let said = run(connection, &[tell]).await?;
        self.full.note(&said);
        self.take_census(connection, config, asked).await?;
        let wanted = self.counter.wanted.load(Ordering::Relaxed);
        for _ in 0..ASKS_MAX {
            let Some(ask) = self.permits.next(wanted, clock::now()) else {
                break;
            };
            if !self.ask(connection, &config.topology, ask).await? {
                break;
            }
        }
        let peers = self.peers(connection, config).await?;
        self.say(peers);
        Ok(())
    }

    /// Whether there is something to ask at once.
    async fn ask(
        &mut self,
        connection: &mut Connection,
        topology: &Topology,
        ask: Ask,
    ) -> Result<bool, Trouble> {
        let key = |slot: u32| permit_key(&topology.network.name, slot);
        let asked = clock::now();
        match ask {
            Ask::Look => {
                let (holders, gone) = self.look(connection, topology).await?;
                let holders = &holders;
                Ok(self.permits.handle_look(&Look { holders, gone }))
            }
            Ask::Take(slot) => {
                let mut take = cmd("SET");
                take.arg(key(slot)).arg(&self.pop);
                take.arg("NX").arg("PX").arg(ms(PERMIT_TTL));
                let said = run(connection, &[take]).await?;
                if said.iter().any(Result::is_err) {
                    self.full.note(&said);
                }
                let given = matches!(said.first(), Some(Ok(Value::Okay)));
                Ok(self.permits.handle_taken(slot, given))
            }
            Ask::Confirm(slot) => {
                // Whoever has it, its time is extended; then it shows whose it is.
                let mut extend = cmd("PEXPIRE");
                extend.arg(key(slot)).arg(ms(PERMIT_TTL));
                run(connection, &[extend]).await?;
                let (holders, gone) = self.look(connection, topology).await?;
                let holders = &holders;
                let look = Look { holders, gone };
                Ok(self.permits.handle_confirmed(slot, &look, asked))
            }
            Ask::Release(slot) => {
                let mut release = cmd("DEL");
                release.arg(key(slot));
                run(connection, &[release]).await?;
                Ok(false)
            }
        }
    }

    /// Who has each of the slots, and how many others do not announce and have none.
    async fn look(
        &self,
        connection: &mut Connection,
        topology: &Topology,
    ) -> Result<(Vec<Holder>, u32), Trouble> {
        let network = &topology.network.name;
        let slots = usize::try_from(self.permits.slots()).unwrap_or(usize::MAX);
        let others: Vec<&str> = self.others(topology).collect();
        let permits = (0..self.permits.slots()).map(|slot| get(permit_key(network, slot)));
        let tellings = others.iter().map(|name| get(announce_key(network, name)));
        let looks: Vec<Cmd> = permits.chain(tellings).collect();
        let said = run(connection, &looks).await?;
        let (permits, tellings) = said.split_at_checked(slots).ok_or(Trouble::Closed)?;
        let is_gone = |(name, telling): &(&&str, &Said)| {
            let holds = permits.iter().any(|permit| is_one_of(permit, &[name]));
            !holds && !is_one_of(telling, &ANNOUNCED)
        };
        let gone = others.iter().zip(tellings).filter(is_gone).count();
        let holders = permits.iter().map(|said| self.holder(said)).collect();
        Ok((holders, u32::try_from(gone).unwrap_or(u32::MAX)))
    }

    /// Names of the other PoPs that announce VIPs.
    fn others<'a>(&self, topology: &'a Topology) -> impl Iterator<Item = &'a str> + use<'a, '_> {
        let all = topology.pops.iter();
        let others = all.filter(|pop| pop.name != self.pop && topology.anycast_of(pop).is_some());
        others.take(PEERS_MAX).map(|pop| pop.name.as_str())
    }

    /// Something that is no name is somebody else's too.
    fn holder(&self, said: &Said) -> Holder {
        match said {
            Ok(Value::Nil) => Holder::Nobody,
            Ok(Value::BulkString(name)) if name.is_empty() => Holder::Nobody,
            Ok(Value::BulkString(name)) if *name == self.pop.as_bytes() => Holder::Own,
            Ok(_) | Err(_) => Holder::Other,
        }
    }

    /// What the others told lately; asked only by whoever is about to come back.
    async fn peers(&self, connection: &mut Connection, config: &Config) -> Result<Peers, Trouble> {
        if self.counter.telling.load(Ordering::Relaxed) > 1 {
            return Ok(Peers::Unknown);
        }
        let topology = &config.topology;
        let network = &topology.network.name;
        let others = self.others(topology);
        let looks: Vec<Cmd> = others
            .map(|name| get(announce_key(network, name)))
            .collect();
        if looks.is_empty() {
            return Ok(Peers::Unknown);
        }
        let said = run(connection, &looks).await?;
        let count = |names: &[&str]| {
            let count = said.iter().filter(|said| is_one_of(said, names)).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        Ok(Peers::Known {
            announced: count(&ANNOUNCED),
            ready: count(&["ready"]),
        })
    }

    /// Answers who else is up, where somebody has asked.
    async fn take_census(
        &self,
        connection: &mut Connection,
        config: &Config,
        asked: u64,
    ) -> Result<(), Trouble> {
        if self.counter.heard.borrow().asked >= asked {
            return Ok(());
        }
        let topology = &config.topology;
        let network = &topology.network.name;
        let others = self.others(topology);
        let looks: Vec<Cmd> = others
            .map(|name| get(announce_key(network, name)))
            .collect();
        let mut others = None;
        if !looks.is_empty() {
            let said = run(connection, &looks).await?;
            let up = said.iter().filter(|said| is_one_of(said, &["up"]));
            others = Some(Others {
                up: u32::try_from(up.count()).unwrap_or(u32::MAX),
                wanted: counts(topology).1,
            });
        }
        self.counter.heard.send_replace(Heard { asked, others });
        Ok(())
    }

    fn nobody_tells(&self) {
        let asked = self.counter.asked.load(Ordering::Relaxed);
        let others = None;
        self.counter.heard.send_replace(Heard { asked, others });
    }

    fn say(&self, peers: Peers) {
        let mut said = self
            .counter
            .said
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *said = Answer {
            permit: self.permits.permit(clock::now()),
            peers,
        };
    }

    fn failed(&mut self, trouble: Trouble) {
        self.permits.handle_silence();
        self.say(Peers::Unknown);
        self.nobody_tells();
        // A cause is told once: `state_store.up` says how it stands.
        if self.logged != Some(trouble) {
            self.logged = Some(trouble);
            let reason = trouble.as_str();
            tracing::warn!(
                reason,
                "no permit can be asked for: for a soft reason this PoP only drains"
            );
        }
    }
}

/// Runs commands within [`PATIENCE`]. A server that only reads, or lets us do nothing, is no server.
async fn run(connection: &mut Connection, commands: &[Cmd]) -> Result<Vec<Said>, Trouble> {
    let said = match timeout(PATIENCE, connection.run(commands)).await {
        Ok(said) => said?,
        Err(_) => return Err(Trouble::Timeout),
    };
    for said in &said {
        match said {
            Err(Refusal::ReadOnly) => return Err(Trouble::ReadOnly),
            Err(Refusal::Denied) => return Err(Trouble::Auth),
            Err(Refusal::Lost) => return Err(Trouble::Closed),
            Ok(_) | Err(Refusal::Oom | Refusal::WrongType | Refusal::Other) => {}
        }
    }
    Ok(said)
}

/// PoPs of a network that announce, and how many of them are to stay.
fn counts(topology: &Topology) -> (u32, u32) {
    let announces = |pop: &&Pop| topology.anycast_of(pop).is_some();
    let pops = topology.pops.iter().filter(announces).count();
    let anycast = topology.network.anycast.as_ref();
    let min_announced = anycast.map_or(0, |anycast| anycast.min_announced.into());
    (u32::try_from(pops).unwrap_or(u32::MAX), min_announced)
}

fn is_one_of(said: &Said, names: &[&str]) -> bool {
    let Ok(Value::BulkString(said)) = said else {
        return false;
    };
    names.iter().any(|name| name.as_bytes() == said.as_slice())
}

fn permit_key(network: &str, slot: u32) -> String {
    format!("{PERMIT_PREFIX}{network}:{slot}")
}

fn announce_key(network: &str, pop: &str) -> String {
    format!("{ANNOUNCE_PREFIX}{network}:{pop}")
}

fn get(key: String) -> Cmd {
    let mut get = cmd("GETRANGE");
    get.arg(key).arg(0).arg(VALUE_BYTES_MAX);
    get
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use runtime::metrics::Registry;

    use super::*;

    #[test]
    fn a_store_without_memory_is_counted_always_and_told_once_until_it_has_some() {
        let registry = Registry::new("pop", "p1");
        let mut full = Full {
            refused: registry.counter("pop.announce.store_full", "{command}", "Test.", &[]),
            told: false,
        };
        let refused = [Ok(Value::Okay), Err(Refusal::Oom)];
        for (said, told, total) in [
            (&refused[..1], false, 0),
            (&refused[..], true, 1),
            (&refused[1..], true, 2),
            (&[Err(Refusal::Other)], false, 2),
        ] {
            full.note(said);
            assert_eq!((full.told, full.refused.total()), (told, total));
        }
    }
}
