//! The way to the core relays: the packets of a batch as records, regrouped by relay, sent in as few calls as possible.

use std::net::SocketAddr;

use runtime::udp::{Outbox, UdpSocket};
use transceiver_proto::{DropReason, Drops, ReturnPath};
use wire::record::{self, DATAGRAM_HEADER_LEN, RecordHeader};
use wire::regroup::{Regroup, RegroupError};
use wire::{ClientAddr, Owner};

/// Core-relay workers kept apart in one batch.
const DESTINATIONS_MAX: usize = 256;

pub(crate) struct Egress {
    owner: Owner,
    regroup: Regroup<SocketAddr>,
    outbox: Outbox,
    datagram_len_max: usize,
    fragment_id: u16,
    /// End records.
    pub(crate) ends: u64,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Egress {
    /// `datagram_len_max`: the largest datagram of a link, so that a core relay can pass records on as they are.
    pub(crate) fn new(owner: Owner, datagram_len_max: usize) -> Self {
        Self {
            owner,
            regroup: Regroup::new(DESTINATIONS_MAX),
            outbox: Outbox::new(datagram_len_max),
            datagram_len_max,
            fragment_id: 0,
            ends: 0,
            packets: 0,
            bytes: 0,
        }
    }

    /// Queues the record that ends what the PoP knows of `client`, back the way `via`. After packets of the same batch.
    pub(crate) fn push_end(&mut self, via: ReturnPath, client: ClientAddr, drops: &mut Drops) {
        if self.push_bare(via, &self.header(via, client), drops) {
            self.ends += 1;
        }
    }

    /// Queues the record that tells the PoP whose `client` is, back the way `via`.
    pub(crate) fn push_taken(&mut self, via: ReturnPath, client: ClientAddr, drops: &mut Drops) {
        let header = RecordHeader {
            offered: true,
            ..self.header(via, client)
        };
        self.push_bare(via, &header, drops);
    }

    /// Queues a record without payload. Whether there was a place.
    fn push_bare(&mut self, via: ReturnPath, header: &RecordHeader, drops: &mut Drops) -> bool {
        let pushed = self
            .regroup
            .push(via.relay, header, &[], self.datagram_len_max);
        if let Err(error) = pushed {
            drops.count(refusal(error));
        }
        pushed.is_ok()
    }

    const fn header(&self, via: ReturnPath, client: ClientAddr) -> RecordHeader {
        RecordHeader {
            owner: self.owner,
            tag: via.tag,
            client,
            hops: 0,
            fragment: None,
            offered: false,
        }
    }

    /// Queues one packet for `client`, back the way `via`.
    pub(crate) fn push(
        &mut self,
        via: ReturnPath,
        client: ClientAddr,
        packet: &[u8],
        drops: &mut Drops,
    ) {
        let header = self.header(via, client);
        let room = self.datagram_len_max - DATAGRAM_HEADER_LEN;
        let Some(parts) = record::split(header, packet, room, self.fragment_id) else {
            drops.count(DropReason::Oversize);
            return;
        };
        self.fragment_id = self.fragment_id.wrapping_add(1);
        for part in parts {
            let pushed =
                self.regroup
                    .push(via.relay, &part.header, part.payload, self.datagram_len_max);
            if let Err(error) = pushed {
                drops.count(refusal(error));
                return;
            }
        }
        self.packets += 1;
        self.bytes += u64::try_from(packet.len()).unwrap_or_default();
    }

    /// Hands out what waits: destination, datagrams back to back, bytes of each.
    #[cfg(test)]
    pub(crate) fn drain(&mut self, send: impl FnMut(SocketAddr, &[u8], usize)) {
        self.regroup.drain(send);
    }

    /// Ends a batch: several datagrams to one relay leave as a train (UDP_SEGMENT), single ones together.
    pub(crate) fn flush(&mut self, socket: &UdpSocket, drops: &mut Drops) {
        let outbox = &mut self.outbox;
        self.regroup
            .drain(|to, bytes, segment_bytes| outbox.send(socket, to, bytes, segment_bytes));
        let report = outbox.flush(socket);
        let lost = u64::try_from(report.would_block + report.failed).unwrap_or(u64::MAX);
        drops.add(DropReason::SendFailed, lost);
    }
}

const fn refusal(error: RegroupError) -> DropReason {
    match error {
        RegroupError::Oversize => DropReason::Oversize,
        RegroupError::TooManyDestinations => DropReason::RelaysFull,
    }
}
