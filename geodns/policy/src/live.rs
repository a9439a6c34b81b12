//! Live state of regions and PoPs: health, drains, load, backbone round trips. Without any, all is well and idle.
//!
//! It is what a node last heard; how old that is, and what to do when nobody tells any more, is the reader's business. The
//! last state stays: silence of the whole control plane is no sign that sites are down.

use serde::Serialize;
use topology::steering::Load;

use crate::plan::{Plan, PopIx, RegionIx};
use crate::policy::load;

/// Of how many backbone round trips an average is taken, the last ones counting most.
const SMOOTHED: u32 = 8;
/// An average that differs from the value in use by less than this, or a twentieth, changes nothing, in milliseconds.
pub const BACKBONE_DEADBAND_MS: u16 = 4;
/// A load that differs from the value in use by less than this changes nothing, in percent, unless one is full and the other is not.
pub const LOAD_DEADBAND_PERCENT: u16 = 3;

/// What is known of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Condition {
    /// Whether it serves clients.
    pub healthy: bool,
    /// Whether it wants no more clients.
    pub draining: bool,
    /// Load in percent of its capacity.
    pub load_percent: u16,
}

/// How usable a site is: clients go to the best standing there is. When all are of one standing, it is as if it were the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Usable.
    Usable,
    /// At its capacity.
    Full,
    /// Wants no more clients.
    Draining,
    /// Down.
    Unhealthy,
    /// No PoP has a link to the region.
    Unlinked,
}

/// Live state of all sites of a [`Plan`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    regions: Box<[Condition]>,
    pops: Box<[Condition]>,
    /// PoP after PoP.
    backbone: Box<[Backbone]>,
    load: Load,
}

/// The way from a PoP to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Backbone {
    rtt: Option<Rtt>,
    /// No link is up. What its round trip was stays, for when all ways are cut.
    cut: bool,
    /// It was cut since its round trip was measured.
    restarts: bool,
}

/// The round trip of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rtt {
    used_ms: u16,
    average_us: u32,
}

impl Default for Condition {
    fn default() -> Self {
        Self {
            healthy: true,
            draining: false,
            load_percent: 0,
        }
    }
}

impl Live {
    /// All well and idle, no backbone measured.
    #[must_use]
    pub fn well(plan: &Plan) -> Self {
        let (regions, pops) = (plan.regions.len(), plan.pops.len());
        Self {
            regions: vec![Condition::default(); regions].into(),
            pops: vec![Condition::default(); pops].into(),
            backbone: vec![Backbone::default(); regions * pops].into(),
            load: plan.steering.load.clone(),
        }
    }

    /// The same for another plan, by name: what is known of sites that both have stays, averages included. Nothing is known of others,
    /// nor of the way between two of which one is elsewhere than it was.
    #[must_use]
    pub fn carried(&self, from: &Plan, to: &Plan) -> Self {
        let mut live = Self::well(to);
        let mut stayed = Vec::new();
        for pop in to.pops() {
            let Some(before) = from.pop_named(to.pop_name(pop)) else {
                continue;
            };
            if let Some(carried) = live.pops.get_mut(usize::from(pop.0)) {
                *carried = self.pop(before);
            }
            if from.pop_place(before) == to.pop_place(pop) {
                stayed.push((pop, before));
            }
        }
        for region in to.regions() {
            let Some(before) = from.region_named(to.region_name(region)) else {
                continue;
            };
            if let Some(carried) = live.regions.get_mut(usize::from(region.0)) {
                *carried = self.region(before);
            }
            let stays = from.region_place(before) == to.region_place(region);
            for (pop, pop_before) in stayed.iter().filter(|_| stays) {
                if let Some(known) = self.way(*pop_before, before)
                    && let Some(way) = live.way_mut(*pop, region)
                {
                    *way = known;
                }
            }
        }
        live
    }

    /// Whether the same is chosen by both: they differ at most in averages whose change is too small to count.
    #[must_use]
    pub fn chooses_as(&self, other: &Self) -> bool {
        let used = |way: &Backbone| (way.cut, way.rtt.map(|rtt| rtt.used_ms));
        self.regions == other.regions
            && self.pops == other.pops
            && self.backbone.len() == other.backbone.len()
            && (self.backbone.iter().map(used)).eq(other.backbone.iter().map(used))
    }

    /// Replaces what is known of a region; its load only if it has changed clearly.
    pub fn set_region(&mut self, ix: RegionIx, condition: Condition) {
        if let Some(known) = self.regions.get_mut(usize::from(ix.0)) {
            *known = known.becomes(condition, &self.load);
        }
    }

    /// Replaces what is known of a PoP; its load only if it has changed clearly.
    pub fn set_pop(&mut self, ix: PopIx, condition: Condition) {
        if let Some(known) = self.pops.get_mut(usize::from(ix.0)) {
            *known = known.becomes(condition, &self.load);
        }
    }

    /// A backbone round trip was measured: the link is up. It enters an average; only a clear change of that changes what is used, so
    /// a reader keeps one `Live`, goes on with it, and says each measured value once. The first after a cut counts at once.
    pub fn set_backbone(&mut self, pop: PopIx, region: RegionIx, rtt_us: u32) {
        if let Some(way) = self.way_mut(pop, region) {
            way.measured(rtt_us);
        }
    }

    /// Whether no link from a PoP to a region is up.
    pub fn set_cut(&mut self, pop: PopIx, region: RegionIx, cut: bool) {
        if let Some(way) = self.way_mut(pop, region) {
            way.cut = cut;
            way.restarts |= cut;
        }
    }

    /// What is known of a region.
    #[must_use]
    pub fn region(&self, ix: RegionIx) -> Condition {
        self.regions
            .get(usize::from(ix.0))
            .copied()
            .unwrap_or_default()
    }

    /// What is known of a PoP.
    #[must_use]
    pub fn pop(&self, ix: PopIx) -> Condition {
        self.pops
            .get(usize::from(ix.0))
            .copied()
            .unwrap_or_default()
    }

    /// The measured round trip of a link, in milliseconds; of one that is cut, what it was.
    #[must_use]
    pub fn backbone_ms(&self, pop: PopIx, region: RegionIx) -> Option<u16> {
        Some(self.way(pop, region)?.rtt?.used_ms)
    }

    /// Whether the round trip of a link was measured since it was cut last.
    #[must_use]
    pub fn is_backbone_known(&self, pop: PopIx, region: RegionIx) -> bool {
        self.way(pop, region)
            .is_some_and(|way| way.rtt.is_some() && !way.restarts)
    }

    /// Whether no link from a PoP to a region is up.
    #[must_use]
    pub fn is_cut(&self, pop: PopIx, region: RegionIx) -> bool {
        self.way(pop, region).is_some_and(|way| way.cut)
    }

    fn way(&self, pop: PopIx, region: RegionIx) -> Option<Backbone> {
        self.backbone.get(self.way_at(pop, region)?).copied()
    }

    fn way_mut(&mut self, pop: PopIx, region: RegionIx) -> Option<&mut Backbone> {
        let at = self.way_at(pop, region)?;
        self.backbone.get_mut(at)
    }

    fn way_at(&self, pop: PopIx, region: RegionIx) -> Option<usize> {
        let (pop, region) = (usize::from(pop.0), usize::from(region.0));
        (region < self.regions.len()).then_some(pop * self.regions.len() + region)
    }
}

impl Condition {
    fn becomes(self, next: Self, load: &Load) -> Self {
        let [was_full, is_full] =
            [self, next].map(|condition| load::is_full(condition.load_percent, load));
        let differs = self.load_percent.abs_diff(next.load_percent);
        let load_percent = if differs >= LOAD_DEADBAND_PERCENT || was_full != is_full {
            next.load_percent
        } else {
            self.load_percent
        };
        Self {
            load_percent,
            ..next
        }
    }
}

impl Backbone {
    fn measured(&mut self, rtt_us: u32) {
        let averaged = self.rtt.filter(|_| !self.restarts);
        let average_us = averaged.map_or(rtt_us, |known| {
            let rest = known.average_us - known.average_us / SMOOTHED;
            rest.saturating_add(rtt_us / SMOOTHED)
        });
        let found = u16::try_from(average_us.saturating_add(500) / 1_000).unwrap_or(u16::MAX);
        let stays = |used: &u16| used.abs_diff(found) < (used / 20).max(BACKBONE_DEADBAND_MS);
        let used = self.rtt.map(|known| known.used_ms).filter(stays);
        self.rtt = Some(Rtt {
            used_ms: used.unwrap_or(found),
            average_us,
        });
        (self.cut, self.restarts) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Live {
        Live {
            regions: Box::new([Condition::default()]),
            pops: Box::new([Condition::default()]),
            backbone: Box::new([Backbone::default()]),
            load: Load::default(),
        }
    }

    #[test]
    fn noise_of_the_backbone_changes_nothing_and_a_step_does() {
        let mut live = one_of_each();
        let (pop, region) = (PopIx(0), RegionIx(0));
        assert_eq!(live.backbone_ms(pop, region), None);
        // Each round trip, how often, and what is used after it.
        let table = [
            (12, 1, 12),
            (15, 100, 12),
            (9, 100, 12),
            (40, 30, 38),
            (12, 60, 13),
            (300, 1, 49),
        ];
        for (ms, times, used) in table {
            for _ in 0..times {
                live.set_backbone(pop, region, ms * 1_000);
            }
            let found = live.backbone_ms(pop, region).unwrap();
            let off = if ms == 15 || ms == 9 {
                0
            } else {
                BACKBONE_DEADBAND_MS
            };
            assert!(found.abs_diff(used) <= off, "{ms} ms: {found}");
        }
        live.set_cut(pop, region, true);
        assert!(live.is_cut(pop, region));
        assert!(live.backbone_ms(pop, region) > Some(40), "what it was");
        live.set_backbone(pop, region, 12_000);
        assert!(!live.is_cut(pop, region));
        assert_eq!(live.backbone_ms(pop, region), Some(12), "and back");
        // Up again, and its round trip not measured yet.
        live.set_cut(pop, region, true);
        live.set_cut(pop, region, false);
        assert!(!live.is_backbone_known(pop, region));
        live.set_backbone(pop, region, 120_000);
        assert_eq!(live.backbone_ms(pop, region), Some(120), "what it is");
        assert!(live.is_backbone_known(pop, region));
        live.set_backbone(PopIx(1), region, 1);
        assert_eq!(live.backbone_ms(PopIx(1), region), None, "no such PoP");
    }

    #[test]
    fn a_load_that_wavers_chooses_the_same() {
        let mut live = one_of_each();
        assert_eq!(live.load.full_percent, 95);
        // What is told, and what is used.
        for (told, used) in [
            (2, 0),
            (3, 3),
            (80, 80),
            (82, 80),
            (78, 80),
            (83, 83),
            (93, 93),
            (94, 93),
            (95, 95),
            (94, 94),
            (96, 96),
            (98, 96),
            (101, 101),
            (99, 101),
            (95, 95),
        ] {
            let before = live.clone();
            let condition = Condition {
                load_percent: told,
                ..Condition::default()
            };
            live.set_pop(PopIx(0), condition);
            live.set_region(RegionIx(0), condition);
            assert_eq!(live.pop(PopIx(0)).load_percent, used, "told {told}");
            assert_eq!(live.region(RegionIx(0)).load_percent, used, "told {told}");
            let changed = before.pop(PopIx(0)).load_percent != used;
            assert_eq!(live.chooses_as(&before), !changed);
        }
        let before = live.clone();
        live.set_backbone(PopIx(0), RegionIx(0), 12_000);
        assert!(!live.chooses_as(&before), "the first round trip");
        let before = live.clone();
        live.set_backbone(PopIx(0), RegionIx(0), 13_000);
        assert!(live.chooses_as(&before) && live != before, "noise");
        live.set_cut(PopIx(0), RegionIx(0), true);
        assert!(!live.chooses_as(&before), "a cut");
    }
}
