//! Which PoP worker is at the other end of which link: the relay's only table, as large as the topology.

use std::collections::BTreeMap;

use core_relay_link::{Allowed, LinkEvent, LinkId};
use topology::{Region, Topology};
use wire::PopId;

/// PoPs that may connect, and the links of theirs that are up.
pub struct Pops {
    names: Vec<(String, PopId)>,
    by_link: BTreeMap<LinkId, (PopId, u8)>,
    by_worker: BTreeMap<(PopId, u8), LinkId>,
}

impl Pops {
    /// Nobody may connect, until [`Self::apply`].
    #[must_use]
    pub const fn none() -> Self {
        Self {
            names: Vec::new(),
            by_link: BTreeMap::new(),
            by_worker: BTreeMap::new(),
        }
    }

    /// Takes over the PoPs that serve the region, and says whom to accept.
    pub fn apply(&mut self, topology: &Topology, region: &Region) -> Vec<Allowed> {
        let pops = || topology.pops_of_region(region);
        self.names = pops().map(|pop| (pop.name.clone(), pop.pop_id())).collect();
        pops()
            .map(|pop| Allowed {
                name: pop.name.clone(),
                workers: pop.workers,
            })
            .collect()
    }

    /// Takes what happened to a link.
    pub fn handle_event(&mut self, event: &LinkEvent) {
        match event {
            LinkEvent::Up { link, peer, worker } => {
                let named = |(name, _): &&(String, PopId)| name.eq_ignore_ascii_case(peer);
                if let Some((_, pop)) = self.names.iter().find(named) {
                    self.by_link.insert(*link, (*pop, *worker));
                    self.by_worker.insert((*pop, *worker), *link);
                }
            }
            LinkEvent::Down { link, .. } => {
                if let Some(at) = self.by_link.remove(link)
                    && self.by_worker.get(&at) == Some(link)
                {
                    self.by_worker.remove(&at);
                }
            }
            LinkEvent::Suspect { .. }
            | LinkEvent::Draining { .. }
            | LinkEvent::DialFailed { .. }
            | LinkEvent::Refused { .. } => {}
        }
    }

    /// Who sends on this link.
    #[must_use]
    pub fn of_link(&self, link: LinkId) -> Option<(PopId, u8)> {
        self.by_link.get(&link).copied()
    }

    /// The link of this PoP worker, when it is up.
    #[must_use]
    pub fn link_of(&self, pop: PopId, worker: u8) -> Option<LinkId> {
        self.by_worker.get(&(pop, worker)).copied()
    }
}
