//! What a batch was regrouped into, on its way out: a train leaves at once (UDP_SEGMENT), single datagrams leave together.

use std::io;
use std::net::SocketAddr;

use super::batch::{SendBatch, SendReport};
use super::segments::send_segments;
use super::socket::UdpSocket;

/// Single datagrams sent in one call.
const SINGLES: usize = 64;

/// See the module head.
#[derive(Debug)]
pub struct Outbox {
    singles: SendBatch,
    report: SendReport,
}

impl Outbox {
    /// `datagram_bytes_max`: the longest datagram.
    #[must_use]
    pub fn new(datagram_bytes_max: usize) -> Self {
        Self {
            singles: SendBatch::new(SINGLES, datagram_bytes_max),
            report: SendReport::default(),
        }
    }

    /// Takes datagrams to one destination, back to back in `bytes`, each of `segment_bytes` but the last, which may be shorter.
    pub fn send(&mut self, socket: &UdpSocket, to: SocketAddr, bytes: &[u8], segment_bytes: usize) {
        if bytes.len() > segment_bytes {
            self.send_train(socket, to, bytes, segment_bytes);
            return;
        }
        if self.singles.is_full() {
            self.flush_singles(socket);
        }
        if !self.singles.push(to, bytes) {
            // There is room, so it is too long.
            self.report.failed += 1;
        }
    }

    /// Sends what waits, and says what became of everything since the last flush.
    pub fn flush(&mut self, socket: &UdpSocket) -> SendReport {
        self.flush_singles(socket);
        std::mem::take(&mut self.report)
    }

    fn send_train(
        &mut self,
        socket: &UdpSocket,
        to: SocketAddr,
        bytes: &[u8],
        segment_bytes: usize,
    ) {
        let datagrams = bytes.len().div_ceil(segment_bytes.max(1));
        let unsent = match send_segments(socket, to, bytes, segment_bytes) {
            Ok(()) => 0,
            Err(unsent) if unsent.error.kind() == io::ErrorKind::WouldBlock => {
                self.report.would_block += unsent.datagrams;
                unsent.datagrams
            }
            Err(unsent) => {
                self.report.failed += unsent.datagrams;
                unsent.datagrams
            }
        };
        self.report.sent += datagrams.saturating_sub(unsent);
        self.report.calls += 1;
    }

    fn flush_singles(&mut self, socket: &UdpSocket) {
        if self.singles.is_empty() {
            return;
        }
        let report = self.singles.flush(socket);
        self.report.sent += report.sent;
        self.report.failed += report.failed;
        self.report.would_block += report.would_block;
        self.report.calls += report.calls;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::{BindOptions, RecvBatch};

    fn socket() -> UdpSocket {
        UdpSocket::bind(([127, 0, 0, 1], 0).into(), &BindOptions::default()).unwrap()
    }

    #[test]
    fn everything_leaves_and_is_accounted_for() {
        let (from, to) = (socket(), socket());
        let mut outbox = Outbox::new(100);
        let nowhere = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1));
        for _ in 0..SINGLES + 5 {
            outbox.send(&from, to.local_addr(), &[1; 100], 100);
        }
        outbox.send(&from, to.local_addr(), &[2; 250], 100);
        outbox.send(&from, nowhere, &[3; 250], 100);
        outbox.send(&from, nowhere, &[3; 50], 50);
        outbox.send(&from, to.local_addr(), &[4; 101], 101);
        let report = outbox.flush(&from);
        // A train of three and a single one to nowhere, and one that is too long.
        assert_eq!((report.sent, report.failed), (SINGLES + 5 + 3, 5));
        let mut batch = RecvBatch::new(128, 200);
        assert_eq!(batch.recv(&to).unwrap(), SINGLES + 5 + 3);
        assert_eq!(outbox.flush(&from), SendReport::default());
    }
}
