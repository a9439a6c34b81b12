//! The last segment of a session URL: who owns the session, and the key that names it there.
//!
//! ```text
//! SESSION = 23 characters (hint of the owner, `wire::hint`, in the URL-safe alphabet) + 22 characters (key)
//!
//!  0   1                      23                     45
//!  +---+----------------------+----------------------+
//!  | k | sealed owner block   | session key, 128 bit |
//!  +---+----------------------+----------------------+
//!   key id and format
//! ```
//!
//! The owner is sealed exactly like the hint in a ufrag, so any transceiver of the region opens it without a
//! registry, clients learn nothing of the topology, and a URL lives as long as a hint does: any live key of the
//! ring opens it, two rotations retire it. The session key is the capability; the hint only routes, which is why
//! its age is not looked at, and why the owner itself takes the key without it. This module does not know whether the session exists.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use wire::Owner;
use wire::hint::{Hint, KeyRing, Minute, UFRAG_LEN};

use crate::engine::handle::SessionKey;

/// Characters of the key: 128 bits in base64url without padding.
const KEY_CHARS: usize = 22;
/// Characters of a session token.
pub const TOKEN_LEN: usize = UFRAG_LEN + KEY_CHARS;

/// The segment is no token of ours, or the key that sealed it is gone. The two are one to the client: no such session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a session URL of this network")]
pub struct UnknownToken;

/// What a session URL says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The transceiver that has the session.
    pub owner: Owner,
    /// The session's name there.
    pub key: SessionKey,
}

impl Token {
    /// The URL segment. `random` must be fresh.
    #[must_use]
    pub fn seal(&self, ring: &KeyRing, issued: Minute, random: [u8; 3]) -> String {
        let hint = Hint {
            owner: self.owner,
            issued,
        };
        let mut segment = String::with_capacity(TOKEN_LEN);
        segment.extend(ring.seal(hint, random).as_str().chars().map(|c| match c {
            '+' => '-',
            '/' => '_',
            other => other,
        }));
        URL_SAFE_NO_PAD.encode_string(self.key.0, &mut segment);
        segment
    }

    /// Opens a URL segment with any live key of the ring.
    ///
    /// # Errors
    /// [`UnknownToken`].
    pub fn open(ring: &KeyRing, segment: &str) -> Result<Self, UnknownToken> {
        let (hint, key) = segment
            .as_bytes()
            .split_at_checked(UFRAG_LEN)
            .ok_or(UnknownToken)?;
        let mut ufrag = [0; UFRAG_LEN];
        for (to, from) in ufrag.iter_mut().zip(hint) {
            *to = match from {
                b'-' => b'+',
                b'_' => b'/',
                b'+' | b'/' => return Err(UnknownToken),
                other => *other,
            };
        }
        let hint = ring.open(&ufrag).map_err(|_| UnknownToken)?;
        Ok(Self {
            owner: hint.owner,
            key: session_key(key)?,
        })
    }

    /// The session key alone, whatever sealed the rest: a session may outlive the key that sealed its URL, and its owner
    /// needs no route to itself.
    ///
    /// # Errors
    /// [`UnknownToken`].
    pub fn key_of(segment: &str) -> Result<SessionKey, UnknownToken> {
        let split = segment.as_bytes().split_at_checked(UFRAG_LEN);
        let (_, key) = split.ok_or(UnknownToken)?;
        session_key(key)
    }
}

fn session_key(encoded: &[u8]) -> Result<SessionKey, UnknownToken> {
    let key = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| UnknownToken)?;
    Ok(SessionKey(key.try_into().map_err(|_| UnknownToken)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::hint::KeyId;
    use wire::{RegionId, TransceiverId};

    const TOKEN: Token = Token {
        owner: Owner {
            region: RegionId(7),
            transceiver: TransceiverId(300),
        },
        key: SessionKey([0xfb; 16]),
    };

    #[test]
    fn opens_what_was_sealed() {
        let ring = ring(3, 1);
        for random in 0..=255 {
            let segment = TOKEN.seal(&ring, Minute(9), [random; 3]);
            assert_eq!(segment.len(), TOKEN_LEN);
            assert!(
                segment
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            );
            assert_eq!(Token::open(&ring, &segment), Ok(TOKEN));
        }
    }

    /// Worked out with another AES: the bytes of the picture above.
    #[test]
    fn known_answer() {
        let segment = TOKEN.seal(&ring(1, 1), Minute(9), [1, 2, 3]);
        assert_eq!(segment, "BzccqXNW2fCEMYzbW3lmTow-_v7-_v7-_v7-_v7-_v7-w");
    }

    #[test]
    fn survives_rotation_until_its_key_is_gone() {
        let segment = TOKEN.seal(&ring(1, 1), Minute(9), [1, 2, 3]);
        let kept = KeyRing::parse(&format!(
            "previous 1 {}\ncurrent 2 {}\nnext 3 {}",
            hex(1),
            hex(2),
            hex(3)
        ))
        .unwrap();
        assert_eq!(Token::open(&kept, &segment), Ok(TOKEN));
        let gone = KeyRing::parse(&format!("previous 2 {}\ncurrent 3 {}", hex(2), hex(3))).unwrap();
        assert_eq!(Token::open(&gone, &segment), Err(UnknownToken));
        assert_eq!(Token::key_of(&segment), Ok(TOKEN.key));
    }

    #[test]
    fn nothing_else_opens() {
        let ring = ring(3, 1);
        let good = TOKEN.seal(&ring, Minute(9), [0; 3]);
        for bad in [
            "",
            "x",
            &good[..TOKEN_LEN - 1],
            &format!("{good}A"),
            &good.replace(&good[5..7], "+/"),
            &format!("{}=", &good[..TOKEN_LEN - 1]),
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}a",
        ] {
            assert_eq!(Token::open(&ring, bad), Err(UnknownToken), "{bad}");
        }
        // One flipped character of the hint: 40 bits of redundancy refuse it.
        for at in 1..UFRAG_LEN - 1 {
            let mut bytes = good.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let bad = String::from_utf8(bytes).unwrap();
            assert_eq!(Token::open(&ring, &bad), Err(UnknownToken), "at {at}");
        }
    }

    fn ring(id: u8, byte: u8) -> KeyRing {
        KeyRing::single(KeyId::new(id).unwrap(), [byte; 16])
    }

    fn hex(byte: u8) -> String {
        format!("{byte:02x}").repeat(16)
    }
}
