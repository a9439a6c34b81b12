//! The tables and what they answer.

use std::fmt;
use std::net::IpAddr;

use crate::compile::trie;
use crate::databases::special::carried;

/// A list by its place in [`Compiled::lists`](crate::compile::Compiled::lists).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListId(pub u32);

/// What a table says of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// The list of its class.
    pub list: ListId,
    /// Length of the prefix of the address that the list holds for. Bits of the address as it was asked for: of an address that
    /// carries an IPv4 address the bits before it count.
    pub scope: u8,
}

/// From addresses to lists. Immutable, and read without a lock, an allocation or a loop longer than an address has bits.
pub struct Tables {
    pub(crate) v4: trie::V4,
    pub(crate) v6: trie::V6,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tables")
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

impl Tables {
    /// Of an IPv4 address.
    #[inline]
    #[must_use]
    pub fn lookup_v4(&self, address: u32) -> Located {
        self.v4.lookup(u128::from(address) << 96)
    }

    /// Of an IPv6 address; of one that carries an IPv4 address that one's.
    #[inline]
    #[must_use]
    pub fn lookup_v6(&self, address: u128) -> Located {
        let Some(carried) = carried(address) else {
            return self.v6.lookup(address);
        };
        let located = self.lookup_v4(carried.address.to_bits());
        Located {
            list: located.list,
            scope: located.scope + carried.bits_before,
        }
    }

    /// Of an address of either family.
    #[inline]
    #[must_use]
    pub fn lookup(&self, address: IpAddr) -> Located {
        match address {
            IpAddr::V4(address) => self.lookup_v4(address.to_bits()),
            IpAddr::V6(address) => self.lookup_v6(address.to_bits()),
        }
    }

    /// A word that looking up an IPv4 address reads early, for those who fetch it ahead.
    #[inline]
    #[must_use]
    pub fn word_v4(&self, address: u32) -> &u32 {
        self.v4.word(u128::from(address) << 96)
    }

    /// A word that looking up an IPv6 address reads early.
    #[inline]
    #[must_use]
    pub fn word_v6(&self, address: u128) -> &u32 {
        match carried(address) {
            Some(carried) => self.word_v4(carried.address.to_bits()),
            None => self.v6.word(address),
        }
    }

    /// Memory they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.v4.bytes() + self.v6.bytes()
    }
}

/// `list` has 24 bits.
pub(crate) const fn pack(list: u32, scope: u8) -> u32 {
    list << 8 | scope as u32
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low byte is the scope")]
pub(crate) const fn unpack(word: u32) -> Located {
    Located {
        list: ListId(word >> 8),
        scope: word as u8,
    }
}
