//! Questions as resolvers send them: one name, EDNS0 with a client subnet (RFC 7871), for some a client cookie (RFC 7873).

use std::net::IpAddr;

use bytes::BufMut as _;

/// The zone of the comparison.
pub const ZONE: &str = "geo.test";
/// The name whose answer depends on the client.
pub const NAME: &str = "signaling.geo.test";
/// A record type.
pub const A: u16 = 1;
/// A record type.
pub const AAAA: u16 = 28;

/// A client subnet: an address without bits beyond its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    /// Network address.
    pub address: IpAddr,
    /// SOURCE PREFIX-LENGTH.
    pub prefix_len: u8,
}

impl Subnet {
    /// Cuts `address` to its first bits.
    #[must_use]
    pub fn new(address: IpAddr, prefix_len: u8) -> Self {
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix_len));
                std::net::Ipv4Addr::from_bits(v4.to_bits() & mask.unwrap_or_default()).into()
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix_len));
                std::net::Ipv6Addr::from_bits(v6.to_bits() & mask.unwrap_or_default()).into()
            }
        };
        Self {
            address,
            prefix_len,
        }
    }

    fn option(self, out: &mut Vec<u8>) {
        let bytes = match self.address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let len = usize::from(self.prefix_len.div_ceil(8));
        let family = if self.address.is_ipv4() { 1 } else { 2 };
        out.put_u16(CLIENT_SUBNET);
        out.put_u16(u16::try_from(len).unwrap_or_default() + 4);
        out.put_u16(family);
        out.put_slice(&[self.prefix_len, 0]);
        out.extend(bytes.into_iter().take(len));
    }
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// A or AAAA.
    pub kind: u16,
    /// None: no such option.
    pub subnet: Option<Subnet>,
    /// A client's half of a cookie.
    pub cookie: Option<[u8; 8]>,
}

impl Query {
    /// The message, with an id of 0. Without subnet and cookie it has no EDNS.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut options = Vec::new();
        if let Some(subnet) = self.subnet {
            subnet.option(&mut options);
        }
        if let Some(cookie) = self.cookie {
            options.put_u16(COOKIE);
            options.put_u16(8);
            options.put_slice(&cookie);
        }
        let mut out = Vec::with_capacity(LEN_MAX);
        let additional = u16::from(!options.is_empty());
        for word in [0, 0, 1, 0, 0, additional] {
            out.put_u16(word);
        }
        for label in NAME.split('.') {
            out.put_u8(u8::try_from(label.len()).unwrap_or_default());
            out.put_slice(label.as_bytes());
        }
        out.put_slice(&[0]);
        out.put_u16(self.kind);
        out.put_u16(CLASS_IN);
        if !options.is_empty() {
            out.put_u8(0);
            out.put_u16(super::answer::OPT);
            out.put_u16(PAYLOAD_BYTES);
            out.put_u32(0);
            out.put_u16(u16::try_from(options.len()).unwrap_or_default());
            out.extend(options);
        }
        out
    }
}

/// An option of EDNS0.
pub(super) const CLIENT_SUBNET: u16 = 8;
/// An option of EDNS0.
pub(super) const COOKIE: u16 = 10;
/// Longest message there is.
pub const LEN_MAX: usize = 96;
const CLASS_IN: u16 = 1;
const PAYLOAD_BYTES: u16 = 1232;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_question() {
        let subnet = |address: &str, len| Subnet::new(address.parse().unwrap(), len);
        let query = Query {
            kind: A,
            subnet: Some(subnet("81.2.69.160", 20)),
            cookie: Some([7; 8]),
        };
        let bytes = query.write();
        assert_eq!(&bytes[..12], [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(&bytes[12..32], b"\x09signaling\x03geo\x04test\x00");
        let options = [
            &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 23][..],
            &[0, 8, 0, 7, 0, 1, 20, 0, 81, 2, 64],
            &[0, 10, 0, 8, 7, 7, 7, 7, 7, 7, 7, 7],
        ];
        assert_eq!(bytes[36..], options.concat());
        let plain = Query {
            subnet: None,
            cookie: None,
            ..query
        };
        assert_eq!(plain.write().len(), 36);
        assert_eq!(subnet("9.9.9.9", 0).address, subnet("0.0.0.0", 0).address);
        assert_eq!(
            subnet("::9", 128).address,
            IpAddr::from([0, 0, 0, 0, 0, 0, 0, 9])
        );
        let longest = Query {
            subnet: Some(subnet("2001:db8::1", 128)),
            ..query
        };
        assert!(longest.write().len() <= LEN_MAX);
    }
}
