//! The benchmark of the packet path: its parts, in order, each of which can run alone, and the figures that sum it up.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

use super::closed_loop::Direction;
use super::latency::{self, Latency};
use super::path::{Path, Variant};
use super::saturation::{self, CLIENTS, Saturation};
use super::{memory, processor, recovery, round_trips, table, world};

/// What can run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Cost of a packet at saturation
    Saturation,
    /// Delay at 10,000 and 50,000 packets a second
    Latency,
    /// Bytes of a flow, with 10,000 to a million of them
    Memory,
    /// Silence of calls when a program is killed
    Recovery,
    /// Round trips a second, against relays from Debian and a user-space WireGuard tunnel where they are installed
    RoundTrips,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::Saturation,
        Self::Latency,
        Self::Memory,
        Self::Recovery,
        Self::RoundTrips,
    ];
}

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// One part; `None` is all.
    pub only: Option<Part>,
    /// How often each measurement is made; what is reported is the median.
    pub rounds: usize,
    /// How long each takes.
    pub measured: Duration,
    /// `busy_poll_us` of our own workers where saturation and delay are measured.
    pub busy_poll_us: u32,
}

/// What a part has found.
pub struct Findings {
    /// The figures that sum it up, as fields of the JSON object.
    pub figures: Vec<(&'static str, Option<f64>)>,
    /// Everything else, as one more field.
    pub details: (&'static str, Value),
    /// For people.
    pub table: String,
}

/// Runs the parts and returns all there is: the JSON object and the text.
///
/// # Errors
/// A program is missing, does not start, or fails.
pub fn run(options: &Options) -> anyhow::Result<(Value, String)> {
    let (mut object, mut text) = (Map::new(), String::new());
    for part in Part::ALL {
        if options.only.is_some_and(|only| only != part) {
            continue;
        }
        let found = on_a_thread(|| run_part(part, options))?;
        for (name, figure) in found.figures {
            object.insert(name.to_owned(), figure.into());
        }
        let (name, details) = found.details;
        object.insert(name.to_owned(), details);
        text.push_str(&found.table);
    }
    text.push_str(&summary(&object));
    Ok((object.into(), text))
}

/// What a part changes about its thread ends with it, as do the processes it started.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

fn run_part(part: Part, options: &Options) -> anyhow::Result<Findings> {
    let (rounds, measured) = (options.rounds, options.measured);
    match part {
        Part::Saturation => {
            let mut paths = start(&Variant::ALL, options)?;
            sum_up_saturation(&saturation::run(&mut paths, rounds, measured)?)
        }
        Part::Latency => {
            let variants = [
                Variant::PlainTwoHop,
                Variant::PerPacketEgress,
                Variant::Encapsulated,
            ];
            let mut paths = start(&variants, options)?;
            sum_up_latency(&latency::run(&mut paths, rounds, measured)?)
        }
        Part::Memory => {
            let found = memory::run(&memory::FLOWS)?;
            Ok(Findings {
                figures: found.figures(),
                details: ("memory", json(&found)?),
                table: table::memory(&found),
            })
        }
        Part::Recovery => {
            let found = recovery::run(&recovery::Case::ALL)?;
            Ok(Findings {
                figures: found.figures(),
                details: ("recovery", json(&found)?),
                table: table::recovery(&found),
            })
        }
        Part::RoundTrips => {
            // A search is many measurements already.
            let rounds = rounds.div_ceil(3);
            let found = round_trips::run(&round_trips::System::ALL, rounds, |_| {})?;
            Ok(Findings {
                figures: found.figures(),
                details: ("round_trips", json(&found)?),
                table: table::round_trips(&found),
            })
        }
    }
}

fn start(variants: &[Variant], options: &Options) -> anyhow::Result<Vec<Path>> {
    processor::pin(world::ENDS).context("the benchmark wants two processors")?;
    let paths = variants.iter();
    paths
        .map(|variant| Path::start(*variant, CLIENTS, options.busy_poll_us))
        .collect()
}

fn sum_up_saturation(found: &Saturation) -> anyhow::Result<Findings> {
    let two_hop = |variant, direction| Some(found.row(variant, direction)?.two_hop_ratio);
    let tunnel = found.row(Variant::Encapsulated, Direction::Up);
    Ok(Findings {
        figures: vec![
            (
                "two_hop_ratio_per_packet_egress",
                two_hop(Variant::PerPacketEgress, Direction::Up),
            ),
            (
                "two_hop_ratio_encapsulated",
                two_hop(Variant::Encapsulated, Direction::Up),
            ),
            ("gso_tunnel_ratio", tunnel.map(|row| row.gso_tunnel_ratio)),
            (
                "bidirectional_ratio",
                two_hop(Variant::PerPacketEgress, Direction::Both),
            ),
            (
                "bidirectional_ratio_encapsulated",
                two_hop(Variant::Encapsulated, Direction::Both),
            ),
        ],
        details: ("saturation", json(&found.rows)?),
        table: table::saturation(found),
    })
}

fn sum_up_latency(found: &Latency) -> anyhow::Result<Findings> {
    let p50_ratio = |variant, rate| Some(found.row(variant, rate)?.p50_ratio);
    Ok(Findings {
        figures: vec![
            ("p50_ratio_50kpps", p50_ratio(Variant::Encapsulated, 50_000)),
            (
                "p50_ratio_50kpps_per_packet_egress",
                p50_ratio(Variant::PerPacketEgress, 50_000),
            ),
        ],
        details: ("latency", json(&found.rows)?),
        table: table::latency(found),
    })
}

fn json(found: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(found).context("findings that have no JSON form")
}

/// The figures that sum everything up, a line each.
fn summary(object: &Map<String, Value>) -> String {
    let figures = object.iter().filter_map(|(name, value)| {
        let figure = value.as_f64()?;
        Some(vec![name.clone(), format!("{figure:.2}")])
    });
    format!("\n{}", table::columns(&figures.collect::<Vec<_>>()))
}
