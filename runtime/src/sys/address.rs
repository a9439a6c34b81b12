//! `sockaddr_in` and `sockaddr_in6` as bytes, so that reading and writing one needs no pointer cast.
//!
//! ```text
//! sockaddr_in   0 family (host order) | 2 port (BE) | 4 address           | 8 zero           = 16
//! sockaddr_in6  0 family (host order) | 2 port (BE) | 4 flow info | 8 address | 24 scope (host order) = 28
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of the larger of the two.
pub(crate) const NAME_BYTES: usize = 28;
const V4_BYTES: usize = 16;

/// Room for a socket address of either family.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Name {
    pub(crate) bytes: [u8; NAME_BYTES],
    pub(crate) len: u32,
}

impl Name {
    pub(crate) const EMPTY: Self = Self {
        bytes: [0; NAME_BYTES],
        len: 0,
    };

    /// As the kernel reads it.
    pub(crate) fn encode(address: SocketAddr) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let [p0, p1] = address.port().to_be_bytes();
        match address {
            SocketAddr::V4(v4) => {
                let [f0, f1] = family(libc::AF_INET);
                let [a, b, c, d] = v4.ip().octets();
                write(&mut bytes, 0, &[f0, f1, p0, p1, a, b, c, d]);
                Self { bytes, len: 16 }
            }
            SocketAddr::V6(v6) => {
                let [f0, f1] = family(libc::AF_INET6);
                write(&mut bytes, 0, &[f0, f1, p0, p1]);
                write(&mut bytes, 4, &v6.flowinfo().to_be_bytes());
                write(&mut bytes, 8, &v6.ip().octets());
                write(&mut bytes, 24, &v6.scope_id().to_ne_bytes());
                Self { bytes, len: 28 }
            }
        }
    }

    /// What the kernel wrote; `None` for a family that no UDP socket has. IPv4-mapped addresses become IPv4.
    pub(crate) fn decode(&self) -> Option<SocketAddr> {
        let family_is = |wanted| self.bytes.starts_with(&family(wanted));
        let port = u16::from_be_bytes(self.array(2)?);
        let len = usize::try_from(self.len).ok()?;
        if family_is(libc::AF_INET) && len >= V4_BYTES {
            let ip = Ipv4Addr::from(self.array::<4>(4)?);
            Some(SocketAddr::new(IpAddr::V4(ip), port))
        } else if family_is(libc::AF_INET6) && len >= NAME_BYTES {
            let ip = Ipv6Addr::from(self.array::<16>(8)?);
            if let Some(v4) = ip.to_ipv4_mapped() {
                return Some(SocketAddr::new(IpAddr::V4(v4), port));
            }
            let scope = u32::from_ne_bytes(self.array(24)?);
            Some(SocketAddrV6::new(ip, port, 0, scope).into())
        } else {
            None
        }
    }

    fn array<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        self.bytes.get(at..)?.first_chunk().copied()
    }
}

fn family(family: i32) -> [u8; 2] {
    u16::try_from(family).unwrap_or(0).to_ne_bytes()
}

fn write(bytes: &mut [u8; NAME_BYTES], at: usize, part: &[u8]) {
    if let Some(slot) = bytes.get_mut(at..at + part.len()) {
        slot.copy_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_address_survives() {
        for text in [
            "192.0.2.1:3478",
            "[2001:db8::1]:65535",
            "[fe80::1%7]:1",
            "0.0.0.0:0",
        ] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Name::encode(address).decode(), Some(address), "{text}");
        }
    }

    #[test]
    fn mapped_addresses_become_ipv4() {
        let mapped: SocketAddr = "[::ffff:192.0.2.1]:5".parse().unwrap();
        assert_eq!(
            Name::encode(mapped).decode(),
            Some("192.0.2.1:5".parse().unwrap())
        );
    }

    #[test]
    fn short_and_unknown_names_are_none() {
        assert_eq!(Name::EMPTY.decode(), None);
        let mut name = Name::encode("192.0.2.1:3478".parse().unwrap());
        name.len = 8;
        assert_eq!(name.decode(), None);
    }
}
