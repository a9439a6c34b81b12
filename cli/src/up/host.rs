//! An address of this machine that is not loopback, found without sending a packet.
//!
//! Firefox never uses loopback candidates, so a browser on this machine needs such an address to reach a PoP.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// Documentation address (RFC 5737): the kernel picks the route, nothing is sent.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// The IPv4 address that packets to elsewhere leave from; without a route to elsewhere, any that is not loopback.
pub(super) fn address() -> Option<IpAddr> {
    routed()
        .or_else(|| from_fib_trie(&fs::read_to_string("/proc/net/fib_trie").unwrap_or_default()))
        .map(IpAddr::V4)
}

fn routed() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(ELSEWHERE).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(ip) => usable(ip).then_some(ip),
        IpAddr::V6(_) => None,
    }
}

/// The kernel's routing table names each local address on one line and says what it is on the next:
/// ```text
///    |-- 10.77.0.1
///       /32 host LOCAL
/// ```
fn from_fib_trie(text: &str) -> Option<Ipv4Addr> {
    let mut last = None;
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(ip) = last
            && usable(ip)
        {
            return Some(ip);
        }
    }
    None
}

const fn usable(ip: Ipv4Addr) -> bool {
    !ip.is_loopback() && !ip.is_unspecified() && !ip.is_link_local()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:
  +-- 0.0.0.0/1 2 0 2
     +-- 10.77.0.0/24 2 0 2
        |-- 10.77.0.0
           /24 link UNICAST
        |-- 10.77.0.1
           /32 host LOCAL
        |-- 10.77.0.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
";

    #[test]
    fn the_routing_table_names_it() {
        assert_eq!(from_fib_trie(TRIE), Some(Ipv4Addr::new(10, 77, 0, 1)));
    }

    #[test]
    fn loopback_alone_is_none() {
        let text = "     |-- 127.0.0.0\n        /8 host LOCAL\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(from_fib_trie(text), None);
        assert_eq!(from_fib_trie(""), None);
    }
}
