//! `recvmmsg` and `sendmmsg` over headers that are allocated once.
//!
//! Pointers and lengths of every header are written anew before each call: the kernel overwrites
//! `msg_namelen` and `msg_controllen`, and the buffers may have moved.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

use bytes::BytesMut;

use super::address::{NAME_BYTES, Name};
use super::control_message::{CONTROL_BYTES, Control};

/// Headers for as many datagrams as one call moves.
pub(crate) struct Headers {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
}

// SAFETY: the raw pointers inside are written before each system call from references that outlive the call, and
// read by nobody between calls; they tie the value to no thread.
unsafe impl Send for Headers {}

/// One datagram to send: the kernel reads `payload`, `name` and, when it has a length, `control`.
#[derive(Clone, Copy)]
pub(crate) struct Outgoing<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) name: &'a Name,
    pub(crate) control: &'a Control,
}

impl Headers {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            headers: (0..count).map(|_| zeroed_header()).collect(),
            vectors: (0..count)
                .map(|_| libc::iovec {
                    iov_base: std::ptr::null_mut(),
                    iov_len: 0,
                })
                .collect(),
        }
    }

    /// Receives without blocking into the spare capacity of `buffers` (each must be empty), one datagram each, and
    /// sets their lengths. Returns how many were filled.
    pub(crate) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: &mut [BytesMut],
        names: &mut [Name],
        controls: &mut [Control],
    ) -> io::Result<usize> {
        let mut count = 0;
        let slots = buffers.iter_mut().zip(names.iter_mut()).zip(controls);
        let headers = self.headers.iter_mut().zip(self.vectors.iter_mut());
        for ((header, vector), ((buffer, name), control)) in headers.zip(slots) {
            let spare = buffer.spare_capacity_mut();
            vector.iov_len = spare.len();
            vector.iov_base = spare.as_mut_ptr().cast();
            let header = &mut header.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_name = name.bytes.as_mut_ptr().cast();
            header.msg_namelen = NAME_BYTES_U32;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES;
            header.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were written above; each points at memory borrowed mutably for the whole call, with
        // the length it has.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let filled = buffers.iter_mut().zip(names).zip(self.headers.iter());
        for ((buffer, name), header) in filled.take(received) {
            name.len = header.msg_hdr.msg_namelen;
            let len = (header.msg_len as usize).min(buffer.capacity());
            // SAFETY: the kernel wrote `msg_len` bytes from the start of this empty buffer's capacity, and `len` is
            // no more than that.
            unsafe { buffer.set_len(len) };
        }
        Ok(received)
    }

    /// Receives without blocking into `slots`, one datagram each, without control messages. Returns how many were filled.
    pub(crate) fn receive_slots<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        slots: impl Iterator<Item = &'a mut [u8]>,
        names: &mut [Name],
    ) -> io::Result<usize> {
        let mut count = 0;
        let headers = self.headers.iter_mut().zip(self.vectors.iter_mut());
        for ((header, vector), (slot, name)) in headers.zip(slots.zip(names.iter_mut())) {
            vector.iov_len = slot.len();
            vector.iov_base = slot.as_mut_ptr().cast();
            let header = &mut header.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_name = name.bytes.as_mut_ptr().cast();
            header.msg_namelen = NAME_BYTES_U32;
            header.msg_control = std::ptr::null_mut();
            header.msg_controllen = 0;
            header.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were written above; each points at memory borrowed mutably for 'a or the whole call, with
        // the length it has.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        for (name, header) in names.iter_mut().zip(self.headers.iter()).take(received) {
            name.len = header.msg_hdr.msg_namelen;
        }
        Ok(received)
    }

    /// Length of the datagram in slot `index` of the last receive, as far as it was taken.
    pub(crate) fn received_len(&self, index: usize) -> usize {
        self.headers
            .get(index)
            .map_or(0, |header| header.msg_len as usize)
    }

    /// Whether the datagram in slot `index` of the last [`Self::receive`] was longer than its buffer.
    pub(crate) fn is_truncated(&self, index: usize) -> bool {
        self.headers
            .get(index)
            .is_some_and(|header| header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0)
    }

    /// Bytes of control messages of slot `index` after the last [`Self::receive`].
    pub(crate) fn control_len(&self, index: usize) -> usize {
        self.headers
            .get(index)
            .map_or(0, |header| header.msg_hdr.msg_controllen)
    }

    /// Sends as many as the kernel takes without blocking; an error is about the first one.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        datagrams: impl Iterator<Item = Outgoing<'a>>,
    ) -> io::Result<usize> {
        let mut count = 0;
        let headers = self.headers.iter_mut().zip(self.vectors.iter_mut());
        for ((header, vector), datagram) in headers.zip(datagrams) {
            vector.iov_len = datagram.payload.len();
            vector.iov_base = datagram.payload.as_ptr().cast_mut().cast();
            let header = &mut header.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_name = datagram.name.bytes.as_ptr().cast_mut().cast();
            header.msg_namelen = datagram.name.len;
            header.msg_control = datagram.control.bytes.as_ptr().cast_mut().cast();
            header.msg_controllen = datagram.control.len;
            header.msg_flags = 0;
            count += 1;
        }
        // SAFETY: `count` headers were written above; each points at memory borrowed for 'a, which outlives the call,
        // with the length it has. The kernel only reads through them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Sends one datagram, or one train when `control` says so, without blocking.
pub(crate) fn send_one(
    socket: BorrowedFd<'_>,
    name: &Name,
    payload: &[u8],
    control: &Control,
) -> io::Result<()> {
    let mut vector = libc::iovec {
        iov_base: payload.as_ptr().cast_mut().cast(),
        iov_len: payload.len(),
    };
    let mut header = zeroed_header().msg_hdr;
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_name = name.bytes.as_ptr().cast_mut().cast();
    header.msg_namelen = name.len;
    header.msg_control = control.bytes.as_ptr().cast_mut().cast();
    header.msg_controllen = control.len;
    // SAFETY: the header points at memory borrowed for the whole call, with the length it has; the kernel only reads.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

const NAME_BYTES_U32: u32 = 28;
const _: () = assert!(NAME_BYTES_U32 as usize == NAME_BYTES);

fn zeroed_header() -> libc::mmsghdr {
    let header = MaybeUninit::zeroed();
    // SAFETY: `mmsghdr` is a C struct of integers and pointers, for all of which zero bytes are a value.
    unsafe { header.assume_init() }
}
