//! A plain tunnel of the shape of our own: records of many clients share datagrams, datagrams share a send (UDP_SEGMENT) on
//! both hops, and the last hop keeps the records. No encryption, no admission, no acknowledgement, no health check: the
//! limit of any encapsulation.
//!
//! The edge packs by destination, so the core need not look into a datagram: it sends on what it received.

use std::collections::HashMap;
use std::net::SocketAddr;

use runtime::udp::{GRO_SLOT_BYTES, RecvBatch, SendBatch, UdpSocket, send_segments};
use wire::record::{RecordHeader, Records, open_datagram};
use wire::regroup::Regroup;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

use super::forwarder::{announce, bind, forward};
use super::plain::{DATAGRAM_LEN_MAX as PACKET_LEN_MAX, SLOTS, key};

/// What a UDP datagram on a 1,500-byte path holds, with room for IPv6 headers: as long as the packets of our links.
pub(super) const DATAGRAM_LEN_MAX: usize = 1452;
/// Trains taken with one call.
const GRO_SLOTS: usize = 16;

/// The hop that clients speak to.
///
/// # Errors
/// A socket's.
pub fn edge(next: SocketAddr) -> anyhow::Result<()> {
    let (outer, inner) = (bind(false)?, bind(true)?);
    announce(&outer)?;
    let mut outer_batch = RecvBatch::new(SLOTS, PACKET_LEN_MAX);
    let mut inner_batch = RecvBatch::new(GRO_SLOTS, GRO_SLOT_BYTES);
    let mut up = Regroup::new(1);
    let mut down = SendBatch::new(SLOTS, PACKET_LEN_MAX);
    let mut owners = HashMap::<u64, Owner, foldhash::fast::RandomState>::default();
    forward(
        (&outer, &mut outer_batch),
        (&inner, &mut inner_batch),
        |batch| {
            for (client, packet) in batch.iter() {
                let owner = *owners.entry(key(client)).or_insert(OWNER);
                // A packet that is too long is lost, and the far end does not count it.
                let _ = up.push(next, &header(owner, client), packet, DATAGRAM_LEN_MAX);
            }
            up.drain(|to, bytes, segment_bytes| {
                let _ = send_segments(&inner, to, bytes, segment_bytes);
            });
        },
        |batch| {
            for (_, datagram) in batch.iter() {
                let body = open_datagram(datagram).map_or(&[][..], |(_, _, body)| body);
                for record in Records::new(body).flatten() {
                    if down.is_full() {
                        down.flush(&outer);
                    }
                    // As above.
                    let _ = down.push(record.header.client.socket_addr(), record.payload);
                }
            }
            down.flush(&outer);
        },
    )
}

/// The hop in front of the far end.
///
/// # Errors
/// A socket's.
pub fn core(next: SocketAddr) -> anyhow::Result<()> {
    let (outer, inner) = (bind(true)?, bind(true)?);
    announce(&outer)?;
    let mut outer_batch = RecvBatch::new(GRO_SLOTS, GRO_SLOT_BYTES);
    let mut inner_batch = RecvBatch::new(GRO_SLOTS, GRO_SLOT_BYTES);
    let edge = std::cell::Cell::new(next);
    let (mut up, mut down) = (Train::default(), Train::default());
    forward(
        (&outer, &mut outer_batch),
        (&inner, &mut inner_batch),
        |batch| {
            for (from, datagram) in batch.iter() {
                edge.set(from);
                up.push(&inner, next, datagram);
            }
            up.flush(&inner, next);
        },
        |batch| {
            for (_, datagram) in batch.iter() {
                down.push(&outer, edge.get(), datagram);
            }
            down.flush(&outer, edge.get());
        },
    )
}

/// Datagrams that leave with one call: equally long ones, and a shorter one at the end.
#[derive(Default)]
struct Train {
    bytes: Vec<u8>,
    segment_bytes: usize,
}

impl Train {
    fn push(&mut self, socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) {
        if datagram.len() > self.segment_bytes {
            self.flush(socket, to);
        }
        if self.bytes.is_empty() {
            self.segment_bytes = datagram.len();
        }
        self.bytes.extend_from_slice(datagram);
        if datagram.len() < self.segment_bytes {
            self.flush(socket, to);
        }
    }

    fn flush(&mut self, socket: &UdpSocket, to: SocketAddr) {
        if !self.bytes.is_empty() {
            // What the kernel refuses is lost, and the far end does not count it.
            let _ = send_segments(socket, to, &self.bytes, self.segment_bytes);
        }
        self.bytes.clear();
        self.segment_bytes = 0;
    }
}

/// One transceiver owns everything.
const OWNER: Owner = Owner {
    region: RegionId(1),
    transceiver: TransceiverId(1),
};

const fn header(owner: Owner, client: SocketAddr) -> RecordHeader {
    RecordHeader {
        owner,
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: 0,
        },
        client: ClientAddr::new(client),
        hops: 0,
        fragment: None,
        offered: false,
    }
}
