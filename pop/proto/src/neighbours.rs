//! Whose clients were lately at an IP address: where a client whose NAT gave it another port is likely at home.
//!
//! ```text
//! hash of the IP ──► set of 4 entries (one cache line)
//! entry: key = tag of the IP (32 bit) | second it was last noted in (32 bit)
//!        owner = region (16 bit) | transceiver (32 bit) | check of the tag (16 bit)
//! ```
//!
//! All workers of a PoP share one, because the kernel gives another port to another worker as a rule. It is advice and nothing rests on
//! it: an owner that is asked in vain refuses. So there is no lock: an entry read while another worker writes it fails its check, or
//! names an owner that was right a moment ago. It has a fixed size and forgets; where more addresses meet than a set holds, the
//! one noted longest ago gives way.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use wire::{Owner, RegionId, TransceiverId};

/// Owners that a packet is offered to at most.
pub(crate) const OWNERS_MAX: usize = 3;
/// An owner is remembered so long after its last answer to a check: as long as consent lasts (RFC 7675 §5.1).
const REMEMBERED_S: u32 = 30;
const WAYS: usize = 4;
/// Flows for which there is one set.
const FLOWS_PER_SET: u32 = 8;
/// Sets at least and at most: 4 KiB and 4 MiB.
const SETS_MIN: u32 = 64;
const SETS_MAX: u32 = 1 << 16;

/// See the module head.
pub struct Neighbours {
    hasher: foldhash::fast::FixedState,
    epoch: Instant,
    sets: Box<[Set]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

#[derive(Default)]
struct Entry {
    key: AtomicU64,
    owner: AtomicU64,
}

/// Owners to offer a packet to, the likeliest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owners([Option<Owner>; OWNERS_MAX]);

impl Owners {
    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Owner> {
        self.0.into_iter().flatten()
    }

    /// Those of them that `keep`.
    #[must_use]
    pub(crate) fn only(self, keep: impl Fn(Owner) -> bool) -> Self {
        Self(self.0.map(|owner| owner.filter(|owner| keep(*owner))))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }
}

impl Neighbours {
    /// For a PoP that has `flows_max` flows in all. `seed` must be unpredictable.
    #[must_use]
    pub fn new(flows_max: u32, seed: u64, now: Instant) -> Self {
        let sets = (flows_max / FLOWS_PER_SET)
            .clamp(SETS_MIN, SETS_MAX)
            .next_power_of_two();
        Self {
            hasher: foldhash::fast::FixedState::with_seed(seed),
            epoch: now,
            sets: (0..sets).map(|_| Set::default()).collect(),
        }
    }

    /// `owner` has just shown that it knows a client at `ip`.
    pub fn note(&self, ip: IpAddr, owner: Owner, now: Instant) {
        let (tag, set) = self.place(ip);
        let Some(Set(entries)) = set else { return };
        let known = entries.iter().find(|entry| entry.is_of(tag, owner));
        let place = known.or_else(|| entries.iter().min_by_key(|entry| entry.noted()));
        if let Some(place) = place {
            place.owner.store(seal(tag, owner), Ordering::Relaxed);
            let key = u64::from(tag) << 32 | u64::from(self.second(now));
            place.key.store(key, Ordering::Relaxed);
        }
    }

    /// Whose clients were lately at `ip`, the latest first.
    #[must_use]
    pub fn owners(&self, ip: IpAddr, now: Instant) -> Owners {
        let (tag, set) = self.place(ip);
        let now = self.second(now);
        let mut found: [Option<(u32, Owner)>; WAYS] = [None; WAYS];
        let Some(Set(entries)) = set else {
            return Owners::default();
        };
        for (place, entry) in found.iter_mut().zip(entries) {
            *place = entry
                .read(tag)
                .filter(|(noted, _)| now.saturating_sub(*noted) <= REMEMBERED_S);
        }
        found.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.map(|(noted, _)| noted)));
        let mut owners = Owners::default();
        for (place, entry) in owners.0.iter_mut().zip(found) {
            *place = entry.map(|(_, owner)| owner);
        }
        owners
    }

    fn place(&self, ip: IpAddr) -> (u32, Option<&Set>) {
        let hash = self.hasher.hash_one(ip);
        let tag = u32::try_from(hash >> 32).unwrap_or_default();
        let set = usize::try_from(hash).unwrap_or_default() & (self.sets.len() - 1);
        (tag, self.sets.get(set))
    }

    /// Never 0: an entry of second 0 is an empty one.
    fn second(&self, now: Instant) -> u32 {
        let since = now.saturating_duration_since(self.epoch).as_secs();
        u32::try_from(since)
            .unwrap_or(u32::MAX - 1)
            .saturating_add(1)
    }

    /// Bytes taken from the allocator.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sets.len() * size_of::<Set>()
    }
}

impl Entry {
    fn noted(&self) -> u32 {
        let [.., a, b, c, d] = self.key.load(Ordering::Relaxed).to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }

    fn is_of(&self, tag: u32, owner: Owner) -> bool {
        self.read(tag).is_some_and(|(_, known)| known == owner)
    }

    /// When the owner was noted, and the owner, if this is an entry of `tag`.
    fn read(&self, tag: u32) -> Option<(u32, Owner)> {
        let sealed = self.owner.load(Ordering::Relaxed);
        let [t0, t1, t2, t3, s0, s1, s2, s3] = self.key.load(Ordering::Relaxed).to_be_bytes();
        let noted = u32::from_be_bytes([s0, s1, s2, s3]);
        if u32::from_be_bytes([t0, t1, t2, t3]) != tag || noted == 0 {
            return None;
        }
        let owner = open(sealed);
        (seal(tag, owner) == sealed).then_some((noted, owner))
    }
}

fn seal(tag: u32, owner: Owner) -> u64 {
    let check = (tag ^ tag >> 16) & 0xffff;
    u64::from(owner.region.0) << 48
        | u64::from(owner.transceiver.0) << 16
        | u64::from(check ^ 0x5a5a)
}

const fn open(sealed: u64) -> Owner {
    let [r0, r1, t0, t1, t2, t3, ..] = sealed.to_be_bytes();
    Owner {
        region: RegionId(u16::from_be_bytes([r0, r1])),
        transceiver: TransceiverId(u32::from_be_bytes([t0, t1, t2, t3])),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    const fn owner(transceiver: u32) -> Owner {
        Owner {
            region: RegionId(0xfedc),
            transceiver: TransceiverId(transceiver),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
    fn start() -> Instant {
        Instant::now()
    }

    fn known(neighbours: &Neighbours, ip: IpAddr, now: Instant) -> Vec<Owner> {
        neighbours.owners(ip, now).iter().collect()
    }

    #[test]
    fn the_latest_owners_of_an_address_for_half_a_minute() {
        let now = start();
        let neighbours = Neighbours::new(1024, 7, now);
        assert_eq!(known(&neighbours, ip(1), now), []);
        let at = |seconds| now + Duration::from_secs(seconds);
        for (second, transceiver) in [(0, 1), (1, 2), (2, 0xffff_ffff), (3, 4), (4, 2)] {
            neighbours.note(ip(1), owner(transceiver), at(second));
        }
        let three = [owner(2), owner(4), owner(0xffff_ffff)];
        assert_eq!(known(&neighbours, ip(1), at(4)), three);
        neighbours.note(ip(1), owner(5), at(5));
        let three = [owner(5), owner(2), owner(4)];
        assert_eq!(
            known(&neighbours, ip(1), at(5)),
            three,
            "the oldest gave way"
        );
        assert_eq!(known(&neighbours, ip(2), at(5)), [], "another address");
        assert_eq!(known(&neighbours, ip(1), at(35)), [owner(5)]);
        assert_eq!(known(&neighbours, ip(1), at(36)), []);
    }

    #[test]
    fn it_has_a_fixed_size_and_what_it_says_was_noted() {
        let now = start();
        let neighbours = Neighbours::new(0, 7, now);
        assert_eq!(neighbours.bytes(), 4096);
        assert_eq!(Neighbours::new(u32::MAX, 7, now).bytes(), 4 << 20);
        for host in 0..=255 {
            neighbours.note(ip(host), owner(u32::from(host)), now);
        }
        let found = (0..=255).filter(|host| {
            let owners = known(&neighbours, ip(*host), now);
            assert!(owners.is_empty() || owners == [owner(u32::from(*host))]);
            !owners.is_empty()
        });
        let found = found.count();
        assert!((128..=256).contains(&found), "{found} of 256");
    }

    #[test]
    fn half_an_entry_is_none() {
        let entry = Entry::default();
        entry.key.store(7 << 32 | 1, Ordering::Relaxed);
        entry.owner.store(seal(8, owner(3)), Ordering::Relaxed);
        assert_eq!(entry.read(7), None);
        entry.owner.store(seal(7, owner(3)), Ordering::Relaxed);
        assert_eq!(entry.read(7), Some((1, owner(3))));
    }
}
