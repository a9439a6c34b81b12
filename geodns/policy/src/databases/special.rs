//! Addresses that say nothing of where a client is, and IPv6 addresses that carry the IPv4 address that does.
//!
//! ```text
//! carried IPv4 address          bits      why that address speaks for the client
//! ::ffff:0:0/96   mapped        96..128   an IPv4 client seen through an IPv6 socket (RFC 4291 §2.5.5.2)
//! ::ffff:0:0:0/96 translated    96..128   an IPv4 client behind a stateless translator (RFC 2765 §2.1, RFC 7915)
//! ::/96           compatible    96..128   the same, deprecated (RFC 4291 §2.5.5.1)
//! 64:ff9b::/96    NAT64         96..128   the IPv6 form of an IPv4 host (RFC 6052 §2.1)
//! 2002::/16       6to4          16..48    the site's IPv4 address (RFC 3056 §2)
//! 2001::/32       Teredo        96..128   the client's address outside its NAT, inverted (RFC 4380 §4)
//! ```
//!
//! Such a client is the IPv4 client everywhere: rules, measured prefixes and databases are asked for the IPv4 address.
//!
//! Addresses that no registry gives to one network (private, shared, loopback, link-local, documentation, benchmarking,
//! multicast, reserved: IANA special-purpose registries, RFC 6890) are unknown to databases whatever those say; a rule by
//! CIDR still holds for them, which is how an operator steers clients of its own private network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The IPv4 address that an IPv6 address carries, and the bits before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The IPv4 address.
    pub address: Ipv4Addr,
    /// Bits of the IPv6 address before it: what an IPv4 prefix length grows by to be one of the IPv6 address.
    pub bits_before: u8,
}

/// Why no database knows where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// Of somebody's own network.
    Private,
    /// Shared by customers of one provider (RFC 6598).
    Shared,
    /// This machine.
    Loopback,
    /// This link.
    LinkLocal,
    /// For examples.
    Documentation,
    /// For benchmarks.
    Benchmarking,
    /// Groups.
    Multicast,
    /// Not given out.
    Reserved,
}

impl Special {
    /// As `explain` says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
            Self::Loopback => "loopback",
            Self::LinkLocal => "link-local",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        }
    }
}

/// The address that speaks for a client: the IPv4 address that it carries, else itself.
#[must_use]
pub fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => carried(u128::from(v6)).map_or(address, |carried| carried.address.into()),
    }
}

/// The IPv4 address that an IPv6 address carries.
#[inline]
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "parts of the address are what is wanted"
)]
pub const fn carried(address: u128) -> Option<Carried> {
    let low = address as u32;
    // Bits 32..96.
    let middle = (address >> 32) as u64;
    // Nearly every client's first 32 bits match none of these.
    let (address, bits_before) = match (address >> 96) as u32 {
        0x2001_0000 => (!low, 96),
        0x2002_0000..=0x2002_ffff => ((address >> 80) as u32, 16),
        0x0064_ff9b if middle == 0 => (low, 96),
        // ::/104 holds :: and ::1, which carry nothing.
        0 if middle == 0 && low >= 1 << 24 => (low, 96),
        0 if middle == 0xffff || middle == 0xffff_0000 => (low, 96),
        _ => return None,
    };
    Some(Carried {
        address: Ipv4Addr::from_bits(address),
        bits_before,
    })
}

/// Why no database knows where an address is, if none does. The address is canonical.
#[must_use]
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => {
            let mut nets = V4.iter().filter(|(net, _)| net.contains(&address));
            nets.next().map(|(_, why)| *why)
        }
        IpAddr::V6(address) => {
            let mut nets = V6.iter().filter(|(net, _)| net.contains(&address));
            nets.next().map(|(_, why)| *why)
        }
    }
}

/// IPv6 networks whose addresses carry an IPv4 address.
pub(crate) const CARRYING: [Ipv6Net; 13] = [
    v6([0x2001, 0], 32),
    v6([0x2002, 0], 16),
    v6_low([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    v6_low([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
    v6_low([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
    // ::/96 without ::/104.
    v6_low([0, 0, 0, 0, 0, 0, 0x0100, 0], 104),
    v6_low([0, 0, 0, 0, 0, 0, 0x0200, 0], 103),
    v6_low([0, 0, 0, 0, 0, 0, 0x0400, 0], 102),
    v6_low([0, 0, 0, 0, 0, 0, 0x0800, 0], 101),
    v6_low([0, 0, 0, 0, 0, 0, 0x1000, 0], 100),
    v6_low([0, 0, 0, 0, 0, 0, 0x2000, 0], 99),
    v6_low([0, 0, 0, 0, 0, 0, 0x4000, 0], 98),
    v6_low([0, 0, 0, 0, 0, 0, 0x8000, 0], 97),
];

/// IANA IPv4 Special-Purpose Address Registry, as far as it speaks of clients.
pub(crate) const V4: [(Ipv4Net, Special); 15] = [
    (v4([0, 0, 0, 0], 8), Special::Reserved),
    (v4([10, 0, 0, 0], 8), Special::Private),
    (v4([100, 64, 0, 0], 10), Special::Shared),
    (v4([127, 0, 0, 0], 8), Special::Loopback),
    (v4([169, 254, 0, 0], 16), Special::LinkLocal),
    (v4([172, 16, 0, 0], 12), Special::Private),
    (v4([192, 0, 0, 0], 24), Special::Reserved),
    (v4([192, 0, 2, 0], 24), Special::Documentation),
    (v4([192, 88, 99, 0], 24), Special::Reserved),
    (v4([192, 168, 0, 0], 16), Special::Private),
    (v4([198, 18, 0, 0], 15), Special::Benchmarking),
    (v4([198, 51, 100, 0], 24), Special::Documentation),
    (v4([203, 0, 113, 0], 24), Special::Documentation),
    (v4([224, 0, 0, 0], 4), Special::Multicast),
    (v4([240, 0, 0, 0], 4), Special::Reserved),
];

/// IANA IPv6 Special-Purpose Address Registry, as far as it speaks of clients.
pub(crate) const V6: [(Ipv6Net, Special); 13] = [
    (v6_low([0, 0, 0, 0, 0, 0, 0, 1], 128), Special::Loopback),
    (v6([0, 0], 8), Special::Reserved),
    (v6([0x100, 0], 8), Special::Reserved),
    (
        v6_low([0x2001, 2, 0, 0, 0, 0, 0, 0], 48),
        Special::Benchmarking,
    ),
    (v6([0x2001, 0x10], 28), Special::Reserved),
    (v6([0x2001, 0x20], 28), Special::Reserved),
    (v6([0x2001, 0xdb8], 32), Special::Documentation),
    (v6([0x3fff, 0], 20), Special::Documentation),
    (v6([0x5f00, 0], 16), Special::Reserved),
    (v6([0xfc00, 0], 7), Special::Private),
    (v6([0xfe80, 0], 10), Special::LinkLocal),
    (v6([0xfec0, 0], 10), Special::Private),
    (v6([0xff00, 0], 8), Special::Multicast),
];

const fn v4([a, b, c, d]: [u8; 4], prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix_len)
}

const fn v6([a, b]: [u16; 2], prefix_len: u8) -> Ipv6Net {
    v6_low([a, b, 0, 0, 0, 0, 0, 0], prefix_len)
}

const fn v6_low([a, b, c, d, e, f, g, h]: [u16; 8], prefix_len: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_an_ipv4_address_is_that_address() {
        for (address, wanted, bits) in [
            ("::ffff:81.2.69.142", "81.2.69.142", 96),
            ("::ffff:0:81.2.69.142", "81.2.69.142", 96),
            ("::81.2.69.142", "81.2.69.142", 96),
            ("::1.0.0.0", "1.0.0.0", 96),
            ("64:ff9b::8.8.8.8", "8.8.8.8", 96),
            ("2002:5102:458e::1", "81.2.69.142", 16),
            ("2002:0a00:0001::", "10.0.0.1", 16),
            // RFC 4380 §4: the client 192.0.2.45 behind its NAT.
            ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45", 96),
        ] {
            let v6: Ipv6Addr = address.parse().unwrap();
            let carried = carried(u128::from(v6)).unwrap();
            assert_eq!(carried.address.to_string(), wanted, "{address}");
            assert_eq!(carried.bits_before, bits, "{address}");
            assert_eq!(canonical(v6.into()).to_string(), wanted);
        }
    }

    #[test]
    fn others_speak_for_themselves() {
        for address in [
            "192.0.2.1",
            "::",
            "::1",
            "::0.255.255.255",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b::1:8.8.8.8",
            "2001:1::1",
            "2003::1",
            "2a00:1450::1",
            "::fffe:1.2.3.4",
            "0:0:1::ffff:1.2.3.4",
            "fe80::1",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(canonical(address), address);
        }
    }

    #[test]
    fn the_networks_that_carry_are_those_that_are_taken_apart() {
        for net in CARRYING {
            let (first, last) = (u128::from(net.network()), u128::from(net.broadcast()));
            assert!(carried(first).is_some() && carried(last).is_some(), "{net}");
            for outside in [first.wrapping_sub(1), last.wrapping_add(1)] {
                let address = Ipv6Addr::from(outside);
                let inside = CARRYING.iter().any(|net| net.contains(&address));
                assert_eq!(carried(outside).is_some(), inside, "beside {net}");
            }
        }
    }

    #[test]
    fn nobody_knows_where_special_addresses_are() {
        for (address, why) in [
            ("0.1.2.3", Some("reserved")),
            ("10.255.0.1", Some("private")),
            ("172.31.0.1", Some("private")),
            ("172.32.0.1", None),
            ("192.168.1.1", Some("private")),
            ("100.64.0.1", Some("shared")),
            ("100.127.255.255", Some("shared")),
            ("100.128.0.0", None),
            ("127.0.0.1", Some("loopback")),
            ("169.254.1.1", Some("link-local")),
            ("192.0.2.1", Some("documentation")),
            ("198.19.0.1", Some("benchmarking")),
            ("239.1.1.1", Some("multicast")),
            ("255.255.255.255", Some("reserved")),
            ("8.8.8.8", None),
            ("::1", Some("loopback")),
            ("::", Some("reserved")),
            ("fd00::1", Some("private")),
            ("fe80::1", Some("link-local")),
            ("2001:db8::1", Some("documentation")),
            ("3fff:fff::1", Some("documentation")),
            ("ff02::1", Some("multicast")),
            ("2a00:1450::1", None),
        ] {
            let found = special(address.parse().unwrap());
            assert_eq!(found.map(Special::as_str), why, "{address}");
        }
    }
}
