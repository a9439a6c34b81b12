//! EDNS client subnet (RFC 7871): read strictly, echoed exactly.
//!
//! ```text
//!  0        2        3       4
//!  +--------+--------+-------+------------------------+
//!  | family | source | scope | address, cut to source |
//!  +--------+--------+-------+------------------------+
//! ```
//!
//! A query whose option is not exactly this, with scope 0, the fewest address bytes the source prefix needs and no bit set beyond
//! it, is FORMERR (§7.1.2 and §6). That is as strict as gdnsd is, and stricter than most.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Option code.
pub const CODE: u16 = 8;
/// Family of IPv4.
const V4: u16 = 1;
/// Family of IPv6.
const V6: u16 = 2;
/// Bytes in front of the address.
const FIXED_BYTES: usize = 4;
/// The longest option, without its code and length.
pub const OPTION_BYTES_MAX: usize = FIXED_BYTES + 16;

/// The network a resolver asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    address: IpAddr,
    source: u8,
}

/// The option is not what RFC 7871 allows in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("client subnet option is malformed")]
pub struct Malformed;

impl Subnet {
    /// From the data of an option in a query.
    ///
    /// # Errors
    /// See [`Malformed`].
    pub fn parse(data: &[u8]) -> Result<Self, Malformed> {
        let ([f0, f1, source, scope], address) = data.split_first_chunk().ok_or(Malformed)?;
        if *scope != 0 {
            return Err(Malformed);
        }
        let (source, family) = (*source, u16::from_be_bytes([*f0, *f1]));
        let address = match family {
            V4 => IpAddr::V4(Ipv4Addr::from_bits(bits_v4(address, source)?)),
            V6 => IpAddr::V6(Ipv6Addr::from_bits(bits_v6(address, source)?)),
            _ => return Err(Malformed),
        };
        Ok(Self { address, source })
    }

    /// Its first address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// Its prefix length.
    #[must_use]
    pub const fn source(self) -> u8 {
        self.source
    }

    /// Whether the client wants nothing to be known of it (§7.1.2): the resolver's address counts then, and the scope is 0.
    #[must_use]
    pub const fn is_opt_out(self) -> bool {
        self.source == 0
    }

    /// Bytes of the option's data in an answer.
    #[must_use]
    pub const fn option_len(self) -> usize {
        FIXED_BYTES + (self.source as usize).div_ceil(8)
    }

    /// The option's data in an answer: family, source and address as asked (§7.2.1), and the scope. The first
    /// [`Self::option_len`] bytes of what is returned count; the others are zero.
    #[must_use]
    pub fn option(self, scope: u8) -> [u8; OPTION_BYTES_MAX] {
        let mut data = [0; OPTION_BYTES_MAX];
        let (fixed, address) = data.split_at_mut(FIXED_BYTES);
        let family = match self.address {
            IpAddr::V4(v4) => {
                let octets = v4.octets();
                address
                    .iter_mut()
                    .zip(octets)
                    .for_each(|(to, from)| *to = from);
                V4
            }
            IpAddr::V6(v6) => {
                address.copy_from_slice(&v6.octets());
                V6
            }
        };
        let [f0, f1] = family.to_be_bytes();
        fixed.copy_from_slice(&[f0, f1, self.source, scope]);
        data
    }
}

impl std::fmt::Debug for Subnet {
    /// Never the address.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let family = if self.address.is_ipv4() { 4 } else { 6 };
        write!(f, "Subnet(v{family}/{})", self.source)
    }
}

fn bits_v4(address: &[u8], source: u8) -> Result<u32, Malformed> {
    if source > 32 || address.len() != usize::from(source).div_ceil(8) {
        return Err(Malformed);
    }
    let mut octets = [0; 4];
    octets
        .iter_mut()
        .zip(address)
        .for_each(|(to, from)| *to = *from);
    let bits = u32::from_be_bytes(octets);
    let beyond = u32::MAX.checked_shr(source.into()).unwrap_or(0);
    if bits & beyond == 0 {
        Ok(bits)
    } else {
        Err(Malformed)
    }
}

fn bits_v6(address: &[u8], source: u8) -> Result<u128, Malformed> {
    if source > 128 || address.len() != usize::from(source).div_ceil(8) {
        return Err(Malformed);
    }
    let mut octets = [0; 16];
    octets
        .iter_mut()
        .zip(address)
        .for_each(|(to, from)| *to = *from);
    let bits = u128::from_be_bytes(octets);
    let beyond = u128::MAX.checked_shr(source.into()).unwrap_or(0);
    if bits & beyond == 0 {
        Ok(bits)
    } else {
        Err(Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16);
        digits.chunks(2).map(|pair| byte(pair).unwrap()).collect()
    }

    /// What gdnsd 3.8.1 answers to each; only the scope of a well-formed one is ours.
    #[test]
    fn the_table_of_options() {
        let good = [
            ("0001 18 00 080808", "8.8.8.0", 24),
            ("0001 20 00 08080808", "8.8.8.8", 32),
            ("0001 00 00", "0.0.0.0", 0),
            ("0001 01 00 80", "128.0.0.0", 1),
            ("0001 17 00 080808", "8.8.8.0", 23),
            ("0002 38 00 2a000001000200", "2a00:1:2::", 56),
            ("0002 00 00", "::", 0),
            (
                "0002 80 00 2a000000000000000000000000000001",
                "2a00::1",
                128,
            ),
            ("0002 60 00 00000000000000000000ffff", "::ffff:0.0.0.0", 96),
        ];
        for (hex, address, source) in good {
            let subnet = Subnet::parse(&data(hex)).unwrap();
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(
                (subnet.address(), subnet.source()),
                (address, source),
                "{hex}"
            );
            assert_eq!(subnet.is_opt_out(), source == 0);
            let mut echoed = data(hex);
            echoed[3] = 7;
            assert_eq!(subnet.option(7)[..subnet.option_len()], echoed, "{hex}");
            assert!(
                subnet.option(7)[subnet.option_len()..]
                    .iter()
                    .all(|byte| *byte == 0)
            );
        }
        let bad = [
            ("0001 18 18 080808", "scope other than 0"),
            (
                "0001 18 00 08080808",
                "address longer than the prefix needs",
            ),
            ("0001 18 00 0808", "address too short"),
            ("0001 17 00 080809", "bits beyond the prefix"),
            ("0001 21 00 0808080808", "prefix longer than the family has"),
            (
                "0002 81 00 2a00000000000000000000000000000100",
                "idem for IPv6",
            ),
            ("0000 00 00", "family 0"),
            ("0003 18 00 080808", "family 3"),
            ("0000 18 00 080808", "family 0 with an address"),
            ("0001 18", "no scope"),
            ("", "empty"),
            ("0001 00 00 00", "an address where none is needed"),
            ("0001 00 01", "opt-out with a scope"),
            ("0002 38 00 2a0000010002", "IPv6 too short"),
            ("0002 37 00 2a000001000201", "IPv6 bits beyond the prefix"),
        ];
        for (hex, why) in bad {
            assert_eq!(Subnet::parse(&data(hex)), Err(Malformed), "{why}");
        }
    }

    #[test]
    fn debug_shows_no_address() {
        let subnet = Subnet::parse(&data("0001 18 00 080808")).unwrap();
        assert_eq!(format!("{subnet:?}"), "Subnet(v4/24)");
    }
}
