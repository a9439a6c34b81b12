//! What is left of several measurements of the same thing on a machine that others use too.

/// The middle one, or the mean of the two in the middle; not a number when there is none.
#[must_use]
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len().is_multiple_of(2) {
        let lower = middle.checked_sub(1).and_then(|at| values.get(at));
        lower.map_or(upper, |lower| f64::midpoint(*lower, upper))
    } else {
        upper
    }
}

/// Where the true middle is with a certainty of 95 % or more, whatever the distribution is: the measured values between which it
/// lies unless a fair coin shows one side too often (the sign test). `None`: there are too few of them to say.
#[must_use]
pub fn interval(values: impl IntoIterator<Item = f64>) -> Option<[f64; 2]> {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let left_out = left_out(values.len())?;
    let last = values.len().checked_sub(left_out + 1)?;
    Some([*values.get(left_out)?, *values.get(last)?])
}

/// How many of so many values may be left out at either end.
fn left_out(count: usize) -> Option<usize> {
    let tosses = i32::try_from(count).ok()?;
    // Of all outcomes, those with exactly so many heads, and those with at most so many.
    let (mut exactly, mut at_most) = (0.5_f64.powi(tosses), 0.0);
    let mut most = None;
    for heads in 0..count {
        at_most += exactly;
        if at_most > DOUBT / 2.0 {
            break;
        }
        most = Some(heads);
        exactly *= (count - heads) as f64 / (heads + 1) as f64;
    }
    most
}

/// Share of intervals that do not hold the middle.
const DOUBT: f64 = 0.05;

/// How far apart the ends are, as a share of the middle.
#[must_use]
pub fn spread(values: &[f64]) -> f64 {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
    (high - low) / median(values.iter().copied())
}

/// The value that `thousandths` of them do not exceed, of values in ascending order.
#[must_use]
pub fn quantile<T: Copy>(sorted: &[T], thousandths: usize) -> Option<T> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * thousandths.min(1000) / 1000).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_ends() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
        assert_eq!(spread(&[8.0, 10.0, 12.0]), 0.4);
        let sorted: Vec<_> = (0..=100).collect();
        let at = |thousandths| quantile(&sorted, thousandths);
        assert_eq!(
            (at(0), at(500), at(990), at(1000)),
            (Some(0), Some(50), Some(99), Some(100))
        );
        assert_eq!(quantile::<u8>(&[], 500), None);
    }
    /// Tables of the sign test say 1, 2, 6, 7 and 40 of 6, 9, 20, 24 and 100 values for the first that counts.
    #[test]
    fn the_interval_is_that_of_the_sign_test() {
        for (count, first) in [(6, 1), (9, 2), (20, 6), (24, 7), (100, 40)] {
            let values = (1..=count).rev().map(f64::from);
            let wanted = [f64::from(first), f64::from(count + 1 - first)];
            assert_eq!(interval(values), Some(wanted), "{count}");
        }
        assert_eq!(interval((0..5).map(f64::from)), None);
        assert_eq!(interval([]), None);
    }
}
