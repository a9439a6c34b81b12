//! The body of a heartbeat.
//!
//! ```text
//!  0       1        2          4              8                16
//!  +-------+--------+----------+--------------+----------------+---------
//!  | flags | worker | 0 0      | loss, ppm    | sent, us       | padding
//!  +-------+--------+----------+--------------+----------------+---------
//!  flags: bit 0 the sender drains, bit 1 this connection takes over from one of the same process,
//!         bit 2 the sender has heard nothing for `suspect_after`; others are ignored
//!  worker: the sender's worker thread
//!  loss: what the sender last measured of our datagrams
//!  sent: the sender's own clock, for nobody else to interpret
//! ```
//!
//! A `Ping` is echoed unchanged as a `Pong`. Until a link is up its heartbeats are padded to the largest datagram, so
//! a link comes up only over a path that carries `mtu_bytes` both ways.

use bytes::{BufMut, Bytes, BytesMut};
use wire::record::{DATAGRAM_HEADER_LEN, DatagramKind, datagram_header};

/// Bytes of a body without padding.
pub(crate) const HEARTBEAT_LEN: usize = 16;

const FLAG_DRAINING: u8 = 0b01;
const FLAG_RENEWS: u8 = 0b10;
const FLAG_DEAF: u8 = 0b100;

/// A heartbeat's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub(crate) draining: bool,
    pub(crate) renews: bool,
    pub(crate) deaf: bool,
    pub(crate) worker: u8,
    pub(crate) loss_ppm: u32,
    pub(crate) sent_us: u64,
}

impl Heartbeat {
    /// `None` when `body` is too short.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let ([flags, worker, _, _, l0, l1, l2, l3], rest) = body.split_first_chunk::<8>()?;
        let (sent, _padding) = rest.split_first_chunk::<8>()?;
        Some(Self {
            draining: flags & FLAG_DRAINING != 0,
            renews: flags & FLAG_RENEWS != 0,
            deaf: flags & FLAG_DEAF != 0,
            worker: *worker,
            loss_ppm: u32::from_be_bytes([*l0, *l1, *l2, *l3]),
            sent_us: u64::from_be_bytes(*sent),
        })
    }

    /// A whole `Ping` datagram, padded to `len` bytes where `len` is larger than the body needs.
    pub(crate) fn ping(self, sequence: u16, len: usize) -> Bytes {
        let len = len.max(DATAGRAM_HEADER_LEN + HEARTBEAT_LEN);
        let mut out = BytesMut::with_capacity(len);
        out.put_slice(&datagram_header(DatagramKind::Ping, sequence));
        let draining = if self.draining { FLAG_DRAINING } else { 0 };
        let renews = if self.renews { FLAG_RENEWS } else { 0 };
        let deaf = if self.deaf { FLAG_DEAF } else { 0 };
        out.put_u8(draining | renews | deaf);
        out.put_u8(self.worker);
        out.put_u16(0);
        out.put_u32(self.loss_ppm);
        out.put_u64(self.sent_us);
        out.resize(len, 0);
        out.freeze()
    }
}

/// The `Pong` that answers a `Ping` with this body.
pub(crate) fn pong(sequence: u16, body: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(DATAGRAM_HEADER_LEN + body.len());
    out.put_slice(&datagram_header(DatagramKind::Pong, sequence));
    out.put_slice(body);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::record::open_datagram;

    #[test]
    fn ping_reads_back_and_pong_echoes() {
        let sent = Heartbeat {
            draining: true,
            renews: true,
            deaf: true,
            worker: 7,
            loss_ppm: 12_345,
            sent_us: 1 << 40,
        };
        for len in [0, 20, 1400] {
            let ping = sent.ping(0xfffe, len);
            assert_eq!(ping.len(), len.max(20));
            let (kind, sequence, body) = open_datagram(&ping).unwrap();
            assert_eq!((kind, sequence), (DatagramKind::Ping, 0xfffe));
            assert_eq!(Heartbeat::parse(body), Some(sent));
            let answer = pong(3, body);
            assert_eq!(
                open_datagram(&answer).unwrap(),
                (DatagramKind::Pong, 3, body)
            );
        }
    }

    #[test]
    fn short_bodies_are_refused() {
        for len in 0..HEARTBEAT_LEN {
            assert_eq!(Heartbeat::parse(&vec![0xff; len]), None);
        }
    }
}
