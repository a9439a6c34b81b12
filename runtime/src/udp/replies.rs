//! Datagrams that are answered where they lie: received into slots, written over, sent back to where they came from.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use super::batch::{SendReport, is_nothing_there, send_all};
use super::socket::UdpSocket;
use crate::sys::address::Name;
use crate::sys::control_message::Control;
use crate::sys::message::{Headers, Outgoing};

/// A batch of requests that become their replies. Requests and replies share one buffer a slot, so that a reply costs no second
/// one; the socket is bound to one address, so that replies leave from where requests came to.
pub struct ReplyBatch {
    headers: Headers,
    arena: Box<[u8]>,
    names: Box<[Name]>,
    requests: Box<[Request]>,
    replies: Vec<Reply>,
    slot_bytes: usize,
    filled: usize,
    truncated: u64,
}

#[derive(Clone, Copy)]
struct Request {
    source: Option<SocketAddr>,
    len: usize,
}

#[derive(Clone, Copy)]
struct Reply {
    slot: usize,
    len: usize,
}

/// A request in its slot.
#[derive(Debug)]
pub struct InSlot<'a> {
    /// Where it came from, and its reply goes.
    pub source: SocketAddr,
    /// Its length.
    pub len: usize,
    /// The whole slot; the request is at its beginning.
    pub buffer: &'a mut [u8],
}

impl ReplyBatch {
    /// `slot_bytes`: the longest request and the longest reply. Longer requests are dropped and counted.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        let nothing = Request {
            source: None,
            len: 0,
        };
        Self {
            headers: Headers::new(slots),
            arena: vec![0; slots * slot_bytes].into(),
            names: vec![Name::EMPTY; slots].into(),
            requests: vec![nothing; slots].into(),
            replies: Vec::with_capacity(slots),
            slot_bytes: slot_bytes.max(1),
            filled: 0,
            truncated: 0,
        }
    }

    /// Forgets what it holds and receives what is there, without blocking. Returns the slots filled: 0 when nothing is waiting, fewer
    /// than [`Self::slots`] when everything that was waiting is in.
    ///
    /// # Errors
    /// The socket's; one about an earlier send (ICMP) is not reported here.
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.replies.clear();
        self.filled = 0;
        let slots = self.arena.chunks_mut(self.slot_bytes);
        match self
            .headers
            .receive_slots(socket.as_fd(), slots, &mut self.names)
        {
            Ok(filled) => {
                self.filled = filled;
                self.note_requests();
                Ok(filled)
            }
            Err(error) if is_nothing_there(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn note_requests(&mut self) {
        let slots = self.requests.iter_mut().zip(&self.names).enumerate();
        for (index, (request, name)) in slots.take(self.filled) {
            let truncated = self.headers.is_truncated(index);
            self.truncated += u64::from(truncated);
            *request = Request {
                source: if truncated { None } else { name.decode() },
                len: self.headers.received_len(index).min(self.slot_bytes),
            };
        }
    }

    /// Slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.names.len()
    }

    /// Datagrams dropped because they were longer than a slot, since the batch was made.
    #[must_use]
    pub const fn truncated(&self) -> u64 {
        self.truncated
    }

    /// The request in a slot of the last [`Self::recv`]; `None` when it was longer than the slot.
    #[inline]
    pub fn request(&mut self, slot: usize) -> Option<InSlot<'_>> {
        let request = self.requests.get(slot).filter(|_| slot < self.filled)?;
        let start = slot * self.slot_bytes;
        Some(InSlot {
            source: request.source?,
            len: request.len,
            buffer: self.arena.get_mut(start..start + self.slot_bytes)?,
        })
    }

    /// The first `len` bytes of a slot are the reply to its request. At most one a slot.
    pub fn reply(&mut self, slot: usize, len: usize) {
        if self.replies.len() < self.slots() && slot < self.filled {
            let len = len.min(self.slot_bytes);
            self.replies.push(Reply { slot, len });
        }
    }

    /// Sends all replies without blocking. As [`super::SendBatch::flush`].
    pub fn flush(&mut self, socket: &UdpSocket) -> SendReport {
        let report = send_all(self.replies.len(), |done| {
            self.send_from(socket.as_fd(), done)
        });
        self.replies.clear();
        report
    }

    fn send_from(&mut self, socket: BorrowedFd<'_>, done: usize) -> io::Result<usize> {
        let outgoing = self.replies.iter().skip(done).filter_map(|reply| {
            let start = reply.slot * self.slot_bytes;
            Some(Outgoing {
                payload: self.arena.get(start..start + reply.len)?,
                name: self.names.get(reply.slot)?,
                control: &Control::EMPTY,
            })
        });
        self.headers.send(socket, outgoing)
    }
}

impl std::fmt::Debug for ReplyBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReplyBatch")
            .field("slots", &self.slots())
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::poll::Poller;
    use crate::udp::{BindOptions, RecvBatch, SendBatch};

    fn bind(address: &str) -> UdpSocket {
        UdpSocket::bind(address.parse().unwrap(), &BindOptions::default()).unwrap()
    }

    fn wait(socket: &UdpSocket) {
        let ready = Poller::new().wait(&[socket.as_fd()], Some(Duration::from_secs(5)));
        assert!(ready.unwrap().is_ready(0));
    }

    fn round_trip(at: &str) {
        let (server, client) = (bind(at), bind(at));
        let mut out = SendBatch::new(4, 64);
        for request in [&b"one"[..], b"", &[7; 33], b"four"] {
            assert!(out.push(server.local_addr(), request));
        }
        assert_eq!(out.flush(&client).sent, 4);
        wait(&server);
        let mut batch = ReplyBatch::new(8, 32);
        assert_eq!(batch.recv(&server).unwrap(), 4);
        assert_eq!(batch.truncated(), 1);
        assert!(batch.request(2).is_none() && batch.request(4).is_none());
        for (slot, text) in [(3, &b"a longer reply"[..]), (0, b"1"), (1, b"empty")] {
            let request = batch.request(slot).unwrap();
            assert_eq!(request.source, client.local_addr());
            request.buffer[..text.len()].copy_from_slice(text);
            batch.reply(slot, text.len());
        }
        assert_eq!(batch.flush(&server).sent, 3);
        assert_eq!(batch.flush(&server).sent, 0);
        wait(&client);
        let mut replies = RecvBatch::new(8, 64);
        replies.recv(&client).unwrap();
        let texts: Vec<_> = replies.iter().collect();
        let from = server.local_addr();
        assert_eq!(
            texts,
            [
                (from, &b"a longer reply"[..]),
                (from, b"1"),
                (from, b"empty")
            ]
        );
        assert_eq!(batch.recv(&server).unwrap(), 0);
    }

    #[test]
    fn requests_become_their_replies_in_place() {
        round_trip("127.0.0.1:0");
        if std::path::Path::new("/proc/net/if_inet6").exists() {
            round_trip("[::1]:0");
        }
    }

    #[test]
    fn no_slot_is_answered_that_was_not_filled() {
        let (server, client) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let mut out = SendBatch::new(1, 8);
        assert!(out.push(server.local_addr(), b"x"));
        out.flush(&client);
        wait(&server);
        let mut batch = ReplyBatch::new(2, 8);
        assert_eq!(batch.recv(&server).unwrap(), 1);
        batch.reply(1, 1);
        batch.reply(9, 1);
        assert_eq!(batch.flush(&server).sent, 0);
        batch.reply(0, 999);
        assert_eq!(batch.flush(&server).sent, 1);
    }
}
