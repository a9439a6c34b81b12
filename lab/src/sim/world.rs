//! The world: clients, PoPs, core relays and transceivers, the net between them, and virtual time.

use std::net::SocketAddr;
use std::time::Duration;

use core_relay_link::LinksConfig;
use topology::Topology;
use wire::Owner;
use wire::hint::{Hint, Minute};

use super::clients::{Client, Clients};
use super::credentials::{Ca, WALL_S};
use super::ledger::{Tally, Way};
use super::net::{Flight, Net, Site};
use super::packet::MEDIA_LEN_MIN;
use super::path::Conditions;
use super::plan::{self, Plan};
use super::pop::{PopStart, SimPop};
use super::random::Random;
use super::relay::SimRelay;
use super::report::Report;
use super::transceiver::SimTransceiver;

/// Turns at one moment at most: more, and a program never comes to rest.
const TURNS_MAX: u32 = 10_000;
/// How long a wait may take, in virtual time.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// What is on its way when traffic ends has arrived after this, on every path a test makes.
const DRAIN: Duration = Duration::from_millis(800);

/// Who sends media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Nobody; checks go on.
    Nobody,
    /// Clients.
    Clients,
    /// Clients and transceivers.
    Both,
}

/// See the module head. A test that fails prints the seed.
pub struct World {
    plan: Plan,
    topology: Topology,
    ca: Ca,
    random: Random,
    rotations: u8,
    talk: Talk,
    /// Starts of nodes so far.
    starts: u16,
    /// The net: time, paths, books.
    pub net: Net,
    /// The clients.
    pub clients: Clients,
    pops: Vec<Option<SimPop>>,
    relays: Vec<Option<SimRelay>>,
    transceivers: Vec<SimTransceiver>,
}

impl World {
    /// A world in which everybody starts at once.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        let topology = plan.topology();
        let payload_len = (!plan.any_length).then_some(plan.packet_len);
        let mut world = Self {
            net: Net::new(plan.seed, payload_len, plan.mtu_bytes.into()),
            topology,
            ca: Ca::new(),
            random: Random::new(plan.seed, 1),
            rotations: 0,
            talk: Talk::Nobody,
            starts: 0,
            clients: Clients::new(plan.packet_len),
            pops: Vec::new(),
            relays: Vec::new(),
            transceivers: Vec::new(),
            plan,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        for index in 0..self.plan.regions * self.plan.transceivers {
            let transceiver = self.make_transceiver(index);
            self.transceivers.push(transceiver);
        }
        for index in 0..self.plan.regions * self.plan.relays {
            self.relays.push(None);
            self.start_relay(index);
        }
        for index in 0..self.plan.pops {
            self.pops.push(None);
            self.start_pop(index);
        }
        let delay = self.plan.delay;
        self.backbone(|path| path.delay = delay);
        for _ in 0..self.plan.clients {
            self.add_client();
        }
    }

    // What a test changes.

    /// One more client, which connects at once.
    pub fn add_client(&mut self) {
        let number = self.clients.list.len();
        let transceiver = number % self.transceivers.len().max(1);
        let issued = Minute::from_unix_s(WALL_S + self.net.at.as_secs());
        let hint = Hint {
            owner: self.owner(transceiver),
            issued,
        };
        let [a, b, c, ..] = self.random.bytes();
        let ufrag = plan::keys(self.rotations).seal(hint, [a, b, c]);
        let client = Client::new(number % self.plan.pops, transceiver, ufrag);
        self.clients.list.push(client);
        self.clients.skip_to(self.net.at);
    }

    /// Changes every path between PoPs and core relays.
    pub fn backbone(&mut self, change: impl Fn(&mut Conditions)) {
        for pop in 0..self.plan.pops {
            for relay in 0..self.relays.len() {
                let (pop, relay) = (Site::Pop(pop), Site::Relay(relay));
                change(self.net.conditions(pop, relay));
                change(self.net.conditions(relay, pop));
            }
        }
    }

    /// Hint keys rotate: PoPs take the next ring, and new clients get hints of its current key.
    pub fn rotate_keys(&mut self) {
        self.rotations += 1;
        for pop in self.pops.iter_mut().flatten() {
            pop.reload(&self.topology, plan::keys(self.rotations));
        }
    }

    /// A PoP dies: nothing of it is left, and nobody is told.
    pub fn kill_pop(&mut self, index: usize) {
        if let Some(pop) = self.pops.get_mut(index).and_then(Option::take) {
            bury(&mut self.net, |way, tally| pop.account(way, tally));
        }
    }

    /// A core relay dies.
    pub fn kill_relay(&mut self, index: usize) {
        if let Some(relay) = self.relays.get_mut(index).and_then(Option::take) {
            bury(&mut self.net, |way, tally| relay.account(way, tally));
        }
    }

    /// A PoP that does not run starts, at another backbone address.
    ///
    /// # Panics
    /// There is no such PoP.
    pub fn start_pop(&mut self, index: usize) {
        let config = self.links_config();
        let pop = self
            .topology
            .pops
            .get(index)
            .expect("the plan has this PoP");
        let start = PopStart {
            index,
            topology: &self.topology,
            tls: self.ca.tls(&pop.name),
            config,
            keys: plan::keys(self.rotations),
            address: SocketAddr::new(pop.backbone, 20_000 + self.starts),
        };
        let started = SimPop::start(pop, start, &mut self.net);
        if let Some(place) = self.pops.get_mut(index) {
            *place = Some(started);
        }
    }

    /// A core relay that does not run starts.
    ///
    /// # Panics
    /// There is no such core relay.
    pub fn start_relay(&mut self, index: usize) {
        let config = self.links_config();
        let (region, relay) = (index / self.plan.relays, index % self.plan.relays);
        let region = self
            .topology
            .regions
            .get(region)
            .expect("a region of the plan");
        let relay = region.core_relays.get(relay).expect("a relay of the plan");
        let tls = self.ca.tls(&relay.name);
        let site = Site::Relay(index);
        let place = (region, relay);
        let started = SimRelay::start(site, &self.topology, place, tls, config, &mut self.net);
        if let Some(place) = self.relays.get_mut(index) {
            *place = Some(started);
        }
    }

    // What a test looks at.

    /// A PoP that runs.
    ///
    /// # Panics
    /// It does not.
    #[must_use]
    pub fn pop(&self, index: usize) -> &SimPop {
        let pop = self.pops.get(index).and_then(Option::as_ref);
        pop.expect("the PoP runs")
    }

    /// A core relay that runs.
    ///
    /// # Panics
    /// It does not.
    #[must_use]
    pub fn relay(&self, index: usize) -> &SimRelay {
        let relay = self.relays.get(index).and_then(Option::as_ref);
        relay.expect("the core relay runs")
    }

    /// A transceiver.
    ///
    /// # Panics
    /// There is no such transceiver.
    #[must_use]
    pub fn transceiver(&self, index: usize) -> &SimTransceiver {
        self.transceivers
            .get(index)
            .expect("the plan has this transceiver")
    }

    /// Links that are up at the PoPs that run.
    #[must_use]
    pub fn links_up(&self) -> usize {
        self.pops.iter().flatten().map(SimPop::links_up).sum()
    }

    /// Links there can be.
    #[must_use]
    pub fn links_max(&self) -> usize {
        self.plan.pops * self.plan.regions * self.plan.relays
    }

    /// The books of one way, complete.
    #[must_use]
    pub fn tally(&mut self, way: Way) -> Tally {
        let mut tally = self.net.ledger.tally(way).clone();
        tally.in_air = self.net.in_air(way);
        for pop in self.pops.iter().flatten() {
            pop.account(way, &mut tally);
        }
        for relay in self.relays.iter().flatten() {
            relay.account(way, &mut tally);
        }
        tally
    }

    /// Every packet is accounted for, both ways.
    ///
    /// # Panics
    /// One is not.
    pub fn assert_balanced(&mut self) {
        for way in [Way::Up, Way::Down] {
            let tally = self.tally(way);
            assert!(tally.is_balanced(), "{way:?}: {tally}");
        }
    }

    // Time.

    /// Everybody connects: all links come up, and then every client gets an answer.
    pub fn connect(&mut self) {
        let links = self.links_max();
        let clients = std::mem::take(&mut self.clients);
        self.run_until("links are up", |world| world.links_up() == links);
        self.clients = clients;
        self.clients.skip_to(self.net.at);
        self.run_until("clients have answers", |world| {
            world.clients.list.iter().all(|client| client.connected)
        });
        self.run(DRAIN);
    }

    /// Media for so long, and silence until all has arrived. Returns what became of each way.
    pub fn talk(&mut self, talk: Talk, duration: Duration) -> (Report, Report) {
        let first = self.net.ledger.next_serial();
        let (up, down) = (self.tally(Way::Up), self.tally(Way::Down));
        self.start_talking(talk);
        self.run(duration);
        self.start_talking(Talk::Nobody);
        let last = self.net.ledger.next_serial();
        self.run(DRAIN);
        let stretch = usize::try_from(last - first).unwrap_or(usize::MAX);
        let (up_after, down_after) = (self.tally(Way::Up), self.tally(Way::Down));
        let lines = self.net.ledger.since(first);
        let lines = lines.get(..stretch).unwrap_or_default();
        (
            Report::new(lines, Way::Up, &up, &up_after),
            Report::new(lines, Way::Down, &down, &down_after),
        )
    }

    /// From here on these send media.
    pub const fn start_talking(&mut self, talk: Talk) {
        self.talk = talk;
    }

    /// Until it is so. Returns how long it took.
    ///
    /// # Panics
    /// It does not come about.
    pub fn run_until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Duration {
        let begin = self.net.at;
        while !is_so(self) {
            assert!(
                self.net.at < begin + WAIT_MAX,
                "not within {WAIT_MAX:?}: {what}"
            );
            self.run(Duration::from_millis(1));
        }
        self.net.at - begin
    }

    /// Runs for so long.
    ///
    /// # Panics
    /// A program never comes to rest.
    pub fn run(&mut self, duration: Duration) {
        let end = self.net.at + duration;
        let mut turns = 0;
        while let Some(next) = self.next_moment().filter(|next| *next <= end) {
            turns = if next > self.net.at { 0 } else { turns + 1 };
            assert!(turns < TURNS_MAX, "something never comes to rest");
            self.net.at = next.max(self.net.at);
            while self.clients.next_slot() <= self.net.at {
                self.slot();
            }
            self.turns();
        }
        self.net.at = end;
    }

    fn next_moment(&self) -> Option<Duration> {
        let net = &self.net;
        let pops = self
            .pops
            .iter()
            .flatten()
            .filter_map(|pop| pop.deadline(net));
        let relays = self.relays.iter().flatten();
        let relays = relays.filter_map(|relay| relay.deadline(net));
        let arrival = net.next_arrival();
        let slot = self.clients.next_slot();
        let next = pops.chain(relays).chain(arrival).min();
        Some(next.map_or(slot, |next| next.min(slot)))
    }

    /// A slot of clients, and the media that transceivers send them.
    fn slot(&mut self) {
        let slot = self.clients.begin_slot();
        for index in slot.clone() {
            let len = self.media_len();
            let len = (self.talk != Talk::Nobody).then_some(len);
            self.clients.send(index, len, &mut self.net);
        }
        if self.talk != Talk::Both {
            return;
        }
        for index in slot {
            let len = self.media_len();
            let client = self.clients.list.get(index);
            let transceiver =
                client.and_then(|client| self.transceivers.get_mut(client.transceiver));
            if let (Some(transceiver), Ok(number)) = (transceiver, u32::try_from(index)) {
                transceiver.talk(number, len, &mut self.net);
            }
        }
        for transceiver in &mut self.transceivers {
            transceiver.flush(&mut self.net);
        }
    }

    fn media_len(&mut self) -> usize {
        if !self.plan.any_length {
            return self.plan.packet_len;
        }
        let spread = wire::record::PAYLOAD_LEN_MAX - MEDIA_LEN_MIN + 1;
        let spread = u64::try_from(spread).unwrap_or(u64::MAX);
        MEDIA_LEN_MIN + usize::try_from(self.random.below(spread)).unwrap_or_default()
    }

    /// Everybody for whom something arrived, or whose time has come, has a turn.
    fn turns(&mut self) {
        let mut arrivals: Vec<Flight> = Vec::new();
        while let Some(flight) = self.net.arrival() {
            arrivals.push(flight);
        }
        // In the order of sites, and within each in the order of arrival.
        arrivals.sort_by_key(|flight| flight.to);
        let mut arrivals = arrivals.into_iter().peekable();
        while let Some(first) = arrivals.next() {
            let site = first.to;
            let mut batch = vec![first];
            batch.extend(std::iter::from_fn(|| {
                arrivals.next_if(|flight| flight.to == site)
            }));
            self.deliver(site, batch);
        }
        let at = self.net.at;
        for pop in self.pops.iter_mut().flatten() {
            if pop.deadline(&self.net).is_some_and(|due| due <= at) {
                pop.turn(Vec::new(), &mut self.net);
            }
        }
        for relay in self.relays.iter_mut().flatten() {
            if relay.deadline(&self.net).is_some_and(|due| due <= at) {
                relay.turn(Vec::new(), &mut self.net);
            }
        }
    }

    fn deliver(&mut self, site: Site, batch: Vec<Flight>) {
        let net = &mut self.net;
        match site {
            Site::Clients => batch
                .iter()
                .for_each(|flight| self.clients.arrived(flight, net)),
            Site::Transceiver(index) => {
                if let Some(transceiver) = self.transceivers.get_mut(index) {
                    transceiver.turn(&batch, net);
                }
            }
            Site::Pop(index) => match self.pops.get_mut(index).and_then(Option::as_mut) {
                Some(pop) => pop.turn(batch, net),
                None => batch.iter().for_each(|flight| net.unheard(flight)),
            },
            Site::Relay(index) => match self.relays.get_mut(index).and_then(Option::as_mut) {
                Some(relay) => relay.turn(batch, net),
                None => batch.iter().for_each(|flight| net.unheard(flight)),
            },
        }
    }

    // What it is made of.

    fn links_config(&mut self) -> LinksConfig {
        self.starts += 1;
        LinksConfig {
            worker: 0,
            link: self.topology.network.link.clone(),
            seed: self.random.bytes(),
            congestion: self.plan.congestion,
        }
    }

    fn owner(&self, transceiver: usize) -> Owner {
        let region = self
            .topology
            .regions
            .get(transceiver / self.plan.transceivers);
        let region = region.expect("a region of the plan");
        let node = transceiver % self.plan.transceivers;
        let node = region
            .transceivers
            .nodes
            .get(node)
            .expect("a transceiver of the plan");
        Owner {
            region: region.region_id(),
            transceiver: region
                .transceivers
                .id_of(node.address)
                .expect("it lies in the CIDR"),
        }
    }

    fn make_transceiver(&mut self, index: usize) -> SimTransceiver {
        let owner = self.owner(index);
        let region = self
            .topology
            .region(owner.region)
            .expect("a region of the plan");
        let address = region
            .transceiver_addr(owner.transceiver)
            .expect("it lies in the CIDR");
        let len_max = self.topology.network.link.datagram_len_max();
        let site = Site::Transceiver(index);
        SimTransceiver::start(site, owner, address, len_max, &mut self.net)
    }
}

/// Enters into the books what a process leaves behind: what waited in it is not heard by anybody.
fn bury(net: &mut Net, account: impl Fn(Way, &mut Tally)) {
    for way in [Way::Up, Way::Down] {
        let tally = net.ledger.tally(way);
        account(way, tally);
        tally.unheard += std::mem::take(&mut tally.waiting);
    }
}

impl Drop for World {
    #[expect(
        clippy::print_stderr,
        reason = "whoever repeats the failure needs the seed"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let variable = super::random::SEED_VARIABLE;
            eprintln!(
                "at {:?}; again with {variable}={}",
                self.net.at, self.plan.seed
            );
        }
    }
}
