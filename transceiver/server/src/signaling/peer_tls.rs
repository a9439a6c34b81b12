//! TLS between the transceivers of a region: who we are, and who may speak to us.
//!
//! Both sides present their node certificate. The dialling side checks the name as every TLS client does, because it
//! dials by node name. The accepting side learns the caller's names from [`is_one_of`]: chaining to the CA is not
//! enough, a PoP's certificate chains too.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::credentials::Credentials;
use rustls::client::{Resumption, verify_server_name};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

const ALPN: &[u8] = b"http/1.1";

/// For the `peer` address: a certificate of the authority is required. Nothing is resumed, so that a caller is checked
/// against the certificates and the topology of the moment.
///
/// # Errors
/// Certificates or key that do not fit.
pub(super) fn server(credentials: &Credentials) -> anyhow::Result<Arc<ServerConfig>> {
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

/// For dialling another transceiver.
///
/// # Errors
/// Certificates or key that do not fit.
pub(super) fn client(credentials: &Credentials) -> anyhow::Result<ClientConfig> {
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
pub(super) fn is_one_of<'a>(
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
