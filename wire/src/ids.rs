//! Newtypes for everything that is "also a u16" or "also a `SocketAddr`".

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// A region: where sessions are anchored. 1..=65535; 0 is never issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u16);

/// A PoP. 1..=65535; 0 is never issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PopId(pub u16);

/// A transceiver within its region: the offset of its address in the region's transceiver CIDR. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransceiverId(pub u32);

/// The transceiver that a hint or a flow names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Region the transceiver is in.
    pub region: RegionId,
    /// Offset of its address in the region's transceiver CIDR.
    pub transceiver: TransceiverId,
}

/// Where a client's packet entered the network and where the reply leaves it: a PoP, one of its workers,
/// and the index of the ingress address (in the PoP's topology order) that the client spoke to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    /// The PoP.
    pub pop: PopId,
    /// Worker thread of that PoP, from 0.
    pub worker: u8,
    /// Index into the PoP's ingress list.
    pub ingress: u8,
}

/// A client's address and port, canonical: an IPv4-mapped IPv6 address is held as IPv4.
/// `Debug` shows only the network part, because client addresses stay out of logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientAddr(SocketAddr);

impl ClientAddr {
    /// Canonicalises `addr`; flow label and scope of an IPv6 address are dropped.
    #[must_use]
    pub const fn new(addr: SocketAddr) -> Self {
        let ip = addr.ip().to_canonical();
        Self(match ip {
            IpAddr::V4(ip) => SocketAddr::V4(std::net::SocketAddrV4::new(ip, addr.port())),
            IpAddr::V6(ip) => SocketAddr::V6(std::net::SocketAddrV6::new(ip, addr.port(), 0, 0)),
        })
    }

    /// The whole address, for sending to it.
    #[must_use]
    pub const fn socket_addr(self) -> SocketAddr {
        self.0
    }

    /// The canonical IP address.
    #[must_use]
    pub const fn ip(self) -> IpAddr {
        self.0.ip()
    }

    /// The UDP port.
    #[must_use]
    pub const fn port(self) -> u16 {
        self.0.port()
    }
}

impl fmt::Debug for ClientAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                write!(f, "{a}.{b}.{c}.0/24")
            }
            IpAddr::V6(ip) => {
                let [a, b, c, ..] = ip.segments();
                write!(f, "{a:x}:{b:x}:{c:x}::/48")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_are_canonical() {
        let mapped = ClientAddr::new("[::ffff:192.0.2.9]:4000".parse().unwrap());
        assert_eq!(mapped, ClientAddr::new("192.0.2.9:4000".parse().unwrap()));
    }

    #[test]
    fn debug_hides_the_host() {
        let shown = format!("{:?}", ClientAddr::new("192.0.2.9:4000".parse().unwrap()));
        assert_eq!(shown, "192.0.2.0/24");
        let shown = format!(
            "{:?}",
            ClientAddr::new("[2001:db8:1:2::9]:4000".parse().unwrap())
        );
        assert_eq!(shown, "2001:db8:1::/48");
    }
}
