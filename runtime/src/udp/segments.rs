//! One buffer, one destination, many datagrams: UDP_SEGMENT, and single datagrams where it is refused.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::batch::is_full_queue;
use super::socket::UdpSocket;
use crate::sys::address::Name;
use crate::sys::control_message::Control;
use crate::sys::message;

/// Segments of one train at most: `UDP_MAX_SEGMENTS` of every kernel that has the option.
const SEGMENTS_MAX: usize = 64;
/// What one IPv4 packet holds: 65,535 less the IPv4 and UDP headers.
const PAYLOAD_BYTES_MAX: usize = 65_507;

/// A call that sent less than it was given.
#[derive(Debug, thiserror::Error)]
#[error("{datagrams} datagrams not sent: {error}")]
pub struct Unsent {
    /// Datagrams that did not leave.
    pub datagrams: usize,
    /// The kernel's answer to the first of them; `WouldBlock` when the send buffer is full.
    #[source]
    pub error: io::Error,
}

/// Sends `buf` to `to` as datagrams of `segment_bytes` each, the last one possibly shorter, in as few calls as the
/// kernel allows. Where it refuses segmentation, the socket sends single datagrams from then on.
///
/// # Errors
/// The kernel's, about this destination. The rest of `buf` is not sent.
pub fn send_segments(
    socket: &UdpSocket,
    to: SocketAddr,
    buf: &[u8],
    segment_bytes: usize,
) -> Result<(), Unsent> {
    let segment_bytes = segment_bytes.max(1);
    let name = Name::encode(to);
    send_trains(buf, segment_bytes, |train, sent| {
        send_train(socket, &name, train, segment_bytes, sent)
    })
}

/// Calls `send` with one train after the other. It counts the bytes that left.
fn send_trains(
    buf: &[u8],
    segment_bytes: usize,
    mut send: impl FnMut(&[u8], &mut usize) -> io::Result<()>,
) -> Result<(), Unsent> {
    let mut sent = 0;
    buf.chunks(train_bytes(segment_bytes))
        .try_for_each(|train| send(train, &mut sent))
        .map_err(|error| Unsent {
            datagrams: buf.len().saturating_sub(sent).div_ceil(segment_bytes),
            error,
        })
}

/// Whether segmentation works on a socket, as far as it was tried.
#[derive(Debug, Default)]
pub(super) struct Segmentation {
    refused: AtomicBool,
    fallbacks: AtomicU64,
}

impl Segmentation {
    pub(super) fn fallbacks(&self) -> u64 {
        self.fallbacks.load(Ordering::Relaxed)
    }

    /// From here on, trains go out as single datagrams. Whether that was already so.
    pub(super) fn refuse(&self) -> bool {
        self.refused.swap(true, Ordering::Relaxed)
    }
}

fn send_train(
    socket: &UdpSocket,
    name: &Name,
    train: &[u8],
    segment_bytes: usize,
    sent: &mut usize,
) -> io::Result<()> {
    let mut whole = |result: io::Result<()>| {
        *sent += if result.is_ok() { train.len() } else { 0 };
        result
    };
    if train.len() <= segment_bytes {
        return whole(send(socket, name, train, &Control::EMPTY));
    }
    let segmentation = socket.segmentation();
    if !segmentation.refused.load(Ordering::Relaxed) {
        let segment = u16::try_from(segment_bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        match send(socket, name, train, &Control::segment(segment)) {
            Err(error) if refuses_segmentation(&error) => note_refusal(socket, &error),
            result => return whole(result),
        }
    }
    segmentation.fallbacks.fetch_add(1, Ordering::Relaxed);
    train.chunks(segment_bytes).try_for_each(|segment| {
        send(socket, name, segment, &Control::EMPTY)?;
        *sent += segment.len();
        Ok(())
    })
}

fn send(socket: &UdpSocket, name: &Name, payload: &[u8], control: &Control) -> io::Result<()> {
    loop {
        match message::send_one(socket.as_fd(), name, payload, control) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_full_queue(&error) => return Err(io::ErrorKind::WouldBlock.into()),
            result => return result,
        }
    }
}

fn note_refusal(socket: &UdpSocket, error: &io::Error) {
    if !socket.segmentation().refuse() {
        let local = socket.local_addr();
        tracing::warn!(socket = %local, %error, "UDP_SEGMENT refused: datagrams go out one by one");
    }
}

fn train_bytes(segment_bytes: usize) -> usize {
    let segments = (PAYLOAD_BYTES_MAX / segment_bytes).clamp(1, SEGMENTS_MAX);
    segments * segment_bytes
}

/// `EIO`: the device has no checksum offload. `EINVAL`, `EOPNOTSUPP`, `ENOPROTOOPT`: no UDP_SEGMENT (Linux 4.18).
fn refuses_segmentation(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_left_before_the_refusal_is_not_among_the_unsent() {
        // Trains of 64 of 1000 bytes, three of them, and 8.5 datagrams.
        let buf = vec![0; 200_500];
        for (train_that_fails, unsent) in [(0, 201), (1, 137), (3, 9)] {
            let mut turn = 0;
            let result = send_trains(&buf, 1000, |train, sent| {
                turn += 1;
                if turn > train_that_fails {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                *sent += train.len();
                Ok(())
            });
            assert_eq!(result.unwrap_err().datagrams, unsent);
        }
        // Two of a train left one by one.
        let result = send_trains(&buf[..5000], 1000, |_, sent| {
            *sent += 2000;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!(result.unwrap_err().datagrams, 3);
    }
}
