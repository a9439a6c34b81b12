//! One database: bytes in the MaxMind DB format.
//!
//! Bytes of a file are never trusted. Opening checks the structure; [`Database::survey`] walks every network once, which is what
//! shows that the search tree is one, and how much can be read. `maxminddb`'s own `verify` is not asked: it refuses what
//! vendors ship (an empty description) and passes much of what is damaged.

use std::fmt;
use std::net::IpAddr;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use maxminddb::Reader;
use thiserror::Error;

use crate::databases::networks::{Network, Networks};
use crate::databases::record::Record;
use crate::facts::Facts;

/// Bytes of one database at most.
pub const DATABASE_BYTES_MAX: usize = 1 << 30;

/// A database in memory.
pub struct Database {
    reader: Reader<Vec<u8>>,
    bytes: usize,
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
    /// Its size.
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

/// Facts of records, each decoded once.
#[derive(Default)]
pub(crate) struct Records {
    facts: HashMap<usize, Facts, FixedState>,
    /// Records that could not be decoded; they say nothing.
    pub(crate) bad: u64,
}

impl Records {
    /// The facts of a network.
    pub(crate) fn facts(&mut self, network: &Network<'_>) -> Facts {
        let Some((found, offset)) = network
            .found
            .as_ref()
            .and_then(|found| Some((found, found.offset()?)))
        else {
            return Facts::default();
        };
        let bad = &mut self.bad;
        let decode = || match found.decode::<Record>() {
            Ok(Some(Record(facts))) => facts,
            Ok(None) | Err(_) => {
                *bad += 1;
                Facts::default()
            }
        };
        *self.facts.entry(offset).or_insert_with(decode)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.about().fmt(f)
    }
}

impl Database {
    /// Opens bytes. Nothing is copied.
    ///
    /// # Errors
    /// They are no database.
    pub fn open(bytes: Vec<u8>) -> Result<Self, DatabaseError> {
        if bytes.len() > DATABASE_BYTES_MAX {
            return Err(DatabaseError::TooLarge);
        }
        let bytes_len = bytes.len();
        let reader = Reader::from_source(bytes).map_err(|_| DatabaseError::Format)?;
        Ok(Self {
            reader,
            bytes: bytes_len,
        })
    }

    /// What it says of itself.
    #[must_use]
    pub fn about(&self) -> About {
        let metadata = self.reader.metadata();
        About {
            kind: metadata.database_type.chars().take(64).collect(),
            built_unix_s: metadata.build_epoch,
            ipv6: metadata.ip_version == 6,
            bytes: self.bytes,
        }
    }

    /// What it knows of an address. A record that cannot be decoded says nothing.
    ///
    /// The address is taken as it is, and the place that stands for a country is not added: see [`super::Databases::facts`].
    #[must_use]
    pub fn facts(&self, address: IpAddr) -> Facts {
        let Ok(found) = self.reader.lookup(address) else {
            return Facts::default();
        };
        match found.decode::<Record>() {
            Ok(Some(Record(facts))) => facts,
            Ok(None) | Err(_) => Facts::default(),
        }
    }

    /// Walks all networks.
    ///
    /// # Errors
    /// The search tree is damaged.
    pub fn survey(&self) -> Result<Survey, DatabaseError> {
        let mut survey = Survey::default();
        let mut records = Records::default();
        let families = [(self.networks_v4(), true), (self.networks_v6(), false)];
        let count = |there: bool| u64::from(there);
        for (networks, ipv4) in families {
            for network in networks {
                let facts = records.facts(&network?);
                survey.located += count(facts.country.is_some() || facts.continent.is_some());
                survey.coordinates += count(facts.location.is_some());
                survey.asn += count(facts.asn.is_some());
                survey.ipv4 += count(ipv4 && !facts.is_unknown());
                survey.ipv6 += count(!ipv4 && !facts.is_unknown());
            }
        }
        survey.records = u64::try_from(records.facts.len()).unwrap_or(u64::MAX);
        survey.records_bad = records.bad;
        Ok(survey)
    }

    /// A partition of the IPv4 addresses, in order.
    pub(crate) fn networks_v4(&self) -> Networks<'_> {
        Networks::v4(&self.reader)
    }

    /// A partition of the IPv6 addresses, in order.
    pub(crate) fn networks_v6(&self) -> Networks<'_> {
        Networks::v6(&self.reader)
    }
}
