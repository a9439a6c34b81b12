//! The state store: what every node tells of itself, for whoever steers clients. Redis for a fleet (`network.state`); without one, nodes
//! that share a process know each other through a [`Hub`].
//!
//! ```text
//!  pop, core relay, transceiver ── publish() ── SET key value EX ttl ──► Redis ──► watch() ── geodns
//!                                       (or Hub, in one process)
//!
//!  firsthop:state:NETWORK:NODE   a NodeState, every interval_ms, for ttl_s
//!  firsthop:rtt:NETWORK:POP      the Medians of a PoP, every 30 intervals, for steering.measured.age_max_s
//! ```
//!
//! Everything runs on the control runtime; nothing of a node waits for it. A store that is slow, full, wrong or gone changes nothing: who
//! tells tries again, who watches keeps what it knew, and how old that is.
//!
//! What is not here: what the figures mean (`pop`, `core-relay`, `transceiver` fill them in, `geodns` uses them); connections ([`crate::redis_client`]).

pub mod fuzz;
mod hub;
mod metrics;
mod publish;
mod reading;
mod state;
mod watch;

pub use hub::Hub;
pub use publish::{Publication, Tell, publish};
pub use reading::{Seen, States};
pub use state::{
    CoreRelayState, GeoDnsState, LinkState, MEDIANS_BYTES_MAX, MEDIANS_MAX, Medians, NodeState,
    PopState, PrefixMedian, RTT_US_MAX, Role, STATE_BYTES_MAX, Told, TransceiverState, Unreadable,
    VERSION,
};
pub use watch::{Watch, watch};

use std::time::Duration;

use topology::Topology;

/// What every key of a node's state begins with; an ACL names it.
pub const STATE_PREFIX: &str = "firsthop:state:";
/// The same for medians.
pub const MEDIANS_PREFIX: &str = "firsthop:rtt:";
/// Intervals between two tellings, and two readings, of medians.
const MEDIANS_EVERY: u32 = 30;
/// Longest wait before the store is tried again, before jitter.
const BACKOFF_LONGEST: Duration = Duration::from_secs(2);
/// Without a store: how often nodes of one process tell their state, and how long it counts.
const HUB_INTERVAL: Duration = Duration::from_secs(1);
const HUB_TTL: Duration = Duration::from_secs(10);

fn state_key(topology: &Topology, node: &str) -> String {
    format!("{STATE_PREFIX}{}:{node}", topology.network.name)
}

fn medians_key(topology: &Topology, pop: &str) -> String {
    format!("{MEDIANS_PREFIX}{}:{pop}", topology.network.name)
}

fn interval(topology: &Topology) -> Duration {
    let store = topology.network.state.as_ref();
    store.map_or(HUB_INTERVAL, |store| {
        Duration::from_millis(store.interval_ms.into())
    })
}
