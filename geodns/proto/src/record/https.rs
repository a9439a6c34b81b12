//! HTTPS records (RFC 9460) of signaling names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::rdata::character_string;
use crate::name::Name;

/// Keys of service parameters (RFC 9460 §14.3.2).
const ALPN: u16 = 1;
const PORT: u16 = 3;
const IPV4_HINT: u16 = 4;
const IPV6_HINT: u16 = 6;

/// The port of HTTPS, which needs no parameter.
const DEFAULT_PORT: u16 = 443;

/// Where a region's signaling is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Port of its URL.
    pub port: u16,
    /// IPv4 addresses, in order.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses, in order.
    pub v6: Vec<Ipv6Addr>,
}

impl Endpoint {
    /// `None` when the URL is not `https`: an HTTPS record would send browsers where nothing answers (RFC 9460 §9.5).
    #[must_use]
    pub fn of(signaling_url: &str, addresses: &[IpAddr]) -> Option<Self> {
        let authority = signaling_url
            .strip_prefix("https://")?
            .split(['/', '?', '#'])
            .next()?;
        let after_host = authority
            .rsplit_once(']')
            .map_or(authority, |(_, rest)| rest);
        let port = after_host
            .rsplit_once(':')
            .map_or(Some(DEFAULT_PORT), |(_, port)| port.parse().ok())?;
        let mut endpoint = Self {
            port,
            v4: Vec::new(),
            v6: Vec::new(),
        };
        for address in addresses {
            match address.to_canonical() {
                IpAddr::V4(v4) => endpoint.v4.push(v4),
                IpAddr::V6(v6) => endpoint.v6.push(v6),
            }
        }
        Some(endpoint)
    }

    /// RDATA in ServiceMode: `target` is the root when the service is at the owner itself (RFC 9460 §2.5.2).
    pub(crate) fn rdata(&self, priority: u16, target: &Name, alpn: &[String]) -> Vec<u8> {
        let mut rdata = priority.to_be_bytes().to_vec();
        rdata.extend_from_slice(target.as_wire());
        let mut protocols = Vec::new();
        for protocol in alpn {
            character_string(protocol.as_bytes(), &mut protocols);
        }
        parameter(ALPN, &protocols, &mut rdata);
        if self.port != DEFAULT_PORT {
            parameter(PORT, &self.port.to_be_bytes(), &mut rdata);
        }
        let v4: Vec<u8> = self.v4.iter().flat_map(Ipv4Addr::octets).collect();
        let v6: Vec<u8> = self.v6.iter().flat_map(Ipv6Addr::octets).collect();
        parameter(IPV4_HINT, &v4, &mut rdata);
        parameter(IPV6_HINT, &v6, &mut rdata);
        rdata
    }
}

/// A parameter, unless it would be empty.
fn parameter(key: u16, value: &[u8], out: &mut Vec<u8>) {
    if let (false, Ok(len)) = (value.is_empty(), u16::try_from(value.len())) {
        out.extend_from_slice(&key.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(value);
    }
}
