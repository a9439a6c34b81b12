//! Which session a client address belongs to, when the packet itself does not say.
//!
//! Two sessions may claim one address: port reuse by a client, or a spoofed source of a check that is otherwise good. Both
//! then get the packets, and each authenticates them, so a spoofed check cannot cut a call.

use hashbrown::HashMap;
use wire::ClientAddr;

use crate::sessions::Slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) first: Slot,
    pub(crate) second: Option<Slot>,
}

pub(crate) struct Addresses {
    map: HashMap<ClientAddr, Bound, foldhash::fast::FixedState>,
    max: usize,
}

impl Addresses {
    pub(crate) fn new(max: usize, seed: u64) -> Self {
        Self {
            map: HashMap::with_hasher(foldhash::fast::FixedState::with_seed(seed)),
            max,
        }
    }

    pub(crate) fn find(&self, client: ClientAddr) -> Option<Bound> {
        self.map.get(&client).copied()
    }

    /// Whether `client` can be bound: it is known, or there is room.
    pub(crate) fn has_room(&self, client: ClientAddr) -> bool {
        self.map.len() < self.max || self.map.contains_key(&client)
    }

    /// Another bound; addresses above a smaller one stay.
    pub(crate) const fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    /// Binds `client` to `slot`. Besides the first, one claimant has a place; `displace` lets another take it.
    pub(crate) fn bind(&mut self, client: ClientAddr, slot: Slot, displace: bool) {
        let bound = self.map.entry(client).or_insert(Bound {
            first: slot,
            second: None,
        });
        if bound.first != slot && (bound.second.is_none() || displace) {
            bound.second = Some(slot);
        }
    }

    pub(crate) fn unbind(&mut self, client: ClientAddr, slot: Slot) {
        let Some(bound) = self.map.get_mut(&client) else {
            return;
        };
        match (bound.first == slot, bound.second) {
            (true, Some(second)) => {
                *bound = Bound {
                    first: second,
                    second: None,
                }
            }
            (true, None) => {
                self.map.remove(&client);
            }
            (false, Some(second)) if second == slot => bound.second = None,
            (false, Some(_) | None) => {}
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }
}
