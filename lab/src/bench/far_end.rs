//! The far end of the packet path, in the place of a transceiver: takes records in batches, answers connectivity checks
//! so that flows commit, and sends records back. A sink, an echo or a source, as its caller likes. It holds no session and
//! checks no integrity: for that there is the transceiver.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use anyhow::Context;
use bytes::BufMut;
use runtime::clock;
use runtime::udp::{BindOptions, GRO_SLOT_BYTES, RecvBatch, SendBatch, UdpSocket, send_segments};
use topology::{Datagrams, Topology};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{
    DATAGRAM_HEADER_LEN, DatagramKind, Record, RecordHeader, Records, datagram_header,
    open_datagram, put_record, split,
};
use wire::regroup::Regroup;
use wire::stun::{self, Class, HEADER_LEN, MAGIC_COOKIE, METHOD_BINDING, PacketKind};

/// What the kernel may keep while this process is elsewhere.
const RECV_BUFFER_BYTES: usize = 16 << 20;
/// Datagrams, or trains of them, taken with one call.
const RECEIVE_SLOTS: usize = 32;
/// Single datagrams sent with one call.
const SEND_SLOTS: usize = 64;
/// Core relays whose records are kept apart in one batch.
const RELAYS_MAX: usize = 8;
/// Split packets that may be unfinished, and for how long.
const UNFINISHED_MAX: u16 = 256;
const UNFINISHED_TTL: Duration = Duration::from_secs(1);

/// A socket at a transceiver's address.
pub struct FarEnd {
    batch: RecvBatch,
    reassembler: Reassembler,
    egress: Egress,
}

impl FarEnd {
    /// In the place of the transceiver `name`, which must not run. Records share datagrams on the way back if they do on the
    /// way here.
    ///
    /// # Errors
    /// There is no such transceiver, or its port is taken.
    pub fn bind(topology: &Topology, name: &str) -> anyhow::Result<Self> {
        let (region, node) = topology
            .transceiver_named(name)
            .with_context(|| format!("no transceiver `{name}`"))?;
        let address = SocketAddr::new(node.address, region.transceivers.port);
        let datagram_len_max = topology.network.link.datagram_len_max();
        Self::bind_at(address, region.transceivers.datagrams, datagram_len_max)
    }

    /// At any address, for who speaks records without being one of our programs.
    ///
    /// # Errors
    /// The address is taken.
    pub fn bind_at(
        address: SocketAddr,
        datagrams: Datagrams,
        datagram_len_max: usize,
    ) -> anyhow::Result<Self> {
        let options = BindOptions {
            gro: true,
            recv_buffer_bytes: RECV_BUFFER_BYTES,
            ..BindOptions::default()
        };
        Ok(Self {
            batch: RecvBatch::new(RECEIVE_SLOTS, GRO_SLOT_BYTES),
            reassembler: Reassembler::new(UNFINISHED_MAX, UNFINISHED_TTL, 1),
            egress: Egress {
                socket: UdpSocket::bind(address, &options)?,
                datagrams,
                datagram_len_max,
                packed: Regroup::new(RELAYS_MAX),
                singles: SendBatch::new(SEND_SLOTS, datagram_len_max),
                splits: 0,
                lost: 0,
            },
        })
    }

    /// Where it is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.egress.socket.local_addr()
    }

    /// Takes what is there, one batch, without waiting. Checks are answered; every other packet, whole, is handed to
    /// `take` with the address of the core relay it came by, and what `take` sends leaves when the batch is through.
    /// Returns whether more may be waiting.
    ///
    /// # Errors
    /// The socket's, or a core relay sent something else than records.
    pub fn receive(
        &mut self,
        mut take: impl FnMut(&mut Egress, SocketAddr, &RecordHeader, &[u8]),
    ) -> anyhow::Result<bool> {
        let received = self.batch.recv(&self.egress.socket);
        let filled = received.context("receiving records")?;
        let now = clock::now();
        for (relay, datagram) in self.batch.iter() {
            let (kind, _, body) = open_datagram(datagram)?;
            anyhow::ensure!(kind == DatagramKind::Records, "{kind:?} from a core relay");
            for record in Records::new(body) {
                let record = record?;
                let header = RecordHeader {
                    hops: 0,
                    fragment: None,
                    offered: false,
                    ..record.header
                };
                let whole = self.reassembler.push(&record.header, record.payload, now);
                let Reassembled::Complete(packet) = whole else {
                    continue;
                };
                match answer(packet) {
                    Some(answer) => self.egress.send(relay, &header, &answer),
                    None => take(&mut self.egress, relay, &header, packet),
                }
            }
        }
        self.egress.flush();
        Ok(filled == RECEIVE_SLOTS)
    }

    /// Sends every packet that is there back to its client; returns how many.
    ///
    /// # Errors
    /// See [`Self::receive`].
    pub fn echo(&mut self) -> anyhow::Result<u64> {
        let mut packets = 0;
        self.receive(|egress, relay, header, packet| {
            packets += 1;
            egress.send(relay, header, packet);
        })?;
        Ok(packets)
    }

    /// For packets that no other packet calls forth.
    pub const fn egress(&mut self) -> &mut Egress {
        &mut self.egress
    }

    /// Datagrams the kernel dropped because nobody took them in time.
    #[must_use]
    pub fn overflows(&self) -> u64 {
        self.egress.socket.recv_drops()
    }
}

impl AsFd for FarEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.egress.socket.as_fd()
    }
}

/// Records on their way to core relays.
pub struct Egress {
    socket: UdpSocket,
    datagrams: Datagrams,
    datagram_len_max: usize,
    packed: Regroup<SocketAddr>,
    singles: SendBatch,
    splits: u16,
    lost: u64,
}

impl Egress {
    /// Queues a packet to the client that `header` names; it leaves with [`Self::flush`] at the latest.
    pub fn send(&mut self, relay: SocketAddr, header: &RecordHeader, packet: &[u8]) {
        let room = self.datagram_len_max - DATAGRAM_HEADER_LEN;
        self.splits = self.splits.wrapping_add(1);
        let Some(parts) = split(*header, packet, room, self.splits) else {
            self.lost += 1;
            return;
        };
        for part in parts {
            match self.datagrams {
                Datagrams::Packed => self.pack(relay, &part),
                Datagrams::Single => self.single(relay, &part),
            }
        }
    }

    /// Queues an end record: the session of the client that `header` names is over.
    pub fn end(&mut self, relay: SocketAddr, header: &RecordHeader) {
        let record = Record {
            header: *header,
            payload: b"",
        };
        self.pack(relay, &record);
    }

    /// Sends what is queued. What the kernel does not take is lost.
    pub fn flush(&mut self) {
        let (socket, lost) = (&self.socket, &mut self.lost);
        self.packed.drain(|to, bytes, segment_bytes| {
            *lost += u64::from(send_segments(socket, to, bytes, segment_bytes).is_err());
        });
        self.flush_singles();
    }

    /// Datagrams that did not leave.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn pack(&mut self, relay: SocketAddr, part: &Record<'_>) {
        let len_max = self.datagram_len_max;
        let pushed = self.packed.push(relay, &part.header, part.payload, len_max);
        self.lost += u64::from(pushed.is_err());
    }

    fn single(&mut self, relay: SocketAddr, part: &Record<'_>) {
        if self.singles.is_full() {
            self.flush_singles();
        }
        let len = DATAGRAM_HEADER_LEN + part.header.encoded_len() + part.payload.len();
        let pushed = self.singles.push_with(relay, len, |mut slot| {
            slot.put_slice(&datagram_header(DatagramKind::Records, 0));
            put_record(&mut slot, &part.header, part.payload);
        });
        self.lost += u64::from(!pushed);
    }

    fn flush_singles(&mut self) {
        if !self.singles.is_empty() {
            let report = self.singles.flush(&self.socket);
            let lost = report.failed + report.would_block;
            self.lost += u64::try_from(lost).unwrap_or_default();
        }
    }
}

/// The Binding success to a Binding request (RFC 8489 §5); `None` to everything else. It has no attribute: a PoP looks at
/// none, and nobody behind it checks.
fn answer(packet: &[u8]) -> Option<[u8; HEADER_LEN]> {
    if PacketKind::of(packet) != PacketKind::Stun {
        return None;
    }
    let request = stun::parse(packet).ok()?;
    if request.class != Class::Request || request.method != METHOD_BINDING {
        return None;
    }
    let mut answer = [0; HEADER_LEN];
    let mut rest = answer.as_mut_slice();
    rest.put_slice(&[1, 1, 0, 0]);
    rest.put_slice(&MAGIC_COOKIE);
    rest.put_slice(&request.transaction_id);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw::{Request, is_success};

    #[test]
    fn checks_are_answered_and_nothing_else() {
        let id = *b"transaction.";
        let check = Request::check(id, b"ufrag").sign(b"password");
        let success = answer(check.bytes()).unwrap();
        assert!(is_success(&success, id));
        for other in [&success[..], b"", b"\x80media", b"\x00\x01 not STUN"] {
            assert_eq!(answer(other), None);
        }
    }
}
