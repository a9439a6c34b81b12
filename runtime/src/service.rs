//! What the service manager is told that started the process, by systemd's protocol (sd_notify(3), sd_watchdog_enabled(3)).
//!
//! ```text
//!  started ──READY=1──► every quarter of WatchdogSec: each part has made a turn ──WATCHDOG=1──► told to end ──STOPPING=1──►
//!                       one has not: no beat, and the service manager kills and restarts the process
//! ```
//!
//! A process that stands still as a whole cannot say so, and the kernel keeps what it holds: sockets, devices, routes. Somebody outside
//! must notice. A thread of its own beats, and depends on nothing but the parts it looks at ([`crate::watch`] has them). Whatever is
//! wrong with the socket is logged once and never fatal.
//!
//! What is not here: restarting anything. There is one service manager for a process, so this is for the one node that is the process
//! ([`crate::node::main`]).

mod environment;

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use self::environment::Environment;
use crate::metrics::{Counter, Registry};
use crate::thread::spawn_worker;
use crate::watch::Watch;

/// Beats and looks in the time that the service manager waits for one.
const BEATS: u32 = 4;
/// No beat is more frequent, however short that time is.
const BEAT_MIN: Duration = Duration::from_millis(20);
/// So many beats in a row are withheld before it is told, once.
const TOLD_AT: u32 = 2;
/// The service manager reads slowly: no message waits longer for room in its socket.
const SEND_MAX: Duration = Duration::from_millis(500);

const READY: &[u8] = b"READY=1\n";
const STOPPING: &[u8] = b"STOPPING=1\n";
const BEAT: &[u8] = b"WATCHDOG=1\n";

/// The service manager of this process. Without one, nothing is told to nobody.
pub(crate) struct Service {
    line: Option<Line>,
    /// It wants a beat within so long.
    watchdog: Option<Duration>,
    withheld: Counter,
}

/// The way to it.
#[derive(Clone)]
struct Line {
    /// Its name is looked up for each message: a service manager that was restarted itself has another socket there.
    to: SocketAddr,
    socket: Arc<UnixDatagram>,
    sent: Counter,
    failed: Counter,
}

impl Service {
    /// What the environment says.
    pub(crate) fn of_process(registry: &Registry) -> Self {
        let found = environment::read(|name| std::env::var_os(name), std::process::id());
        Self::new(found, registry)
    }

    fn new(found: Environment, registry: &Registry) -> Self {
        for misuse in &found.misuses {
            let misuse = misuse.to_string();
            tracing::warn!(
                misuse,
                "the service manager is not told, or not all it wants"
            );
        }
        let line = found.to.map(|to| Line::open(to, registry)).transpose();
        let line = line.unwrap_or_else(|error| {
            tracing::warn!(%error, "no socket towards the service manager: it is not told");
            None
        });
        Self {
            watchdog: found.watchdog.filter(|_| line.is_some()),
            line,
            withheld: registry.counter(
                "service.beats_withheld",
                "{beat}",
                "Beats that the service manager did not get because a part of the process made no turn.",
                &[],
            ),
        }
    }

    /// The node serves. From here on it beats for as long as every part of it makes turns.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub(crate) fn ready(&self, watch: &Watch) -> io::Result<()> {
        let Some(line) = &self.line else {
            return Ok(());
        };
        line.tell(READY);
        let Some(watchdog) = self.watchdog else {
            return Ok(());
        };
        let beats = Beats {
            line: line.clone(),
            watch: watch.clone(),
            every: (watchdog / BEATS).max(BEAT_MIN),
            withheld: self.withheld.clone(),
            withheld_in_a_row: 0,
        };
        tracing::info!(?watchdog, every = ?beats.every, "beats to the service manager");
        spawn_worker("watchdog", None, move || beats.run()).map(|_runs_for_ever| ())
    }

    /// The node was told to end. It beats on until it has.
    pub(crate) fn stopping(&self) {
        if let Some(line) = &self.line {
            line.tell(STOPPING);
        }
    }
}

impl Line {
    fn open(to: SocketAddr, registry: &Registry) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_MAX))?;
        let messages = |result| {
            registry.counter(
                "service.messages",
                "{message}",
                "Messages to the service manager.",
                &[("result", result)],
            )
        };
        Ok(Self {
            to,
            socket: Arc::new(socket),
            sent: messages("sent"),
            failed: messages("failed"),
        })
    }

    fn tell(&self, message: &[u8]) {
        match self.socket.send_to_addr(message, &self.to) {
            Ok(_) => self.sent.add(1),
            Err(error) => {
                // Told once: beats would say it several times a second.
                if self.failed.total() == 0 {
                    tracing::warn!(%error, "the service manager does not take a message");
                }
                self.failed.add(1);
            }
        }
    }
}

/// The thread that beats, as long as the process lives.
struct Beats {
    line: Line,
    watch: Watch,
    every: Duration,
    withheld: Counter,
    withheld_in_a_row: u32,
}

impl Beats {
    fn run(mut self) {
        loop {
            self.look();
            std::thread::sleep(self.every);
        }
    }

    fn look(&mut self) {
        match self.watch.all_moved() {
            Ok(()) => {
                self.withheld_in_a_row = 0;
                self.line.tell(BEAT);
            }
            Err(part) => {
                self.withheld.add(1);
                self.withheld_in_a_row = self.withheld_in_a_row.saturating_add(1);
                // An idle part may make its turn just after a look.
                if self.withheld_in_a_row == TOLD_AT {
                    tracing::warn!(part, "makes no turn: no beat to the service manager");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
