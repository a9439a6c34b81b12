//! Delay that each way of forwarding adds well below saturation, both hops on one processor, in rounds of one run.

use std::time::Duration;

use serde::Serialize;

use super::median::{median, spread};
use super::paced::{Sample, pace};
use super::path::{Path, Variant};

/// Packets a second.
const RATES: [u32; 2] = [10_000, 50_000];
/// Bytes of a packet: 20 ms of Opus with its headers.
const PACKET_LEN: usize = 160;

/// A row of the table: one way of forwarding at one rate.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What forwards.
    pub variant: Variant,
    /// Packets a second.
    pub rate: u32,
    /// From a client's send to the far end's receive, in microseconds: medians of the rounds.
    pub p50_us: f64,
    /// The same of the slowest hundredth.
    pub p99_us: f64,
    /// Ends of `p50_us` over the rounds, as a share of it.
    pub spread: f64,
    /// `p50_us` over that of two plain hops in the same round: the median of the rounds.
    pub p50_ratio: f64,
    /// The same for `p99_us`.
    pub p99_ratio: f64,
    /// Processor time for one packet through all hops, in nanoseconds.
    pub ns_per_packet: f64,
    /// Packets that did not arrive, in all rounds.
    pub lost: u64,
}

/// Every row.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Rates in order, variants in order.
    pub rows: Vec<Row>,
}

impl Latency {
    /// The row of a variant at a rate.
    #[must_use]
    pub fn row(&self, variant: Variant, rate: u32) -> Option<&Row> {
        let is_it = |row: &&Row| row.variant == variant && row.rate == rate;
        self.rows.iter().find(is_it)
    }
}

/// Measures every rate over every path, `rounds` times, each for `measured`.
///
/// # Errors
/// A path fails.
pub fn run(paths: &mut [Path], rounds: usize, measured: Duration) -> anyhow::Result<Latency> {
    let mut rows = Vec::new();
    for rate in RATES {
        let mut samples = vec![Vec::new(); paths.len()];
        for _ in 0..rounds {
            for (path, samples) in paths.iter_mut().zip(&mut samples) {
                samples.push(pace(path, rate, PACKET_LEN, measured)?);
            }
        }
        let plain = paths
            .iter()
            .position(|path| path.variant == Variant::PlainTwoHop);
        let plain = plain
            .and_then(|index| samples.get(index))
            .map_or(&[][..], Vec::as_slice);
        for (path, own) in paths.iter().zip(&samples) {
            rows.push(row(path.variant, rate, own, plain));
        }
    }
    Ok(Latency { rows })
}

fn row(variant: Variant, rate: u32, own: &[Sample], plain: &[Sample]) -> Row {
    let of = |figure: fn(&Sample) -> f64| median(own.iter().map(figure));
    let ratio = |figure: fn(&Sample) -> f64| {
        let pairs = own.iter().zip(plain);
        median(pairs.map(|(own, plain)| figure(own) / figure(plain)))
    };
    let p50s: Vec<_> = own.iter().map(|sample| sample.p50_us).collect();
    Row {
        variant,
        rate,
        p50_us: of(|sample| sample.p50_us),
        p99_us: of(|sample| sample.p99_us),
        spread: spread(&p50s),
        p50_ratio: ratio(|sample| sample.p50_us),
        p99_ratio: ratio(|sample| sample.p99_us),
        ns_per_packet: of(|sample| sample.ns_per_packet),
        lost: own.iter().map(|sample| sample.lost).sum(),
    }
}
