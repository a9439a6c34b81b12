//! Log lines about links, bounded: PoPs that flap and strangers that knock cannot fill a disk. Every event is counted
//! elsewhere, in metrics.

use std::time::{Duration, Instant};

use core_relay_link::{DownReason, LinkEvent};
use runtime::log_limit::LogLimit;

/// Lines are bounded in this time.
const INTERVAL: Duration = Duration::from_secs(10);
/// Links up, and links down, that are logged in it: those of some dozen PoPs at once.
const LINK_LINES_MAX: u32 = 50;

/// See the module head.
pub(crate) struct LinkLog {
    worker: u8,
    up: LogLimit,
    down: LogLimit,
    duplicate: LogLimit,
    refused: LogLimit,
}

impl LinkLog {
    /// Of one worker.
    pub(crate) const fn new(worker: u8) -> Self {
        Self {
            worker,
            up: LogLimit::new(LINK_LINES_MAX, INTERVAL),
            down: LogLimit::new(LINK_LINES_MAX, INTERVAL),
            duplicate: LogLimit::new(1, INTERVAL),
            refused: LogLimit::new(1, INTERVAL),
        }
    }

    pub(crate) fn log(&mut self, event: &LinkEvent, now: Instant) {
        let worker = self.worker;
        match event {
            LinkEvent::Up {
                peer,
                worker: pop_worker,
                ..
            } => {
                if let Some(unlogged) = self.up.admit(now) {
                    tracing::info!(worker, pop = %peer, pop_worker, unlogged, "link up");
                }
            }
            LinkEvent::Down {
                peer,
                worker: pop_worker,
                reason,
                ..
            } => {
                if *reason == DownReason::Duplicate && self.duplicate.admit(now).is_some() {
                    tracing::warn!(
                        worker,
                        pop = %peer,
                        pop_worker,
                        "two processes run with the name of this PoP and take the link from each other: one must stop"
                    );
                }
                if let Some(unlogged) = self.down.admit(now) {
                    let reason = reason.as_str();
                    tracing::warn!(worker, pop = %peer, pop_worker, reason, unlogged, "link down");
                }
            }
            LinkEvent::Refused { from, reason } => {
                if let Some(unlogged) = self.refused.admit(now) {
                    let reason = reason.as_str();
                    tracing::warn!(worker, %from, reason, unlogged, "refused a connection");
                }
            }
            LinkEvent::Suspect { .. }
            | LinkEvent::Draining { .. }
            | LinkEvent::DialFailed { .. } => {}
        }
    }
}
