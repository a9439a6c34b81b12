//! Many clients in one process, a socket each, driven by one thread.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use runtime::udp::{BindOptions, RecvBatch, UdpSocket, send_segments};
use wire::ClientAddr;

use crate::raw::{Request, is_success};

/// Packets of one client taken with one call.
const RECEIVE_SLOTS: usize = 16;
/// Longest packet there can be.
const PACKET_LEN_MAX: usize = 2048;
/// Enough for a window of packets to one client.
const SOCKET_BUFFER_BYTES: usize = 256 << 10;

/// Clients on loopback that all speak to one address.
pub struct Clients {
    sockets: Vec<UdpSocket>,
    to: SocketAddr,
    batch: RecvBatch,
}

impl Clients {
    /// `count` clients of `to`; the kernel chooses their ports.
    ///
    /// # Errors
    /// No port or descriptor is left.
    pub fn open(count: usize, to: SocketAddr) -> anyhow::Result<Self> {
        let options = BindOptions {
            recv_buffer_bytes: SOCKET_BUFFER_BYTES,
            send_buffer_bytes: SOCKET_BUFFER_BYTES,
            ..BindOptions::default()
        };
        let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options);
        let sockets: Result<_, _> = (0..count).map(|_| open()).collect();
        Ok(Self {
            sockets: sockets.with_context(|| format!("opening {count} client sockets"))?,
            to,
            batch: RecvBatch::new(RECEIVE_SLOTS, PACKET_LEN_MAX),
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// From here on they speak to another address.
    pub const fn turn_to(&mut self, to: SocketAddr) {
        self.to = to;
    }

    /// The address of a client.
    #[must_use]
    pub fn address(&self, client: usize) -> Option<ClientAddr> {
        let socket = self.sockets.get(client)?;
        Some(ClientAddr::new(socket.local_addr()))
    }

    /// Sends packets of `len` bytes each, back to back in `packets`, in one call. Whether the kernel took them.
    pub fn send(&self, client: usize, packets: &[u8], len: usize) -> bool {
        self.sockets
            .get(client)
            .is_some_and(|socket| send_segments(socket, self.to, packets, len).is_ok())
    }

    /// Takes what is there for a client, one batch, without waiting. Returns whether more may be waiting.
    ///
    /// # Errors
    /// The socket's.
    pub fn receive(&mut self, client: usize, mut take: impl FnMut(&[u8])) -> anyhow::Result<bool> {
        let Some(socket) = self.sockets.get(client) else {
            return Ok(false);
        };
        let filled = self.batch.recv(socket).context("receiving as a client")?;
        for (_, packet) in self.batch.iter() {
            take(packet);
        }
        Ok(filled == RECEIVE_SLOTS)
    }

    /// Throws away what is there for all of them.
    ///
    /// # Errors
    /// A socket's.
    pub fn discard(&mut self) -> anyhow::Result<()> {
        for client in 0..self.sockets.len() {
            while self.receive(client, |_| {})? {}
        }
        Ok(())
    }

    /// Sends a connectivity check with the ufrag of a session.
    pub fn check(&self, client: usize, ufrag: &str) -> bool {
        let check = Request::check(transaction(client), ufrag.as_bytes());
        // Nobody on the way knows the password.
        let check = check.sign(b"password");
        self.send(client, check.bytes(), check.bytes().len())
    }

    /// Whether the answer to [`Self::check`] is among what is there; all of that is taken.
    ///
    /// # Errors
    /// The socket's.
    pub fn is_answered(&mut self, client: usize) -> anyhow::Result<bool> {
        let mut answered = false;
        let mut more = true;
        while more {
            more = self.receive(client, |packet| {
                answered |= is_success(packet, transaction(client));
            })?;
        }
        Ok(answered)
    }
}

/// Each client uses one transaction id only: an answer is an answer.
fn transaction(client: usize) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h] = client.to_be_bytes();
    [b'b', b'n', b'c', b'h', a, b, c, d, e, f, g, h]
}
