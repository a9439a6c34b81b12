//! Bytes in the MaxMind DB format, read in place. Only until [`Database`](super::Database) has what it needs of them.

use std::net::IpAddr;

use maxminddb::Reader;

use crate::databases::database::{About, DatabaseError};
use crate::databases::networks::Networks;
use crate::databases::record::Record;
use crate::facts::Facts;

/// See the head of this file.
pub(crate) struct Raw {
    pub(crate) reader: Reader<Vec<u8>>,
    bytes: usize,
}

impl Raw {
    /// Checks the structure; the search tree is not walked.
    pub(crate) fn open(bytes: Vec<u8>) -> Result<Self, DatabaseError> {
        let len = bytes.len();
        let reader = Reader::from_source(bytes).map_err(|_| DatabaseError::Format)?;
        Ok(Self { reader, bytes: len })
    }

    pub(crate) fn about(&self) -> About {
        let metadata = self.reader.metadata();
        About {
            kind: metadata.database_type.chars().take(64).collect(),
            built_unix_s: metadata.build_epoch,
            ipv6: metadata.ip_version == 6,
            bytes: self.bytes,
        }
    }

    /// A partition of the IPv4 addresses, in order.
    pub(crate) fn networks_v4(&self) -> Networks<'_> {
        Networks::v4(&self.reader)
    }

    /// A partition of the IPv6 addresses, in order.
    pub(crate) fn networks_v6(&self) -> Networks<'_> {
        Networks::v6(&self.reader)
    }

    /// What the bytes say of an address, by looking it up in the tree. A record that cannot be decoded says nothing.
    pub(crate) fn facts(&self, address: IpAddr) -> Facts {
        let found = self.reader.lookup(address);
        match found.map(|found| found.decode::<Record>()) {
            Ok(Ok(Some(Record(facts)))) => facts,
            Ok(Ok(None) | Err(_)) | Err(_) => Facts::default(),
        }
    }
}
