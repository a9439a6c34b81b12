//! DNS cookies (RFC 7873) whose server part every server with the same secret makes and takes (RFC 9018).
//!
//! ```text
//! server cookie   0 version = 1 | 1 reserved = 0 (3 bytes) | 4 time, seconds (BE) | 8 hash                        16 bytes
//! hash            SipHash-2-4(client cookie | version | reserved | time | client address)
//! ```
//!
//! A client with a right cookie does not spoof its address: no limit counts for it. A wrong one is as none: the answer is the
//! ordinary one with a right cookie in it. It decides no limit itself.

use std::net::IpAddr;

use crate::query::{Cookie, ServerCookie};
use crate::siphash::siphash24;

/// Option code.
pub const CODE: u16 = 10;
/// Bytes of client and server cookie together.
pub const OPTION_BYTES: usize = 24;
/// Age at which a cookie is refused, in seconds (RFC 9018 §4.3).
pub const AGE_S_MAX: u32 = 3_600;
/// Age from which an answer carries a cookie of its own time, in seconds (RFC 9018 §4.3).
pub const RENEW_S: u32 = 1_800;
/// How far ahead of us the clock of another server may be, in seconds (RFC 9018 §4.3).
pub const AHEAD_S_MAX: u32 = 300;
/// Secrets at most: the one that makes cookies, and two that are only taken: the one before and the one after it.
pub const SECRETS_MAX: usize = 3;
const VERSION: u8 = 1;
const RESERVED: [u8; 3] = [0; 3];

/// Secrets of server cookies. The first makes them; all are taken.
#[derive(Clone)]
pub struct Secrets {
    current: [u64; 2],
    others: Vec<[u64; 2]>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", 1 + self.others.len())
    }
}

/// Why a file of secrets cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// Neither a comment nor `<role> <32 hex digits>`.
    #[error("line {line}: expected `current|previous|next <32 hex digits>`")]
    BadLine {
        /// From 1.
        line: usize,
    },
    /// A role twice.
    #[error("line {line}: role given twice")]
    Duplicate {
        /// From 1.
        line: usize,
    },
    /// Nothing to make cookies with.
    #[error("no `current` secret")]
    NoCurrent,
}

/// What a query's cookie says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// There is none.
    None,
    /// A client cookie alone.
    Client,
    /// Ours: the address is not spoofed.
    Valid,
    /// Too old, of another server or address, or forged.
    Bad,
}

impl Standing {
    /// Every standing, in the order of declaration.
    pub const ALL: [Self; 4] = [Self::None, Self::Client, Self::Valid, Self::Bad];

    /// The metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Client => "client",
            Self::Valid => "valid",
            Self::Bad => "bad",
        }
    }
}

impl Secrets {
    /// A single one, for a server that shares cookies with no other.
    #[must_use]
    pub fn single(secret: [u8; 16]) -> Self {
        Self {
            current: words(secret),
            others: Vec::new(),
        }
    }

    /// From a file: lines `current|previous|next <32 hex digits>`, empty lines, and comments that begin with `#`.
    ///
    /// # Errors
    /// See [`SecretsError`].
    pub fn parse(text: &str) -> Result<Self, SecretsError> {
        let mut found: [Option<[u64; 2]>; SECRETS_MAX] = [None; SECRETS_MAX];
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (role, secret) = secret_line(text).ok_or(SecretsError::BadLine { line })?;
            let cell = found.get_mut(role).ok_or(SecretsError::BadLine { line })?;
            if cell.replace(secret).is_some() {
                return Err(SecretsError::Duplicate { line });
            }
        }
        let [current, others @ ..] = found;
        Ok(Self {
            current: current.ok_or(SecretsError::NoCurrent)?,
            others: others.into_iter().flatten().collect(),
        })
    }

    /// Judges the cookie of a query from `address`, and says what server cookie the answer carries.
    #[must_use]
    pub fn judge(&self, cookie: &Cookie, address: IpAddr, unix_s: u32) -> (Standing, [u8; 16]) {
        let standing = match cookie.server {
            ServerCookie::None => Standing::Client,
            ServerCookie::Foreign => Standing::Bad,
            ServerCookie::Ours(server) => match self.verify(cookie.client, server, address, unix_s)
            {
                Some(true) => return (Standing::Valid, server),
                Some(false) => Standing::Valid,
                None => Standing::Bad,
            },
        };
        let fresh = make(self.current, cookie.client, RESERVED, unix_s, address);
        (standing, fresh)
    }

    /// `None`: not valid. Else whether the client may keep it.
    fn verify(
        &self,
        client: [u8; 8],
        server: [u8; 16],
        address: IpAddr,
        unix_s: u32,
    ) -> Option<bool> {
        let [version, r0, r1, r2, t0, t1, t2, t3, ..] = server;
        if version != VERSION {
            return None;
        }
        // Hashed as received (RFC 9018 §4.2), but no cookie of ours has bits set there.
        let reserved = [r0, r1, r2];
        let made_s = u32::from_be_bytes([t0, t1, t2, t3]);
        // Serial number arithmetic (RFC 1982), as RFC 9018 §4.3 wants it.
        let age_s = unix_s.wrapping_sub(made_s).cast_signed();
        if age_s > AGE_S_MAX.cast_signed() || age_s < -AHEAD_S_MAX.cast_signed() {
            return None;
        }
        let is = |secret: &[u64; 2]| make(*secret, client, reserved, made_s, address) == server;
        if is(&self.current) {
            return Some(age_s <= RENEW_S.cast_signed() && reserved == RESERVED);
        }
        self.others.iter().any(is).then_some(false)
    }
}

fn make(
    secret: [u64; 2],
    client: [u8; 8],
    reserved: [u8; 3],
    unix_s: u32,
    address: IpAddr,
) -> [u8; 16] {
    let ([r0, r1, r2], [t0, t1, t2, t3]) = (reserved, unix_s.to_be_bytes());
    let head = [VERSION, r0, r1, r2, t0, t1, t2, t3];
    let mut data = [0; 32];
    let (fixed, at) = data.split_at_mut(16);
    let (cookie, version) = fixed.split_at_mut(8);
    cookie.copy_from_slice(&client);
    version.copy_from_slice(&head);
    let hash = match address {
        IpAddr::V4(v4) => {
            at.iter_mut()
                .zip(v4.octets())
                .for_each(|(to, from)| *to = from);
            siphash24(secret, data.first_chunk::<20>().map_or(&[], |data| data))
        }
        IpAddr::V6(v6) => {
            at.copy_from_slice(&v6.octets());
            siphash24(secret, &data)
        }
    };
    let mut server = [0; 16];
    let (front, back) = server.split_at_mut(8);
    front.copy_from_slice(&head);
    back.copy_from_slice(&hash.to_le_bytes());
    server
}

/// Index of the role, and the secret.
fn secret_line(line: &str) -> Option<(usize, [u64; 2])> {
    let mut fields = line.split_ascii_whitespace();
    let (role, digits) = (fields.next()?, fields.next()?);
    let role = ["current", "previous", "next"]
        .iter()
        .position(|known| *known == role)?;
    if fields.next().is_some()
        || digits.len() != 32
        || !digits.bytes().all(|c| c.is_ascii_hexdigit())
    {
        return None;
    }
    let secret = u128::from_str_radix(digits, 16).ok()?;
    Some((role, words(secret.to_be_bytes())))
}

fn words(secret: [u8; 16]) -> [u64; 2] {
    let secret = u128::from_le_bytes(secret);
    let [a0, a1, a2, a3, a4, a5, a6, a7, b @ ..] = secret.to_le_bytes();
    let a = [a0, a1, a2, a3, a4, a5, a6, a7];
    [u64::from_le_bytes(a), u64::from_le_bytes(b)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
        assert_eq!(hex.len(), 2 * N);
        std::array::from_fn(byte)
    }

    fn cookie(hex: &str) -> Cookie {
        Cookie {
            client: bytes(&hex[..16]),
            server: match hex.len() {
                16 => ServerCookie::None,
                _ => ServerCookie::Ours(bytes(&hex[16..])),
            },
        }
    }

    /// RFC 9018 appendix A.
    #[test]
    fn vectors_of_the_rfc() {
        let secret = "current e5e973e5a6b2a43f48e7dc849e37bfcf";
        let newer =
            "current 445536bcd2513298075a5d379663c962\nprevious dd3bdf9344b678b185a6f5cb60fca715";
        let cases = [
            // A.1 learning a cookie
            (
                secret,
                "2464c4abcf10c957",
                "198.51.100.100",
                1_559_731_985,
                Standing::Client,
                "010000005cf79f111f8130c3eee29480",
            ),
            // A.2 the same again, half an hour later: renewed
            (
                secret,
                "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
                "198.51.100.100",
                1_559_734_385,
                Standing::Valid,
                "010000005cf7a871d4a564a1442aca77",
            ),
            // A.3 bits in reserved: taken while it is young, answered without them; by the time of the example it is too old
            (
                secret,
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
                "203.0.113.203",
                1_559_728_000,
                Standing::Valid,
                "010000005cf78f80",
            ),
            (
                secret,
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
                "203.0.113.203",
                1_559_734_700,
                Standing::Bad,
                "010000005cf7a9acf73a7810aca2381e",
            ),
            // A.4 IPv6, and a secret that was rolled over
            (
                newer,
                "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
                "2001:db8:220:1:59de:d0f4:8769:82b8",
                1_559_741_961,
                Standing::Valid,
                "010000005cf7c609a6bb79d16625507a",
            ),
        ];
        for (secrets, query, address, unix_s, standing, server) in cases {
            let secrets = Secrets::parse(secrets).unwrap();
            let answer = secrets.judge(&cookie(query), address.parse().unwrap(), unix_s);
            assert_eq!(answer.0, standing, "{query}");
            assert!(
                hex(&answer.1).starts_with(server),
                "{query}: {}",
                hex(&answer.1)
            );
        }
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_cookie_holds_for_one_client_and_address_and_an_hour() {
        let secrets = Secrets::single([7; 16]);
        let (here, there) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let first = Cookie {
            client: [1; 8],
            server: ServerCookie::None,
        };
        let now = 3_000;
        let (standing, server) = secrets.judge(&first, here, now);
        assert_eq!(standing, Standing::Client);
        let with = |client, server| Cookie {
            client: [client; 8],
            server: ServerCookie::Ours(server),
        };
        let judge = |cookie, address, unix_s| secrets.judge(&cookie, address, unix_s);
        assert_eq!(
            judge(with(1, server), here, now + RENEW_S),
            (Standing::Valid, server)
        );
        let (standing, renewed) = judge(with(1, server), here, now + RENEW_S + 1);
        assert_eq!(standing, Standing::Valid);
        assert_ne!(renewed, server);
        assert_eq!(
            judge(with(1, server), here, now + AGE_S_MAX).0,
            Standing::Valid
        );
        assert_eq!(
            judge(with(1, server), here, now + AGE_S_MAX + 1).0,
            Standing::Bad
        );
        assert_eq!(
            judge(with(1, server), here, now - AHEAD_S_MAX).0,
            Standing::Valid
        );
        assert_eq!(
            judge(with(1, server), here, now - AHEAD_S_MAX - 1).0,
            Standing::Bad
        );
        assert_eq!(judge(with(2, server), here, now).0, Standing::Bad);
        assert_eq!(judge(with(1, server), there, now).0, Standing::Bad);
        for byte in 0..16 {
            let mut forged = server;
            forged[byte] ^= 1;
            assert_eq!(judge(with(1, forged), here, now).0, Standing::Bad, "{byte}");
        }
        let foreign = Cookie {
            client: [1; 8],
            server: ServerCookie::Foreign,
        };
        assert_eq!(judge(foreign, here, now), (Standing::Bad, server));
    }

    #[test]
    fn the_time_may_wrap() {
        let secrets = Secrets::single([7; 16]);
        let here = "192.0.2.1".parse().unwrap();
        let first = Cookie {
            client: [1; 8],
            server: ServerCookie::None,
        };
        let (_, server) = secrets.judge(&first, here, u32::MAX - 10);
        let again = Cookie {
            client: [1; 8],
            server: ServerCookie::Ours(server),
        };
        assert_eq!(secrets.judge(&again, here, 10), (Standing::Valid, server));
    }

    #[test]
    fn a_secret_goes_from_next_to_current_to_previous_and_no_cookie_is_refused() {
        let (a, b) = (
            "000102030405060708090a0b0c0d0e0f",
            "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        );
        let here = "2001:db8::1".parse().unwrap();
        let stages = [
            format!("current {a}"),
            format!("current {a}\nnext {b}"),
            format!("# rotated\n\ncurrent {b}\nprevious {a}"),
        ];
        let stages: Vec<Secrets> = stages
            .iter()
            .map(|text| Secrets::parse(text).unwrap())
            .collect();
        let mut last = ServerCookie::None;
        for maker in &stages {
            let (_, server) = maker.judge(
                &Cookie {
                    client: [3; 8],
                    server: last,
                },
                here,
                100,
            );
            last = ServerCookie::Ours(server);
            for taker in stages.iter().skip(1) {
                let standing = taker
                    .judge(
                        &Cookie {
                            client: [3; 8],
                            server: last,
                        },
                        here,
                        101,
                    )
                    .0;
                assert_eq!(standing, Standing::Valid);
            }
        }
        assert_eq!(format!("{:?}", stages[2]), "Secrets(2)");
    }

    #[test]
    fn files_of_secrets_that_cannot_be_used_say_why() {
        let digits = "000102030405060708090a0b0c0d0e0f";
        let cases = [
            (String::new(), SecretsError::NoCurrent),
            (format!("previous {digits}"), SecretsError::NoCurrent),
            (
                format!("current {digits} x"),
                SecretsError::BadLine { line: 1 },
            ),
            (format!("\nnow {digits}"), SecretsError::BadLine { line: 2 }),
            (
                "current +00102030405060708090a0b0c0d0e0f".to_owned(),
                SecretsError::BadLine { line: 1 },
            ),
            ("current 00".to_owned(), SecretsError::BadLine { line: 1 }),
            (
                format!("current {digits}\ncurrent {digits}"),
                SecretsError::Duplicate { line: 2 },
            ),
        ];
        for (text, error) in cases {
            assert_eq!(Secrets::parse(&text).err(), Some(error), "{text}");
        }
    }
}
