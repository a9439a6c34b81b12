//! Memory that datagrams are packed into: blocks that are used again once QUIC has sent what was packed into them.
//!
//! A link that has found its pace allocates nothing: datagrams leave in the order they were packed, so the oldest block is free
//! by the time the youngest is full. Blocks beyond [`BLOCKS_MAX`] are not kept; the send queue is full long before.

use std::collections::VecDeque;

use bytes::BytesMut;

/// Datagrams one block holds.
const BLOCK_DATAGRAMS: usize = 16;
/// Blocks kept: with datagrams of 1,452 bytes, more than 10 ms of a link of 1 Gbit/s.
const BLOCKS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Arena {
    /// The open datagram, at the beginning of what is left of the youngest block.
    open: BytesMut,
    /// Full blocks, the oldest first.
    full: VecDeque<BytesMut>,
    block_bytes: usize,
}

impl Arena {
    /// The datagram that records are packed into.
    pub(crate) const fn open(&mut self) -> &mut BytesMut {
        &mut self.open
    }

    /// Makes room for a datagram of `len` bytes. The open datagram must be empty.
    pub(crate) fn reserve(&mut self, len: usize) {
        if self.open.capacity() >= len {
            return;
        }
        let block_bytes = len * BLOCK_DATAGRAMS;
        if block_bytes != self.block_bytes {
            // The first block, or another connection with other datagrams.
            self.full.clear();
            self.block_bytes = block_bytes;
            self.open = BytesMut::with_capacity(block_bytes);
            return;
        }
        let next = self.oldest_free();
        let next = next.unwrap_or_else(|| BytesMut::with_capacity(block_bytes));
        let filled = std::mem::replace(&mut self.open, next);
        if self.full.len() < BLOCKS_MAX {
            self.full.push_back(filled);
        }
    }

    fn oldest_free(&mut self) -> Option<BytesMut> {
        let free = self.full.front_mut()?.try_reclaim(self.block_bytes);
        free.then(|| self.full.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::{BufMut as _, Bytes};

    fn pack(arena: &mut Arena, fill: u8) -> Bytes {
        arena.reserve(100);
        arena.open().put_bytes(fill, 100);
        arena.open().split().freeze()
    }

    #[test]
    fn blocks_are_used_again_in_turn() {
        let mut arena = Arena::default();
        let mut waiting = VecDeque::new();
        let mut places = std::collections::BTreeSet::new();
        for index in 0..10_000u32 {
            let fill = index.to_be_bytes()[3];
            let datagram = pack(&mut arena, fill);
            places.insert(datagram.as_ptr() as usize);
            waiting.push_back((fill, datagram));
            if waiting.len() > 40 {
                let (fill, datagram) = waiting.pop_front().unwrap();
                assert_eq!(datagram, vec![fill; 100], "memory in use was used again");
            }
        }
        // Forty datagrams lie in three or four blocks, and one more is being filled.
        assert!(places.len() <= 6 * BLOCK_DATAGRAMS, "{}", places.len());
        assert!(arena.full.len() <= 6);
    }

    #[test]
    fn blocks_that_stay_in_use_are_kept_up_to_the_bound() {
        let mut arena = Arena::default();
        let all: Vec<_> = (0..3 * BLOCKS_MAX * BLOCK_DATAGRAMS)
            .map(|_| pack(&mut arena, 7))
            .collect();
        assert_eq!(arena.full.len(), BLOCKS_MAX);
        assert!(all.iter().all(|datagram| *datagram == [7; 100][..]));
    }
}
