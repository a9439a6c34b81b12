//! Bearer tokens (RFC 9725 §4.7.1, RFC 6750): a JWT signed with HS256 (RFC 7519, RFC 7515) that has not expired.
//!
//! The clock is an argument. Only what WHIP needs is understood: one algorithm, fixed before the token is looked
//! at, so nothing in a token can choose how it is verified (RFC 8725 §3.1). The common crate is not used because its
//! 9.x line accepts claims of a wrong type as absent (GHSA-h395-gr6q-cpjc) and its 10.x line has no ring backend.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::Deserialize;

/// The longest token that is looked at, in bytes.
pub const TOKEN_LEN_MAX: usize = 4096;
/// How far ahead of ours the issuer's clock may be for `nbf`, in seconds. `exp` gets no such grace (RFC 7519 §4.1.4).
const NOT_BEFORE_LEEWAY_S: f64 = 5.0;

/// Why a request is not let in. Each has its challenge in `WWW-Authenticate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No bearer token at all: a plain challenge, without an error code (RFC 6750 §3.1).
    #[error("this needs a bearer token")]
    NoToken,
    /// Not a JWT that we would sign, or the signature is wrong.
    #[error("the token is invalid")]
    Invalid,
    /// `exp` has passed.
    #[error("the token has expired")]
    Expired,
    /// `nbf` lies ahead.
    #[error("the token is not valid yet")]
    NotYet,
}

impl Refusal {
    /// The value of `WWW-Authenticate`.
    #[must_use]
    pub const fn challenge(self) -> &'static str {
        match self {
            Self::NoToken => "Bearer realm=\"firsthop\"",
            Self::Invalid => {
                "Bearer realm=\"firsthop\", error=\"invalid_token\", error_description=\"the token is invalid\""
            }
            Self::Expired => {
                "Bearer realm=\"firsthop\", error=\"invalid_token\", error_description=\"the token has expired\""
            }
            Self::NotYet => {
                "Bearer realm=\"firsthop\", error=\"invalid_token\", error_description=\"the token is not valid yet\""
            }
        }
    }
}

/// Verifies tokens with one secret.
pub struct Verifier(hmac::Key);

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Verifier(..)")
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood; we understand none (RFC 7515 §4.1.11).
    crit: Option<serde_json::Value>,
}

/// A claim of another type than a number is an error, never an absent claim.
#[derive(Deserialize)]
struct Claims {
    exp: f64,
    nbf: Option<f64>,
}

impl Verifier {
    /// For tokens signed with `secret`.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// Checks the values of all `Authorization` field lines of a request.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn check<'a>(
        &self,
        mut lines: impl Iterator<Item = &'a [u8]>,
        now_unix_s: u64,
    ) -> Result<(), Refusal> {
        let line = lines.next().ok_or(Refusal::NoToken)?;
        if lines.next().is_some() {
            return Err(Refusal::Invalid);
        }
        let line = std::str::from_utf8(line).map_err(|_| Refusal::NoToken)?;
        // The scheme is case-insensitive (RFC 9110 §11.1).
        let (scheme, token) = line.trim().split_once(' ').ok_or(Refusal::NoToken)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Refusal::NoToken);
        }
        self.verify(token.trim_start(), now_unix_s)
    }

    fn verify(&self, token: &str, now_unix_s: u64) -> Result<(), Refusal> {
        let claims = self.claims(token).ok_or(Refusal::Invalid)?;
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds since 1970 stay far below 2^53"
        )]
        let now = now_unix_s as f64;
        if now >= claims.exp {
            return Err(Refusal::Expired);
        }
        match claims.nbf {
            Some(nbf) if now + NOT_BEFORE_LEEWAY_S < nbf => Err(Refusal::NotYet),
            Some(_) | None => Ok(()),
        }
    }

    /// The claims of a token whose signature holds.
    fn claims(&self, token: &str) -> Option<Claims> {
        if token.len() > TOKEN_LEN_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.0, signed.as_bytes(), &signature).ok()?;
        let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if header.alg != "HS256" || header.crit.is_some() {
            return None;
        }
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
    const NOW: u64 = 1_800_000_000;

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn table() {
        use Refusal::{Expired, Invalid, NoToken, NotYet};
        let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
        let good = jwt(SECRET, hs256, r#"{"exp":1800000001}"#);
        let with = |header: &str, claims: &str| format!("Bearer {}", jwt(SECRET, header, claims));
        for (name, lines, expected) in [
            ("none", vec![], Err(NoToken)),
            ("good", vec![format!("Bearer {good}")], Ok(())),
            (
                "scheme in any case",
                vec![format!("bEARER  {good}")],
                Ok(()),
            ),
            ("basic", vec!["Basic dTpw".to_owned()], Err(NoToken)),
            ("no scheme", vec![good.clone()], Err(NoToken)),
            ("empty", vec!["Bearer ".to_owned()], Err(NoToken)),
            ("not a JWT", vec!["Bearer abc".to_owned()], Err(Invalid)),
            ("two parts", vec!["Bearer a.b".to_owned()], Err(Invalid)),
            ("twice", vec![format!("Bearer {good}"); 2], Err(Invalid)),
            (
                "trailing part",
                vec![format!("Bearer {good}.x")],
                Err(Invalid),
            ),
            ("padded", vec![format!("Bearer {good}=")], Err(Invalid)),
            (
                "wrong key",
                vec![format!(
                    "Bearer {}",
                    jwt(b"other", hs256, r#"{"exp":1800000001}"#)
                )],
                Err(Invalid),
            ),
            (
                "too long",
                vec![format!("Bearer {}", "a".repeat(5000))],
                Err(Invalid),
            ),
            (
                "expires this second",
                vec![with(hs256, r#"{"exp":1800000000}"#)],
                Err(Expired),
            ),
            ("expired", vec![with(hs256, r#"{"exp":1}"#)], Err(Expired)),
            (
                "fraction",
                vec![with(hs256, r#"{"exp":1800000000.5}"#)],
                Ok(()),
            ),
            ("no exp", vec![with(hs256, r#"{"sub":"x"}"#)], Err(Invalid)),
            (
                "exp is text",
                vec![with(hs256, r#"{"exp":"1800000001"}"#)],
                Err(Invalid),
            ),
            (
                "exp is null",
                vec![with(hs256, r#"{"exp":null}"#)],
                Err(Invalid),
            ),
            (
                "exp twice",
                vec![with(hs256, r#"{"exp":1,"exp":1800000001}"#)],
                Err(Invalid),
            ),
            (
                "nbf is text",
                vec![with(hs256, r#"{"exp":1800000001,"nbf":"1"}"#)],
                Err(Invalid),
            ),
            (
                "not yet",
                vec![with(hs256, r#"{"exp":1800000099,"nbf":1800000006}"#)],
                Err(NotYet),
            ),
            (
                "clock slightly ahead",
                vec![with(hs256, r#"{"exp":1800000099,"nbf":1800000005}"#)],
                Ok(()),
            ),
            (
                "alg none",
                vec![with(r#"{"alg":"none"}"#, r#"{"exp":1800000001}"#)],
                Err(Invalid),
            ),
            (
                "alg HS512",
                vec![with(r#"{"alg":"HS512"}"#, r#"{"exp":1800000001}"#)],
                Err(Invalid),
            ),
            (
                "crit",
                vec![with(
                    r#"{"alg":"HS256","crit":["b64"]}"#,
                    r#"{"exp":1800000001}"#,
                )],
                Err(Invalid),
            ),
        ] {
            let outcome = Verifier::new(SECRET).check(lines.iter().map(String::as_bytes), NOW);
            assert_eq!(outcome, expected, "{name}");
        }
    }

    /// The example of RFC 7515 appendix A.1: another implementation's token.
    #[test]
    fn example_of_the_standard() {
        let key = URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let token = "Bearer eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        let check = |now| Verifier::new(&key).check([token.as_bytes()].into_iter(), now);
        assert_eq!(check(1_300_819_379), Ok(()));
        assert_eq!(check(1_300_819_380), Err(Refusal::Expired));
    }

    fn jwt(secret: &[u8], header: &str, claims: &str) -> String {
        let signed = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode(header),
            URL_SAFE_NO_PAD.encode(claims)
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}
