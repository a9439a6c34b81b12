//! Which link carries what goes to a region: the one `preference.rs` says.
//!
//! Any relay of a region can take any record, so a change needs no handover. Downlink is taken from every link, whichever
//! carries uplink.

use std::time::{Duration, Instant};

use core_relay_link::{LinkEvent, LinkId, Links, Target};
use topology::{Pop, Topology};
use wire::RegionId;

use crate::preference::{self, Standing};

/// How often a region whose link is suspect looks for another one that answers.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The regions one worker has links to.
pub struct Regions {
    regions: Vec<RegionLinks>,
}

struct RegionLinks {
    region: RegionId,
    name: String,
    links: Vec<RelayLink>,
    chosen: Option<LinkId>,
    /// Carries uplink while the chosen one is suspect.
    stand_in: Option<LinkId>,
    /// When to choose again.
    timeout: Option<Instant>,
}

#[derive(Clone, Copy)]
struct RelayLink {
    id: LinkId,
    standing: Standing,
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
            let mut links_of = RegionLinks {
                region: *region,
                name: name.clone(),
                links: ids
                    .by_ref()
                    .take(*count)
                    .map(|id| RelayLink::of(id, old, links, now))
                    .collect(),
                chosen: old.and_then(|old| old.chosen),
                stand_in: old.and_then(|old| old.stand_in),
                timeout: None,
            };
            links_of.choose(links, now);
            self.regions.push(links_of);
        }
    }

    /// No region at all, until [`Self::apply`].
    #[must_use]
    pub const fn none() -> Self {
        Self {
            regions: Vec::new(),
        }
    }

    /// The first region there is.
    #[must_use]
    pub fn first(&self) -> Option<RegionId> {
        self.regions.first().map(|known| known.region)
    }

    /// The link for records to a region.
    #[must_use]
    pub fn link_to(&self, region: RegionId) -> Option<LinkId> {
        let known = self.regions.iter().find(|r| r.region == region)?;
        known.carries()
    }

    /// The region a link leads to.
    #[must_use]
    pub fn region_of(&self, link: LinkId) -> Option<RegionId> {
        let leads = |r: &&RegionLinks| r.links.iter().any(|l| l.id == link);
        self.regions.iter().find(leads).map(|r| r.region)
    }

    /// Name of a region there are links to.
    #[must_use]
    pub fn name_of(&self, region: RegionId) -> Option<&str> {
        let known = self.regions.iter().find(|known| known.region == region);
        known.map(|known| known.name.as_str())
    }

    /// Name of the region a link leads to, and whether the link carries its uplink.
    #[must_use]
    pub fn role_of(&self, link: LinkId) -> Option<(&str, bool)> {
        let leads = |r: &&RegionLinks| r.links.iter().any(|l| l.id == link);
        let region = self.regions.iter().find(leads)?;
        Some((&region.name, region.carries() == Some(link)))
    }

    /// Each region, and whether it can be reached.
    pub(crate) fn reachable(&self) -> impl Iterator<Item = (&str, bool)> {
        let any_up = |region: &RegionLinks| region.links.iter().any(|link| link.standing.is_up());
        self.regions
            .iter()
            .map(move |region| (region.name.as_str(), any_up(region)))
    }

    /// Takes what happened to a link of `links`.
    pub fn handle_event(&mut self, event: &LinkEvent, links: &Links, now: Instant) {
        match event {
            LinkEvent::Up { link, .. } => {
                self.note(*link, (links, now), |standing| {
                    standing.change(true, false, now)
                });
            }
            LinkEvent::Down { link, .. } => {
                self.note(*link, (links, now), |standing| {
                    standing.change(false, false, now)
                });
            }
            LinkEvent::Suspect { link, suspect } => {
                self.note(*link, (links, now), |standing| {
                    standing.set_suspect(*suspect)
                });
            }
            LinkEvent::Draining { link, draining } => {
                self.note(*link, (links, now), |standing| {
                    standing.set_draining(*draining, now)
                });
            }
            LinkEvent::DialFailed { .. } | LinkEvent::Refused { .. } => {}
        }
    }

    /// The clock reached what [`Self::poll_timeout`] said, or later.
    pub fn handle_timeout(&mut self, links: &Links, now: Instant) {
        for region in &mut self.regions {
            region.choose(links, now);
        }
    }

    /// When to call [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.regions
            .iter()
            .filter_map(|region| region.timeout)
            .min()
    }

    fn note(
        &mut self,
        id: LinkId,
        (links, now): (&Links, Instant),
        change: impl Fn(&mut Standing),
    ) {
        for region in &mut self.regions {
            if let Some(link) = region.links.iter_mut().find(|link| link.id == id) {
                change(&mut link.standing);
                region.choose(links, now);
            }
        }
    }
}

impl RegionLinks {
    /// The link for records.
    fn carries(&self) -> Option<LinkId> {
        self.stand_in.or(self.chosen)
    }

    fn choose(&mut self, links: &Links, now: Instant) {
        let standings: Vec<Standing> = self.links.iter().map(|link| link.standing).collect();
        let chosen = preference::choose(&standings, self.index_of(self.chosen), now);
        let answers = |index| {
            let id = self.id_of(Some(index));
            id.is_some_and(|id| links.answers(id, now))
        };
        let before = self.index_of(self.stand_in);
        let stand_in = preference::stand_in(&standings, chosen, before, answers);
        self.chosen = self.id_of(chosen);
        self.stand_in = self.id_of(stand_in);
        let next = preference::next_return(&standings, chosen).filter(|at| *at > now);
        let looks = preference::lacks_stand_in(&standings, chosen, stand_in);
        let again = looks.then_some(now + LOOK_AGAIN);
        self.timeout = next.into_iter().chain(again).min();
    }

    fn index_of(&self, id: Option<LinkId>) -> Option<usize> {
        self.links.iter().position(|link| Some(link.id) == id)
    }

    fn id_of(&self, index: Option<usize>) -> Option<LinkId> {
        Some(self.links.get(index?)?.id)
    }
}

impl RelayLink {
    /// A link that stays keeps what is known of it.
    fn of(id: LinkId, before: Option<&RegionLinks>, links: &Links, now: Instant) -> Self {
        let known = before.and_then(|region| region.links.iter().find(|link| link.id == id));
        let standing = known.map_or_else(
            || {
                let stats = links.stats(id);
                let up = stats.as_ref().is_some_and(|stats| stats.up_since.is_some());
                let draining = stats.is_some_and(|stats| stats.draining);
                Standing::of(up, draining, now)
            },
            |known| known.standing,
        );
        Self { id, standing }
    }
}
