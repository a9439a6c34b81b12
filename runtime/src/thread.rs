//! Worker threads: named, pinned, with fine timers. A worker that panics takes the process with it: a supervisor
//! restarts a dead process, nobody restarts a dead thread, and a node with one must not look alive.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use crate::sys;

/// The least share of a processor there is (setpriority(2)).
const NICE_LAST: i32 = 19;

/// Low among those of real time (1 to 99): the kernel's own threads go first.
const REAL_TIME_PRIORITY: i32 = 10;
/// Longest thread name Linux keeps.
const NAME_CHARS_MAX: usize = 15;

/// Starts a worker. `pin` is the worker's index: it runs on that one of the processors the process may use, modulo
/// their number; `None` leaves placement to the kernel.
///
/// # Errors
/// The kernel gives no thread.
pub fn spawn_worker(
    name: &str,
    pin: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let name: String = name.chars().take(NAME_CHARS_MAX).collect();
    Builder::new().name(name.clone()).spawn(move || {
        prepare(&name, pin);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            tracing::error!(
                worker = name,
                reason = reason(&*panic),
                "worker panicked: the process ends"
            );
            crate::logging::flush();
            std::process::abort();
        }
    })
}

/// Lets the calling thread run whenever it can, before all threads that are not of real time. For a thread that mostly sleeps: one that does
/// not keeps a processor for itself.
///
/// # Errors
/// Not privileged.
pub fn run_first() -> io::Result<()> {
    sys::process::run_first(REAL_TIME_PRIORITY)
}

/// Lets the calling thread run after others: for long work beside threads that answer packets. Without the right to it nothing changes.
pub fn run_last() {
    if let Err(error) = sys::process::run_last(NICE_LAST) {
        tracing::warn!(%error, "background work runs beside packets as an equal");
    }
}

fn prepare(name: &str, pin: Option<usize>) {
    if let Some(index) = pin
        && let Err(error) = pin_to_nth(index)
    {
        tracing::warn!(worker = name, %error, "worker is not pinned");
    }
    if let Err(error) = sys::process::finest_timer_slack() {
        tracing::warn!(worker = name, %error, "timers of this worker may be 50 us late");
    }
}

fn pin_to_nth(index: usize) -> io::Result<()> {
    let allowed = sys::process::allowed_processors()?;
    let nth = index.checked_rem(allowed.len()).unwrap_or(0);
    let processor = allowed.get(nth).ok_or(io::ErrorKind::NotFound)?;
    sys::process::pin_to(*processor)
}

fn reason(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_worker_may_run_on_one_processor_and_an_index_beyond_them_wraps() {
        for index in [0, 1, 1000] {
            let (send, receive) = std::sync::mpsc::sync_channel(1);
            let worker = spawn_worker("a name longer than fifteen", Some(index), move || {
                let name = std::thread::current().name().map(str::to_owned);
                send.send((name, sys::process::allowed_processors().unwrap()))
                    .unwrap();
            });
            worker.unwrap().join().unwrap();
            let (name, processors) = receive.recv().unwrap();
            assert_eq!(name.as_deref(), Some("a name longer t"));
            assert_eq!(processors.len(), 1);
        }
    }
}
