//! What is known of a client before anything is decided: its address and what databases say of it.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize, Serializer};
use topology::Continent;

use crate::databases::special::canonical;

/// Bits of an IPv4 address that are measured, shown and logged.
pub const PREFIX_V4: u8 = 24;
/// Bits of an IPv6 address that are measured, shown and logged.
pub const PREFIX_V6: u8 = 48;

/// A client as steering sees it.
#[derive(Clone, Copy, PartialEq)]
pub struct Client {
    address: IpAddr,
    /// What databases say of its address.
    pub facts: Facts,
}

/// What databases say of an address. Nothing at all for private, reserved and unlisted space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Facts {
    /// Country.
    pub country: Option<Country>,
    /// Continent, of the record or of the country.
    pub continent: Option<Continent>,
    /// Coordinates of the city, or of the place that stands for the country.
    pub location: Option<Place>,
    /// Autonomous system number.
    pub asn: Option<u32>,
}

/// Coordinates in tenths of a degree (11 km or less), so that places can be compared and counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// Tenths of a degree north.
    pub latitude_tenths: i16,
    /// Tenths of a degree east.
    pub longitude_tenths: i16,
    /// What they are the coordinates of.
    pub of: PlaceOf,
}

/// What coordinates are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceOf {
    /// The client's city.
    City,
    /// The place that stands for the client's country.
    Country,
}

/// An ISO 3166-1 alpha-2 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

impl Facts {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

impl Client {
    /// A client at `address`; of one that carries an IPv4 address ([`canonical`]) that one.
    #[must_use]
    pub fn new(address: IpAddr, facts: Facts) -> Self {
        Self {
            address: canonical(address),
            facts,
        }
    }

    /// Its address. Not for logs, metrics or answers: see [`Client::prefix`].
    #[must_use]
    pub const fn address(&self) -> IpAddr {
        self.address
    }

    /// Its /24 or /48: what may be shown.
    #[must_use]
    pub fn prefix(&self) -> IpNet {
        cut(self.address, PREFIX_V4, PREFIX_V6)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("prefix", &self.prefix())
            .field("facts", &self.facts)
            .finish()
    }
}

/// The first bits of an address.
#[must_use]
pub fn cut(address: IpAddr, v4: u8, v6: u8) -> IpNet {
    match address {
        IpAddr::V4(ip) => IpNet::V4(Ipv4Net::new_assert(ip, v4.min(32))).trunc(),
        IpAddr::V6(ip) => IpNet::V6(Ipv6Net::new_assert(ip, v6.min(128))).trunc(),
    }
}

impl Place {
    /// `None` when the degrees are no coordinates.
    #[must_use]
    pub fn new(latitude: f64, longitude: f64, of: PlaceOf) -> Option<Self> {
        let valid = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        valid.then(|| Self {
            latitude_tenths: tenths(latitude),
            longitude_tenths: tenths(longitude),
            of,
        })
    }

    /// Degrees north.
    #[must_use]
    pub fn latitude(&self) -> f64 {
        f64::from(self.latitude_tenths) / 10.0
    }

    /// Degrees east.
    #[must_use]
    pub fn longitude(&self) -> f64 {
        f64::from(self.longitude_tenths) / 10.0
    }
}

fn tenths(degrees: f64) -> i16 {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 1800 tenths; the cast saturates"
    )]
    let tenths = (degrees * 10.0).round() as i16;
    tenths
}

impl Country {
    /// Of two letters, in either case.
    #[must_use]
    pub fn new(code: &str) -> Option<Self> {
        match code.as_bytes() {
            [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                Some(Self([a.to_ascii_uppercase(), b.to_ascii_uppercase()]))
            }
            _ => None,
        }
    }

    /// Two upper-case letters.
    #[must_use]
    pub fn code(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("??")
    }
}

impl Serialize for Country {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let code = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::new(&code).ok_or_else(|| serde::de::Error::custom("two letters are a country"))
    }
}
