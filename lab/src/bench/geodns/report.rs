//! Measures every server in turn, round after round, and says what came of it.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::database::{Database, Edition};
use super::load::{Found, Load, Pace};
use super::questions::{Clients, Questions};
use super::reload::{self, Reload};
use super::servers::{Running, Server};
use super::steer::{self, Steer};
use crate::bench::median::{median, spread};
use crate::bench::peers::{Buffers, program};
use crate::bench::processor;
use crate::bench::table::columns;
use crate::bench::world::ENDS;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each server is measured.
    pub rounds: usize,
    /// How long.
    pub measured: Duration,
    /// What the clients of the questions are.
    pub clients: Clients,
    /// Questions with a client cookie.
    pub cookies_percent: u32,
    /// Which servers, in this order.
    pub servers: Vec<Server>,
    /// Whether steering over HTTP is measured.
    pub steer: bool,
    /// Questions a second while files are replaced; `None`: not at all.
    pub reload_rate: Option<u32>,
}

/// What was found. A ratio is the median of the ratios within each round; there is none without both of its servers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Ours over gdnsd: questions a second on one processor.
    pub qps_vs_gdnsd: Option<f64>,
    /// Ours over Knot.
    pub qps_vs_knot: Option<f64>,
    /// Ours over hickory-server alone.
    pub qps_vs_hickory: Option<f64>,
    /// Ours over gdnsd: processor time of one question; less is better.
    pub cpu_vs_gdnsd: Option<f64>,
    /// Of our answers, with 192 questions on the way.
    pub p99_us: Option<f64>,
    /// Of answers of steering over HTTP.
    pub steer_p99_ms: Option<f64>,
    /// Questions without an answer while files were replaced.
    pub reload_lost: Option<u64>,
    /// A row a server.
    pub rows: Vec<Row>,
    /// Steering over HTTP.
    pub steer: Option<Steer>,
    /// What happened while files were replaced.
    pub reload: Option<Reload>,
    /// Why servers, steering or the reload are missing.
    pub missing: Vec<String>,
}

/// One server, medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub server: Server,
    /// Answers a second.
    pub qps: f64,
    /// Distance of the extremes over the median.
    pub spread: f64,
    /// Processor time of one answer.
    pub cpu_us: f64,
    /// Share of its processor it used.
    pub busy: f64,
    /// With 192 questions on the way.
    pub p50_us: f64,
    /// With 192 questions on the way.
    pub p99_us: f64,
    /// With one question on the way.
    pub alone_p50_us: f64,
    /// With one question on the way.
    pub alone_p99_us: f64,
    /// Of all rounds.
    pub lost: u64,
    /// Of all rounds.
    pub refused: u64,
    /// Of all rounds.
    pub wrong: u64,
    #[serde(skip)]
    rounds: Vec<Round>,
}

#[derive(Clone, Debug)]
struct Round {
    full: Found,
    alone: Found,
    time: Duration,
}

impl Round {
    fn cpu_us(&self) -> f64 {
        self.time.as_secs_f64() * 1e6 / self.full.answered.max(1) as f64
    }
}

/// Measures.
///
/// # Errors
/// A server does not come up or ends.
pub fn run(options: &Options) -> anyhow::Result<Report> {
    let dir = program::work_dir("geodns-bench")?;
    let found = run_in(&dir, options);
    // What is left of a run is of no use to anybody.
    let _ = std::fs::remove_dir_all(&dir);
    found
}

fn run_in(dir: &std::path::Path, options: &Options) -> anyhow::Result<Report> {
    let database = Database::write(dir, Edition::First)?;
    let questions = Questions::random(
        QUESTIONS,
        options.clients,
        options.cookies_percent,
        &database,
    );
    let mut report = Report::default();
    let mut servers = Vec::new();
    for &server in &options.servers {
        match server.missing() {
            Some(why) => report.missing.push(format!("{}: {why}", server.name())),
            None => servers.push((server, Vec::new())),
        }
    }
    let buffers = Buffers::raise();
    for _ in 0..options.rounds {
        for (server, rounds) in &mut servers {
            rounds.push(measure(*server, &database, &questions, options.measured)?);
        }
    }
    drop(buffers);
    report.rows = servers
        .into_iter()
        .map(|(server, rounds)| Row::new(server, rounds))
        .collect();
    report.compare();
    if options.steer {
        report.add_steer(steer::run(&database, options.rounds, options.measured));
    }
    if let Some(rate) = options.reload_rate
        && report.row(Server::Ours).is_some()
    {
        match reload::run(rate, dir) {
            Ok(reload) => {
                report.reload_lost = Some(reload.lost);
                report.reload = Some(reload);
            }
            // What was measured before is not lost with it.
            Err(error) => report.missing.push(format!("reload: {error:#}")),
        }
    }
    Ok(report)
}

fn measure(
    server: Server,
    database: &Database,
    questions: &Questions,
    length: Duration,
) -> anyhow::Result<Round> {
    let running =
        Running::start(server, database).with_context(|| format!("starting {}", server.name()))?;
    let (to, pid) = (running.address(), running.pid()?);
    let work = || -> anyhow::Result<Round> {
        processor::pin(ENDS)?;
        let mut load = Load::open(to, LANES, Pace::Window(WINDOW), server.check(), questions)?;
        load.run(WARM)?;
        let before = processor::time(pid)?;
        let full = load.run(length)?;
        let time = processor::time(pid)? - before;
        drop(load);
        let mut load = Load::open(to, 1, Pace::Window(1), server.check(), questions)?;
        let alone = load.run(ALONE)?;
        Ok(Round { full, alone, time })
    };
    // In a thread of its own, so that what is started later is not pinned as it is.
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(round) => round,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl Row {
    fn new(server: Server, rounds: Vec<Round>) -> Self {
        let of = |value: &dyn Fn(&Round) -> f64| -> Vec<f64> { rounds.iter().map(value).collect() };
        let middle = |value: &dyn Fn(&Round) -> f64| median(of(value));
        let sum = |value: fn(&Found) -> u64| {
            rounds
                .iter()
                .map(|round| value(&round.full) + value(&round.alone))
                .sum()
        };
        Self {
            server,
            qps: middle(&|round| round.full.rate()),
            spread: spread(&of(&|round| round.full.rate())),
            cpu_us: middle(&Round::cpu_us),
            busy: middle(&|round| round.time.as_secs_f64() / round.full.elapsed.as_secs_f64()),
            p50_us: middle(&|round| round.full.latency_us(500)),
            p99_us: middle(&|round| round.full.latency_us(990)),
            alone_p50_us: middle(&|round| round.alone.latency_us(500)),
            alone_p99_us: middle(&|round| round.alone.latency_us(990)),
            lost: sum(|found| found.lost),
            refused: sum(|found| found.refused),
            wrong: sum(|found| found.wrong + found.strange),
            rounds,
        }
    }
}

impl Report {
    fn add_steer(&mut self, found: anyhow::Result<Steer>) {
        match found {
            Ok(steer) => {
                self.steer_p99_ms = Some(steer.p99_ms);
                self.steer = Some(steer);
            }
            // What was measured before is not lost with it.
            Err(error) => self.missing.push(format!("steer: {error:#}")),
        }
    }

    fn row(&self, server: Server) -> Option<&Row> {
        self.rows.iter().find(|row| row.server == server)
    }

    /// Ours over `other`, round by round.
    fn ratio(&self, other: Server, value: fn(&Round) -> f64) -> Option<f64> {
        let (ours, theirs) = (self.row(Server::Ours)?, self.row(other)?);
        let pairs = ours.rounds.iter().zip(&theirs.rounds);
        Some(median(
            pairs.map(|(ours, theirs)| value(ours) / value(theirs)),
        ))
    }

    fn compare(&mut self) {
        let rate = |round: &Round| round.full.rate();
        self.qps_vs_gdnsd = self.ratio(Server::Gdnsd, rate);
        self.qps_vs_knot = self.ratio(Server::Knot, rate);
        self.qps_vs_hickory = self.ratio(Server::Hickory, rate);
        self.cpu_vs_gdnsd = self.ratio(Server::Gdnsd, Round::cpu_us);
        self.p99_us = self.row(Server::Ours).map(|row| row.p99_us);
    }
}

/// A table, the ratios, and what happened while files were replaced.
#[must_use]
pub fn text(report: &Report) -> String {
    let head = [
        "",
        "answers/s",
        "spread",
        "us/answer",
        "busy",
        "p50 us",
        "p99 us",
        "alone p50",
        "alone p99",
        "lost",
        "refused",
        "wrong",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for row in &report.rows {
        rows.push(vec![
            row.server.name().to_owned(),
            format!("{:.0}", row.qps),
            format!("{:.0} %", row.spread * 100.0),
            format!("{:.2}", row.cpu_us),
            format!("{:.0} %", row.busy * 100.0),
            format!("{:.0}", row.p50_us),
            format!("{:.0}", row.p99_us),
            format!("{:.0}", row.alone_p50_us),
            format!("{:.0}", row.alone_p99_us),
            row.lost.to_string(),
            row.refused.to_string(),
            row.wrong.to_string(),
        ]);
    }
    let ratio = |name: &str, value: Option<f64>| {
        value.map_or_else(String::new, |value| format!("{name} {value:.2}\n"))
    };
    let missing = report.missing.iter().map(|why| format!("missing: {why}\n"));
    let reload = report
        .reload
        .as_ref()
        .map_or_else(String::new, reload::text);
    let steer = report.steer.as_ref().map_or_else(String::new, steer::text);
    let servers = if report.rows.is_empty() {
        String::new()
    } else {
        columns(&rows)
    };
    [
        servers,
        ratio("qps_vs_gdnsd", report.qps_vs_gdnsd),
        ratio("qps_vs_knot", report.qps_vs_knot),
        ratio("qps_vs_hickory", report.qps_vs_hickory),
        ratio("cpu_vs_gdnsd", report.cpu_vs_gdnsd),
        steer,
        reload,
        missing.collect(),
    ]
    .concat()
}

/// Different ones; asked in turn.
pub(super) const QUESTIONS: usize = 1 << 17;
/// Sockets of the generator.
pub(super) const LANES: u8 = 16;
/// Questions on the way on each.
const WINDOW: usize = 12;
pub(super) const WARM: Duration = Duration::from_millis(500);
const ALONE: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests {
    use super::*;

    fn row(server: Server, rates: [u64; 3]) -> Row {
        let round = |answered| Round {
            full: Found {
                answered,
                elapsed: Duration::from_secs(1),
                ..Found::default()
            },
            alone: Found::default(),
            time: Duration::from_secs(1),
        };
        Row::new(server, rates.map(round).to_vec())
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let mut report = Report {
            rows: vec![
                row(Server::Ours, [100, 300, 220]),
                row(Server::Gdnsd, [100, 200, 200]),
            ],
            ..Report::default()
        };
        report.compare();
        assert_eq!(report.qps_vs_gdnsd, Some(1.1));
        assert!((report.cpu_vs_gdnsd.unwrap() - 1.0 / 1.1).abs() < 1e-9);
        assert_eq!(report.qps_vs_knot, None);
        assert!(text(&report).contains("qps_vs_gdnsd 1.10"));
    }
}
