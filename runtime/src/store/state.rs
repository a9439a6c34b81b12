//! What nodes tell, and its form in the store: JSON with a version. Values are bytes that anybody may have written: they are read within
//! bounds, and what is not exactly a value of ours is refused as a whole.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

/// Version of the values.
pub const VERSION: u32 = 1;
/// Longest state that is read or written, in bytes.
pub const STATE_BYTES_MAX: usize = 64 * 1024;
/// Longest value of medians that is read or written, in bytes.
pub const MEDIANS_BYTES_MAX: usize = 512 * 1024;
/// Prefixes a PoP tells medians of, at most.
pub const MEDIANS_MAX: usize = 4096;
/// Longest round trip that is one, in microseconds.
pub const RTT_US_MAX: u32 = 10_000_000;
/// Links, or regions, a state speaks of at most.
const LINKS_MAX: usize = 256;

/// What a node tells of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// [`VERSION`].
    pub version: u32,
    /// Its name in the topology.
    pub node: String,
    /// When this was told, in milliseconds since the Unix epoch by a clock that does not go back while the node runs: the same value is
    /// the same telling, and of two the greater is the later. 0 from a node that does not say.
    #[serde(default)]
    pub told_ms: u64,
    /// Whether it can do its work.
    pub ready: bool,
    /// Whether it takes on nothing new.
    pub draining: bool,
    /// What only its kind tells.
    pub role: Role,
}

/// What only one kind of node tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A PoP.
    Pop(PopState),
    /// A core relay.
    CoreRelay(CoreRelayState),
    /// A transceiver.
    Transceiver(TransceiverState),
    /// A GeoDNS node.
    #[serde(rename = "geodns")]
    GeoDns(GeoDnsState),
}

/// What a PoP tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PopState {
    /// Flows it holds.
    pub flows: u64,
    /// Flows it can hold: `flows_max` of all its workers.
    pub flows_max: u64,
    /// Its way to each region.
    pub links: Vec<LinkState>,
}

/// A PoP's way to one region.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkState {
    /// Name of the region.
    pub region: String,
    /// Whether any worker has a link there.
    pub up: bool,
    /// Round trip of the links that carry its uplink, by heartbeats: the median over workers. `None` while there is none.
    pub rtt_us: Option<u32>,
    /// Round trip to the region's transceivers and back, by Binding requests of clients and their answers: the least of the latest.
    pub owner_rtt_us: Option<u32>,
}

/// What a core relay tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreRelayState {
    /// Links of PoPs that are up.
    pub links: u64,
}

/// What a transceiver tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransceiverState {
    /// Sessions it holds.
    pub sessions: u64,
    /// Sessions it can hold.
    pub sessions_max: u64,
}

/// What a GeoDNS node tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeoDnsState {}

/// Round trips between one PoP and its clients, by their prefixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medians {
    /// [`VERSION`].
    pub version: u32,
    /// Name of the PoP.
    pub node: String,
    /// When this was told, in seconds since the Unix epoch.
    pub told_unix_s: u64,
    /// One entry for each prefix.
    pub prefixes: Vec<PrefixMedian>,
}

/// The median round trip of the clients of one prefix. In JSON an array: prefix, median in microseconds, clients, age in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(IpNet, u32, u32, u32)", into = "(IpNet, u32, u32, u32)")]
pub struct PrefixMedian {
    /// A /24 of IPv4 or a /48 of IPv6.
    pub prefix: IpNet,
    /// Median of the round trips of its clients, each the least of several, in microseconds.
    pub rtt_us: u32,
    /// Clients it is taken of.
    pub clients: u32,
    /// Age of the middle one of their samples when this was told, in seconds.
    pub age_s: u32,
}

impl From<(IpNet, u32, u32, u32)> for PrefixMedian {
    fn from((prefix, rtt_us, clients, age_s): (IpNet, u32, u32, u32)) -> Self {
        Self {
            prefix,
            rtt_us,
            clients,
            age_s,
        }
    }
}

impl From<PrefixMedian> for (IpNet, u32, u32, u32) {
    fn from(median: PrefixMedian) -> Self {
        (median.prefix, median.rtt_us, median.clients, median.age_s)
    }
}

/// What a node has to tell at one moment.
#[derive(Clone, Debug)]
pub struct Told {
    /// See [`NodeState::ready`].
    pub ready: bool,
    /// See [`NodeState::draining`].
    pub draining: bool,
    /// See [`NodeState::role`].
    pub role: Role,
}

/// Why a value is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Longer than any value of ours.
    #[error("too long")]
    TooLong,
    /// Not the JSON it should be.
    #[error("no such JSON")]
    Json,
    /// Of another version.
    #[error("another version")]
    Version,
    /// It names another node than its key.
    #[error("another node")]
    Node,
    /// A figure or a number of entries that cannot be.
    #[error("out of bounds")]
    Bounds,
}

impl Unreadable {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::TooLong,
        Self::Json,
        Self::Version,
        Self::Node,
        Self::Bounds,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLong => "too_long",
            Self::Json => "json",
            Self::Version => "version",
            Self::Node => "node",
            Self::Bounds => "bounds",
        }
    }
}

/// Read before the rest, so that a value of another version is told apart from garbage.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

impl NodeState {
    pub(super) fn of(node: &str, told: Told, told_ms: u64) -> Self {
        Self {
            version: VERSION,
            node: node.to_owned(),
            told_ms,
            ready: told.ready,
            draining: told.draining,
            role: told.role,
        }
    }

    /// Reads the value under the key of `node`.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn parse(value: &[u8], node: &str) -> Result<Self, Unreadable> {
        let state: Self = json(value, STATE_BYTES_MAX)?;
        if state.node != node {
            return Err(Unreadable::Node);
        }
        if let Role::Pop(pop) = &state.role {
            let rtts = pop.links.iter().flat_map(|l| [l.rtt_us, l.owner_rtt_us]);
            if pop.links.len() > LINKS_MAX || rtts.flatten().any(|rtt| rtt > RTT_US_MAX) {
                return Err(Unreadable::Bounds);
            }
        }
        Ok(state)
    }
}

impl Medians {
    pub(super) fn of(node: &str, mut prefixes: Vec<PrefixMedian>, told_unix_s: u64) -> Self {
        prefixes.truncate(MEDIANS_MAX);
        Self {
            version: VERSION,
            node: node.to_owned(),
            told_unix_s,
            prefixes,
        }
    }

    /// Reads the value under the key of `node`.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn parse(value: &[u8], node: &str) -> Result<Self, Unreadable> {
        let medians: Self = json(value, MEDIANS_BYTES_MAX)?;
        if medians.node != node {
            return Err(Unreadable::Node);
        }
        if medians.prefixes.len() > MEDIANS_MAX
            || !medians.prefixes.iter().all(PrefixMedian::is_sound)
        {
            return Err(Unreadable::Bounds);
        }
        Ok(medians)
    }
}

impl PrefixMedian {
    fn is_sound(&self) -> bool {
        let whole = match self.prefix {
            IpNet::V4(net) => {
                net.prefix_len() == 24 && net.addr() & HOSTS_V4 == Ipv4Addr::UNSPECIFIED
            }
            IpNet::V6(net) => {
                net.prefix_len() == 48 && net.addr() & HOSTS_V6 == Ipv6Addr::UNSPECIFIED
            }
        };
        whole && (1..=RTT_US_MAX).contains(&self.rtt_us) && self.clients > 0
    }
}

const HOSTS_V4: Ipv4Addr = Ipv4Addr::new(0, 0, 0, 255);
const HOSTS_V6: Ipv6Addr = Ipv6Addr::from_bits((1 << 80) - 1);

fn json<T: for<'a> Deserialize<'a>>(value: &[u8], bytes_max: usize) -> Result<T, Unreadable> {
    if value.len() > bytes_max {
        return Err(Unreadable::TooLong);
    }
    let Version { version } = serde_json::from_slice(value).map_err(|_| Unreadable::Json)?;
    if version != VERSION {
        return Err(Unreadable::Version);
    }
    serde_json::from_slice(value).map_err(|_| Unreadable::Json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop() -> NodeState {
        let links = vec![LinkState {
            region: "eu".to_owned(),
            up: true,
            rtt_us: Some(12_000),
            owner_rtt_us: None,
        }];
        let told = Told {
            ready: true,
            draining: false,
            role: Role::Pop(PopState {
                flows: 7,
                flows_max: 100,
                links,
            }),
        };
        NodeState::of("p1", told, 1_700_000_000_000)
    }

    #[test]
    fn a_state_has_this_form() {
        let text = r#"{"version":1,"node":"p1","told_ms":1700000000000,"ready":true,"draining":false,"role":{"pop":{"flows":7,"flows_max":100,"links":[{"region":"eu","up":true,"rtt_us":12000,"owner_rtt_us":null}]}}}"#;
        assert_eq!(serde_json::to_string(&pop()).unwrap(), text);
        assert_eq!(NodeState::parse(text.as_bytes(), "p1"), Ok(pop()));
        // An earlier release tells less, a later one may tell more.
        let less = text.replace("\"told_ms\":1700000000000,", "");
        let told = NodeState {
            told_ms: 0,
            ..pop()
        };
        assert_eq!(NodeState::parse(less.as_bytes(), "p1"), Ok(told));
        let more = text.replace("\"flows\":7", "\"flows\":7,\"more\":[1]");
        assert_eq!(NodeState::parse(more.as_bytes(), "p1"), Ok(pop()));
    }

    #[test]
    fn what_is_no_state_is_refused_by_reason() {
        let good = serde_json::to_string(&pop()).unwrap();
        let slow = good.replace("12000", "10000001");
        for (value, reason) in [
            (String::new(), Unreadable::Json),
            ("[".repeat(10_000), Unreadable::Json),
            ("null".to_owned(), Unreadable::Json),
            ("{\"version\":1}".to_owned(), Unreadable::Json),
            ("{\"version\":2}".to_owned(), Unreadable::Version),
            ("{\"version\":-1}".to_owned(), Unreadable::Json),
            (good.replace("p1", "p2"), Unreadable::Node),
            (slow, Unreadable::Bounds),
            (" ".repeat(STATE_BYTES_MAX + 1), Unreadable::TooLong),
        ] {
            assert_eq!(NodeState::parse(value.as_bytes(), "p1"), Err(reason));
        }
    }

    #[test]
    fn medians_are_of_whole_prefixes_within_bounds() {
        let parse = |prefixes: &str| {
            let text =
                format!(r#"{{"version":1,"node":"p1","told_unix_s":9,"prefixes":[{prefixes}]}}"#);
            Medians::parse(text.as_bytes(), "p1").map(|medians| medians.prefixes)
        };
        let good = parse(r#"["192.0.2.0/24",23400,25,60],["2001:db8:1::/48",1,1,0]"#).unwrap();
        assert_eq!(good.len(), 2);
        assert_eq!(
            (good[0].rtt_us, good[0].clients, good[0].age_s),
            (23_400, 25, 60)
        );
        let again = serde_json::to_vec(&Medians::of("p1", good.clone(), 9)).unwrap();
        assert_eq!(Medians::parse(&again, "p1").unwrap().prefixes, good);
        for (bad, reason) in [
            (r#"["192.0.2.1/24",1,1,0]"#, Unreadable::Bounds),
            (r#"["192.0.2.0/25",1,1,0]"#, Unreadable::Bounds),
            (r#"["2001:db8::1/48",1,1,0]"#, Unreadable::Bounds),
            (r#"["192.0.2.0/24",0,1,0]"#, Unreadable::Bounds),
            (r#"["192.0.2.0/24",10000001,1,0]"#, Unreadable::Bounds),
            (r#"["192.0.2.0/24",1,0,0]"#, Unreadable::Bounds),
            (r#"["192.0.2.0/33",1,1,0]"#, Unreadable::Json),
            (r#"["192.0.2.0/24",1,1]"#, Unreadable::Json),
        ] {
            assert_eq!(parse(bad), Err(reason), "{bad}");
        }
        let many = vec![r#"["192.0.2.0/24",1,1,0]"#; MEDIANS_MAX + 1].join(",");
        assert_eq!(parse(&many), Err(Unreadable::Bounds));
    }
}
