//! Resource records as the zone holds them: types, RDATA in wire form, RRsets.
//!
//! RDATA is uncompressed and its names are lower case, so its bytes are the canonical ones that signatures cover
//! (RFC 4034 §6.2).

use std::fmt;
use std::net::IpAddr;

use crate::name::{Name, is_within};

mod https;
mod rdata;

pub use https::Endpoint;
pub(crate) use rdata::Rdata;

/// Type of a record or of a question.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Type(pub u16);

impl Type {
    /// IPv4 address.
    pub const A: Self = Self(1);
    /// Name server.
    pub const NS: Self = Self(2);
    /// Start of authority.
    pub const SOA: Self = Self(6);
    /// Text.
    pub const TXT: Self = Self(16);
    /// IPv6 address.
    pub const AAAA: Self = Self(28);
    /// The pseudo record of EDNS.
    pub const OPT: Self = Self(41);
    /// Delegation signer.
    pub const DS: Self = Self(43);
    /// Signature.
    pub const RRSIG: Self = Self(46);
    /// Next name, and the types of this one.
    pub const NSEC: Self = Self(47);
    /// Key of the zone.
    pub const DNSKEY: Self = Self(48);
    /// The DS the zone would like its parent to have (RFC 7344).
    pub const CDS: Self = Self(59);
    /// The same as a key.
    pub const CDNSKEY: Self = Self(60);
    /// Service binding of HTTPS (RFC 9460).
    pub const HTTPS: Self = Self(65);
    /// Says in an NSEC that the name does not exist; never asked for (RFC 9824).
    pub const NXNAME: Self = Self(128);
    /// Incremental zone transfer.
    pub const IXFR: Self = Self(251);
    /// Zone transfer.
    pub const AXFR: Self = Self(252);
    /// Any type (RFC 8482).
    pub const ANY: Self = Self(255);
    /// Certification authorities.
    pub const CAA: Self = Self(257);
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TYPE{}", self.0)
    }
}

/// Class of a record or of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class(pub u16);

impl Class {
    /// The Internet.
    pub const IN: Self = Self(1);
    /// Chaosnet: what a server says of itself (RFC 4892).
    pub const CH: Self = Self(3);
}

/// What stands in front of each record of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A pointer to the name of the question, which begins at byte 12 of every message: for answers, whose name is that of the question.
    Question,
    /// A pointer to another place of the message.
    At(u16),
    /// The set's own name, whole.
    Whole,
}

/// Where the name of the question begins in every message.
const QUESTION_AT: u16 = 12;

/// A compression pointer (RFC 1035 §4.1.4).
const fn pointer(offset: u16) -> [u8; 2] {
    (offset | 0xc000).to_be_bytes()
}

impl Owner {
    /// The shortest form of `name` in an answer to a question for `question`.
    #[must_use]
    pub fn of(name: &Name, question: &[u8]) -> Self {
        let (name, len) = (name.as_wire(), question.len());
        let Some(before) = len
            .checked_sub(name.len())
            .filter(|_| is_within(question, name))
        else {
            return Self::Whole;
        };
        u16::try_from(before).map_or(Self::Whole, |before| Self::At(QUESTION_AT + before))
    }
}

/// Records of one name and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rrset {
    /// Whose.
    pub name: Name,
    /// Type.
    pub rtype: Type,
    /// How long they may be cached, in seconds.
    pub ttl_s: u32,
    /// One entry a record, in the order they are answered in.
    pub rdata: Vec<Vec<u8>>,
    /// RDATA of the RRSIGs that cover them; none when the zone is not signed.
    pub signatures: Vec<Vec<u8>>,
}

impl Rrset {
    /// An unsigned set. What is given twice is in it once (RFC 2181 §5): signatures cover each record once (RFC 4034 §6.3).
    #[must_use]
    pub fn new(name: Name, rtype: Type, ttl_s: u32, rdata: Vec<Vec<u8>>) -> Self {
        let mut once: Vec<Vec<u8>> = Vec::with_capacity(rdata.len());
        for record in rdata {
            if !once.contains(&record) {
                once.push(record);
            }
        }
        Self {
            name,
            rtype,
            ttl_s,
            rdata: once,
            signatures: Vec::new(),
        }
    }

    /// Appends the records in wire form, and says how many.
    pub fn write(&self, owner: Owner, out: &mut Vec<u8>) -> u16 {
        self.write_records(owner, self.rtype, &self.rdata, out)
    }

    /// Appends the signatures in wire form, and says how many.
    pub fn write_signatures(&self, owner: Owner, out: &mut Vec<u8>) -> u16 {
        self.write_records(owner, Type::RRSIG, &self.signatures, out)
    }

    fn write_records(
        &self,
        owner: Owner,
        rtype: Type,
        records: &[Vec<u8>],
        out: &mut Vec<u8>,
    ) -> u16 {
        let mut count = 0;
        for rdata in records {
            // RDATA is built by this crate from texts and addresses that topology bounds, far below 64 KiB.
            let Ok(len) = u16::try_from(rdata.len()) else {
                continue;
            };
            match owner {
                Owner::Question => out.extend_from_slice(&pointer(QUESTION_AT)),
                Owner::At(offset) => out.extend_from_slice(&pointer(offset)),
                Owner::Whole => out.extend_from_slice(self.name.as_wire()),
            }
            out.extend_from_slice(&rtype.0.to_be_bytes());
            out.extend_from_slice(&Class::IN.0.to_be_bytes());
            out.extend_from_slice(&self.ttl_s.to_be_bytes());
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(rdata);
            count += 1;
        }
        count
    }
}

/// A and AAAA sets of a name, of those families that `addresses` has.
pub(crate) fn address_sets(
    name: &Name,
    ttl_s: u32,
    addresses: impl IntoIterator<Item = IpAddr>,
) -> [Option<Rrset>; 2] {
    let (mut v4, mut v6) = (Vec::new(), Vec::new());
    for address in addresses {
        let list = match address.to_canonical() {
            IpAddr::V4(_) => &mut v4,
            IpAddr::V6(_) => &mut v6,
        };
        list.push(Rdata::address(address));
    }
    let set = |rtype, rdata: Vec<Vec<u8>>| {
        (!rdata.is_empty()).then(|| Rrset::new(name.clone(), rtype, ttl_s, rdata))
    };
    [set(Type::A, v4), set(Type::AAAA, v6)]
}
