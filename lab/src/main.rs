//! `lab`: puts load on a running network and says what came of it.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::bench::command::{self, DatapathArguments, HopArguments};
use lab::bench::failover::FailoverArguments;
use lab::bench::geodns::command::{self as name_service, GeodnsArguments, NameServerArguments};
use lab::bench::soak::{self, SoakArguments};
use lab::load::{Plan, Report, Running};
use lab::net::{Network, Program, Shape};
use lab::process::Usage;
use lab::scenario::command::RunArguments;
use lab::wan::command::Wan;
use lab::world::command::World;
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
    /// Many sessions of 20 ms Opus, each echoed by a network that runs already
    Load(LoadArguments),
    /// A wide-area network of network namespaces
    #[command(subcommand)]
    Wan(Wan),
    /// A world: clients, ISPs, routers, PoPs, regions, in network namespaces; as root. `lab up` is short for `lab world up`, and so on
    #[command(subcommand)]
    World(World),
    /// Runs scenarios: a world each, calls, faults, and what the calls heard of them; as root
    Run(RunArguments),
    /// Starts a network of real processes, measures it, and stops it
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Sessions through one PoP, two core relays and one transceiver
    Sessions(BenchArguments),
    /// What the packet path costs, against plain forwarders and a plain tunnel
    Datapath(DatapathArguments),
    /// Minutes at half of saturation with flows that come and go: memory, and counters of loss
    Soak(SoakArguments),
    /// What a question costs a GeoDNS node, against other name servers
    Geodns(GeodnsArguments),
    /// One name server of the comparison, until killed
    #[command(hide = true)]
    NameServer(NameServerArguments),
    /// How true the delays of the WAN emulator are, and how many packets it carries; as root
    Wan(WanArguments),
    /// What calls hear of a PoP, a relay or a route that goes away, in a world of real BGP; as root
    Failover(FailoverArguments),
    /// One hop of a baseline, until killed
    #[command(hide = true)]
    Hop(HopArguments),
}

#[derive(Debug, Args)]
struct WanArguments {
    /// One JSON object instead of lines for people
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BenchArguments {
    /// Concurrent sessions
    #[arg(long, default_value_t = 200)]
    sessions: usize,
    /// How long media flows once all are connected
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// One JSON object instead of lines for people
    #[arg(long)]
    json: bool,
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
    /// Share of one processor, from the first offer to the last look.
    cpu_share: f64,
    rss_bytes_before: u64,
    /// While all sessions are open.
    rss_bytes: u64,
    rss_bytes_per_session: f64,
    udp_sockets_before: usize,
    udp_sockets: usize,
}

fn main() -> ExitCode {
    let well = |outcome: Outcome| outcome.report.sessions_lost == 0;
    let command = Arguments::parse_from(spelled_out(std::env::args_os())).command;
    if matches!(
        command,
        Command::Run(_) | Command::Bench(Bench::Wan(_) | Bench::Failover(_))
    ) && let Err(error) = lab::interrupt::heed()
    {
        let _ = writeln!(std::io::stderr(), "lab: {error:#}");
        return ExitCode::from(2);
    }
    let done = match command {
        Command::Load(arguments) => load(&arguments).map(well),
        Command::Wan(wan) => wan.run().map(|()| true),
        Command::World(world) => world.run().map(|()| true),
        Command::Run(run) => run.run(),
        Command::Bench(Bench::Sessions(arguments)) => bench_sessions(&arguments).map(well),
        Command::Bench(Bench::Datapath(arguments)) => command::datapath(&arguments).map(|()| true),
        Command::Bench(Bench::Soak(arguments)) => soak(&arguments),
        Command::Bench(Bench::Geodns(arguments)) => name_service::geodns(&arguments).map(|()| true),
        Command::Bench(Bench::NameServer(arguments)) => {
            name_service::name_server(&arguments).map(|()| true)
        }
        Command::Bench(Bench::Wan(arguments)) => bench_wan(&arguments).map(|()| true),
        Command::Bench(Bench::Failover(arguments)) => arguments.print().map(|()| true),
        Command::Bench(Bench::Hop(arguments)) => command::hop(&arguments).map(|()| true),
    };
    lab::interrupt::finish();
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // A closed stderr is no reason to panic.
            let _ = writeln!(std::io::stderr(), "lab: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// `lab up` is short for `lab world up`, and so are the other orders of a world.
fn spelled_out(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if words
        .get(1)
        .is_some_and(|word| WORLD_VERBS.iter().any(|verb| word == verb))
    {
        words.insert(1, "world".into());
    }
    words
}

/// Orders of `lab world` that may stand alone.
const WORLD_VERBS: &[&str] = &["up", "down", "fault", "status", "birdc", "admin", "exec"];

fn soak(arguments: &SoakArguments) -> anyhow::Result<bool> {
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0)?;
    let report = soak::run(time)?;
    let text = if arguments.json {
        serde_json::to_string(&report)?
    } else {
        serde_json::to_string_pretty(&report)?
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(report.is_good())
}

fn bench_wan(arguments: &WanArguments) -> anyhow::Result<()> {
    let report = lab::wan::measure::run()?;
    let text = if arguments.json {
        serde_json::to_string(&report)? + "\n"
    } else {
        report.lines()
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn load(arguments: &LoadArguments) -> anyhow::Result<Outcome> {
    let duration = Duration::from_secs(arguments.seconds);
    let plan = Plan {
        opened_per_s: arguments.rate,
        data_channels: !arguments.no_data_channels,
        bearer: arguments.bearer.clone(),
        ..Plan::new(arguments.whip.clone(), arguments.sessions, duration)
    };
    let outcome = measure(plan, &arguments.pids)?;
    print(&outcome, arguments.json)?;
    Ok(outcome)
}

fn bench_sessions(arguments: &BenchArguments) -> anyhow::Result<Outcome> {
    let network = Network::start(&Shape::default())?;
    let programs = [Program::Pop, Program::CoreRelay, Program::Transceiver];
    let names = programs
        .into_iter()
        .flat_map(|program| network.names(program));
    let pids: Vec<_> = names
        .map(|name| network.pid(name))
        .collect::<Result<_, _>>()?;
    let duration = Duration::from_secs(arguments.seconds);
    let plan = Plan::new(network.whip("t1"), arguments.sessions, duration);
    let outcome = measure(plan, &pids)?;
    print(&outcome, arguments.json)?;
    Ok(outcome)
}

fn measure(plan: Plan, pids: &[u32]) -> anyhow::Result<Outcome> {
    let sessions = plan.sessions;
    let before = look(pids)?;
    let started = clock::now();
    let running = Running::start(plan);
    let mut during = (before.clone(), started);
    while !running.is_finished() {
        std::thread::sleep(LOOK_INTERVAL);
        let all_open = usize::try_from(running.progress().connected()) == Ok(sessions);
        if all_open && !running.progress().is_closing() {
            during = (look(pids)?, clock::now());
        }
    }
    let report = running.finish()?;
    let elapsed = during.1 - started;
    let pairs = before.iter().zip(&during.0);
    Ok(Outcome {
        report,
        processes: pairs
            .map(|(before, during)| cost(before, during, elapsed, sessions))
            .collect(),
    })
}

/// How often the processes are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

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
    if report.deletes_failed > 0 {
        writeln!(out, "deletes   {} failed", report.deletes_failed)?;
    }
    for failure in &report.failures {
        writeln!(out, "failure: {failure}")?;
    }
    Ok(())
}
