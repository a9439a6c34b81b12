//! Who is at the other end: TLS 1.3 with certificates on both sides, AES-128-GCM only, *ring*.
//!
//! The identity of a node is the first SAN dNSName of its certificate that is an allowed node name. Whoever dials
//! expects one name, and rustls checks it during the handshake. Whoever accepts checks the chain during the handshake
//! and the name right after it, because the set of names it accepts changes with the topology.
//!
//! There is no session resumption and no 0-RTT: both would skip the certificate, and a link is made once.

use std::sync::Arc;
use std::time::Duration;

use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::{hkdf, hmac};
use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{CertificateError, CipherSuite, ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use crate::reason::DownReason;

/// Application protocol of a link.
pub(crate) const ALPN: &[u8] = b"firsthop/1";

/// The wall clock certificates are checked against, in seconds since 1970.
pub type WallClock = fn() -> u64;

/// A node's certificates, ready for dialing and accepting. Cheap to clone: one for all workers.
#[derive(Clone)]
pub struct Tls {
    client: Arc<QuicClientConfig>,
    server: Arc<QuicServerConfig>,
    chain: Arc<[CertificateDer<'static>]>,
    trust: Arc<Trust>,
    secret: hmac::Key,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not PEM, or not the kind of object the file should hold.
    #[error("not PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The CA file holds no certificate.
    #[error("no CA certificate")]
    NoCa,
    /// The certificate file holds no certificate.
    #[error("no certificate")]
    NoCertificate,
    /// The CA cannot be used for client certificates.
    #[error("CA: {0}")]
    Ca(#[from] VerifierBuilderError),
    /// rustls refuses the certificate or the key, or they do not belong together.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    /// The cryptography provider has no AES-128-GCM.
    #[error("no AES-128-GCM")]
    NoCipher,
}

impl Tls {
    /// From the contents of `ca.pem`, `cert.pem` and `key.pem`.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_pem(
        ca: &[u8],
        cert: &[u8],
        key: &[u8],
        wall_clock: WallClock,
    ) -> Result<Self, TlsError> {
        let ca = CertificateDer::pem_slice_iter(ca).collect::<Result<Vec<_>, _>>()?;
        let chain = CertificateDer::pem_slice_iter(cert).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key)?;
        Self::from_der(ca, chain, key, wall_clock)
    }

    /// From DER: the CA certificates, our chain with the leaf first, the leaf's private key.
    ///
    /// # Errors
    /// See [`TlsError`].
    pub fn from_der(
        ca: Vec<CertificateDer<'static>>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        wall_clock: WallClock,
    ) -> Result<Self, TlsError> {
        if chain.is_empty() {
            return Err(TlsError::NoCertificate);
        }
        let mut roots = RootCertStore::empty();
        for certificate in ca {
            roots.add(certificate)?;
        }
        if roots.is_empty() {
            return Err(TlsError::NoCa);
        }
        let provider = provider();
        let initial = initial_suite(&provider).ok_or(TlsError::NoCipher)?;
        let secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
        let context = Context {
            provider,
            roots: Arc::new(roots),
            wall: Arc::new(Wall(wall_clock)),
        };
        let trust = context.trust(wall_clock)?;
        let presented = Arc::from(chain.as_slice());
        let client = context.client(chain.clone(), key.clone_key())?;
        let server = context.server(&trust, chain, key)?;
        Ok(Self {
            client: Arc::new(
                QuicClientConfig::with_initial(Arc::new(client), initial)
                    .map_err(|_| TlsError::NoCipher)?,
            ),
            server: Arc::new(
                QuicServerConfig::with_initial(Arc::new(server), initial)
                    .map_err(|_| TlsError::NoCipher)?,
            ),
            chain: presented,
            trust: Arc::new(trust),
            secret,
        })
    }

    pub(crate) fn client(&self) -> Arc<QuicClientConfig> {
        Arc::clone(&self.client)
    }

    pub(crate) fn server(&self) -> Arc<QuicServerConfig> {
        Arc::clone(&self.server)
    }

    /// Whether both present the same certificates.
    pub(crate) fn presents_as(&self, other: &Self) -> bool {
        self.chain == other.chain
    }

    /// Whether both trust the same CAs.
    pub(crate) fn trusts_as(&self, other: &Self) -> bool {
        self.trust.roots.roots == other.trust.roots.roots
    }

    /// Whether a core relay's certificates, leaf first, pass as those of `name`.
    pub(crate) fn check_server(
        &self,
        chain: &[CertificateDer<'_>],
        name: &str,
    ) -> Result<(), DownReason> {
        let (leaf, between) = chain.split_first().ok_or(DownReason::NoCertificate)?;
        let name = ServerName::try_from(name).map_err(|_| DownReason::Identity)?;
        let now = self.trust.now();
        let servers = &self.trust.servers;
        let checked = servers.verify_server_cert(leaf, between, &name, &[], now);
        checked.map_or_else(|error| Err(refusal(&error)), |_| Ok(()))
    }

    /// Whether a PoP's certificates, leaf first, pass.
    pub(crate) fn check_client(&self, chain: &[CertificateDer<'_>]) -> Result<(), DownReason> {
        let (leaf, between) = chain.split_first().ok_or(DownReason::NoCertificate)?;
        let checked = self
            .trust
            .clients
            .verify_client_cert(leaf, between, self.trust.now());
        checked.map_or_else(|error| Err(refusal(&error)), |_| Ok(()))
    }

    /// Key for stateless resets. It follows from the private key, so a process that was killed and started again
    /// answers packets of connections it forgot with a reset that the peer believes, and the peer dials at once. It
    /// differs per worker, because a key two endpoints share would let one reset the other's (RFC 9000 §21.11).
    pub(crate) fn reset_key(&self, worker: u8) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.derive(b"reset", worker).as_ref())
    }

    /// Key of the connection id generator; constant for the same reason as [`Self::reset_key`].
    pub(crate) fn connection_id_key(&self, worker: u8) -> u64 {
        let tag = self.derive(b"connection id", worker);
        tag.as_ref()
            .first_chunk::<8>()
            .map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    /// Key of Retry tokens.
    pub(crate) fn token_key(&self, worker: u8) -> hkdf::Prk {
        let tag = self.derive(b"token", worker);
        hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(tag.as_ref())
    }

    fn derive(&self, purpose: &[u8], worker: u8) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.secret);
        context.update(b"firsthop link ");
        context.update(&[worker]);
        context.update(purpose);
        context.sign()
    }
}

/// The node name in a certificate: the first SAN dNSName for which `allowed` is true.
pub(crate) fn first_allowed_name<T>(
    certificate: &CertificateDer<'_>,
    allowed: impl FnMut(&str) -> Option<T>,
) -> Option<T> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    certificate.valid_dns_names().find_map(allowed)
}

/// How peers are verified.
struct Trust {
    roots: Arc<RootCertStore>,
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
    wall_clock: WallClock,
}

impl Trust {
    fn now(&self) -> UnixTime {
        UnixTime::since_unix_epoch(Duration::from_secs((self.wall_clock)()))
    }
}

/// As [`DownReason`] says it when the handshake refuses.
fn refusal(error: &rustls::Error) -> DownReason {
    let rustls::Error::InvalidCertificate(error) = error else {
        return DownReason::Protocol;
    };
    if matches!(
        error,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    ) {
        DownReason::Expired
    } else if matches!(
        error,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
    ) {
        DownReason::Identity
    } else {
        DownReason::UnknownIssuer
    }
}

struct Context {
    provider: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    wall: Arc<Wall>,
}

impl Context {
    fn trust(&self, wall_clock: WallClock) -> Result<Trust, TlsError> {
        let (roots, provider) = (Arc::clone(&self.roots), Arc::clone(&self.provider));
        let servers = WebPkiServerVerifier::builder_with_provider(roots, provider).build()?;
        let (roots, provider) = (Arc::clone(&self.roots), Arc::clone(&self.provider));
        let clients = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
        Ok(Trust {
            roots: Arc::clone(&self.roots),
            servers,
            clients,
            wall_clock,
        })
    }

    fn client(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ClientConfig, TlsError> {
        let mut config = ClientConfig::builder_with_details(
            Arc::clone(&self.provider),
            Arc::<Wall>::clone(&self.wall),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(Arc::clone(&self.roots))
        .with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn server(
        &self,
        trust: &Trust,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_details(
            Arc::clone(&self.provider),
            Arc::<Wall>::clone(&self.wall),
        )
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::clone(&trust.clients))
        .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

#[derive(Debug)]
struct Wall(WallClock);

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs((self.0)())))
    }
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn initial_suite(provider: &CryptoProvider) -> Option<rustls::quic::Suite> {
    provider
        .cipher_suites
        .iter()
        .find_map(|suite| suite.tls13()?.quic_suite())
}
