//! Live state of regions and PoPs: health, drains, load, backbone round trips. Without any, all is well and idle.
//!
//! It is what a node last heard; how old that is, and what to do when nobody tells any more, is the reader's business. The
//! last state stays: silence of the whole control plane is no sign that sites are down.

use serde::Serialize;

use crate::plan::{Plan, PopIx, RegionIx};

/// Of how many backbone round trips an average is taken, the last ones counting most.
const SMOOTHED: u32 = 8;
/// An average that differs from the value in use by less than this, or a twentieth, changes nothing, in milliseconds.
pub const BACKBONE_DEADBAND_MS: u16 = 4;
/// From here on it is no round trip but a link that is cut, or was: it enters no average and counts at once, in microseconds.
const CUT_OFF_US: u32 = 10_000_000;

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
    backbone: Box<[Option<Backbone>]>,
}

/// The round trip of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Backbone {
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
            backbone: vec![None; regions * pops].into(),
        }
    }

    /// Replaces what is known of a region.
    pub fn set_region(&mut self, ix: RegionIx, condition: Condition) {
        if let Some(known) = self.regions.get_mut(usize::from(ix.0)) {
            *known = condition;
        }
    }

    /// Replaces what is known of a PoP.
    pub fn set_pop(&mut self, ix: PopIx, condition: Condition) {
        if let Some(known) = self.pops.get_mut(usize::from(ix.0)) {
            *known = condition;
        }
    }

    /// A backbone round trip was measured. It enters an average; only a clear change of that changes what is used, so a reader
    /// keeps one `Live` and goes on with it.
    pub fn set_backbone(&mut self, pop: PopIx, region: RegionIx, rtt_us: u32) {
        let at = self.backbone_at(pop, region);
        let Some(known) = at.and_then(|at| self.backbone.get_mut(at)) else {
            return;
        };
        let averaged = known.filter(|known| known.average_us.max(rtt_us) < CUT_OFF_US);
        let average_us = averaged.map_or(rtt_us, |known| {
            let rest = known.average_us - known.average_us / SMOOTHED;
            rest.saturating_add(rtt_us / SMOOTHED)
        });
        let found = u16::try_from((average_us.saturating_add(500)) / 1_000).unwrap_or(u16::MAX);
        let stays = |used: u16| used.abs_diff(found) < (used / 20).max(BACKBONE_DEADBAND_MS);
        let used = known.map(|known| known.used_ms);
        *known = Some(Backbone {
            used_ms: used.filter(|used| stays(*used)).unwrap_or(found),
            average_us,
        });
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

    /// The measured round trip of a link, in milliseconds.
    #[must_use]
    pub fn backbone_ms(&self, pop: PopIx, region: RegionIx) -> Option<u16> {
        let at = self.backbone_at(pop, region)?;
        let known = self.backbone.get(at).copied().flatten()?;
        Some(known.used_ms)
    }

    fn backbone_at(&self, pop: PopIx, region: RegionIx) -> Option<usize> {
        let (pop, region) = (usize::from(pop.0), usize::from(region.0));
        (region < self.regions.len()).then_some(pop * self.regions.len() + region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_of_the_backbone_changes_nothing_and_a_step_does() {
        let mut live = Live {
            regions: Box::new([Condition::default()]),
            pops: Box::new([Condition::default()]),
            backbone: Box::new([None]),
        };
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
        live.set_backbone(pop, region, u32::MAX);
        assert_eq!(live.backbone_ms(pop, region), Some(u16::MAX), "cut");
        live.set_backbone(pop, region, 12_000);
        assert_eq!(live.backbone_ms(pop, region), Some(12), "and back");
        live.set_backbone(PopIx(1), region, 1);
        assert_eq!(live.backbone_ms(PopIx(1), region), None, "no such PoP");
    }
}
