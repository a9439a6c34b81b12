//! Plays a transceiver: answers checks, keeps the return path of each client, sends media along it. No media engine, and no
//! integrity: every client of a simulation is honest.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{DATAGRAM_HEADER_LEN, RecordHeader, Records, open_datagram, split};
use wire::{Owner, Regroup};

use super::clients;
use super::ledger::Way;
use super::net::{Cargo, Flight, Net, Site};
use super::packet::{self, Kind, Stamp};

/// Split packets that may be unfinished, and for how long.
const REASSEMBLY_PACKETS_MAX: u16 = 256;
const REASSEMBLY_TTL: Duration = Duration::from_millis(250);
/// Core relays kept apart in one batch.
const RELAYS_MAX: usize = 64;

/// See the module head.
pub struct SimTransceiver {
    site: Site,
    owner: Owner,
    address: SocketAddr,
    /// Where the last packet of each client came from, and the header of the answer.
    paths: BTreeMap<u32, (SocketAddr, RecordHeader)>,
    reassembler: Reassembler,
    regroup: Regroup<SocketAddr>,
    datagram_len_max: usize,
    fragment_id: u16,
}

impl SimTransceiver {
    /// At its address.
    #[must_use]
    pub fn start(
        site: Site,
        owner: Owner,
        address: SocketAddr,
        datagram_len_max: usize,
        net: &mut Net,
    ) -> Self {
        net.directory.insert(address, site);
        Self {
            site,
            owner,
            address,
            paths: BTreeMap::new(),
            reassembler: Reassembler::new(REASSEMBLY_PACKETS_MAX, REASSEMBLY_TTL, 1),
            regroup: Regroup::new(RELAYS_MAX),
            datagram_len_max,
            fragment_id: 0,
        }
    }

    /// Takes what arrived and answers checks.
    ///
    /// # Panics
    /// Something arrives that no client sent to this transceiver.
    pub fn turn(&mut self, arrivals: &[Flight], net: &mut Net) {
        for flight in arrivals {
            let Cargo::Records(bytes) = &flight.cargo else {
                unreachable!("core relays send records to transceivers")
            };
            let (_, _, body) = open_datagram(bytes).expect("core relays send datagrams");
            for record in Records::new(body) {
                let record = record.expect("core relays send records");
                assert_eq!(record.header.owner, self.owner, "a record of another owner");
                if let Some(stamp) = packet::stamp(record.payload) {
                    net.ledger.passed(stamp.serial, flight.took);
                }
                let pushed = self
                    .reassembler
                    .push(&record.header, record.payload, net.now());
                if let Reassembled::Complete(whole) = pushed {
                    let (kind, stamp) = net.packets.read(whole).expect("payloads arrive intact");
                    let header = RecordHeader {
                        fragment: None,
                        offered: false,
                        hops: 0,
                        ..record.header
                    };
                    let len = whole.len();
                    self.packet(flight.from_address, header, (kind, stamp), len, net);
                }
            }
        }
        self.flush(net);
    }

    fn packet(
        &mut self,
        relay: SocketAddr,
        header: RecordHeader,
        (kind, stamp): (Kind, Stamp),
        len: usize,
        net: &mut Net,
    ) {
        assert_eq!(
            clients::index(header.client),
            Some(stamp.client),
            "whose packet"
        );
        net.ledger
            .arrived(stamp.serial, stamp.client, Way::Up, net.at);
        self.paths.insert(stamp.client, (relay, header));
        if kind == Kind::Check {
            let serial = net.ledger.sent(stamp.client, Way::Down, net.at);
            let client = stamp.client;
            let answer = net.packets.answer(Stamp { client, serial }, len);
            self.put(client, &answer);
        }
    }

    /// Media for a client whose return path is known.
    pub fn talk(&mut self, client: u32, len: usize, net: &mut Net) {
        if self.paths.contains_key(&client) {
            let serial = net.ledger.sent(client, Way::Down, net.at);
            let media = net.packets.media(Stamp { client, serial }, len);
            self.put(client, &media);
        }
    }

    fn put(&mut self, client: u32, payload: &[u8]) {
        let Some((relay, header)) = self.paths.get(&client).copied() else {
            return;
        };
        let room = self.datagram_len_max - DATAGRAM_HEADER_LEN;
        self.fragment_id = self.fragment_id.wrapping_add(1);
        let parts = split(header, payload, room, self.fragment_id);
        for part in parts.expect("every client packet can be split") {
            let len_max = self.datagram_len_max;
            let pushed = self
                .regroup
                .push(relay, &part.header, part.payload, len_max);
            pushed.expect("there are few core relays, and the part fits");
        }
    }

    /// Ends a batch.
    pub fn flush(&mut self, net: &mut Net) {
        let from = (self.site, self.address);
        self.regroup.drain(|to, bytes, segment_bytes| {
            for datagram in bytes.chunks(segment_bytes) {
                net.send_to(from, to, Cargo::Records(datagram.to_vec()));
            }
        });
    }

    /// Core relays that clients' packets come by at present.
    #[must_use]
    pub fn relays_in_use(&self) -> Vec<SocketAddr> {
        let mut relays: Vec<_> = self.paths.values().map(|(relay, _)| *relay).collect();
        relays.sort_unstable();
        relays.dedup();
        relays
    }
}
