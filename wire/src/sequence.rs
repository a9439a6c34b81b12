//! Sequence numbers of datagrams: given out for each destination, and what those that arrive tell about loss and order.
//!
//! ```text
//!   highest - 127 ........................... highest
//!   |  a bit for each: has it arrived?              |   a number that leaves the window without having come is lost
//! ```
//!
//! A number behind the window, or far ahead of it, is a straggler, or the first of a sender that started over: it is
//! believed when the next number follows it (RFC 3550 §A.1 does the same).

use std::collections::BTreeMap;

/// Numbers that may still arrive late, behind the highest.
const WINDOW: u16 = 128;
/// A jump ahead of more than this is no loss, but another sender.
const JUMP_MAX: u16 = 3000;
/// Destinations or senders told apart at most; with one more, the table starts over.
const PEERS_MAX: usize = 4096;

/// What arrived of one sender's datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Datagrams that came.
    pub received: u64,
    /// Datagrams that did not come within the 127 that followed them.
    pub lost: u64,
    /// Datagrams that came after one that was sent later.
    pub reordered: u64,
}

impl Arrivals {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            received: self.received + other.received,
            lost: self.lost + other.lost,
            reordered: self.reordered + other.reordered,
        }
    }
}

/// Watches the sequence numbers of one sender.
#[derive(Clone, Debug, Default)]
pub struct Receipts {
    highest: Option<u16>,
    /// Bit `i`: `highest - i` has arrived.
    seen: u128,
    /// What would follow a number that is out of place.
    restart: Option<u16>,
    arrivals: Arrivals,
}

impl Receipts {
    /// A datagram with this number arrived. Returns how many numbers it is ahead of the highest before it; 0 when it is
    /// behind.
    pub fn received(&mut self, sequence: u16) -> u16 {
        self.arrivals.received += 1;
        let Some(highest) = self.highest else {
            return self.begin(sequence);
        };
        let ahead = sequence.wrapping_sub(highest);
        let behind = highest.wrapping_sub(sequence);
        if ahead != 0 && ahead <= JUMP_MAX {
            self.advance(ahead);
            self.highest = Some(sequence);
            self.restart = None;
            return ahead;
        }
        if behind < WINDOW {
            let bit = 1 << behind;
            self.arrivals.reordered += u64::from(self.seen & bit == 0);
            self.seen |= bit;
            return 0;
        }
        if self.restart == Some(sequence) {
            return self.begin(sequence);
        }
        self.restart = Some(sequence.wrapping_add(1));
        self.arrivals.reordered += 1;
        0
    }

    /// What has arrived so far.
    #[must_use]
    pub const fn arrivals(&self) -> Arrivals {
        self.arrivals
    }

    fn begin(&mut self, sequence: u16) -> u16 {
        self.highest = Some(sequence);
        self.seen = u128::MAX;
        self.restart = None;
        1
    }

    fn advance(&mut self, by: u16) {
        let leaving = by.min(WINDOW);
        let held = (self.seen >> (WINDOW - leaving)).count_ones();
        // Numbers that were jumped over and lie behind the window already have had no bit.
        let jumped = by - leaving;
        self.arrivals.lost += u64::from(leaving) - u64::from(held) + u64::from(jumped);
        self.seen = self.seen.checked_shl(by.into()).unwrap_or_default() | 1;
    }
}

/// [`Receipts`] of several senders.
#[derive(Clone, Debug)]
pub struct ReceiptsBySender<K> {
    senders: BTreeMap<K, Receipts>,
    /// Of senders that were forgotten.
    earlier: Arrivals,
}

impl<K: Ord> ReceiptsBySender<K> {
    /// Of nobody yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            senders: BTreeMap::new(),
            earlier: Arrivals {
                received: 0,
                lost: 0,
                reordered: 0,
            },
        }
    }

    /// A datagram of `sender` with this number arrived.
    pub fn received(&mut self, sender: K, sequence: u16) {
        if let Some(receipts) = self.senders.get_mut(&sender) {
            receipts.received(sequence);
            return;
        }
        if self.senders.len() >= PEERS_MAX {
            self.earlier = self.arrivals();
            self.senders.clear();
        }
        let mut receipts = Receipts::default();
        receipts.received(sequence);
        self.senders.insert(sender, receipts);
    }

    /// Of all senders together.
    #[must_use]
    pub fn arrivals(&self) -> Arrivals {
        let each = self.senders.values().map(Receipts::arrivals);
        each.fold(self.earlier, Arrivals::plus)
    }
}

impl<K: Ord> Default for ReceiptsBySender<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// The next number for each destination.
#[derive(Clone, Debug)]
pub struct Sequences<K>(BTreeMap<K, u16>);

impl<K: Ord> Sequences<K> {
    /// Every destination starts at 0.
    #[must_use]
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// The number of the next datagram to `to`. Past the bound on destinations all start over.
    pub fn next(&mut self, to: K) -> u16 {
        if let Some(next) = self.0.get_mut(&to) {
            let sequence = *next;
            *next = sequence.wrapping_add(1);
            return sequence;
        }
        if self.0.len() >= PEERS_MAX {
            self.0.clear();
        }
        self.0.insert(to, 1);
        0
    }
}

impl<K: Ord> Default for Sequences<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sequences: impl IntoIterator<Item = u16>) -> Arrivals {
        let mut receipts = Receipts::default();
        for sequence in sequences {
            receipts.received(sequence);
        }
        receipts.arrivals()
    }

    fn arrivals(received: u64, lost: u64, reordered: u64) -> Arrivals {
        Arrivals {
            received,
            lost,
            reordered,
        }
    }

    #[test]
    fn what_comes_in_turn_is_neither_lost_nor_reordered() {
        let across_the_wrap = (0..200_000u32).map(|n| u16::try_from(n % 65_536).unwrap());
        assert_eq!(of(across_the_wrap), arrivals(200_000, 0, 0));
    }

    #[test]
    fn a_gap_is_lost_once_it_has_left_the_window() {
        for gap in [1u16, 2, 126, 127, 128, 129, 130, 1000, 2999] {
            let before = 0..500u16;
            let after = |len: u16| (0..len).map(move |n| 500 + gap + n);
            // The last of the gap is still inside the window after 127 more, and outside after one more.
            let inside = of(before.clone().chain(after(127))).lost;
            assert_eq!(inside, u64::from(gap) - 1, "{gap}");
            let all = of(before.chain(after(128)));
            assert_eq!(all, arrivals(628, gap.into(), 0), "{gap}");
        }
    }

    #[test]
    fn what_is_late_is_reordered_and_not_lost() {
        let swapped = (0..10_000u16).map(|n| n ^ 1);
        // What came before the first is not known, so that pair does not count.
        assert_eq!(of(swapped), arrivals(10_000, 0, 4_999));
        let late = (0..1000u16).filter(|n| *n != 500).collect::<Vec<_>>();
        let (head, tail) = late.split_at(627);
        let order = head.iter().chain([&500]).chain(tail).copied();
        assert_eq!(of(order), arrivals(1000, 0, 1));
    }

    #[test]
    fn duplicates_change_nothing_but_the_count() {
        let twice = (0..1000u16).flat_map(|n| [n, n]);
        assert_eq!(of(twice), arrivals(2000, 0, 0));
    }

    #[test]
    fn a_sender_that_starts_over_has_lost_nothing() {
        for first in [0u16, 20_000, 40_000] {
            let again = (0..500).map(|n| first.wrapping_add(n));
            let all = of((9_000..10_000u16).chain(again));
            assert_eq!((all.received, all.lost), (1500, 0), "{first}");
            assert!(all.reordered <= 1, "{all:?}");
        }
    }

    #[test]
    fn a_straggler_from_far_behind_moves_nothing() {
        let order = (0..1000u16).chain([10]).chain(1000..2000);
        assert_eq!(of(order), arrivals(2001, 0, 1));
    }

    #[test]
    fn numbers_run_for_each_destination_and_the_table_is_bounded() {
        let mut sequences = Sequences::new();
        assert_eq!([1, 2, 1, 1].map(|to| sequences.next(to)), [0, 0, 1, 2]);
        for to in 0..20_000u32 {
            sequences.next(to);
        }
        assert!(sequences.0.len() <= PEERS_MAX);
        let mut receipts = ReceiptsBySender::new();
        for sender in 0..20_000u32 {
            for sequence in [0, 1, 2, 3] {
                receipts.received(sender, sequence);
            }
        }
        assert!(receipts.senders.len() <= PEERS_MAX);
        assert_eq!(receipts.arrivals(), arrivals(80_000, 0, 0));
    }
}
