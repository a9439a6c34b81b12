//! The core relay: forwards records between the links of PoPs and the transceivers of its region.
//!
//! ```text
//! pop worker <--QUIC datagrams--> [link socket | links | relay | record socket] <--UDP records--> transceivers
//!                                   link_port + i      one such set per worker i     record_port + i
//! ```
//!
//! Decisions are `core_relay_proto`'s, links are `core_relay_link`'s, sockets and the life of the node are `runtime`'s; this
//! crate joins them. Invariants, stated as absences: nothing about a flow, a client or a session is kept from one batch to the
//! next, no worker waits for another or takes a lock for a record, and nothing leaves towards an address outside the CIDR.

#![forbid(unsafe_code)]

mod egress;
mod log;
mod metrics;
pub mod pops;
mod state;
mod tell;
mod worker;

use std::sync::Arc;

use anyhow::Context as _;
use runtime::admin::{self, Admin};
use runtime::clock;
use runtime::node::{NodeContext, Running};
use runtime::store;
use runtime::thread::spawn_worker;

use crate::state::Board;
use crate::worker::Worker;

/// Binds everything, then starts the workers and admin HTTP.
///
/// # Errors
/// An address is taken or not ours, the certificates do not work, or the kernel gives no thread. Nothing is left behind.
pub fn start(context: NodeContext) -> anyhow::Result<Running> {
    let config = context.config.load();
    let (region, relay) = config
        .topology
        .core_relay_named(&context.name)
        .with_context(|| format!("the topology has no core relay named `{}`", context.name))?;
    let board = Arc::new(Board::new(
        &context.name,
        &region.name,
        relay.workers,
        clock::now(),
    ));
    let workers = (0..relay.workers)
        .map(|index| {
            Worker::new(&context, &config, (region, relay), index, &board)
                .with_context(|| format!("worker {index}"))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let server = admin::serve(&context, relay.admin, admin_of(&board))?;
    let own = tell::Own {
        board: Arc::clone(&board),
        shutdown: context.shutdown.clone(),
    };
    let told = store::publish(&context, own)?;
    let mut threads = Vec::with_capacity(workers.len());
    for (index, worker) in workers.into_iter().enumerate() {
        let pin = relay.pin.then_some(index);
        let thread = spawn_worker(&format!("core-relay-{index}"), pin, move || worker.run());
        match thread {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                context.shutdown.stop();
                return Err(error).context("starting a worker thread");
            }
        }
    }
    tracing::info!(
        node = context.name,
        region = region.name,
        admin = %server.address(),
        address = %relay.address,
        "core relay runs"
    );
    Ok(Running::new(threads, move || drop((server, told))))
}

/// Ready from the moment every socket is bound, which is before this exists; admin HTTP itself answers while draining.
fn admin_of(board: &Arc<Board>) -> Admin {
    let state = Arc::clone(board);
    Admin {
        ready: Box::new(|| Ok(String::new())),
        state: Box::new(move || state.to_json()),
        routes: axum::Router::new(),
    }
}
