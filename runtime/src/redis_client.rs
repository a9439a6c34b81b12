//! Redis as nodes use it: one connection to one server or a Cluster, closed lists of what can go wrong, and how long to wait before the
//! next attempt.
//!
//! Here and below is the only place that knows crate `redis`. What is not here: what is kept there. That is the flow cache's (`pop`) and the state store's
//! ([`crate::store`]).

mod backoff;
mod connection;
mod trouble;

pub use backoff::Backoff;
pub use connection::{Connection, PATIENCE, Said};
pub use redis::{Cmd, Value, cmd};
pub use trouble::{Refusal, Trouble};

use topology::{FailoverGroup, RedisUrl, StateStore};

/// Where a connection leads.
#[derive(Clone, Copy, Debug)]
pub struct Servers<'a> {
    /// Tried in this order; of a Cluster, any of its nodes.
    pub redis: &'a [RedisUrl],
    /// Whether they are one Cluster.
    pub cluster: bool,
}

impl<'a> From<&'a FailoverGroup> for Servers<'a> {
    fn from(group: &'a FailoverGroup) -> Self {
        Self {
            redis: &group.redis,
            cluster: group.cluster,
        }
    }
}

impl<'a> Servers<'a> {
    /// Those of a state store that are told and asked side by side: each server by itself, or the whole Cluster.
    pub fn of_state(store: &'a StateStore) -> impl Iterator<Item = Self> {
        let size = if store.cluster {
            store.redis.len().max(1)
        } else {
            1
        };
        store.redis.chunks(size).map(|redis| Self {
            redis,
            cluster: store.cluster,
        })
    }
}
