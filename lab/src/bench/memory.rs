//! What a flow costs a PoP in memory: its resident size with many committed flows, less what it had with next to none.
//!
//! Every flow is real: its client sends a connectivity check through PoP and core relay, and the answer of the far end commits
//! it. The clients share one socket, so that this process holds no million of anything.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde::Serialize;
use topology::Datagrams;

use crate::bench::processor;
use crate::bench::round_trips::{Dialect, Load};
use crate::bench::world::{ENDS, World};
use crate::process::Usage;
use crate::wait;

/// Numbers of flows, ascending.
pub const FLOWS: [u32; 3] = [10_000, 100_000, 1_000_000];
/// Flows of the size that is subtracted: buffers that every packet uses have been used by then.
const FLOWS_FIRST: u32 = 256;
/// Room for all of them.
const FLOWS_MAX: u32 = 1 << 20;
/// How long metrics may lag behind.
const METRICS_MAX: Duration = Duration::from_secs(3);
/// Flows the PoP knows.
const METRIC: &str = "firsthop_pop_flows";

/// With one number of flows.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// Committed flows.
    pub flows: u32,
    /// Resident size of the PoP.
    pub pop_rss_bytes: u64,
    /// Resident size of the core relay, which keeps nothing about a flow.
    pub core_relay_rss_bytes: u64,
    /// What the PoP has grown by, for each flow.
    pub bytes_per_flow: f64,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// Resident size of the PoP with next to no flow.
    pub pop_rss_bytes_empty: u64,
    /// One for each number of flows.
    pub rows: Vec<Row>,
    /// Bytes of PoP memory for a flow when there are a million.
    pub bytes_per_flow_1m: Option<f64>,
}

impl Memory {
    /// What sums it up, by the names of the JSON object.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![("bytes_per_flow_1m", self.bytes_per_flow_1m)]
    }
}

/// Fills one PoP step by step.
///
/// # Errors
/// A program is not built, or this machine is so slow that the first flows expire before the last ones are there.
pub fn run(counts: &[u32]) -> anyhow::Result<Memory> {
    let world = World::start(Datagrams::Packed, |topology| {
        for pop in &mut topology.pops {
            pop.flows_max = FLOWS_MAX;
        }
    })?;
    processor::pin(ENDS)?;
    let dialect = Dialect::Hint {
        ufrags: world.ufrags().to_vec(),
    };
    let to = world.ingress();
    let World {
        network,
        mut far_end,
        ..
    } = world;
    let all = counts.last().copied().unwrap_or_default().max(FLOWS_FIRST);
    let mut load = Load::open(all, to, dialect, &mut far_end)?;
    load.join_range(0, FLOWS_FIRST)?;
    let (pop, core_relay) = (network.pid("p1")?, network.pid("r1")?);
    let empty = Usage::of(pop)?.rss_bytes;
    let mut joined = FLOWS_FIRST;
    let mut rows = Vec::with_capacity(counts.len());
    for flows in counts.iter().copied() {
        load.join_range(joined, flows - joined)?;
        joined = flows;
        let known = || -> anyhow::Result<f64> { Ok(network.metrics("p1")?.sum(METRIC, &[])) };
        let what = format!("a PoP that knows {flows} flows");
        wait::until_true(&what, METRICS_MAX, || {
            known().is_ok_and(|known| known == f64::from(flows))
        })
        .with_context(|| format!("it knows {}", known().unwrap_or_default()))?;
        let pop_rss_bytes = Usage::of(pop)?.rss_bytes;
        ensure!(pop_rss_bytes >= empty, "{flows} flows take less than none");
        rows.push(Row {
            flows,
            pop_rss_bytes,
            core_relay_rss_bytes: Usage::of(core_relay)?.rss_bytes,
            bytes_per_flow: (pop_rss_bytes - empty) as f64 / f64::from(flows - FLOWS_FIRST),
        });
    }
    let million = rows.iter().find(|row| row.flows == 1_000_000);
    Ok(Memory {
        pop_rss_bytes_empty: empty,
        bytes_per_flow_1m: million.map(|row| row.bytes_per_flow),
        rows,
    })
}
