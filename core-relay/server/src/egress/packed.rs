//! `packed`: the records of a batch, regrouped by transceiver, sent in as few calls as possible.

use std::net::SocketAddr;

use core_relay_proto::DropReason;
use core_relay_proto::verdict::Drops;
use runtime::udp::{Outbox, UdpSocket};
use wire::record::RecordHeader;
use wire::regroup::{Regroup, RegroupError};

use super::count_lost;

/// Transceivers kept apart in one batch; with more, a batch leaves in parts.
const DESTINATIONS_MAX: usize = 64;

pub(crate) struct Packed {
    regroup: Regroup<SocketAddr>,
    outbox: Outbox,
    datagram_len_max: usize,
}

impl Packed {
    /// `datagram_len_max`: what the path to a transceiver carries.
    pub(super) fn new(datagram_len_max: usize) -> Self {
        Self {
            regroup: Regroup::new(DESTINATIONS_MAX),
            outbox: Outbox::new(datagram_len_max),
            datagram_len_max,
        }
    }

    pub(super) fn push(
        &mut self,
        to: SocketAddr,
        header: &RecordHeader,
        payload: &[u8],
        socket: &UdpSocket,
        drops: &mut Drops,
    ) {
        let len_max = self.datagram_len_max;
        let mut pushed = self.regroup.push(to, header, payload, len_max);
        if pushed == Err(RegroupError::TooManyDestinations) {
            self.flush(socket, drops);
            pushed = self.regroup.push(to, header, payload, len_max);
        }
        // A batch that was just emptied has room for another destination, so this is about the size.
        if pushed.is_err() {
            drops.count(DropReason::Oversize);
        }
    }

    pub(super) fn flush(&mut self, socket: &UdpSocket, drops: &mut Drops) {
        let outbox = &mut self.outbox;
        self.regroup
            .drain(|to, bytes, segment_bytes| outbox.send(socket, to, bytes, segment_bytes));
        count_lost(outbox.flush(socket), drops);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{header, socket};
    use super::*;
    use runtime::udp::RecvBatch;
    use wire::record::open_datagram;

    #[test]
    fn what_the_kernel_refuses_or_no_datagram_holds_is_counted() {
        let (mut egress, mut drops, from) = (Packed::new(200), Drops::default(), socket());
        // No IPv6 leaves an IPv4 socket: one datagram to one address, a train of two to another.
        let nowhere = |port| SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port));
        egress.push(nowhere(1), &header(), &[1; 100], &from, &mut drops);
        egress.push(nowhere(2), &header(), &[1; 100], &from, &mut drops);
        egress.push(nowhere(2), &header(), &[1; 100], &from, &mut drops);
        egress.push(nowhere(2), &header(), &[1; 177], &from, &mut drops);
        egress.flush(&from, &mut drops);
        assert_eq!(drops.get(DropReason::SendFailed), 3);
        assert_eq!(drops.get(DropReason::Oversize), 1);
    }

    #[test]
    fn more_transceivers_than_a_batch_keeps_apart_are_all_served() {
        let (mut egress, mut drops, from) = (Packed::new(1452), Drops::default(), socket());
        let many = DESTINATIONS_MAX + 10;
        let sockets: Vec<_> = (0..many).map(|_| socket()).collect();
        for to in &sockets {
            egress.push(to.local_addr(), &header(), b"record", &from, &mut drops);
        }
        egress.flush(&from, &mut drops);
        let mut batch = RecvBatch::new(4, 2048);
        for to in &sockets {
            assert_eq!(batch.recv(to).unwrap(), 1);
            let (_, datagram) = batch.iter().next().unwrap();
            assert!(open_datagram(datagram).is_ok());
        }
        assert_eq!(drops, Drops::default());
    }
}
