//! The far end on a thread of its own, echoing until it is dropped.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context;
use runtime::poll::Poller;

use crate::bench::far_end::FarEnd;

/// How often it looks whether it is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// What a client says last: its session ends, as the transceiver of a call would end it.
pub(super) const GOODBYE: &[u8] = b"\x80goodbye";

/// Sends every packet back to its client; one that says goodbye is over.
#[derive(Debug)]
pub struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<FarEnd>>>,
}

impl Echo {
    /// Starts it.
    #[must_use]
    pub fn start(mut far_end: FarEnd) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut poller = Poller::new();
            while !told.load(Ordering::Relaxed) {
                poller.wait(&[far_end.as_fd()], Some(LOOK_INTERVAL))?;
                far_end.receive(|egress, relay, header, packet| {
                    if packet == GOODBYE {
                        egress.end(relay, header);
                    } else {
                        egress.send(relay, header, packet);
                    }
                })?;
            }
            Ok(far_end)
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    /// Stops it and gives the far end back.
    ///
    /// # Errors
    /// What it met while it ran.
    pub fn stop(mut self) -> anyhow::Result<FarEnd> {
        self.end().context("it was stopped before")?
    }

    fn end(&mut self) -> Option<anyhow::Result<FarEnd>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|_| Err(anyhow::anyhow!("the far end panicked"))))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
