//! A PoP of one worker: the real flows, links, regions and reassembler, joined as `pop` joins them.

use std::net::SocketAddr;
use std::time::Duration;

use core_relay_link::{LinkEvent, Links, LinksConfig, Tls};
use pop::regions::{Plan, Regions};
use pop_proto::{Downlink, DropReason, Flows, FlowsConfig, Now, Routes, Source, Uplink};
use topology::{Pop, Topology};
use wire::hint::{KeyRing, Minute};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{Record, RecordHeader, Records};
use wire::{ClientAddr, Tag};

use super::clients;
use super::credentials::WALL_S;
use super::ledger::{Tally, Way};
use super::link_side::LinkSide;
use super::net::{Cargo, Flight, Net, Site};
use super::packet;

/// Split packets that may be unfinished, and for how long: as in `pop`.
const REASSEMBLY_PACKETS_MAX: u16 = 256;
const REASSEMBLY_TTL: Duration = Duration::from_millis(250);

/// See the module head.
pub struct SimPop {
    index: usize,
    pop: Pop,
    side: LinkSide,
    regions: Regions,
    routes: Routes,
    /// The flow table.
    pub flows: Flows,
    reassembler: Reassembler,
    /// What happened to its links, and when.
    pub events: Vec<(Duration, LinkEvent)>,
    /// Names of the core relays, in the order of regions.
    relays: Vec<String>,
    /// Which core relay carried the uplink of the first region from when on.
    pub carriers: Vec<(Duration, Option<usize>)>,
}

/// What a PoP starts with.
pub struct PopStart<'a> {
    /// Its place in the topology.
    pub index: usize,
    /// The network.
    pub topology: &'a Topology,
    /// Its certificate.
    pub tls: Tls,
    /// Its links.
    pub config: LinksConfig,
    /// The live hint keys.
    pub keys: KeyRing,
    /// Where its links leave from: another address at each start.
    pub address: SocketAddr,
}

impl SimPop {
    /// Starts it: it dials.
    #[must_use]
    pub fn start(pop: &Pop, start: PopStart<'_>, net: &mut Net) -> Self {
        let now = net.now();
        let plan = Plan::new(start.topology, pop, 0);
        let hash_seed = u64::from(start.config.seed[0]);
        let mut links = Links::dialer(start.config, start.tls, &plan.targets, now);
        let mut regions = Regions::none();
        regions.apply(&plan, &mut links, now);
        let flows = FlowsConfig {
            flows_max: pop.flows_max,
            hash_seed,
            recovery: None,
        };
        let site = Site::Pop(start.index);
        net.directory.insert(start.address, site);
        Self {
            index: start.index,
            pop: pop.clone(),
            side: LinkSide::new(links, site, Way::Up, start.address),
            regions,
            routes: Routes::new(start.topology, pop, start.keys),
            flows: Flows::new(flows, now),
            reassembler: Reassembler::new(REASSEMBLY_PACKETS_MAX, REASSEMBLY_TTL, hash_seed),
            events: Vec::new(),
            relays: plan.targets.into_iter().map(|target| target.name).collect(),
            carriers: Vec::new(),
        }
    }

    /// Takes over other hint keys.
    pub fn reload(&mut self, topology: &Topology, keys: KeyRing) {
        self.routes = Routes::new(topology, &self.pop, keys);
    }

    /// One turn of the worker: clients, backbone, timers, links.
    pub fn turn(&mut self, arrivals: Vec<Flight>, net: &mut Net) {
        let at = moment(net);
        for flight in arrivals {
            match &flight.cargo {
                Cargo::Client(client, bytes) => {
                    let stamp = packet::stamp(bytes);
                    let serial = stamp.map_or(u64::MAX, |stamp| stamp.serial);
                    net.ledger.passed(serial, flight.took);
                    self.uplink(clients::address(*client), bytes, at, net);
                }
                Cargo::Quic(..) if flight.to_address != self.side.address => net.unheard(&flight),
                Cargo::Quic(bytes, _) => self.backbone(&flight, bytes, at, net),
                Cargo::Records(_) => unreachable!("no transceiver sends to a PoP"),
            }
        }
        self.side.flush(net);
        self.side.handle_timeout(at.instant);
        if self
            .flows
            .poll_timeout()
            .is_some_and(|due| due <= at.instant)
        {
            self.flows.handle_timeout(at);
        }
        if self
            .regions
            .poll_timeout()
            .is_some_and(|due| due <= at.instant)
        {
            self.regions.handle_timeout(&self.side.links, at.instant);
            self.note_carrier(net);
        }
        self.take_events(net);
        self.side.transmit(net);
        self.take_events(net);
    }

    fn uplink(&mut self, client: ClientAddr, bytes: &[u8], at: Now, net: &mut Net) {
        let from = Source { client, ingress: 0 };
        let verdict = self.flows.handle_uplink(&self.routes, from, bytes, at);
        let (owner, also) = match verdict {
            Uplink::Forward { owner, also } => (owner, also),
            Uplink::Hold => unreachable!("nothing is held without a flow cache"),
            Uplink::Offer { .. } => unreachable!("workers that share nothing offer nothing"),
            Uplink::Drop(reason) => return net.ledger.dropped(Way::Up, reason.as_str(), 1),
        };
        net.ledger.tally(Way::Up).copies += u64::from(also.is_some());
        for owner in [Some(owner), also].into_iter().flatten() {
            let Some(link) = self.regions.link_to(owner.region) else {
                net.ledger
                    .dropped(Way::Up, DropReason::LinkDown.as_str(), 1);
                continue;
            };
            let tag = Tag {
                pop: self.pop.pop_id(),
                worker: 0,
                ingress: 0,
            };
            let header = RecordHeader {
                owner,
                tag,
                client,
                hops: 0,
                fragment: None,
                offered: false,
            };
            self.side.put(link, &header, bytes);
        }
    }

    fn backbone(&mut self, flight: &Flight, bytes: &[u8], at: Now, net: &mut Net) {
        let bodies = self.side.take(flight, bytes, net);
        self.take_events(net);
        for (link, body) in bodies {
            for record in Records::new(&body) {
                let record = record.expect("core relays send records");
                let verdict = if self.regions.region_of(link) == Some(record.header.owner.region) {
                    self.downlink(record, at, net)
                } else {
                    Err(DropReason::WrongRegion)
                };
                if let Err(reason) = verdict {
                    net.ledger.dropped(Way::Down, reason.as_str(), 1);
                }
            }
        }
    }

    fn downlink(&mut self, record: Record<'_>, at: Now, net: &mut Net) -> Result<(), DropReason> {
        let Record { header, payload } = record;
        if header.tag.pop != self.pop.pop_id() || header.tag.worker != 0 {
            return Err(DropReason::WrongTag);
        }
        self.routes.source(header.client)?;
        if record.is_end() {
            self.flows.handle_end(&header, at);
            return Ok(());
        }
        let whole = match self.reassembler.push(&header, payload, at.instant) {
            Reassembled::Complete(whole) => whole,
            Reassembled::Pending => return Ok(()),
            Reassembled::Dropped(_) => return Err(DropReason::Reassembly),
        };
        match self.flows.handle_downlink(&header, whole, at) {
            Downlink::Deliver => {
                let client = clients::index(header.client).expect("records are for our clients");
                let (from, to) = (self.side.address, header.client.socket_addr());
                let cargo = Cargo::Client(client, whole.to_vec());
                net.send((Site::Pop(self.index), from), (Site::Clients, to), cargo);
                Ok(())
            }
            Downlink::Drop(reason) => Err(reason),
        }
    }

    fn take_events(&mut self, net: &Net) {
        for event in self.side.events() {
            self.regions
                .handle_event(&event, &self.side.links, net.now());
            self.events.push((net.at, event));
            self.note_carrier(net);
        }
    }

    fn note_carrier(&mut self, net: &Net) {
        let carrier = self.carrier();
        let last = self.carriers.last().and_then(|(_, last)| *last);
        if last != carrier {
            self.carriers.push((net.at, carrier));
        }
    }

    /// The core relay that carries the uplink of the first region.
    #[must_use]
    pub fn carrier(&self) -> Option<usize> {
        let link = self.regions.link_to(self.regions.first()?)?;
        let peer = self.side.links.stats(link)?.peer;
        self.relays.iter().position(|name| **name == *peer)
    }

    /// Links that are up.
    #[must_use]
    pub fn links_up(&self) -> usize {
        let all = self.side.links.all_stats();
        all.filter(|link| link.up_since.is_some()).count()
    }

    /// When it wants a turn.
    #[must_use]
    pub fn deadline(&self, net: &Net) -> Option<Duration> {
        let own = [self.flows.poll_timeout(), self.regions.poll_timeout()];
        let own = own.into_iter().flatten().min();
        let own = own.map(|timeout| net.since_epoch(timeout));
        self.side.deadline(net).into_iter().chain(own).min()
    }

    /// Enters what its links dropped into the books.
    pub fn account(&self, way: Way, tally: &mut Tally) {
        self.side.account(way, tally);
    }

    /// Connections of its links, those being made or closed included.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.side.links.connections()
    }
}

/// The time of a batch.
fn moment(net: &Net) -> Now {
    Now {
        instant: net.now(),
        minute: Minute::from_unix_s(WALL_S + net.at.as_secs()),
    }
}
