//! What the clients and transceivers of a simulation send: packets that say whose they are, which one it is, and what the
//! rest of them must look like. Media looks like RTP, checks are STUN that a PoP can read.
//!
//! ```text
//!  0          20     24        28        36
//!  +----------+------+---------+---------+-------------------
//!  | header   |      | client  | serial  | fill, by serial
//!  +----------+------+---------+---------+-------------------
//!  media: header and the next 4 bytes are 0x80 and zeros    check, answer: an attribute nobody knows begins at 20
//! ```

use wire::hint::Ufrag;
use wire::stun::{ATTR_USERNAME, HEADER_LEN, MAGIC_COOKIE};

/// Bytes of the shortest media packet.
pub const MEDIA_LEN_MIN: usize = FILL_AT;

const TAG_AT: usize = 24;
const FILL_AT: usize = 36;
/// Comprehension-optional (RFC 8489 §14), unassigned.
const ATTR_PADDING: u16 = 0xffde;
const CHECK: u16 = 0x0001;
const ANSWER: u16 = 0x0101;
/// `ufrag:clnt`, padded to a multiple of four, and the attribute's header.
const USERNAME_LEN: usize = 32;

/// What kind of packet it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Media, either way.
    Media,
    /// A connectivity check of a client.
    Check,
    /// Its answer.
    Answer,
}

/// Whose packet it is and which one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The client it is from or for.
    pub client: u32,
    /// Its place in the ledger.
    pub serial: u64,
}

/// Writes packets and checks them.
#[derive(Clone, Debug)]
pub struct Packets {
    noise: Vec<u8>,
}

impl Packets {
    /// The noise that fills packets is the same in every simulation.
    #[must_use]
    pub fn new() -> Self {
        let mut random = super::random::Random::new(0, 0);
        let noise = (0..2048).map(|_| random.next().to_be_bytes()[0]).collect();
        Self { noise }
    }

    /// Media of `len` bytes, at least [`MEDIA_LEN_MIN`].
    #[must_use]
    pub fn media(&self, stamp: Stamp, len: usize) -> Vec<u8> {
        let mut packet = Vec::with_capacity(len);
        packet.extend_from_slice(&[0x80; 1]);
        packet.resize(TAG_AT, 0);
        self.finish(packet, stamp, len)
    }

    /// A Binding request of `len` bytes to the session of `ufrag`.
    #[must_use]
    pub fn check(&self, stamp: Stamp, ufrag: &Ufrag, len: usize) -> Vec<u8> {
        let padded = len - USERNAME_LEN;
        let mut packet = self.finish(stun(CHECK, stamp, len, padded), stamp, padded);
        packet.extend_from_slice(&ATTR_USERNAME.to_be_bytes());
        packet.extend_from_slice(&28_u16.to_be_bytes());
        packet.extend_from_slice(ufrag.as_bytes());
        packet.extend_from_slice(b":clnt");
        packet
    }

    /// A Binding success of `len` bytes.
    #[must_use]
    pub fn answer(&self, stamp: Stamp, len: usize) -> Vec<u8> {
        self.finish(stun(ANSWER, stamp, len, len), stamp, len)
    }

    fn finish(&self, mut packet: Vec<u8>, stamp: Stamp, len: usize) -> Vec<u8> {
        packet.extend_from_slice(&stamp.client.to_be_bytes());
        packet.extend_from_slice(&stamp.serial.to_be_bytes());
        packet.extend_from_slice(self.fill(stamp, len.saturating_sub(FILL_AT)));
        packet
    }

    fn fill(&self, stamp: Stamp, len: usize) -> &[u8] {
        let at = usize::try_from(stamp.serial % 509).unwrap_or_default();
        self.noise.get(at..at + len).unwrap_or_default()
    }

    /// What a packet is; `None` when it is not what we wrote, to the last byte.
    #[must_use]
    pub fn read(&self, packet: &[u8]) -> Option<(Kind, Stamp)> {
        let stamp = stamp(packet)?;
        let kind = match packet.first_chunk::<2>()? {
            [0x80, 0] => Kind::Media,
            [0, 1] => Kind::Check,
            [1, 1] => Kind::Answer,
            _ => return None,
        };
        let end = match kind {
            Kind::Check => packet.len().checked_sub(USERNAME_LEN)?,
            Kind::Media | Kind::Answer => packet.len(),
        };
        let fill = packet.get(FILL_AT..end)?;
        (fill == self.fill(stamp, fill.len())).then_some((kind, stamp))
    }
}

impl Default for Packets {
    fn default() -> Self {
        Self::new()
    }
}

/// The stamp alone, which lies in the first part of a split packet.
#[must_use]
pub fn stamp(packet: &[u8]) -> Option<Stamp> {
    let (client, rest) = packet.get(TAG_AT..)?.split_first_chunk::<4>()?;
    Some(Stamp {
        client: u32::from_be_bytes(*client),
        serial: u64::from_be_bytes(*rest.first_chunk::<8>()?),
    })
}

/// Header of a STUN message of `len` bytes whose padding ends at `padded`, up to the value of the padding.
fn stun(kind: u16, stamp: Stamp, len: usize, padded: usize) -> Vec<u8> {
    let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = Vec::with_capacity(len);
    packet.extend_from_slice(&kind.to_be_bytes());
    packet.extend_from_slice(&short(len - HEADER_LEN));
    packet.extend_from_slice(&MAGIC_COOKIE);
    packet.extend_from_slice(&stamp.client.to_be_bytes());
    packet.extend_from_slice(&stamp.serial.to_be_bytes());
    packet.extend_from_slice(&ATTR_PADDING.to_be_bytes());
    packet.extend_from_slice(&short(padded - TAG_AT));
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::hint::{Hint, KeyId, KeyRing, Minute};
    use wire::stun::{Class, parse};
    use wire::{Owner, RegionId, TransceiverId};

    #[test]
    fn what_is_written_reads_back_and_a_changed_byte_does_not() {
        let ring = KeyRing::single(KeyId::new(1).unwrap(), [7; 16]);
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        };
        let issued = Minute(1);
        let ufrag = ring.seal(Hint { owner, issued }, [1, 2, 3]);
        let (packets, stamp) = (
            Packets::new(),
            Stamp {
                client: 7,
                serial: 1 << 33,
            },
        );
        let check = packets.check(stamp, &ufrag, 160);
        let header = parse(&check).unwrap();
        assert_eq!(header.class, Class::Request);
        assert_eq!(header.local_ufrag(), Ok(ufrag.as_bytes()));
        let answer = packets.answer(stamp, 160);
        assert_eq!(parse(&answer).unwrap().class, Class::Success);
        let media = packets.media(stamp, 160);
        for (packet, kind) in [
            (check, Kind::Check),
            (answer, Kind::Answer),
            (media, Kind::Media),
            (packets.media(stamp, MEDIA_LEN_MIN), Kind::Media),
            (packets.media(stamp, 1472), Kind::Media),
        ] {
            assert_eq!(packets.read(&packet), Some((kind, stamp)));
            if packet.len() > 100 {
                let mut changed = packet.clone();
                changed[90] ^= 1;
                assert_eq!(packets.read(&changed), None);
            }
        }
    }
}
