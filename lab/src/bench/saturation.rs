//! What each way of forwarding costs at saturation, all of them interleaved in rounds of one run, and the ratios between them.

use std::time::Duration;

use serde::Serialize;

use super::closed_loop::{Direction, Load, Sample, saturate};
use super::median::{median, spread};
use super::path::{Path, Variant};

/// Clients that send and receive.
pub const CLIENTS: usize = 256;
/// Packets a client sends at a time, so that whoever feeds the path is not the bottleneck. Hops receive them one by one.
const BURST: usize = 8;

/// A row of the table: one way of forwarding under one load.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What forwards.
    pub variant: Variant,
    /// What is sent.
    #[serde(flatten)]
    pub load: Load,
    /// Processor time for one packet through all hops, in nanoseconds: the median of the rounds.
    pub ns_per_packet: f64,
    /// Of that, each hop, from the client's side on.
    pub ns_per_hop: Vec<f64>,
    /// Packets a second that one processor carries through all hops, in thousands.
    pub kpps_per_core: f64,
    /// Ends of `ns_per_packet` over the rounds, as a share of it.
    pub spread: f64,
    /// Cost of two plain hops in the same round over the cost of this: the median of the rounds.
    pub two_hop_ratio: f64,
    /// Cost of the plain tunnel in the same round over the cost of this.
    pub gso_tunnel_ratio: f64,
    /// Share of packets that did not arrive whole.
    pub lost: f64,
    /// Share of the forwarders' processor in use; well under 1, the ends were the bottleneck.
    pub busy: f64,
}

/// Every row.
#[derive(Clone, Debug, Serialize)]
pub struct Saturation {
    /// Loads in order, variants in order.
    pub rows: Vec<Row>,
}

impl Saturation {
    /// The row of a variant under a load of 160-byte packets in bursts.
    #[must_use]
    pub fn row(&self, variant: Variant, direction: Direction) -> Option<&Row> {
        let load = load(direction, 160, BURST);
        let is_it = |row: &&Row| row.variant == variant && row.load == load;
        self.rows.iter().find(is_it)
    }
}

const fn load(direction: Direction, packet_len: usize, burst: usize) -> Load {
    Load {
        direction,
        packet_len,
        burst,
    }
}

fn loads() -> Vec<Load> {
    let mut loads = vec![load(Direction::Up, 160, 1)];
    for direction in [Direction::Up, Direction::Down, Direction::Both] {
        loads.extend([100, 160, 1200].map(|len| load(direction, len, BURST)));
    }
    loads
}

/// Measures every load over every path, `rounds` times, each for `measured`.
///
/// # Errors
/// A path fails.
pub fn run(paths: &mut [Path], rounds: usize, measured: Duration) -> anyhow::Result<Saturation> {
    let loads = loads();
    let mut samples = vec![vec![Vec::new(); paths.len()]; loads.len()];
    for _ in 0..rounds {
        for (load, samples) in loads.iter().zip(&mut samples) {
            for (path, samples) in paths.iter_mut().zip(samples) {
                samples.push(saturate(path, *load, measured)?);
            }
        }
    }
    let rows = loads.iter().zip(&samples).flat_map(|(load, samples)| {
        let of = |variant| {
            let index = paths.iter().position(|path| path.variant == variant)?;
            samples.get(index)
        };
        let (plain, tunnel) = (of(Variant::PlainTwoHop), of(Variant::GsoTunnel));
        paths.iter().zip(samples).map(move |(path, own)| Row {
            two_hop_ratio: ratio(plain, own),
            gso_tunnel_ratio: ratio(tunnel, own),
            ..row(path.variant, *load, own)
        })
    });
    Ok(Saturation {
        rows: rows.collect(),
    })
}

fn row(variant: Variant, load: Load, samples: &[Sample]) -> Row {
    let costs: Vec<_> = samples.iter().map(Sample::ns_per_packet).collect();
    let ns_per_packet = median(costs.iter().copied());
    let hops = samples.first().map_or(0, |sample| sample.time.len());
    let arrived = |sample: &Sample| (sample.up + sample.down).max(1) as f64;
    let hop = |index| {
        let time = |sample: &Sample| sample.time.get(index).map_or(0, Duration::as_nanos);
        median(samples.iter().map(|own| time(own) as f64 / arrived(own)))
    };
    Row {
        variant,
        load,
        ns_per_packet,
        ns_per_hop: (0..hops).map(hop).collect(),
        kpps_per_core: 1e6 / ns_per_packet,
        spread: spread(&costs),
        two_hop_ratio: f64::NAN,
        gso_tunnel_ratio: f64::NAN,
        lost: median(samples.iter().map(|own| own.lost)),
        busy: median(samples.iter().map(Sample::busy)),
    }
}

/// Round by round, so that what disturbs a round disturbs both sides.
fn ratio(baseline: Option<&Vec<Sample>>, own: &[Sample]) -> f64 {
    let baseline = baseline.map_or(&[][..], Vec::as_slice);
    let pairs = baseline.iter().zip(own);
    median(pairs.map(|(base, own)| base.ns_per_packet() / own.ns_per_packet()))
}
