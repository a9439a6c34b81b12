//! The model of `topology.yaml`. Field names are the YAML keys; units stand at the end of a name.
//!
//! Deserialising gives shape only; `load` checks meaning and is the way to obtain a [`Topology`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::anycast::{Anycast, BgpSession};
use crate::dns::{Dns, GeoDns};
use crate::failover::FailoverGroup;
use crate::steering::{StateStore, Steering};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::{Owner, PopId, RegionId, TransceiverId};

/// The whole network.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Version of this format; 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// Settings that hold for every node.
    pub network: Network,
    /// Regions: where sessions are anchored.
    #[schemars(length(min = 1))]
    pub regions: Vec<Region>,
    /// Groups of PoPs that can take over from each other, each with the Redis they keep flows in.
    #[serde(default)]
    pub failover_groups: Vec<FailoverGroup>,
    /// PoPs, in the order they are advertised until steering decides otherwise.
    #[schemars(length(min = 1))]
    pub pops: Vec<Pop>,
    /// How a region and an ingress are chosen for a client.
    #[serde(default)]
    pub steering: Steering,
    /// The zone that GeoDNS nodes answer for; needed when there are any.
    #[serde(default)]
    pub dns: Option<Dns>,
    /// GeoDNS nodes: DNS and HTTP steering.
    #[serde(default)]
    pub geodns: Vec<GeoDns>,
}

/// Settings that hold for every node.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Name of the network, for logs and metrics.
    pub name: String,
    /// A hint older than this makes no new flow, in minutes. 10..=32000; longer than the longest call.
    #[schemars(range(min = 10, max = 32_000))]
    #[serde(default = "default_hint_age_max_min")]
    pub hint_age_max_min: u16,
    /// How long a node that was told to stop goes on serving what it has, in seconds. 0..=3600.
    #[schemars(range(max = 3_600))]
    #[serde(default = "default_drain_max_s")]
    pub drain_max_s: u32,
    /// Backbone links.
    #[serde(default)]
    pub link: Link,
    /// How worker threads of PoPs and core relays wait for packets.
    #[serde(default)]
    pub worker: WorkerPacing,
    /// Whether a PoP offers media of a client that it does not know to transceivers of other clients at the same IP address: a call
    /// whose NAT took another port goes on at once, and not at its next check. Needs core relays and transceivers that know such records.
    #[serde(default = "default_true")]
    pub offer_unknown: bool,
    /// Limits of WHIP signaling.
    #[serde(default)]
    pub signaling: Signaling,
    /// Anycast addresses that several PoPs share, each with its port.
    #[serde(default)]
    pub vips: Vec<SocketAddr>,
    /// How PoPs announce the VIPs by BGP. Absent: somebody else, such as a provider, brings them to the PoPs.
    #[serde(default)]
    pub anycast: Option<Anycast>,
    /// Where nodes tell their live state.
    #[serde(default)]
    pub state: Option<StateStore>,
}

/// Settings of backbone links.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// UDP payload every path of the backbone carries, in bytes. 1200..=8900.
    #[schemars(range(min = 1_200, max = 8_900))]
    pub mtu_bytes: u16,
    /// Provisioned rate of one link, in Mbit/s. 1..=400000.
    #[schemars(range(min = 1, max = 400_000))]
    pub rate_mbps: u32,
    /// Round-trip time the congestion window is sized for, in milliseconds. 1..=1000.
    #[schemars(range(min = 1, max = 1_000))]
    pub rtt_ms: u32,
    /// Interval of heartbeats, in milliseconds. 20..=5000.
    #[schemars(range(min = 20, max = 5_000))]
    pub heartbeat_ms: u32,
    /// Silence after which a link is down, in milliseconds. 60..=60000; at least three heartbeats.
    #[schemars(range(min = 60, max = 60_000))]
    pub down_after_ms: u32,
    /// Silence after which uplink goes to another core relay of the region until the link is heard again, in milliseconds. Two and
    /// a half heartbeats when absent. 40..=60000; at least two heartbeats, at most `down_after_ms`: then never.
    #[schemars(range(min = 40, max = 60_000))]
    pub suspect_after_ms: Option<u32>,
}

/// How worker threads of PoPs and core relays wait for packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkerPacing {
    /// How long a worker looks for packets without sleeping when one is due within that time, in microseconds; 0: never.
    /// For workers that have a processor to themselves. 0..=1000.
    #[schemars(range(max = 1_000))]
    pub busy_poll_us: u32,
    /// Under load, a worker of a PoP lets packets gather this long and takes them together, in microseconds; 0: never. What
    /// gathers there arrives at the core relay together. 0..=1000.
    #[schemars(range(max = 1_000))]
    pub tick_us: u32,
    /// Packets a second and worker that count as load. 1..=10000000.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub tick_above_pps: u32,
}

/// Limits of WHIP signaling at one transceiver.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Signaling {
    /// Sessions one transceiver holds at most. 1..=1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub sessions_max: u32,
    /// Sessions that have an answer but no authenticated client yet, at most. 1..=1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub pending_max: u32,
    /// Seconds a session may stay without an authenticated client. 1..=300.
    #[schemars(range(min = 1, max = 300))]
    pub pending_ttl_s: u32,
    /// Largest accepted body, in bytes. 1024..=1048576.
    #[schemars(range(min = 1_024, max = 1_048_576))]
    pub body_max_bytes: u32,
    /// `POST`s a second, sustained; a burst of the same size is allowed. 1..=1000000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub offers_per_s: u32,
    /// PoPs whose ingress one answer advertises, at most. 1..=16.
    #[schemars(range(min = 1, max = 16))]
    pub ingress_max: u8,
    /// Values allowed in `Origin`; `*` allows any.
    pub cors_origins: Vec<String>,
    /// Proxies whose word on the client's address counts (`Forwarded`, `X-Forwarded-For`, PROXY protocol).
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: Vec<IpNet>,
    /// Whether each connection from a trusted proxy begins with a PROXY protocol header, version 2.
    pub proxy_protocol: bool,
}

/// A region: core relays, a transceiver cluster, a signaling address.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// Unique name: lower-case letters, digits, `-` and `.`.
    pub name: String,
    /// Unique number, 1..=65535: what hints carry.
    #[schemars(range(min = 1))]
    pub id: u16,
    /// URL of the region's signaling, as clients see it; `http` or `https`.
    pub signaling_url: String,
    /// Addresses of the region's signaling that DNS answers with.
    #[serde(default)]
    pub signaling_addresses: Vec<IpAddr>,
    /// Place, for people and for distance.
    #[serde(default)]
    pub location: Option<Location>,
    /// Where data of its sessions stays; a request or a rule may demand one.
    #[serde(default)]
    pub residency: Option<String>,
    /// Countries whose clients come here last, ISO 3166-1 alpha-2.
    #[serde(default)]
    pub avoid_countries: Vec<String>,
    /// Share of clients among equal regions; 0: only when there is no other. 0..=1000.
    #[schemars(range(max = 1_000))]
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// At least one; two or more survive the loss of one.
    #[schemars(length(min = 1))]
    pub core_relays: Vec<CoreRelay>,
    /// The region's transceivers.
    pub transceivers: TransceiverCluster,
}

/// A core relay.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreRelay {
    /// Unique node name; the identity in its certificate.
    pub name: String,
    /// Address that links and transceivers reach it at.
    pub address: IpAddr,
    /// First UDP port for links; worker `i` listens on `link_port + i`.
    #[schemars(range(min = 1))]
    #[serde(default = "default_link_port")]
    pub link_port: u16,
    /// First UDP port towards transceivers; worker `i` uses `record_port + i`.
    #[schemars(range(min = 1))]
    #[serde(default = "default_record_port")]
    pub record_port: u16,
    /// Worker threads. 1..=64.
    #[schemars(range(min = 1, max = 64))]
    #[serde(default = "default_workers")]
    pub workers: u8,
    /// Whether workers are pinned, worker `i` to processor `i` modulo the processors there are.
    #[serde(default = "default_true")]
    pub pin: bool,
    /// Admin HTTP address; loopback.
    #[serde(default = "default_admin")]
    pub admin: SocketAddr,
}

/// The transceivers of a region.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransceiverCluster {
    /// Every transceiver address lies inside; core relays send nowhere else.
    #[schemars(with = "String")]
    pub cidr: IpNet,
    /// The one UDP port of every transceiver in the region.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// How many records share a datagram from a core relay to a transceiver.
    #[serde(default)]
    pub datagrams: Datagrams,
    /// The transceivers, at least one. A hint names one by the offset of its address in `cidr`.
    #[schemars(length(min = 1))]
    pub nodes: Vec<Transceiver>,
}

/// How many records share a datagram from a core relay to a transceiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Datagrams {
    /// As many as fit, and the datagrams of a batch leave as one train (UDP_SEGMENT).
    #[default]
    Packed,
    /// One each, for transceivers that take no more, at several times the cost.
    Single,
}

/// A transceiver.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transceiver {
    /// Unique node name; the identity in its certificate.
    pub name: String,
    /// Address inside the cluster's CIDR.
    pub address: IpAddr,
    /// WHIP HTTP address, behind the region's load balancer.
    pub whip: SocketAddr,
    /// HTTPS address for the region's other transceivers: a request for one of its sessions that reached another.
    pub peer: SocketAddr,
    /// Admin HTTP address; loopback.
    #[serde(default = "default_admin")]
    pub admin: SocketAddr,
}

/// A PoP: one ingress site.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pop {
    /// Unique node name; the identity in its certificate.
    pub name: String,
    /// Unique number, 1..=65535: what records carry.
    #[schemars(range(min = 1))]
    pub id: u16,
    /// Addresses clients reach it at; the first of each family is advertised first. 1..=16.
    #[schemars(length(min = 1, max = 16))]
    pub ingress: Vec<SocketAddr>,
    /// Address its links leave from; any port.
    #[serde(default = "default_backbone")]
    pub backbone: IpAddr,
    /// Regions it has links to, by name, in order of preference; all regions when absent.
    #[serde(default)]
    pub regions: Option<Vec<String>>,
    /// Worker threads. 1..=64.
    #[schemars(range(min = 1, max = 64))]
    #[serde(default = "default_workers")]
    pub workers: u8,
    /// Whether workers are pinned, worker `i` to processor `i` modulo the processors there are.
    #[serde(default = "default_true")]
    pub pin: bool,
    /// Flows one worker holds at most. 1..=16777216.
    #[schemars(range(min = 1, max = 16_777_216))]
    #[serde(default = "default_flows_max")]
    pub flows_max: u32,
    /// Share of clients among equal PoPs; 0: only when there is no other. 0..=1000.
    #[schemars(range(max = 1_000))]
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Failover group it belongs to, by name; without one a flow is known to this PoP alone.
    #[serde(default)]
    pub failover_group: Option<String>,
    /// Identifier in BGP; the IPv4 address of `backbone`, else of `ingress`, when absent.
    #[serde(default)]
    pub router_id: Option<Ipv4Addr>,
    /// BGP sessions with upstream routers, in which the VIPs are announced, at most 16.
    #[schemars(length(max = 16))]
    #[serde(default)]
    pub bgp: Vec<BgpSession>,
    /// Place, for people and for distance.
    #[serde(default)]
    pub location: Option<Location>,
    /// Admin HTTP address; loopback.
    #[serde(default = "default_admin")]
    pub admin: SocketAddr,
}

/// A place on Earth.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Location {
    /// City.
    pub city: String,
    /// ISO 3166-1 alpha-2.
    #[schemars(regex(pattern = "^[A-Z]{2}$"))]
    pub country: String,
    /// Degrees north, -90..=90.
    #[schemars(range(min = -90, max = 90))]
    pub latitude: f64,
    /// Degrees east, -180..=180.
    #[schemars(range(min = -180, max = 180))]
    pub longitude: f64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            mtu_bytes: 1452,
            rate_mbps: 1000,
            rtt_ms: 200,
            heartbeat_ms: 100,
            down_after_ms: 500,
            suspect_after_ms: None,
        }
    }
}

impl Default for WorkerPacing {
    fn default() -> Self {
        Self {
            busy_poll_us: 0,
            tick_us: 0,
            tick_above_pps: 20_000,
        }
    }
}

impl Default for Signaling {
    fn default() -> Self {
        Self {
            sessions_max: 4000,
            pending_max: 400,
            pending_ttl_s: 15,
            body_max_bytes: 64 * 1024,
            offers_per_s: 200,
            ingress_max: 3,
            cors_origins: vec!["*".to_owned()],
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
        }
    }
}

const fn default_hint_age_max_min() -> u16 {
    1440
}
const fn default_drain_max_s() -> u32 {
    30
}
const fn default_link_port() -> u16 {
    7443
}
const fn default_record_port() -> u16 {
    7543
}
pub(crate) const fn default_workers() -> u8 {
    1
}
pub(crate) const fn default_true() -> bool {
    true
}
const fn default_weight() -> u16 {
    100
}
const fn default_flows_max() -> u32 {
    1 << 20
}
pub(crate) const fn default_admin() -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9100)
}
const fn default_backbone() -> IpAddr {
    IpAddr::V4(Ipv4Addr::UNSPECIFIED)
}

impl Link {
    /// Bytes QUIC takes of a UDP payload around one DATAGRAM frame: short header with an 8-byte connection id,
    /// packet number, frame header, AEAD tag.
    const QUIC_OVERHEAD_BYTES: u16 = 38;

    /// The largest datagram (header and records) that one QUIC packet of a link carries, in bytes.
    #[must_use]
    pub const fn datagram_len_max(&self) -> usize {
        (self.mtu_bytes - Self::QUIC_OVERHEAD_BYTES) as usize
    }

    /// Silence after which a link is suspect: as configured, or two and a half heartbeats.
    #[must_use]
    pub fn suspect_after(&self) -> Duration {
        let configured = self
            .suspect_after_ms
            .map(|ms| Duration::from_millis(ms.into()));
        configured.unwrap_or_else(|| Duration::from_millis(self.heartbeat_ms.into()) * 5 / 2)
    }
}

impl Region {
    /// The number as hints and records carry it.
    #[must_use]
    pub const fn region_id(&self) -> RegionId {
        RegionId(self.id)
    }

    /// The address of a transceiver, `None` when the id lies outside the CIDR, is its network or broadcast address.
    /// Any id inside is computed, whether or not a node is listed: core relays need no registry.
    #[must_use]
    pub fn transceiver_addr(&self, id: TransceiverId) -> Option<SocketAddr> {
        self.transceivers.addr_of(id)
    }
}

impl TransceiverCluster {
    /// See [`Region::transceiver_addr`].
    #[must_use]
    pub fn addr_of(&self, id: TransceiverId) -> Option<SocketAddr> {
        let ip = match self.cidr {
            IpNet::V4(net) => {
                let ip = u32::from(net.network())
                    .checked_add(id.0)
                    .map(Ipv4Addr::from)?;
                (net.contains(&ip) && (ip != net.broadcast() || net.prefix_len() == 32))
                    .then_some(IpAddr::V4(ip))?
            }
            IpNet::V6(net) => {
                let ip = u128::from(net.network())
                    .checked_add(u128::from(id.0))?
                    .into();
                net.contains(&ip).then_some(IpAddr::V6(ip))?
            }
        };
        (id.0 != 0).then_some(SocketAddr::new(ip, self.port))
    }

    /// The id of the transceiver at `ip`, `None` outside the CIDR.
    #[must_use]
    pub fn id_of(&self, ip: IpAddr) -> Option<TransceiverId> {
        let offset = match (self.cidr, ip) {
            (IpNet::V4(net), IpAddr::V4(ip)) if net.contains(&ip) => {
                u32::from(ip) - u32::from(net.network())
            }
            (IpNet::V6(net), IpAddr::V6(ip)) if net.contains(&ip) => {
                u32::try_from(u128::from(ip) - u128::from(net.network())).ok()?
            }
            (IpNet::V4(_) | IpNet::V6(_), IpAddr::V4(_) | IpAddr::V6(_)) => return None,
        };
        (offset != 0).then_some(TransceiverId(offset))
    }
}

impl Pop {
    /// The number as records carry it.
    #[must_use]
    pub const fn pop_id(&self) -> PopId {
        PopId(self.id)
    }
}

impl Topology {
    /// The region with this number.
    #[must_use]
    pub fn region(&self, id: RegionId) -> Option<&Region> {
        self.regions.iter().find(|region| region.id == id.0)
    }

    /// The PoP with this number.
    #[must_use]
    pub fn pop(&self, id: PopId) -> Option<&Pop> {
        self.pops.iter().find(|pop| pop.id == id.0)
    }

    /// The PoP node of this name.
    #[must_use]
    pub fn pop_named(&self, name: &str) -> Option<&Pop> {
        self.pops.iter().find(|pop| pop.name == name)
    }

    /// The failover group a PoP belongs to.
    #[must_use]
    pub fn failover_group_of(&self, pop: &Pop) -> Option<&FailoverGroup> {
        let name = pop.failover_group.as_ref()?;
        self.failover_groups
            .iter()
            .find(|group| group.name == *name)
    }

    /// The core relay node of this name and its region.
    #[must_use]
    pub fn core_relay_named(&self, name: &str) -> Option<(&Region, &CoreRelay)> {
        self.regions.iter().find_map(|region| {
            Some((
                region,
                region.core_relays.iter().find(|relay| relay.name == name)?,
            ))
        })
    }

    /// The transceiver node of this name and its region.
    #[must_use]
    pub fn transceiver_named(&self, name: &str) -> Option<(&Region, &Transceiver)> {
        self.regions.iter().find_map(|region| {
            Some((
                region,
                region
                    .transceivers
                    .nodes
                    .iter()
                    .find(|node| node.name == name)?,
            ))
        })
    }

    /// The listed transceiver a hint names.
    #[must_use]
    pub fn owner(&self, owner: Owner) -> Option<&Transceiver> {
        let region = self.region(owner.region)?;
        let ip = region.transceiver_addr(owner.transceiver)?.ip();
        region
            .transceivers
            .nodes
            .iter()
            .find(|node| node.address == ip)
    }
}
