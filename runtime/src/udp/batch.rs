//! Batches: many datagrams a system call, into and out of memory that is allocated once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use bytes::BytesMut;

use super::socket::UdpSocket;
use crate::sys::address::Name;
use crate::sys::control_message::Control;
use crate::sys::message::{Headers, Outgoing};

/// Receives up to `slots` datagrams a call.
///
/// Each slot is its own [`BytesMut`], so that a segment can be handed out as an owned buffer ([`Self::drain`]) that
/// keeps no other slot alive. A slot whose segments were all dropped is reused without allocating.
pub struct RecvBatch {
    headers: Headers,
    buffers: Box<[BytesMut]>,
    names: Box<[Name]>,
    controls: Box<[Control]>,
    slot_bytes: usize,
    filled: usize,
    truncated: u64,
}

/// Bytes a slot needs on a socket with UDP_GRO.
pub const GRO_SLOT_BYTES: usize = 65_535;

impl RecvBatch {
    /// `slot_bytes`: the longest datagram; longer ones are dropped and counted. 65,535 on a socket with UDP_GRO.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self {
            headers: Headers::new(slots),
            buffers: (0..slots)
                .map(|_| BytesMut::with_capacity(slot_bytes))
                .collect(),
            names: vec![Name::EMPTY; slots].into(),
            controls: vec![Control::EMPTY; slots].into(),
            slot_bytes,
            filled: 0,
            truncated: 0,
        }
    }

    /// Forgets what it holds and receives what is there, without blocking. Returns the slots filled: 0 when nothing
    /// is waiting, fewer than [`Self::slots`] when everything that was waiting is in.
    ///
    /// # Errors
    /// The socket's; one about an earlier send (ICMP) is not reported here. `Unsupported` when the kernel has no
    /// `recvmmsg` (before Linux 2.6.33).
    pub fn recv(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        for buffer in &mut self.buffers {
            buffer.clear();
            buffer.reserve(self.slot_bytes);
        }
        self.filled = 0;
        let received = self.headers.receive(
            socket.as_fd(),
            &mut self.buffers,
            &mut self.names,
            &mut self.controls,
        );
        match received {
            Ok(filled) => {
                self.filled = filled;
                self.note_slots();
                Ok(filled)
            }
            Err(error) if is_nothing_there(&error) => Ok(0),
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel has no recvmmsg: Linux 5.0 or later is needed",
            )),
            Err(error) => Err(error),
        }
    }

    fn note_slots(&mut self) {
        let slots = self.buffers.iter_mut().zip(&mut self.names);
        let slots = slots.zip(&mut self.controls).enumerate();
        for (index, ((buffer, name), control)) in slots.take(self.filled) {
            control.len = self.headers.control_len(index);
            if self.headers.is_truncated(index) {
                buffer.clear();
                // A slot without a sender is passed over.
                *name = Name::EMPTY;
                self.truncated += 1;
            }
        }
    }

    /// Slots there are.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.buffers.len()
    }

    /// Datagrams dropped because they were longer than a slot, since the batch was made.
    #[must_use]
    pub const fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Every segment received, with its sender, in order of arrival. A datagram without a byte in it is one empty segment:
    /// whoever counts what it drops must see it.
    pub fn iter(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.buffers
            .iter()
            .zip(&self.names)
            .zip(&self.controls)
            .take(self.filled)
            .filter_map(|((buffer, name), control)| {
                let from = name.decode()?;
                let segment_bytes = control.gro_segment_bytes().unwrap_or(buffer.len());
                let empty = buffer.is_empty().then_some(&[][..]);
                let segments = buffer.chunks(segment_bytes.max(1)).chain(empty);
                Some(segments.map(move |segment| (from, segment)))
            })
            .flatten()
    }

    /// Every segment received, owned, for QUIC. Copies nothing; the batch is empty afterwards.
    pub fn drain(&mut self) -> Segments<'_> {
        Segments {
            batch: self,
            slot: 0,
        }
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch")
            .field("slots", &self.slots())
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// See [`RecvBatch::drain`].
#[derive(Debug)]
pub struct Segments<'a> {
    batch: &'a mut RecvBatch,
    slot: usize,
}

impl Iterator for Segments<'_> {
    type Item = (SocketAddr, BytesMut);

    fn next(&mut self) -> Option<Self::Item> {
        while self.slot < self.batch.filled {
            let buffer = self.batch.buffers.get_mut(self.slot)?;
            let from = self.batch.names.get(self.slot)?.decode();
            let control = self.batch.controls.get(self.slot)?;
            match from {
                Some(from) if !buffer.is_empty() => {
                    let len = control.gro_segment_bytes().unwrap_or(usize::MAX);
                    let segment = buffer.split_to(len.min(buffer.len()));
                    return Some((from, segment));
                }
                Some(_) | None => self.slot += 1,
            }
        }
        None
    }
}

impl Drop for Segments<'_> {
    fn drop(&mut self) {
        self.batch.filled = 0;
    }
}

/// Gathers datagrams to many destinations and sends them with few calls.
pub struct SendBatch {
    headers: Headers,
    arena: Box<[u8]>,
    lens: Vec<usize>,
    names: Vec<Name>,
    slot_bytes: usize,
    slots: usize,
}

/// What became of one batch. `sent + would_block + failed` is what was pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Taken by the kernel.
    pub sent: usize,
    /// Dropped because the send buffer or the device queue was full.
    pub would_block: usize,
    /// Dropped because the kernel refused this destination or size.
    pub failed: usize,
    /// System calls.
    pub calls: usize,
}

impl SendBatch {
    /// `slot_bytes`: the longest datagram.
    #[must_use]
    pub fn new(slots: usize, slot_bytes: usize) -> Self {
        Self {
            headers: Headers::new(slots),
            arena: vec![0; slots * slot_bytes].into(),
            lens: Vec::with_capacity(slots),
            names: Vec::with_capacity(slots),
            slot_bytes,
            slots,
        }
    }

    /// Adds a datagram. `false`: it is full, or `payload` is longer than a slot; nothing was added. The caller flushes
    /// and tries once more.
    #[must_use]
    pub fn push(&mut self, to: SocketAddr, payload: &[u8]) -> bool {
        self.push_with(to, payload.len(), |slot| slot.copy_from_slice(payload))
    }

    /// Like [`Self::push`], for a caller that writes the payload of `len` bytes itself.
    #[must_use]
    pub fn push_with(&mut self, to: SocketAddr, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.push_named(Name::encode(to), len, write)
    }

    /// Like [`Self::push_with`], for a socket that is connected.
    #[must_use]
    pub fn push_connected(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        self.push_named(Name::EMPTY, len, write)
    }

    fn push_named(&mut self, name: Name, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        if self.is_full() || len > self.slot_bytes {
            return false;
        }
        let start = self.lens.len() * self.slot_bytes;
        let Some(slot) = self.arena.get_mut(start..start + len) else {
            return false;
        };
        write(slot);
        self.lens.push(len);
        self.names.push(name);
        true
    }

    /// Datagrams waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// Whether the next push of any size is refused.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.lens.len() >= self.slots
    }

    /// Sends everything without blocking; the batch is empty afterwards. A datagram the kernel refuses is skipped. A
    /// full send buffer ends the flush: media that is late is worth less than what comes next.
    pub fn flush(&mut self, socket: &UdpSocket) -> SendReport {
        let count = self.len();
        let report = send_all(count, |done| self.send_from(socket.as_fd(), done));
        self.lens.clear();
        self.names.clear();
        report
    }

    fn send_from(&mut self, socket: BorrowedFd<'_>, done: usize) -> io::Result<usize> {
        let payloads = self.arena.chunks(self.slot_bytes.max(1)).zip(&self.lens);
        let datagrams = payloads.zip(&self.names).skip(done);
        let outgoing = datagrams.filter_map(|((slot, len), name)| {
            Some(Outgoing {
                payload: slot.get(..*len)?,
                name,
                control: &Control::EMPTY,
            })
        });
        self.headers.send(socket, outgoing)
    }
}

impl std::fmt::Debug for SendBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendBatch")
            .field("slots", &self.slots)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Calls `send` with the number of datagrams that are done with until all `count` are. It answers how many more the
/// kernel took, or an error about the first of them.
pub(super) fn send_all(
    count: usize,
    mut send: impl FnMut(usize) -> io::Result<usize>,
) -> SendReport {
    let mut report = SendReport::default();
    let mut done = 0;
    while done < count {
        report.calls += 1;
        match send(done) {
            Ok(sent) => {
                // The kernel never answers 0 for a call that was given a datagram; do not spin if it did.
                report.failed += usize::from(sent == 0);
                report.sent += sent;
                done += sent.max(1);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_full_queue(&error) => {
                report.would_block = count - done;
                break;
            }
            Err(error) => {
                tracing::trace!(%error, "datagram refused");
                report.failed += 1;
                done += 1;
            }
        }
    }
    report
}

/// Nothing waits, a signal came, or an ICMP error about an earlier send is reported in place of data.
pub(super) fn is_nothing_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionRefused
    )
}

pub(super) fn is_full_queue(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `send_all` over what the kernel answers, in order.
    fn report(count: usize, answers: &[Result<usize, i32>]) -> [usize; 4] {
        let mut answers = answers.iter();
        let report = send_all(count, |_| match answers.next().unwrap() {
            Ok(sent) => Ok(*sent),
            Err(code) => Err(io::Error::from_raw_os_error(*code)),
        });
        assert_eq!(answers.next(), None, "answers left over");
        [report.sent, report.failed, report.would_block, report.calls]
    }

    #[test]
    fn every_answer_of_the_kernel_moves_the_flush_on() {
        assert_eq!(report(3, &[Ok(3)]), [3, 0, 0, 1]);
        assert_eq!(report(3, &[Ok(1), Err(libc::EPERM), Ok(1)]), [2, 1, 0, 3]);
        assert_eq!(report(3, &[Ok(1), Err(libc::EAGAIN)]), [1, 0, 2, 2]);
        assert_eq!(report(3, &[Err(libc::ENOBUFS)]), [0, 0, 3, 1]);
        assert_eq!(report(1, &[Err(libc::EINTR), Ok(1)]), [1, 0, 0, 2]);
        assert_eq!(report(2, &[Ok(0), Ok(1)]), [1, 1, 0, 2]);
        assert_eq!(report(0, &[]), [0, 0, 0, 0]);
    }
}
