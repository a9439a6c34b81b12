//! The hint: sealed routing metadata inside the server-side ICE ufrag.
//!
//! ```text
//! ufrag = 1 character (format << 4 | key id) + 22 characters (one AES-128 block, base64 over ICE characters)
//!
//! block before encryption, big endian:
//!  0        2                 6        8                11                16
//!  +--------+-----------------+--------+----------------+-----------------+
//!  | region | transceiver     | minute | random         | zero            |
//!  +--------+-----------------+--------+----------------+-----------------+
//! ```
//!
//! One block decryption authenticates (40 zero bits), hides the topology and routes. A forger succeeds once
//! in 2^40 tries, and then owns one tentative flow. The alphabet is `ALPHA / DIGIT / "+" / "/"` (RFC 8839 §5.4).

use aes::Aes128;
use aes::cipher::{Block, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

use crate::flow_record::FlowCiphers;
use crate::ids::{Owner, RegionId, TransceiverId};

/// Characters of a hint ufrag.
pub const UFRAG_LEN: usize = 23;
/// The only format there is.
const FORMAT: u8 = 0;
const BLOCK_CHARS: usize = 22;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// How far ahead of us an issuer's clock may be, in minutes.
pub const SKEW_MINUTES_MAX: u16 = 10;

/// Minutes since the Unix epoch, modulo 2^16 (wraps every 45.5 days).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Minute(pub u16);

impl Minute {
    /// From seconds since the Unix epoch.
    #[must_use]
    pub const fn from_unix_s(unix_s: u64) -> Self {
        let [.., hi, lo] = (unix_s / 60).to_be_bytes();
        Self(u16::from_be_bytes([hi, lo]))
    }

    /// Minutes from `self` to `later`; negative when `self` lies ahead.
    #[must_use]
    pub const fn age_at(self, later: Self) -> i16 {
        later.0.wrapping_sub(self.0).cast_signed()
    }
}

/// Identifies a key: 0..=15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(u8);

impl KeyId {
    /// `None` above 15.
    #[must_use]
    pub const fn new(id: u8) -> Option<Self> {
        if id < 16 { Some(Self(id)) } else { None }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

/// What a hint says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The transceiver that owns the session.
    pub owner: Owner,
    /// When it was issued.
    pub issued: Minute,
}

/// Why a ufrag is not one of our hints. Each is its own drop reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HintError {
    /// Wrong length, a character outside the alphabet, unused bits set, or an unknown format.
    #[error("not a hint")]
    Malformed,
    /// The key id is not one of the live keys.
    #[error("unknown key id")]
    UnknownKey,
    /// The redundancy does not match: forged, corrupted, or sealed with another key of the same id.
    #[error("forged")]
    Forged,
}

/// One key with what is derived from it. Flow records have ciphers of their own, so that a sealed hint can
/// never be presented as a flow record or the other way round.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: KeyId,
    pub(crate) flow: FlowCiphers,
    cipher: Aes128,
}

impl Key {
    fn new(id: KeyId, key: [u8; 16]) -> Self {
        let cipher = Aes128::new(&key.into());
        Self {
            id,
            flow: FlowCiphers::derive(&cipher),
            cipher,
        }
    }
}

/// The live keys: previous, current, next. Any of them opens; the current one seals.
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<Key>,
    current: usize,
}

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.keys.iter().map(|key| key.id))
            .finish()
    }
}

/// Live keys at most: previous, current, next.
pub const KEYS_MAX: usize = 3;

/// Why a key file is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyRingError {
    /// A line is not `<role> <id 0-15> <32 hex digits>`.
    #[error("line {line}: expected `previous|current|next <id 0-15> <32 hex digits>`")]
    BadLine {
        /// From 1.
        line: usize,
    },
    /// The same role or id twice.
    #[error("line {line}: role or key id given twice")]
    Duplicate {
        /// From 1.
        line: usize,
    },
    /// No `current` key.
    #[error("no `current` key")]
    NoCurrent,
}

impl KeyRing {
    /// Parses the key file: one key a line, `<role> <id> <hex>`, where role is `previous`, `current` or `next`;
    /// empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// See [`KeyRingError`].
    pub fn parse(text: &str) -> Result<Self, KeyRingError> {
        let mut keys: Vec<(&str, Key)> = Vec::with_capacity(KEYS_MAX);
        for (index, line) in text.lines().enumerate() {
            let line_no = index + 1;
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (role, key) =
                parse_key_line(line).ok_or(KeyRingError::BadLine { line: line_no })?;
            if keys
                .iter()
                .any(|(other_role, other)| *other_role == role || other.id == key.id)
            {
                return Err(KeyRingError::Duplicate { line: line_no });
            }
            keys.push((role, key));
        }
        let current = keys
            .iter()
            .position(|(role, _)| *role == "current")
            .ok_or(KeyRingError::NoCurrent)?;
        Ok(Self {
            keys: keys.into_iter().map(|(_, key)| key).collect(),
            current,
        })
    }

    /// A ring of one key, for tests and simulations.
    #[must_use]
    pub fn single(id: KeyId, key: [u8; 16]) -> Self {
        Self {
            keys: vec![Key::new(id, key)],
            current: 0,
        }
    }

    /// Issues a hint with the current key. `random` must be fresh.
    #[must_use]
    pub fn seal(&self, hint: Hint, random: [u8; 3]) -> Ufrag {
        let [r0, r1] = hint.owner.region.0.to_be_bytes();
        let [t0, t1, t2, t3] = hint.owner.transceiver.0.to_be_bytes();
        let [m0, m1] = hint.issued.0.to_be_bytes();
        let [x0, x1, x2] = random;
        let mut block: Block<Aes128> =
            [r0, r1, t0, t1, t2, t3, m0, m1, x0, x1, x2, 0, 0, 0, 0, 0].into();
        let key = self.current();
        key.cipher.encrypt_block(&mut block);
        Ufrag(encode(key.id, block.into()))
    }

    /// The key that seals.
    pub(crate) fn current(&self) -> &Key {
        let Some(key) = self.keys.get(self.current) else {
            unreachable!("`current` indexes `keys`, which never change after construction")
        };
        key
    }

    /// The current key, then the others.
    pub(crate) fn current_first(&self) -> impl Iterator<Item = &Key> {
        let current = self.current().id;
        let others = self.keys.iter().filter(move |key| key.id != current);
        std::iter::once(self.current()).chain(others)
    }

    /// The live key of this id.
    pub(crate) fn key(&self, id: KeyId) -> Option<&Key> {
        self.keys.iter().find(|key| key.id == id)
    }

    /// Opens the ufrag of a STUN request.
    ///
    /// # Errors
    /// See [`HintError`].
    pub fn open(&self, ufrag: &[u8]) -> Result<Hint, HintError> {
        let (id, block) = decode(ufrag).ok_or(HintError::Malformed)?;
        let key = self.key(id).ok_or(HintError::UnknownKey)?;
        let mut block: Block<Aes128> = block.into();
        key.cipher.decrypt_block(&mut block);
        let [r0, r1, t0, t1, t2, t3, m0, m1, _, _, _, zero @ ..] = <[u8; 16]>::from(block);
        if zero != [0; 5] {
            return Err(HintError::Forged);
        }
        Ok(Hint {
            owner: Owner {
                region: RegionId(u16::from_be_bytes([r0, r1])),
                transceiver: TransceiverId(u32::from_be_bytes([t0, t1, t2, t3])),
            },
            issued: Minute(u16::from_be_bytes([m0, m1])),
        })
    }
}

fn parse_key_line(line: &str) -> Option<(&str, Key)> {
    let mut words = line.split_whitespace();
    let (role, id, hex, end) = (words.next()?, words.next()?, words.next()?, words.next());
    if end.is_some() || !matches!(role, "previous" | "current" | "next") {
        return None;
    }
    let id = KeyId::new(id.parse().ok()?)?;
    if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let key = u128::from_str_radix(hex, 16).ok()?.to_be_bytes();
    Some((role, Key::new(id, key)))
}

/// A sealed hint: 23 ICE characters. `Debug` shows nothing of it, because ufrags stay out of logs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ufrag([u8; UFRAG_LEN]);

impl Ufrag {
    /// The ufrag of a STUN request, for a look-up; `None` when it is not of a hint's length. Says nothing of its worth.
    #[must_use]
    pub fn from_request(ufrag: &[u8]) -> Option<Self> {
        ufrag.try_into().ok().map(Self)
    }

    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The characters as bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Ufrag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ufrag(..)")
    }
}

fn encode(id: KeyId, block: [u8; 16]) -> [u8; UFRAG_LEN] {
    let mut out = [character(FORMAT << 4 | id.0); UFRAG_LEN];
    let mut bits = u128::from_be_bytes(block);
    // 22 characters hold 132 bits: the last one carries 2 bits of the block in its high end, then zeros.
    let [_, head @ .., tail] = &mut out;
    let [.., low] = bits.to_be_bytes();
    *tail = character((low & 0b11) << 4);
    bits >>= 2;
    for slot in head.iter_mut().rev() {
        let [.., low] = bits.to_be_bytes();
        *slot = character(low & 0b11_1111);
        bits >>= 6;
    }
    out
}

fn decode(ufrag: &[u8]) -> Option<(KeyId, [u8; 16])> {
    let ufrag: &[u8; UFRAG_LEN] = ufrag.try_into().ok()?;
    let [first, head @ .., tail] = ufrag;
    let first = sextet(*first)?;
    if first >> 4 != FORMAT {
        return None;
    }
    let mut bits = 0u128;
    for c in head {
        bits = bits << 6 | u128::from(sextet(*c)?);
    }
    let tail = sextet(*tail)?;
    if tail & 0b1111 != 0 {
        return None;
    }
    bits = bits << 2 | u128::from(tail >> 4);
    Some((KeyId(first & 0b1111), bits.to_be_bytes()))
}

const _: () = assert!(BLOCK_CHARS + 1 == UFRAG_LEN);

fn character(sextet: u8) -> u8 {
    ALPHABET
        .get(usize::from(sextet & 0b11_1111))
        .copied()
        .unwrap_or(b'A')
}

const fn sextet(character: u8) -> Option<u8> {
    match character {
        b'A'..=b'Z' => Some(character - b'A'),
        b'a'..=b'z' => Some(character - b'a' + 26),
        b'0'..=b'9' => Some(character - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HINT: Hint = Hint {
        owner: Owner {
            region: RegionId(2),
            transceiver: TransceiverId(77),
        },
        issued: Minute(4711),
    };
    const A: &str = "000102030405060708090a0b0c0d0e0f";
    const B: &str = "101112131415161718191a1b1c1d1e1f";

    #[test]
    fn exact_characters() {
        // Computed with `openssl enc -aes-128-ecb -nopad` over 0002 0000004d 1267 010203 0000000000.
        let ring = KeyRing::parse(&format!("current 5 {A}")).unwrap();
        let ufrag = ring.seal(HINT, [1, 2, 3]);
        assert_eq!(ufrag.as_str(), "FEsJ0nmOf0SQMl7Rkm3vBDw");
        assert_eq!(ring.open(b"FEsJ0nmOf0SQMl7Rkm3vBDw"), Ok(HINT));
    }

    #[test]
    fn each_defect_has_its_reason() {
        let ring = KeyRing::parse(&format!("current 5 {A}")).unwrap();
        for (ufrag, error) in [
            (&b""[..], HintError::Malformed),
            (b"FEsJ0nmOf0SQMl7Rkm3vBD", HintError::Malformed),
            (b"FEsJ0nmOf0SQMl7Rkm3vBDwA", HintError::Malformed),
            (b"FEsJ0nmOf0SQMl7Rkm3vBD:", HintError::Malformed),
            (b"FEsJ0nmOf0SQMl7Rkm3vBDx", HintError::Malformed),
            (b"VEsJ0nmOf0SQMl7Rkm3vBDw", HintError::Malformed),
            (b"EEsJ0nmOf0SQMl7Rkm3vBDw", HintError::UnknownKey),
            (b"FEsJ0nmOf0SQMl7Rkm3vADw", HintError::Forged),
        ] {
            assert_eq!(ring.open(ufrag), Err(error), "{}", ufrag.escape_ascii());
        }
    }

    #[test]
    fn rotation_keeps_what_was_issued_one_step_before() {
        let parse = |text: &str| KeyRing::parse(text).unwrap();
        let old = parse(&format!("current 1 {A}\nnext 2 {B}"));
        let new = parse(&format!("previous 1 {A}\ncurrent 2 {B}"));
        let (before, after) = (old.seal(HINT, [0; 3]), new.seal(HINT, [0; 3]));
        assert_ne!(before, after);
        // A PoP may hold either file while the other node already has the new one.
        for ring in [&old, &new] {
            assert_eq!(ring.open(before.as_bytes()), Ok(HINT));
            assert_eq!(ring.open(after.as_bytes()), Ok(HINT));
        }
    }

    #[test]
    fn key_file_errors_name_the_line() {
        let parse = |text: &str| KeyRing::parse(text).map(|_| ());
        assert_eq!(parse(""), Err(KeyRingError::NoCurrent));
        let text = format!("# comment\n\n next 3 {A} \ncurrent 4 {B}\n");
        assert_eq!(parse(&text), Ok(()));
        let text = format!("current 1 {A}\ncurrent 2 {B}");
        assert_eq!(parse(&text), Err(KeyRingError::Duplicate { line: 2 }));
        let text = format!("current 1 {A}\nnext 1 {B}");
        assert_eq!(parse(&text), Err(KeyRingError::Duplicate { line: 2 }));
        for line in [
            format!("current 16 {A}"),
            format!("currant 1 {A}"),
            format!("current 1 {A}0"),
            format!("current 1 {}", &A[..31]),
            format!("current 1 {A} x"),
            "current 1 +00102030405060708090a0b0c0d0e0f".to_owned(),
        ] {
            assert_eq!(
                parse(&line),
                Err(KeyRingError::BadLine { line: 1 }),
                "{line}"
            );
        }
    }

    #[test]
    fn debug_shows_no_key_and_no_ufrag() {
        let ring = KeyRing::parse(&format!("current 5 {A}")).unwrap();
        assert_eq!(format!("{ring:?}"), "[KeyId(5)]");
        assert_eq!(format!("{:?}", ring.seal(HINT, [0; 3])), "Ufrag(..)");
    }

    #[test]
    fn minutes_wrap() {
        assert_eq!(Minute::from_unix_s(59), Minute(0));
        assert_eq!(Minute::from_unix_s(65_536 * 60 + 61), Minute(1));
        assert_eq!(Minute(65_535).age_at(Minute(3)), 4);
        assert_eq!(Minute(3).age_at(Minute(65_535)), -4);
    }
}
