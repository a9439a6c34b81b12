//! The PoP: takes client packets on its ingress addresses and carries them to the owner's region over its links, and back.
//!
//! ```text
//! client <--UDP--> [ingress sockets | flows | links] <--QUIC datagrams--> core relay        one such set per worker thread
//! ```
//!
//! Decisions are `pop_proto`'s, links are `core_relay_link`'s, sockets and the life of the node are `runtime`'s; this crate
//! joins them. Invariants, stated as absences: no DTLS, SRTP or session state is here, no worker waits for another or takes
//! a lock for a packet, and nothing is sent to a client that a core relay did not hand over for it.

#![forbid(unsafe_code)]

mod announce;
mod downlink;
mod drain;
mod evidence;
mod flow_cache;
mod ingress;
mod metrics;
mod preference;
pub mod regions;
mod state;
mod uplink;
mod vitals;
mod worker;

use std::sync::Arc;

use anyhow::Context as _;
use pop_proto::Neighbours;
use runtime::admin::{self, Admin};
use runtime::clock;
use runtime::node::{NodeContext, Running};
use runtime::random;
use runtime::thread::spawn_worker;

use crate::announce::{Announcing, Orders, Status};
use crate::evidence::{Evidence, Samples};
use crate::flow_cache::FlowCache;
use crate::ingress::{Addresses, Ingress};
use crate::state::Board;
use crate::worker::{Shared, Worker};

/// Binds everything, then starts the workers and admin HTTP.
///
/// # Errors
/// An address is taken or not ours, the certificates do not work, or the kernel gives no thread. Nothing is left behind.
pub fn start(context: NodeContext) -> anyhow::Result<Running> {
    let config = context.config.load();
    let pop = config
        .topology
        .pop_named(&context.name)
        .with_context(|| format!("the topology has no PoP named `{}`", context.name))?;
    let addresses = Addresses::of(&config.topology, pop)?;
    let cache = FlowCache::start(&context, &config, pop, &addresses)?;
    let board = Arc::new(Board::new(
        &context.name,
        addresses.sockets().collect(),
        (pop.workers, clock::now()),
        cache.as_ref().map(FlowCache::status),
    ));
    let samples = Arc::new(Samples::new());
    let flows_max = pop.flows_max.saturating_mul(u32::from(pop.workers));
    let neighbours = Neighbours::new(flows_max, random::number()?, clock::now());
    let neighbours = Arc::new(neighbours);
    let mut workers = Vec::with_capacity(usize::from(pop.workers));
    for index in 0..pop.workers {
        // The kernel spreads clients over the sockets of a group by their order in it, so that order is always the same.
        let ingress = Ingress::bind(&addresses, pop.workers, &context.metrics)
            .with_context(|| format!("ingress of worker {index}"))?;
        let shared = Shared {
            board: &board,
            samples: &samples,
            cache: cache.as_ref(),
            neighbours: &neighbours,
        };
        workers.push(Worker::new(&context, &config, pop, index, ingress, shared)?);
    }
    let announcing = Announcing::prepare(&context, pop, &addresses, &board, cache.as_ref())?;
    let (orders, status) = (announcing.orders(), announcing.status());
    let server = admin::serve(&context, pop.admin, admin_of(&board, &orders, &status))?;
    let evidence = Evidence::start(&context, pop, &board, (&samples, &orders))?;
    let mut threads = Vec::with_capacity(workers.len() + 1);
    for (index, worker) in workers.into_iter().enumerate() {
        let pin = pop.pin.then_some(index);
        let thread = spawn_worker(&format!("pop-{index}"), pin, move || worker.run());
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                context.shutdown.stop();
                return Err(error).context("starting a worker thread");
            }
        }
    }
    match announcing.start() {
        Ok(thread) => threads.push(thread),
        Err(error) => {
            context.shutdown.stop();
            return Err(error).context("starting the announce thread");
        }
    }
    let ingress: Vec<_> = addresses.sockets().collect();
    tracing::info!(node = context.name, admin = %server.address(), ?ingress, "pop runs");
    Ok(Running::new(threads, move || {
        drop((server, cache, evidence))
    }))
}

fn admin_of(board: &Arc<Board>, orders: &Arc<Orders>, status: &Arc<Status>) -> Admin {
    let (ready, ordered) = (Arc::clone(board), Arc::clone(orders));
    let (state, announce, look) = (Arc::clone(board), Arc::clone(status), Arc::clone(status));
    Admin {
        ready: Box::new(move || {
            if ordered.is_draining() {
                return Err("draining".to_owned());
            }
            if look.stands_still(clock::now()) {
                return Err("nobody decides about announcements and drains".to_owned());
            }
            ready.ready()
        }),
        state: Box::new(move || state.to_json(announce.announce())),
        routes: announce::routes(Arc::clone(orders), Arc::clone(status)),
    }
}
