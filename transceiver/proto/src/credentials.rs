//! What we issue to a client: a ufrag that is a sealed hint, and a password.

use wire::hint::Ufrag;

/// Characters of a password: 144 bits. RFC 8839 §5.4 asks for at least 22 characters, 128 bits.
pub const PASSWORD_LEN: usize = 24;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// An ICE password. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password([u8; PASSWORD_LEN]);

impl Password {
    /// From random bytes, six bits of each.
    #[must_use]
    pub fn new(random: [u8; PASSWORD_LEN]) -> Self {
        Self(random.map(|byte| {
            ALPHABET
                .get(usize::from(byte & 63))
                .copied()
                .unwrap_or(b'A')
        }))
    }

    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The characters as bytes: the HMAC key of short-term credentials (RFC 8489 §9.1.1).
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Our half of the ICE credentials of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalCredentials {
    /// The hint.
    pub ufrag: Ufrag,
    /// The password.
    pub password: Password,
}

/// Random bytes one set of credentials takes.
pub const RANDOM_LEN: usize = 3 + PASSWORD_LEN;
