//! Signatures: keys of the zone, RRSIG, DNSKEY, DS. ECDSA P-256 with SHA-256 alone (RFC 6605; RFC 8624 §3.1).
//!
//! Everything is signed when the zone or a selection is made; nothing is on the way of a query. Random numbers, which
//! ECDSA wants, and time are the caller's.

use ring::digest;
use ring::rand::SecureRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use crate::name::{self, Name};
use crate::record::{Class, Rrset, Type};

/// Number of ECDSAP256SHA256 (RFC 6605 §5).
const ALGORITHM: u8 = 13;

/// Number of SHA-256 in DS records (RFC 4509).
const DIGEST_SHA256: u8 = 2;

/// Flags of a DNSKEY: zone key and secure entry point, because one key signs keys and records.
const FLAGS: u16 = 257;

/// Protocol of a DNSKEY (RFC 4034 §2.1.2).
const PROTOCOL: u8 = 3;

/// Keys of a zone at most: one that signs, one that comes, one that goes.
pub const KEYS_MAX: usize = 3;

/// Seconds before its day from which a signature holds: clocks of resolvers may be slow.
const SLACK_S: u64 = 3_600;

/// Days a signature holds. It is renewed every day, so a node whose clock or keeper stands still is noticed in time.
const DAYS: u64 = 14;

const DAY_S: u64 = 86_400;

/// Keys of the zone: the first signs records, all sign the keys, and all are in DNSKEY, CDS and CDNSKEY.
pub struct Keys {
    keys: Vec<Key>,
}

struct Key {
    pair: EcdsaKeyPair,
    dnskey: Vec<u8>,
    tag: u16,
}

/// Why there are no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// None, or more than [`KEYS_MAX`].
    #[error("{0} keys, 1..={KEYS_MAX} are allowed")]
    Count(usize),
    /// Not a private key of the kind we sign with.
    #[error("key {0} is not an ECDSA P-256 key in PKCS#8")]
    NotAKey(usize),
    /// One key twice, or two that records could not tell apart.
    #[error("keys {0} and {1} have the same tag")]
    SameTag(usize, usize),
}

/// The random source failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no random number to sign with")]
pub struct SignError;

/// When signatures begin and end to hold, in seconds since 1970. Equal all day long, so what is equal is signed once a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    inception_s: u32,
    expiration_s: u32,
}

/// Signs the sets of one zone.
pub struct Signer<'a> {
    /// Whose name is in the signatures.
    pub apex: &'a Name,
    /// What signs.
    pub keys: &'a Keys,
    /// From when to when.
    pub validity: Validity,
    /// What ECDSA draws from.
    pub random: &'a dyn SecureRandom,
}

impl Keys {
    /// Keys in PKCS#8.
    ///
    /// # Errors
    /// See [`KeysError`].
    pub fn from_pkcs8<'a>(
        list: impl IntoIterator<Item = &'a [u8]>,
        random: &dyn SecureRandom,
    ) -> Result<Self, KeysError> {
        let mut keys: Vec<Key> = Vec::new();
        for (position, der) in (1..).zip(list) {
            let key = Key::from_pkcs8(der, random).ok_or(KeysError::NotAKey(position))?;
            if let Some(same) = keys.iter().position(|other| other.tag == key.tag) {
                return Err(KeysError::SameTag(same + 1, position));
            }
            keys.push(key);
        }
        if (1..=KEYS_MAX).contains(&keys.len()) {
            Ok(Self { keys })
        } else {
            Err(KeysError::Count(keys.len()))
        }
    }

    /// RDATA of the DNSKEY, and of the CDNSKEY, set.
    pub(crate) fn dnskeys(&self) -> Vec<Vec<u8>> {
        self.keys.iter().map(|key| key.dnskey.clone()).collect()
    }

    /// RDATA of the DS records that the parent zone should have; of the CDS set, too.
    #[must_use]
    pub fn ds(&self, apex: &Name) -> Vec<Vec<u8>> {
        self.keys.iter().map(|key| key.ds(apex)).collect()
    }

    /// The DS records of the parent zone, as in a zone file.
    #[must_use]
    pub fn ds_texts(&self, apex: &Name) -> Vec<String> {
        let text = |key: &Key| {
            let digest: String = key
                .digest(apex)
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            format!(
                "{apex} IN DS {} {ALGORITHM} {DIGEST_SHA256} {digest}",
                key.tag
            )
        };
        self.keys.iter().map(text).collect()
    }
}

/// Shows tags, which are public, and nothing else.
impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tags = self.keys.iter().map(|key| key.tag);
        f.debug_list().entries(tags).finish()
    }
}

impl Key {
    fn from_pkcs8(der: &[u8], random: &dyn SecureRandom) -> Option<Self> {
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, random).ok()?;
        // Uncompressed point: 4, x, y. DNS leaves the 4 out (RFC 6605 §4).
        let point = pair.public_key().as_ref().strip_prefix(&[4])?;
        let mut dnskey = FLAGS.to_be_bytes().to_vec();
        dnskey.extend_from_slice(&[PROTOCOL, ALGORITHM]);
        dnskey.extend_from_slice(point);
        let tag = key_tag(&dnskey);
        Some(Self { pair, dnskey, tag })
    }

    fn digest(&self, apex: &Name) -> digest::Digest {
        let input = [apex.as_wire(), &self.dnskey].concat();
        digest::digest(&digest::SHA256, &input)
    }

    fn ds(&self, apex: &Name) -> Vec<u8> {
        let mut rdata = self.tag.to_be_bytes().to_vec();
        rdata.extend_from_slice(&[ALGORITHM, DIGEST_SHA256]);
        rdata.extend_from_slice(self.digest(apex).as_ref());
        rdata
    }
}

impl Validity {
    /// That of the day of `unix_s`. What is signed with another one is signed again.
    #[must_use]
    pub fn at(unix_s: u64) -> Self {
        let day = unix_s - unix_s % DAY_S;
        // Serial numbers that wrap in 2106 (RFC 4034 §3.1.5).
        let serial = |s: u64| u32::try_from(s & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        Self {
            inception_s: serial(day.saturating_sub(SLACK_S)),
            expiration_s: serial(day + DAYS * DAY_S),
        }
    }
}

impl Signer<'_> {
    /// Signs `set` in place of the signatures it has.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn sign(&self, set: &mut Rrset) -> Result<(), SignError> {
        let signs_keys = matches!(set.rtype, Type::DNSKEY | Type::CDNSKEY | Type::CDS);
        let count = if signs_keys { KEYS_MAX } else { 1 };
        let mut signatures = Vec::with_capacity(count);
        for key in self.keys.keys.iter().take(count) {
            let mut rdata = self.rdata_before_signature(set, key.tag);
            let input = [rdata.as_slice(), &canonical(set)].concat();
            let signature = key.pair.sign(self.random, &input).map_err(|_| SignError)?;
            rdata.extend_from_slice(signature.as_ref());
            signatures.push(rdata);
        }
        set.signatures = signatures;
        Ok(())
    }

    /// RFC 4034 §3.1.
    fn rdata_before_signature(&self, set: &Rrset, tag: u16) -> Vec<u8> {
        let labels = name::labels(set.name.as_wire()).count();
        let mut rdata = set.rtype.0.to_be_bytes().to_vec();
        rdata.extend_from_slice(&[ALGORITHM, u8::try_from(labels).unwrap_or(u8::MAX)]);
        rdata.extend_from_slice(&set.ttl_s.to_be_bytes());
        rdata.extend_from_slice(&self.validity.expiration_s.to_be_bytes());
        rdata.extend_from_slice(&self.validity.inception_s.to_be_bytes());
        rdata.extend_from_slice(&tag.to_be_bytes());
        rdata.extend_from_slice(self.apex.as_wire());
        rdata
    }
}

/// The records as signatures cover them: in the order of their RDATA (RFC 4034 §6.3).
fn canonical(set: &Rrset) -> Vec<u8> {
    let mut sorted: Vec<&Vec<u8>> = set.rdata.iter().collect();
    sorted.sort();
    let mut out = Vec::new();
    for rdata in sorted {
        out.extend_from_slice(set.name.as_wire());
        out.extend_from_slice(&set.rtype.0.to_be_bytes());
        out.extend_from_slice(&Class::IN.0.to_be_bytes());
        out.extend_from_slice(&set.ttl_s.to_be_bytes());
        out.extend_from_slice(&u16::try_from(rdata.len()).unwrap_or(u16::MAX).to_be_bytes());
        out.extend_from_slice(rdata);
    }
    out
}

/// RFC 4034 appendix B.
fn key_tag(dnskey: &[u8]) -> u16 {
    let sum: u32 = dnskey
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            [high] => u32::from(high) << 8,
            _ => 0,
        })
        .sum();
    let folded = (sum + (sum >> 16)) & 0xffff;
    u16::try_from(folded).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests;
