//! Prefixes that lie in one another, flattened: which one is the longest that holds an address, as ranges.

use ipnet::IpNet;

use crate::compile::sweep::Family;

/// Where a label begins; it holds until the next.
pub(crate) type Mark<T> = (u128, T);

/// Ranges by the label of the longest prefix that holds them, `outside` where none does. Of equal prefixes the first counts.
pub(crate) fn flatten<T: Copy + PartialEq>(
    family: Family,
    outside: T,
    prefixes: impl IntoIterator<Item = (IpNet, T)>,
) -> Vec<Mark<T>> {
    let bounds = prefixes.into_iter().filter_map(|(net, label)| {
        let (first, last) = family.bounds(net)?;
        Some((first, last, label))
    });
    let mut nets: Vec<_> = bounds.collect();
    // Outer before inner. The sort is stable: of equal ones the first given stays first.
    nets.sort_by_key(|(first, last, _)| (*first, u128::MAX - *last));
    nets.dedup_by_key(|(first, last, _)| (*first, *last));
    let mut marks = vec![(0, outside)];
    let mut open: Vec<(u128, T)> = Vec::new();
    for (first, last, label) in nets {
        close(&mut marks, &mut open, Some(first), outside);
        mark(&mut marks, first, label);
        open.push((last, label));
    }
    close(&mut marks, &mut open, None, outside);
    marks.retain(|(first, _)| *first <= family.last());
    marks
}

/// Ends the prefixes that end before `before`, innermost first.
fn close<T: Copy + PartialEq>(
    marks: &mut Vec<Mark<T>>,
    open: &mut Vec<(u128, T)>,
    before: Option<u128>,
    outside: T,
) {
    while let Some((last, _)) = open.last().copied() {
        if before.is_some_and(|before| last >= before) {
            return;
        }
        open.pop();
        let Some(next) = last.checked_add(1) else {
            continue;
        };
        mark(
            marks,
            next,
            open.last().map_or(outside, |(_, label)| *label),
        );
    }
}

/// The later word on one address holds.
fn mark<T: Copy + PartialEq>(marks: &mut Vec<Mark<T>>, first: u128, label: T) {
    if marks.last().is_some_and(|(last, _)| *last == first) {
        marks.pop();
    }
    if marks.last().is_none_or(|(_, last)| *last != label) {
        marks.push((first, label));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_holds() {
        let nets = [
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.0.0/24",
            "10.1.255.0/24",
            "10.255.0.0/16",
            "0.0.0.0/32",
        ];
        let nets = nets
            .iter()
            .zip(1_u32..)
            .map(|(net, label)| (net.parse().unwrap(), label));
        let marks = flatten(Family::V4, 0, nets);
        let marks: Vec<_> = marks
            .into_iter()
            .map(|(first, label)| {
                (
                    std::net::Ipv4Addr::from(u32::try_from(first).unwrap()).to_string(),
                    label,
                )
            })
            .collect();
        let wanted = [
            ("0.0.0.0", 6),
            ("0.0.0.1", 0),
            ("10.0.0.0", 1),
            ("10.1.0.0", 3),
            ("10.1.1.0", 2),
            ("10.1.255.0", 4),
            ("10.2.0.0", 1),
            ("10.255.0.0", 5),
            ("11.0.0.0", 0),
        ];
        assert_eq!(
            marks,
            wanted.map(|(first, label)| (first.to_owned(), label))
        );
    }

    #[test]
    fn of_equal_prefixes_the_first_counts_and_the_other_family_is_left_out() {
        let nets = [("255.0.0.0/8", 1), ("255.0.0.0/8", 2), ("2000::/3", 3)];
        let nets = nets.map(|(net, label)| (net.parse().unwrap(), label));
        assert_eq!(flatten(Family::V4, 0, nets), [(0, 0), (0xff00_0000, 1)]);
        assert_eq!(
            flatten(Family::V6, 0, nets),
            [(0, 0), (0x2000 << 112, 3), (0x4000 << 112, 0)]
        );
    }
}
