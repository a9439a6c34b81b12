//! `single`: one record a datagram. Datagrams of a batch leave with one call, each in a slot of its own.

use std::net::SocketAddr;

use core_relay_proto::DropReason;
use core_relay_proto::verdict::Drops;
use runtime::udp::{SendBatch, UdpSocket};
use wire::record::{self, DATAGRAM_HEADER_LEN, DatagramKind, RecordHeader};
use wire::sequence::Sequences;

use super::count_lost;

/// Datagrams sent in one call.
const SEND_SLOTS: usize = 64;

pub(crate) struct Single {
    sends: SendBatch,
    sequences: Sequences<SocketAddr>,
    datagram_len_max: usize,
}

impl Single {
    pub(super) fn new(datagram_len_max: usize) -> Self {
        Self {
            sends: SendBatch::new(SEND_SLOTS, datagram_len_max),
            sequences: Sequences::new(),
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
        if self.sends.is_full() {
            self.flush(socket, drops);
        }
        let len = DATAGRAM_HEADER_LEN + header.encoded_len() + payload.len();
        if len > self.datagram_len_max {
            // Without a number: the transceiver would take it for one that the region lost.
            drops.count(DropReason::Oversize);
            return;
        }
        let sequence = self.sequences.next(to);
        let pushed = self.sends.push_with(to, len, |slot| {
            let (head, mut body) = slot.split_at_mut(DATAGRAM_HEADER_LEN);
            head.copy_from_slice(&record::datagram_header(DatagramKind::Records, sequence));
            record::put_record(&mut body, header, payload);
        });
        // There is room for another datagram of this size.
        if !pushed {
            drops.count(DropReason::Oversize);
        }
    }

    pub(super) fn flush(&mut self, socket: &UdpSocket, drops: &mut Drops) {
        if !self.sends.is_empty() {
            count_lost(self.sends.flush(socket), drops);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{header, socket};
    use super::*;
    use runtime::udp::RecvBatch;
    use wire::record::{Record, Records, open_datagram};

    #[test]
    fn each_record_has_a_datagram_of_its_own() {
        let (mut single, mut drops, from) = (Single::new(1452), Drops::default(), socket());
        let to = socket();
        let many = u8::try_from(SEND_SLOTS).unwrap() + 10;
        for fill in 0..many {
            single.push(to.local_addr(), &header(), &[fill; 160], &from, &mut drops);
        }
        single.flush(&from, &mut drops);
        let mut batch = RecvBatch::new(128, 2048);
        assert_eq!(batch.recv(&to).unwrap(), usize::from(many));
        for (fill, (_, datagram)) in (0..).zip(batch.iter()) {
            let (kind, sequence, body) = open_datagram(datagram).unwrap();
            assert_eq!((kind, sequence), (DatagramKind::Records, u16::from(fill)));
            let records: Vec<_> = Records::new(body).map(Result::unwrap).collect();
            let (header, payload) = (header(), &[fill; 160][..]);
            assert_eq!(records, [Record { header, payload }]);
        }
        assert_eq!(drops, Drops::default());
    }

    #[test]
    fn what_the_kernel_refuses_or_no_datagram_holds_is_counted() {
        let (mut single, mut drops, from) = (Single::new(200), Drops::default(), socket());
        // No IPv6 leaves an IPv4 socket.
        let nowhere = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1));
        single.push(nowhere, &header(), &[1; 176], &from, &mut drops);
        single.push(nowhere, &header(), &[1; 177], &from, &mut drops);
        single.flush(&from, &mut drops);
        assert_eq!(drops.get(DropReason::SendFailed), 1);
        assert_eq!(drops.get(DropReason::Oversize), 1);
    }

    #[test]
    fn a_record_that_no_datagram_holds_takes_no_number() {
        let (mut single, mut drops, from) = (Single::new(200), Drops::default(), socket());
        let to = socket();
        for len in [100, 177, 100] {
            let payload = vec![1; len];
            single.push(to.local_addr(), &header(), &payload, &from, &mut drops);
        }
        single.flush(&from, &mut drops);
        let mut batch = RecvBatch::new(4, 2048);
        assert_eq!(batch.recv(&to).unwrap(), 2);
        let numbers = batch
            .iter()
            .map(|(_, datagram)| open_datagram(datagram).unwrap().1);
        assert_eq!(numbers.collect::<Vec<_>>(), [0, 1]);
        assert_eq!(drops.get(DropReason::Oversize), 1);
    }
}
