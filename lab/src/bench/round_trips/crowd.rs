//! Many clients through one socket. Client `i` speaks from the `i`-th address after 127.20.0.0, all from one port, so that
//! a load of ten thousand clients costs this process no more than one of two hundred: what grows with their number is the
//! relay's own.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use runtime::udp::{BindOptions, RecvBatch, SourceBatch, UdpSocket};

/// Address 0; the networks that `lab::net` starts lie above all of them.
const FIRST: u32 = u32::from_be_bytes([127, 20, 0, 0]);
/// Clients there may be: up to 127.63.255.255.
const CLIENTS_MAX: u32 = 44 << 16;
/// Packets a call.
const SLOTS: usize = 64;
/// Longest packet a client sends or takes.
const PACKET_LEN_MAX: usize = 512;
/// What the kernel keeps while this thread sends or plays the far end.
const SOCKET_BUFFER_BYTES: usize = 32 << 20;

/// Clients of one address.
#[derive(Debug)]
pub(crate) struct Crowd {
    socket: UdpSocket,
    out: SourceBatch,
    batch: RecvBatch,
    to: SocketAddr,
    count: u32,
}

impl Crowd {
    /// `count` clients of `to`.
    pub(crate) fn open(count: u32, to: SocketAddr) -> anyhow::Result<Self> {
        anyhow::ensure!(count < CLIENTS_MAX, "{count} clients are too many");
        let options = BindOptions {
            recv_buffer_bytes: SOCKET_BUFFER_BYTES,
            send_buffer_bytes: SOCKET_BUFFER_BYTES,
            ..BindOptions::default()
        };
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Ok(Self {
            socket: UdpSocket::bind(any, &options).context("the socket of all clients")?,
            out: SourceBatch::new(SLOTS, PACKET_LEN_MAX),
            batch: RecvBatch::new(SLOTS, PACKET_LEN_MAX),
            to,
            count,
        })
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Queues a packet; it leaves with [`Self::flush`] at the latest.
    pub(crate) fn send(&mut self, client: u32, packet: &[u8]) {
        let source = Ipv4Addr::from_bits(FIRST + 1 + client);
        if !self.out.push(source, self.to, packet) {
            self.flush();
            // Only a packet longer than a slot is refused by an empty batch, and nobody here makes one.
            let _ = self.out.push(source, self.to, packet);
        }
    }

    /// Sends what is queued. What the kernel does not take never comes back, and is seen by that.
    pub(crate) fn flush(&mut self) {
        self.out.flush(&self.socket);
    }

    /// Takes what is there for all of them, one batch, without waiting. Returns whether more may be waiting.
    pub(crate) fn receive(&mut self, mut take: impl FnMut(&[u8])) -> anyhow::Result<bool> {
        let received = self.batch.recv(&self.socket);
        let filled = received.context("receiving as clients")?;
        for (_, packet) in self.batch.iter() {
            take(packet);
        }
        Ok(filled == SLOTS)
    }
}
