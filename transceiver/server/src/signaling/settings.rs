//! What signaling derives from one generation of topology and credentials. Immutable: a request sees one from start to end.

use std::sync::Arc;

use anyhow::Context as _;
use runtime::control::Control;
use runtime::node::Config;
use runtime::peer_tls::{self, Gate};
use runtime::proxy::TrustedProxies;
use topology::{Signaling, Topology};
use wire::Owner;
use wire::hint::KeyRing;

use crate::signaling::bearer::Verifier;
use crate::signaling::forward::Peers;
use crate::signaling::steering::Steering;

/// Where the endpoint is when the topology's URL has no path.
const DEFAULT_PATH: &str = "/whip";

/// One generation.
pub(super) struct Settings {
    config: Arc<Config>,
    /// Name of this node.
    pub(super) node: String,
    /// Name of its region.
    pub(super) region: String,
    /// This node, as hints name it.
    pub(super) owner: Owner,
    /// Path of the endpoint as clients see it: that of `signaling_url`, which a load balancer may have prefixed.
    pub(super) public_path: String,
    /// Checks bearer tokens; `None` when there is no `whip.secret`.
    pub(super) verifier: Option<Verifier>,
    /// Accepts other transceivers.
    pub(super) gate: Gate,
    /// Reaches other transceivers.
    pub(super) peers: Peers,
    /// Proxies whose word on the client's address counts.
    pub(super) proxies: TrustedProxies,
    /// Transceivers of the region, whose word counts too.
    pub(super) transceivers: TrustedProxies,
    /// Says which ingress a client gets; `None` when the topology has no GeoDNS nodes.
    pub(super) steering: Option<Steering>,
}

impl Settings {
    /// Derives them for the transceiver `node`.
    ///
    /// # Errors
    /// The node is not in the topology, or its certificates do not fit.
    pub(super) fn new(node: &str, config: Arc<Config>, control: &Control) -> anyhow::Result<Self> {
        let (region, transceiver) = config
            .topology
            .transceiver_named(node)
            .with_context(|| format!("no transceiver `{node}` in the topology"))?;
        let id = region
            .transceivers
            .id_of(transceiver.address)
            .with_context(|| format!("transceiver `{node}` lies outside its region's CIDR"))?;
        let credentials = &config.credentials;
        let nodes = &region.transceivers.nodes;
        let tls = peer_tls::client(credentials)?;
        Ok(Self {
            node: node.to_owned(),
            region: region.name.clone(),
            owner: Owner {
                region: region.region_id(),
                transceiver: id,
            },
            public_path: path_of(&region.signaling_url),
            verifier: credentials
                .whip_secret
                .as_ref()
                .map(|secret| Verifier::new(secret.expose())),
            gate: Gate::new(
                credentials,
                nodes.iter().map(|node| node.name.clone()).collect(),
            )?,
            proxies: TrustedProxies::from(&config.topology.network.signaling),
            transceivers: TrustedProxies::everybody(),
            steering: Steering::new(&config.topology, &tls, control),
            peers: Peers::new(nodes, tls),
            config,
        })
    }

    /// The topology.
    #[must_use]
    pub(super) fn topology(&self) -> &Topology {
        &self.config.topology
    }

    /// Limits of signaling.
    #[must_use]
    pub(super) fn signaling(&self) -> &Signaling {
        &self.config.topology.network.signaling
    }

    /// The longest accepted body.
    #[must_use]
    pub(super) fn body_len_max(&self) -> usize {
        usize::try_from(self.signaling().body_max_bytes).unwrap_or(usize::MAX)
    }

    /// The keys that seal owners into session URLs.
    #[must_use]
    pub(super) fn ring(&self) -> &KeyRing {
        &self.config.credentials.hint_keys
    }
}

/// The path of a URL, without a trailing slash.
fn path_of(url: &str) -> String {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = after_scheme
        .find('/')
        .and_then(|at| after_scheme.get(at..))
        .unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default();
    match path.trim_end_matches('/') {
        "" => DEFAULT_PATH.to_owned(),
        path => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (url, path) in [
            ("http://127.0.0.1:8080/whip", "/whip"),
            ("https://eu.voice.example", "/whip"),
            ("https://eu.voice.example/", "/whip"),
            ("https://voice.example/eu/whip", "/eu/whip"),
            ("https://voice.example/eu/whip/?a=/b#c", "/eu/whip"),
        ] {
            assert_eq!(path_of(url), path, "{url}");
        }
    }
}
