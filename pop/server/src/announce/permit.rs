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

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pop_proto::announce::permits::{Ask, Holder, Look, PERMIT_TTL, Permits};
use pop_proto::announce::{Announce, Peers, Permit};
use runtime::node::{Config, NodeContext};
use runtime::redis_client::{
    Backoff, Cmd, Connection, PATIENCE, Refusal, Said, Servers, Trouble, Value, cmd,
};
use runtime::{clock, random};
use tokio::sync::Notify;
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

/// The announce thread's side. The task ends with it.
pub(super) struct Office {
    counter: Arc<Counter>,
    task: JoinHandle<()>,
}

/// What both sides see.
struct Counter {
    wanted: AtomicBool,
    telling: AtomicU8,
    slots: AtomicU32,
    said: Mutex<Answer>,
    bell: Notify,
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

impl Office {
    pub(super) fn open(context: &NodeContext, pop: &Pop) -> anyhow::Result<Self> {
        let (pops, min_announced) = counts(&context.config.load().topology);
        let permits = Permits::new(pops, min_announced, pop.id.into());
        let counter = Arc::new(Counter {
            wanted: AtomicBool::new(true),
            telling: AtomicU8::new(0),
            slots: AtomicU32::new(permits.slots()),
            said: Mutex::default(),
            bell: Notify::new(),
        });
        let task = Task {
            context: context.clone(),
            pop: pop.name.clone(),
            counter: Arc::clone(&counter),
            permits,
            backoff: Backoff::new(BACKOFF_LONGEST, random::number()?),
            logged: None,
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
            Announce::Draining => 2,
            Announce::Up => 3,
        };
        let told = self.counter.telling.swap(telling, Ordering::Relaxed);
        let was = self.counter.wanted.swap(wanted, Ordering::Relaxed);
        if was != wanted || told != telling {
            self.counter.bell.notify_one();
        }
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
}

impl Task {
    async fn run(mut self) {
        loop {
            let config = self.context.config.load();
            let (pops, min_announced) = counts(&config.topology);
            self.permits.set_pops(pops, min_announced);
            let slots = self.permits.slots();
            self.counter.slots.store(slots, Ordering::Relaxed);
            let Some(store) = &config.topology.network.state else {
                tokio::time::sleep(INTERVAL).await;
                continue;
            };
            // The first of several servers, always: permits of another would be other permits.
            let Some(servers) = Servers::of_state(store).next() else {
                tokio::time::sleep(INTERVAL).await;
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
        let telling = usize::from(self.counter.telling.load(Ordering::Relaxed));
        let telling = TELLINGS.get(telling).copied().unwrap_or_default();
        let own = announce_key(network, &self.pop);
        let mut tell = cmd("SET");
        tell.arg(own).arg(telling).arg("PX").arg(ms(TELL_TTL));
        run(connection, &[tell]).await?;
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
