//! Which link carries what goes to a region.
//!
//! A region's link is kept while it is up and its relay does not drain. Otherwise the first relay in topology order takes
//! over that is up and does not drain, else one that is up. Any relay of a region can take any record, so a change needs no
//! handover. Downlink is taken from every link, whichever carries uplink.

use std::time::Instant;

use core_relay_link::{LinkEvent, LinkId, Links, Target};
use topology::{Pop, Topology};
use wire::RegionId;

/// The regions one worker has links to.
pub struct Regions {
    regions: Vec<RegionLinks>,
}

struct RegionLinks {
    region: RegionId,
    name: String,
    links: Vec<RelayLink>,
    chosen: Option<LinkId>,
}

#[derive(Clone, Copy)]
struct RelayLink {
    id: LinkId,
    up: bool,
    draining: bool,
}

/// Relays to dial, region by region.
pub struct Plan {
    regions: Vec<(RegionId, String, usize)>,
    /// Whom to dial, in the order of regions and of their relays.
    pub targets: Vec<Target>,
}

impl Plan {
    /// Worker `worker` of `pop` dials one worker of each relay.
    #[must_use]
    pub fn new(topology: &Topology, pop: &Pop, worker: u8) -> Self {
        let mut plan = Self {
            regions: Vec::new(),
            targets: Vec::new(),
        };
        for region in topology.regions_of_pop(pop) {
            let count = region.core_relays.len();
            plan.regions
                .push((region.region_id(), region.name.clone(), count));
            plan.targets.extend(region.core_relays.iter().map(|relay| {
                let peer_worker = worker % relay.workers.max(1);
                let port = relay.link_port.saturating_add(u16::from(peer_worker));
                Target {
                    name: relay.name.clone(),
                    worker: peer_worker,
                    address: (relay.address, port).into(),
                }
            }));
        }
        plan
    }
}

impl Regions {
    /// Makes `links` dial what the plan says. Links that stay keep their state, and a region its choice.
    pub fn apply(&mut self, plan: &Plan, links: &mut Links, now: Instant) {
        let before = std::mem::take(&mut self.regions);
        let mut ids = links.set_targets(&plan.targets, now).into_iter();
        for (region, name, count) in &plan.regions {
            let old = before.iter().find(|old| old.region == *region);
            let mut now = RegionLinks {
                region: *region,
                name: name.clone(),
                links: ids
                    .by_ref()
                    .take(*count)
                    .map(|id| RelayLink::of(id, links))
                    .collect(),
                chosen: old.and_then(|old| old.chosen),
            };
            now.choose();
            self.regions.push(now);
        }
    }

    /// No region at all, until [`Self::apply`].
    #[must_use]
    pub const fn none() -> Self {
        Self {
            regions: Vec::new(),
        }
    }

    /// The link for records to a region.
    #[must_use]
    pub fn link_to(&self, region: RegionId) -> Option<LinkId> {
        self.regions.iter().find(|r| r.region == region)?.chosen
    }

    /// The region a link leads to.
    #[must_use]
    pub fn region_of(&self, link: LinkId) -> Option<RegionId> {
        let leads = |r: &&RegionLinks| r.links.iter().any(|l| l.id == link);
        self.regions.iter().find(leads).map(|r| r.region)
    }

    /// Name of the region a link leads to, and whether the link carries its uplink.
    #[must_use]
    pub fn role_of(&self, link: LinkId) -> Option<(&str, bool)> {
        let leads = |r: &&RegionLinks| r.links.iter().any(|l| l.id == link);
        let region = self.regions.iter().find(leads)?;
        Some((&region.name, region.chosen == Some(link)))
    }

    /// Takes what happened to a link.
    pub fn handle_event(&mut self, event: &LinkEvent) {
        match event {
            LinkEvent::Up { link, .. } => self.note(*link, |link| {
                link.up = true;
                link.draining = false;
            }),
            LinkEvent::Down { link, .. } => self.note(*link, |link| link.up = false),
            LinkEvent::Draining { link, draining } => {
                self.note(*link, |link| link.draining = *draining);
            }
            LinkEvent::DialFailed { .. } | LinkEvent::Refused { .. } => {}
        }
    }

    fn note(&mut self, id: LinkId, change: impl Fn(&mut RelayLink)) {
        for region in &mut self.regions {
            if let Some(link) = region.links.iter_mut().find(|link| link.id == id) {
                change(link);
                region.choose();
            }
        }
    }
}

impl RegionLinks {
    fn choose(&mut self) {
        let usable = |link: &&RelayLink| link.up && !link.draining;
        let keeps = self
            .links
            .iter()
            .any(|link| Some(link.id) == self.chosen && usable(&link));
        if !keeps {
            let best = self.links.iter().find(usable);
            let best = best.or_else(|| self.links.iter().find(|link| link.up));
            self.chosen = best.map(|link| link.id);
        }
    }
}

impl RelayLink {
    fn of(id: LinkId, links: &Links) -> Self {
        let stats = links.stats(id);
        Self {
            id,
            up: stats.as_ref().is_some_and(|stats| stats.up_since.is_some()),
            draining: stats.is_some_and(|stats| stats.draining),
        }
    }
}
