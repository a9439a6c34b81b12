//! Measures the servers of a round in turn, slice after slice, and says what came of it.
//!
//! Machines that others use too change their speed by a quarter from one second to the next. A slice is short enough that the servers of
//! one slice meet the same machine, and a ratio is taken within it.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use super::database::{Database, Edition};
use super::load::{Found, Load, Pace};
use super::questions::{Clients, Questions};
use super::reload::{self, Reload};
use super::servers::{Running, Server};
use super::steer::{self, Steer};
use crate::bench::median::{interval, median, spread};
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

/// What was found. A ratio is the median of those of the rounds, and that of a round the median of the ratios within each slice; there is
/// none without both of its servers. Its interval holds the true one with a certainty of 95 %; there is none of fewer than six rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Ours over gdnsd: questions a second on one processor.
    pub qps_vs_gdnsd: Option<f64>,
    /// Interval of it.
    pub qps_vs_gdnsd_interval: Option<[f64; 2]>,
    /// Ours over Knot.
    pub qps_vs_knot: Option<f64>,
    /// Interval of it.
    pub qps_vs_knot_interval: Option<[f64; 2]>,
    /// Ours over Knot with response limits and counters.
    pub qps_vs_knot_alike: Option<f64>,
    /// Interval of it.
    pub qps_vs_knot_alike_interval: Option<[f64; 2]>,
    /// Ours over hickory-server alone.
    pub qps_vs_hickory: Option<f64>,
    /// Interval of it.
    pub qps_vs_hickory_interval: Option<[f64; 2]>,
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

/// A server from its start to its end.
#[derive(Clone, Debug, Default)]
struct Round {
    /// All slices.
    full: Found,
    alone: Found,
    time: Duration,
    /// Answers a second, by slice.
    rates: Vec<f64>,
    /// Microseconds of processor time of an answer, by slice.
    costs: Vec<f64>,
}

impl Round {
    fn cpu_us(&self) -> f64 {
        cost_us(self.time, &self.full)
    }

    /// `late` came when the slice was over: it is no part of its rate, but what is lost or wrong of it counts.
    fn add(&mut self, slice: &Found, late: Found, time: Duration) {
        self.rates.push(slice.rate());
        self.costs.push(cost_us(time, slice));
        self.time += time;
        self.full.elapsed += slice.elapsed;
        self.full.sent += slice.sent;
        self.full.add(slice);
        self.full.add(&Found {
            answered: 0,
            latency_us: Vec::new(),
            ..late
        });
    }
}

fn cost_us(time: Duration, found: &Found) -> f64 {
    time.as_secs_f64() * 1e6 / found.answered.max(1) as f64
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
        let round = servers.iter_mut().map(|(server, rounds)| {
            rounds.push(Round::default());
            (*server, rounds.last_mut())
        });
        let round = round.filter_map(|(server, round)| Some((server, round?)));
        measure(round, &database, &questions, options.measured)?;
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

/// There and back: what drifts over a run, as the machine does, favours nobody.
fn in_turn<T>(round: usize, servers: &mut [T]) -> impl Iterator<Item = &mut T> {
    let (mut there, mut back) = match round % 2 {
        0 => (Some(servers.iter_mut()), None),
        _ => (None, Some(servers.iter_mut().rev())),
    };
    std::iter::from_fn(move || match (&mut there, &mut back) {
        (Some(there), _) => there.next(),
        (None, Some(back)) => back.next(),
        (None, None) => None,
    })
}

/// All servers at once, of which one is asked at a time; the others wait and take no time.
fn measure<'a>(
    round: impl Iterator<Item = (Server, &'a mut Round)>,
    database: &Database,
    questions: &Questions,
    length: Duration,
) -> anyhow::Result<()> {
    let start = |(server, round): (Server, _)| {
        let running = Running::start(server, database)
            .with_context(|| format!("starting {}", server.name()))?;
        Ok((server, running, round))
    };
    let mut started: Vec<_> = round.map(start).collect::<anyhow::Result<_>>()?;
    let work = || -> anyhow::Result<()> {
        processor::pin(ENDS)?;
        let seats = started.iter_mut();
        let seats = seats.map(|(server, running, round)| {
            let (to, pid) = (running.address(), running.pid()?);
            let mut load = Load::open(to, LANES, Pace::Window(WINDOW), server.check(), questions)?;
            load.run(WARM)?;
            load.settle()?;
            Ok(Seat { load, pid, round })
        });
        let mut seats: Vec<_> = seats.collect::<anyhow::Result<_>>()?;
        for slice in 0..slices(length) {
            for seat in in_turn(slice, &mut seats) {
                seat.ask()?;
            }
        }
        drop(seats);
        for (server, running, round) in &mut started {
            let (to, check) = (running.address(), server.check());
            round.alone = Load::open(to, 1, Pace::Window(1), check, questions)?.run(ALONE)?;
        }
        Ok(())
    };
    // In a thread of its own, so that what is started later is not pinned as it is.
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// A server that is asked now and then.
struct Seat<'a, 'q> {
    load: Load<'q>,
    pid: u32,
    round: &'a mut Round,
}

impl Seat<'_, '_> {
    /// One slice.
    fn ask(&mut self) -> anyhow::Result<()> {
        self.load.run(SLICE_WARM)?;
        let before = processor::time(self.pid)?;
        let found = self.load.run(SLICE)?;
        let time = processor::time(self.pid)? - before;
        let late = self.load.settle()?;
        self.round.add(&found, late, time);
        Ok(())
    }
}

fn slices(length: Duration) -> usize {
    let slices = length.as_micros() / SLICE.as_micros();
    usize::try_from(slices).unwrap_or(usize::MAX).max(1)
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

    /// Ours over `other`, slice by slice; of each round the median.
    fn ratios(&self, other: Server, values: fn(&Round) -> &[f64]) -> Option<Vec<f64>> {
        let (ours, theirs) = (self.row(Server::Ours)?, self.row(other)?);
        let pairs = ours.rounds.iter().zip(&theirs.rounds);
        let ratio = |(ours, theirs)| {
            let slices = values(ours).iter().zip(values(theirs));
            median(slices.map(|(ours, theirs)| ours / theirs))
        };
        Some(pairs.map(ratio).collect())
    }

    fn compare(&mut self) {
        let rates = |other| {
            let ratios = self.ratios(other, |round| &round.rates);
            let interval = ratios.clone().and_then(interval);
            (ratios.map(median), interval)
        };
        let (gdnsd, knot, alike, hickory) = (
            rates(Server::Gdnsd),
            rates(Server::Knot),
            rates(Server::KnotAlike),
            rates(Server::Hickory),
        );
        let cpu = self.ratios(Server::Gdnsd, |round| &round.costs);
        (self.qps_vs_gdnsd, self.qps_vs_gdnsd_interval) = gdnsd;
        (self.qps_vs_knot, self.qps_vs_knot_interval) = knot;
        (self.qps_vs_knot_alike, self.qps_vs_knot_alike_interval) = alike;
        (self.qps_vs_hickory, self.qps_vs_hickory_interval) = hickory;
        self.cpu_vs_gdnsd = cpu.map(median);
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
    [servers, ratios(report), steer, reload, missing.collect()].concat()
}

/// A line each.
fn ratios(report: &Report) -> String {
    type Ratio = (&'static str, Option<f64>, Option<[f64; 2]>);
    let all: [Ratio; 5] = [
        (
            "qps_vs_gdnsd",
            report.qps_vs_gdnsd,
            report.qps_vs_gdnsd_interval,
        ),
        (
            "qps_vs_knot",
            report.qps_vs_knot,
            report.qps_vs_knot_interval,
        ),
        (
            "qps_vs_knot_alike",
            report.qps_vs_knot_alike,
            report.qps_vs_knot_alike_interval,
        ),
        (
            "qps_vs_hickory",
            report.qps_vs_hickory,
            report.qps_vs_hickory_interval,
        ),
        ("cpu_vs_gdnsd", report.cpu_vs_gdnsd, None),
    ];
    let line = |(name, value, interval): Ratio| {
        let interval = interval.map_or_else(String::new, |[low, high]| {
            format!(" (95 %: {low:.2} to {high:.2})")
        });
        value.map_or_else(String::new, |value| {
            format!("{name} {value:.2}{interval}\n")
        })
    };
    all.map(line).concat()
}

/// Different ones; asked in turn.
pub(super) const QUESTIONS: usize = 1 << 17;
/// Sockets of the generator.
pub(super) const LANES: u8 = 16;
/// Questions on the way on each.
const WINDOW: usize = 12;
pub(super) const WARM: Duration = Duration::from_millis(500);
const ALONE: Duration = Duration::from_millis(300);
/// How long a server is asked before it is the next one's turn.
const SLICE: Duration = Duration::from_millis(50);
/// As long nothing is measured at the beginning of a slice: what the server knows comes back to the processor's caches.
const SLICE_WARM: Duration = Duration::from_millis(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn row<const N: usize>(server: Server, rates: [u64; N]) -> Row {
        let round = |answered| {
            let mut round = Round::default();
            let found = Found {
                answered,
                elapsed: Duration::from_secs(1),
                ..Found::default()
            };
            round.add(&found, Found::default(), Duration::from_secs(1));
            round
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
    #[test]
    fn an_interval_is_told_of_enough_rounds() {
        let mut report = Report {
            rows: vec![
                row(Server::Ours, [130, 131, 132, 132, 134, 190]),
                row(Server::Knot, [100; 6]),
                row(Server::Gdnsd, [100; 3]),
            ],
            ..Report::default()
        };
        report.compare();
        assert_eq!(report.qps_vs_knot, Some(1.32));
        assert_eq!(report.qps_vs_knot_interval, Some([1.3, 1.9]));
        assert_eq!(report.qps_vs_gdnsd_interval, None);
        let text = text(&report);
        assert!(
            text.contains("qps_vs_knot 1.32 (95 %: 1.30 to 1.90)\n"),
            "{text}"
        );
    }

    #[test]
    fn rounds_go_there_and_back() {
        let mut servers = [1, 2, 3];
        let order =
            |round, servers: &mut [i32]| in_turn(round, servers).map(|at| *at).collect::<Vec<_>>();
        assert_eq!(order(0, &mut servers), [1, 2, 3]);
        assert_eq!(order(1, &mut servers), [3, 2, 1]);
        assert_eq!(order(2, &mut servers), [1, 2, 3]);
    }
    #[test]
    fn a_round_is_the_sum_of_its_slices_and_what_comes_late_has_no_part_in_rates() {
        let found = |answered, ms| Found {
            answered,
            sent: answered + 1,
            lost: 1,
            elapsed: Duration::from_millis(ms),
            ..Found::default()
        };
        let mut round = Round::default();
        round.add(&found(100, 50), found(7, 900), Duration::from_micros(500));
        round.add(&found(300, 50), found(7, 900), Duration::from_micros(900));
        assert_eq!(round.rates, [2000.0, 6000.0]);
        assert_eq!(round.costs, [5.0, 3.0]);
        assert_eq!((round.full.answered, round.full.lost), (400, 4));
        assert_eq!((round.full.rate(), round.cpu_us()), (4000.0, 3.5));
        assert_eq!(
            (slices(Duration::from_millis(620)), slices(Duration::ZERO)),
            (12, 1)
        );
    }
}
