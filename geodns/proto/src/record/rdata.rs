//! RDATA of the types the zone has, in wire form.

use std::net::IpAddr;

use topology::Caa;

use crate::name::Name;
use crate::record::Type;

/// Fields of the SOA that are the same for every zone. Nothing transfers the zone, so they speak to checkers of zones only
/// (RFC 1912 §2.2): a secondary would look every four hours, again after one, and give up after two weeks.
const REFRESH_S: u32 = 14_400;
const RETRY_S: u32 = 3_600;
const EXPIRE_S: u32 = 1_209_600;

/// Builders of RDATA.
pub(crate) struct Rdata;

impl Rdata {
    /// A or AAAA, by the family of `address`.
    pub(crate) fn address(address: IpAddr) -> Vec<u8> {
        match address.to_canonical() {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        }
    }

    pub(crate) fn ns(server: &Name) -> Vec<u8> {
        server.as_wire().to_vec()
    }

    pub(crate) fn soa(primary: &Name, mailbox: &Name, serial: u32, minimum_s: u32) -> Vec<u8> {
        let mut rdata = [primary.as_wire(), mailbox.as_wire()].concat();
        for number in [serial, REFRESH_S, RETRY_S, EXPIRE_S, minimum_s] {
            rdata.extend_from_slice(&number.to_be_bytes());
        }
        rdata
    }

    /// One text of up to 255 bytes; a longer one becomes several strings of one record.
    pub(crate) fn txt(text: &str) -> Vec<u8> {
        let mut rdata = Vec::with_capacity(text.len() + 1);
        if text.is_empty() {
            rdata.push(0);
        }
        for chunk in text.as_bytes().chunks(usize::from(u8::MAX)) {
            character_string(chunk, &mut rdata);
        }
        rdata
    }

    /// The next name and the types of this one, to which those are added that each signed name has (RFC 4034 §4.1).
    pub(crate) fn nsec(next: &Name, types: &[Type]) -> Vec<u8> {
        let mut numbers: Vec<u16> = [Type::RRSIG, Type::NSEC]
            .iter()
            .chain(types)
            .map(|rtype| rtype.0)
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut rdata = next.as_wire().to_vec();
        for window in numbers.chunk_by(|a, b| a >> 8 == b >> 8) {
            type_bitmap(window, &mut rdata);
        }
        rdata
    }

    /// RFC 8659 §4.1.
    pub(crate) fn caa(caa: &Caa) -> Vec<u8> {
        let mut rdata = vec![if caa.critical { 0x80 } else { 0 }];
        character_string(caa.tag.as_bytes(), &mut rdata);
        rdata.extend_from_slice(caa.value.as_bytes());
        rdata
    }
}

/// One window of a type bitmap (RFC 4034 §4.1.2): types that have their upper byte in common.
fn type_bitmap(numbers: &[u16], out: &mut Vec<u8>) {
    let mut bits = [0_u8; 32];
    let (mut window, mut len) = (0, 0);
    for number in numbers {
        let [upper, lower] = number.to_be_bytes();
        let at = usize::from(lower >> 3);
        if let Some(byte) = bits.get_mut(at) {
            *byte |= 0x80 >> (lower & 7);
        }
        window = upper;
        len = len.max(at + 1);
    }
    out.extend([window, u8::try_from(len).unwrap_or(u8::MAX)]);
    out.extend(bits.iter().take(len));
}

/// A length byte and at most 255 bytes.
pub(super) fn character_string(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = bytes.get(..usize::from(u8::MAX)).unwrap_or(bytes);
    out.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(bytes);
}
