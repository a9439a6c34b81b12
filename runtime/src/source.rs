//! Who counts as one source of connections: what one customer of a provider has, an IPv4 address or an IPv6 /56.
//!
//! It counts nothing: whoever bounds connections by source does.

use std::net::{IpAddr, Ipv6Addr};

const BITS_V6: u8 = 56;

/// The source that `address` belongs to. An IPv4 address is the same one however it is written.
#[must_use]
pub fn of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let mask = u128::MAX << (128 - BITS_V6);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_customer_are_one_source() {
        let of = |text: &str| of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1ff::1"), of("2001:db8:0:100::2"));
        assert_ne!(of("2001:db8:0:1ff::1"), of("2001:db8:0:200::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
