//! Reassembly of packets that [`crate::record::split`] took apart.
//!
//! Bounded and preallocated: `packets_max` slots, each with room for one packet. When all are taken the oldest
//! unfinished packet is given up; one that is older than `ttl` is given up when the next fragment arrives. Both are
//! counted. Memory never grows after construction, and no call looks at more slots than it frees.
//!
//! This is not a general IP-style reassembler: parts are equal but for a shorter last one, and are at most
//! [`FRAGMENTS_MAX`] many, because that is all that `split` makes. Anything else is refused.
//!
//! ```text
//! slot data:  part i waits at i * stride, stride = ceil(PAYLOAD_LEN_MAX / count)
//!             complete: parts move together to the front and are handed out as one slice
//! ```

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use foldhash::SharedSeed;
use foldhash::fast::FoldHasher;
use hashbrown::HashTable;

use crate::ids::{ClientAddr, Owner, Tag};
use crate::record::{FRAGMENTS_MAX, Fragment, PAYLOAD_LEN_MAX, RecordHeader};

/// What became of a record that was handed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reassembled<'a> {
    /// A whole packet: the record's own payload when it was not split, otherwise all parts joined.
    Complete(&'a [u8]),
    /// A part was kept; others are missing.
    Pending,
    /// The part is of no use.
    Dropped(ReassemblyError),
}

/// Why a part was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum ReassemblyError {
    /// This part was already there.
    #[error("duplicate fragment")]
    Duplicate,
    /// Parts of unequal length, or so long that the packet would exceed [`PAYLOAD_LEN_MAX`].
    #[error("fragment length")]
    BadLength,
    /// Index not below count, or count out of range.
    #[error("bad fragment header")]
    BadFragment,
}

/// Totals since construction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets completed.
    pub completed: u64,
    /// Packets given up because a part was missing for longer than the ttl.
    pub expired: u64,
    /// Packets given up to make room for another.
    pub evicted: u64,
    /// Packets given up because their id came back with another count: the splitter has moved on.
    pub superseded: u64,
}

/// See the module head.
pub struct Reassembler {
    ttl: Duration,
    index: HashTable<u32>,
    slots: Vec<Slot>,
    data: Vec<u8>,
    free: Option<u32>,
    oldest: Option<u32>,
    newest: Option<u32>,
    hash_seed: u64,
    shared_seed: SharedSeed,
    stats: Stats,
}

/// Bytes of one slot: `count * stride` is largest for three parts of 491.
const SLOT_LEN: usize = PAYLOAD_LEN_MAX + FRAGMENTS_MAX as usize;

impl Reassembler {
    /// `packets_max` packets may be unfinished at a time, each for `ttl`. `hash_seed` must be unpredictable, because
    /// client addresses are part of what is hashed.
    #[must_use]
    pub fn new(packets_max: u16, ttl: Duration, hash_seed: u64) -> Self {
        let packets_max = packets_max.max(1);
        let slots_len = usize::from(packets_max);
        let slots = (0..u32::from(packets_max))
            .map(|at| Slot {
                next: (at + 1 < u32::from(packets_max)).then_some(at + 1),
                ..Slot::default()
            })
            .collect();
        Self {
            ttl,
            index: HashTable::with_capacity(slots_len),
            slots,
            data: vec![0; slots_len * SLOT_LEN],
            free: Some(0),
            oldest: None,
            newest: None,
            hash_seed,
            shared_seed: SharedSeed::from_u64(hash_seed.rotate_left(32)),
            stats: Stats::default(),
        }
    }

    /// Takes one record. One that was not split is passed through.
    pub fn push<'a>(
        &'a mut self,
        header: &RecordHeader,
        payload: &'a [u8],
        now: Instant,
    ) -> Reassembled<'a> {
        let Some(fragment) = header.fragment else {
            return Reassembled::Complete(payload);
        };
        let Some(part) = Part::new(fragment, payload) else {
            return Reassembled::Dropped(ReassemblyError::BadFragment);
        };
        self.expire(now);
        let key = Key::new(header, fragment.id);
        let at = match self.find(&key) {
            Some(at) if self.slot(at).is_some_and(|slot| slot.count == part.count) => at,
            Some(at) => {
                self.stats.superseded += 1;
                self.release(at);
                self.take(key, part.count, now)
            }
            None => self.take(key, part.count, now),
        };
        match self.store(at, &part) {
            Ok(None) => Reassembled::Pending,
            Ok(Some(len)) => {
                self.stats.completed += 1;
                self.release(at);
                Reassembled::Complete(self.data.get(data_range(at, 0, len)).unwrap_or_default())
            }
            Err(error) => {
                if self.slot(at).is_some_and(|slot| slot.seen == 0) {
                    self.release(at);
                }
                Reassembled::Dropped(error)
            }
        }
    }

    /// Packets waiting for parts.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.index.len()
    }

    /// Totals since construction.
    #[must_use]
    pub const fn stats(&self) -> Stats {
        self.stats
    }

    /// Copies a part to its place. `Some(len)` when it was the last one missing.
    fn store(&mut self, at: u32, part: &Part<'_>) -> Result<Option<usize>, ReassemblyError> {
        let slot = self.slots.get_mut(at as usize);
        let Some(slot) = slot else {
            return Err(ReassemblyError::BadFragment);
        };
        slot.admit(part)?;
        let (lens, done) = (slot.lens, slot.seen == (1 << part.count) - 1);
        let stride = stride(part.count);
        let place = data_range(at, usize::from(part.index) * stride, part.payload.len());
        if let Some(place) = self.data.get_mut(place) {
            place.copy_from_slice(part.payload);
        }
        Ok(done.then(|| self.join(at, stride, lens)))
    }

    /// Moves the parts together and returns the length of the whole.
    fn join(&mut self, at: u32, stride: usize, lens: [u16; FRAGMENTS_MAX as usize]) -> usize {
        let Some(data) = self.data.get_mut(data_range(at, 0, SLOT_LEN)) else {
            return 0;
        };
        let mut end = 0;
        for (index, len) in lens.into_iter().enumerate() {
            let (from, len) = (index * stride, usize::from(len));
            if from != end && len != 0 {
                data.copy_within(from..from + len, end);
            }
            end += len;
        }
        end
    }

    fn expire(&mut self, now: Instant) {
        while let Some(at) = self.oldest {
            let born = self.slot(at).and_then(|slot| slot.born);
            if born.is_some_and(|born| now.saturating_duration_since(born) < self.ttl) {
                return;
            }
            self.stats.expired += 1;
            self.release(at);
        }
    }

    /// A slot for a packet that is not there; the oldest is given up when none is free.
    fn take(&mut self, key: Key, count: u8, now: Instant) -> u32 {
        if self.free.is_none()
            && let Some(oldest) = self.oldest
        {
            self.stats.evicted += 1;
            self.release(oldest);
        }
        let at = self.free.unwrap_or_default();
        let previous = self.newest;
        if let Some(slot) = self.slots.get_mut(at as usize) {
            self.free = slot.next;
            *slot = Slot {
                key: Some(key),
                born: Some(now),
                count,
                previous,
                ..Slot::default()
            };
        }
        match previous.and_then(|previous| self.slots.get_mut(previous as usize)) {
            Some(previous) => previous.next = Some(at),
            None => self.oldest = Some(at),
        }
        self.newest = Some(at);
        let (slots, seed, shared) = (&self.slots, self.hash_seed, &self.shared_seed);
        self.index.insert_unique(key.hash(seed, shared), at, |at| {
            slots
                .get(*at as usize)
                .and_then(|slot| slot.key)
                .map_or(0, |key| key.hash(seed, shared))
        });
        at
    }

    /// Takes a slot out of the index and the age list and puts it on the free list.
    fn release(&mut self, at: u32) {
        let Some(slot) = self.slots.get_mut(at as usize) else {
            return;
        };
        let Slot {
            key,
            previous,
            next,
            ..
        } = std::mem::take(slot);
        slot.next = self.free;
        self.free = Some(at);
        match previous.and_then(|previous| self.slots.get_mut(previous as usize)) {
            Some(previous) => previous.next = next,
            None => self.oldest = next,
        }
        match next.and_then(|next| self.slots.get_mut(next as usize)) {
            Some(next) => next.previous = previous,
            None => self.newest = previous,
        }
        if let Some(key) = key {
            let hash = key.hash(self.hash_seed, &self.shared_seed);
            if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
                entry.remove();
            }
        }
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let hash = key.hash(self.hash_seed, &self.shared_seed);
        self.index
            .find(hash, |at| {
                self.slot(*at)
                    .is_some_and(|slot| slot.key.as_ref() == Some(key))
            })
            .copied()
    }

    fn slot(&self, at: u32) -> Option<&Slot> {
        self.slots.get(at as usize)
    }
}

/// A part whose header is in range.
struct Part<'a> {
    index: u8,
    count: u8,
    payload: &'a [u8],
}

impl<'a> Part<'a> {
    fn new(fragment: Fragment, payload: &'a [u8]) -> Option<Self> {
        let Fragment { index, count, .. } = fragment;
        ((2..=FRAGMENTS_MAX).contains(&count) && index < count && !payload.is_empty()).then_some(
            Self {
                index,
                count,
                payload,
            },
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    client: ClientAddr,
    owner: Owner,
    tag: Tag,
    id: u16,
}

impl Key {
    const fn new(header: &RecordHeader, id: u16) -> Self {
        Self {
            client: header.client,
            owner: header.owner,
            tag: header.tag,
            id,
        }
    }

    fn hash(&self, seed: u64, shared: &SharedSeed) -> u64 {
        let mut hasher = FoldHasher::with_seed(seed, shared);
        Hash::hash(self, &mut hasher);
        hasher.finish()
    }
}

/// Either on the free list (`key` is none, only `next` means something) or on the age list.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: Option<Key>,
    born: Option<Instant>,
    previous: Option<u32>,
    next: Option<u32>,
    lens: [u16; FRAGMENTS_MAX as usize],
    seen: u8,
    count: u8,
}

impl Slot {
    /// Notes a part, or says why it does not belong here.
    fn admit(&mut self, part: &Part<'_>) -> Result<(), ReassemblyError> {
        let bit = 1 << part.index;
        if self.seen & bit != 0 {
            return Err(ReassemblyError::Duplicate);
        }
        let len = u16::try_from(part.payload.len()).map_err(|_| ReassemblyError::BadLength)?;
        if usize::from(len) > stride(part.count) {
            return Err(ReassemblyError::BadLength);
        }
        let last_index = usize::from(part.count) - 1;
        let mut lens = self.lens;
        if let Some(slot) = lens.get_mut(usize::from(part.index)) {
            *slot = len;
        }
        // All parts that are there, but the last, are equal, and the last is not longer.
        let (full, last) = lens.split_at_checked(last_index).unwrap_or_default();
        let mut present = full.iter().copied().filter(|len| *len != 0);
        if let Some(first) = present.next() {
            let last = last.first().copied().unwrap_or_default();
            if present.any(|len| len != first) || last > first {
                return Err(ReassemblyError::BadLength);
            }
        }
        if lens.iter().map(|len| usize::from(*len)).sum::<usize>() > PAYLOAD_LEN_MAX {
            return Err(ReassemblyError::BadLength);
        }
        self.lens = lens;
        self.seen |= bit;
        Ok(())
    }
}

const fn stride(count: u8) -> usize {
    PAYLOAD_LEN_MAX.div_ceil(count as usize)
}

const fn data_range(at: u32, from: usize, len: usize) -> std::ops::Range<usize> {
    let start = at as usize * SLOT_LEN + from;
    start..start + len
}

impl std::fmt::Debug for Reassembler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reassembler")
            .field("packets_max", &self.slots.len())
            .field("pending", &self.pending())
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{PopId, RegionId, TransceiverId};

    const TTL: Duration = Duration::from_millis(200);

    #[test]
    fn joins_in_any_order() {
        for order in [
            [0, 1, 2],
            [0, 2, 1],
            [1, 0, 2],
            [1, 2, 0],
            [2, 0, 1],
            [2, 1, 0],
        ] {
            let mut r = Reassembler::new(8, TTL, 1);
            let parts = [&b"abcd"[..], b"efgh", b"i"];
            for (step, index) in order.into_iter().enumerate() {
                let got = r.push(&header(1, 9, index, 3), parts[usize::from(index)], start());
                let expected = match step {
                    2 => Reassembled::Complete(b"abcdefghi"),
                    _ => Reassembled::Pending,
                };
                assert_eq!(got, expected, "{order:?}");
            }
            assert_eq!((r.pending(), r.stats().completed), (0, 1));
        }
    }

    #[test]
    fn a_whole_record_passes_through() {
        let mut r = Reassembler::new(8, TTL, 1);
        let whole = RecordHeader {
            fragment: None,
            ..header(1, 0, 0, 2)
        };
        assert_eq!(r.push(&whole, b"x", start()), Reassembled::Complete(b"x"));
        assert_eq!(r.pending(), 0);
    }

    #[test]
    fn parts_of_different_packets_never_mix() {
        let mut r = Reassembler::new(8, TTL, 1);
        let base = header(1, 9, 0, 2);
        let mut others = [base; 5];
        others[0].client = header(2, 9, 0, 2).client;
        others[1].fragment = header(1, 10, 0, 2).fragment;
        others[2].tag.worker = 1;
        others[3].tag.pop = PopId(8);
        others[4].owner.transceiver = TransceiverId(6);
        r.push(&base, b"base", start());
        for mut other in others {
            other.fragment = other.fragment.map(|f| Fragment { index: 1, ..f });
            assert_eq!(r.push(&other, b"othr", start()), Reassembled::Pending);
        }
        let second = header(1, 9, 1, 2);
        assert_eq!(
            r.push(&second, b"2", start()),
            Reassembled::Complete(b"base2")
        );
    }

    #[test]
    fn duplicates_and_bad_lengths_are_refused_and_harmless() {
        let mut r = Reassembler::new(8, TTL, 1);
        r.push(&header(1, 9, 0, 3), b"abcd", start());
        for (index, part, error) in [
            (0, &b"abcd"[..], ReassemblyError::Duplicate),
            (0, b"zzzz", ReassemblyError::Duplicate),
            (1, b"efg", ReassemblyError::BadLength),
            (2, b"ijklm", ReassemblyError::BadLength),
            (3, b"x", ReassemblyError::BadFragment),
            (1, b"", ReassemblyError::BadFragment),
            (1, &[0; 492], ReassemblyError::BadLength),
        ] {
            let got = r.push(&header(1, 9, index, 3), part, start());
            assert_eq!(got, Reassembled::Dropped(error), "{index} {part:?}");
        }
        r.push(&header(1, 9, 2, 3), b"i", start());
        let got = r.push(&header(1, 9, 1, 3), b"efgh", start());
        assert_eq!(got, Reassembled::Complete(b"abcdefghi"));
    }

    #[test]
    fn a_refused_first_part_leaves_no_slot() {
        let mut r = Reassembler::new(8, TTL, 1);
        let got = r.push(&header(1, 9, 0, 2), &[0; 737], start());
        assert_eq!(got, Reassembled::Dropped(ReassemblyError::BadLength));
        assert_eq!(r.pending(), 0);
    }

    #[test]
    fn another_count_supersedes() {
        let mut r = Reassembler::new(8, TTL, 1);
        r.push(&header(1, 9, 0, 3), b"abcd", start());
        assert_eq!(
            r.push(&header(1, 9, 0, 2), b"AB", start()),
            Reassembled::Pending
        );
        let got = r.push(&header(1, 9, 1, 2), b"C", start());
        assert_eq!(got, Reassembled::Complete(b"ABC"));
        assert_eq!((r.stats().superseded, r.pending()), (1, 0));
    }

    #[test]
    fn old_packets_expire_and_only_they() {
        let mut r = Reassembler::new(8, TTL, 1);
        let at = |ms| start() + Duration::from_millis(ms);
        r.push(&header(1, 1, 0, 2), b"old", at(0));
        r.push(&header(1, 2, 0, 2), b"mid", at(100));
        assert_eq!(
            r.push(&header(1, 3, 0, 2), b"new", at(200)),
            Reassembled::Pending
        );
        assert_eq!((r.stats().expired, r.pending()), (1, 2));
        assert_eq!(
            r.push(&header(1, 2, 1, 2), b"x", at(299)),
            Reassembled::Complete(b"midx")
        );
        // The part that comes late starts a packet of its own.
        assert_eq!(
            r.push(&header(1, 1, 1, 2), b"x", at(299)),
            Reassembled::Pending
        );
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut r = Reassembler::new(4, TTL, 1);
        for id in 0..6 {
            r.push(&header(1, id, 0, 2), b"ab", start());
        }
        assert_eq!((r.stats().evicted, r.pending()), (2, 4));
        let got = r.push(&header(1, 2, 1, 2), b"c", start());
        assert_eq!(got, Reassembled::Complete(b"abc"));
        assert_eq!(
            r.push(&header(1, 1, 1, 2), b"c", start()),
            Reassembled::Pending
        );
    }

    #[test]
    fn debug_shows_no_client_and_no_seed() {
        let mut r = Reassembler::new(4, TTL, 0x5eed);
        r.push(&header(1, 1, 0, 2), b"ab", start());
        let shown = format!("{r:?}");
        assert!(
            shown.starts_with("Reassembler { packets_max: 4, pending: 1"),
            "{shown}"
        );
        assert!(
            !shown.contains("seed") && !shown.contains("client"),
            "{shown}"
        );
    }

    fn start() -> Instant {
        crate::fuzz::origin()
    }

    fn header(client: u8, id: u16, index: u8, count: u8) -> RecordHeader {
        RecordHeader {
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(2),
            },
            tag: Tag {
                pop: PopId(3),
                worker: 0,
                ingress: 0,
            },
            client: ClientAddr::new(([192, 0, 2, client], 4000).into()),
            hops: 0,
            fragment: Some(Fragment { id, index, count }),
            offered: false,
        }
    }
}
