//! Neighbours: what a prefix without enough clients of its own may learn from the nearest measured prefixes, or from those of its
//! autonomous system: the median of their medians, outliers dropped, and only where they agree.

use crate::measured::Median;

/// Prefixes a common value is taken of, at least: of two that differ nobody knows which one lies.
pub const PREFIXES_MIN: usize = 3;
/// Prefixes a common value is taken of, at most.
pub const PREFIXES_MAX: usize = 256;
/// A prefix with many clients weighs no more than one with this many.
const CLIENTS_WEIGHED_MAX: u32 = 64;
/// A value that is farther from the median than this many median deviations is an outlier, ...
const OUTLIER_DEVIATIONS: u32 = 4;
/// ... unless it is within this, in microseconds.
const OUTLIER_FLOOR_US: u32 = 8_000;
/// Neighbours that deviate by more than this, in microseconds, ...
const DISAGREE_FLOOR_US: u32 = 8_000;
/// ... and by more than this share of their median, in percent, have nothing in common.
const DISAGREE_PERCENT: u32 = 20;

/// The common value of prefixes that are near each other. `None` when they are too few or disagree.
#[must_use]
pub fn common(mut prefixes: Vec<Median>) -> Option<Median> {
    prefixes.sort_unstable_by_key(|median| (median.rtt_us, median.clients));
    let (middle_us, deviation_us) = spread(&prefixes)?;
    let limit = deviation_us
        .saturating_mul(OUTLIER_DEVIATIONS)
        .max(OUTLIER_FLOOR_US);
    prefixes.retain(|median| median.rtt_us.abs_diff(middle_us) <= limit);
    let (middle_us, deviation_us) = spread(&prefixes)?;
    let agree = (middle_us / 100)
        .saturating_mul(DISAGREE_PERCENT)
        .max(DISAGREE_FLOOR_US);
    (deviation_us <= agree).then(|| Median {
        rtt_us: weighted_middle(&prefixes).unwrap_or(middle_us),
        clients: prefixes
            .iter()
            .fold(0, |sum, median| sum.saturating_add(median.clients)),
    })
}

/// Median and median deviation of at least [`PREFIXES_MIN`] sorted values.
fn spread(sorted: &[Median]) -> Option<(u32, u32)> {
    if sorted.len() < PREFIXES_MIN {
        return None;
    }
    let middle = sorted.get(sorted.len() / 2)?.rtt_us;
    let mut deviations: Vec<_> = sorted
        .iter()
        .map(|median| median.rtt_us.abs_diff(middle))
        .collect();
    deviations.sort_unstable();
    Some((middle, *deviations.get(deviations.len() / 2)?))
}

/// The value that half of the clients are below, in a sorted list.
fn weighted_middle(sorted: &[Median]) -> Option<u32> {
    let weight = |median: &Median| u64::from(median.clients.clamp(1, CLIENTS_WEIGHED_MAX));
    let half = sorted.iter().map(weight).sum::<u64>().div_ceil(2);
    let mut below = 0;
    let middle = sorted.iter().find(|median| {
        below += weight(median);
        below >= half
    });
    middle.map(|median| median.rtt_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Milliseconds and clients of each prefix, the common value, why.
    type Row = (&'static [(u32, u32)], Option<u32>, &'static str);

    fn prefixes(of: &[(u32, u32)]) -> Option<u32> {
        let medians = of.iter().map(|&(ms, clients)| Median {
            rtt_us: ms * 1_000,
            clients,
        });
        common(medians.collect()).map(|median| median.rtt_us / 1_000)
    }

    #[test]
    fn neighbours_that_agree_have_a_common_value() {
        let table: [Row; 9] = [
            (&[], None, "nobody"),
            (&[(20, 500), (21, 500)], None, "two are too few"),
            (&[(20, 5), (21, 5), (23, 5)], Some(21), "the middle"),
            (
                &[(20, 5), (21, 5), (22, 5), (300, 60)],
                Some(21),
                "an outlier is dropped, however many clients it has",
            ),
            (&[(20, 5), (21, 5), (23, 60)], Some(23), "clients weigh"),
            (
                &[(20, 1), (21, 1), (23, 10_000), (21, 64), (21, 64)],
                Some(21),
                "up to a bound",
            ),
            (
                &[(20, 5), (21, 5), (300, 5)],
                None,
                "of three, one outlier leaves too few",
            ),
            (
                &[(20, 5), (60, 5), (100, 5), (140, 5), (180, 5)],
                None,
                "no agreement, no value",
            ),
            (
                &[(180, 5), (200, 5), (220, 5), (210, 5)],
                Some(200),
                "far away, agreement is wider",
            ),
        ];
        for (of, expected, why) in table {
            assert_eq!(prefixes(of), expected, "{why}");
        }
    }
}
