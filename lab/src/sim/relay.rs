//! A core relay of one worker: the real links, relay, table of PoPs and regrouping, joined as `core-relay` joins them.

use std::net::SocketAddr;
use std::time::Duration;

use core_relay::pops::Pops;
use core_relay_link::{LinkEvent, LinkId, Links, LinksConfig, Tls};
use core_relay_proto::{Downlink, DropReason, Relay, Uplink};
use topology::{CoreRelay, Region, Topology};
use wire::Regroup;
use wire::record::{RecordHeader, Records, open_datagram};

use super::ledger::{Tally, Way};
use super::link_side::LinkSide;
use super::net::{Cargo, Flight, Net, Site};
use super::packet;

/// Transceivers kept apart in one batch.
const DESTINATIONS_MAX: usize = 64;

/// See the module head.
pub struct SimRelay {
    site: Site,
    side: LinkSide,
    record_address: SocketAddr,
    pops: Pops,
    relay: Relay,
    regroup: Regroup<SocketAddr>,
    datagram_len_max: usize,
    /// What happened to its links, and when.
    pub events: Vec<(Duration, LinkEvent)>,
}

impl SimRelay {
    /// Starts it: it accepts.
    #[must_use]
    pub fn start(
        site: Site,
        topology: &Topology,
        (region, relay): (&Region, &CoreRelay),
        tls: Tls,
        config: LinksConfig,
        net: &mut Net,
    ) -> Self {
        let mut pops = Pops::none();
        let allowed = pops.apply(topology, region);
        let datagram_len_max = usize::from(config.link.mtu_bytes);
        let links = Links::acceptor(config, tls, &allowed, net.now());
        let address = SocketAddr::new(relay.address, relay.link_port);
        let record_address = SocketAddr::new(relay.address, relay.record_port);
        net.directory.insert(address, site);
        net.directory.insert(record_address, site);
        Self {
            site,
            side: LinkSide::new(links, site, Way::Down, address),
            record_address,
            pops,
            relay: Relay::new(region),
            regroup: Regroup::new(DESTINATIONS_MAX),
            datagram_len_max,
            events: Vec::new(),
        }
    }

    /// One turn of the worker: links, transceivers, timers, links.
    pub fn turn(&mut self, arrivals: Vec<Flight>, net: &mut Net) {
        for flight in arrivals {
            match &flight.cargo {
                Cargo::Quic(bytes, _) => {
                    let bodies = self.side.take(&flight, bytes, net);
                    self.take_events(net);
                    for (link, body) in bodies {
                        self.up(link, &body, net);
                    }
                }
                Cargo::Records(bytes) => self.down(flight.from_address, &flight, bytes, net),
                Cargo::Client(..) => unreachable!("no client sends to a core relay"),
            }
        }
        self.flush_up(net);
        self.side.flush(net);
        self.side.handle_timeout(net.now());
        self.take_events(net);
        self.side.transmit(net);
        self.take_events(net);
    }

    fn up(&mut self, link: LinkId, body: &[u8], net: &mut Net) {
        for record in Records::new(body) {
            let record = record.expect("PoPs send records");
            let verdict = match self.pops.of_link(link) {
                Some((pop, worker)) => self.relay.handle_uplink(pop, worker, &record.header),
                None => Uplink::Drop(DropReason::NoLink),
            };
            let to = match verdict {
                Uplink::Forward { to } => to,
                Uplink::Drop(reason) => {
                    net.ledger.dropped(Way::Up, reason.as_str(), 1);
                    continue;
                }
            };
            let header = forwarded(record.header);
            let len_max = self.datagram_len_max;
            if self
                .regroup
                .push(to, &header, record.payload, len_max)
                .is_err()
            {
                net.ledger
                    .dropped(Way::Up, DropReason::Oversize.as_str(), 1);
            }
        }
    }

    fn flush_up(&mut self, net: &mut Net) {
        let from = (self.site, self.record_address);
        self.regroup.drain(|to, bytes, segment_bytes| {
            for datagram in bytes.chunks(segment_bytes) {
                net.send_to(from, to, Cargo::Records(datagram.to_vec()));
            }
        });
    }

    fn down(&mut self, from: SocketAddr, flight: &Flight, bytes: &[u8], net: &mut Net) {
        let source = self.relay.handle_source(from);
        let source = source.expect("only transceivers of the region send records here");
        let (_, _, body) = open_datagram(bytes).expect("transceivers send datagrams");
        for record in Records::new(body) {
            let record = record.expect("transceivers send records");
            if let Some(stamp) = packet::stamp(record.payload) {
                net.ledger.passed(stamp.serial, flight.took);
            }
            let dropped = match self.relay.handle_downlink(source, &record.header) {
                Downlink::ToLink { pop, worker } => match self.pops.link_of(pop, worker) {
                    Some(link) => {
                        let header = forwarded(record.header);
                        self.side.put(link, &header, record.payload);
                        continue;
                    }
                    None => DropReason::NoLink,
                },
                Downlink::Drop(reason) => reason,
            };
            net.ledger.dropped(Way::Down, dropped.as_str(), 1);
        }
    }

    fn take_events(&mut self, net: &Net) {
        for event in self.side.events() {
            self.pops.handle_event(&event);
            self.events.push((net.at, event));
        }
    }

    /// When it wants a turn.
    #[must_use]
    pub fn deadline(&self, net: &Net) -> Option<Duration> {
        self.side.deadline(net)
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

const fn forwarded(header: RecordHeader) -> RecordHeader {
    RecordHeader {
        hops: header.hops.saturating_add(1),
        ..header
    }
}
