//! The IPv4 table: one word for each /24, and a few words more for the /24s that are divided.
//!
//! ```text
//! words[address >> 8]     list 24 bit | scope 8 bit        the whole /24 has one list; scope 0..=24
//!                         split 24 bit | 255               divided:
//! splits[split]           starts 256 bit | first 32 bit    a bit where a block begins; words[first + blocks begun - 1]
//! blocks                  list 24 bit | scope 8 bit        scope 25..=32
//! ```
//!
//! One cache line is read for nearly every query, three for an address in a divided /24.

use crate::compile::sweep::Run;
use crate::compile::tables::{Located, pack, unpack};

/// Words of the table.
pub const MEMORY_LEN: usize = 1 << 24;

/// A scope that says that the /24 is divided.
const DIVIDED: u8 = u8::MAX;

/// See the head of this file.
pub(crate) struct Table {
    words: Vec<u32>,
    splits: Vec<Split>,
    blocks: Vec<u32>,
}

/// A divided /24.
struct Split {
    /// Bit `i`: a block begins at its `i`th address.
    starts: [u64; 4],
    /// Its first block.
    first: u32,
}

impl Table {
    /// `words` is [`MEMORY_LEN`] long, `runs` begins at 0.
    pub(crate) fn new(words: Vec<u32>, runs: &[Run]) -> Self {
        let mut table = Self {
            words,
            splits: Vec::new(),
            blocks: Vec::new(),
        };
        let ends = runs.iter().skip(1).map(|run| run.first - 1);
        for (run, last) in runs.iter().zip(ends.chain([u128::from(u32::MAX)])) {
            let first = u64::try_from(run.first).unwrap_or(u64::MAX);
            let last = u64::try_from(last).unwrap_or(u64::MAX);
            table.put(first, last, run.list);
        }
        table
    }

    #[inline]
    pub(crate) fn lookup(&self, address: u32) -> Located {
        let located = unpack(*self.word(address));
        if located.scope == DIVIDED {
            return self.in_split(located.list.0, address);
        }
        located
    }

    /// The word that a lookup reads first.
    #[inline]
    pub(crate) fn word(&self, address: u32) -> &u32 {
        self.words.get((address >> 8) as usize).unwrap_or(&0)
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.words.len() + self.blocks.len()) * size_of::<u32>()
            + self.splits.len() * size_of::<Split>()
    }

    fn in_split(&self, split: u32, address: u32) -> Located {
        let block = self.splits.get(split as usize).and_then(|split| {
            let block = split.first + begun(&split.starts, address & 0xff) - 1;
            self.blocks.get(block as usize)
        });
        unpack(block.copied().unwrap_or_default())
    }

    /// Cuts a run into the largest aligned blocks and writes each.
    fn put(&mut self, mut first: u64, last: u64, list: u32) {
        while first <= last {
            let aligned = first.trailing_zeros().min(32);
            let fits = (last - first + 1).ilog2();
            let bits = aligned.min(fits);
            self.put_block(first, bits, list);
            first += 1 << bits;
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "an IPv4 address, and at most 32 bits of it"
    )]
    fn put_block(&mut self, first: u64, bits: u32, list: u32) {
        let word = pack(list, 32 - bits as u8);
        let at = (first >> 8) as usize;
        if bits >= 8 {
            let words = self.words.get_mut(at..at + (1 << (bits - 8)));
            words.unwrap_or_default().fill(word);
            return;
        }
        let inside = (first & 0xff) as u32;
        if inside == 0 {
            self.divide(at);
        }
        // Blocks come in order: this one belongs to the last split.
        if let Some(split) = self.splits.last_mut() {
            set(&mut split.starts, inside);
            self.blocks.push(word);
        }
    }

    fn divide(&mut self, at: usize) {
        let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let word = pack(count(self.splits.len()), DIVIDED);
        if let Some(place) = self.words.get_mut(at) {
            *place = word;
        }
        self.splits.push(Split {
            starts: [0; 4],
            first: count(self.blocks.len()),
        });
    }
}

fn set(starts: &mut [u64; 4], at: u32) {
    if let Some(word) = starts.get_mut((at / 64) as usize) {
        *word |= 1 << (at % 64);
    }
}

/// Blocks that begin at or before `at`, 0..=255.
fn begun(starts: &[u64; 4], at: u32) -> u32 {
    let mut left = at + 1;
    let mut count = 0;
    for word in starts {
        let here = left.min(64);
        let mask = u64::MAX.checked_shr(64 - here).unwrap_or(0);
        count += (word & mask).count_ones();
        left -= here;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(runs: &[(u32, u32)]) -> Table {
        let runs: Vec<_> = runs
            .iter()
            .map(|(first, list)| Run {
                first: u128::from(*first),
                list: *list,
            })
            .collect();
        Table::new(vec![0; MEMORY_LEN], &runs)
    }

    fn at(table: &Table, address: [u8; 4]) -> (u32, u8) {
        let located = table.lookup(u32::from_be_bytes(address));
        (located.list.0, located.scope)
    }

    #[test]
    fn one_list_for_all_is_scope_0() {
        let table = table(&[(0, 7)]);
        assert_eq!(at(&table, [1, 2, 3, 4]), (7, 0));
        assert_eq!(at(&table, [255; 4]), (7, 0));
        assert_eq!(table.splits.len(), 0);
    }

    #[test]
    fn scopes_are_the_largest_aligned_blocks() {
        let start = |a: [u8; 4]| u32::from_be_bytes(a);
        let table = table(&[
            (0, 1),
            (start([10, 0, 0, 0]), 2),
            (start([11, 0, 0, 0]), 1),
            (start([192, 0, 2, 128]), 3),
            (start([192, 0, 2, 129]), 1),
            (start([255, 255, 255, 255]), 4),
        ]);
        assert_eq!(at(&table, [0, 0, 0, 1]), (1, 5));
        assert_eq!(at(&table, [10, 9, 8, 7]), (2, 8));
        assert_eq!(at(&table, [11, 0, 0, 0]), (1, 8));
        assert_eq!(at(&table, [192, 0, 2, 1]), (1, 25));
        assert_eq!(at(&table, [192, 0, 2, 128]), (3, 32));
        assert_eq!(at(&table, [192, 0, 2, 129]), (1, 32));
        assert_eq!(at(&table, [192, 0, 2, 255]), (1, 26));
        assert_eq!(at(&table, [192, 0, 3, 0]), (1, 24));
        assert_eq!(at(&table, [255, 255, 255, 254]), (1, 32));
        assert_eq!(at(&table, [255, 255, 255, 255]), (4, 32));
        assert_eq!(table.splits.len(), 2);
    }

    #[test]
    fn a_slash_24_may_hold_256_lists() {
        let runs: Vec<_> = (0..256).map(|i| (i, i)).collect();
        let table = table(&runs);
        for i in 0..=255 {
            assert_eq!(at(&table, [0, 0, 0, i]), (u32::from(i), 32));
        }
        assert_eq!(table.blocks.len(), 256);
    }
}
