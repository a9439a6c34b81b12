//! Our node, asked so many questions a second while something is done to it.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

use super::database::Database;
use super::load::{Found, Load, Pace};
use super::questions::{Clients, Questions};
use super::report::{LANES, QUESTIONS};
use super::servers::{Running, Server};
use crate::bench::processor;
use crate::bench::world::ENDS;
use crate::net::Network;

/// Starts it with `database` and asks it until `act` has ended; what came of the questions, and of `act`.
pub(super) fn while_asked<T>(
    database: &Database,
    rate: u32,
    act: impl FnOnce(&mut Network) -> anyhow::Result<T>,
) -> anyhow::Result<(Found, T)> {
    let questions = Questions::random(QUESTIONS, Clients::V4, 25, database).anywhere();
    let mut running = Running::start(Server::Ours, database)?;
    let to = running.address();
    let is_done = AtomicBool::new(false);
    let load = || -> anyhow::Result<Found> {
        processor::pin(ENDS)?;
        let check = Server::Ours.check();
        let mut load = Load::open(to, LANES, Pace::Rate(rate), check, &questions)?;
        let mut found = load.run_while(|_| !is_done.load(Ordering::Relaxed))?;
        found.add(&load.settle()?);
        Ok(found)
    };
    std::thread::scope(|scope| {
        let load = scope.spawn(load);
        let network = running.network().context("our node has a network");
        let done = network.and_then(act);
        is_done.store(true, Ordering::Relaxed);
        match load.join() {
            Ok(found) => Ok((found?, done?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
