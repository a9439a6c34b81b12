//! What is known of client addresses: geolocation databases in the MaxMind DB format, given as bytes, and the facts they hold.
//!
//! ```text
//! bytes --open--> Database --probe--> in Databases --facts(address)--> Facts { country, continent, location, asn }
//!                                        |
//!                                        +--runs--> compile
//! ```
//!
//! Several databases make one: for each fact the first that knows it speaks, so the order is the order of trust. IPv4 and IPv6
//! may be in files of their own, and so may cities, countries and networks (ASN).
//!
//! This module reads no file and no clock, and maps no memory: a file that is truncated while it is mapped kills the process.

pub mod countries;
mod database;
mod known;
mod networks;
mod probe;
mod raw;
mod record;
pub mod special;

use std::net::IpAddr;
use std::sync::Arc;

use crate::facts::Facts;

pub use database::{About, DATABASE_BYTES_MAX, Database, DatabaseError, Survey};
pub(crate) use known::Runs;
pub(crate) use networks::Networks;
pub use probe::{ProbeError, probe};
pub(crate) use raw::Raw;

/// Databases at most.
pub const DATABASES_MAX: usize = 16;

/// Databases in order of trust. Without any, everything is unknown.
#[derive(Clone, Debug, Default)]
pub struct Databases {
    list: Vec<Arc<Database>>,
}

impl Databases {
    /// The first [`DATABASES_MAX`] of them.
    #[must_use]
    pub fn new(list: impl IntoIterator<Item = Arc<Database>>) -> Self {
        Self {
            list: list.into_iter().take(DATABASES_MAX).collect(),
        }
    }

    /// In order of trust.
    #[must_use]
    pub fn as_slice(&self) -> &[Arc<Database>] {
        &self.list
    }

    /// What is known of a client. Of an address that carries another ([`special::canonical`]) that one is asked for; of a
    /// special one nothing is known.
    #[must_use]
    pub fn facts(&self, client: IpAddr) -> Facts {
        let client = special::canonical(client);
        let mut facts = Facts::default();
        if special::special(client).is_none() {
            for database in &self.list {
                fill(&mut facts, &database.facts(client));
            }
        }
        placed(facts)
    }

    /// When the oldest was built, in seconds of Unix time.
    #[must_use]
    pub fn built_unix_s(&self) -> Option<u64> {
        let built = self
            .list
            .iter()
            .map(|database| database.about().built_unix_s);
        built.min()
    }
}

/// Takes from `other` what is unknown. A continent goes with its country, so that both speak of one place.
pub(crate) fn fill(facts: &mut Facts, other: &Facts) {
    if facts.country.is_none() && other.country.is_some() {
        facts.country = other.country;
        facts.continent = other.continent.or(facts.continent);
    }
    facts.continent = facts.continent.or(other.continent);
    facts.location = facts.location.or(other.location);
    facts.asn = facts.asn.or(other.asn);
}

/// Without a city, the place that stands for the country.
pub(crate) fn placed(mut facts: Facts) -> Facts {
    let of_country = || Some(countries::of(facts.country?)?.place);
    facts.location = facts.location.or_else(of_country);
    facts
}

#[cfg(test)]
mod tests {
    use topology::Continent;

    use super::*;
    use crate::facts::{Country, Place, PlaceOf};

    #[test]
    fn the_first_that_knows_speaks_and_continents_follow_countries() {
        let european = Facts {
            continent: Some(Continent::Eu),
            ..Facts::default()
        };
        let mut facts = european;
        let turkish = Facts {
            country: Country::new("TR"),
            continent: Some(Continent::As),
            asn: Some(64_500),
            ..Facts::default()
        };
        fill(&mut facts, &turkish);
        assert_eq!(facts, turkish);
        fill(
            &mut facts,
            &Facts {
                country: Country::new("DE"),
                continent: Some(Continent::Eu),
                location: Place::new(50.1, 8.7, PlaceOf::City),
                asn: Some(1),
            },
        );
        let location = Place::new(50.1, 8.7, PlaceOf::City);
        assert_eq!(
            facts,
            Facts {
                location,
                ..turkish
            }
        );
        let mut empty = Facts::default();
        fill(&mut empty, &european);
        assert_eq!(empty, european);
    }

    #[test]
    fn a_city_is_a_better_place_than_a_country() {
        let german = Facts {
            country: Country::new("DE"),
            ..Facts::default()
        };
        let of = |facts: Facts| placed(facts).location.map(|place| place.of);
        assert_eq!(of(german), Some(PlaceOf::Country));
        let city = Facts {
            location: Place::new(50.1, 8.7, PlaceOf::City),
            ..german
        };
        assert_eq!(of(city), Some(PlaceOf::City));
        assert_eq!(of(Facts::default()), None);
    }
}
