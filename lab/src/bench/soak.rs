//! A long run at half of what the machine can do, with flows that come and go: memory stays as it is, and no counter of loss
//! moves.
//!
//! ```text
//! commit flows ─► raise the rate until packets are lost (saturation) ─► half of that, for minutes, with churn ─► verdict
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use runtime::clock;
use serde::Serialize;
use wire::TransceiverId;

use super::far_end::FarEnd;
use super::world::PATH;
use crate::net::{Network, Shape};
use crate::siege::{Calls, Echo, Figures, Hints};

/// Flows at a time.
const FLOWS: usize = 10_000;
/// Flows that end a second, as many new ones come.
const CHURN_PER_S: u64 = 100;
/// The search for saturation: from this rate up by one in so many, each for this long.
const SEARCH_FROM_PER_S: u64 = 20_000;
const SEARCH_STEP: u64 = 4;
const SEARCH_TIME: Duration = Duration::from_millis(700);
const SEARCH_STEPS_MAX: usize = 20;
/// A rate of which more is lost, or less of it sent, is beyond saturation.
const LOSS_MAX: f64 = 0.002;
const SENT_MIN: f64 = 0.95;
/// Memory is looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Growth of memory in the second half that is none: a share, or pages that are touched for the first time.
const GROWTH_MAX: f64 = 0.01;
const GROWTH_BYTES_MAX: u64 = 512 << 10;
/// Nodes that are watched.
const NODES: [&str; 2] = ["p1", "r1"];

/// How long.
#[derive(Clone, Copy, Debug, Args)]
pub struct SoakArguments {
    /// Minutes at half of saturation
    #[arg(long, default_value_t = 10.0)]
    pub minutes: f64,
    /// One JSON object instead of lines for people
    #[arg(long)]
    pub json: bool,
}

/// What came of it.
#[derive(Debug, Serialize)]
pub struct SoakReport {
    /// Packets a second, each way, that PoP and core relay on one processor carried without loss.
    pub saturation_per_s: u64,
    /// Packets a second asked for during the soak.
    pub packets_per_s: u64,
    /// Flows at a time.
    pub flows: usize,
    /// Flows that ended a second.
    pub churn_per_s: u64,
    /// How long.
    pub seconds: f64,
    /// What the clients saw.
    pub calls: Figures,
    /// Packets whose echo did not come.
    pub lost: u64,
    /// Flows the PoP was told had ended.
    pub flows_ended: f64,
    /// Growth of each node's memory from the first half to the second.
    pub growth: BTreeMap<&'static str, Growth>,
    /// Counters of loss that moved, by node and name, and by how much.
    pub losses: BTreeMap<String, f64>,
}

/// Resident memory of a node, the most of each half.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Growth {
    /// In the first half, once flows have churned for a tenth of it.
    pub first_bytes: u64,
    /// In the second half.
    pub second_bytes: u64,
}

impl Growth {
    /// Whether memory stayed as it was.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        let grown = self.second_bytes.saturating_sub(self.first_bytes);
        grown <= GROWTH_BYTES_MAX || grown as f64 <= self.first_bytes as f64 * GROWTH_MAX
    }
}

impl SoakReport {
    /// Whether memory is flat and no counter of loss moved.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.growth.values().all(Growth::is_flat) && self.losses.is_empty() && self.lost == 0
    }
}

/// Runs it. The network's programs share one processor; whoever feeds and drains them has the others.
///
/// # Errors
/// A program does not come up, or nothing passes at all.
pub fn run(soak: Duration) -> anyhow::Result<SoakReport> {
    let shape = Shape {
        core_relays: 1,
        processor: Some(PATH),
        ..Shape::default()
    };
    let mut network = Network::prepare(&shape, |_| {})?;
    for node in ["r1", "p1"] {
        network.start_node(node)?;
    }
    let echo = Echo::start(FarEnd::bind(network.topology(), "t1")?);
    let mut hints = Hints::of(&network, TransceiverId(1))?;
    let mut calls = Calls::open(FLOWS, network.ingress("p1"), &mut hints)?;
    calls.commit()?;
    let saturation_per_s = saturation(&mut calls)?;
    let packets_per_s = saturation_per_s / 2;
    let before = Counters::of(&network)?;
    let began = clock::now();
    let mut memory = Memory::new(began, soak);
    let figures = calls.talk_and_churn(packets_per_s, CHURN_PER_S, &mut hints, |now| {
        memory.look(&network, now);
        now >= began + soak
    })?;
    let after = Counters::of(&network)?;
    drop(echo);
    Ok(SoakReport {
        saturation_per_s,
        packets_per_s,
        flows: FLOWS,
        churn_per_s: CHURN_PER_S,
        seconds: soak.as_secs_f64(),
        calls: figures,
        lost: figures.lost(),
        flows_ended: after.ended - before.ended,
        growth: memory.growth,
        losses: after.moved(&before),
    })
}

/// The highest rate tried of which hardly anything is lost. A rate is beyond saturation when it fails twice: once may be the
/// machine's doing.
fn saturation(calls: &mut Calls) -> anyhow::Result<u64> {
    let mut best = None;
    let mut per_s = SEARCH_FROM_PER_S;
    for _ in 0..SEARCH_STEPS_MAX {
        if !(carries(calls, per_s)? || carries(calls, per_s)?) {
            break;
        }
        best = Some(per_s);
        per_s += per_s / SEARCH_STEP;
    }
    best.context("packets are lost at the lowest rate already")
}

fn carries(calls: &mut Calls, per_s: u64) -> anyhow::Result<bool> {
    let end = clock::now() + SEARCH_TIME;
    let figures = calls.talk_at(per_s, |now| now >= end)?;
    let asked = per_s as f64 * SEARCH_TIME.as_secs_f64();
    let lost = figures.lost() as f64 / figures.sent.max(1) as f64;
    Ok(lost <= LOSS_MAX && figures.sent as f64 >= asked * SENT_MIN)
}

/// Looks at memory while the soak runs.
struct Memory {
    began: Instant,
    soak: Duration,
    look_at: Instant,
    growth: BTreeMap<&'static str, Growth>,
}

impl Memory {
    fn new(began: Instant, soak: Duration) -> Self {
        Self {
            began,
            soak,
            look_at: began + soak / 20,
            growth: NODES.map(|node| (node, Growth::default())).into(),
        }
    }

    fn look(&mut self, network: &Network, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now + LOOK_INTERVAL;
        let first_half = now < self.began + self.soak / 2;
        for (node, growth) in &mut self.growth {
            // A node that has gone fails the run elsewhere.
            let bytes = network
                .usage(node)
                .map_or(u64::MAX, |usage| usage.rss_bytes);
            let most = if first_half {
                &mut growth.first_bytes
            } else {
                &mut growth.second_bytes
            };
            *most = bytes.max(*most);
        }
    }
}

/// Totals of what is lost, by node and name.
struct Counters {
    losses: BTreeMap<String, f64>,
    ended: f64,
}

impl Counters {
    fn of(network: &Network) -> anyhow::Result<Self> {
        let mut losses = BTreeMap::new();
        let mut ended = 0.0;
        for node in NODES {
            let metrics = network.metrics(node)?;
            ended += metrics.sum("firsthop_pop_flows_ended_total", &[]);
            for name in ["pop_drops", "core_relay_drops"] {
                let name = format!("firsthop_{name}_total");
                for (reason, drops) in metrics.by_label(&name, "reason") {
                    losses.insert(format!("{node} {reason}"), drops);
                }
            }
            for name in [
                "udp_rcvbuf_errors",
                "pop_backbone_send_failures",
                "core_relay_link_send_failures",
                "pop_link_downs",
                "worker_stalls",
            ] {
                let total = metrics.sum(&format!("firsthop_{name}_total"), &[]);
                losses.insert(format!("{node} {name}"), total);
            }
        }
        Ok(Self { losses, ended })
    }

    fn moved(&self, before: &Self) -> BTreeMap<String, f64> {
        let moved = self.losses.iter().map(|(name, total)| {
            let before = before.losses.get(name).copied().unwrap_or(0.0);
            (name.clone(), total - before)
        });
        moved.filter(|(_, more)| *more > 0.0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_grows_is_not_flat() {
        let flat = |first_bytes, second_bytes| {
            let growth = Growth {
                first_bytes,
                second_bytes,
            };
            growth.is_flat()
        };
        assert!(flat(10 << 20, 10 << 20) && flat(10 << 20, (10 << 20) + 4096));
        assert!(flat(10 << 20, 5 << 20));
        assert!(!flat(10 << 20, 11 << 20));
        assert!(flat(1 << 30, (1 << 30) + (5 << 20)));
        assert!(!flat(1 << 30, (1 << 30) + (20 << 20)));
    }
}
