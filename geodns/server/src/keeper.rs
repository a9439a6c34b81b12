//! The keeper: the one thread that owns what answers are made from, and makes them anew when something changes.
//!
//! ```text
//! topology, credentials ──► site ──┐
//! databases ───────────────────────┼──► compiler (a thread) ──► tables, lists ──┐
//! medians, once a minute ──────────┘                                            ├──► choices ──► World, Served
//! live state, once a second at most ────────────────────────────────────────────┘
//! ```
//!
//! Each input changes what depends on it and nothing else: a drain never waits for tables, and tables never for a signature. What
//! fails is logged and counted, and what there was stays.
//!
//! What is not here: how a client's place is chosen (`geodns_policy`), what is told of nodes (`crate::live`).

mod choices;
mod compiler;
mod figures;
mod known;
mod site;

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use geodns_policy::databases::Databases;
use geodns_policy::{Live, Snapshot};
use geodns_proto::cookie::Secrets;
use geodns_proto::dnssec::Validity;
use geodns_proto::select::Served;
use runtime::clock;
use runtime::node::{Config, ConfigHandle, NodeContext, Shutdown, State};
use runtime::poll::{Poller, Waker};
use runtime::random;
use runtime::store::{self, States};
use runtime::watch::IDLE_TURN_MAX;

use self::choices::{Signed, choose};
use self::compiler::{Compiled, Compiler, Died, Done, Job};
use self::figures::Figures;
use self::known::Known;
use self::site::Site;
use crate::databases::Shelf;
use crate::udp::Answers;
use crate::world::{Current, Map, World};
use crate::{slow, udp};

/// Choices follow live state no more often.
const CHOICES_INTERVAL: Duration = Duration::from_millis(500);

/// Checks what the first world needs of the configuration.
///
/// # Errors
/// See [`Keeper::new`].
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    Site::new(config, clock::unix_s()).map(drop)
}

/// What the rest of the node reads.
#[derive(Clone)]
pub(crate) struct Kept {
    /// For steering, explanations, admin.
    pub(crate) current: Current,
    /// For the threads that answer UDP.
    pub(crate) answers: Answers<Map>,
    /// For everything else that is DNS.
    pub(crate) slow: slow::Current<Map>,
    /// What the public is shown by DNS over TLS and HTTPS.
    pub(crate) tls: Arc<ArcSwap<slow::Tls>>,
    /// What cookies are made with when the credentials do not say.
    pub(crate) drawn: Secrets,
}

/// Owns the inputs of the [`World`].
pub(crate) struct Keeper {
    config: ConfigHandle,
    shutdown: Shutdown,
    waker: Waker,
    kept: Kept,
    compiler: Compiler<Job, Done>,
    figures: Figures,
    seed: u64,
    /// Generation of the configuration that was looked at last, taken or refused.
    looked_at: u64,
    /// The last one that was taken, and what came of it.
    using: Arc<Config>,
    site: Arc<Site>,
    shelf: Shelf,
    databases: Arc<Databases>,
    known: Known,
    /// Something has changed that tables depend on.
    stale: bool,
    /// What is served: the site tables were made for, and the tables.
    served: Job,
    compiled: Compiled,
    /// Live state has changed and is not shown yet.
    unshown: bool,
    signed: Signed,
    /// The day it was last tried to sign for: one that cannot be signed is tried once.
    tried: Validity,
    states: Arc<ArcSwap<States>>,
    states_seen: Arc<States>,
    choices_due: Instant,
}

impl Keeper {
    /// Makes the first world. Nothing is heard of other nodes yet.
    ///
    /// # Errors
    /// The topology has no zone, certificates or databases do not work, or the kernel gives no thread, descriptor or randomness.
    pub(crate) fn new(context: &NodeContext, shelf: Shelf) -> anyhow::Result<(Self, Kept)> {
        let databases = shelf.load_full();
        let waker = Waker::new().context("waker")?;
        context.shutdown.register(&waker);
        let config = context.config.load();
        let site = Arc::new(Site::new(&config, clock::unix_s())?);
        let drawn = udp::draw_secrets()?;
        let served = Job {
            config: Arc::clone(&config),
            site: Arc::clone(&site),
            measured: Arc::default(),
            databases: Arc::clone(&databases),
        };
        let first = compiler::run(served.clone());
        let compiled = first.result.context("compiling the tables")?;
        let figures = Figures::new(&context.metrics);
        figures.compiled(&compiled, first.took);
        let now = clock::now();
        let known = Known::new(&site.plan, now);
        let seed = random::number().context("seed of names")?;
        let mut signed = Signed::default();
        let made = Made::new(&served, &compiled, known.live(), &mut signed, seed)?;
        let kept = Kept {
            slow: Arc::new(ArcSwap::from_pointee(made.snapshot(&site, &drawn))),
            current: Current::new(made.world),
            answers: Answers::new(made.served),
            tls: Arc::new(ArcSwap::from(Arc::clone(&site.tls))),
            drawn,
        };
        figures.observe(&context.metrics, &kept.current);
        let keeper = Self {
            config: context.config.clone(),
            shutdown: context.shutdown.clone(),
            states: follow_states(context, &waker)?,
            compiler: Compiler::start(waker.clone(), compiler::run)?,
            waker,
            kept: kept.clone(),
            figures,
            seed,
            looked_at: config.generation,
            using: config,
            site,
            databases,
            shelf,
            known,
            stale: false,
            served,
            compiled,
            unshown: false,
            signed,
            tried: Validity::at(clock::unix_s()),
            states_seen: Arc::default(),
            choices_due: now,
        };
        Ok((keeper, kept))
    }

    /// Keeps until the node has stopped.
    pub(crate) fn run(mut self) {
        let mut poller = Poller::new();
        loop {
            let now = clock::now();
            // 1. what the node is told
            if self.ends() {
                return;
            }
            // 2. topology and credentials
            self.follow_config(now);
            // 3. databases
            self.follow_databases();
            // 4. medians
            self.follow_medians(now);
            // 5. tables
            self.follow_tables();
            // 6. live state
            self.follow_live(now);
            if let Err(error) = poller.wait(&[self.waker.as_fd()], Some(IDLE_TURN_MAX)) {
                tracing::warn!(%error, "waiting for something to do");
            }
            self.waker.drain();
        }
    }

    fn ends(&self) -> bool {
        match self.shutdown.state() {
            State::Running | State::Draining { .. } => false,
            State::Stopped => true,
        }
    }

    fn follow_config(&mut self, now: Instant) {
        let unix_s = clock::unix_s();
        let validity = Validity::at(unix_s);
        let is_signed_of_old =
            self.site.keys.is_some() && self.site.validity != validity && self.tried != validity;
        let is_new = self.config.generation() != self.looked_at;
        if !is_new && !is_signed_of_old {
            return;
        }
        self.tried = validity;
        let config = if is_new {
            self.config.load()
        } else {
            Arc::clone(&self.using)
        };
        self.looked_at = self.looked_at.max(config.generation);
        match Site::new(&config, unix_s) {
            Ok(site) => {
                let (states, plans) = (self.states.load(), (&*self.site.plan, &*site.plan));
                self.known.replan(&states, plans, (now, unix_s));
                self.site = Arc::new(site);
                self.using = config;
                self.stale = true;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(error, "topology and credentials: the old ones stay");
                self.figures.failed.add(1);
            }
        }
    }

    fn follow_databases(&mut self) {
        let databases = self.shelf.load_full();
        if !Arc::ptr_eq(&databases, &self.databases) {
            self.databases = databases;
            self.stale = true;
        }
    }

    fn follow_medians(&mut self, now: Instant) {
        let states = self.states.load_full();
        let plans = (&self.site.plan, &self.served.site.plan);
        let facts = |address| self.databases.facts(address);
        let before = Arc::clone(self.known.measured());
        let look = self
            .known
            .look(&states, plans, facts, (now, clock::unix_s()));
        let Some(look) = look else { return };
        let measured = self.known.measured();
        self.figures
            .measured(measured, &look.gathered, self.known.memory());
        if look.moves {
            self.stale = true;
        } else if Arc::ptr_eq(&self.served.measured, &before) && !Arc::ptr_eq(measured, &before) {
            // The tables are those that it would lead to.
            self.served.measured = Arc::clone(measured);
            self.kept.current.measured(Arc::clone(measured));
        }
    }

    fn follow_tables(&mut self) {
        match self.compiler.take() {
            Ok(Some(done)) => self.install(done),
            Ok(None) => {}
            Err(Died) => self.revive(),
        }
        if self.stale && !self.compiler.is_busy() {
            self.stale = false;
            self.compiler.begin(Job {
                config: Arc::clone(&self.using),
                site: Arc::clone(&self.site),
                measured: Arc::clone(self.known.measured()),
                databases: Arc::clone(&self.databases),
            });
        }
    }

    /// Another compiler in place of one that panicked. What it was given is not tried again before something changes.
    fn revive(&mut self) {
        self.figures.died.add(1);
        tracing::error!("making tables panicked: the old ones stay");
        match Compiler::start(self.waker.clone(), compiler::run) {
            Ok(compiler) => self.compiler = compiler,
            Err(error) => tracing::error!(%error, "tables cannot be made"),
        }
    }

    /// Serves what was compiled: all of it or nothing.
    fn install(&mut self, done: Done) {
        let Done { job, result, took } = done;
        let compiled = match result {
            Ok(compiled) => compiled,
            Err(error) => {
                tracing::error!(%error, "tables: the old ones stay");
                self.figures.failed.add(1);
                return;
            }
        };
        self.figures.compiled(&compiled, took);
        let (site, before) = (&job.site, &self.served.site);
        let is_same = Arc::ptr_eq(site, before);
        let live = if is_same {
            Arc::clone(self.known.live())
        } else {
            let plans = (&*before.plan, &*site.plan);
            self.known.live_for(&job.config.topology, plans)
        };
        // Signatures hold for the keys and the day of one site.
        let mut signed = if is_same {
            std::mem::take(&mut self.signed)
        } else {
            Signed::default()
        };
        match Made::new(&job, &compiled, &live, &mut signed, self.seed) {
            Ok(made) => {
                self.kept.tls.store(Arc::clone(&job.site.tls));
                self.known.served(live);
                self.served = job;
                self.compiled = compiled;
                self.signed = signed;
                self.show(made);
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn follow_live(&mut self, now: Instant) {
        let states = self.states.load_full();
        if now < self.choices_due || Arc::ptr_eq(&states, &self.states_seen) {
            return;
        }
        self.choices_due = now + CHOICES_INTERVAL;
        let Job { config, site, .. } = &self.served;
        let changed = self.known.hear(&states, &config.topology, &site.plan);
        self.states_seen = states;
        if changed || self.unshown {
            self.choose_anew();
        } else if self.kept.current.load().heard_at != self.states_seen.answered_at {
            self.kept.current.touch(self.states_seen.answered_at);
        }
    }

    /// Chooses by live state, from the same tables.
    fn choose_anew(&mut self) {
        let signed = &mut self.signed;
        let live = self.known.live();
        match Made::new(&self.served, &self.compiled, live, signed, self.seed) {
            Ok(made) => self.show(made),
            Err(error) => {
                self.unshown = true;
                self.refuse(&error);
            }
        }
    }

    fn show(&mut self, mut made: Made) {
        let snapshot = made.snapshot(&self.served.site, &self.kept.drawn);
        made.world.heard_at = self.states_seen.answered_at;
        self.unshown = false;
        self.kept.answers.publish(made.served);
        self.kept.slow.store(Arc::new(snapshot));
        self.kept.current.store(made.world);
        self.figures.published.add(1);
    }

    fn refuse(&self, error: &anyhow::Error) {
        let error = format!("{error:#}");
        tracing::error!(error, "choices: the old ones stay");
        self.figures.failed.add(1);
    }
}

/// A world and the same for the threads that answer UDP.
struct Made {
    world: World,
    served: Served<Map>,
}

impl Made {
    fn new(
        job: &Job,
        compiled: &Compiled,
        live: &Arc<Live>,
        signed: &mut Signed,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let snapshot = Snapshot {
            plan: Arc::clone(&job.site.plan),
            live: Arc::clone(live),
            measured: Arc::clone(&job.measured),
        };
        let signer = job.site.signer();
        let signing = signer.as_ref().map(|signer| (signer, signed));
        let choices = choose(&job.site.zone, &compiled.lists, &snapshot, signing, seed)
            .context("choosing answers")?;
        let selection = Arc::new(choices.selection);
        let served = Served {
            tables: Arc::clone(&compiled.map),
            selection: Arc::clone(&selection),
            rendered: Arc::new(choices.rendered),
        };
        let world = World {
            config: Arc::clone(&job.config),
            snapshot,
            databases: Arc::clone(&job.databases),
            map: Arc::clone(&compiled.map),
            selection,
            content: Arc::new(choices.content),
            heard_at: None,
            gate: Arc::clone(&job.site.gate),
        };
        Ok(Self { world, served })
    }

    /// The same for the slow path.
    fn snapshot(&self, site: &Site, drawn: &Secrets) -> slow::Snapshot<Map> {
        slow::Snapshot {
            served: Served {
                tables: Arc::clone(&self.served.tables),
                selection: Arc::clone(&self.served.selection),
                rendered: Arc::clone(&self.served.rendered),
            },
            content: Arc::clone(&self.world.content),
            secrets: site.secrets.clone().unwrap_or_else(|| drawn.clone()),
        }
    }
}

/// What the nodes tell, and a wake for each reading.
fn follow_states(context: &NodeContext, waker: &Waker) -> anyhow::Result<Arc<ArcSwap<States>>> {
    let states = Arc::new(ArcSwap::from_pointee(States::default()));
    let mut watch = store::watch(context).context("watching the state of the nodes")?;
    let (shown, waker, stopped) = (Arc::clone(&states), waker.clone(), context.shutdown.clone());
    context.control.spawn(async move {
        let stopped = stopped.stopped();
        let mut stopped = std::pin::pin!(stopped);
        loop {
            tokio::select! {
                () = &mut stopped => return,
                () = watch.changed() => {}
            }
            shown.store(watch.load());
            waker.wake();
        }
    });
    Ok(states)
}
