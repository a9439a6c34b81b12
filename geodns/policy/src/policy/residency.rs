//! Residency: which regions may be chosen at all. A hard filter, whatever the state of the regions that remain.
//!
//! What the request demands comes before what a rule says. Neither leaves nobody: the topology has a region of each
//! residency that can be named.

use crate::plan::{Plan, RegionIx, ResidencyIx};

/// Whether a region may be chosen.
#[must_use]
pub(crate) fn allows(plan: &Plan, demanded: Option<ResidencyIx>, region: RegionIx) -> bool {
    demanded.is_none_or(|residency| {
        plan.region(region)
            .is_some_and(|region| region.residency == Some(residency))
    })
}
