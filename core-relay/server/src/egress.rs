//! The way to the transceivers: the records of a batch, regrouped by transceiver, sent in as few calls as possible.

use std::net::SocketAddr;

use core_relay_proto::DropReason;
use core_relay_proto::verdict::Drops;
use runtime::udp::{SendBatch, UdpSocket, send_segments};
use wire::record::RecordHeader;
use wire::regroup::{Regroup, RegroupError};

/// Transceivers kept apart in one batch; with more, a batch leaves in parts.
const DESTINATIONS_MAX: usize = 64;
/// Single datagrams sent in one call.
const SEND_SLOTS: usize = 64;

pub(crate) struct Egress {
    regroup: Regroup<SocketAddr>,
    singles: SendBatch,
    datagram_len_max: usize,
}

impl Egress {
    /// `datagram_len_max`: what the path to a transceiver carries.
    pub(crate) fn new(datagram_len_max: usize) -> Self {
        Self {
            regroup: Regroup::new(DESTINATIONS_MAX),
            singles: SendBatch::new(SEND_SLOTS, datagram_len_max),
            datagram_len_max,
        }
    }

    pub(crate) fn push(
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
        match pushed {
            Ok(()) => {}
            Err(RegroupError::Oversize) => drops.count(DropReason::Oversize),
            Err(RegroupError::TooManyDestinations) => drops.count(DropReason::TooManyDestinations),
        }
    }

    /// Ends a batch: several datagrams to one transceiver leave as a train (UDP_SEGMENT), single ones together.
    pub(crate) fn flush(&mut self, socket: &UdpSocket, drops: &mut Drops) {
        let singles = &mut self.singles;
        self.regroup.drain(|to, bytes, segment_bytes| {
            if bytes.len() > segment_bytes {
                if send_segments(socket, to, bytes, segment_bytes).is_err() {
                    drops.add(
                        DropReason::SendFailed,
                        count(bytes.len().div_ceil(segment_bytes)),
                    );
                }
            } else if !singles.push(to, bytes) {
                send_singles(singles, socket, drops);
                // An empty batch takes any datagram that regrouping made: both have the same limit.
                if !singles.push(to, bytes) {
                    drops.count(DropReason::Oversize);
                }
            }
        });
        send_singles(singles, socket, drops);
    }
}

fn send_singles(singles: &mut SendBatch, socket: &UdpSocket, drops: &mut Drops) {
    if !singles.is_empty() {
        let report = singles.flush(socket);
        drops.add(
            DropReason::SendFailed,
            count(report.would_block + report.failed),
        );
    }
}

fn count(datagrams: usize) -> u64 {
    u64::try_from(datagrams).unwrap_or(u64::MAX)
}
