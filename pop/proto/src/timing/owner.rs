//! The owner side: Binding requests of clients on their way to the owner, and how long its answers took.

use wire::RegionId;

use super::{Micros, Passage, RTT_US_MAX};

/// Requests that are timed at the same time, at most; a request whose place is taken is not timed.
const REQUESTS: usize = 256;
/// Regions of which round trips are kept, at most. Those of a PoP are few.
const REGIONS_MAX: usize = 64;
/// Round trips of a region that are kept.
const LATEST: usize = 32;

/// See the module head.
pub(super) struct OwnerTimes {
    requests: Box<[Option<Asked>]>,
    regions: Vec<Region>,
}

#[derive(Clone, Copy)]
struct Asked {
    hash: u64,
    id: [u8; 12],
    at: Micros,
}

struct Region {
    region: RegionId,
    /// The latest, in microseconds, and where the next one goes.
    latest: [u32; LATEST],
    next: usize,
}

impl OwnerTimes {
    pub(super) fn new() -> Self {
        Self {
            requests: vec![None; REQUESTS].into(),
            regions: Vec::with_capacity(REGIONS_MAX),
        }
    }

    pub(super) fn asked(&mut self, passage: Passage, id: [u8; 12]) {
        let asked = Asked {
            hash: passage.hash,
            id,
            at: passage.at,
        };
        if let Some(place) = self.requests.get_mut(place_of(passage.hash)) {
            let busy = place.is_some_and(|old| passage.at.saturating_sub(old.at) <= RTT_US_MAX);
            if !busy {
                *place = Some(asked);
            }
        }
    }

    /// Whether this was the answer to a request that is timed.
    pub(super) fn answered(&mut self, passage: Passage, region: RegionId, id: [u8; 12]) -> bool {
        let place = self.requests.get_mut(place_of(passage.hash));
        let is_it = |asked: &mut Asked| asked.hash == passage.hash && asked.id == id;
        let Some(asked) = place.and_then(|place| place.take_if(is_it)) else {
            return false;
        };
        let us = passage.at.saturating_sub(asked.at);
        us <= RTT_US_MAX
            && u32::try_from(us).is_ok_and(|us| {
                self.region(region).is_some_and(|known| {
                    known.took(us.max(1));
                    true
                })
            })
    }

    fn region(&mut self, region: RegionId) -> Option<&mut Region> {
        let known = self.regions.iter().position(|known| known.region == region);
        let at = known.unwrap_or(self.regions.len());
        if at >= REGIONS_MAX {
            return None;
        }
        if known.is_none() {
            self.regions.push(Region {
                region,
                latest: [u32::MAX; LATEST],
                next: 0,
            });
        }
        self.regions.get_mut(at)
    }

    pub(super) fn rtts(&self) -> impl Iterator<Item = (RegionId, u32)> {
        let least = |known: &Region| Some((known.region, *known.latest.iter().min()?));
        self.regions.iter().filter_map(least)
    }

    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.requests) + self.regions.capacity() * size_of::<Region>()
    }
}

impl Region {
    fn took(&mut self, us: u32) {
        if let Some(place) = self.latest.get_mut(self.next) {
            *place = us;
        }
        self.next = (self.next + 1) % LATEST;
    }
}

fn place_of(hash: u64) -> usize {
    usize::try_from(hash % (REQUESTS as u64)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Tick;
    use wire::ClientAddr;

    fn passage(hash: u64, at: Micros) -> Passage {
        Passage {
            client: ClientAddr::new(([192, 0, 2, 1], 1).into()),
            hash,
            tick: Tick(0),
            at,
        }
    }

    #[test]
    fn the_least_of_the_latest_is_told_by_region() {
        let mut times = OwnerTimes::new();
        for n in 0..LATEST as u64 + 1 {
            times.asked(passage(1, n * 10_000), [1; 12]);
            let took = if n == 0 { 1000 } else { 2000 + n };
            assert!(times.answered(passage(1, n * 10_000 + took), RegionId(1), [1; 12]));
        }
        times.asked(passage(2, 0), [2; 12]);
        assert!(times.answered(passage(2, 5), RegionId(2), [2; 12]));
        let told: Vec<_> = times.rtts().collect();
        assert_eq!(
            told,
            [(RegionId(1), 2001), (RegionId(2), 5)],
            "the first is forgotten"
        );
    }

    #[test]
    fn a_place_is_kept_until_its_answer_cannot_come_any_more() {
        let mut times = OwnerTimes::new();
        times.asked(passage(1, 0), [1; 12]);
        times.asked(passage(1 + REQUESTS as u64, RTT_US_MAX), [2; 12]);
        assert!(!times.answered(
            passage(1 + REQUESTS as u64, RTT_US_MAX),
            RegionId(1),
            [2; 12]
        ));
        assert!(times.answered(passage(1, 7), RegionId(1), [1; 12]));
        assert!(!times.answered(passage(1, 8), RegionId(1), [1; 12]), "once");
        times.asked(passage(1, 0), [1; 12]);
        times.asked(passage(1, RTT_US_MAX + 1), [3; 12]);
        assert!(times.answered(passage(1, RTT_US_MAX + 2), RegionId(1), [3; 12]));
    }

    #[test]
    fn regions_are_bounded() {
        let mut times = OwnerTimes::new();
        for n in 0..=u16::try_from(REGIONS_MAX).unwrap() {
            times.asked(passage(1, 0), [1; 12]);
            let counted = times.answered(passage(1, 1), RegionId(n), [1; 12]);
            assert_eq!(counted, usize::from(n) < REGIONS_MAX);
        }
    }
}
