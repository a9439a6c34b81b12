//! Medians of round trips by client prefix, of the samples of all workers. Bounded; no clock.
//!
//! A client is an IPv4 address, or an IPv6 /64: each counts once, with its latest sample. A prefix is a /24 or a /48: what it holds besides tells
//! clients apart, and leaves here only as a count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use wire::ClientAddr;

/// Prefixes that are kept, at most: then the one without a sample for the longest time goes.
pub const PREFIXES_MAX: usize = 16_384;
/// Clients of a prefix that are kept, at most: then the one whose sample is the oldest goes.
pub const CLIENTS_MAX: usize = 64;
/// A prefix is told only if it is of so many clients, so that nothing is said about one or two.
pub const CLIENTS_MIN: usize = 3;

/// A client prefix: an IPv4 /24 or an IPv6 /48.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prefix {
    /// The first three bytes.
    V4([u8; 3]),
    /// The first six bytes.
    V6([u8; 6]),
}

impl Prefix {
    /// Its first address and its length in bits.
    #[must_use]
    pub const fn network(self) -> (IpAddr, u8) {
        match self {
            Self::V4([a, b, c]) => (IpAddr::V4(Ipv4Addr::new(a, b, c, 0)), 24),
            Self::V6([a, b, c, d, e, f]) => {
                let octets = [a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                (IpAddr::V6(Ipv6Addr::from_octets(octets)), 48)
            }
        }
    }
}

/// The round trip of one client: the least of what was timed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Where it is.
    pub prefix: Prefix,
    /// Tells clients of the prefix apart.
    client: u16,
    /// Microseconds.
    pub rtt_us: u32,
}

/// Prefix and client together are an address, which is not shown.
impl fmt::Debug for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sample")
            .field("rtt_us", &self.rtt_us)
            .finish_non_exhaustive()
    }
}

impl Sample {
    /// Of a client at this address.
    #[must_use]
    pub const fn of(client: ClientAddr, rtt_us: u32) -> Self {
        let (prefix, client) = match client.ip() {
            IpAddr::V4(ip) => {
                let [a, b, c, host] = ip.octets();
                (Prefix::V4([a, b, c]), host as u16)
            }
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                let subnet = u16::from_be_bytes([g, h]);
                (Prefix::V6([a, b, c, d, e, f]), subnet)
            }
        };
        Self {
            prefix,
            client,
            rtt_us,
        }
    }
}

/// The median of one prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Median {
    /// Where the clients are.
    pub prefix: Prefix,
    /// Microseconds.
    pub rtt_us: u32,
    /// Clients it is of, [`CLIENTS_MAX`] at most.
    pub clients: u32,
    /// Seconds since the middle one of its samples: half of them are no older.
    pub age_s: u32,
}

/// See the module head.
#[derive(Default)]
pub struct Medians {
    /// The first sample: times of samples are seconds since then.
    began: Option<Instant>,
    prefixes: BTreeMap<Prefix, Clients>,
    /// The same by the time of their last sample.
    by_age: BTreeSet<(Instant, Prefix)>,
    evicted: u64,
}

struct Clients {
    /// The latest last.
    latest: Vec<Latest>,
    at: Instant,
}

/// The latest sample of a client.
struct Latest {
    client: u16,
    rtt_us: u32,
    at_s: u32,
}

impl Medians {
    /// Takes a sample.
    pub fn take(&mut self, sample: Sample, now: Instant) {
        let prefix = sample.prefix;
        if let Some(known) = self.prefixes.get(&prefix) {
            self.by_age.remove(&(known.at, prefix));
        } else if self.prefixes.len() >= PREFIXES_MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.prefixes.remove(&oldest);
            self.evicted += 1;
        }
        let clients = self.prefixes.entry(prefix).or_insert_with(|| Clients {
            latest: Vec::new(),
            at: now,
        });
        let began = *self.began.get_or_insert(now);
        clients.take(sample, now, seconds(began, now));
        self.by_age.insert((now, prefix));
    }

    /// What is to be told: at most `max` medians, those of most clients first. A sample that is older than `age_max_s` is forgotten.
    pub fn tell(&mut self, max: usize, age_max_s: u32, now: Instant) -> Vec<Median> {
        let age_s = |at: Instant| now.saturating_duration_since(at).as_secs();
        while let Some((at, prefix)) = self.by_age.first().copied()
            && age_s(at) > u64::from(age_max_s)
        {
            self.by_age.pop_first();
            self.prefixes.remove(&prefix);
        }
        let now_s = self.began.map_or(0, |began| seconds(began, now));
        let told = self.prefixes.iter_mut().filter_map(|(prefix, clients)| {
            clients.forget(now_s, age_max_s);
            clients.median(*prefix, now_s)
        });
        let mut told: Vec<Median> = told.collect();
        told.sort_by_key(|median| (std::cmp::Reverse(median.clients), median.prefix));
        told.truncate(max);
        told
    }

    /// Prefixes that are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Prefixes that went because others came, so far.
    #[must_use]
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }
}

impl Clients {
    fn take(&mut self, sample: Sample, now: Instant, at_s: u32) {
        let mut known = self.latest.iter();
        let same = known.position(|known| known.client == sample.client);
        if let Some(same) = same {
            self.latest.remove(same);
        } else if self.latest.len() >= CLIENTS_MAX {
            self.latest.remove(0);
        }
        self.latest.push(Latest {
            client: sample.client,
            rtt_us: sample.rtt_us,
            at_s,
        });
        self.at = now;
    }

    /// The oldest come first.
    fn forget(&mut self, now_s: u32, age_max_s: u32) {
        let is_old = |known: &Latest| now_s.saturating_sub(known.at_s) > age_max_s;
        let old = self.latest.iter().take_while(|known| is_old(known)).count();
        self.latest.drain(..old);
    }

    fn median(&self, prefix: Prefix, now_s: u32) -> Option<Median> {
        if self.latest.len() < CLIENTS_MIN {
            return None;
        }
        let middle = self.latest.get(self.latest.len() / 2)?;
        let mut rtts: Vec<u32> = self.latest.iter().map(|known| known.rtt_us).collect();
        rtts.sort_unstable();
        Some(Median {
            prefix,
            rtt_us: *rtts.get((rtts.len() - 1) / 2)?,
            clients: u32::try_from(rtts.len()).unwrap_or(u32::MAX),
            age_s: now_s.saturating_sub(middle.at_s),
        })
    }
}

fn seconds(began: Instant, now: Instant) -> u32 {
    u32::try_from(now.saturating_duration_since(began).as_secs()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::time::Duration;

    #[expect(
        clippy::disallowed_methods,
        reason = "an arbitrary epoch for an invented clock"
    )]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn sample(ip: &str, rtt_us: u32) -> Sample {
        let ip = ip.parse().unwrap();
        Sample::of(ClientAddr::new(SocketAddr::new(ip, 9)), rtt_us)
    }

    #[test]
    fn addresses_are_cut_and_clients_told_apart() {
        let mut medians = Medians::default();
        let now = epoch();
        for (ip, rtt_us) in [
            ("192.0.2.1", 10),
            ("192.0.2.2", 30),
            ("192.0.2.3", 500),
            ("192.0.2.3", 20),
            ("192.0.3.1", 1),
            ("192.0.3.2", 1),
            ("192.0.3.2", 1),
            ("2001:db8:1:1::1", 7),
            ("2001:db8:1:2::1", 8),
            ("2001:db8:1:2::2", 9),
            ("2001:db8:1:3::1", 10),
        ] {
            medians.take(sample(ip, rtt_us), now);
        }
        let told = medians.tell(9, 60, now + Duration::from_secs(5));
        let told: Vec<_> = told
            .iter()
            .map(|it| {
                let (address, len) = it.prefix.network();
                (format!("{address}/{len}"), it.rtt_us, it.clients, it.age_s)
            })
            .collect();
        // Two clients of 192.0.3.0/24 are too few to be told, two hosts of one /64 are one client.
        assert_eq!(
            told,
            [
                ("192.0.2.0/24".to_owned(), 20, 3, 5),
                ("2001:db8:1::/48".to_owned(), 9, 3, 5)
            ]
        );
    }

    #[test]
    fn the_latest_clients_count_and_old_prefixes_are_forgotten() {
        let mut medians = Medians::default();
        let now = epoch();
        for host in 0..=255u8 {
            let rtt_us = if usize::from(host) < 256 - CLIENTS_MAX {
                9000
            } else {
                40
            };
            medians.take(sample(&format!("192.0.2.{host}"), rtt_us), now);
        }
        let told = medians.tell(9, 60, now + Duration::from_secs(60));
        assert_eq!((told[0].clients, told[0].rtt_us), (64, 40));
        assert!(
            medians
                .tell(9, 60, now + Duration::from_secs(61))
                .is_empty()
        );
        assert!(medians.is_empty());
    }

    #[test]
    fn one_client_that_stays_keeps_no_old_sample_of_others() {
        let mut medians = Medians::default();
        let start = epoch();
        let at = |s| start + Duration::from_secs(s);
        for host in 1..=9 {
            medians.take(sample(&format!("192.0.2.{host}"), 9000), start);
        }
        for s in 1..=3 {
            medians.take(sample(&format!("192.0.2.{}", 100 + s), 40), at(s * 20));
        }
        let told = |medians: &mut Medians, s| {
            let told = medians.tell(9, 60, at(s));
            told.first()
                .map(|told| (told.rtt_us, told.clients, told.age_s))
        };
        // As old as most of what it is of, whoever came last.
        assert_eq!(told(&mut medians, 60), Some((9000, 12, 60)));
        let left = Some((40, 3, 21));
        assert_eq!(told(&mut medians, 61), left, "nine are too old");
        assert_eq!(told(&mut medians, 81), None, "two are too few");
    }

    #[test]
    fn nothing_of_an_address_is_shown() {
        let shown = format!("{:?}", sample("192.0.2.77", 5));
        assert_eq!(shown, "Sample { rtt_us: 5, .. }");
    }

    #[test]
    fn prefixes_are_bounded_and_the_oldest_goes() {
        let mut medians = Medians::default();
        let start = epoch();
        for n in 0..=u32::try_from(PREFIXES_MAX).unwrap() {
            let ip = Ipv4Addr::from_bits(0x0b00_0000 + (n << 8)).to_string();
            medians.take(sample(&ip, 1), start + Duration::from_millis(n.into()));
        }
        assert_eq!((medians.len(), medians.evicted()), (PREFIXES_MAX, 1));
        assert!(!medians.prefixes.contains_key(&Prefix::V4([11, 0, 0])));
        assert_eq!(medians.by_age.len(), PREFIXES_MAX);
    }

    #[test]
    fn those_of_most_clients_are_told_first() {
        let mut medians = Medians::default();
        let now = epoch();
        for (net, hosts) in [(1, 3), (2, 5), (3, 4)] {
            for host in 0..hosts {
                medians.take(sample(&format!("192.0.{net}.{host}"), 1), now);
            }
        }
        let told = medians.tell(2, 60, now);
        let told: Vec<_> = told.iter().map(|it| (it.prefix, it.clients)).collect();
        assert_eq!(
            told,
            [(Prefix::V4([192, 0, 2]), 5), (Prefix::V4([192, 0, 3]), 4)]
        );
    }
}
