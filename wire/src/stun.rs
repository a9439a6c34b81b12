//! The STUN peek (RFC 8489 §5): class, transaction id and the ufrag a request is addressed to.
//!
//! A PoP reads this much of a client's packet and nothing else. It is not a STUN implementation: integrity
//! is checked by the transceiver, which holds the password.
//!
//! ```text
//!  0      2      4          8                      20
//!  +------+------+----------+----------------------+-----------------
//!  | type | len  | 2112A442 | transaction id (96)  | attributes ...
//!  +------+------+----------+----------------------+-----------------
//! ```

/// Magic cookie of RFC 8489 §5.
pub const MAGIC_COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];
/// Bytes of the fixed STUN header.
pub const HEADER_LEN: usize = 20;
/// USERNAME attribute (RFC 8489 §14.3).
pub const ATTR_USERNAME: u16 = 0x0006;
/// The longest USERNAME RFC 8489 §14.3 allows, in bytes.
pub const USERNAME_LEN_MAX: usize = 508;

/// What the first byte of a client's packet says it is (RFC 7983 §7, RFC 9443).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// 0..=3
    Stun,
    /// 20..=63
    Dtls,
    /// 128..=191: RTP or RTCP
    Rtp,
    /// Anything else: ZRTP, TURN channel data, QUIC, noise, or an empty packet.
    Other,
}

impl PacketKind {
    /// Classifies by first byte.
    #[must_use]
    pub const fn of(packet: &[u8]) -> Self {
        match packet.first() {
            Some(0..=3) => Self::Stun,
            Some(20..=63) => Self::Dtls,
            Some(128..=191) => Self::Rtp,
            _ => Self::Other,
        }
    }
}

/// Class of a STUN message (RFC 8489 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A request.
    Request,
    /// An indication; never answered.
    Indication,
    /// A success response.
    Success,
    /// An error response.
    Error,
}

/// A well-formed STUN header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Class bits of the type.
    pub class: Class,
    /// Method bits of the type; Binding is 1.
    pub method: u16,
    /// 96-bit transaction id.
    pub transaction_id: [u8; 12],
    /// The attributes, exactly as long as the header says.
    pub attributes: &'a [u8],
}

/// Method number of Binding (RFC 8489 §18.2).
pub const METHOD_BINDING: u16 = 1;

/// Why bytes that looked like STUN are not a usable STUN message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StunError {
    /// Shorter than its header, or than the length the header claims.
    #[error("truncated")]
    Truncated,
    /// First two bits set, wrong cookie, or a length that is not a multiple of four.
    #[error("not STUN")]
    NotStun,
    /// An attribute runs over the end of the message.
    #[error("attribute overruns the message")]
    BadAttribute,
    /// No USERNAME, or one without the colon of RFC 8445 §7.2.2, or too long.
    #[error("no usable USERNAME")]
    NoUsername,
}

/// Parses the header. Bytes after the length the header claims are an error: a UDP datagram carries one message.
///
/// # Errors
/// See [`StunError`].
pub fn parse(packet: &[u8]) -> Result<Header<'_>, StunError> {
    let (head, attributes) = packet
        .split_first_chunk::<HEADER_LEN>()
        .ok_or(StunError::Truncated)?;
    let [t0, t1, l0, l1, c0, c1, c2, c3, transaction_id @ ..] = *head;
    if t0 & 0xc0 != 0 || [c0, c1, c2, c3] != MAGIC_COOKIE {
        return Err(StunError::NotStun);
    }
    let len = usize::from(u16::from_be_bytes([l0, l1]));
    if !len.is_multiple_of(4) {
        return Err(StunError::NotStun);
    }
    if len != attributes.len() {
        return Err(StunError::Truncated);
    }
    let kind = u16::from_be_bytes([t0, t1]);
    Ok(Header {
        class: class_of(kind),
        method: method_of(kind),
        transaction_id,
        attributes,
    })
}

const fn class_of(kind: u16) -> Class {
    match ((kind >> 8) & 1, (kind >> 4) & 1) {
        (0, 0) => Class::Request,
        (0, _) => Class::Indication,
        (_, 0) => Class::Success,
        (_, _) => Class::Error,
    }
}

const fn method_of(kind: u16) -> u16 {
    (kind & 0x000f) | ((kind & 0x00e0) >> 1) | ((kind & 0x3e00) >> 2)
}

/// One attribute: its type and its unpadded value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Attribute type.
    pub kind: u16,
    /// Value without padding.
    pub value: &'a [u8],
    /// Offset of the attribute's own header from the start of the attributes, in bytes.
    pub offset: usize,
}

/// Walks attributes in order; a malformed one ends the walk with an error.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Header<'a> {
    /// The attributes in order, unknown ones included.
    #[must_use]
    pub const fn attributes(&self) -> Attributes<'a> {
        Attributes {
            all: self.attributes,
            at: 0,
        }
    }

    /// The ufrag of the party a request is addressed to: USERNAME up to the first colon (RFC 8445 §7.2.2).
    ///
    /// # Errors
    /// [`StunError::NoUsername`] or [`StunError::BadAttribute`].
    pub fn local_ufrag(&self) -> Result<&'a [u8], StunError> {
        let username = self.username()?;
        let colon = username
            .iter()
            .position(|b| *b == b':')
            .ok_or(StunError::NoUsername)?;
        username.get(..colon).ok_or(StunError::NoUsername)
    }

    /// The first USERNAME attribute.
    ///
    /// # Errors
    /// [`StunError::NoUsername`] or [`StunError::BadAttribute`].
    pub fn username(&self) -> Result<&'a [u8], StunError> {
        for attribute in self.attributes() {
            let attribute = attribute?;
            if attribute.kind == ATTR_USERNAME {
                if attribute.value.len() > USERNAME_LEN_MAX {
                    return Err(StunError::NoUsername);
                }
                return Ok(attribute.value);
            }
        }
        Err(StunError::NoUsername)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, StunError>;

    fn next(&mut self) -> Option<Self::Item> {
        let offset = self.at;
        let rest = self.all.get(offset..)?;
        if rest.is_empty() {
            return None;
        }
        self.at = self.all.len();
        let Some(([k0, k1, l0, l1], body)) = rest.split_first_chunk::<4>() else {
            return Some(Err(StunError::BadAttribute));
        };
        let len = usize::from(u16::from_be_bytes([*l0, *l1]));
        let Some(value) = body.get(..len) else {
            return Some(Err(StunError::BadAttribute));
        };
        self.at = offset + 4 + len.next_multiple_of(4);
        Some(Ok(Attribute {
            kind: u16::from_be_bytes([*k0, *k1]),
            value,
            offset,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: &[u8] = include_bytes!("../corpora/stun/rfc5769-2.1-request");
    const IPV4_RESPONSE: &[u8] = include_bytes!("../corpora/stun/rfc5769-2.2-ipv4-response");
    const IPV6_RESPONSE: &[u8] = include_bytes!("../corpora/stun/rfc5769-2.3-ipv6-response");
    const LONG_TERM: &[u8] = include_bytes!("../corpora/stun/rfc5769-2.4-long-term-request");

    #[test]
    fn rfc5769_request() {
        let header = parse(REQUEST).unwrap();
        assert_eq!(
            (header.class, header.method),
            (Class::Request, METHOD_BINDING)
        );
        assert_eq!(
            header.transaction_id,
            [
                0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae
            ]
        );
        assert_eq!(header.username(), Ok(&b"evtj:h6vY"[..]));
        assert_eq!(header.local_ufrag(), Ok(&b"evtj"[..]));
        let kinds: Vec<u16> = header.attributes().map(|a| a.unwrap().kind).collect();
        assert_eq!(kinds, [0x8022, 0x0024, 0x8029, 0x0006, 0x0008, 0x8028]);
    }

    #[test]
    fn rfc5769_responses() {
        for packet in [IPV4_RESPONSE, IPV6_RESPONSE] {
            let header = parse(packet).unwrap();
            assert_eq!(
                (header.class, header.method),
                (Class::Success, METHOD_BINDING)
            );
            assert_eq!(header.local_ufrag(), Err(StunError::NoUsername));
        }
    }

    #[test]
    fn rfc5769_long_term_request_has_no_ufrag() {
        let header = parse(LONG_TERM).unwrap();
        assert_eq!(header.username(), Ok("マトリックス".as_bytes()));
        assert_eq!(header.local_ufrag(), Err(StunError::NoUsername));
    }

    #[test]
    fn every_truncation_of_a_request_is_refused() {
        for len in 0..REQUEST.len() {
            assert!(parse(&REQUEST[..len]).is_err(), "{len} bytes");
        }
        let longer = [REQUEST, &[0; 4]].concat();
        assert_eq!(parse(&longer), Err(StunError::Truncated));
    }

    #[test]
    fn headers_that_are_not_stun() {
        let with = |at: usize, byte: u8| {
            let mut packet = REQUEST.to_vec();
            packet[at] = byte;
            parse(&packet).map(|_| ())
        };
        assert_eq!(with(0, 0x80), Err(StunError::NotStun));
        assert_eq!(with(4, 0x22), Err(StunError::NotStun));
        assert_eq!(with(3, 0x59), Err(StunError::NotStun));
        assert_eq!(with(3, 0x5c), Err(StunError::Truncated));
    }

    #[test]
    fn classes_and_methods() {
        for (kind, class, method) in [
            (0x0001, Class::Request, 1),
            (0x0011, Class::Indication, 1),
            (0x0101, Class::Success, 1),
            (0x0111, Class::Error, 1),
            (0x0003, Class::Request, 3),
            (0x3eef, Class::Request, 0xfff),
        ] {
            assert_eq!(
                (class_of(kind), method_of(kind)),
                (class, method),
                "{kind:04x}"
            );
        }
    }

    #[test]
    fn a_long_unknown_attribute_is_skipped() {
        // DTLS inside STUN: over a kilobyte before the USERNAME.
        let packet = include_bytes!("../corpora/stun/unknown-1200-byte-attribute-first");
        let header = parse(packet).unwrap();
        assert_eq!(header.local_ufrag(), Ok(&b"AbCdEfGhIjKlMnOpQrStUvW"[..]));
    }

    #[test]
    fn an_attribute_that_overruns_ends_the_walk() {
        let packet = include_bytes!("../corpora/stun/attribute-overrun");
        let header = parse(packet).unwrap();
        assert_eq!(header.username(), Err(StunError::BadAttribute));
        assert_eq!(header.attributes().count(), 1);
    }

    #[test]
    fn first_byte_decides_the_kind() {
        let kinds = (0..=255u8).map(|b| PacketKind::of(&[b]));
        for (first, kind) in (0..=255u8).zip(kinds) {
            let expected = match first {
                0..=3 => PacketKind::Stun,
                20..=63 => PacketKind::Dtls,
                128..=191 => PacketKind::Rtp,
                _ => PacketKind::Other,
            };
            assert_eq!(kind, expected, "{first}");
        }
        assert_eq!(PacketKind::of(&[]), PacketKind::Other);
    }
}
