//! The DNS zone the network answers for, and the nodes that answer.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{default_admin, default_true, default_workers};

/// The zone of the network: what GeoDNS nodes are authoritative for.
///
/// ```text
/// ZONE                         SOA, NS, CAA, TXT, apex addresses
/// SIGNALING.ZONE               the region chosen for the client
/// REGION.SIGNALING.ZONE        that region, whatever the client
/// POP.INGRESS.ZONE             the ingress addresses of one PoP
/// ```
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dns {
    /// Name of the zone, without a dot at its end.
    pub zone: String,
    /// Label under the zone of the name that is answered with the region chosen for the client.
    #[serde(default = "default_signaling")]
    pub signaling: String,
    /// Label under the zone that PoPs are named below.
    #[serde(default = "default_ingress")]
    pub ingress: String,
    /// Name servers of the zone, 1..=13.
    #[schemars(length(min = 1, max = 13))]
    pub nameservers: Vec<NameServer>,
    /// Mailbox of the people responsible, as `user@host`.
    pub hostmaster: String,
    /// Serial number of the zone (RFC 1035 §3.3.13).
    #[serde(default = "default_serial")]
    pub serial: u32,
    /// How long an answer that was chosen for the client may be cached, in seconds. 1..=86400.
    #[schemars(range(min = 1, max = 86_400))]
    #[serde(default = "default_ttl_s")]
    pub ttl_s: u32,
    /// How long all other answers may be cached, in seconds. 1..=604800.
    #[schemars(range(min = 1, max = 604_800))]
    #[serde(default = "default_static_ttl_s")]
    pub static_ttl_s: u32,
    /// How long the absence of a name or type may be cached, in seconds. 1..=86400.
    #[schemars(range(min = 1, max = 86_400))]
    #[serde(default = "default_negative_ttl_s")]
    pub negative_ttl_s: u32,
    /// Regions whose addresses one answer carries, best first. 1..=8.
    #[schemars(range(min = 1, max = 8))]
    #[serde(default = "default_answers_max")]
    pub answers_max: u8,
    /// Addresses of the zone's own name.
    #[serde(default)]
    pub apex: Vec<IpAddr>,
    /// TXT records of the zone's own name; at most 255 bytes each.
    #[serde(default)]
    pub txt: Vec<String>,
    /// Certification authorities that may issue for the zone (RFC 8659).
    #[serde(default)]
    pub caa: Vec<Caa>,
    /// Protocols the HTTPS records of signaling names offer (RFC 9460 `alpn`), in order; none: no HTTPS records.
    #[serde(default = "default_alpn")]
    pub alpn: Vec<String>,
    /// Whether answers are signed; the key is in the credentials directory of every GeoDNS node.
    #[serde(default)]
    pub dnssec: bool,
    /// Sources whose `_explain.NAME` TXT questions are answered.
    #[schemars(with = "Vec<String>")]
    #[serde(default)]
    pub explain_from: Vec<IpNet>,
    /// Limits on answers to one source prefix.
    #[serde(default)]
    pub rate_limit: RateLimit,
}

/// A name server of the zone.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NameServer {
    /// Its whole name, without a dot at its end.
    pub name: String,
    /// Its addresses, if its name lies inside the zone: glue.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// A CAA record (RFC 8659 §4.1).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Caa {
    /// Whether an authority that does not know the tag must not issue.
    #[serde(default)]
    pub critical: bool,
    /// `issue`, `issuewild`, `iodef` ...
    pub tag: String,
    /// Value, at most 255 bytes.
    pub value: String,
}

/// Response rate limiting: answers about one name to one source prefix (/24, /56).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RateLimit {
    /// Answers a second about one name, and errors of one kind, to one prefix; 0: no limit. 0..=100000.
    #[schemars(range(max = 100_000))]
    pub responses_per_s: u32,
    /// Every how many answers over the limit one is sent truncated, so that a real resolver comes back by TCP; 0: none. 0..=10.
    #[schemars(range(max = 10))]
    pub slip: u8,
}

/// A GeoDNS node: DNS and HTTP steering.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GeoDns {
    /// Unique node name; the identity in its certificate.
    pub name: String,
    /// Addresses it answers DNS at over UDP and TCP, 1..=16; each an address of its own, never unspecified.
    #[schemars(length(min = 1, max = 16))]
    pub dns: Vec<SocketAddr>,
    /// Addresses it answers DNS over TLS at.
    #[serde(default)]
    pub dot: Vec<SocketAddr>,
    /// Addresses it answers DNS over HTTPS at.
    #[serde(default)]
    pub doh: Vec<SocketAddr>,
    /// HTTPS address for steering, for the transceivers of every region.
    pub steer: SocketAddr,
    /// Threads that answer UDP. 1..=64.
    #[schemars(range(min = 1, max = 64))]
    #[serde(default = "default_workers")]
    pub workers: u8,
    /// Whether they are pinned, thread `i` to processor `i` modulo the processors there are.
    #[serde(default = "default_true")]
    pub pin: bool,
    /// Admin HTTP address; loopback.
    #[serde(default = "default_admin")]
    pub admin: SocketAddr,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            responses_per_s: 1000,
            slip: 2,
        }
    }
}

fn default_signaling() -> String {
    "signaling".to_owned()
}
fn default_ingress() -> String {
    "ingress".to_owned()
}
const fn default_serial() -> u32 {
    1
}
const fn default_ttl_s() -> u32 {
    60
}
const fn default_static_ttl_s() -> u32 {
    3_600
}
const fn default_negative_ttl_s() -> u32 {
    300
}
const fn default_answers_max() -> u8 {
    1
}
fn default_alpn() -> Vec<String> {
    vec!["h2".to_owned(), "http/1.1".to_owned()]
}
