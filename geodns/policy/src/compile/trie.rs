//! A table of one address family: a trie that reads some bits at its root and 6 at each node, with equal neighbours stored once.
//!
//! ```text
//! root[first bits]        list 24 bit | scope 8 bit            or   node 24 bit | 255
//! nodes[node]             inner 64 bit     slots that lead to a node:  nodes[first_node + inner slots before this one]
//!                         starts 64 bit    slots a leaf begins at:     leaves[first_leaf + leaves begun up to this slot - 1]
//! leaves                  list 24 bit | scope 8 bit
//! ```
//!
//! IPv4 reads 12 bits at the root, 16 KiB that stay in the cache, and at most two nodes for an address in a /24. IPv6 reads 20 bits, 4 MiB
//! of which clients use an eighth, two nodes for an address in a /32 and five in a /48. What is asked for often lies close together: a
//! flat table of all /24s has a page of its own for nearly every client, and a hypervisor makes the walk to a page long.

use thiserror::Error;

use crate::compile::sweep::{Family, Run};
use crate::compile::tables::{Located, pack, unpack};

/// Nodes of one table at most: their indices have 24 bits.
pub const NODES_MAX: usize = 1 << 24;
const NODE_BITS: u32 = 6;
/// A scope that says that more bits must be read.
const INNER: u8 = u8::MAX;

/// IPv4 addresses.
pub(crate) type V4 = Table<12>;
/// IPv6 addresses.
pub(crate) type V6 = Table<20>;

/// See the head of this file. Addresses of either family have their first bit in the highest of 128.
pub(crate) struct Table<const ROOT_BITS: u32> {
    root: Vec<u32>,
    nodes: Vec<Node>,
    leaves: Vec<u32>,
}

/// More than [`NODES_MAX`] nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {NODES_MAX} nodes")]
pub(crate) struct TooManyNodes;

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

impl<const ROOT_BITS: u32> Table<ROOT_BITS> {
    /// As many nodes are read at most.
    const DEPTH_MAX: u32 = (u128::BITS - ROOT_BITS).div_ceil(NODE_BITS);

    /// `runs` are of `family` and begin at 0.
    pub(crate) fn new(family: Family, runs: &[Run]) -> Result<Self, TooManyNodes> {
        Self::bounded(family, runs, NODES_MAX)
    }

    fn bounded(family: Family, runs: &[Run], nodes_max: usize) -> Result<Self, TooManyNodes> {
        let mut builder = Builder::new(nodes_max);
        let first = |run: &Run| run.first << family.bits_missing();
        let lasts = runs.iter().skip(1).map(|run| first(run) - 1);
        for (run, last) in runs.iter().zip(lasts.chain([u128::MAX])) {
            let mut next = Some(first(run));
            while let Some(first) = next.filter(|first| *first <= last) {
                let block = Block::largest(first, last, run.list);
                builder.put(block)?;
                next = block.after();
            }
        }
        builder.finish()
    }

    #[inline]
    pub(crate) fn lookup(&self, address: u128) -> Located {
        let mut word = *self.root_word(address);
        let mut rest = address << ROOT_BITS;
        // A word of the root or of a leaf ends the walk; nodes lead downwards only, and the last level has leaves alone.
        for _ in 0..=Self::DEPTH_MAX {
            let located = unpack(word);
            if located.scope != INNER {
                return located;
            }
            word = self.step(located.list.0, rest);
            rest <<= NODE_BITS;
        }
        unpack(0)
    }

    /// A word that a lookup reads early and that may be far from the processor: of the first node, if there is one.
    #[inline]
    pub(crate) fn word(&self, address: u128) -> &u32 {
        let word = self.root_word(address);
        let located = unpack(*word);
        let node = self.nodes.get(located.list.0 as usize);
        let node = node.filter(|_| located.scope == INNER);
        node.map_or(word, |node| &node.first_leaf)
    }

    pub(crate) fn bytes(&self) -> usize {
        (self.root.len() + self.leaves.len()) * size_of::<u32>()
            + self.nodes.len() * size_of::<Node>()
    }

    #[inline]
    fn root_word(&self, address: u128) -> &u32 {
        self.root.get(Self::slot_in_root(address)).unwrap_or(&0)
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

    #[inline]
    const fn slot_in_root(address: u128) -> usize {
        (address >> (u128::BITS - ROOT_BITS)) as usize
    }
}

/// Takes blocks in order and writes every node once, after its children, which must be neighbours.
struct Builder<const ROOT_BITS: u32> {
    table: Table<ROOT_BITS>,
    nodes_max: usize,
    /// Nodes from the root down that hold the last block, and those that are free for the next.
    levels: Vec<Level>,
    open: u32,
    /// First address of the last block.
    last: u128,
}

/// A node that is being read in.
#[derive(Default)]
struct Level {
    inner: u64,
    starts: u64,
    children: Vec<Node>,
    leaves: Vec<u32>,
}

impl<const ROOT_BITS: u32> Builder<ROOT_BITS> {
    fn new(nodes_max: usize) -> Self {
        Self {
            table: Table {
                root: vec![0; 1 << ROOT_BITS],
                nodes: Vec::new(),
                leaves: Vec::new(),
            },
            nodes_max,
            levels: Vec::new(),
            open: 0,
            last: 0,
        }
    }

    fn put(&mut self, block: Block) -> Result<(), TooManyNodes> {
        let Some(below_root) = u32::from(block.len).checked_sub(ROOT_BITS + 1) else {
            self.close_to(0)?;
            let count = 1_usize << (ROOT_BITS - u32::from(block.len));
            let at = Table::<ROOT_BITS>::slot_in_root(block.first);
            self.table.root_slots(at, count, block.word());
            return Ok(());
        };
        let level = below_root / NODE_BITS;
        self.close_to(Self::shared(self.last, block.first))?;
        self.open = level + 1;
        let open = self.open as usize;
        if self.levels.len() < open {
            self.levels.resize_with(open, Level::default);
        }
        if let Some(node) = self.level(level) {
            node.starts |= 1 << Self::slot(block.first, level);
            node.leaves.push(block.word());
        }
        self.last = block.first;
        Ok(())
    }

    fn finish(mut self) -> Result<Table<ROOT_BITS>, TooManyNodes> {
        self.close_to(0)?;
        self.table.nodes.shrink_to_fit();
        self.table.leaves.shrink_to_fit();
        Ok(self.table)
    }

    /// Writes what nodes below the first `levels` know, lowest first.
    fn close_to(&mut self, levels: u32) -> Result<(), TooManyNodes> {
        while self.open > levels {
            self.open -= 1;
            let node = self.write_level(self.open)?;
            let Some(above) = self.open.checked_sub(1) else {
                let index = self.table.nodes.len();
                self.append(&[node])?;
                let word = pack(u32::try_from(index).map_err(|_| TooManyNodes)?, INNER);
                let at = Table::<ROOT_BITS>::slot_in_root(self.last);
                self.table.root_slots(at, 1, word);
                return Ok(());
            };
            let slot = Self::slot(self.last, above);
            if let Some(parent) = self.level(above) {
                parent.inner |= 1 << slot;
                parent.children.push(node);
            }
        }
        Ok(())
    }

    /// Writes children and leaves of a node, and forgets them; their memory serves the next.
    fn write_level(&mut self, level: u32) -> Result<Node, TooManyNodes> {
        let index = |len: usize| u32::try_from(len).map_err(|_| TooManyNodes);
        let (first_node, first_leaf) = (
            index(self.table.nodes.len())?,
            index(self.table.leaves.len())?,
        );
        let mut read = self.level(level).map(std::mem::take).unwrap_or_default();
        let node = Node {
            inner: std::mem::take(&mut read.inner),
            starts: std::mem::take(&mut read.starts),
            first_node,
            first_leaf,
        };
        self.append(&read.children)?;
        self.table.leaves.append(&mut read.leaves);
        read.children.clear();
        if let Some(place) = self.level(level) {
            *place = read;
        }
        Ok(node)
    }

    fn append(&mut self, nodes: &[Node]) -> Result<(), TooManyNodes> {
        if self.table.nodes.len() + nodes.len() > self.nodes_max {
            return Err(TooManyNodes);
        }
        self.table.nodes.extend_from_slice(nodes);
        Ok(())
    }

    /// As many levels hold both addresses in one node.
    const fn shared(one: u128, other: u128) -> u32 {
        match (one ^ other).leading_zeros().checked_sub(ROOT_BITS) {
            Some(bits) => bits / NODE_BITS + 1,
            None => 0,
        }
    }

    /// Where an address leads to from its node at a level.
    const fn slot(address: u128, level: u32) -> u32 {
        slot_in_node(address << (ROOT_BITS + NODE_BITS * level))
    }

    fn level(&mut self, level: u32) -> Option<&mut Level> {
        self.levels.get_mut(level as usize)
    }
}

impl Block {
    /// The largest that begins at `first` and does not go beyond `last`.
    fn largest(first: u128, last: u128, list: u32) -> Self {
        let fits = match (last - first).checked_add(1) {
            Some(count) => count.ilog2(),
            None => u128::BITS,
        };
        let bits = first.trailing_zeros().min(fits);
        Self {
            first,
            len: u8::try_from(u128::BITS - bits).unwrap_or(128),
            list,
        }
    }

    /// The first address behind it.
    fn after(&self) -> Option<u128> {
        let count = 1_u128.checked_shl(u128::BITS - u32::from(self.len))?;
        self.first.checked_add(count)
    }

    const fn word(&self) -> u32 {
        pack(self.list, self.len)
    }
}

#[inline]
const fn slot_in_node(rest: u128) -> u32 {
    (rest >> (u128::BITS - NODE_BITS)) as u32
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn bits(address: &str) -> u128 {
        match address.parse().unwrap() {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn runs(runs: &[(&str, u32)]) -> Vec<Run> {
        let run = |(first, list): &(&str, u32)| Run {
            first: bits(first),
            list: *list,
        };
        runs.iter().map(run).collect()
    }

    fn v4(given: &[(&str, u32)]) -> V4 {
        Table::new(Family::V4, &runs(given)).unwrap()
    }

    fn v6(given: &[(&str, u32)]) -> V6 {
        Table::new(Family::V6, &runs(given)).unwrap()
    }

    fn at_v4(table: &V4, text: &str) -> (u32, u8) {
        let located = table.lookup(bits(text) << 96);
        (located.list.0, located.scope)
    }

    fn at_v6(table: &V6, text: &str) -> (u32, u8) {
        let located = table.lookup(bits(text));
        (located.list.0, located.scope)
    }

    #[test]
    fn one_list_for_all_is_scope_0() {
        let table = v4(&[("0.0.0.0", 7)]);
        assert_eq!(at_v4(&table, "1.2.3.4"), (7, 0));
        assert_eq!(at_v4(&table, "255.255.255.255"), (7, 0));
        assert!(table.nodes.is_empty());
        let table = v6(&[("::", 9)]);
        assert_eq!(at_v6(&table, "::"), (9, 0));
        assert_eq!(
            at_v6(&table, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
            (9, 0)
        );
        assert!(table.nodes.is_empty());
    }

    #[test]
    fn scopes_are_the_largest_aligned_blocks() {
        let table = v4(&[
            ("0.0.0.0", 1),
            ("10.0.0.0", 2),
            ("11.0.0.0", 1),
            ("192.0.2.128", 3),
            ("192.0.2.129", 1),
            ("255.255.255.255", 4),
        ]);
        for (text, wanted) in [
            ("0.0.0.1", (1, 5)),
            ("10.9.8.7", (2, 8)),
            ("11.0.0.0", (1, 8)),
            ("192.0.2.1", (1, 25)),
            ("192.0.2.128", (3, 32)),
            ("192.0.2.129", (1, 32)),
            ("192.0.2.255", (1, 26)),
            ("192.0.3.0", (1, 24)),
            ("255.255.255.254", (1, 32)),
            ("255.255.255.255", (4, 32)),
        ] {
            assert_eq!(at_v4(&table, text), wanted, "{text}");
        }
    }

    #[test]
    fn a_slash_24_may_hold_256_lists() {
        let runs: Vec<_> = (0..256)
            .map(|i| Run {
                first: u128::from(i),
                list: i,
            })
            .collect();
        let table = V4::new(Family::V4, &runs).unwrap();
        for i in 0..=255_u8 {
            let address = format!("0.0.0.{i}");
            assert_eq!(at_v4(&table, &address), (u32::from(i), 32));
        }
        assert_eq!(
            table.leaves.len(),
            256 + 12,
            "and what lies behind them in the slot of the root"
        );
    }

    #[test]
    fn more_nodes_than_their_indices_can_say_are_refused() {
        let runs = runs(&[("0.0.0.0", 1), ("10.0.0.1", 2), ("10.0.0.2", 1)]);
        let table = |nodes_max| V4::bounded(Family::V4, &runs, nodes_max);
        // One each for bits 13 to 18, 19 to 24, 25 to 30, 31 and 32.
        assert_eq!(table(4).unwrap().nodes.len(), 4);
        for nodes_max in 0..4 {
            assert_eq!(table(nodes_max).err(), Some(TooManyNodes), "{nodes_max}");
        }
    }

    #[test]
    fn scopes_are_the_largest_aligned_blocks_at_every_depth() {
        let table = v6(&[
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
            assert_eq!(at_v6(&table, text), wanted, "{text}");
        }
    }
}
