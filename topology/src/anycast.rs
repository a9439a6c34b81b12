//! Anycast: what every PoP announces for the VIPs, and the BGP sessions each announces it in.
//!
//! The model alone. What is announced at a given moment is the PoP's decision, told to BIRD by the metric of a route;
//! what BIRD makes of it is written by [`crate::bird`].

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::{Pop, Topology, default_true};

/// Addresses of one PoP at most, the VIPs it serves among them.
pub const POP_ADDRESSES_MAX: usize = 16;

/// How the VIPs are announced. Without it somebody else brings them to the PoPs.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Anycast {
    /// AS number that announces. 1..=4294967294, not 23456 (RFC 6793) and not 65535.
    #[schemars(range(min = 1, max = 4_294_967_294_u32))]
    pub asn: u32,
    /// What is announced for the VIPs, 1..=16: each VIP lies in one, each holds a VIP. In the open Internet a /24 or a /48.
    #[schemars(with = "Vec<String>", length(min = 1, max = 16))]
    pub prefixes: Vec<IpNet>,
    /// Shorter prefixes around those, 0..=16, announced as long as BIRD lives: packets reach somebody when every PoP has
    /// withdrawn.
    #[schemars(with = "Vec<String>", length(max = 16))]
    #[serde(default)]
    pub cover: Vec<IpNet>,
    /// PoPs that stay announced whatever soft reasons they have to withdraw. 1..=1000.
    #[schemars(range(min = 1, max = 1_000))]
    #[serde(default = "default_min_announced")]
    pub min_announced: u16,
    /// How long a PoP is well before it announces, in seconds; twice as long for each withdrawal of the last hour. 0..=3600.
    #[schemars(range(max = 3_600))]
    #[serde(default = "default_up_after_s")]
    pub up_after_s: u32,
    /// The longest that wait becomes, in seconds. 0..=86400, at least `up_after_s`.
    #[schemars(range(max = 86_400))]
    #[serde(default = "default_up_after_max_s")]
    pub up_after_max_s: u32,
    /// A worker that makes no turn for so long withdraws, in milliseconds. 50..=60000.
    #[schemars(range(min = 50, max = 60_000))]
    #[serde(default = "default_stalled_after_ms")]
    pub stalled_after_ms: u32,
    /// How long a drained PoP goes on serving what it has after it has withdrawn, in seconds. 0..=3600.
    #[schemars(range(max = 3_600))]
    #[serde(default = "default_linger_s")]
    pub linger_s: u32,
    /// Kernel routing table in which a PoP tells BIRD its state, and nothing else. 1..=4294967295, none of the kernel's own
    /// (253..=255).
    #[schemars(range(min = 1))]
    #[serde(default = "default_table")]
    pub table: u32,
    /// Hold time of BGP sessions, in seconds. 3..=240.
    #[schemars(range(min = 3, max = 240))]
    #[serde(default = "default_hold_s")]
    pub hold_s: u16,
    /// Detection of dead paths (BFD, RFC 5880).
    #[serde(default)]
    pub bfd: Bfd,
    /// How often a draining PoP adds the AS number to the path. 0..=10.
    #[schemars(range(max = 10))]
    #[serde(default = "default_drain_prepend")]
    pub drain_prepend: u8,
}

/// Detection of dead paths. A path is dead after `interval_ms` times `multiplier` of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Bfd {
    /// Interval of packets, both ways, in milliseconds. 10..=5000.
    #[schemars(range(min = 10, max = 5_000))]
    pub interval_ms: u32,
    /// Intervals of silence. 2..=50.
    #[schemars(range(min = 2, max = 50))]
    pub multiplier: u8,
}

/// A BGP session of a PoP with an upstream router: one address family.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BgpSession {
    /// Unique in its PoP: lower-case letters, digits and `-`, at most 32.
    pub name: String,
    /// AS number of the neighbour.
    #[schemars(range(min = 1, max = 4_294_967_294_u32))]
    pub asn: u32,
    /// The neighbour.
    pub address: IpAddr,
    /// Own address of the session, of the same family.
    pub local: IpAddr,
    /// Hops to a neighbour that is not on the wire itself. 2..=255; on the wire when absent.
    #[schemars(range(min = 2, max = 255))]
    #[serde(default)]
    pub multihop: Option<u8>,
    /// Whether BFD watches the path.
    #[serde(default = "default_true")]
    pub bfd: bool,
    /// Prefixes of the neighbour that are remembered at most; none is ever used. 1..=100000.
    #[schemars(range(min = 1, max = 100_000))]
    #[serde(default = "default_max_prefixes")]
    pub max_prefixes: u32,
    /// MULTI_EXIT_DISC. A drain adds 1000, and it must have room for that. 0..=4294966295.
    #[schemars(range(max = 4_294_966_295_u32))]
    #[serde(default)]
    pub med: Option<u32>,
    /// How often the AS number is added to the path at all times. 0..=10.
    #[schemars(range(max = 10))]
    #[serde(default)]
    pub prepend: u8,
    /// Communities of every announcement, `A:B` or large `A:B:C`, 0..=32.
    #[schemars(length(max = 32))]
    #[serde(default)]
    pub communities: Vec<Community>,
    /// Communities added while the PoP drains, beside GRACEFUL_SHUTDOWN: those by which this neighbour lowers its preference, 0..=32.
    #[schemars(length(max = 32))]
    #[serde(default)]
    pub drain_communities: Vec<Community>,
    /// File on the PoP with the line `password "...";` (TCP MD5, RFC 2385); an absolute path.
    #[serde(default)]
    pub password_file: Option<String>,
}

/// A BGP community: `A:B` (RFC 1997) or large `A:B:C` (RFC 8092).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub enum Community {
    /// Two 16-bit numbers.
    Standard(u16, u16),
    /// Three 32-bit numbers.
    Large(u32, u32, u32),
}

/// Why a text is no [`Community`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a community, A:B with numbers up to 65535, or a large one, A:B:C with numbers up to 4294967295"
)]
pub struct CommunityError;

/// Tells upstream routers to prefer any other path (RFC 8326).
pub const GRACEFUL_SHUTDOWN: Community = Community::Standard(65_535, 0);

impl Default for Bfd {
    fn default() -> Self {
        Self {
            interval_ms: 100,
            multiplier: 3,
        }
    }
}

const fn default_min_announced() -> u16 {
    2
}
const fn default_up_after_s() -> u32 {
    10
}
const fn default_up_after_max_s() -> u32 {
    300
}
const fn default_stalled_after_ms() -> u32 {
    300
}
const fn default_linger_s() -> u32 {
    30
}
const fn default_table() -> u32 {
    1001
}
const fn default_hold_s() -> u16 {
    9
}
const fn default_drain_prepend() -> u8 {
    2
}
const fn default_max_prefixes() -> u32 {
    10
}

impl Pop {
    /// What BGP knows this PoP by: `router_id`, else its IPv4 backbone address, else its first IPv4 ingress.
    #[must_use]
    pub fn bgp_id(&self) -> Option<Ipv4Addr> {
        let v4 = |address: IpAddr| match address {
            IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        };
        let ingress = || self.ingress.iter().find_map(|socket| v4(socket.ip()));
        self.router_id
            .or_else(|| v4(self.backbone))
            .or_else(ingress)
    }
}

/// What a drain takes at most before it lingers: flows are stored, and traffic has moved.
const HAND_OVER_S: u32 = 20;

impl Topology {
    /// How `pop` announces the VIPs, `None` when it has no session to announce them in or somebody else brings them.
    #[must_use]
    pub fn anycast_of(&self, pop: &Pop) -> Option<&Anycast> {
        let anycast = self.network.anycast.as_ref();
        anycast.filter(|_| !pop.bgp.is_empty())
    }

    /// How long `node` goes on serving when it is told to stop. One that announces has to be left by routers first, and then to
    /// serve what comes late for `linger_s`.
    #[must_use]
    pub fn drain_max_s_of(&self, node: &str) -> u32 {
        let anycast = self.pop_named(node).and_then(|pop| self.anycast_of(pop));
        let hands_over = anycast.map_or(0, |it| it.linger_s.saturating_add(HAND_OVER_S));
        self.network.drain_max_s.max(hands_over)
    }
}

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, CommunityError> {
        // `parse` would also take a sign.
        let is_number = |part: &&str| part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = text.split(':').filter(is_number).collect();
        if parts.len() != text.split(':').count() {
            return Err(CommunityError);
        }
        let community = match *parts {
            [a, b] => a.parse().and_then(|a| Ok(Self::Standard(a, b.parse()?))),
            [a, b, c] => a
                .parse()
                .and_then(|a| Ok(Self::Large(a, b.parse()?, c.parse()?))),
            _ => return Err(CommunityError),
        };
        community.map_err(|_number| CommunityError)
    }
}

impl TryFrom<String> for Community {
    type Error = CommunityError;

    fn try_from(text: String) -> Result<Self, CommunityError> {
        text.parse()
    }
}

impl From<Community> for String {
    fn from(community: Community) -> Self {
        community.to_string()
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(a, b) => write!(f, "{a}:{b}"),
            Self::Large(a, b, c) => write!(f, "{a}:{b}:{c}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities() {
        for (text, community) in [
            ("65001:80", Community::Standard(65_001, 80)),
            ("65535:0", GRACEFUL_SHUTDOWN),
            ("4200000000:1:2", Community::Large(4_200_000_000, 1, 2)),
        ] {
            assert_eq!(text.parse(), Ok(community));
            assert_eq!(community.to_string(), text);
        }
        for text in [
            "",
            ":",
            "1",
            "1:",
            ":1",
            "1:65536",
            "65536:1",
            "1:2:",
            "1:2:4294967296",
            "1:2:3:4",
            "+1:2",
            "-1:2",
            "1: 2",
            "a:1",
        ] {
            assert_eq!(text.parse::<Community>(), Err(CommunityError), "{text}");
        }
    }
}
