//! The IPv6 table: a trie that reads 20 bits at its root and 6 at each node, with equal neighbours stored once.
//!
//! ```text
//! root[address >> 108]    list 24 bit | scope 8 bit            or   node 24 bit | 255
//! nodes[node]             inner 64 bit     slots that lead to a node:  nodes[first_node + inner slots before this one]
//!                         starts 64 bit    slots a leaf begins at:     leaves[first_leaf + leaves begun up to this slot - 1]
//! leaves                  list 24 bit | scope 8 bit
//! ```
//!
//! At most 18 nodes are read, two for an address in a /32 and five in a /48, and the root is 4 MiB of which clients use an eighth.

use crate::compile::sweep::Run;
use crate::compile::tables::{Located, pack, unpack};

const ROOT_BITS: u32 = 20;
const NODE_BITS: u32 = 6;
/// (128 - ROOT_BITS) / NODE_BITS: as many nodes are read at most.
const DEPTH_MAX: u32 = 18;
/// A scope that says that more bits must be read.
const INNER: u8 = u8::MAX;

/// See the head of this file.
pub(crate) struct Table {
    root: Vec<u32>,
    nodes: Vec<Node>,
    leaves: Vec<u32>,
}

#[derive(Clone, Copy, Default)]
struct Node {
    inner: u64,
    starts: u64,
    first_node: u32,
    first_leaf: u32,
}

/// An aligned block of addresses with one list.
#[derive(Clone, Copy)]
struct Block {
    first: u128,
    /// Prefix length, which is the scope.
    len: u8,
    list: u32,
}

impl Block {
    const fn word(self) -> u32 {
        pack(self.list, self.len)
    }
}

impl Table {
    /// `runs` begins at 0.
    pub(crate) fn new(runs: &[Run]) -> Self {
        let blocks = blocks(runs);
        let mut table = Self {
            root: vec![0; 1 << ROOT_BITS],
            nodes: Vec::new(),
            leaves: Vec::new(),
        };
        let mut rest = blocks.as_slice();
        while let Some((block, after)) = rest.split_first() {
            let at = slot_in_root(block.first);
            if u32::from(block.len) <= ROOT_BITS {
                let count = 1_usize << (ROOT_BITS - u32::from(block.len));
                table.root_slots(at, count, block.word());
                rest = after;
                continue;
            }
            let inside = rest
                .iter()
                .take_while(|block| slot_in_root(block.first) == at)
                .count();
            let (inside, after) = rest.split_at(inside);
            let node = table.reserve(1);
            table.fill(node, inside, ROOT_BITS);
            table.root_slots(at, 1, pack(node, INNER));
            rest = after;
        }
        table
    }

    #[inline]
    pub(crate) fn lookup(&self, address: u128) -> Located {
        let mut word = *self.word(address);
        let mut rest = address << ROOT_BITS;
        // A word of the root or of a leaf ends the walk; nodes lead downwards only, and the last level has leaves alone.
        for _ in 0..=DEPTH_MAX {
            let located = unpack(word);
            if located.scope != INNER {
                return located;
            }
            word = self.step(located.list.0, rest);
            rest <<= NODE_BITS;
        }
        unpack(0)
    }

    /// The word that a lookup reads first.
    #[inline]
    pub(crate) fn word(&self, address: u128) -> &u32 {
        self.root.get(slot_in_root(address)).unwrap_or(&0)
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.root.len() + self.leaves.len()) * size_of::<u32>()
            + self.nodes.len() * size_of::<Node>()
    }

    /// From a node by the first bits of `rest` to a word.
    #[inline]
    fn step(&self, node: u32, rest: u128) -> u32 {
        let Some(node) = self.nodes.get(node as usize) else {
            return 0;
        };
        let slot = slot_in_node(rest);
        let before = (1_u64 << slot) - 1;
        if node.inner & (1 << slot) != 0 {
            return pack(node.first_node + (node.inner & before).count_ones(), INNER);
        }
        let begun = (node.starts & (before << 1 | 1)).count_ones();
        let leaf = (node.first_leaf + begun).wrapping_sub(1);
        self.leaves.get(leaf as usize).copied().unwrap_or_default()
    }

    fn root_slots(&mut self, at: usize, count: usize, word: u32) {
        let slots = self.root.get_mut(at..at + count);
        slots.unwrap_or_default().fill(word);
    }

    fn reserve(&mut self, count: usize) -> u32 {
        let first = self.nodes.len();
        self.nodes.resize(first + count, Node::default());
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// Writes a node whose prefix has `depth` bits. `blocks` lie inside it, in order and without gaps, each longer than its prefix.
    fn fill(&mut self, node: u32, blocks: &[Block], depth: u32) {
        let below = depth + NODE_BITS;
        let slot = |block: &Block| slot_in_node(block.first << depth);
        let mut written = Node {
            first_leaf: u32::try_from(self.leaves.len()).unwrap_or(u32::MAX),
            ..Node::default()
        };
        let mut inner = Vec::new();
        let mut rest = blocks;
        while let Some((block, after)) = rest.split_first() {
            let at = slot(block);
            if u32::from(block.len) <= below {
                written.starts |= 1 << at;
                self.leaves.push(block.word());
                rest = after;
                continue;
            }
            let inside = rest.iter().take_while(|block| slot(block) == at).count();
            let (inside, after) = rest.split_at(inside);
            written.inner |= 1 << at;
            inner.push(inside);
            rest = after;
        }
        written.first_node = self.reserve(inner.len());
        for (child, inside) in (written.first_node..).zip(inner) {
            self.fill(child, inside, below);
        }
        if let Some(place) = self.nodes.get_mut(node as usize) {
            *place = written;
        }
    }
}

/// Cuts runs into the largest aligned blocks.
fn blocks(runs: &[Run]) -> Vec<Block> {
    let mut blocks = Vec::with_capacity(runs.len() * 2);
    let ends = runs.iter().skip(1).map(|run| run.first - 1);
    for (run, last) in runs.iter().zip(ends.chain([u128::MAX])) {
        let mut next = Some(run.first);
        while let Some(first) = next.filter(|first| *first <= last) {
            let fits = match (last - first).checked_add(1) {
                Some(count) => count.ilog2(),
                None => 128,
            };
            let bits = first.trailing_zeros().min(fits);
            blocks.push(Block {
                first,
                len: u8::try_from(128 - bits).unwrap_or(128),
                list: run.list,
            });
            next = 1_u128
                .checked_shl(bits)
                .and_then(|count| first.checked_add(count));
        }
    }
    blocks
}

#[inline]
const fn slot_in_root(address: u128) -> usize {
    (address >> (128 - ROOT_BITS)) as usize
}

#[inline]
const fn slot_in_node(rest: u128) -> u32 {
    (rest >> (128 - NODE_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> u128 {
        text.parse::<std::net::Ipv6Addr>().unwrap().into()
    }

    fn table(runs: &[(&str, u32)]) -> Table {
        let runs: Vec<_> = runs
            .iter()
            .map(|(first, list)| Run {
                first: address(first),
                list: *list,
            })
            .collect();
        Table::new(&runs)
    }

    fn at(table: &Table, text: &str) -> (u32, u8) {
        let located = table.lookup(address(text));
        (located.list.0, located.scope)
    }

    #[test]
    fn one_list_for_all_is_scope_0() {
        let table = table(&[("::", 9)]);
        assert_eq!(at(&table, "::"), (9, 0));
        assert_eq!(
            at(&table, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (9, 0)
        );
        assert!(table.nodes.is_empty());
    }

    #[test]
    fn scopes_are_the_largest_aligned_blocks_at_every_depth() {
        let table = table(&[
            ("::", 1),
            ("2001:db8::", 2),
            ("2001:db8:0:1::", 3),
            ("2001:db8:0:2::", 2),
            ("2001:db8::2:0:0:0:1", 4),
            ("2001:db8::2:0:0:0:2", 2),
            ("2001:db9::", 1),
            ("8000::", 5),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 6),
        ]);
        for (text, wanted) in [
            ("::", (1, 3)),
            ("2000::", (1, 16)),
            ("2001:db7::", (1, 29)),
            ("2001:db8::1", (2, 64)),
            ("2001:db8:0:1::5", (3, 64)),
            ("2001:db8:0:2::", (2, 128)),
            ("2001:db8:0:2::1", (4, 128)),
            ("2001:db8:0:2::2", (2, 127)),
            ("2001:db8:0:3::", (2, 64)),
            ("2001:db8:8000::", (2, 33)),
            ("2001:db9::", (1, 32)),
            ("2003::", (1, 15)),
            ("8000::", (5, 2)),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe", (5, 128)),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", (6, 128)),
        ] {
            assert_eq!(at(&table, text), wanted, "{text}");
        }
    }
}
