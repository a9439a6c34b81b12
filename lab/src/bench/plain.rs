//! Plain forwarders: what the kernel charges for receiving a packet and sending it on, and nearly nothing else. `recvmmsg`
//! and `sendmmsg` in batches of 64 on one thread, one flow look-up a hop and direction, no encryption, no admission, no
//! health check. With one send a packet, this is the limit.
//!
//! ```text
//! client ──packet──► edge ──[flow u32 | packet]──► core ──[flow u32 | packet]──► far end       and back the same way
//! ```
//!
//! A single hop is the edge alone, in front of the far end.

use std::collections::HashMap;
use std::net::SocketAddr;

use bytes::BufMut;
use runtime::udp::{RecvBatch, SendBatch, UdpSocket};

use super::forwarder::{announce, bind, forward};

/// Bytes in front of a packet between hops.
pub(super) const HEADER_LEN: usize = 4;
/// Packets of one batch.
pub(super) const SLOTS: usize = 64;
/// Longest datagram between hops.
pub(super) const DATAGRAM_LEN_MAX: usize = 2048;

/// Splits a datagram between hops into flow and packet.
pub(super) fn open(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let (head, packet) = datagram.split_first_chunk::<HEADER_LEN>()?;
    Some((u32::from_be_bytes(*head), packet))
}

/// Queues a datagram between hops; sends what is queued when there is no room.
pub(super) fn push(
    batch: &mut SendBatch,
    socket: &UdpSocket,
    to: SocketAddr,
    flow: u32,
    packet: &[u8],
) {
    if batch.is_full() {
        batch.flush(socket);
    }
    // A packet that is too long is lost, and the far end does not count it.
    let _ = batch.push_with(to, HEADER_LEN + packet.len(), |mut slot| {
        slot.put_u32(flow);
        slot.put_slice(packet);
    });
}

/// The hop that clients speak to: numbers them, and knows them by their numbers on the way back.
///
/// # Errors
/// A socket's.
pub fn edge(next: SocketAddr) -> anyhow::Result<()> {
    let (outer, inner) = (bind(false)?, bind(false)?);
    announce(&outer)?;
    let mut batches = [(); 2].map(|()| RecvBatch::new(SLOTS, DATAGRAM_LEN_MAX));
    let [outer_batch, inner_batch] = &mut batches;
    let mut up = SendBatch::new(SLOTS, DATAGRAM_LEN_MAX);
    let mut down = SendBatch::new(SLOTS, DATAGRAM_LEN_MAX);
    let flows = std::cell::RefCell::new(Flows::default());
    forward(
        (&outer, outer_batch),
        (&inner, inner_batch),
        |batch| {
            let mut flows = flows.borrow_mut();
            for (client, packet) in batch.iter() {
                push(&mut up, &inner, next, flows.number(client), packet);
            }
            up.flush(&inner);
        },
        |batch| {
            let flows = flows.borrow();
            for (flow, packet) in batch.iter().filter_map(|(_, datagram)| open(datagram)) {
                let Some(client) = flows.client(flow) else {
                    continue;
                };
                if down.is_full() {
                    down.flush(&outer);
                }
                // As in `push`.
                let _ = down.push(client, packet);
            }
            down.flush(&outer);
        },
    )
}

/// The hop in front of the far end: looks up where each flow goes, both ways.
///
/// # Errors
/// A socket's.
pub fn core(next: SocketAddr) -> anyhow::Result<()> {
    let (outer, inner) = (bind(false)?, bind(false)?);
    announce(&outer)?;
    let mut batches = [(); 2].map(|()| RecvBatch::new(SLOTS, DATAGRAM_LEN_MAX));
    let [outer_batch, inner_batch] = &mut batches;
    let mut up = SendBatch::new(SLOTS, DATAGRAM_LEN_MAX);
    let mut down = SendBatch::new(SLOTS, DATAGRAM_LEN_MAX);
    let edges =
        std::cell::RefCell::new(HashMap::<u32, SocketAddr, foldhash::fast::RandomState>::default());
    forward(
        (&outer, outer_batch),
        (&inner, inner_batch),
        |batch| {
            let mut edges = edges.borrow_mut();
            for (edge, datagram) in batch.iter() {
                if let Some((flow, packet)) = open(datagram) {
                    edges.entry(flow).or_insert(edge);
                    push(&mut up, &inner, next, flow, packet);
                }
            }
            up.flush(&inner);
        },
        |batch| {
            let edges = edges.borrow();
            for (flow, packet) in batch.iter().filter_map(|(_, datagram)| open(datagram)) {
                if let Some(edge) = edges.get(&flow) {
                    push(&mut down, &outer, *edge, flow, packet);
                }
            }
            down.flush(&outer);
        },
    )
}

/// Clients and their numbers.
#[derive(Default)]
struct Flows {
    numbers: HashMap<u64, u32, foldhash::fast::RandomState>,
    clients: Vec<SocketAddr>,
}

impl Flows {
    fn number(&mut self, client: SocketAddr) -> u32 {
        let next = self.clients.len();
        let clients = &mut self.clients;
        *self.numbers.entry(key(client)).or_insert_with(|| {
            clients.push(client);
            u32::try_from(next).unwrap_or(u32::MAX)
        })
    }

    fn client(&self, number: u32) -> Option<SocketAddr> {
        let index = usize::try_from(number).ok()?;
        self.clients.get(index).copied()
    }
}

/// IPv4 only, as the benchmark is.
pub(super) fn key(client: SocketAddr) -> u64 {
    match client {
        SocketAddr::V4(client) => u64::from(client.ip().to_bits()) << 16 | u64::from(client.port()),
        SocketAddr::V6(client) => u64::from(client.port()),
    }
}
