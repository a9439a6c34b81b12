//! One database: what bytes in the MaxMind DB format say of all addresses.
//!
//! Bytes of a file are never trusted. Opening checks their structure and walks every network once, which is what shows that the
//! search tree is one, and how many records can be read; then the bytes are dropped. `maxminddb`'s own `verify` is not asked: it
//! refuses what vendors ship (an empty description) and passes much of what is damaged.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use crate::databases::known::{Collector, Runs};
use crate::databases::raw::Raw;
use crate::facts::Facts;

/// Bytes of one database at most.
pub const DATABASE_BYTES_MAX: usize = 1 << 30;

/// A database in memory.
pub struct Database {
    about: About,
    survey: Survey,
    facts: Vec<Facts>,
    v4: Runs,
    v6: Runs,
}

/// What a database says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Type, as its vendor calls it; at most 64 characters.
    pub kind: String,
    /// When it was built, in seconds of Unix time.
    pub built_unix_s: u64,
    /// Whether it knows IPv6.
    pub ipv6: bool,
    /// Size of its file.
    pub bytes: usize,
}

/// Why bytes are no usable database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DatabaseError {
    /// More than [`DATABASE_BYTES_MAX`].
    #[error("larger than {DATABASE_BYTES_MAX} bytes")]
    TooLarge,
    /// No metadata, or metadata that does not fit the file.
    #[error("not in the MaxMind DB format, or cut off")]
    Format,
    /// The search tree leads outside the file, into a circle, or branches meet again.
    #[error("its search tree is damaged")]
    Tree,
}

/// What a walk over all networks found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Networks with a country or continent.
    pub located: u64,
    /// Networks with coordinates.
    pub coordinates: u64,
    /// Networks with an ASN.
    pub asn: u64,
    /// IPv4 networks with any of them.
    pub ipv4: u64,
    /// IPv6 networks with any of them.
    pub ipv6: u64,
    /// Records that cannot be decoded.
    pub records_bad: u64,
    /// Records there are.
    pub records: u64,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about.fmt(f)
    }
}

impl Database {
    /// Takes what bytes know. A second or two for millions of networks.
    ///
    /// # Errors
    /// They are no database.
    pub fn open(bytes: Vec<u8>) -> Result<Self, DatabaseError> {
        if bytes.len() > DATABASE_BYTES_MAX {
            return Err(DatabaseError::TooLarge);
        }
        let raw = Raw::open(bytes)?;
        let mut collector = Collector::new();
        let v4 = collector.v4(raw.networks_v4())?;
        let v6 = collector.v6(raw.networks_v6())?;
        Ok(Self {
            about: raw.about(),
            survey: collector.survey,
            facts: collector.facts,
            v4,
            v6,
        })
    }

    /// What it says of itself.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// What was found when it was opened.
    #[must_use]
    pub const fn survey(&self) -> &Survey {
        &self.survey
    }

    /// Memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes() + self.facts.len() * size_of::<Facts>()
    }

    /// What it knows of an address.
    ///
    /// The address is taken as it is, and the place that stands for a country is not added: see [`super::Databases::facts`].
    #[must_use]
    pub fn facts(&self, address: IpAddr) -> Facts {
        let (runs, address) = match address {
            IpAddr::V4(address) => (&self.v4, u128::from(u32::from(address))),
            IpAddr::V6(address) => (&self.v6, u128::from(address)),
        };
        self.facts_of(runs.id(runs.find(address)))
    }

    pub(crate) fn facts_of(&self, id: u32) -> Facts {
        self.facts.get(id as usize).copied().unwrap_or_default()
    }

    pub(crate) const fn v4(&self) -> &Runs {
        &self.v4
    }

    pub(crate) const fn v6(&self) -> &Runs {
        &self.v6
    }
}
