//! Live state of regions and PoPs: health, drains, load, backbone round trips. Without any, all is well and idle.
//!
//! It is what a node last heard; how old that is, and what to do when nobody tells any more, is the reader's business. The
//! last state stays: silence of the whole control plane is no sign that sites are down.

use serde::Serialize;

use crate::plan::{Plan, PopIx, RegionIx};

/// A backbone round trip that differs from the one in use by less than this, or a tenth, changes nothing, in milliseconds.
pub const BACKBONE_DEADBAND_MS: u16 = 5;

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
    /// Milliseconds, PoP after PoP.
    backbone_ms: Box<[Option<u16>]>,
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
            backbone_ms: vec![None; regions * pops].into(),
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

    /// A backbone round trip was measured. Small changes are noise and leave the old value: see [`BACKBONE_DEADBAND_MS`].
    pub fn set_backbone(&mut self, pop: PopIx, region: RegionIx, rtt_us: u32) {
        let found = u16::try_from(rtt_us.div_ceil(1_000)).unwrap_or(u16::MAX);
        let Some(known) = self.backbone_at(pop, region) else {
            return;
        };
        let Some(known) = self.backbone_ms.get_mut(known) else {
            return;
        };
        let noise = known.map_or(0, |ms| (ms / 10).max(BACKBONE_DEADBAND_MS));
        if known.is_none_or(|ms| ms.abs_diff(found) >= noise) {
            *known = Some(found);
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

    /// The measured round trip of a link, in milliseconds.
    #[must_use]
    pub fn backbone_ms(&self, pop: PopIx, region: RegionIx) -> Option<u16> {
        let at = self.backbone_at(pop, region)?;
        self.backbone_ms.get(at).copied().flatten()
    }

    fn backbone_at(&self, pop: PopIx, region: RegionIx) -> Option<usize> {
        let (pop, region) = (usize::from(pop.0), usize::from(region.0));
        (region < self.regions.len()).then_some(pop * self.regions.len() + region)
    }
}
