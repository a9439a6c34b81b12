//! From a hash to the slot it names: open addressing in many small shards, each of which grows by itself.
//!
//! ```text
//! hash (64 bit):  shard = highest bits      tag = lowest 32 bits      home cell = tag & (cells of the shard - 1)
//! cell  (8 byte): tag << 32 | slot + 1      0 = empty
//! ```
//!
//! A whole table never moves at once: an insertion that makes its shard grow moves the cells of that shard, about a thousand
//! at most however many flows there are, and looks at no flow to do so, because the tag tells where a cell belongs.
//! Deletion moves cells back instead of leaving marks, so churn never asks for a clean-up. Memory is taken as flows come.

/// Entries a shard is meant for.
const SHARD_ENTRIES: u32 = 1024;
/// Cells of a shard that has its first entry.
const CELLS_MIN: usize = 16;

/// See the module head.
pub(crate) struct Index {
    shards: Box<[Shard]>,
    shift: u32,
}

impl Index {
    pub(crate) fn new(entries_max: u32) -> Self {
        let shards = (entries_max / SHARD_ENTRIES).max(1).next_power_of_two();
        Self {
            shards: (0..shards).map(|_| Shard::default()).collect(),
            shift: 63 - shards.trailing_zeros(),
        }
    }

    /// One shard that has room for `entries_max` from the start and never grows.
    pub(crate) fn with_room(entries_max: u32) -> Self {
        let mut index = Self::new(1);
        let cells = (entries_max as usize * 4 / 3 + 2).next_power_of_two();
        if let Some(shard) = index.shards.first_mut() {
            shard.cells = vec![Cell::EMPTY; cells].into_boxed_slice();
        }
        index
    }

    /// The slot under `hash` that `is` the one looked for.
    pub(crate) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.shards.get(self.shard(hash))?.find(tag(hash), is)
    }

    /// The caller knows that `slot` is not there.
    pub(crate) fn insert(&mut self, hash: u64, slot: u32) {
        let at = self.shard(hash);
        if let Some(shard) = self.shards.get_mut(at) {
            shard.insert(Cell::new(tag(hash), slot));
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, slot: u32) {
        let at = self.shard(hash);
        if let Some(shard) = self.shards.get_mut(at) {
            shard.remove(Cell::new(tag(hash), slot));
        }
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        let cells: usize = self.shards.iter().map(|shard| shard.cells.len()).sum();
        self.shards.len() * size_of::<Shard>() + cells * size_of::<Cell>()
    }

    const fn shard(&self, hash: u64) -> usize {
        // In two steps, because a single shard leaves no bit.
        (hash >> self.shift >> 1) as usize
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the tag is the low half")]
const fn tag(hash: u64) -> u32 {
    hash as u32
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell(u64);

impl Cell {
    const EMPTY: Self = Self(0);

    const fn new(tag: u32, slot: u32) -> Self {
        Self((tag as u64) << 32 | (slot as u64 + 1))
    }

    const fn is_empty(self) -> bool {
        self.0 == 0
    }

    const fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[expect(clippy::cast_possible_truncation, reason = "the slot is the low half")]
    const fn slot(self) -> u32 {
        (self.0 as u32).wrapping_sub(1)
    }
}

#[derive(Default)]
struct Shard {
    cells: Box<[Cell]>,
    len: usize,
}

impl Shard {
    /// One less than the cells there are, a power of two; all ones in a shard without cells, where every look ends at once.
    const fn mask(&self) -> usize {
        self.cells.len().wrapping_sub(1)
    }

    fn find(&self, tag: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mask = self.mask();
        let mut at = tag as usize & mask;
        loop {
            let cell = *self.cells.get(at)?;
            if cell.is_empty() {
                return None;
            }
            if cell.tag() == tag && is(cell.slot()) {
                return Some(cell.slot());
            }
            at = (at + 1) & mask;
        }
    }

    fn insert(&mut self, cell: Cell) {
        if (self.len + 1) * 4 > self.cells.len() * 3 {
            self.grow();
        }
        self.put(cell);
        self.len += 1;
    }

    fn put(&mut self, cell: Cell) {
        let mask = self.mask();
        let mut at = cell.tag() as usize & mask;
        while let Some(place) = self.cells.get_mut(at) {
            if place.is_empty() {
                *place = cell;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let cells = (self.cells.len() * 2).max(CELLS_MIN);
        let bigger = vec![Cell::EMPTY; cells].into_boxed_slice();
        let before = std::mem::replace(&mut self.cells, bigger);
        for cell in before.iter().filter(|cell| !cell.is_empty()) {
            self.put(*cell);
        }
    }

    fn remove(&mut self, cell: Cell) {
        let mask = self.mask();
        let mut hole = cell.tag() as usize & mask;
        loop {
            match self.cells.get(hole) {
                Some(other) if *other == cell => break,
                Some(other) if !other.is_empty() => hole = (hole + 1) & mask,
                Some(_) | None => return,
            }
        }
        self.len -= 1;
        self.close(hole, mask);
    }

    /// Moves back what would no longer be found beyond `hole`.
    fn close(&mut self, mut hole: usize, mask: usize) {
        let mut at = (hole + 1) & mask;
        while let Some(cell) = self.cells.get(at).copied().filter(|cell| !cell.is_empty()) {
            let from_home = at.wrapping_sub(cell.tag() as usize) & mask;
            let from_hole = at.wrapping_sub(hole) & mask;
            if from_home >= from_hole {
                self.set(hole, cell);
                hole = at;
            }
            at = (at + 1) & mask;
        }
        self.set(hole, Cell::EMPTY);
    }

    fn set(&mut self, at: usize, cell: Cell) {
        if let Some(place) = self.cells.get_mut(at) {
            *place = cell;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    #[test]
    fn agrees_with_a_map_under_churn_and_crowded_homes() {
        for (entries_max, homes) in [(1, 7), (64, 5), (5000, u64::MAX)] {
            let mut index = Index::new(entries_max);
            let (mut model, mut state) = (HashMap::new(), 0x5eed_u64);
            for round in 0..60_000u32 {
                let slot = u32::try_from(random(&mut state) % 600).unwrap();
                // Few low parts, so that runs of occupied cells meet and wrap round; the slot keeps hashes apart or not.
                let hash =
                    (random(&mut state) % homes).wrapping_mul(0x1_0000_0003) ^ u64::from(slot % 3);
                if let Some(hash) = model.remove(&slot) {
                    index.remove(hash, slot);
                    assert_eq!(index.find(hash, |other| other == slot), None, "{round}");
                } else {
                    index.insert(hash, slot);
                    model.insert(slot, hash);
                }
                if round % 512 == 0 {
                    for slot in 0..600 {
                        let hash = model.get(&slot).copied();
                        let found = hash.and_then(|hash| index.find(hash, |other| other == slot));
                        assert_eq!(found, hash.map(|_| slot), "{round}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_insertion_moves_a_thousand_cells_at_most() {
        let mut index = Index::new(1 << 20);
        let (mut state, mut worst, mut growths) = (7u64, 0, 0);
        for slot in 0..1 << 20 {
            let hash = random(&mut state);
            let at = index.shard(hash);
            let before = index.shards[at].cells.len();
            index.insert(hash, slot);
            if index.shards[at].cells.len() != before {
                worst = worst.max(before);
                growths += 1;
            }
        }
        assert!(growths > index.shards.len(), "shards grew: {growths}");
        assert!(worst <= 1024, "{worst}");
        println!("cells moved by the worst of 1048576 insertions: at most {worst}");
    }
}
