//! The questions of a load: many clients, each with what the map says it must be answered.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::database::Database;
use super::query::{A, AAAA, LEN_MAX, Query, Subnet};

/// What the client subnet of the questions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Clients {
    /// Random /24 of public IPv4 space
    V4,
    /// Random /56 of 2000::/4
    V6,
    /// No EDNS at all: everybody is where the generator is
    NoEdns,
}

/// Messages of equal width, one after the other.
pub struct Questions {
    arena: Vec<u8>,
    lens: Vec<u8>,
    expected: Vec<Option<u8>>,
}

/// A small generator of numbers that are the same in every run (xorshift).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// `seed` is not 0.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next one.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next one below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        let high = self.next() >> 32;
        u32::try_from((high * u64::from(bound)) >> 32).unwrap_or_default()
    }

    /// Anywhere but in space that is special (RFC 6890), roughly.
    pub fn public_v4(&mut self) -> Ipv4Addr {
        loop {
            let [first, second, ..] = self.next().to_be_bytes();
            let [.., third, fourth] = self.next().to_be_bytes();
            if (1..224).contains(&first) && ![10, 127].contains(&first) {
                return Ipv4Addr::new(first, second, third, fourth);
            }
        }
    }

    /// Somewhere in 2000::/4, a good part of it inside what is handed out.
    pub fn public_v6(&mut self) -> Ipv6Addr {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        Ipv6Addr::from_bits((bits >> 4) | (0x2 << 124))
    }
}

impl Questions {
    /// `count` different ones; a share of `cookies_percent` has a client cookie.
    #[must_use]
    pub fn random(
        count: usize,
        clients: Clients,
        cookies_percent: u32,
        database: &Database,
    ) -> Self {
        let mut random = Random::new(0x9E37_79B9_7F4A_7C15);
        let mut own = Self {
            arena: Vec::with_capacity(count * LEN_MAX),
            lens: Vec::with_capacity(count),
            expected: Vec::with_capacity(count),
        };
        for _ in 0..count {
            let subnet = match clients {
                Clients::V4 => Some(Subnet::new(random.public_v4().into(), 24)),
                Clients::V6 => Some(Subnet::new(random.public_v6().into(), 56)),
                Clients::NoEdns => None,
            };
            let wants_cookie = subnet.is_some() && random.below(100) < cookies_percent;
            let cookie = wants_cookie.then(|| random.next().to_be_bytes());
            own.push(
                &Query {
                    kind: A,
                    subnet,
                    cookie,
                },
                database,
            );
        }
        own
    }

    /// The same, each of which may be answered with any region.
    #[must_use]
    pub fn anywhere(mut self) -> Self {
        self.expected.fill(None);
        self
    }

    fn push(&mut self, query: &Query, database: &Database) {
        let message = query.write();
        self.lens
            .push(u8::try_from(message.len()).unwrap_or_default());
        self.arena.extend(&message);
        self.arena.resize(self.lens.len() * LEN_MAX, 0);
        let place = query
            .subnet
            .and_then(|subnet| database.place(subnet.address));
        self.expected.push(place.map(|place| place.number));
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// The message, its id 0.
    #[must_use]
    pub fn message(&self, index: usize) -> &[u8] {
        let len = self.lens.get(index).copied().map_or(0, usize::from);
        let start = index * LEN_MAX;
        self.arena.get(start..start + len).unwrap_or_default()
    }

    /// Whether an answer is what the map says; whoever is nowhere may be sent anywhere.
    #[must_use]
    pub fn is_right(&self, index: usize, address: IpAddr) -> bool {
        let number = match address {
            IpAddr::V4(v4) => v4.octets().last().copied(),
            IpAddr::V6(v6) => v6.octets().last().copied(),
        };
        match self.expected.get(index).copied().flatten() {
            Some(expected) => number == Some(expected),
            None => number.is_some_and(|number| (1..=6).contains(&number)),
        }
    }
}

impl std::fmt::Debug for Questions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Questions")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

/// Questions for the differential test: random clients with prefixes of every length, and the edges of networks.
#[must_use]
pub fn mixed(count: usize, seed: u64, database: &Database) -> Vec<Query> {
    let mut random = Random::new(seed);
    let networks = database.networks();
    (0..count)
        .map(|_| {
            let index = random.below(u32::try_from(networks.len()).unwrap_or(u32::MAX));
            let network = usize::try_from(index).ok().and_then(|at| networks.get(at));
            let subnet = match (random.below(4), network) {
                (0 | 1, Some(network)) => edge(&mut random, network.address, network.prefix_len),
                (2, _) => any_v6(&mut random),
                _ => any_v4(&mut random),
            };
            Query {
                kind: if random.below(8) == 0 { AAAA } else { A },
                subnet: Some(subnet),
                cookie: None,
            }
        })
        .collect()
}

/// The first or last address of a network, or the one before or behind it, cut about as long as the network's prefix.
fn edge(random: &mut Random, address: IpAddr, prefix_len: u8) -> Subnet {
    let (width, first) = match address {
        IpAddr::V4(v4) => (32, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    };
    let size = 1_u128
        .checked_shl(width - u32::from(prefix_len))
        .unwrap_or(0);
    let at = match random.below(4) {
        0 => first,
        1 => first.wrapping_add(size).wrapping_sub(1),
        2 => first.wrapping_sub(1),
        _ => first.wrapping_add(size),
    };
    let longest = u8::try_from(width).unwrap_or(u8::MAX);
    let len = match random.below(4) {
        0 => prefix_len,
        1 => prefix_len.saturating_sub(1),
        2 => (prefix_len + 1).min(longest),
        _ => longest,
    };
    let address = match address {
        IpAddr::V4(_) => {
            Ipv4Addr::from_bits(u32::try_from(at & u128::from(u32::MAX)).unwrap_or(0)).into()
        }
        IpAddr::V6(_) => Ipv6Addr::from_bits(at).into(),
    };
    Subnet::new(address, len)
}

fn any_v4(random: &mut Random) -> Subnet {
    let len = match random.below(3) {
        0 => 24,
        1 => 8 + random.below(25),
        _ => random.below(33),
    };
    let [.., a, b, c, d] = random.next().to_be_bytes();
    let address = match random.below(8) {
        0 => Ipv4Addr::new(a, b, c, d),
        _ => random.public_v4(),
    };
    Subnet::new(address.into(), u8::try_from(len).unwrap_or(32))
}

fn any_v6(random: &mut Random) -> Subnet {
    let len = match random.below(3) {
        0 => 56,
        1 => 16 + random.below(49),
        _ => random.below(129),
    };
    let address = match random.below(8) {
        0 => Ipv6Addr::from_bits((u128::from(random.next()) << 64) | u128::from(random.next())),
        1 => {
            Ipv6Addr::from_bits((0x2002 << 112) | (u128::from(random.public_v4().to_bits()) << 80))
        }
        2 => random.public_v4().to_ipv6_mapped(),
        _ => random.public_v6(),
    };
    Subnet::new(address.into(), u8::try_from(len).unwrap_or(128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_lie_at_both_sides_of_a_network() {
        let mut random = Random::new(7);
        let address = IpAddr::from([10, 1, 0, 0]);
        let edges: std::collections::BTreeSet<_> = (0..200)
            .map(|_| edge(&mut random, address, 16))
            .map(|subnet| (subnet.address, subnet.prefix_len))
            .collect();
        for (expected, len) in [
            ([10, 1, 0, 0], 16),
            ([10, 1, 255, 255], 32),
            ([10, 0, 255, 255], 32),
            ([10, 2, 0, 0], 32),
            ([10, 0, 128, 0], 17),
            ([10, 0, 0, 0], 15),
        ] {
            assert!(
                edges.contains(&(expected.into(), len)),
                "{expected:?}/{len}"
            );
        }
        let whole = edge(&mut random, "2a00::".parse().unwrap(), 128);
        assert!(whole.address.is_ipv6());
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(3);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
