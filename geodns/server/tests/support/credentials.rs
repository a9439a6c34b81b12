//! Credentials of a node `ns1` that trusts nobody but itself.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

const KEYS: &str = "current 1 000102030405060708090a0b0c0d0e0f\n";

pub(crate) fn write(dir: &Path) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["ns1".to_owned()]).unwrap();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let cert = params.signed_by(&key, &issuer).unwrap().pem();
    for (name, text) in [
        ("ca.pem", ca),
        ("cert.pem", cert),
        ("key.pem", key.serialize_pem()),
        ("hint.keys", KEYS.to_owned()),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
}
