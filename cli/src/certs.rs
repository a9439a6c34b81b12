//! Certificates and credentials directories. The only file that imports rcgen.
//!
//! ```text
//! authority directory          credentials directory of a node (`--credentials`)
//!   ca.pem                       ca.pem  cert.pem  key.pem (PKCS#8)  hint.keys  admin.token
//!   ca.key.pem
//! ```
//!
//! A node's identity is its name in the topology, as the certificate's only dNSName; links and peers check it. The
//! certificate serves both ends of TLS because a PoP dials and a core relay accepts with the same kind.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use runtime::files::read_text;
use time::{Duration, OffsetDateTime};
use topology::Topology;

use crate::files::{Existing, NewFile, write_set};
use crate::{keys, random};

/// Longest PEM file of an authority that is read, in bytes.
const PEM_BYTES_MAX: usize = 64 << 10;

/// Days an authority lives unless told otherwise.
pub const CA_DAYS: u32 = 3650;
/// Days a node's certificate lives unless told otherwise.
pub const NODE_DAYS: u32 = 365;
/// How far a peer's clock may be behind ours.
const SKEW: Duration = Duration::hours(1);

const CA_CERT: &str = "ca.pem";
const CA_KEY: &str = "ca.key.pem";

/// From when and for how long a certificate is good.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    not_before: OffsetDateTime,
    not_after: OffsetDateTime,
}

impl Validity {
    /// `days` from `unix_s`, and an hour before it for clocks that lag.
    ///
    /// # Errors
    /// When that is no date, or no days are given.
    pub fn days_from(unix_s: u64, days: u32) -> anyhow::Result<Self> {
        if days == 0 {
            bail!("a certificate of 0 days is of no use");
        }
        let start = OffsetDateTime::from_unix_timestamp(i64::try_from(unix_s)?)?;
        let not_after = start
            .checked_add(Duration::days(days.into()))
            .context("that many days from now is not a date")?;
        Ok(Self {
            not_before: start - SKEW,
            not_after,
        })
    }
}

/// A certificate authority. `Debug` shows nothing of its key.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    cert_pem: String,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

impl Authority {
    /// A fresh one.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn create(network: &str, validity: Validity) -> anyhow::Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = params(validity, &format!("firsthop CA of {network}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let cert_pem = params.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(params, key),
            cert_pem,
        })
    }

    /// The one in `dir`.
    ///
    /// # Errors
    /// When its files are missing or are not a certificate and its key.
    pub fn load(dir: &Path) -> anyhow::Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            read_text(&path, PEM_BYTES_MAX).with_context(|| format!("reading {}", path.display()))
        };
        let (cert_pem, key_pem) = (read(CA_CERT)?, read(CA_KEY)?);
        let key = KeyPair::from_pem(&key_pem)
            .with_context(|| format!("reading {}", dir.join(CA_KEY).display()))?;
        let issuer = Issuer::from_ca_cert_pem(&cert_pem, key)
            .with_context(|| format!("reading {}", dir.join(CA_CERT).display()))?;
        if !issuer.key_usages().contains(&KeyUsagePurpose::KeyCertSign) {
            bail!("{} may not sign certificates", dir.join(CA_CERT).display());
        }
        Ok(Self { issuer, cert_pem })
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn cert_pem(&self) -> &str {
        &self.cert_pem
    }

    /// The files of an authority directory.
    #[must_use]
    pub fn files(&self, dir: &Path) -> Vec<NewFile> {
        vec![
            NewFile::public(dir.join(CA_CERT), self.cert_pem.clone()),
            NewFile::private(dir.join(CA_KEY), self.issuer.key().serialize_pem()),
        ]
    }

    /// The certificate files of a node's credentials directory: `ca.pem`, `cert.pem`, `key.pem`.
    ///
    /// # Errors
    /// When `node` is no node name, or no key can be made.
    pub fn node_files(
        &self,
        node: &str,
        validity: Validity,
        dir: &Path,
    ) -> anyhow::Result<Vec<NewFile>> {
        if !is_node_name(node) {
            bail!("`{node}` is not a node name: lower-case letters, digits, `-` and `.`");
        }
        let key = KeyPair::generate()?;
        let mut params = params(validity, node);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(node.try_into()?)];
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(vec![
            NewFile::public(dir.join(CA_CERT), self.cert_pem.clone()),
            NewFile::public(dir.join("cert.pem"), cert.pem()),
            NewFile::private(dir.join("key.pem"), key.serialize_pem()),
        ])
    }
}

/// How long the certificates of [`write_network`] are good.
#[derive(Clone, Copy, Debug)]
pub struct NetworkValidity {
    /// Of the authority.
    pub ca: Validity,
    /// Of the nodes.
    pub node: Validity,
}

impl NetworkValidity {
    /// The usual days, from `unix_s`.
    ///
    /// # Errors
    /// When that is no date.
    pub fn from_unix_s(unix_s: u64) -> anyhow::Result<Self> {
        Ok(Self {
            ca: Validity::days_from(unix_s, CA_DAYS)?,
            node: Validity::days_from(unix_s, NODE_DAYS)?,
        })
    }
}

/// Makes the credentials of a whole network under `out`: an authority directory `out` itself, and `out/NODE` for each
/// node with its certificate, one key file for all, and an admin token of its own; for GeoDNS
/// nodes of a signed zone, the key of the zone.
///
/// # Errors
/// When a file exists and may not be replaced, or cannot be written.
pub fn write_network(
    topology: &Topology,
    out: &Path,
    validity: NetworkValidity,
    existing: Existing,
) -> anyhow::Result<()> {
    let authority = Authority::create(&topology.network.name, validity.ca)?;
    let hint_keys = keys::fresh()?;
    let mut files = authority.files(out);
    for node in topology.node_names() {
        let dir = credentials_dir(out, node);
        files.extend(authority.node_files(node, validity.node, &dir)?);
        files.push(NewFile::private(dir.join("hint.keys"), hint_keys.clone()));
        let token = random::hex::<32>()? + "\n";
        files.push(NewFile::private(dir.join("admin.token"), token));
    }
    // Every node signs with the same key: resolvers ask whichever they like.
    if topology.dns.as_ref().is_some_and(|dns| dns.dnssec) {
        let key = key_pem()?;
        for node in &topology.geodns {
            let file = credentials_dir(out, &node.name).join("dnssec.pem");
            files.push(NewFile::private(file, key.clone()));
        }
    }
    write_set(&files, existing)
}

/// Where [`write_network`] puts the credentials of a node.
#[must_use]
pub fn credentials_dir(out: &Path, node: &str) -> PathBuf {
    out.join(node)
}

fn params(validity: Validity, common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = validity.not_before;
    params.not_after = validity.not_after;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params
}

/// A fresh ECDSA P-256 key in PKCS#8, PEM: what the DNS zone is signed with.
///
/// # Errors
/// When no key can be made.
pub fn key_pem() -> anyhow::Result<String> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// The names a topology allows.
fn is_node_name(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
