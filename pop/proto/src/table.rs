//! A bounded slab of flows with a seeded hash index, and a hand that walks it for expiry a few slots at a time.
//!
//! Slots come in segments that never move, so growth copies no flow.

use std::hash::BuildHasher;

use crate::flow::{Flow, FlowKey, State};
use crate::index::Index;

enum Slot {
    Free { next: u32 },
    Used(Flow),
}

/// A slot that begins where a cache line begins. (The alignment on the enum itself would cost it the niche.)
#[repr(align(64))]
struct Line(Slot);

const NONE: u32 = u32::MAX;
/// Slots of a segment.
const SEGMENT: u32 = 1 << SEGMENT_BITS;
const SEGMENT_BITS: u32 = 10;

pub(crate) struct Table {
    segments: Vec<Vec<Line>>,
    index: Index,
    hasher: foldhash::fast::FixedState,
    free: u32,
    slots: u32,
    hand: u32,
    flows_max: u32,
    census: Census,
}

/// How many flows there are in each state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Census {
    pub(crate) tentative: u32,
    pub(crate) recovered: u32,
    pub(crate) committed: u32,
    pub(crate) ended: u32,
}

impl Census {
    const fn cell(&mut self, state: State) -> &mut u32 {
        match state {
            State::Tentative { .. } => &mut self.tentative,
            State::Recovered => &mut self.recovered,
            State::Committed { .. } => &mut self.committed,
            State::Ended { .. } => &mut self.ended,
        }
    }

    const fn total(self) -> u32 {
        self.tentative + self.recovered + self.committed + self.ended
    }
}

impl Table {
    pub(crate) fn new(flows_max: u32, seed: u64) -> Self {
        Self {
            segments: Vec::with_capacity(flows_max.div_ceil(SEGMENT) as usize),
            index: Index::new(flows_max),
            hasher: foldhash::fast::FixedState::with_seed(seed),
            free: NONE,
            slots: 0,
            hand: 0,
            flows_max,
            census: Census::default(),
        }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.census.total()
    }

    pub(crate) const fn census(&self) -> Census {
        self.census
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.len() >= self.flows_max
    }

    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        self.hasher.hash_one(key)
    }

    /// `hash` is that of `key`.
    pub(crate) fn find(&self, hash: u64, key: &FlowKey) -> Option<u32> {
        self.index.find(hash, |slot| {
            self.get(slot).is_some_and(|flow| flow.key == *key)
        })
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Flow> {
        match self.place(slot)? {
            Slot::Used(flow) => Some(flow),
            Slot::Free { .. } => None,
        }
    }

    fn place(&self, slot: u32) -> Option<&Slot> {
        let segment = self.segments.get((slot >> SEGMENT_BITS) as usize)?;
        segment.get((slot % SEGMENT) as usize).map(|line| &line.0)
    }

    fn place_mut(&mut self, slot: u32) -> Option<&mut Slot> {
        let segment = self.segments.get_mut((slot >> SEGMENT_BITS) as usize)?;
        segment
            .get_mut((slot % SEGMENT) as usize)
            .map(|line| &mut line.0)
    }

    /// Changes a flow in place, keeping the census. Returns the state before, and what `change` does.
    pub(crate) fn update<R>(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut Flow) -> R,
    ) -> Option<(State, State, R)> {
        let Slot::Used(flow) = self.place_mut(slot)? else {
            return None;
        };
        let before = flow.state;
        let result = change(flow);
        let after = flow.state;
        if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
            *self.census.cell(before) -= 1;
            *self.census.cell(after) += 1;
        }
        Some((before, after, result))
    }

    /// The caller has checked [`Self::is_full`] and that the key, whose hash this is, is absent. Returns the slot.
    pub(crate) fn insert(&mut self, hash: u64, flow: Flow) -> u32 {
        *self.census.cell(flow.state) += 1;
        let slot = self.take_free(flow);
        self.index.insert(hash, slot);
        slot
    }

    fn take_free(&mut self, flow: Flow) -> u32 {
        let slot = self.free;
        if let Some(place) = self.place_mut(slot) {
            let before = std::mem::replace(place, Slot::Used(flow));
            if let Slot::Free { next } = before {
                self.free = next;
            }
            return slot;
        }
        let slot = self.slots;
        self.slots += 1;
        if slot.is_multiple_of(SEGMENT) {
            let rest = self.flows_max.saturating_sub(slot).clamp(1, SEGMENT);
            self.segments.push(Vec::with_capacity(rest as usize));
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(Line(Slot::Used(flow)));
        }
        slot
    }

    /// Removes a flow and returns it.
    pub(crate) fn remove(&mut self, slot: u32) -> Option<Flow> {
        let flow = *self.get(slot)?;
        let hash = self.hash(&flow.key);
        self.index.remove(hash, slot);
        *self.census.cell(flow.state) -= 1;
        let next = self.free;
        *self.place_mut(slot)? = Slot::Free { next };
        self.free = slot;
        Some(flow)
    }

    /// Moves the hand by one slot and returns it.
    pub(crate) const fn next_slot(&mut self) -> u32 {
        if self.hand >= self.slots {
            self.hand = 0;
        }
        let slot = self.hand;
        self.hand += 1;
        slot
    }

    /// Slots there have ever been.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes taken from the allocator.
    pub(crate) fn bytes(&self) -> usize {
        let slots: usize = self.segments.iter().map(Vec::capacity).sum();
        self.index.bytes()
            + self.segments.capacity() * size_of::<Vec<Line>>()
            + slots * size_of::<Line>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }
}
