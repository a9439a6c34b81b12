//! The networks of a database as a partition of all addresses of one family, in order: gaps are networks without a record.
//!
//! Every leaf of the search tree is asked for, empty ones and aliases included, and leaves are counted: a damaged tree whose
//! branches meet again has up to 2^128 leaves, and an iterator that passes over some in silence would not come back.
//! IPv6 networks that carry IPv4 addresses, where vendors put aliases of the IPv4 tree, are not entered.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use maxminddb::{LookupResult, Reader, Within, WithinOptions};

use crate::databases::database::DatabaseError;
use crate::databases::special;

/// A network and what was found for it.
#[derive(Debug)]
pub(crate) struct Network<'a> {
    /// Last address; an IPv4 address is in the low 32 bits. The first follows the last of the network before.
    pub(crate) last: u128,
    /// Its record.
    pub(crate) found: Option<LookupResult<'a, Vec<u8>>>,
}

/// See the head of this file.
pub(crate) struct Networks<'a> {
    reader: &'a Reader<Vec<u8>>,
    /// Ranges to walk, last first.
    ranges: Vec<Range>,
    walk: Option<(Range, Within<'a, Vec<u8>>)>,
    /// First address that was not reported; `None` after the last.
    next: Option<u128>,
    /// Last address of the family.
    end: u128,
    leaves_left: u64,
}

#[derive(Clone, Copy)]
struct Range {
    first: u128,
    last: u128,
    net: IpNet,
}

/// Leaves over those a tree of as many nodes can have: each range may begin inside one.
const LEAVES_SPARE: u64 = 256;

impl<'a> Networks<'a> {
    pub(crate) fn v4(reader: &'a Reader<Vec<u8>>) -> Self {
        let all = Range {
            first: 0,
            last: u128::from(u32::MAX),
            net: Ipv4Net::default().into(),
        };
        Self::new(reader, vec![all], all.last)
    }

    pub(crate) fn v6(reader: &'a Reader<Vec<u8>>) -> Self {
        let mut ranges = Vec::new();
        if reader.metadata().ip_version == 6 {
            walked(Ipv6Net::default(), &mut ranges);
            ranges.reverse();
        }
        Self::new(reader, ranges, u128::MAX)
    }

    fn new(reader: &'a Reader<Vec<u8>>, ranges: Vec<Range>, end: u128) -> Self {
        Self {
            reader,
            ranges,
            walk: None,
            next: Some(0),
            end,
            leaves_left: u64::from(reader.metadata().node_count) + LEAVES_SPARE,
        }
    }

    /// Reports the addresses from the first that was not reported to `last`.
    fn report(
        &mut self,
        last: u128,
        found: Option<LookupResult<'a, Vec<u8>>>,
    ) -> Option<Network<'a>> {
        self.next?;
        self.next = last.checked_add(1).filter(|next| *next <= self.end);
        Some(Network { last, found })
    }

    /// The next leaf of the range that is walked.
    fn leaf(&mut self) -> Option<Result<Network<'a>, DatabaseError>> {
        let (range, walk) = self.walk.as_mut()?;
        let range = *range;
        let Some(found) = walk.next() else {
            self.walk = None;
            return None;
        };
        let Some(left) = self.leaves_left.checked_sub(1) else {
            return Some(Err(DatabaseError::Tree));
        };
        self.leaves_left = left;
        let Ok(found) = found else {
            return Some(Err(DatabaseError::Tree));
        };
        let Ok(net) = found.network() else {
            return Some(Err(DatabaseError::Tree));
        };
        let (first, last) = bounds(net.ip(), net.prefix(), range);
        if self.next != Some(first) {
            return Some(Err(DatabaseError::Tree));
        }
        let found = found.has_data().then_some(found);
        self.report(last, found).map(Ok)
    }

    fn enter(&mut self, range: Range) -> Result<(), DatabaseError> {
        let options = WithinOptions::default()
            .include_aliased_networks()
            .include_networks_without_data();
        // The reader has a type of its own for networks; text is what both know.
        let net = range.net.to_string().parse();
        let walk = net.map(|net| self.reader.within(net, options));
        let Ok(Ok(walk)) = walk else {
            return Err(DatabaseError::Tree);
        };
        self.walk = Some((range, walk));
        Ok(())
    }
}

impl<'a> Iterator for Networks<'a> {
    type Item = Result<Network<'a>, DatabaseError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.walk.is_some() {
                match self.leaf() {
                    Some(Ok(network)) => return Some(Ok(network)),
                    Some(Err(error)) => {
                        // Nothing that follows means anything.
                        self.next = None;
                        self.walk = None;
                        self.ranges.clear();
                        return Some(Err(error));
                    }
                    None => continue,
                }
            }
            let next = self.next?;
            let Some(range) = self.ranges.pop() else {
                return self.report(self.end, None).map(Ok);
            };
            if let Err(error) = self.enter(range) {
                self.next = None;
                return Some(Err(error));
            }
            if range.first > next {
                return self.report(range.first - 1, None).map(Ok);
            }
        }
    }
}

/// IPv6 networks that are walked: all but `::/8`, where nobody lives, and those that carry IPv4 addresses.
fn walked(net: Ipv6Net, ranges: &mut Vec<Range>) {
    let low = Ipv6Net::default()
        .subnets(8)
        .ok()
        .and_then(|mut subnets| subnets.next());
    let mut left_out = special::CARRYING.iter().chain(low.as_ref());
    if left_out.clone().any(|out| out.contains(&net)) {
        return;
    }
    if left_out.any(|out| net.contains(out)) {
        let halves = net.subnets(net.prefix_len() + 1);
        for half in halves.into_iter().flatten() {
            walked(half, ranges);
        }
        return;
    }
    ranges.push(Range {
        first: u128::from(net.network()),
        last: u128::from(net.broadcast()),
        net: net.into(),
    });
}

/// First and last address of a leaf, as far as it lies in the range that is walked. A leaf of a tree without IPv4 subtree is
/// an IPv6 network and holds the whole range.
fn bounds(address: IpAddr, prefix_len: u8, range: Range) -> (u128, u128) {
    let (first, bits) = match (address, range.net) {
        (IpAddr::V4(address), IpNet::V4(_)) => (u128::from(u32::from(address)), 32_u8),
        (IpAddr::V6(address), IpNet::V6(_)) => (u128::from(address), 128),
        (IpAddr::V4(_), IpNet::V6(_)) | (IpAddr::V6(_), IpNet::V4(_)) => {
            return (range.first, range.last);
        }
    };
    let hosts = bits.saturating_sub(prefix_len);
    let span = u128::MAX.checked_shr(128 - u32::from(hosts)).unwrap_or(0);
    (first.max(range.first), (first | span).min(range.last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv6_is_walked_where_clients_are() {
        let mut ranges = Vec::new();
        walked(Ipv6Net::default(), &mut ranges);
        assert!(ranges.windows(2).all(|pair| pair[0].last < pair[1].first));
        let holds = |address: &str| {
            let address = u128::from(address.parse::<std::net::Ipv6Addr>().unwrap());
            ranges
                .iter()
                .any(|range| (range.first..=range.last).contains(&address))
        };
        for there in [
            "2001:1::",
            "2003::",
            "2a00::1",
            "100::",
            "ffff::1",
            "2001:db8::",
        ] {
            assert!(holds(there), "{there}");
        }
        for not_there in ["::1", "64:ff9b::1", "2001::1", "2002::1", "2002:ffff::"] {
            assert!(!holds(not_there), "{not_there}");
        }
        assert!(ranges.len() < 64, "{}", ranges.len());
    }
}
