//! What keeps questions, and offers, rare: rates per source prefix and in all, and a memory of clients that were asked about in vain.
//!
//! Both are arrays of fixed size that forget: prefixes that meet in a cell share its rate, and where more clients are remembered
//! than there is room for, the one that would be forgotten first is forgotten.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use wire::ClientAddr;

use crate::recovery::RecoveryConfig;
use crate::verdict::DropReason;

/// Cells of prefixes.
const PREFIX_CELLS: usize = 4096;
/// Sets of clients asked about in vain, and clients of a set.
const NEGATIVE_SETS: usize = 4096;
const NEGATIVE_WAYS: usize = 4;

/// A rate as the time at which it would be used up: the generic cell rate algorithm, in microseconds.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    interval_us: u64,
    ahead_max_us: u64,
}

impl Rate {
    pub(crate) fn new(per_s: u32, burst: u32) -> Self {
        let interval_us = 1_000_000 / u64::from(per_s.max(1));
        Self {
            interval_us,
            ahead_max_us: interval_us * u64::from(burst.max(1)),
        }
    }

    /// The cell after one more, or `None` when it is used up.
    fn after(self, cell: u64, now_us: u64) -> Option<u64> {
        let next = cell.max(now_us) + self.interval_us;
        (next - now_us <= self.ahead_max_us).then_some(next)
    }
}

pub(crate) struct Rates {
    epoch: Instant,
    hasher: foldhash::fast::FixedState,
    prefix: Rate,
    prefixes: Box<[u64]>,
    total: Rate,
    all: u64,
}

/// Which rate is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// That of the client's prefix.
    Prefix,
    /// That of all clients.
    Total,
}

impl Rates {
    pub(crate) fn new(prefix: Rate, total: Rate, seed: u64, now: Instant) -> Self {
        Self {
            epoch: now,
            hasher: foldhash::fast::FixedState::with_seed(seed.rotate_left(32)),
            prefix,
            prefixes: vec![0; PREFIX_CELLS].into_boxed_slice(),
            total,
            all: 0,
        }
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        self.prefixes.len() * size_of::<u64>()
    }

    /// Takes one from the client's prefix and one from all.
    pub(crate) fn take(&mut self, client: ClientAddr, now: Instant) -> Result<(), Exceeded> {
        let now_us = micros(now.saturating_duration_since(self.epoch));
        let hash = self.hasher.hash_one(prefix(client.ip()));
        let cell = self
            .prefixes
            .get_mut(low_bits(hash, PREFIX_CELLS))
            .ok_or(Exceeded::Prefix)?;
        let of_prefix = self.prefix.after(*cell, now_us).ok_or(Exceeded::Prefix)?;
        self.all = self.total.after(self.all, now_us).ok_or(Exceeded::Total)?;
        *cell = of_prefix;
        Ok(())
    }
}

/// The rates of questions.
pub(crate) fn rates_of(config: &RecoveryConfig, seed: u64, now: Instant) -> Rates {
    Rates::new(
        Rate::new(config.per_prefix_per_s, config.per_prefix_burst),
        Rate::new(config.per_s, config.burst),
        seed,
        now,
    )
}

/// IPv4 /24, IPv6 /56: what one site has.
const fn prefix(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => (ip.to_bits() >> 8) as u64,
        // Bit 63 tells them from IPv4.
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
pub(crate) const fn low_bits(hash: u64, cells: usize) -> usize {
    hash as usize & (cells - 1)
}

fn micros(since: Duration) -> u64 {
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX / 2)
}

/// Clients that were asked about in vain, and why. A client is known by 32 bits of its hash within its set.
pub(crate) struct Negative {
    epoch: Instant,
    sets: Box<[[Entry; NEGATIVE_WAYS]]>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// Of the client and the ingress.
    tag: u32,
    /// Twice the tenths of a second since the epoch; odd for a client about which no answer came.
    until: u32,
}

impl Entry {
    const fn is_live(self, now: u32) -> bool {
        self.until >> 1 > now >> 1
    }

    const fn reason(self) -> DropReason {
        if self.until & 1 == 1 {
            DropReason::Unanswered
        } else {
            DropReason::Uncached
        }
    }
}

impl Negative {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            sets: vec![[Entry::default(); NEGATIVE_WAYS]; NEGATIVE_SETS].into_boxed_slice(),
        }
    }

    /// Why the client with this hash need not be asked about.
    pub(crate) fn find(&self, hash: u64, ingress: u8, now: Instant) -> Option<DropReason> {
        let now = self.moment(now);
        let tag = tag(hash, ingress);
        let set = self.sets.get(low_bits(hash, NEGATIVE_SETS))?;
        let entry = set
            .iter()
            .find(|entry| entry.tag == tag && entry.is_live(now))?;
        Some(entry.reason())
    }

    pub(crate) fn put(
        &mut self,
        hash: u64,
        ingress: u8,
        reason: DropReason,
        now: Instant,
        ttl: Duration,
    ) {
        let until = self.moment(now + ttl) | u32::from(reason == DropReason::Unanswered);
        let tag = tag(hash, ingress);
        let Some(set) = self.sets.get_mut(low_bits(hash, NEGATIVE_SETS)) else {
            return;
        };
        // The place of the same client, or the one that would be free first.
        let place = set
            .iter_mut()
            .min_by_key(|entry| (entry.tag != tag, entry.until));
        if let Some(place) = place {
            *place = Entry { tag, until };
        }
    }

    /// Lasts for six years.
    fn moment(&self, now: Instant) -> u32 {
        let tenths = now.saturating_duration_since(self.epoch).as_millis() / 100;
        u32::try_from(tenths * 2).unwrap_or(u32::MAX - 1)
    }
}

const fn tag(hash: u64, ingress: u8) -> u32 {
    // The low bits name the set already.
    (hash >> 32) as u32 ^ (ingress as u32).wrapping_mul(0x9e37_79b1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn client(address: &str) -> ClientAddr {
        ClientAddr::new(address.parse().unwrap())
    }

    #[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
    fn start() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_prefix_has_its_rate_and_so_have_all() {
        let config = RecoveryConfig {
            per_prefix_per_s: 10,
            per_prefix_burst: 2,
            per_s: 1000,
            burst: 5,
            ..RecoveryConfig::new(Duration::from_secs(60))
        };
        let now = start();
        let mut rates = rates_of(&config, 1, now);
        for (address, expected) in [
            ("192.0.2.1:1", Ok(())),
            ("192.0.2.2:1", Ok(())),
            ("192.0.2.3:1", Err(Exceeded::Prefix)),
            ("[2001:db8:0:1::1]:1", Ok(())),
            ("[2001:db8:0:2::1]:1", Ok(())),
            ("[2001:db8:0:3::1]:1", Err(Exceeded::Prefix)),
            ("[2001:db8:0:100::1]:1", Ok(())),
            ("198.51.100.1:1", Err(Exceeded::Total)),
        ] {
            assert_eq!(rates.take(client(address), now), expected, "{address}");
        }
        let later = now + 100 * MS;
        assert_eq!(rates.take(client("192.0.2.3:1"), later), Ok(()));
        let again = rates.take(client("192.0.2.4:1"), later);
        assert_eq!(again, Err(Exceeded::Prefix), "one in 100 ms");
    }

    #[test]
    fn a_client_asked_about_in_vain_is_remembered_for_a_while() {
        let now = start();
        let mut negative = Negative::new(now);
        let hash = 0x1234_5678_9abc_def0;
        negative.put(hash, 0, DropReason::Uncached, now, 500 * MS);
        let found = |negative: &Negative, hash, ingress, at| negative.find(hash, ingress, at);
        assert_eq!(
            found(&negative, hash, 0, now + 400 * MS),
            Some(DropReason::Uncached)
        );
        assert_eq!(found(&negative, hash, 1, now), None, "another ingress");
        assert_eq!(found(&negative, !hash, 0, now), None, "another client");
        assert_eq!(found(&negative, hash, 0, now + 500 * MS), None, "forgotten");
        negative.put(hash, 0, DropReason::Unanswered, now, 500 * MS);
        assert_eq!(found(&negative, hash, 0, now), Some(DropReason::Unanswered));
        for other in 1..=4u64 {
            let ttl = MS * 1000 * u32::try_from(other).unwrap();
            negative.put(hash ^ other << 40, 0, DropReason::Uncached, now, ttl);
        }
        assert_eq!(found(&negative, hash, 0, now), None, "four in a set");
        for other in 1..=4u64 {
            assert!(found(&negative, hash ^ other << 40, 0, now).is_some());
        }
    }
}
