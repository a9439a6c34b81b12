//! Configuration: topology and credentials together, replaced as one.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::watch;
use topology::{
    CoreRelay, Dns, FailoverGroup, GeoDns, LoadErrors, Network, NodeRole, Pop, Region,
    TEXT_BYTES_MAX, Topology, Transceiver,
};

use crate::args::NodeArgs;
use crate::clock;
use crate::credentials::{Credentials, CredentialsError};
use crate::files::read_text;
use crate::metrics::Registry;

/// What a node works by. Immutable: a reload makes another.
#[derive(Debug)]
pub struct Config {
    /// The network.
    pub topology: Topology,
    /// The node's credentials.
    pub credentials: Credentials,
    /// 1 at start, one more with each reload.
    pub generation: u64,
}

/// The configuration as of the last good reload. Clones share it.
#[derive(Clone, Debug)]
pub struct ConfigHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    current: ArcSwap<Config>,
    generation: AtomicU64,
    /// The same, for tasks that wait for another one.
    latest: watch::Sender<u64>,
}

impl ConfigHandle {
    /// A handle that holds `config`.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let generation = AtomicU64::new(config.generation);
        let (latest, _) = watch::channel(config.generation);
        let current = ArcSwap::from_pointee(config);
        Self {
            shared: Arc::new(Shared {
                current,
                generation,
                latest,
            }),
        }
    }

    /// The configuration. Keep it for as long as one answer must be consistent.
    #[must_use]
    pub fn load(&self) -> Arc<Config> {
        self.shared.current.load_full()
    }

    /// Its generation: one atomic load, for the turn of a worker's loop. Compare it with [`Config::generation`] of the
    /// configuration the worker uses.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Replaces the configuration. One caller at a time.
    pub fn publish(&self, topology: Topology, credentials: Credentials) {
        let generation = self.generation() + 1;
        self.shared.current.store(Arc::new(Config {
            topology,
            credentials,
            generation,
        }));
        self.shared.generation.store(generation, Ordering::Release);
        self.shared.latest.send_replace(generation);
    }

    /// Waits until there is another generation than this.
    pub async fn outdated(&self, generation: u64) {
        let mut latest = self.shared.latest.subscribe();
        // The sender lives as long as this.
        let _ = latest.wait_for(|latest| *latest != generation).await;
    }
}

/// Why a node does not start, or does not take a changed file. One line.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Cannot be opened or read.
    #[error("{path}: {error}")]
    Unreadable {
        /// The topology file.
        path: String,
        /// What the kernel says.
        error: std::io::Error,
    },
    /// Not a topology.
    #[error("{}", first_of(.0))]
    Topology(#[from] LoadErrors),
    /// The topology has no such node of this kind.
    #[error("{file}: no {program} is named `{node}`; there are: {known}")]
    NoSuchNode {
        /// The topology file.
        file: String,
        /// The kind of node.
        program: &'static str,
        /// The name asked for.
        node: String,
        /// Names there are.
        known: String,
    },
    /// See [`CredentialsError`].
    #[error("{0}")]
    Credentials(#[from] CredentialsError),
    /// This kind of node can do nothing with it.
    #[error("{0}")]
    Unfit(String),
    /// A reload would serve WHIP to everybody.
    #[error("whip.secret is gone: WHIP would serve without tokens, which takes a restart")]
    SecretGone,
    /// A reload would change what was settled at start.
    #[error("{file}: `{field}` of {node} changed from {from} to {to}, which takes a restart")]
    Settled {
        /// The topology file.
        file: String,
        /// The node.
        node: String,
        /// The field.
        field: String,
        /// Its value since the start.
        from: String,
        /// Its value in the file.
        to: String,
    },
}

/// Reads and checks everything a node starts with.
///
/// # Errors
/// See [`StartError`].
pub fn load(program: &'static str, args: &NodeArgs) -> Result<Config, StartError> {
    let file = args.topology.display().to_string();
    let text =
        read_text(&args.topology, TEXT_BYTES_MAX).map_err(|error| StartError::Unreadable {
            path: file.clone(),
            error,
        })?;
    let topology = topology::load(&text, &file)?;
    if !names(&topology, program).any(|name| name == args.node) {
        let known: Vec<&str> = names(&topology, program).take(NAMES_SHOWN_MAX).collect();
        return Err(StartError::NoSuchNode {
            known: known.join(", "),
            file,
            program,
            node: args.node.clone(),
        });
    }
    let credentials = Credentials::load(&args.credentials)?;
    let now_s = clock::unix_s();
    credentials.check_identity(&args.node, now_s)?;
    warn_of_expiry(credentials.expires_unix_s.saturating_sub(now_s));
    Ok(Config {
        topology,
        credentials,
        generation: 1,
    })
}

fn warn_of_expiry(left_s: u64) {
    if left_s < EXPIRY_WARN_S {
        let days = left_s / DAY_S;
        tracing::warn!(
            days,
            "the node's certificate ends soon: replace cert.pem and key.pem"
        );
    }
}

const DAY_S: u64 = 86_400;
const EXPIRY_WARN_S: u64 = 14 * DAY_S;

/// Refuses what a running node cannot change: its own addresses, ports, numbers and workers, and what links are made with.
pub(super) fn check_settled(
    file: &Path,
    node: &str,
    old: &Topology,
    new: &Topology,
) -> Result<(), StartError> {
    let (old, new) = (settled(old, node), settled(new, node));
    let changed = old.iter().find(|(key, value)| new.get(*key) != Some(value));
    match changed {
        None => Ok(()),
        Some((field, from)) => Err(StartError::Settled {
            file: file.display().to_string(),
            node: node.to_owned(),
            field: field.clone(),
            from: from.to_string(),
            to: new
                .get(field)
                .map_or_else(|| "nothing".to_owned(), ToString::to_string),
        }),
    }
}

/// What the topology says about one node, with defaults filled in, as YAML.
pub(super) fn rendered(topology: &Topology, node: &str) -> Option<String> {
    let mut view = View {
        node,
        network: &topology.network,
        pop: None,
        failover_group: group_of(topology, node),
        core_relay: None,
        transceiver: None,
        geodns: None,
        dns: None,
        regions: Vec::new(),
        pops: &[],
    };
    match topology.node_role(node)? {
        NodeRole::Pop(pop) => {
            view.regions = topology.regions_of_pop(pop);
            view.pop = Some(pop);
        }
        NodeRole::CoreRelay(region, relay) => {
            view.regions.push(region);
            view.core_relay = Some(relay);
        }
        NodeRole::Transceiver(region, transceiver) => {
            view.regions.push(region);
            view.transceiver = Some(transceiver);
        }
        NodeRole::GeoDns(geodns) => {
            view.regions = topology.regions.iter().collect();
            view.pops = &topology.pops;
            view.dns = topology.dns.as_ref();
            view.geodns = Some(geodns);
        }
    }
    topology::to_yaml(&view)
}

pub(super) fn observe(config: &ConfigHandle, metrics: &Registry) {
    let handle = config.clone();
    metrics.observe_gauge(
        "config.generation",
        "",
        "Configuration in use: 1 at start, one more with each reload.",
        &[],
        move || float(handle.generation()),
    );
    let handle = config.clone();
    metrics.observe_gauge(
        "credentials.expiry_time_s",
        "s",
        "When the node's certificate ends, in seconds since the Unix epoch.",
        &[],
        move || float(handle.load().credentials.expires_unix_s),
    );
}

#[derive(Serialize)]
struct View<'a> {
    node: &'a str,
    network: &'a Network,
    #[serde(skip_serializing_if = "Option::is_none")]
    pop: Option<&'a Pop>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failover_group: Option<&'a FailoverGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    core_relay: Option<&'a CoreRelay>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transceiver: Option<&'a Transceiver>,
    #[serde(skip_serializing_if = "Option::is_none")]
    geodns: Option<&'a GeoDns>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<&'a Dns>,
    regions: Vec<&'a Region>,
    #[serde(skip_serializing_if = "<[Pop]>::is_empty")]
    pops: &'a [Pop],
}

/// Names an error shows at most.
const NAMES_SHOWN_MAX: usize = 20;

fn names<'a>(topology: &'a Topology, program: &str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
    let regions = topology.regions.iter();
    match program {
        "pop" => Box::new(topology.pops.iter().map(|pop| pop.name.as_str())),
        "core-relay" => Box::new(
            regions
                .flat_map(|region| &region.core_relays)
                .map(|relay| relay.name.as_str()),
        ),
        "transceiver" => Box::new(
            regions
                .flat_map(|region| &region.transceivers.nodes)
                .map(|node| node.name.as_str()),
        ),
        "geodns" => Box::new(topology.geodns.iter().map(|node| node.name.as_str())),
        _ => Box::new(std::iter::empty()),
    }
}

/// Everything about a node that is fixed while it runs, by field.
fn settled(topology: &Topology, node: &str) -> serde_json::Map<String, serde_json::Value> {
    let (value, region) = match topology.node_role(node) {
        None => return serde_json::Map::new(),
        Some(NodeRole::Pop(pop)) => (serde_json::to_value(pop), None),
        Some(NodeRole::CoreRelay(region, relay)) => (serde_json::to_value(relay), Some(region)),
        Some(NodeRole::Transceiver(region, node)) => (serde_json::to_value(node), Some(region)),
        Some(NodeRole::GeoDns(node)) => (serde_json::to_value(node), None),
    };
    let Ok(serde_json::Value::Object(mut fields)) = value else {
        return serde_json::Map::new();
    };
    // `bgp` and `router_id` are BIRD's.
    for free in ["regions", "location", "weight", "bgp", "router_id"] {
        fields.remove(free);
    }
    if let Some(group) = group_of(topology, node)
        && let Ok(serde_json::Value::Object(group)) = serde_json::to_value(group)
    {
        let named = |(field, value)| (format!("failover_group.{field}"), value);
        fields.extend(group.into_iter().map(named));
    }
    if let Some(pop) = topology.pop_named(node) {
        fields.extend(settled_of_vips(topology, pop));
    }
    // Buffers and windows of links, and the length of datagrams towards transceivers, are sized once.
    if let Ok(serde_json::Value::Object(link)) = serde_json::to_value(&topology.network.link) {
        let named = |(field, value)| (format!("network.link.{field}"), value);
        fields.extend(link.into_iter().map(named));
    }
    if let Some(region) = region {
        fields.insert("region.id".to_owned(), region.id.into());
        let cluster = &region.transceivers;
        fields.insert(
            "transceivers.cidr".to_owned(),
            cluster.cidr.to_string().into(),
        );
        fields.insert("transceivers.port".to_owned(), cluster.port.into());
    }
    fields
}

/// Sockets are bound, the device is made and the table is cleared once. All else about anycast is BIRD's, or followed.
fn settled_of_vips(topology: &Topology, pop: &Pop) -> Vec<(String, serde_json::Value)> {
    let vips = serde_json::to_value(&topology.network.vips).unwrap_or_default();
    let mut fields = vec![("network.vips".to_owned(), vips)];
    let anycast = topology.anycast_of(pop);
    let announces = if anycast.is_some() { "some" } else { "none" };
    fields.push(("bgp".to_owned(), announces.into()));
    if let Some(anycast) = anycast {
        let prefixes = serde_json::to_value(&anycast.prefixes).unwrap_or_default();
        fields.push(("network.anycast.prefixes".to_owned(), prefixes));
        fields.push(("network.anycast.table".to_owned(), anycast.table.into()));
    }
    fields
}

fn group_of<'a>(topology: &'a Topology, node: &str) -> Option<&'a FailoverGroup> {
    topology.failover_group_of(topology.pop_named(node)?)
}

fn first_of(errors: &LoadErrors) -> String {
    let errors = errors.as_slice();
    let Some(first) = errors.first() else {
        return String::new();
    };
    match errors.len() - 1 {
        0 => first.to_string(),
        1 => format!("{first} (and 1 more error)"),
        more => format!("{first} (and {more} more errors)"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds and counts below 2^53")]
const fn float(value: u64) -> f64 {
    value as f64
}
