//! Load: nothing below `soft_percent`, then a penalty that grows linearly up to `penalty_ms` at `full_percent`; from there the
//! site is a candidate only when all others are full too.

use topology::steering::Load;

/// Whether a site is at its capacity.
#[must_use]
pub fn is_full(load_percent: u16, constants: &Load) -> bool {
    u32::from(load_percent) >= constants.full_percent
}

/// What load adds to the cost of a site, in milliseconds.
#[must_use]
pub fn penalty_ms(load_percent: u16, constants: &Load) -> u32 {
    let above = u32::from(load_percent).saturating_sub(constants.soft_percent);
    let span = constants
        .full_percent
        .saturating_sub(constants.soft_percent)
        .max(1);
    constants.penalty_ms.saturating_mul(above.min(span)) / span
}
