//! A node's credentials: who it is, whom it trusts, what opens hints, what its admin and WHIP clients must show.
//!
//! ```text
//! ca.pem       certificates the network trusts              required
//! cert.pem     the node's certificate, leaf first           required, SAN dNSName = node name
//! key.pem      its private key                              required
//! hint.keys    keys of hints, see wire::hint::KeyRing       required
//! admin.token  one line; without it admin verbs are refused optional
//! whip.secret  HS256 key; with it WHIP needs a bearer token optional
//! cookie.keys  secrets of DNS cookies, see geodns_proto::cookie; a GeoDNS node without them draws its own   optional
//! dnssec.pem   keys of the zone, PKCS#8; the first signs, see geodns_proto::dnssec     optional
//! public.cert.pem, public.key.pem   what DNS over TLS and HTTPS shows; cert.pem and key.pem when absent     optional, together
//! redis.user, redis.password   one line each: who a node is to Redis: flow cache, state store      optional
//! redis.ca.pem  certificates Redis servers are trusted by; ca.pem when absent                      optional
//! ```
//!
//! A value that exists is whole: key and certificate belong together. Secrets show in no `Debug`.

mod identity;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use subtle::ConstantTimeEq as _;
use wire::hint::{KeyRing, KeyRingError};

use crate::files::regular_file;

/// Names of the files, in the order they are read.
pub const FILES: [&str; 13] = [
    CA,
    CERT,
    KEY,
    HINT_KEYS,
    ADMIN_TOKEN,
    WHIP_SECRET,
    COOKIE_KEYS,
    DNSSEC_KEYS,
    PUBLIC_CERT,
    PUBLIC_KEY,
    REDIS_USER,
    REDIS_PASSWORD,
    REDIS_CA,
];
const CA: &str = "ca.pem";
const CERT: &str = "cert.pem";
const KEY: &str = "key.pem";
const HINT_KEYS: &str = "hint.keys";
const ADMIN_TOKEN: &str = "admin.token";
const WHIP_SECRET: &str = "whip.secret";
const COOKIE_KEYS: &str = "cookie.keys";
const DNSSEC_KEYS: &str = "dnssec.pem";
const PUBLIC_CERT: &str = "public.cert.pem";
const PUBLIC_KEY: &str = "public.key.pem";
const REDIS_USER: &str = "redis.user";
const REDIS_PASSWORD: &str = "redis.password";
const REDIS_CA: &str = "redis.ca.pem";

/// Largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Shortest admin token, in characters.
pub const ADMIN_TOKEN_CHARS_MIN: usize = 16;
/// Shortest HS256 key, in bytes (RFC 7518 §3.2).
pub const WHIP_SECRET_BYTES_MIN: usize = 32;

/// Everything in a node's credentials directory. Clones share it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Certificates that end a trusted chain.
    pub ca: Arc<[CertificateDer<'static>]>,
    /// The node's certificate, then what leads to the CA.
    pub chain: Arc<[CertificateDer<'static>]>,
    /// Private key of the first certificate of `chain`.
    pub key: PrivateKey,
    /// Seals and opens hints.
    pub hint_keys: Arc<KeyRing>,
    /// What a mutating admin request must carry; without it every one is refused.
    pub admin_token: Option<Secret>,
    /// Verifies tokens of WHIP requests; without it they need none.
    pub whip_secret: Option<Secret>,
    /// Text with the secrets of DNS cookies.
    pub cookie_keys: Option<Secret>,
    /// Private keys of the DNS zone, PKCS#8, in the order of the file; none without it.
    pub dnssec_keys: Vec<PrivateKey>,
    /// What the public is shown by DNS over TLS and HTTPS.
    pub public: Option<PublicCertificate>,
    /// What Redis needs to know and to be known by.
    pub redis: RedisCredentials,
    /// When the node's certificate ends, in seconds since the Unix epoch.
    pub expires_unix_s: u64,
    dir: PathBuf,
}

/// A certificate that clients outside the network trust.
#[derive(Clone, Debug)]
pub struct PublicCertificate {
    /// The certificate, then what leads to a CA.
    pub chain: Arc<[CertificateDer<'static>]>,
    /// Private key of the first certificate of `chain`.
    pub key: PrivateKey,
}

/// Who a node is to Redis, and whom it trusts there.
#[derive(Clone, Debug)]
pub struct RedisCredentials {
    /// ACL user; the default user when absent.
    pub user: Option<Secret>,
    /// Its password; without one there is no authentication.
    pub password: Option<Secret>,
    /// Certificates that end a trusted chain: those of `redis.ca.pem`, else those of `ca.pem`.
    pub ca: Arc<[CertificateDer<'static>]>,
}

/// A private key that no log shows.
#[derive(Clone)]
pub struct PrivateKey(Arc<PrivateKeyDer<'static>>);

impl PrivateKey {
    /// For the TLS library.
    #[must_use]
    pub fn der(&self) -> PrivateKeyDer<'static> {
        self.0.clone_key()
    }
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey(..)")
    }
}

/// Bytes that no log shows.
#[derive(Clone)]
pub struct Secret(Arc<[u8]>);

impl Secret {
    /// Whether `candidate` is it. The time this takes says nothing but the length.
    #[must_use]
    pub fn matches(&self, candidate: &[u8]) -> bool {
        self.0.ct_eq(candidate).into()
    }

    /// For the library that needs the key itself.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Why a directory holds no usable credentials. One line that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct CredentialsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong with a file of credentials.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// Cannot be opened or read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// Larger than anything this file could be.
    #[error("larger than {FILE_BYTES_MAX} bytes")]
    TooLarge,
    /// Not PEM, or damaged.
    #[error("not PEM: {0}")]
    NotPem(rustls_pki_types::pem::Error),
    /// PEM, but without what is needed.
    #[error("no {0} in it")]
    Lacks(&'static str),
    /// Not UTF-8.
    #[error("not text")]
    NotText,
    /// See [`KeyRingError`].
    #[error("{0}")]
    HintKeys(#[from] KeyRingError),
    /// The token is not one a client could send in a header, or is easily guessed.
    #[error("expected one line of at least {ADMIN_TOKEN_CHARS_MIN} characters without spaces")]
    WeakToken,
    /// Empty, more than a line, or characters no client sends.
    #[error("expected one line of visible characters")]
    NotALine,
    /// Too short for HS256.
    #[error("{0} bytes, at least {WHIP_SECRET_BYTES_MIN} are needed")]
    ShortSecret(usize),
    /// The key does not belong to the certificate, or is of a kind TLS does not use.
    #[error("does not go with cert.pem: {0}")]
    KeyMismatch(rustls::Error),
    /// The same of the certificate for the public.
    #[error("does not go with public.cert.pem: {0}")]
    PublicKeyMismatch(rustls::Error),
    /// A certificate that nothing can be verified with.
    #[error("not a usable CA certificate: {0}")]
    BadCa(String),
    /// The chain does not verify as this node.
    #[error("{0}")]
    Identity(#[from] IdentityError),
}

pub use identity::IdentityError;

impl Credentials {
    /// Reads every file of `dir` and checks that key and certificate belong together. A private key or secret that
    /// others may read is one WARN line.
    ///
    /// # Errors
    /// See [`CredentialsError`].
    pub fn load(dir: &Path) -> Result<Self, CredentialsError> {
        let at = |name: &str| {
            let path = dir.join(name);
            move |problem| CredentialsError { path, problem }
        };
        let ca = read(dir, CA)
            .and_then(|pem| certificates(&pem))
            .map_err(at(CA))?;
        let chain = read(dir, CERT)
            .and_then(|pem| certificates(&pem))
            .map_err(at(CERT))?;
        let key = read(dir, KEY)
            .and_then(|pem| private_key(&pem))
            .map_err(at(KEY))?;
        identity::check_key(&chain, &key).map_err(|error| at(KEY)(Problem::KeyMismatch(error)))?;
        let expires_unix_s = identity::expiry(&ca, &chain).map_err(at(CERT))?;
        let hint_keys = read(dir, HINT_KEYS)
            .and_then(|text| Ok(KeyRing::parse(text_of(&text)?)?))
            .map_err(at(HINT_KEYS))?;
        let admin_token = read_optional(dir, ADMIN_TOKEN)
            .and_then(|text| text.map(|text| admin_token(&text)).transpose())
            .map_err(at(ADMIN_TOKEN))?;
        let whip_secret = read_optional(dir, WHIP_SECRET)
            .and_then(|bytes| bytes.map(|bytes| whip_secret(&bytes)).transpose())
            .map_err(at(WHIP_SECRET))?;
        let cookie_keys = read_optional(dir, COOKIE_KEYS)
            .and_then(|text| text.map(|text| text_secret(&text)).transpose())
            .map_err(at(COOKIE_KEYS))?;
        let dnssec_keys = read_optional(dir, DNSSEC_KEYS)
            .and_then(|pem| pem.map(|pem| dnssec_keys(&pem)).transpose())
            .map_err(at(DNSSEC_KEYS))?;
        let public = public(dir)?;
        let ca: Arc<[_]> = ca.into();
        let redis = redis(dir, &ca)?;
        Ok(Self {
            ca,
            chain: chain.into(),
            key: PrivateKey(Arc::new(key)),
            hint_keys: Arc::new(hint_keys),
            admin_token,
            whip_secret,
            cookie_keys,
            dnssec_keys: dnssec_keys.unwrap_or_default(),
            public,
            redis,
            expires_unix_s,
            dir: dir.to_owned(),
        })
    }

    /// Checks what a peer will check: the certificate leads to the CA, names `node`, is for servers and clients, and
    /// holds at `unix_s`.
    ///
    /// # Errors
    /// See [`IdentityError`].
    pub fn check_identity(&self, node: &str, unix_s: u64) -> Result<(), CredentialsError> {
        identity::check(&self.ca, &self.chain, node, unix_s).map_err(|error| CredentialsError {
            path: self.dir.join(CERT),
            problem: error.into(),
        })
    }
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, Problem> {
    let path = dir.join(name);
    regular_file(&path)?;
    let file = File::open(&path)?;
    let metadata = file.metadata()?;
    if matches!(
        name,
        KEY | HINT_KEYS
            | ADMIN_TOKEN
            | WHIP_SECRET
            | COOKIE_KEYS
            | DNSSEC_KEYS
            | PUBLIC_KEY
            | REDIS_PASSWORD
    ) && metadata.mode() & 0o004 != 0
    {
        tracing::warn!(file = %path.display(), "everybody on this machine can read this secret: chmod o-r");
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).is_ok_and(|len| len <= FILE_BYTES_MAX) {
        Ok(bytes)
    } else {
        Err(Problem::TooLarge)
    }
}

fn read_optional(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, Problem> {
    match read(dir, name) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Problem::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(Problem::NotPem)?;
    if certificates.is_empty() {
        return Err(Problem::Lacks("certificate"));
    }
    Ok(certificates)
}

fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, Problem> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        if matches!(error, rustls_pki_types::pem::Error::NoItemsFound) {
            Problem::Lacks("private key")
        } else {
            Problem::NotPem(error)
        }
    })
}

/// The private keys of a text in PEM, at least one.
///
/// # Errors
/// See [`Problem`].
pub fn dnssec_keys(pem: &[u8]) -> Result<Vec<PrivateKey>, Problem> {
    let keys: Vec<_> = PrivateKeyDer::pem_slice_iter(pem)
        .map(|key| key.map(|key| PrivateKey(Arc::new(key))))
        .collect::<Result<_, _>>()
        .map_err(Problem::NotPem)?;
    if keys.is_empty() {
        return Err(Problem::Lacks("private key"));
    }
    Ok(keys)
}

/// Both files or none of them.
fn public(dir: &Path) -> Result<Option<PublicCertificate>, CredentialsError> {
    let at = |name: &str| {
        let path = dir.join(name);
        move |problem| CredentialsError { path, problem }
    };
    let chain = read_optional(dir, PUBLIC_CERT)
        .and_then(|pem| pem.map(|pem| certificates(&pem)).transpose())
        .map_err(at(PUBLIC_CERT))?;
    let Some(chain) = chain else {
        return match read_optional(dir, PUBLIC_KEY) {
            Ok(None) => Ok(None),
            Ok(Some(_)) => Err(at(PUBLIC_CERT)(Problem::Lacks("certificate"))),
            Err(problem) => Err(at(PUBLIC_KEY)(problem)),
        };
    };
    let key = read(dir, PUBLIC_KEY)
        .and_then(|pem| private_key(&pem))
        .map_err(at(PUBLIC_KEY))?;
    identity::check_key(&chain, &key)
        .map_err(|error| at(PUBLIC_KEY)(Problem::PublicKeyMismatch(error)))?;
    Ok(Some(PublicCertificate {
        chain: chain.into(),
        key: PrivateKey(Arc::new(key)),
    }))
}

fn text_of(bytes: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(bytes).map_err(|_| Problem::NotText)
}

fn admin_token(bytes: &[u8]) -> Result<Secret, Problem> {
    let token = text_of(bytes)?.trim();
    let strong =
        token.len() >= ADMIN_TOKEN_CHARS_MIN && token.bytes().all(|b| b.is_ascii_graphic());
    strong
        .then(|| Secret(token.as_bytes().into()))
        .ok_or(Problem::WeakToken)
}

fn text_secret(bytes: &[u8]) -> Result<Secret, Problem> {
    text_of(bytes).map(|text| Secret(text.as_bytes().into()))
}

/// The line end that editors and shells add is not part of the key.
fn whip_secret(bytes: &[u8]) -> Result<Secret, Problem> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.len() < WHIP_SECRET_BYTES_MIN {
        return Err(Problem::ShortSecret(bytes.len()));
    }
    Ok(Secret(bytes.into()))
}

fn redis(
    dir: &Path,
    ca: &Arc<[CertificateDer<'static>]>,
) -> Result<RedisCredentials, CredentialsError> {
    let at = |name: &str| {
        let path = dir.join(name);
        move |problem| CredentialsError { path, problem }
    };
    let line_of = |name: &str| {
        read_optional(dir, name)
            .and_then(|text| text.map(|text| line(&text)).transpose())
            .map_err(at(name))
    };
    let own_ca = read_optional(dir, REDIS_CA)
        .and_then(|pem| pem.map(|pem| certificates(&pem)).transpose())
        .map_err(at(REDIS_CA))?;
    Ok(RedisCredentials {
        user: line_of(REDIS_USER)?,
        password: line_of(REDIS_PASSWORD)?,
        ca: own_ca.map_or_else(|| Arc::clone(ca), Into::into),
    })
}

fn line(bytes: &[u8]) -> Result<Secret, Problem> {
    let text = text_of(bytes)?.trim();
    let visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    visible
        .then(|| Secret(text.as_bytes().into()))
        .ok_or(Problem::NotALine)
}

#[cfg(test)]
mod tests;
