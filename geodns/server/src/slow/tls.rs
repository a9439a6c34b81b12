//! TLS of DNS over TLS and DNS over HTTPS: the certificate the public is shown.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::credentials::Credentials;
use rustls::ServerConfig;

/// For both transports, which differ in the protocol that is agreed on.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) dot: Arc<ServerConfig>,
    pub(super) doh: Arc<ServerConfig>,
}

impl Tls {
    /// With the public certificate of the credentials, or the node's own where there is none.
    ///
    /// # Errors
    /// Certificate and key do not fit.
    pub fn new(credentials: &Credentials) -> anyhow::Result<Self> {
        let config = |protocols: &[&[u8]]| {
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let (chain, key) = match &credentials.public {
                Some(public) => (&public.chain, &public.key),
                None => (&credentials.chain, &credentials.key),
            };
            let mut config = ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .context("TLS versions")?
                .with_no_client_auth()
                .with_single_cert(chain.to_vec(), key.der())
                .context("public certificate and key")?;
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            anyhow::Ok(Arc::new(config))
        };
        Ok(Self {
            dot: config(&[b"dot"])?,
            doh: config(&[b"h2", b"http/1.1"])?,
        })
    }
}
