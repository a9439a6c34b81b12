//! Whether anything is lost when our node ends under load: SIGTERM comes while questions go on, and each is answered, or refused by
//! the kernel because nobody listens any more.
//!
//! ```text
//! asked  =  answered  +  refused by the kernel (port unreachable)  +  lost
//! ```
//!
//! The kernel counts what it refuses for all sockets of a network namespace together, so this wants one of its own.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use runtime::clock;

use super::asked::while_asked;
use super::database::{Database, Edition};
use super::ours::NODE;
use crate::net::Network;
use crate::wait;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Questions the kernel took.
    pub asked: u64,
    /// Right answers.
    pub answered: u64,
    /// Questions that came when nobody listened any more, as the kernel counts them.
    pub refused_by_kernel: u64,
    /// Errors, cut answers, answers that name no region or answer nothing.
    pub wrong: u64,
}

impl Ending {
    /// Questions that were neither answered nor refused.
    #[must_use]
    pub fn lost(&self) -> i128 {
        let known = self.answered + self.refused_by_kernel + self.wrong;
        i128::from(self.asked) - i128::from(known)
    }
}

/// Ends our node, in the network namespace of this thread, while it is asked `rate` questions a second.
///
/// # Errors
/// It does not come up, or does not end well.
pub fn run(rate: u32, dir: &Path) -> anyhow::Result<Ending> {
    let database = Database::write(dir, Edition::First)?;
    let (found, before) = while_asked(&database, rate, |network| {
        let before = refused_by_kernel()?;
        end(network)?;
        Ok(before)
    })?;
    Ok(Ending {
        asked: found.sent - found.unsent,
        answered: found.answered,
        refused_by_kernel: refused_by_kernel()? - before,
        wrong: found.refused + found.wrong + found.strange,
    })
}

/// Under load before and after.
fn end(network: &mut Network) -> anyhow::Result<()> {
    hold()?;
    network.terminate(NODE)?;
    let status = network.wait_end(NODE)?;
    ensure!(status.success(), "{NODE} ended with {status}");
    hold()
}

fn hold() -> anyhow::Result<()> {
    let start = clock::now();
    wait::until_true("the load to go on", 2 * HOLD, || {
        clock::now() - start >= HOLD
    })
}

/// Datagrams for ports nobody listens at, in the namespace of this thread.
fn refused_by_kernel() -> anyhow::Result<u64> {
    let text = fs::read_to_string("/proc/thread-self/net/snmp")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = lines.next().zip(lines.next()).context("figures of UDP")?;
    let mut figures = names.split(' ').zip(values.split(' '));
    let (_, value) = figures
        .find(|(name, _)| *name == "NoPorts")
        .context("NoPorts")?;
    value.parse().context("NoPorts is no number")
}

const HOLD: Duration = Duration::from_secs(1);
