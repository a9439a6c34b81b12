//! A bounded slab of flows with a seeded hash index, and a hand that walks it for expiry a few slots at a time.

use hashbrown::HashTable;
use std::hash::BuildHasher;

use crate::flow::{Flow, FlowKey, State, Tick};

enum Slot {
    Free { next: u32 },
    Used(Flow),
}

const NONE: u32 = u32::MAX;

pub(crate) struct Table {
    slots: Vec<Slot>,
    index: HashTable<u32>,
    hasher: foldhash::fast::FixedState,
    free: u32,
    hand: usize,
    flows_max: u32,
    tentative: u32,
}

impl Table {
    pub(crate) fn new(flows_max: u32, seed: u64) -> Self {
        Self {
            slots: Vec::new(),
            index: HashTable::new(),
            hasher: foldhash::fast::FixedState::with_seed(seed),
            free: NONE,
            hand: 0,
            flows_max,
            tentative: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    pub(crate) const fn tentative(&self) -> u32 {
        self.tentative
    }

    pub(crate) fn is_full(&self) -> bool {
        self.len() >= self.flows_max as usize
    }

    pub(crate) fn find(&self, key: &FlowKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.index
            .find(hash, |slot| {
                self.get(*slot).is_some_and(|flow| flow.key == *key)
            })
            .copied()
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&Flow> {
        match self.slots.get(slot as usize)? {
            Slot::Used(flow) => Some(flow),
            Slot::Free { .. } => None,
        }
    }

    /// Changes a flow in place, keeping count of the tentative ones.
    pub(crate) fn update<R>(
        &mut self,
        slot: u32,
        change: impl FnOnce(&mut Flow) -> R,
    ) -> Option<R> {
        let Slot::Used(flow) = self.slots.get_mut(slot as usize)? else {
            return None;
        };
        let before = flow.state;
        let result = change(flow);
        match (before, flow.state) {
            (State::Tentative, State::Committed) => self.tentative -= 1,
            (State::Committed, State::Tentative) => self.tentative += 1,
            (State::Tentative, State::Tentative) | (State::Committed, State::Committed) => {}
        }
        Some(result)
    }

    /// The caller has checked [`Self::is_full`] and that the key is absent.
    pub(crate) fn insert(&mut self, flow: Flow) {
        let hash = self.hasher.hash_one(flow.key);
        self.tentative += u32::from(flow.state == State::Tentative);
        let slot = self.take_free(flow);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index
            .insert_unique(hash, slot, |slot| match slots.get(*slot as usize) {
                Some(Slot::Used(flow)) => hasher.hash_one(flow.key),
                Some(Slot::Free { .. }) | None => 0,
            });
    }

    fn take_free(&mut self, flow: Flow) -> u32 {
        let slot = self.free;
        if let Some(place) = self.slots.get_mut(slot as usize) {
            if let Slot::Free { next } = *place {
                self.free = next;
            }
            *place = Slot::Used(flow);
            return slot;
        }
        self.slots.push(Slot::Used(flow));
        u32::try_from(self.slots.len() - 1).unwrap_or(NONE)
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        let Some(flow) = self.get(slot).copied() else {
            return;
        };
        let hash = self.hasher.hash_one(flow.key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
        self.tentative -= u32::from(flow.state == State::Tentative);
        if let Some(place) = self.slots.get_mut(slot as usize) {
            *place = Slot::Free { next: self.free };
            self.free = slot;
        }
    }

    /// Moves the hand over `budget` slots and drops what has expired there. Returns how many were dropped.
    pub(crate) fn expire(&mut self, budget: usize, now: Tick) -> u64 {
        let mut dropped = 0;
        for _ in 0..budget.min(self.slots.len()) {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = u32::try_from(self.hand).unwrap_or(NONE);
            self.hand += 1;
            let gone = self
                .update(slot, |flow| {
                    flow.settle(now);
                    flow.expired(now)
                })
                .unwrap_or(false);
            if gone {
                self.remove(slot);
                dropped += 1;
            }
        }
        dropped
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}
