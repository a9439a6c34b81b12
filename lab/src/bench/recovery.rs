//! What a call hears of a program that is killed: 200 calls of 50 packets a second, `kill -9`, started again at once, and
//! the longest silence of any call.
//!
//! The hard case for a PoP is a client that only sends: a PoP that has just started knows no flow, and what comes down would
//! have taught it one. Without a cache such a call waits for the client's next connectivity check; with one, for the PoP.
//!
//! Nothing is offered to owners at a client's address (`network.offer_unknown`): the far end authenticates nothing, so it could neither
//! refuse an offer nor take one, and all clients of one machine would be heard again with the first of them.

mod calls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use runtime::clock;
use serde::Serialize;
use topology::{Datagrams, Topology};

use crate::bench::world::World;
use crate::net::Network;
use crate::redis_server::{Missing, Redis};
use crate::wait;
use calls::{Board, Calls, Media};

/// How long calls flow before something is killed.
const STEADY: Duration = Duration::from_millis(1_500);
/// How long they may take to flow again.
const RECOVERY_MAX: Duration = Duration::from_secs(30);

/// What is killed, and under which conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// A PoP; clients and far end send.
    PopBothWays,
    /// A PoP without a flow cache; clients only send.
    PopUplinkOnly,
    /// A PoP with a flow cache; clients only send.
    PopCache,
    /// A PoP for good; another one of its failover group, with a flow cache, starts at its address. Clients only send, and
    /// no longer check.
    PopTakeover,
    /// The core relay that carries the records, and it stays dead; another one stands by.
    CoreRelay,
}

impl Case {
    /// All.
    pub const ALL: [Self; 5] = [
        Self::PopBothWays,
        Self::PopUplinkOnly,
        Self::PopCache,
        Self::PopTakeover,
        Self::CoreRelay,
    ];

    /// For a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PopBothWays => "pop, media both ways",
            Self::PopUplinkOnly => "pop, uplink alone, by the client's next check",
            Self::PopCache => "pop, uplink alone, by the flow cache",
            Self::PopTakeover => "pop for good, uplink alone, another takes over by the flow cache",
            Self::CoreRelay => "core relay for good, media both ways, another stands by",
        }
    }

    fn find(self) -> Result<(), Missing> {
        match self {
            Self::PopCache | Self::PopTakeover => Redis::find(),
            Self::PopBothWays | Self::PopUplinkOnly | Self::CoreRelay => Ok(()),
        }
    }

    const fn media(self) -> Media {
        match self {
            Self::PopBothWays | Self::CoreRelay => Media::BothWays,
            Self::PopUplinkOnly | Self::PopCache => Media::UplinkOnly,
            Self::PopTakeover => Media::UplinkUnchecked,
        }
    }

    const fn victim(self) -> &'static str {
        match self {
            Self::PopBothWays | Self::PopUplinkOnly | Self::PopCache | Self::PopTakeover => "p1",
            Self::CoreRelay => "r1",
        }
    }

    /// What is started once the victim is dead.
    const fn successor(self) -> Option<&'static str> {
        match self {
            Self::PopBothWays | Self::PopUplinkOnly | Self::PopCache => Some("p1"),
            Self::PopTakeover => Some("p2"),
            Self::CoreRelay => None,
        }
    }
}

/// One kill.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    /// What.
    pub case: Case,
    /// Calls that flowed.
    pub calls: usize,
    /// From the kill until the program was ready again, when it was started again.
    pub restart_ms: Option<f64>,
    /// The longest silence of a call towards the far end.
    pub silence_up_ms: f64,
    /// The same of half of the calls.
    pub silence_up_ms_median: f64,
    /// The longest silence towards a client, when the far end sends.
    pub silence_down_ms: Option<f64>,
    /// Calls whose client the far end knows by another address afterwards.
    pub moved: usize,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// One for each case that this machine has the programs for.
    pub rows: Vec<Row>,
    /// Why the others are missing.
    pub missing: Vec<String>,
    /// A killed PoP, clients that only send, no cache.
    pub recovery_ms_stun: Option<f64>,
    /// The same with the cache of a failover group.
    pub recovery_ms_redis: Option<f64>,
    /// A killed core relay.
    pub recovery_ms_core_relay: Option<f64>,
}

impl Recovery {
    /// What sums it up, by the names of the JSON object.
    #[must_use]
    pub fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        vec![
            ("recovery_ms_stun", self.recovery_ms_stun),
            ("recovery_ms_redis", self.recovery_ms_redis),
            ("recovery_ms_core_relay", self.recovery_ms_core_relay),
        ]
    }
}

/// Kills something in each of `cases`.
///
/// # Errors
/// A program is not built, or a call does not flow again.
pub fn run(cases: &[Case]) -> anyhow::Result<Recovery> {
    let mut rows = Vec::with_capacity(cases.len());
    let mut missing = Vec::new();
    for case in cases {
        match case.find() {
            Ok(()) => {
                let row = kill(*case);
                rows.push(row.with_context(|| format!("killing: {}", case.name()))?);
            }
            Err(reason) => missing.push(format!("{}: {reason}", case.name())),
        }
    }
    let silence = |case| {
        let row: Option<&Row> = rows.iter().find(|row| row.case == case);
        row.map(|row| {
            row.silence_up_ms
                .max(row.silence_down_ms.unwrap_or_default())
        })
    };
    Ok(Recovery {
        recovery_ms_stun: silence(Case::PopUplinkOnly),
        recovery_ms_redis: silence(Case::PopCache),
        recovery_ms_core_relay: silence(Case::CoreRelay),
        rows,
        missing,
    })
}

fn kill(case: Case) -> anyhow::Result<Row> {
    let redis = match case {
        Case::PopCache | Case::PopTakeover => Some(Redis::start()?),
        Case::PopBothWays | Case::PopUplinkOnly | Case::CoreRelay => None,
    };
    let world = World::start(Datagrams::Packed, |topology| {
        topology.network.offer_unknown = false;
        if case == Case::CoreRelay {
            add_core_relay(topology);
        }
        if case == Case::PopTakeover {
            add_successor(topology);
        }
        if let Some(redis) = &redis {
            redis.join(topology);
        }
    })?;
    let (ufrags, ingress) = (world.ufrags().to_vec(), world.ingress());
    let World {
        mut network,
        far_end,
        ..
    } = world;
    if case == Case::CoreRelay {
        network.start_node("r2")?;
        let what = "a link of p1 to each core relay";
        wait::until_true(what, RECOVERY_MAX, || links_up(&network) == 2)?;
    }
    let board = Arc::new(Board::default());
    let calls = Calls::open(ingress, ufrags, far_end, case.media(), Arc::clone(&board))?;
    // The clients live on a thread of their own: starting a program takes this one a while.
    let thread = std::thread::Builder::new().name("calls".to_owned());
    let running = thread.spawn(move || calls.run())?;
    let outcome = disturb(&mut network, case, &board);
    board.stop();
    let report = running
        .join()
        .map_err(|panic| std::panic::resume_unwind(panic));
    let (Ok(report) | Err(report)) = report;
    let (restart, report) = (outcome?, report?);
    Ok(Row {
        case,
        calls: report.calls,
        restart_ms: restart.map(ms),
        silence_up_ms: ms(report.silence_up),
        silence_up_ms_median: ms(report.silence_up_median),
        silence_down_ms: report.silence_down.map(ms),
        moved: report.moved,
    })
}

/// Kills a node under calls that flow, starts it again unless another stands by, and returns when all calls flow again,
/// with how long the node was not ready.
fn disturb(network: &mut Network, case: Case, board: &Board) -> anyhow::Result<Option<Duration>> {
    board.wait_flowing(RECOVERY_MAX)?;
    let steady = clock::now() + STEADY;
    let what = "calls that flow steadily";
    wait::until_true(what, STEADY * 2, || clock::now() >= steady)?;
    board.arm();
    let killed = clock::now();
    network.kill(case.victim())?;
    let restart = match case.successor() {
        None => None,
        Some(successor) => {
            network.start_node(successor)?;
            Some(clock::now() - killed)
        }
    };
    board.wait_flowing(RECOVERY_MAX)?;
    Ok(restart)
}

/// A PoP `p2` with the ingress of `p1`.
fn add_successor(topology: &mut Topology) {
    let Some(mut second) = topology.pops.first().cloned() else {
        return;
    };
    second.name = "p2".to_owned();
    second.id += 1;
    topology.pops.push(second);
}

/// A second core relay beside `r1`.
fn add_core_relay(topology: &mut Topology) {
    for region in &mut topology.regions {
        let Some(mut second) = region.core_relays.first().cloned() else {
            continue;
        };
        if let std::net::IpAddr::V4(first) = second.address {
            let address = std::net::Ipv4Addr::from_bits(first.to_bits() + 1);
            second.address = address.into();
            second.admin.set_ip(address.into());
        }
        second.name = "r2".to_owned();
        region.core_relays.push(second);
    }
}

fn links_up(network: &Network) -> usize {
    let state = network.state("p1").unwrap_or_default();
    let workers = state.get("workers").and_then(serde_json::Value::as_array);
    let links = workers
        .into_iter()
        .flatten()
        .filter_map(|worker| worker.get("links")?.as_array());
    links
        .flatten()
        .filter(|link| link.get("up").is_some_and(|up| up == true))
        .count()
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
