//! Whose a packet in a cloud is: the member with the longest prefix that holds its destination.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Members' prefixes, longest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    prefixes: Vec<(IpNet, usize)>,
}

impl Routes {
    /// Of prefixes of the same length and net, the first counts.
    pub(crate) fn new(mut prefixes: Vec<(IpNet, usize)>) -> Self {
        prefixes.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
        Self { prefixes }
    }

    /// The member that `packet` goes to.
    pub(crate) fn member(&self, packet: &[u8]) -> Option<usize> {
        let destination = destination(packet)?;
        let holds = |(net, _): &&(IpNet, usize)| net.contains(&destination);
        self.prefixes.iter().find(holds).map(|(_, member)| *member)
    }
}

/// RFC 791 §3.1, RFC 8200 §3.
fn destination(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some(Ipv4Addr::from(octets).into())
        }
        6 => {
            let octets: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some(Ipv6Addr::from(octets).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(to: IpAddr) -> Vec<u8> {
        match to {
            IpAddr::V4(to) => [&[0x45; 16], to.octets().as_slice()].concat(),
            IpAddr::V6(to) => [&[0x60; 24], to.octets().as_slice()].concat(),
        }
    }

    #[test]
    fn the_longest_prefix_that_holds_the_destination_decides() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        let routes = Routes::new(vec![
            (net("10.0.0.0/8"), 0),
            (net("10.1.0.0/16"), 1),
            (net("10.1.2.3/32"), 2),
            (net("fd00::/8"), 3),
            (net("fd00:1::/32"), 4),
        ]);
        let cases = [
            ("10.9.9.9", Some(0)),
            ("10.1.9.9", Some(1)),
            ("10.1.2.3", Some(2)),
            ("192.0.2.1", None),
            ("fd00:2::1", Some(3)),
            ("fd00:1::1", Some(4)),
        ];
        for (to, member) in cases {
            let packet = packet(to.parse().unwrap());
            assert_eq!(routes.member(&packet), member, "{to}");
            for len in 0..packet.len() {
                assert_eq!(routes.member(packet.get(..len).unwrap()), None);
            }
        }
        assert_eq!(routes.member(&[0x55; 60]), None, "neither IPv4 nor IPv6");
    }
}
