//! Whether a chain of certificates is this node's identity. The TLS library judges, with the rules peers apply, so
//! that a node refuses to start with what its peers would refuse.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::Problem;

/// Why a chain is not the node's identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The SAN does not hold the node's name as dNSName.
    #[error("does not name `{node}` (SAN dNSName)")]
    OtherName {
        /// The node.
        node: String,
    },
    /// No certificate of ca.pem signed it.
    #[error("not signed by a certificate of ca.pem")]
    OtherCa,
    /// Over.
    #[error("expired {ago_s} s ago")]
    Expired {
        /// Since when.
        ago_s: u64,
    },
    /// Yet to begin, or the clock is wrong.
    #[error("valid only in {in_s} s; is the clock right?")]
    NotYetValid {
        /// Until when.
        in_s: u64,
    },
    /// Lacks an extended key usage.
    #[error("not for both TLS server and TLS client (extended key usage)")]
    Purpose,
    /// Anything else the TLS library objects to.
    #[error("{0}")]
    Other(String),
}

/// Whether `key` is the private key of the first certificate of `chain`.
pub(super) fn check_key(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<(), rustls::Error> {
    CertifiedKey::from_der(chain.to_vec(), key.clone_key(), &provider()).map(drop)
}

/// When the node's certificate ends: rustls tells, once it is asked about a time past every certificate's end.
pub(super) fn expiry(
    ca: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
) -> Result<u64, Problem> {
    let verifiers = Verifiers::new(ca)?;
    match verifiers.verify_client(chain, END_OF_TIME_S) {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Ok(not_after.as_secs()),
        // Signed by somebody else, or not for clients: `check` says so.
        Ok(()) | Err(_) => Ok(u64::MAX),
    }
}

pub(super) fn check(
    ca: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
    node: &str,
    unix_s: u64,
) -> Result<(), IdentityError> {
    let verifiers = Verifiers::new(ca).map_err(|error| IdentityError::Other(error.to_string()))?;
    verifiers
        .verify_server(chain, node, unix_s)
        .and_then(|()| verifiers.verify_client(chain, unix_s))
        .map_err(|error| explain(error, node))
}

struct Verifiers {
    server: Arc<WebPkiServerVerifier>,
    client: Arc<dyn ClientCertVerifier>,
}

impl Verifiers {
    fn new(ca: &[CertificateDer<'static>]) -> Result<Self, Problem> {
        let mut roots = RootCertStore::empty();
        for certificate in ca {
            roots
                .add(certificate.clone())
                .map_err(|error| Problem::BadCa(error.to_string()))?;
        }
        let roots = Arc::new(roots);
        let bad = |error: rustls::server::VerifierBuilderError| Problem::BadCa(error.to_string());
        Ok(Self {
            server: WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), provider())
                .build()
                .map_err(bad)?,
            client: WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(bad)?,
        })
    }

    fn verify_server(
        &self,
        chain: &[CertificateDer<'static>],
        node: &str,
        unix_s: u64,
    ) -> Result<(), rustls::Error> {
        let (leaf, rest) = split(chain)?;
        let name = ServerName::try_from(node)
            .map_err(|_| rustls::Error::from(CertificateError::NotValidForName))?;
        self.server
            .verify_server_cert(leaf, rest, &name, &[], time(unix_s))
            .map(drop)
    }

    fn verify_client(
        &self,
        chain: &[CertificateDer<'static>],
        unix_s: u64,
    ) -> Result<(), rustls::Error> {
        let (leaf, rest) = split(chain)?;
        self.client
            .verify_client_cert(leaf, rest, time(unix_s))
            .map(drop)
    }
}

fn explain(error: rustls::Error, node: &str) -> IdentityError {
    let rustls::Error::InvalidCertificate(error) = error else {
        return IdentityError::Other(error.to_string());
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a foreign, non-exhaustive list of which few matter here"
    )]
    match error {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            IdentityError::OtherName {
                node: node.to_owned(),
            }
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => IdentityError::OtherCa,
        CertificateError::ExpiredContext { time, not_after } => IdentityError::Expired {
            ago_s: time.as_secs().saturating_sub(not_after.as_secs()),
        },
        CertificateError::NotValidYetContext { time, not_before } => IdentityError::NotYetValid {
            in_s: not_before.as_secs().saturating_sub(time.as_secs()),
        },
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            IdentityError::Purpose
        }
        other => IdentityError::Other(other.to_string()),
    }
}

fn split<'a>(
    chain: &'a [CertificateDer<'static>],
) -> Result<(&'a CertificateDer<'static>, &'a [CertificateDer<'static>]), rustls::Error> {
    chain
        .split_first()
        .ok_or(rustls::Error::NoCertificatesPresented)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

const fn time(unix_s: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix_s))
}

/// 9999-12-31T23:59:59Z, the last moment X.509 can name, and one second more (RFC 5280 §4.1.2.5).
const END_OF_TIME_S: u64 = 253_402_300_800;
