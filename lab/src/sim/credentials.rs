//! Certificates of the simulated nodes. Ed25519, because its signatures are all equally long: a simulation that runs again
//! must send packets of the same lengths.

use core_relay_link::Tls;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ED25519};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// The nodes' wall clock at the beginning: 2026-01-01.
pub const WALL_S: u64 = 1_767_225_600;

/// A certificate authority.
#[derive(Debug)]
pub struct Ca {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
}

impl Ca {
    /// A fresh one.
    ///
    /// # Panics
    /// The machine has no randomness.
    #[must_use]
    pub fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("ring makes Ed25519 keys");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a CA may sign itself");
        Self {
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Certificate and key of a node.
    ///
    /// # Panics
    /// The name is no host name.
    #[must_use]
    pub fn tls(&self, name: &str) -> Tls {
        let key = KeyPair::generate_for(&PKCS_ED25519).expect("ring makes Ed25519 keys");
        let params = CertificateParams::new([name.to_owned()]).expect("node names are host names");
        let leaf = params.signed_by(&key, &self.issuer).expect("a CA signs");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it was just made");
        let chain = vec![leaf.der().clone()];
        Tls::from_der(vec![self.der.clone()], chain, key, || WALL_S).expect("a CA, a leaf, its key")
    }
}

impl Default for Ca {
    fn default() -> Self {
        Self::new()
    }
}
