//! Credentials made on the fly, for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, date_time_ymd,
};

/// Text of a valid `hint.keys`.
pub(crate) const HINT_KEYS: &str = "current 3 000102030405060708090a0b0c0d0e0f\n";
/// A valid admin token.
pub(crate) const TOKEN: &str = "0123456789abcdef0123";

/// A certificate authority.
pub(crate) struct Ca(CertifiedIssuer<'static, KeyPair>);

/// How a node's certificate is made.
pub(crate) struct Leaf<'a> {
    pub(crate) name: &'a str,
    pub(crate) years: (i32, i32),
    pub(crate) purposes: Vec<ExtendedKeyUsagePurpose>,
}

impl<'a> Leaf<'a> {
    pub(crate) fn of(name: &'a str) -> Self {
        Self {
            name,
            years: (2020, 2999),
            purposes: vec![
                ExtendedKeyUsagePurpose::ServerAuth,
                ExtendedKeyUsagePurpose::ClientAuth,
            ],
        }
    }
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        let key = KeyPair::generate().expect("ring makes a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("the parameters are fine"))
    }

    /// PEM of the certificate and of the private key.
    pub(crate) fn issue(&self, leaf: &Leaf<'_>) -> (String, String) {
        let names = vec![leaf.name.to_owned()];
        let mut params = CertificateParams::new(names).expect("the name is a DNS name");
        params.not_before = date_time_ymd(leaf.years.0, 1, 1);
        params.not_after = date_time_ymd(leaf.years.1, 1, 1);
        params.extended_key_usages.clone_from(&leaf.purposes);
        let key = KeyPair::generate().expect("ring makes a key");
        let certificate = params.signed_by(&key, &self.0).expect("the CA signs");
        (certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }
}

/// A directory of its own, removed when dropped.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firsthop-runtime-{}-{unique}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    /// A directory with everything a node of this name needs, and an admin token.
    pub(crate) fn with_credentials(ca: &Ca, leaf: &Leaf<'_>) -> Self {
        let dir = Self::new();
        let (cert, key) = ca.issue(leaf);
        dir.write("ca.pem", &ca.pem());
        dir.write("cert.pem", &cert);
        dir.write("key.pem", &key);
        dir.write("hint.keys", HINT_KEYS);
        dir.write("admin.token", &format!("{TOKEN}\n"));
        dir
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Replaces a file as careful tools do: written beside, then renamed. Only the owner reads it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let fresh = self.0.join(format!("{name}.fresh"));
        std::fs::write(&fresh, text).expect("the directory is writable");
        let owner_only = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&fresh, owner_only).expect("the file is ours");
        std::fs::rename(&fresh, self.0.join(name)).expect("the directory is writable");
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.0.join(name)).expect("the file is there");
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
