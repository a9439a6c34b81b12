//! Whose word on a client's address counts: proxies that the topology trusts (`network.signaling.trusted_proxies`).
//!
//! ```text
//! peer is no trusted proxy      the peer; what its headers claim is ignored, and counted
//! PROXY header (version 2)      its source
//! Forwarded (RFC 7239)          the last `for=` that is no trusted proxy
//! X-Forwarded-For               the same
//! both                          what both say; where they differ, one was written by the client, and neither counts
//! ```
//!
//! Both header fields grow to the right: each proxy adds whom it was asked by, so what stands left of the last address that is no
//! proxy of ours was written by strangers. What cannot be read ends the search at the proxy that passed it on.
//!
//! Addresses are for deciding. They are in no log and no metric.

pub mod fuzz;
pub mod v2;

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName};
use ipnet::IpNet;
use topology::Signaling;

use crate::metrics::{Counter, Registry};

/// Addresses of one request that are looked at, at most; a chain of trusted proxies is short.
pub const HOPS_MAX: usize = 32;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The proxies that are trusted.
#[derive(Clone, Debug, Default)]
pub struct TrustedProxies {
    nets: Box<[IpNet]>,
    proxy_protocol: bool,
}

/// Where a client's address was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The connection comes from it.
    Peer,
    /// The connection comes from it; what it says of others does not count.
    Spoofed,
    /// A PROXY header.
    ProxyHeader,
    /// `Forwarded`.
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
    /// A trusted proxy passed on something that cannot be read: the proxy's own address.
    Unreadable,
}

impl Found {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Peer,
        Self::Spoofed,
        Self::ProxyHeader,
        Self::Forwarded,
        Self::XForwardedFor,
        Self::Unreadable,
    ];

    /// Label of metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Spoofed => "spoofed",
            Self::ProxyHeader => "proxy_header",
            Self::Forwarded => "forwarded",
            Self::XForwardedFor => "x_forwarded_for",
            Self::Unreadable => "unreadable",
        }
    }
}

impl From<&Signaling> for TrustedProxies {
    fn from(signaling: &Signaling) -> Self {
        Self {
            nets: signaling.trusted_proxies.clone().into(),
            proxy_protocol: signaling.proxy_protocol,
        }
    }
}

impl TrustedProxies {
    /// For an address that only authenticated nodes reach: the word of each of them counts.
    #[must_use]
    pub fn everybody() -> Self {
        let nets = ["0.0.0.0/0", "::/0"];
        Self {
            nets: nets.iter().filter_map(|net| net.parse().ok()).collect(),
            proxy_protocol: false,
        }
    }

    /// Whether a connection from `peer` begins with a PROXY header.
    #[must_use]
    pub fn sends_proxy_header(&self, peer: IpAddr) -> bool {
        self.proxy_protocol && self.trusts(peer)
    }

    /// The client of a request that came from `peer`, whose connection began with a PROXY header that named `source`.
    #[must_use]
    pub fn client(
        &self,
        peer: IpAddr,
        source: Option<IpAddr>,
        headers: &HeaderMap,
    ) -> (IpAddr, Found) {
        let peer = peer.to_canonical();
        let claims = headers.contains_key(FORWARDED) || headers.contains_key(X_FORWARDED_FOR);
        if !self.trusts(peer) {
            let found = if claims { Found::Spoofed } else { Found::Peer };
            return (peer, found);
        }
        // A proxy that sends both speaks HTTP itself, and its header fields know more.
        let (hop, found) = match source {
            Some(source) => (source.to_canonical(), Found::ProxyHeader),
            None => (peer, Found::Peer),
        };
        if !claims || !self.trusts(hop) {
            return (hop, found);
        }
        let forwarded = || {
            let hops = fields(headers, FORWARDED).flat_map(elements).map(for_of);
            self.last_stranger(hop, hops.rev_bounded(), Found::Forwarded)
        };
        let x_forwarded_for = || {
            let hops = fields(headers, X_FORWARDED_FOR).flat_map(|field| field.split(','));
            let hops = hops.map(|hop| node(hop.trim()));
            self.last_stranger(hop, hops.rev_bounded(), Found::XForwardedFor)
        };
        let has = |name| headers.contains_key(name);
        match (has(FORWARDED), has(X_FORWARDED_FOR)) {
            (true, false) => forwarded(),
            (false, _) => x_forwarded_for(),
            // A proxy writes one of them and passes on the other as it came.
            (true, true) => {
                let ((told, found), (also_told, _)) = (forwarded(), x_forwarded_for());
                if told == also_told {
                    (told, found)
                } else {
                    (hop, Found::Unreadable)
                }
            }
        }
    }

    /// From the right: the first that is no trusted proxy; the leftmost when all are.
    fn last_stranger(
        &self,
        proxy: IpAddr,
        hops: impl Iterator<Item = Option<IpAddr>>,
        found: Found,
    ) -> (IpAddr, Found) {
        let mut nearest = proxy;
        for hop in hops {
            match hop {
                Some(hop) if self.trusts(hop) => nearest = hop,
                Some(hop) => return (hop, found),
                None => return (nearest, Found::Unreadable),
            }
        }
        (nearest, found)
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.nets.iter().any(|net| net.contains(&address))
    }
}

/// How often clients were found where.
#[derive(Clone, Debug)]
pub struct FoundCounters([Counter; Found::ALL.len()]);

impl FoundCounters {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self(Found::ALL.map(|found| {
            registry.counter(
                "proxy.clients",
                "{request}",
                "Requests by where the client's address was found; spoofed: a stranger claimed to pass somebody on.",
                &[("found", found.as_str())],
            )
        }))
    }

    /// Counts one.
    pub fn count(&self, found: Found) {
        let at = Found::ALL.iter().position(|one| *one == found);
        if let Some(counter) = at.and_then(|at| self.0.get(at)) {
            counter.add(1);
        }
    }
}

/// Reads from the right no more than [`HOPS_MAX`].
trait RevBounded: Iterator + Sized {
    fn rev_bounded(self) -> std::iter::Take<std::iter::Rev<std::vec::IntoIter<Self::Item>>> {
        self.collect::<Vec<_>>().into_iter().rev().take(HOPS_MAX)
    }
}

impl<I: Iterator> RevBounded for I {}

/// Values of a field that may be on several lines (RFC 9110 §5.3); one that is not text reads as nothing we know.
fn fields(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| value.to_str().unwrap_or("?"))
}

/// `forwarded-element`s of a field: split at commas outside quoted strings (RFC 7239 §4), seen from the right, where the proxies of
/// ours write: a quote that a stranger left open on the left hides nothing of theirs.
fn elements(field: &str) -> Vec<&str> {
    split_unquoted(field, ',')
}

/// The address of the `for` parameter of an element.
fn for_of(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_unquoted(element, ';') {
        let (name, value) = pair.trim().split_once('=')?;
        // What is no token and no whole quoted string makes the whole element mean nothing.
        let value = unquoted(value.trim_start())?;
        if name.trim_end().eq_ignore_ascii_case("for") {
            // Two of them say nothing.
            if found.is_some() {
                return None;
            }
            found = Some(node(value)?);
        }
    }
    found
}

/// A node (RFC 7239 §6): an address, IPv6 in brackets, with or without a port. `unknown` and obfuscated names are no address;
/// bare IPv6 is what `X-Forwarded-For` has.
fn node(text: &str) -> Option<IpAddr> {
    let ip = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok());
    ip.map(|ip| ip.to_canonical())
}

/// A token as it is; a quoted string without quotes. Escapes are in no address.
fn unquoted(value: &str) -> Option<&str> {
    let Some(rest) = value.strip_prefix('"') else {
        return Some(value).filter(|token| !token.contains('"'));
    };
    rest.strip_suffix('"')
        .filter(|inner| !inner.contains(['"', '\\']))
}

/// The pieces of `text` between separators outside quoted strings, read from the right.
fn split_unquoted(text: &str, separator: char) -> Vec<&str> {
    let (mut pieces, mut end, mut quoted) = (Vec::new(), text.len(), false);
    for (at, c) in text.char_indices().rev() {
        if c == '"' && !is_escaped(text, at) {
            quoted = !quoted;
        } else if c == separator && !quoted {
            let start = at + c.len_utf8();
            pieces.push(text.get(start..end).unwrap_or_default());
            end = at;
        }
    }
    pieces.push(text.get(..end).unwrap_or_default());
    pieces.reverse();
    pieces
}

/// Whether an odd number of backslashes stands in front of a character.
fn is_escaped(text: &str, at: usize) -> bool {
    let before = text.get(..at).unwrap_or_default();
    (before.len() - before.trim_end_matches('\\').len()) % 2 == 1
}

#[cfg(test)]
mod tests;
