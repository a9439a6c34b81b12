//! Round trips a second of a whole relay on one processor: ours, plain forwarders, and what a user could pick instead.
//!
//! ```text
//! processor 0, one thread that never sleeps        processor 1
//!   clients ──160 bytes──►                           relay, all of its processes
//!   clock                                            
//!   far end ◄─────────────────────────────────────►  
//! ```
//!
//! The figure is the highest rate at which one packet in ten thousand is lost at most and the median round trip is 5 ms at
//! most, so that no queue stands. It is measured with few flows and with many: what a relay keeps for each flow, a socket
//! above all, shows in the difference.

mod crowd;
mod dialect;
mod load;
mod search;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use topology::Datagrams;

use crate::bench::forwarder::{Forwarder, Hop};
use crate::bench::peers::{Buffers, Coturn, Missing, Nginx, Tunnel};
use crate::bench::processor;
use crate::bench::world::{ENDS, PATH, World};
use crate::net::namespace;

pub(crate) use crowd::Crowd;
pub(crate) use dialect::{Dialect, Mark, read};
use load::Echo;
pub(crate) use load::{Load, PlainEcho};
use search::{Found, search};

/// Flows of a small site, and of one where a socket for each would hurt.
pub const FLOWS: [u32; 2] = [200, 10_000];
/// How long a rate is held.
const HOLD: Duration = Duration::from_millis(1_200);

/// What can stand between clients and the far end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum System {
    /// One plain forwarder.
    PlainOneHop,
    /// Two plain forwarders.
    PlainTwoHop,
    /// PoP and core relay, one record a datagram towards the transceiver and back.
    OursPerPacket,
    /// PoP and core relay as they come: records share datagrams.
    OursEncapsulated,
    /// nginx alone.
    Nginx,
    /// coturn alone, ChannelData.
    Coturn,
    /// nginx, then a WireGuard tunnel in user space.
    NginxBoringtun,
}

impl System {
    /// All, in the order they are measured in: those that are compared stand side by side.
    pub const ALL: [Self; 7] = [
        Self::NginxBoringtun,
        Self::OursPerPacket,
        Self::PlainTwoHop,
        Self::OursEncapsulated,
        Self::PlainOneHop,
        Self::Nginx,
        Self::Coturn,
    ];

    /// For a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PlainOneHop => "plain, one hop",
            Self::PlainTwoHop => "plain, two hops",
            Self::OursPerPacket => "pop + core-relay, per-packet egress",
            Self::OursEncapsulated => "pop + core-relay, encapsulated",
            Self::Nginx => "nginx stream",
            Self::Coturn => "coturn, ChannelData",
            Self::NginxBoringtun => "nginx + boringtun pair",
        }
    }

    /// Whether it is of this workspace.
    const fn is_ours(self) -> bool {
        match self {
            Self::PlainOneHop
            | Self::PlainTwoHop
            | Self::OursPerPacket
            | Self::OursEncapsulated => true,
            Self::Nginx | Self::Coturn | Self::NginxBoringtun => false,
        }
    }

    fn find(self) -> Result<(), Missing> {
        match self {
            Self::PlainOneHop
            | Self::PlainTwoHop
            | Self::OursPerPacket
            | Self::OursEncapsulated => Ok(()),
            Self::Nginx => Nginx::find(),
            Self::Coturn => Coturn::find(),
            Self::NginxBoringtun => Nginx::find().and_then(|()| Tunnel::find()),
        }
    }

    /// Processes a packet passes on its way to the far end.
    #[must_use]
    pub const fn hops(self) -> u8 {
        match self {
            Self::PlainOneHop | Self::Nginx | Self::Coturn => 1,
            Self::PlainTwoHop | Self::OursPerPacket | Self::OursEncapsulated => 2,
            Self::NginxBoringtun => 3,
        }
    }
}

/// One system with one number of flows.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub system: System,
    /// How many.
    pub flows: u32,
    /// Round trips a second, one figure a round; empty when the system is missing.
    pub round_trips_per_s: Vec<u32>,
    /// Median round trip at the highest rate of the last round, in microseconds.
    pub p50_us: u32,
    /// The 99th percentile there.
    pub p99_us: u32,
    /// The relay could do more than this machine's generator.
    pub generator_limited: bool,
    /// Why there is no figure.
    pub missing: Option<String>,
}

impl Row {
    const fn new(system: System, flows: u32) -> Self {
        Self {
            system,
            flows,
            round_trips_per_s: Vec::new(),
            p50_us: 0,
            p99_us: 0,
            generator_limited: false,
            missing: None,
        }
    }

    /// The median of its rounds.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.round_trips_per_s.clone();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().map(f64::from)
    }

    fn take(&mut self, outcome: Result<Found, Missing>) {
        match outcome {
            Ok(found) => {
                self.round_trips_per_s.push(found.rate);
                self.p50_us = found.hold.p50_us;
                self.p99_us = found.hold.p99_us;
                self.generator_limited |= found.generator_limited;
            }
            Err(missing) => self.missing = Some(missing.to_string()),
        }
    }
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct RoundTrips {
    /// Every system with every number of flows.
    pub rows: Vec<Row>,
    /// Ours with per-packet egress to nginx + boringtun: the smaller of the ratios with few and with many flows.
    pub rt_vs_nginx_boringtun: Option<f64>,
    /// The same with 200 flows.
    pub rt_vs_nginx_boringtun_200: Option<f64>,
    /// The same with 10,000 flows.
    pub rt_vs_nginx_boringtun_10k: Option<f64>,
    /// Ours with per-packet egress, 10,000 flows to 200.
    pub rt_10k_to_200: Option<f64>,
}

impl RoundTrips {
    /// What sums it up, by the names of the JSON object.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("rt_vs_nginx_boringtun", self.rt_vs_nginx_boringtun),
            ("rt_vs_nginx_boringtun_200", self.rt_vs_nginx_boringtun_200),
            ("rt_vs_nginx_boringtun_10k", self.rt_vs_nginx_boringtun_10k),
            ("rt_10k_to_200", self.rt_10k_to_200),
        ]
    }

    fn of(rows: Vec<Row>) -> Self {
        let [few, many] = FLOWS;
        let median = |system, flows| {
            let mut of = rows.iter();
            of.find(|row| row.system == system && row.flows == flows)?
                .median()
        };
        let ratio = |over: Option<f64>, under: Option<f64>| Some(over? / under?);
        let ours = |flows| median(System::OursPerPacket, flows);
        let theirs = |flows| median(System::NginxBoringtun, flows);
        let (with_few, with_many) = (
            ratio(ours(few), theirs(few)),
            ratio(ours(many), theirs(many)),
        );
        let rt_10k_to_200 = ratio(ours(many), ours(few));
        Self {
            rt_vs_nginx_boringtun: with_few.zip(with_many).map(|(few, many)| few.min(many)),
            rt_vs_nginx_boringtun_200: with_few,
            rt_vs_nginx_boringtun_10k: with_many,
            rt_10k_to_200,
            rows,
        }
    }
}

/// Measures `systems`, `rounds` times each, one after the other within a round; `done` sees each row as it grows.
///
/// # Errors
/// One of our programs is not built, or a system that is there does not carry a packet.
pub fn run(
    systems: &[System],
    rounds: usize,
    mut done: impl FnMut(&Row),
) -> anyhow::Result<RoundTrips> {
    let cases = FLOWS
        .iter()
        .flat_map(|flows| systems.iter().map(move |system| (*system, *flows)));
    let mut rows: Vec<_> = cases
        .map(|(system, flows)| Row::new(system, flows))
        .collect();
    for system in systems {
        // Whatever has to be built is built before anything is measured.
        let _missing = system.find();
    }
    for _ in 0..rounds {
        for row in rows.iter_mut().filter(|row| row.missing.is_none()) {
            let (system, flows) = (row.system, row.flows);
            let what = || format!("{} with {flows} flows", system.name());
            row.take(on_a_thread(|| measure(system, flows)).with_context(what)?);
            done(row);
        }
    }
    Ok(RoundTrips::of(rows))
}

/// What a case changes about its thread (processor, namespace) ends with it, as do the processes it started.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Whether a system carries a rate for a moment; `None` when it is missing here.
///
/// # Errors
/// One of our programs is not built, or a system that is there does not carry a packet.
pub fn carries(system: System, flows: u32, rate: u32) -> anyhow::Result<Option<bool>> {
    let held = on_a_thread(|| with(system, flows, &|load| load.hold(rate, HOLD)))?;
    Ok(held.ok().map(|hold| hold.is_carried()))
}

fn measure(system: System, flows: u32) -> anyhow::Result<Result<Found, Missing>> {
    with(system, flows, &|load| search(|rate| load.hold(rate, HOLD)))
}

/// What is done with a system and its load.
type Work<'a, T> = &'a (dyn Fn(&mut Load<'_>) -> anyhow::Result<T> + Sync);

/// Starts a system and joins `flows` clients to it.
fn with<T: Send>(
    system: System,
    flows: u32,
    work: Work<'_, T>,
) -> anyhow::Result<Result<T, Missing>> {
    if let Err(missing) = system.find() {
        return Ok(Err(missing));
    }
    // Our own programs ask for the buffers they need.
    let _buffers = (!system.is_ours()).then(Buffers::raise);
    let done = match system {
        System::PlainOneHop => plain(&[Hop::PlainEdge], flows, work),
        System::PlainTwoHop => plain(&[Hop::PlainCore, Hop::PlainEdge], flows, work),
        System::OursPerPacket => ours(Datagrams::Single, flows, work),
        System::OursEncapsulated => ours(Datagrams::Packed, flows, work),
        System::Nginx => nginx(flows, work),
        System::Coturn => coturn(flows, work),
        System::NginxBoringtun => nginx_boringtun(flows, work),
    };
    done.map(Ok)
}

fn ours<T>(datagrams: Datagrams, flows: u32, work: Work<'_, T>) -> anyhow::Result<T> {
    let mut world = World::start(datagrams, |_| {})?;
    let dialect = Dialect::Hint {
        ufrags: world.ufrags().to_vec(),
    };
    let to = world.ingress();
    joined(flows, to, dialect, &mut world.far_end, work)
}

/// `hops` from the far end on.
fn plain<T>(hops: &[Hop], flows: u32, work: Work<'_, T>) -> anyhow::Result<T> {
    let mut echo = PlainEcho::bind(Ipv4Addr::LOCALHOST)?;
    let mut next = echo.address();
    let mut running = Vec::with_capacity(hops.len());
    for hop in hops {
        let forwarder = Forwarder::start(*hop, next, PATH)?;
        next = forwarder.address();
        running.push(forwarder);
    }
    joined(flows, next, Dialect::Plain, &mut echo, work)
}

fn nginx<T>(flows: u32, work: Work<'_, T>) -> anyhow::Result<T> {
    let mut echo = PlainEcho::bind(Ipv4Addr::LOCALHOST)?;
    let mut nginx = Nginx::start(echo.address())?;
    let done = joined(flows, nginx.address, Dialect::Plain, &mut echo, work);
    nginx.check()?;
    done
}

fn coturn<T>(flows: u32, work: Work<'_, T>) -> anyhow::Result<T> {
    let mut echo = PlainEcho::bind(Ipv4Addr::LOCALHOST)?;
    let mut coturn = Coturn::start()?;
    let peer = echo.address();
    let done = joined(
        flows,
        coturn.address,
        Dialect::Turn { peer },
        &mut echo,
        work,
    );
    coturn.check()?;
    done
}

fn nginx_boringtun<T: Send>(flows: u32, work: Work<'_, T>) -> anyhow::Result<T> {
    namespace::run(|_| {
        let mut tunnel = Tunnel::start()?;
        let mut nginx = Nginx::start(tunnel.echo.address())?;
        let done = joined(flows, nginx.address, Dialect::Plain, &mut tunnel.echo, work);
        nginx.check()?;
        tunnel.check()?;
        done
    })
}

fn joined<T>(
    flows: u32,
    to: SocketAddr,
    dialect: Dialect,
    echo: &mut dyn Echo,
    work: Work<'_, T>,
) -> anyhow::Result<T> {
    processor::pin(ENDS)?;
    let mut load = Load::open(flows, to, dialect, echo)?;
    load.join()?;
    work(&mut load)
}
