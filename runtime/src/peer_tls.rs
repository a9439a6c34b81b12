//! TLS between nodes: who we are, and who may speak to us.
//!
//! Both sides present their node certificate. The dialling side checks the name as every TLS client does, because it
//! dials by node name. The accepting side learns the caller's names from [`is_one_of`]: chaining to the CA is not
//! enough, any node's certificate chains.

pub mod lobby;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::credentials::Credentials;

const ALPN: &[u8] = b"http/1.1";
/// TLS is up by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);

/// Accepts connections of certain nodes, as of one configuration.
#[derive(Debug)]
pub struct Gate {
    tls: Arc<ServerConfig>,
    nodes: Vec<String>,
}

impl Gate {
    /// For an address of the node with these credentials that `nodes` may use.
    ///
    /// # Errors
    /// Certificates or key that do not fit.
    pub fn new(credentials: &Credentials, nodes: Vec<String>) -> anyhow::Result<Self> {
        let tls = server(credentials)?;
        Ok(Self { tls, nodes })
    }

    /// The connection of one of the nodes; nothing when the handshake fails, takes too long, or shows somebody else.
    pub async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
        let stream = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let stream = stream.ok()?.ok()?;
        let (_, tls) = stream.get_ref();
        let nodes = self.nodes.iter().map(String::as_str);
        is_one_of(tls.peer_certificates(), nodes).then_some(stream)
    }
}

/// For an address that nodes dial: a certificate of the authority is required. Nothing is resumed, so that a caller is checked
/// against the certificates and the topology of the moment.
///
/// # Errors
/// Certificates or key that do not fit.
pub fn server(credentials: &Credentials) -> anyhow::Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = Arc::new(roots(credentials)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
        .build()
        .context("authority of peer certificates")?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .context("TLS 1.3")?
        .with_client_cert_verifier(verifier)
        .with_single_cert(credentials.chain.to_vec(), credentials.key.der())
        .context("node certificate and key")?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// For dialling another node by its name.
///
/// # Errors
/// Certificates or key that do not fit.
pub fn client(credentials: &Credentials) -> anyhow::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .context("TLS 1.3")?
        .with_root_certificates(roots(credentials)?)
        .with_client_auth_cert(credentials.chain.to_vec(), credentials.key.der())
        .context("node certificate and key")?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots(credentials: &Credentials) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in credentials.ca.iter() {
        roots
            .add(certificate.clone())
            .context("certificate of the authority")?;
    }
    Ok(roots)
}

/// Whether the leaf of `chain` is for one of these nodes.
pub fn is_one_of<'a>(
    chain: Option<&[CertificateDer<'_>]>,
    mut nodes: impl Iterator<Item = &'a str>,
) -> bool {
    let Some(leaf) = chain.and_then(<[_]>::first) else {
        return false;
    };
    let Ok(leaf) = ParsedCertificate::try_from(leaf) else {
        return false;
    };
    nodes.any(|node| {
        ServerName::try_from(node).is_ok_and(|name| verify_server_name(&leaf, &name).is_ok())
    })
}
