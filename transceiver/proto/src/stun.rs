//! Binding requests and responses with short-term credentials (RFC 8489 §9.1, RFC 8445 §7).
//!
//! Verification works on the received bytes in place; answers are built in a buffer of the caller's.

use std::net::{IpAddr, SocketAddr};

use ring::hmac;
use subtle::ConstantTimeEq;
use wire::stun::{self, Class, HEADER_LEN, Header, MAGIC_COOKIE, METHOD_BINDING, StunError};

const ATTR_USERNAME: u16 = stun::ATTR_USERNAME;
const ATTR_MESSAGE_INTEGRITY: u16 = 0x0008;
const ATTR_ERROR_CODE: u16 = 0x0009;
const ATTR_UNKNOWN_ATTRIBUTES: u16 = 0x000a;
const ATTR_MESSAGE_INTEGRITY_SHA256: u16 = 0x001c;
const ATTR_XOR_MAPPED_ADDRESS: u16 = 0x0020;
const ATTR_PRIORITY: u16 = 0x0024;
const ATTR_USE_CANDIDATE: u16 = 0x0025;
const ATTR_FINGERPRINT: u16 = 0x8028;
const ATTR_ICE_CONTROLLED: u16 = 0x8029;
const ATTR_ICE_CONTROLLING: u16 = 0x802a;
/// Attributes below this must be understood (RFC 8489 §14).
const COMPREHENSION_OPTIONAL: u16 = 0x8000;
const INTEGRITY_LEN: usize = 20;
const FINGERPRINT_XOR: u32 = 0x5354_554e;
/// Unknown attributes listed in one error response at most.
const UNKNOWN_MAX: usize = 8;

/// A Binding request whose attributes are well-formed. Nothing is authenticated yet.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    header: Header<'a>,
    username: &'a [u8],
    integrity: Option<(usize, &'a [u8])>,
    /// The client nominates the path this request came by (RFC 8445 §7.1.2).
    pub use_candidate: bool,
    /// The client claims our role (RFC 8445 §7.3.1.1).
    pub controlled: bool,
    unknown: [u16; UNKNOWN_MAX],
    unknown_count: usize,
}

/// Why bytes are not a Binding request that can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not a Binding request; it may still be a packet for a session.
    #[error("not a Binding request")]
    NotBinding,
    /// A Binding request that does not parse, or that lacks USERNAME.
    #[error(transparent)]
    Malformed(#[from] StunError),
    /// FINGERPRINT is present and wrong, or not last (RFC 8489 §14.7).
    #[error("wrong FINGERPRINT")]
    Fingerprint,
}

impl<'a> Request<'a> {
    /// Parses a Binding request.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn parse(packet: &'a [u8]) -> Result<Self, RequestError> {
        let header = stun::parse(packet).map_err(|_| RequestError::NotBinding)?;
        if header.class != Class::Request || header.method != METHOD_BINDING {
            return Err(RequestError::NotBinding);
        }
        let mut request = Self {
            username: header.username()?,
            header,
            integrity: None,
            use_candidate: false,
            controlled: false,
            unknown: [0; UNKNOWN_MAX],
            unknown_count: 0,
        };
        request.walk(packet)?;
        Ok(request)
    }

    fn walk(&mut self, packet: &[u8]) -> Result<(), RequestError> {
        for attribute in self.header.attributes() {
            let attribute = attribute?;
            if attribute.kind == ATTR_FINGERPRINT {
                let end = attribute.offset + 8;
                if end != self.header.attributes.len()
                    || !fingerprint_matches(packet, attribute.offset, attribute.value)
                {
                    return Err(RequestError::Fingerprint);
                }
            } else if self.integrity.is_none() {
                // What follows MESSAGE-INTEGRITY is not covered by it and is ignored (RFC 8489 §14.5).
                self.take(attribute);
            }
        }
        Ok(())
    }

    fn take(&mut self, attribute: stun::Attribute<'a>) {
        match attribute.kind {
            ATTR_MESSAGE_INTEGRITY => self.integrity = Some((attribute.offset, attribute.value)),
            ATTR_USE_CANDIDATE => self.use_candidate = true,
            ATTR_ICE_CONTROLLED => self.controlled = true,
            ATTR_USERNAME
            | ATTR_PRIORITY
            | ATTR_MESSAGE_INTEGRITY_SHA256
            | ATTR_ICE_CONTROLLING => {}
            COMPREHENSION_OPTIONAL.. => {}
            unknown => {
                if let Some(slot) = self.unknown.get_mut(self.unknown_count) {
                    *slot = unknown;
                    self.unknown_count += 1;
                }
            }
        }
    }

    /// The ufrag the request is addressed to and the sender's own (RFC 8445 §7.2.2).
    #[must_use]
    pub fn ufrags(&self) -> Option<(&'a [u8], &'a [u8])> {
        let colon = self.username.iter().position(|byte| *byte == b':')?;
        Some((self.username.get(..colon)?, self.username.get(colon + 1..)?))
    }

    /// Whether MESSAGE-INTEGRITY is present and made with `password`. Constant time in the tag.
    #[must_use]
    pub fn is_authentic(&self, password: &[u8]) -> bool {
        let Some((offset, tag)) = self.integrity.filter(|(_, tag)| tag.len() == INTEGRITY_LEN)
        else {
            return false;
        };
        let Some(covered) = self.header.attributes.get(..offset) else {
            return false;
        };
        let Ok(length) = u16::try_from(offset + 4 + INTEGRITY_LEN) else {
            return false;
        };
        let [l0, l1] = length.to_be_bytes();
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password);
        let mut context = hmac::Context::with_key(&key);
        context.update(&[0, 1, l0, l1]);
        context.update(&MAGIC_COOKIE);
        context.update(&self.header.transaction_id);
        context.update(covered);
        context.sign().as_ref().ct_eq(tag).into()
    }

    /// Attributes that must be understood and are not.
    #[must_use]
    pub fn unknown(&self) -> &[u16] {
        self.unknown.get(..self.unknown_count).unwrap_or_default()
    }

    /// The transaction.
    #[must_use]
    pub const fn transaction_id(&self) -> &[u8; 12] {
        &self.header.transaction_id
    }
}

fn fingerprint_matches(packet: &[u8], attribute_offset: usize, value: &[u8]) -> bool {
    let Some(covered) = packet.get(..HEADER_LEN + attribute_offset) else {
        return false;
    };
    value == (crc32(covered) ^ FINGERPRINT_XOR).to_be_bytes()
}

/// CRC-32 of ITU-T V.42, as RFC 8489 §14.7 asks. A table of 16 entries: STUN is rare beside media.
#[must_use]
fn crc32(bytes: &[u8]) -> u32 {
    const fn table() -> [u32; 16] {
        let mut table = [0; 16];
        let mut index = 0;
        while index < 16u32 {
            let mut crc = index;
            let mut bit = 0;
            while bit < 4 {
                crc = if crc & 1 == 1 {
                    0xedb8_8320 ^ (crc >> 1)
                } else {
                    crc >> 1
                };
                bit += 1;
            }
            #[expect(
                clippy::indexing_slicing,
                reason = "index runs to the length, at compile time"
            )]
            {
                table[index as usize] = crc;
            }
            index += 1;
        }
        table
    }
    const TABLE: [u32; 16] = table();
    let step = |crc: u32, nibble: u32| {
        TABLE
            .get((crc ^ nibble) as usize & 15)
            .copied()
            .unwrap_or(0)
            ^ (crc >> 4)
    };
    !bytes.iter().fold(!0, |crc, byte| {
        step(step(crc, u32::from(*byte)), u32::from(*byte >> 4))
    })
}

/// Builds one STUN message in a reused buffer.
pub struct Builder<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Builder<'a> {
    /// Starts a message of `kind` (method and class bits) in `out`, which is emptied first.
    pub fn new(out: &'a mut Vec<u8>, kind: u16, transaction_id: &[u8; 12]) -> Self {
        out.clear();
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(&MAGIC_COOKIE);
        out.extend_from_slice(transaction_id);
        Self { out }
    }

    /// Appends an attribute with its padding.
    pub fn attribute(self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.out.extend_from_slice(&kind.to_be_bytes());
        self.out.extend_from_slice(&length.to_be_bytes());
        self.out.extend_from_slice(value);
        self.out.resize(self.out.len().next_multiple_of(4), 0);
        self
    }

    /// XOR-MAPPED-ADDRESS (RFC 8489 §14.2).
    pub fn xor_mapped_address(self, transaction_id: &[u8; 12], address: SocketAddr) -> Self {
        let [m0, m1, m2, m3] = MAGIC_COOKIE;
        let [p0, p1] = address.port().to_be_bytes();
        let mask: Vec<u8> = [m0, m1, m2, m3]
            .into_iter()
            .chain(*transaction_id)
            .collect();
        let (family, octets) = match address.ip() {
            IpAddr::V4(ip) => (1, ip.octets().to_vec()),
            IpAddr::V6(ip) => (2, ip.octets().to_vec()),
        };
        let mut value = vec![0, family, p0 ^ m0, p1 ^ m1];
        value.extend(octets.iter().zip(&mask).map(|(octet, mask)| octet ^ mask));
        self.attribute(ATTR_XOR_MAPPED_ADDRESS, &value)
    }

    /// ERROR-CODE (RFC 8489 §14.8).
    pub fn error_code(self, code: u16, reason: &str) -> Self {
        let [class, number] = [code / 100, code % 100].map(|part| u8::try_from(part).unwrap_or(0));
        let mut value = vec![0, 0, class, number];
        value.extend_from_slice(reason.as_bytes());
        self.attribute(ATTR_ERROR_CODE, &value)
    }

    /// Closes the message with MESSAGE-INTEGRITY and FINGERPRINT.
    pub fn finish(mut self, password: &[u8]) {
        self.set_length(4 + INTEGRITY_LEN);
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, password);
        let tag = hmac::sign(&key, self.out);
        let mut this = self.attribute(ATTR_MESSAGE_INTEGRITY, tag.as_ref());
        this.set_length(8);
        let fingerprint = crc32(this.out) ^ FINGERPRINT_XOR;
        this.attribute(ATTR_FINGERPRINT, &fingerprint.to_be_bytes());
    }

    /// Writes the length the message has once `more` bytes have followed.
    fn set_length(&mut self, more: usize) {
        let length =
            u16::try_from(self.out.len().saturating_sub(HEADER_LEN) + more).unwrap_or(u16::MAX);
        if let Some([_, _, l0, l1, ..]) = self.out.first_chunk_mut::<HEADER_LEN>() {
            [*l0, *l1] = length.to_be_bytes();
        }
    }
}

/// A Binding request of a controlling agent that nominates its path. The virtual pair of the media engine needs it.
pub fn nominating_request(
    out: &mut Vec<u8>,
    transaction_id: &[u8; 12],
    username: &str,
    password: &[u8],
) {
    Builder::new(out, BINDING_REQUEST, transaction_id)
        .attribute(ATTR_USERNAME, username.as_bytes())
        .attribute(ATTR_PRIORITY, &0x7eff_ffff_u32.to_be_bytes())
        .attribute(ATTR_ICE_CONTROLLING, &[0x7f; 8])
        .attribute(ATTR_USE_CANDIDATE, &[])
        .finish(password);
}

/// The success response to a Binding request that came from `source`.
pub fn success_response(
    out: &mut Vec<u8>,
    transaction_id: &[u8; 12],
    source: SocketAddr,
    password: &[u8],
) {
    Builder::new(out, BINDING_SUCCESS, transaction_id)
        .xor_mapped_address(transaction_id, source)
        .finish(password);
}

/// 487: the client claims our role, and we are lite, so controlled (RFC 8445 §7.3.1.1).
pub fn role_conflict(out: &mut Vec<u8>, transaction_id: &[u8; 12], password: &[u8]) {
    Builder::new(out, BINDING_ERROR, transaction_id)
        .error_code(487, "Role Conflict")
        .finish(password);
}

/// 420: attributes that must be understood and are not (RFC 8489 §6.3.1).
pub fn unknown_attributes(
    out: &mut Vec<u8>,
    transaction_id: &[u8; 12],
    unknown: &[u16],
    password: &[u8],
) {
    let list: Vec<u8> = unknown.iter().flat_map(|kind| kind.to_be_bytes()).collect();
    Builder::new(out, BINDING_ERROR, transaction_id)
        .error_code(420, "Unknown Attribute")
        .attribute(ATTR_UNKNOWN_ATTRIBUTES, &list)
        .finish(password);
}

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 5769 §2.1, sample request: username "evtj:h6vY", password "VOkJxbRl1RmTxUk/WvJxBt".
    const SAMPLE_REQUEST: &[u8] = &[
        0x00, 0x01, 0x00, 0x58, 0x21, 0x12, 0xa4, 0x42, 0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6,
        0x86, 0xfa, 0x87, 0xdf, 0xae, 0x80, 0x22, 0x00, 0x10, 0x53, 0x54, 0x55, 0x4e, 0x20, 0x74,
        0x65, 0x73, 0x74, 0x20, 0x63, 0x6c, 0x69, 0x65, 0x6e, 0x74, 0x00, 0x24, 0x00, 0x04, 0x6e,
        0x00, 0x01, 0xff, 0x80, 0x29, 0x00, 0x08, 0x93, 0x2f, 0xf9, 0xb1, 0x51, 0x26, 0x3b, 0x36,
        0x00, 0x06, 0x00, 0x09, 0x65, 0x76, 0x74, 0x6a, 0x3a, 0x68, 0x36, 0x76, 0x59, 0x20, 0x20,
        0x20, 0x00, 0x08, 0x00, 0x14, 0x9a, 0xea, 0xa7, 0x0c, 0xbf, 0xd8, 0xcb, 0x56, 0x78, 0x1e,
        0xf2, 0xb5, 0xb2, 0xd3, 0xf2, 0x49, 0xc1, 0xb5, 0x71, 0xa2, 0x80, 0x28, 0x00, 0x04, 0xe5,
        0x7a, 0x3b, 0xcf,
    ];
    /// RFC 5769 §2.2, sample IPv4 response: 192.0.2.1:32853.
    const SAMPLE_RESPONSE_MAPPED: &[u8] = &[
        0x00, 0x20, 0x00, 0x08, 0x00, 0x01, 0xa1, 0x47, 0xe1, 0x12, 0xa6, 0x43,
    ];
    const PASSWORD: &[u8] = b"VOkJxbRl1RmTxUk/WvJxBt";

    #[test]
    fn the_sample_request_of_rfc_5769_is_authentic() {
        let request = Request::parse(SAMPLE_REQUEST).unwrap();
        assert_eq!(request.ufrags(), Some((&b"evtj"[..], &b"h6vY"[..])));
        assert!(request.is_authentic(PASSWORD));
        assert!(!request.is_authentic(b"VOkJxbRl1RmTxUk/WvJxBu"));
        assert!(request.controlled && !request.use_candidate && request.unknown().is_empty());
    }

    #[test]
    fn every_flipped_bit_of_the_sample_is_noticed() {
        // Up to FINGERPRINT, which MESSAGE-INTEGRITY does not cover.
        for bit in 0..(SAMPLE_REQUEST.len() - 8) * 8 {
            let mut packet = SAMPLE_REQUEST.to_vec();
            packet[bit / 8] ^= 1 << (bit % 8);
            let authentic =
                Request::parse(&packet).is_ok_and(|request| request.is_authentic(PASSWORD));
            assert!(!authentic, "bit {bit}");
        }
    }

    #[test]
    fn the_mapped_address_of_rfc_5769() {
        let transaction = [
            0xb7, 0xe7, 0xa7, 0x01, 0xbc, 0x34, 0xd6, 0x86, 0xfa, 0x87, 0xdf, 0xae,
        ];
        let mut out = Vec::new();
        success_response(
            &mut out,
            &transaction,
            "192.0.2.1:32853".parse().unwrap(),
            PASSWORD,
        );
        assert_eq!(&out[20..32], SAMPLE_RESPONSE_MAPPED);
        assert_eq!(
            usize::from(u16::from_be_bytes([out[2], out[3]])),
            out.len() - 20
        );
    }

    #[test]
    fn what_we_build_verifies() {
        let mut out = Vec::new();
        nominating_request(&mut out, &[7; 12], "left:right", PASSWORD);
        let request = Request::parse(&out).unwrap();
        assert!(request.is_authentic(PASSWORD) && request.use_candidate);
        assert_eq!(request.ufrags(), Some((&b"left"[..], &b"right"[..])));
    }

    #[test]
    fn unknown_attributes_below_0x8000_are_listed_and_others_skipped() {
        let mut out = Vec::new();
        Builder::new(&mut out, BINDING_REQUEST, &[7; 12])
            .attribute(ATTR_USERNAME, b"a:b")
            .attribute(0x7abc, b"?")
            .attribute(0xc070, &[0; 1000])
            .finish(PASSWORD);
        let request = Request::parse(&out).unwrap();
        assert!(request.is_authentic(PASSWORD));
        assert_eq!(request.unknown(), [0x7abc]);
    }

    #[test]
    fn attributes_after_integrity_are_ignored() {
        let mut out = Vec::new();
        nominating_request(&mut out, &[7; 12], "a:b", PASSWORD);
        out.truncate(out.len() - 8);
        let mut builder = Builder { out: &mut out }
            .attribute(ATTR_ICE_CONTROLLED, &[0; 8])
            .attribute(0x7abc, b"?");
        builder.set_length(0);
        let request = Request::parse(&out).unwrap();
        assert!(
            request.is_authentic(PASSWORD) && !request.controlled && request.unknown().is_empty()
        );
    }
}
