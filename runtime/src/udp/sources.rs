//! Sends from many addresses through one socket: what a load generator that plays a million clients needs.
//!
//! The socket is bound to an unspecified address; each datagram names the source it leaves from (`IP_PKTINFO`, ip(7)).
//! Nothing on the packet path of a program uses it: there, a socket is bound to the address it answers from.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;

use super::batch::{SendReport, send_all};
use super::socket::UdpSocket;
use crate::sys::address::Name;
use crate::sys::control_message::Control;
use crate::sys::message::{Headers, Outgoing};

/// Datagrams, each with a source of its own.
pub struct SourceBatch {
    headers: Headers,
    arena: Box<[u8]>,
    waiting: Vec<Waiting>,
    slot_bytes: usize,
}

struct Waiting {
    name: Name,
    control: Control,
    len: usize,
}

impl SourceBatch {
    /// `slot_bytes`: the longest datagram.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self {
            headers: Headers::new(slots),
            arena: vec![0; slots * slot_bytes].into(),
            waiting: Vec::with_capacity(slots),
            slot_bytes,
        }
    }

    /// Adds a datagram that leaves from `source`. `false`: it is full, or `payload` is longer than a slot; nothing was
    /// added.
    #[must_use]
    pub fn push(&mut self, source: Ipv4Addr, to: SocketAddr, payload: &[u8]) -> bool {
        let start = self.waiting.len() * self.slot_bytes;
        let len = payload.len();
        let slot = match self.arena.get_mut(start..start + len) {
            Some(slot) if len <= self.slot_bytes => slot,
            Some(_) | None => return false,
        };
        slot.copy_from_slice(payload);
        self.waiting.push(Waiting {
            name: Name::encode(to),
            control: Control::source(source),
            len,
        });
        true
    }

    /// Sends everything without blocking; the batch is empty afterwards. As [`super::SendBatch::flush`].
    pub fn flush(&mut self, socket: &UdpSocket) -> SendReport {
        let report = send_all(self.waiting.len(), |done| self.send_from(socket, done));
        self.waiting.clear();
        report
    }

    fn send_from(&mut self, socket: &UdpSocket, done: usize) -> io::Result<usize> {
        let slots = self.arena.chunks(self.slot_bytes.max(1));
        let outgoing = slots.zip(&self.waiting).skip(done);
        let outgoing = outgoing.filter_map(|(slot, waiting)| {
            Some(Outgoing {
                payload: slot.get(..waiting.len)?,
                name: &waiting.name,
                control: &waiting.control,
            })
        });
        self.headers.send(socket.as_fd(), outgoing)
    }
}

impl std::fmt::Debug for SourceBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceBatch")
            .field("waiting", &self.waiting.len())
            .finish_non_exhaustive()
    }
}
