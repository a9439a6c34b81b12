//! How a region and an ingress are chosen for a client: rules and the constants of the score.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::failover::RedisUrl;

/// Rules and constants of steering. Evidence, strongest first: rule by CIDR, rule by ASN, rule by country, rule by continent,
/// measured round trips, distance, continent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Steering {
    /// What the administrator says of some clients. Of the rules that match by the same kind of evidence the most specific, then the first, counts.
    pub rules: Vec<Rule>,
    /// Candidates this close to the best are equals, and share clients by weight, in milliseconds. 0..=100.
    #[schemars(range(max = 100))]
    pub equal_within_ms: u32,
    /// When measured round trips move clients.
    pub hysteresis: Hysteresis,
    /// What counts as measured.
    pub measured: Measured,
    /// How load makes a candidate less wanted.
    pub load: Load,
    /// How long an answer of `POST /v1/steer` may be kept, in seconds. 1..=3600.
    #[schemars(range(min = 1, max = 3_600))]
    pub ttl_s: u32,
    /// How long signaling waits for steering before it answers without, in milliseconds. 5..=1000.
    #[schemars(range(min = 5, max = 1_000))]
    pub timeout_ms: u32,
    /// Age at which a geolocation database is reported as old, in days. 1..=3650.
    #[schemars(range(min = 1, max = 3_650))]
    pub database_age_max_days: u32,
}

/// What the administrator says of some clients. At least one of `cidrs`, `asns`, `countries` and `continents` is given, and a client
/// that matches any entry of any of them matches the rule.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Unique name, shown by `explain`.
    pub name: String,
    /// Client prefixes; the longest that matches counts.
    #[schemars(with = "Vec<String>")]
    #[serde(default)]
    pub cidrs: Vec<IpNet>,
    /// Autonomous system numbers.
    #[serde(default)]
    pub asns: Vec<u32>,
    /// Countries, ISO 3166-1 alpha-2.
    #[serde(default)]
    pub countries: Vec<String>,
    /// Continents: AF, AN, AS, EU, NA, OC, SA.
    #[serde(default)]
    pub continents: Vec<Continent>,
    /// Regions in this order, before all others.
    #[serde(default)]
    pub regions: Vec<String>,
    /// PoPs in this order, before all others.
    #[serde(default)]
    pub pops: Vec<String>,
    /// Regions and PoPs that come last for these clients.
    #[serde(default)]
    pub avoid: Vec<String>,
    /// Only regions of this residency may be chosen, whatever their state.
    #[serde(default)]
    pub residency: Option<String>,
}

/// Continents as geolocation databases name them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum Continent {
    /// Africa.
    Af,
    /// Antarctica.
    An,
    /// Asia.
    As,
    /// Europe.
    Eu,
    /// North America.
    Na,
    /// Oceania.
    Oc,
    /// South America.
    Sa,
}

/// When measured round trips move clients from the candidate they have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Hysteresis {
    /// The other must be better by this, in milliseconds, ... 0..=1000.
    #[schemars(range(max = 1_000))]
    pub better_by_ms: u32,
    /// ... for this long, in seconds. 0..=86400.
    #[schemars(range(max = 86_400))]
    pub hold_s: u32,
}

/// What counts as measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Measured {
    /// Clients a median is taken of, at least. 1..=64: a PoP keeps no more of one prefix.
    #[schemars(range(min = 1, max = 64))]
    pub samples_min: u32,
    /// Age at which a median is forgotten, in seconds. 60..=604800.
    #[schemars(range(min = 60, max = 604_800))]
    pub age_max_s: u32,
    /// Share of clients that are sent to a candidate other than the best, so that it is measured at all, in thousandths. 0..=100.
    #[schemars(range(max = 100))]
    pub explore_permille: u32,
}

/// How load makes a candidate less wanted: nothing below `soft_percent` of its capacity, then linearly up to `penalty_ms` at
/// `full_percent`, and from there it is a candidate only when all others are full too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Load from which the penalty grows, in percent. 0..=100.
    #[schemars(range(max = 100))]
    pub soft_percent: u32,
    /// Load at which a candidate is full, in percent; above `soft_percent`. 1..=200.
    #[schemars(range(min = 1, max = 200))]
    pub full_percent: u32,
    /// Penalty at that load, in milliseconds. 0..=1000.
    #[schemars(range(max = 1_000))]
    pub penalty_ms: u32,
}

/// The Redis that nodes tell their live state to: health, drains, load, round trips. Without one each program knows itself alone.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateStore {
    /// Redis servers, `redis://HOST:PORT` or `rediss://HOST:PORT` for TLS, 1..=16, as for a failover group.
    #[schemars(length(min = 1, max = 16))]
    pub redis: Vec<RedisUrl>,
    /// Whether they are one Redis Cluster.
    #[serde(default)]
    pub cluster: bool,
    /// How often a node tells its state, in milliseconds. 100..=60000.
    #[schemars(range(min = 100, max = 60_000))]
    #[serde(default = "default_interval_ms")]
    pub interval_ms: u32,
    /// How long a state that is not told again counts, in seconds. 1..=3600; at least three intervals.
    #[schemars(range(min = 1, max = 3_600))]
    #[serde(default = "default_state_ttl_s")]
    pub ttl_s: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            equal_within_ms: 3,
            hysteresis: Hysteresis::default(),
            measured: Measured::default(),
            load: Load::default(),
            ttl_s: 30,
            timeout_ms: 50,
            database_age_max_days: 45,
        }
    }
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self {
            better_by_ms: 10,
            hold_s: 300,
        }
    }
}

impl Default for Measured {
    fn default() -> Self {
        Self {
            samples_min: 20,
            age_max_s: 86_400,
            explore_permille: 10,
        }
    }
}

impl Default for Load {
    fn default() -> Self {
        Self {
            soft_percent: 70,
            full_percent: 95,
            penalty_ms: 50,
        }
    }
}

const fn default_interval_ms() -> u32 {
    1_000
}
const fn default_state_ttl_s() -> u32 {
    10
}
