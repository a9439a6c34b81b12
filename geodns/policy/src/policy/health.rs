//! Health and drain: how usable a site is. Clients go to the best standing there is, so when all sites are down the answer is
//! as if all were well.

use topology::steering::Load;

use super::load;
use crate::live::{Condition, Standing};

/// The standing of a site.
#[must_use]
pub fn standing(condition: Condition, constants: &Load) -> Standing {
    if !condition.healthy {
        Standing::Unhealthy
    } else if condition.draining {
        Standing::Draining
    } else if load::is_full(condition.load_percent, constants) {
        Standing::Full
    } else {
        Standing::Usable
    }
}

/// The standing of a PoP as a way to one region: without a link that is up it serves nobody there, whatever it does for others.
#[must_use]
pub fn standing_of_way(condition: Condition, cut: bool, constants: &Load) -> Standing {
    if cut {
        Standing::Unhealthy
    } else {
        standing(condition, constants)
    }
}
