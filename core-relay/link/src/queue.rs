//! Datagrams of one link that QUIC has not taken yet: bounded in bytes, the oldest makes room. What is dropped is
//! counted in records, because a record is a client's packet.
//!
//! The bound is the worst latency a link adds (10 ms of its rate). quinn's own send buffer would drop silently and
//! would hold heartbeats up behind records, so it is kept short and this queue feeds it.

use std::collections::VecDeque;

use bytes::Bytes;
use topology::Link;

/// A small link still queues this many full datagrams.
const DATAGRAMS_MIN: usize = 8;
/// What one datagram costs besides its bytes, so that empty ones are bounded too.
const OVERHEAD_BYTES: usize = 32;

/// A datagram and how many records are in it.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    pub(crate) bytes: Bytes,
    pub(crate) records: u64,
}

impl Packed {
    const fn cost(&self) -> usize {
        self.bytes.len() + OVERHEAD_BYTES
    }
}

#[derive(Debug)]
pub(crate) struct SendQueue {
    datagrams: VecDeque<Packed>,
    bytes: usize,
    bytes_max: usize,
}

impl SendQueue {
    /// Holds 10 ms of the link's rate.
    pub(crate) fn of(link: &Link) -> Self {
        let ten_ms = usize::try_from(u64::from(link.rate_mbps) * 1250).unwrap_or(usize::MAX);
        let floor = DATAGRAMS_MIN * (usize::from(link.mtu_bytes) + OVERHEAD_BYTES);
        Self {
            datagrams: VecDeque::new(),
            bytes: 0,
            bytes_max: ten_ms.max(floor),
        }
    }

    /// Appends `datagram` and returns how many records were dropped to make room.
    pub(crate) fn push(&mut self, datagram: Packed) -> u64 {
        let cost = datagram.cost();
        let mut dropped = 0;
        while self.bytes + cost > self.bytes_max
            && let Some(oldest) = self.pop()
        {
            dropped += oldest.records;
        }
        self.bytes += cost;
        self.datagrams.push_back(datagram);
        dropped
    }

    pub(crate) fn pop(&mut self) -> Option<Packed> {
        let datagram = self.datagrams.pop_front()?;
        self.bytes -= datagram.cost();
        Some(datagram)
    }

    /// Puts back what [`Self::pop`] returned.
    pub(crate) fn unpop(&mut self, datagram: Packed) {
        self.bytes += datagram.cost();
        self.datagrams.push_front(datagram);
    }

    pub(crate) const fn is_half_full(&self) -> bool {
        self.bytes > self.bytes_max / 2
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Empties the queue and returns how many records it held.
    pub(crate) fn clear(&mut self) -> u64 {
        let held = self.datagrams.iter().map(|datagram| datagram.records);
        let held = held.sum();
        self.datagrams.clear();
        self.bytes = 0;
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: Vec<u8>, records: u64) -> Packed {
        Packed {
            bytes: Bytes::from(bytes),
            records,
        }
    }

    #[test]
    fn the_oldest_makes_room_and_is_counted() {
        let link = Link {
            rate_mbps: 100,
            ..Link::default()
        };
        let mut queue = SendQueue::of(&link);
        let fits = 125_000 / (1000 + OVERHEAD_BYTES);
        let mut dropped = 0;
        for index in 0..fits + 5 {
            let fill = u8::try_from(index % 256).unwrap();
            dropped += queue.push(packed(vec![fill; 1000], 7));
        }
        assert_eq!(dropped, 5 * 7);
        let oldest = queue.pop().unwrap();
        assert_eq!(oldest.bytes[0], 5);
        queue.unpop(oldest);
        assert_eq!(queue.clear(), u64::try_from(fits).unwrap() * 7);
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn empty_datagrams_are_bounded_too() {
        let mut queue = SendQueue::of(&Link {
            rate_mbps: 1,
            ..Link::default()
        });
        for _ in 0..100_000 {
            queue.push(packed(Vec::new(), 0));
        }
        assert!(queue.datagrams.len() <= 8 * (1452 + 32) / 32);
    }
}
