//! The map that every server of the comparison has: from continents and countries to regions in order. Written once, rendered
//! into the words of each: rules of our topology, gdnsd's `map`, Knot's `geo.conf`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use topology::{Continent, Rule};

/// A region of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its name, in our topology and in gdnsd's.
    pub name: &'static str,
    /// Its last byte in every address, from 1.
    pub number: u8,
    /// Where it is, in degrees.
    pub latitude: f64,
    /// Where it is, in degrees.
    pub longitude: f64,
}

impl Place {
    const fn new(name: &'static str, number: u8, latitude: f64, longitude: f64) -> Self {
        Self {
            name,
            number,
            latitude,
            longitude,
        }
    }

    /// What an A record says (RFC 5737).
    #[must_use]
    pub const fn v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(192, 0, 2, self.number)
    }

    /// What an AAAA record says (RFC 3849).
    #[must_use]
    pub fn v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(self.number))
    }
}

/// Regions; whoever is nowhere gets the first.
pub const PLACES: [Place; 6] = [
    Place::new("us", 1, 38.9, -77.0),
    Place::new("sa", 2, -23.5, -46.6),
    Place::new("eu", 3, 50.1, 8.7),
    Place::new("af", 4, -33.9, 18.4),
    Place::new("ap", 5, 35.7, 139.7),
    Place::new("oc", 6, -33.9, 151.2),
];

/// Regions in order for clients of a continent, or of some of its countries.
struct Preference {
    continent: Continent,
    /// None: every country that no other row names.
    countries: &'static [&'static str],
    /// The others follow in the order of [`PLACES`].
    regions: [&'static str; 3],
}

impl Preference {
    /// All regions, so that nothing but the map decides and servers that merge equal lists merge the same ones.
    fn order(&self) -> Vec<&'static str> {
        let others = PLACES.iter().map(|place| place.name);
        let others = others.filter(|name| !self.regions.contains(name));
        self.regions.into_iter().chain(others).collect()
    }
}

const fn row(
    continent: Continent,
    countries: &'static [&'static str],
    regions: [&'static str; 3],
) -> Preference {
    Preference {
        continent,
        countries,
        regions,
    }
}

/// Countries that are not where their continent is, as seen from a cable.
const PREFERENCES: [Preference; 12] = [
    row(
        Continent::Af,
        &["DZ", "EG", "LY", "MA", "TN"],
        ["eu", "af", "us"],
    ),
    row(
        Continent::As,
        &["AE", "IL", "IQ", "IR", "SA", "TR"],
        ["eu", "ap", "us"],
    ),
    row(Continent::As, &["ID", "MY", "SG"], ["oc", "ap", "us"]),
    row(Continent::Na, &["GP", "MQ", "TT"], ["sa", "us", "eu"]),
    row(Continent::Sa, &["CO", "VE"], ["us", "sa", "eu"]),
    row(Continent::Na, &[], ["us", "sa", "eu"]),
    row(Continent::Sa, &[], ["sa", "us", "eu"]),
    row(Continent::Eu, &[], ["eu", "af", "us"]),
    row(Continent::Af, &[], ["af", "eu", "us"]),
    row(Continent::As, &[], ["ap", "oc", "us"]),
    row(Continent::Oc, &[], ["oc", "ap", "us"]),
    row(Continent::An, &[], ["oc", "sa", "af"]),
];

/// The region that a client of this continent and country gets first.
#[must_use]
pub fn first(continent: &str, country: Option<&str>) -> Option<&'static Place> {
    let named = |preference: &&Preference| match country {
        Some(country) => preference.countries.contains(&country),
        None => false,
    };
    let of_continent = |preference: &&Preference| code(preference.continent) == continent;
    let rows = || PREFERENCES.iter().filter(of_continent);
    let found = rows()
        .find(named)
        .or_else(|| rows().find(|preference| preference.countries.is_empty()))?;
    let [name, ..] = found.regions;
    PLACES.iter().find(|place| place.name == name)
}

/// Rules of our topology.
#[must_use]
pub fn rules() -> Vec<Rule> {
    PREFERENCES
        .iter()
        .map(|preference| {
            let of_continent = preference.countries.is_empty();
            let continent = code(preference.continent);
            let countries = preference.countries.iter();
            Rule {
                name: format!("{continent}{}", preference.countries.concat()).to_lowercase(),
                countries: countries.map(|&country| country.to_owned()).collect(),
                continents: Vec::from_iter(of_continent.then_some(preference.continent)),
                regions: preference.order().into_iter().map(str::to_owned).collect(),
                ..Rule::default()
            }
        })
        .collect()
}

/// The value of gdnsd's `map`: continents, below some of them countries.
#[must_use]
pub fn gdnsd() -> String {
    let mut text = String::from("{\n");
    for preference in PREFERENCES.iter().filter(|row| row.countries.is_empty()) {
        let continent = code(preference.continent);
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "  {continent} => {{ default => [{}]",
            preference.order().join(", ")
        );
        let others = PREFERENCES.iter();
        for other in others.filter(|other| other.continent == preference.continent) {
            for country in other.countries {
                let _ = write!(text, ", {country} => [{}]", other.order().join(", "));
            }
        }
        text.push_str(" }\n");
    }
    text.push('}');
    text
}

/// Knot's `geo.conf` for `name`.
#[must_use]
pub fn knot(name: &str) -> String {
    let mut text = format!("{name}:\n");
    for preference in &PREFERENCES {
        let continent = code(preference.continent);
        let Some(place) = first(continent, preference.countries.first().copied()) else {
            continue;
        };
        let any = preference.countries.is_empty().then_some("*");
        for country in preference.countries.iter().copied().chain(any) {
            // As above.
            let _ = writeln!(
                text,
                "  - geo: \"{continent};{country}\"\n    A: {}\n    AAAA: {}",
                place.v4(),
                place.v6()
            );
        }
    }
    text
}

/// As geolocation databases write it.
#[must_use]
pub const fn code(continent: Continent) -> &'static str {
    match continent {
        Continent::Af => "AF",
        Continent::An => "AN",
        Continent::As => "AS",
        Continent::Eu => "EU",
        Continent::Na => "NA",
        Continent::Oc => "OC",
        Continent::Sa => "SA",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn countries_come_before_their_continent_and_every_continent_has_a_region() {
        let name = |continent, country| first(continent, country).map(|place| place.name);
        assert_eq!(name("AF", Some("EG")), Some("eu"));
        assert_eq!(name("AF", Some("ZA")), Some("af"));
        assert_eq!(name("EU", None), Some("eu"));
        assert_eq!(
            name("EU", Some("EG")),
            Some("eu"),
            "a country is known on its continent"
        );
        assert_eq!(name("XX", None), None);
        assert_eq!(rules().len(), PREFERENCES.len());
        assert!(gdnsd().contains(
            "AF => { default => [af, eu, us, sa, ap, oc], DZ => [eu, af, us, sa, ap, oc]"
        ));
        assert!(knot("a.test").starts_with("a.test:\n  - geo: \"AF;DZ\"\n    A: 192.0.2.3\n"));
    }
}
