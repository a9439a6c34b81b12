//! Control messages (`cmsghdr`) as bytes: finds the GRO segment size, writes the GSO one and a source
//! address.
//!
//! ```text
//!  0          8       12      16
//!  +----------+-------+-------+----------------+-- padded to 8
//!  | len (16+)| level | type  | data           |      (64-bit Linux; all in host order)
//!  +----------+-------+-------+----------------+--
//! ```

use std::net::Ipv4Addr;

const HEADER_BYTES: usize = size_of::<usize>() + 8;
const ALIGN: usize = size_of::<usize>();
/// Room for one control message with four bytes of data, and one to spare.
pub(crate) const CONTROL_BYTES: usize = 64;

/// Buffer for the control messages of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control {
    pub(crate) bytes: [u8; CONTROL_BYTES],
    pub(crate) len: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; CONTROL_BYTES],
        len: 0,
    };

    /// One `UDP_SEGMENT` message (udp(7)).
    pub(crate) fn segment(segment_bytes: u16) -> Self {
        let data = segment_bytes.to_ne_bytes();
        Self::one(libc::SOL_UDP, libc::UDP_SEGMENT, &data)
    }

    /// One `IP_PKTINFO` message (ip(7)): any interface, this local address.
    pub(crate) fn source(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        let info = [0, 0, 0, 0, a, b, c, d, 0, 0, 0, 0];
        Self::one(libc::IPPROTO_IP, libc::IP_PKTINFO, &info)
    }

    /// One message; what is longer than the room for it is cut.
    fn one(level: i32, kind: i32, data: &[u8]) -> Self {
        let mut control = Self::EMPTY;
        let parts: [&[u8]; 4] = [
            &(HEADER_BYTES + data.len()).to_ne_bytes(),
            &level.to_ne_bytes(),
            &kind.to_ne_bytes(),
            data,
        ];
        let mut at = 0;
        for part in parts {
            if let Some(slot) = control.bytes.get_mut(at..at + part.len()) {
                slot.copy_from_slice(part);
            }
            at += part.len();
        }
        control.len = at.next_multiple_of(ALIGN);
        control
    }

    /// The segment size of a datagram that `UDP_GRO` coalesced; `None` when it is a single one.
    pub(crate) fn gro_segment_bytes(&self) -> Option<usize> {
        let mut rest = self.bytes.get(..self.len)?;
        while !rest.is_empty() {
            let len = usize::from_ne_bytes(*rest.first_chunk()?);
            let level = i32::from_ne_bytes(*rest.get(size_of::<usize>()..)?.first_chunk()?);
            let kind = i32::from_ne_bytes(*rest.get(size_of::<usize>() + 4..)?.first_chunk()?);
            let data = rest.get(HEADER_BYTES..len)?;
            if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
                let segment = i32::from_ne_bytes(*data.first_chunk()?);
                return usize::try_from(segment).ok().filter(|bytes| *bytes > 0);
            }
            rest = rest.get(len.next_multiple_of(ALIGN)..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        bytes.extend(libc::SOL_UDP.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        bytes
    }

    fn control(bytes: &[u8]) -> Control {
        let mut control = Control::EMPTY;
        control.bytes[..bytes.len()].copy_from_slice(bytes);
        control.len = bytes.len();
        control
    }

    #[test]
    fn gro_size_is_found_behind_another_message() {
        let mut bytes = message(99, &[1, 2, 3, 4]);
        bytes.extend(message(libc::UDP_GRO, &1452i32.to_ne_bytes()));
        assert_eq!(control(&bytes).gro_segment_bytes(), Some(1452));
    }

    #[test]
    fn damaged_messages_are_none() {
        assert_eq!(Control::EMPTY.gro_segment_bytes(), None);
        let mut bytes = message(libc::UDP_GRO, &1452i32.to_ne_bytes());
        bytes[..8].copy_from_slice(&0usize.to_ne_bytes());
        assert_eq!(control(&bytes).gro_segment_bytes(), None);
        bytes[..8].copy_from_slice(&usize::MAX.to_ne_bytes());
        assert_eq!(control(&bytes).gro_segment_bytes(), None);
        assert_eq!(control(&bytes[..10]).gro_segment_bytes(), None);
        assert_eq!(
            control(&message(libc::UDP_GRO, &0i32.to_ne_bytes())).gro_segment_bytes(),
            None
        );
    }

    #[test]
    fn the_segment_message_has_the_layout_of_cmsg() {
        let control = Control::segment(1452);
        assert_eq!(control.len, 24);
        assert_eq!(&control.bytes[..8], &18usize.to_ne_bytes());
        assert_eq!(&control.bytes[16..18], &1452u16.to_ne_bytes());
    }

    #[test]
    fn the_source_message_has_the_layout_of_in_pktinfo() {
        let control = Control::source(Ipv4Addr::new(127, 1, 2, 3));
        assert_eq!(control.len, 32);
        assert_eq!(&control.bytes[..8], &28usize.to_ne_bytes());
        assert_eq!(
            &control.bytes[16..28],
            &[0, 0, 0, 0, 127, 1, 2, 3, 0, 0, 0, 0]
        );
    }
}
