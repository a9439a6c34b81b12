//! What one generation of topology and credentials comes to: the plan, the signed zone, who may ask for steering, what the public
//! is shown.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use geodns_policy::Plan;
use geodns_proto::Zone;
use geodns_proto::cookie::Secrets;
use geodns_proto::dnssec::{Keys, Signer, Validity};
use ring::rand::SystemRandom;
use runtime::credentials::Credentials;
use runtime::node::Config;
use runtime::peer_tls::Gate;

use crate::{slow, udp};

/// One generation. Immutable.
pub(super) struct Site {
    pub(super) plan: Arc<Plan>,
    /// Signed if there are keys.
    pub(super) zone: Zone,
    /// What signs, and until when that holds.
    pub(super) keys: Option<Keys>,
    pub(super) validity: Validity,
    pub(super) random: SystemRandom,
    /// Secrets of cookies from the credentials.
    pub(super) secrets: Option<Secrets>,
    pub(super) gate: Arc<Gate>,
    pub(super) tls: Arc<slow::Tls>,
}

impl Site {
    /// Derives it, with signatures of the day of `unix_s`.
    ///
    /// # Errors
    /// The topology has no zone, or certificates and keys do not work.
    pub(super) fn new(config: &Config, unix_s: u64) -> anyhow::Result<Self> {
        let random = SystemRandom::new();
        let names = config.topology.node_names().map(str::to_owned).collect();
        let credentials = &config.credentials;
        let keys = keys(config, &random)?;
        let validity = Validity::at(unix_s);
        let zone = Zone::new(&config.topology).context("zone")?;
        let zone = match &keys {
            None => zone,
            Some(keys) => {
                let apex = zone.apex().clone();
                let signer = Signer {
                    apex: &apex,
                    keys,
                    validity,
                    random: &random,
                };
                zone.sign(&signer).context("signing the zone")?
            }
        };
        Ok(Self {
            plan: Arc::new(Plan::new(&config.topology)),
            secrets: udp::secrets(credentials).context("cookie.keys")?,
            gate: Arc::new(Gate::new(credentials, names)?),
            tls: Arc::new(slow::Tls::new(credentials)?),
            zone,
            keys,
            validity,
            random,
        })
    }

    /// What signs answers.
    pub(super) fn signer(&self) -> Option<Signer<'_>> {
        let keys = self.keys.as_ref()?;
        Some(Signer {
            apex: self.zone.apex(),
            keys,
            validity: self.validity,
            random: &self.random,
        })
    }
}

/// Keys of the zone, if it is to be signed.
fn keys(config: &Config, random: &SystemRandom) -> anyhow::Result<Option<Keys>> {
    let Credentials { dnssec_keys, .. } = &config.credentials;
    if !config.topology.dns.as_ref().is_some_and(|dns| dns.dnssec) {
        return Ok(None);
    }
    ensure!(
        !dnssec_keys.is_empty(),
        "the zone is to be signed (dns.dnssec), and there is no dnssec.pem among the credentials"
    );
    let keys: Vec<_> = dnssec_keys.iter().map(|key| key.der()).collect();
    let keys = keys.iter().map(|key| key.secret_der());
    Keys::from_pkcs8(keys, random)
        .map(Some)
        .context("dnssec.pem")
}
