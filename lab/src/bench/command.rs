//! `lab bench datapath` and what it starts itself again as.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;

use super::datapath::{self, Options, Part};
use super::forwarder::{self, Hop};

/// Arguments of `lab bench datapath`.
#[derive(Debug, Args)]
pub struct DatapathArguments {
    /// One part only
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// How often each measurement is made; what is reported is the median
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long each measurement takes
    #[arg(long, default_value_t = 800, value_name = "MS")]
    measure_ms: u64,
    /// `network.worker.busy_poll_us` of our own workers where saturation and delay are measured
    #[arg(long, default_value_t = 0, value_name = "US")]
    busy_poll_us: u32,
    /// One JSON object instead of tables for people
    #[arg(long)]
    json: bool,
}

/// Arguments of `lab bench hop`.
#[derive(Debug, Args)]
pub struct HopArguments {
    /// Which hop
    #[arg(value_enum)]
    hop: Hop,
    /// Where packets from the client's side go on to
    next: SocketAddr,
}

/// Measures and prints.
///
/// # Errors
/// See [`datapath::run`].
pub fn datapath(arguments: &DatapathArguments) -> anyhow::Result<()> {
    let options = Options {
        only: arguments.only,
        rounds: arguments.rounds,
        measured: Duration::from_millis(arguments.measure_ms),
        busy_poll_us: arguments.busy_poll_us,
    };
    let (object, text) = datapath::run(&options)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{object}")?;
    } else {
        write!(out, "{text}")?;
    }
    Ok(())
}

/// Forwards until killed.
///
/// # Errors
/// See [`forwarder::run`].
pub fn hop(arguments: &HopArguments) -> anyhow::Result<()> {
    forwarder::run(arguments.hop, arguments.next)
}
