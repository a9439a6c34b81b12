//! Cities and the round trips between them: published ones, and for every other pair one that follows from distance.
//!
//! Not here: what a link does beside delay, and which cities a world uses.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Mean radius of Earth.
const EARTH_KM: f64 = 6371.0;

/// A file of cities: `lab/worlds/rtt-*.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cities {
    /// Who published the figures, and when they were taken.
    pub source: String,
    /// By short name.
    pub cities: BTreeMap<String, City>,
    /// Each pair once.
    pub published_rtt_ms: BTreeMap<String, BTreeMap<String, f64>>,
    /// The rule for all other pairs.
    pub derived: Rule,
}

/// A place on Earth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct City {
    /// For people.
    pub name: String,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// How long a distance takes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What light does in fibre.
    pub km_per_ms: f64,
    /// How much longer than the great circle the way is.
    pub stretch: f64,
}

/// A round trip, and whether somebody measured it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrip {
    /// Milliseconds.
    pub ms: f64,
    /// It follows from distance alone.
    pub derived: bool,
}

impl Cities {
    /// Between two cities that there are; none within a city, where a link says its own.
    #[must_use]
    pub fn round_trip(&self, a: &str, b: &str) -> Option<RoundTrip> {
        if a == b {
            return None;
        }
        let said = |from: &str, to: &str| self.published_rtt_ms.get(from)?.get(to).copied();
        if let Some(ms) = said(a, b).or_else(|| said(b, a)) {
            return Some(RoundTrip { ms, derived: false });
        }
        let km = self.cities.get(a)?.km_to(self.cities.get(b)?);
        let ms = 2.0 * km * self.derived.stretch / self.derived.km_per_ms;
        Some(RoundTrip { ms, derived: true })
    }

    /// Milliseconds between two cities; 0 within one.
    #[must_use]
    pub fn rtt_ms(&self, a: &str, b: &str) -> f64 {
        self.round_trip(a, b).map_or(0.0, |trip| trip.ms)
    }

    /// Every pair of the cities that `used` names, each once, as the WAN emulator reads it.
    #[must_use]
    pub fn matrix<'a>(
        &self,
        used: impl Iterator<Item = &'a str> + Clone,
    ) -> BTreeMap<String, BTreeMap<String, f64>> {
        let mut matrix: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
        for a in used.clone() {
            for b in used.clone().filter(|b| a < *b) {
                if let Some(trip) = self.round_trip(a, b) {
                    let row = matrix.entry(a.to_owned()).or_default();
                    row.insert(b.to_owned(), trip.ms);
                }
            }
        }
        matrix
    }

    /// Names that a published pair has and no city.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        let rows = self.published_rtt_ms.iter();
        let names = rows.flat_map(|(from, row)| [from].into_iter().chain(row.keys()));
        names
            .filter(|name| !self.cities.contains_key(*name))
            .map(String::as_str)
    }
}

impl City {
    /// The great circle.
    fn km_to(&self, other: &Self) -> f64 {
        let radians = |city: &Self| (city.latitude.to_radians(), city.longitude.to_radians());
        let ((north, east), (other_north, other_east)) = (radians(self), radians(other));
        let half_sine = |angle: f64| (angle / 2.0).sin().powi(2);
        let a = half_sine(other_north - north)
            + north.cos() * other_north.cos() * half_sine(other_east - east);
        2.0 * EARTH_KM * a.sqrt().min(1.0).asin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::file;

    #[test]
    fn published_pairs_are_as_published_and_others_follow_from_distance() {
        let cities = file::cities(&file::worlds_dir().join("rtt-ibm-2024.yaml")).unwrap();
        let published = RoundTrip {
            ms: 76.0,
            derived: false,
        };
        assert_eq!(cities.round_trip("lon", "wdc"), Some(published));
        assert_eq!(cities.round_trip("wdc", "lon"), Some(published));
        assert_eq!(cities.round_trip("lon", "lon"), None);
        assert_eq!(cities.round_trip("lon", "oslo"), None);
        let paris = cities.round_trip("lon", "par").unwrap();
        // 344 km.
        assert!(paris.derived && (5.3..5.5).contains(&paris.ms), "{paris:?}");
        let matrix = cities.matrix(["lon", "par", "wdc"].into_iter());
        assert_eq!(matrix.values().map(BTreeMap::len).sum::<usize>(), 3);
        assert_eq!(matrix["lon"]["wdc"], 76.0);
    }

    #[test]
    fn the_rule_is_the_median_of_the_published_pairs() {
        let cities = file::cities(&file::worlds_dir().join("rtt-ibm-2024.yaml")).unwrap();
        let mut stretches = Vec::new();
        for (from, row) in &cities.published_rtt_ms {
            for (to, ms) in row {
                let km = cities.cities[from].km_to(&cities.cities[to]);
                stretches.push(ms * cities.derived.km_per_ms / (2.0 * km));
            }
        }
        stretches.sort_by(f64::total_cmp);
        assert_eq!(stretches.len(), 45);
        let median = stretches[22];
        assert!((cities.derived.stretch - median).abs() < 0.01, "{median}");
    }
}
