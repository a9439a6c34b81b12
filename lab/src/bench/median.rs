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
}
