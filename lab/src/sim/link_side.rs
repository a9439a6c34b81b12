//! The links of one simulated worker, with what the ledger needs to know of them: what was put in, what left, what was
//! refused, and that what comes out of a packet is what the net counted in it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use core_relay_link::{LinkDrop, LinkEvent, LinkId, Links};
use wire::record::{RecordHeader, Records};

use super::ledger::{Tally, Way};
use super::net::{Cargo, Flight, Net, Site};
use super::packet;

/// See the module head.
pub(super) struct LinkSide {
    /// The real thing.
    pub(super) links: Links,
    site: Site,
    way: Way,
    /// Where packets to it go.
    pub(super) address: SocketAddr,
    buffer: Vec<u8>,
    put: u64,
    refused: u64,
    transmitted: u64,
}

/// Reasons that count records we were to send.
const SENDING: [LinkDrop; 3] = [LinkDrop::NotUp, LinkDrop::QueueFull, LinkDrop::TooLarge];

impl LinkSide {
    /// Links of `site`, which put records on their `way`.
    #[must_use]
    pub(super) const fn new(links: Links, site: Site, way: Way, address: SocketAddr) -> Self {
        Self {
            links,
            site,
            way,
            address,
            buffer: Vec::new(),
            put: 0,
            refused: 0,
            transmitted: 0,
        }
    }

    /// One record for a link.
    pub(super) fn put(&mut self, link: LinkId, header: &RecordHeader, payload: &[u8]) {
        match self.links.put_record(link, header, payload) {
            Ok(()) => self.put += 1,
            Err(_) => self.refused += 1,
        }
    }

    /// Ends a batch: everything that may leave leaves.
    pub(super) fn flush(&mut self, net: &mut Net) {
        self.links.flush();
        self.transmit(net);
    }

    /// Everything that may leave leaves.
    pub(super) fn transmit(&mut self, net: &mut Net) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(transmit) = self.links.poll_transmit(net.now(), &mut buffer) {
            let segment = transmit.segment.unwrap_or(transmit.len).max(1);
            for packet in buffer.chunks(segment) {
                // A stateless reset has any length, and is sent where nothing waits.
                let records = net.records_in_quic(packet).min(self.waiting());
                self.transmitted += records;
                let cargo = Cargo::Quic(packet.to_vec(), records);
                net.send_to((self.site, self.address), transmit.to, cargo);
            }
        }
        self.buffer = buffer;
    }

    /// A packet arrived. Returns the datagrams that were in it.
    ///
    /// # Panics
    /// There were more or fewer records in it than the net counted.
    pub(super) fn take(
        &mut self,
        flight: &Flight,
        bytes: &[u8],
        net: &mut Net,
    ) -> Vec<(LinkId, Bytes)> {
        self.links
            .handle_packet(flight.from_address, bytes, net.now());
        let bodies: Vec<_> = std::iter::from_fn(|| self.links.next_datagram()).collect();
        let mut heard = 0;
        for record in bodies.iter().flat_map(|(_, body)| Records::new(body)) {
            heard += 1;
            let stamp = record.ok().and_then(|record| packet::stamp(record.payload));
            if let Some(stamp) = stamp {
                net.ledger.passed(stamp.serial, flight.took);
            }
        }
        if net.counts_records() && heard != flight.records {
            assert_eq!(
                heard,
                0,
                "of {} records in a packet of {} bytes that begins with {:02x?}",
                flight.records,
                bytes.len(),
                bytes.first()
            );
            net.unheard(flight);
        }
        bodies
    }

    /// What happened to the links.
    pub(super) fn events(&mut self) -> Vec<LinkEvent> {
        std::iter::from_fn(|| self.links.next_event()).collect()
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub(super) fn deadline(&self, net: &Net) -> Option<Duration> {
        let timeout = self.links.poll_timeout()?;
        Some(net.since_epoch(timeout))
    }

    /// Lets timers run that are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.links.poll_timeout().is_some_and(|due| due <= now) {
            self.links.handle_timeout(now);
        }
    }

    /// Enters what the links dropped, and what waits in them, into the books.
    ///
    /// # Panics
    /// More came out than went in.
    pub(super) fn account(&self, way: Way, tally: &mut Tally) {
        if way != self.way {
            return;
        }
        let drops = self.links.drops();
        for reason in SENDING {
            let count = drops.count(reason);
            if count > 0 {
                *tally.drops.entry(reason.as_str()).or_default() += count;
            }
        }
        tally.waiting += self.waiting();
    }

    /// Records that were put in and have neither left nor been dropped.
    fn waiting(&self) -> u64 {
        let drops = self.links.drops();
        let dropped: u64 = SENDING.iter().map(|reason| drops.count(*reason)).sum();
        let gone = self.transmitted + dropped - self.refused;
        let waiting = self.put.checked_sub(gone);
        waiting.expect("no more leaves than was put in")
    }
}
