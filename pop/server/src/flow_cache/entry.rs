//! One entry of the cache: its key, its value, and the commands that read and write it.
//!
//! ```text
//! key    "firsthop:flow:" + 16 bytes, the keyed hash of client and ingress
//! value  17 bytes, sealed (wire::flow_record)
//! ```
//!
//! Values are read with GETRANGE: whatever somebody put under the key, no more than a value and one byte comes back. An entry is
//! deleted by a script that compares first: what another PoP has stored since it was read stays.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pop_proto::Answer;
use runtime::clock;
use runtime::node::ConfigHandle;
use runtime::redis_client::{Cmd, cmd};
use wire::Owner;
use wire::flow_record::{FlowId, FlowRecord, LookupKey, VALUE_LEN};
use wire::hint::{KeyRing, Minute};

use crate::flow_cache::queues::Place;

/// What every key begins with; an ACL names it.
pub(crate) const PREFIX: &[u8] = b"firsthop:flow:";
/// Deletes a key whose value is the one given. It runs as one step, so no store comes between.
const DELETE_IF_SAME: &str = "if redis.call('GETRANGE', KEYS[1], 0, ARGV[2]) == ARGV[1] then \
    return redis.call('DEL', KEYS[1]) end return 0";
/// A value says when it was written; clocks of PoPs may differ by so much.
const SKEW_MIN: i16 = 10;

/// What entries are made with: the live keys, and the addresses clients speak to.
#[derive(Clone)]
pub(crate) struct Entries {
    keys: Arc<KeyRing>,
    ingress: Arc<[SocketAddr]>,
    ttl: Duration,
}

/// What a value under a live key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// Not ours, damaged, of another client, or older than an entry lives.
    Bad,
    Record(FlowRecord),
}

impl Entries {
    pub(crate) fn new(config: &ConfigHandle, ingress: Arc<[SocketAddr]>, ttl: Duration) -> Self {
        let keys = Arc::clone(&config.load().credentials.hint_keys);
        Self::of(keys, ingress, ttl)
    }

    pub(crate) fn of(keys: Arc<KeyRing>, ingress: Arc<[SocketAddr]>, ttl: Duration) -> Self {
        Self { keys, ingress, ttl }
    }

    /// Follows a rotation of the keys.
    pub(crate) fn reload(&mut self, config: &ConfigHandle) {
        self.keys = Arc::clone(&config.load().credentials.hint_keys);
    }

    fn flow(&self, place: Place) -> Option<FlowId> {
        let vip = *self.ingress.get(usize::from(place.ingress))?;
        let client = place.client;
        Some(FlowId { client, vip })
    }

    /// One read for each live key, the current one first.
    pub(crate) fn reads(&self, place: Place) -> Vec<Cmd> {
        let Some(flow) = self.flow(place) else {
            return Vec::new();
        };
        let read = |key| {
            let mut cmd = cmd("GETRANGE");
            cmd.arg(name(key)).arg(0).arg(VALUE_LEN);
            cmd
        };
        self.keys.flow_lookups(flow).map(read).collect()
    }

    /// Deletes what the live keys hold where it still is what was read: `values` in the order of [`Self::reads`], `None` for what is to stay.
    pub(crate) fn deletions(&self, place: Place, values: &[Option<&[u8]>]) -> Vec<Cmd> {
        let Some(flow) = self.flow(place) else {
            return Vec::new();
        };
        let keys = self.keys.flow_lookups(flow).zip(values);
        keys.filter_map(|(key, value)| {
            let mut cmd = cmd("EVAL");
            cmd.arg(DELETE_IF_SAME).arg(1).arg(name(key));
            cmd.arg((*value)?).arg(VALUE_LEN);
            Some(cmd)
        })
        .collect()
    }

    pub(crate) fn store(&self, place: Place, owner: Owner) -> Option<Cmd> {
        let flow = self.flow(place)?;
        let seen = Minute::from_unix_s(clock::unix_s());
        let value = self.keys.seal_flow(flow, FlowRecord { owner, seen });
        let mut cmd = cmd("SET");
        cmd.arg(name(self.keys.flow_lookup(flow)))
            .arg(&value.0[..])
            .arg("EX")
            .arg(self.ttl.as_secs());
        Some(cmd)
    }

    /// What the bytes that one of [`Self::reads`] returned say at `now`.
    pub(crate) fn open(&self, place: Place, value: &[u8], now: Minute) -> Found {
        if value.is_empty() {
            return Found::Nothing;
        }
        let record = self
            .flow(place)
            .and_then(|flow| self.keys.open_flow(flow, value).ok());
        // A value that was copied and put back is as old as it says.
        let age_max = i16::try_from(self.ttl.as_secs().div_ceil(60)).unwrap_or(i16::MAX);
        let ages = -SKEW_MIN..=age_max.saturating_add(SKEW_MIN);
        match record {
            Some(record) if ages.contains(&record.seen.age_at(now)) => Found::Record(record),
            Some(_) | None => Found::Bad,
        }
    }
}

/// Of what several keys hold, the youngest record; with equal ages that of the key tried first.
pub(crate) fn best(found: impl Iterator<Item = Found>, now: Minute) -> (Answer, bool) {
    let (mut best, mut bad): (Option<FlowRecord>, bool) = (None, false);
    for found in found {
        match found {
            Found::Nothing => {}
            Found::Bad => bad = true,
            Found::Record(record) => {
                if best.is_none_or(|best| record.seen.age_at(now) < best.seen.age_at(now)) {
                    best = Some(record);
                }
            }
        }
    }
    (
        best.map_or(Answer::Unknown, |record| Answer::Owner(record.owner)),
        bad,
    )
}

fn name(key: LookupKey) -> Vec<u8> {
    [PREFIX, &key.0].concat()
}
