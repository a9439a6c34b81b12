//! `lab`: puts load on a running network and says what came of it.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::load::{self, Plan, Progress, Report};
use lab::process::Usage;
use runtime::clock;
use serde::Serialize;

/// Load and measurements for a firsthop network on this machine.
#[derive(Debug, Parser)]
#[command(name = "lab", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Many sessions of 20 ms Opus, each echoed by the network
    Load(LoadArguments),
}

#[derive(Debug, Args)]
struct LoadArguments {
    /// The WHIP endpoint
    #[arg(long, value_name = "URL")]
    whip: String,
    /// Concurrent sessions
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// How long media flows once all are connected
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Sessions opened a second
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// Sessions without a data channel
    #[arg(long)]
    no_data_channels: bool,
    /// Token for WHIP
    #[arg(long)]
    bearer: Option<String>,
    /// Processes to watch meanwhile
    #[arg(long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// One JSON object instead of lines for people
    #[arg(long)]
    json: bool,
}

/// What a load found and what it cost.
#[derive(Debug, Serialize)]
struct Outcome {
    #[serde(flatten)]
    report: Report,
    processes: Vec<Cost>,
}

/// What the load cost one process.
#[derive(Debug, Serialize)]
struct Cost {
    pid: u32,
    name: String,
    /// Share of one processor, over the whole load.
    cpu_share: f64,
    rss_bytes_before: u64,
    /// While all sessions are open.
    rss_bytes: u64,
    rss_bytes_per_session: f64,
    udp_sockets_before: usize,
    udp_sockets: usize,
}

fn main() -> ExitCode {
    let Command::Load(arguments) = Arguments::parse().command;
    match measure(&arguments).and_then(|outcome| print(&outcome, arguments.json).map(|()| outcome))
    {
        Ok(outcome) if outcome.report.sessions_lost == 0 => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // A closed stderr is no reason to panic.
            let _ = writeln!(std::io::stderr(), "lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn measure(arguments: &LoadArguments) -> anyhow::Result<Outcome> {
    let plan = Plan {
        opened_per_s: arguments.rate,
        data_channels: !arguments.no_data_channels,
        bearer: arguments.bearer.clone(),
        ..Plan::new(
            arguments.whip.clone(),
            arguments.sessions,
            Duration::from_secs(arguments.seconds),
        )
    };
    let before = look(&arguments.pids)?;
    let started = clock::now();
    let progress = Progress::default();
    let (report, during) = std::thread::scope(|scope| -> anyhow::Result<_> {
        let load = scope.spawn(|| load::run(&plan, &progress));
        let mut during = before.clone();
        while !load.is_finished() {
            std::thread::sleep(Duration::from_millis(200));
            if progress.connected() as usize == plan.sessions && !load.is_finished() {
                during = look(&arguments.pids)?;
            }
        }
        let report = load
            .join()
            .map_err(|_| anyhow::anyhow!("the load panicked"))??;
        Ok((report, during))
    })?;
    let elapsed = clock::now() - started;
    let processes = before
        .iter()
        .zip(&during)
        .map(|(before, during)| cost(before, during, elapsed, plan.sessions))
        .collect();
    Ok(Outcome { report, processes })
}

fn look(pids: &[u32]) -> anyhow::Result<Vec<Usage>> {
    pids.iter().map(|pid| Usage::of(*pid)).collect()
}

fn cost(before: &Usage, during: &Usage, elapsed: Duration, sessions: usize) -> Cost {
    let grown = during.rss_bytes.saturating_sub(before.rss_bytes);
    Cost {
        pid: before.pid,
        name: before.name.clone(),
        cpu_share: during.cpu_share_since(before, elapsed),
        rss_bytes_before: before.rss_bytes,
        rss_bytes: during.rss_bytes,
        rss_bytes_per_session: grown as f64 / sessions as f64,
        udp_sockets_before: before.udp_sockets,
        udp_sockets: during.udp_sockets,
    }
}

fn print(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, outcome)?;
        writeln!(out)?;
        return Ok(());
    }
    let report = &outcome.report;
    writeln!(
        out,
        "sessions  {} of {} connected, {} lost; connect {:.0} ms median, {:.0} ms p99",
        report.connected,
        report.sessions,
        report.sessions_lost,
        report.connect_ms_p50,
        report.connect_ms_p99
    )?;
    writeln!(
        out,
        "packets   {} sent, {} back, {} lost, {} altered; longest silence {:.0} ms",
        report.sent, report.received, report.lost, report.altered, report.gap_ms_max
    )?;
    writeln!(
        out,
        "round trip {} µs median, {} µs p99",
        report.rtt_us_p50, report.rtt_us_p99
    )?;
    for cost in &outcome.processes {
        writeln!(
            out,
            "{:<12} {:.1} % of a processor, {:.1} MB, {:.0} KB a session, {} UDP sockets",
            cost.name,
            cost.cpu_share * 100.0,
            cost.rss_bytes as f64 / 1e6,
            cost.rss_bytes_per_session / 1e3,
            cost.udp_sockets
        )?;
    }
    for failure in &report.failures {
        writeln!(out, "failure: {failure}")?;
    }
    Ok(())
}
