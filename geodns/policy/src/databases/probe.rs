//! Whether a database that opens is one to steer by.
//!
//! ```text
//! structure   of the records at most one in a hundred cannot be decoded; that the search tree is one was seen when it was opened
//! content     at least one network has a fact
//! world       one that knows more than 10,000 networks' countries must know where well-known networks of five registries are
//! successor   one that replaces another must not have lost half of its networks, a kind of fact or an address family
//! ```
//!
//! The third finds a file whose tree was built wrong or whose records are shifted; the fourth one that was cut off at its source.

use std::net::IpAddr;

use thiserror::Error;
use topology::Continent;

use crate::databases::database::{Database, Survey};

/// Why a database is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProbeError {
    /// More than one record in a hundred cannot be decoded.
    #[error("its records cannot be decoded")]
    Records,
    /// No network has a country, coordinates or an ASN.
    #[error("it holds no country, coordinates or ASN")]
    Empty,
    /// It has well-known networks on other continents than they are.
    #[error("it has well-known networks in the wrong place")]
    Misplaced,
    /// It has lost half of the networks, a kind of fact or an address family that the one it replaces has.
    #[error("it has lost much of what the one before it held")]
    Shrunk,
}

/// Databases that know this many networks' countries claim to know the world.
const WORLD_NETWORKS: u64 = 10_000;
/// Of the well-known networks that a database knows at all, at least this share must be where they are, in percent.
const WELL_KNOWN_PERCENT: usize = 60;
/// Well-known networks that must be known before they say anything.
const WELL_KNOWN_MIN: usize = 3;
/// A successor has at least this share of its predecessor's networks, in percent.
const SUCCESSOR_PERCENT: u64 = 50;

/// Networks that have not moved for decades: registries, universities, national providers.
const WELL_KNOWN: [(&str, Continent); 20] = [
    ("193.0.6.139", Continent::Eu),
    ("130.149.7.7", Continent::Eu),
    ("129.132.19.216", Continent::Eu),
    ("81.2.69.142", Continent::Eu),
    ("18.7.22.83", Continent::Na),
    ("128.32.155.2", Continent::Na),
    ("131.107.0.89", Continent::Na),
    ("133.11.93.0", Continent::As),
    ("202.12.27.33", Continent::As),
    ("166.111.4.100", Continent::As),
    ("143.107.1.1", Continent::Sa),
    ("200.160.2.3", Continent::Sa),
    ("146.141.1.1", Continent::Af),
    ("137.158.1.1", Continent::Af),
    ("130.102.131.70", Continent::Oc),
    ("2001:67c:2e8:22::c100:68b", Continent::Eu),
    ("2001:638:208::1", Continent::Eu),
    ("2001:12ff:0:2::3", Continent::Sa),
    ("2001:200:0:8002::1", Continent::As),
    ("2607:f140::1", Continent::Na),
];

/// Looks at a database before it is used, and at the survey of the one it would replace.
///
/// # Errors
/// It is not to be used.
pub fn probe(database: &Database, before: Option<&Survey>) -> Result<Survey, ProbeError> {
    let survey = *database.survey();
    if survey.records_bad.saturating_mul(100) > survey.records {
        return Err(ProbeError::Records);
    }
    if survey.ipv4 == 0 && survey.ipv6 == 0 {
        return Err(ProbeError::Empty);
    }
    if survey.located >= WORLD_NETWORKS && misplaced(database) {
        return Err(ProbeError::Misplaced);
    }
    if before.is_some_and(|before| has_shrunk(before, &survey)) {
        return Err(ProbeError::Shrunk);
    }
    Ok(survey)
}

fn misplaced(database: &Database) -> bool {
    let continents = WELL_KNOWN.iter().filter_map(|(address, wanted)| {
        let address: IpAddr = address.parse().ok()?;
        let found = database.facts(address).continent?;
        Some(found == *wanted)
    });
    let right: Vec<_> = continents.collect();
    let count = right.iter().filter(|right| **right).count();
    right.len() < WELL_KNOWN_MIN || count * 100 < right.len() * WELL_KNOWN_PERCENT
}

fn has_shrunk(before: &Survey, after: &Survey) -> bool {
    let figures = |survey: &Survey| {
        [
            survey.located,
            survey.coordinates,
            survey.asn,
            survey.ipv4,
            survey.ipv6,
        ]
    };
    let mut pairs = figures(before).into_iter().zip(figures(after));
    pairs
        .any(|(before, after)| after.saturating_mul(100) < before.saturating_mul(SUCCESSOR_PERCENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_keeps_what_there_was() {
        let before = Survey {
            located: 1000,
            coordinates: 1000,
            ipv4: 600,
            ipv6: 400,
            ..Survey::default()
        };
        assert!(!has_shrunk(&before, &before));
        let grown = Survey {
            asn: 10,
            located: 501,
            ..before
        };
        assert!(!has_shrunk(&before, &grown));
        for lost in [
            Survey {
                located: 499,
                ..before
            },
            Survey {
                coordinates: 0,
                ..before
            },
            Survey { ipv4: 0, ..before },
            Survey {
                ipv6: 199,
                ..before
            },
        ] {
            assert!(has_shrunk(&before, &lost), "{lost:?}");
        }
    }

    #[test]
    fn well_known_addresses_are_addresses() {
        for (address, _) in WELL_KNOWN {
            assert!(address.parse::<IpAddr>().is_ok(), "{address}");
        }
    }
}
