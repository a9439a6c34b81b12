//! SIGINT and SIGTERM: what this process made outside of itself is taken down, then it ends. A second signal does not wait for that.
//!
//! Whoever makes something says with [`on_interrupt`] how it is taken down, and holds what that returns as long as the thing is
//! there. What was made last goes first. From the signal on nothing else is made or taken down: who tries waits for the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use nix::sys::signal::{SigSet, Signal};

/// Status of a process that was told to end, as shells have it for SIGINT.
const STATUS: i32 = 130;

type End = Box<dyn FnOnce() + Send>;

/// What there is, by the order in which it was made.
struct Made {
    number: u64,
    ends: BTreeMap<u64, End>,
    ending: bool,
}

static MADE: Mutex<Made> = Mutex::new(Made {
    number: 0,
    ends: BTreeMap::new(),
    ending: false,
});

/// Something that has to be taken down. Dropped, somebody does it in another way.
#[derive(Debug)]
pub struct OnInterrupt {
    number: u64,
}

/// Takes something down with `end` when this process is told to end, unless what this returns is dropped before.
pub fn on_interrupt(end: impl FnOnce() + Send + 'static) -> OnInterrupt {
    let mut made = made();
    made.number += 1;
    let number = made.number;
    made.ends.insert(number, Box::new(end));
    OnInterrupt { number }
}

impl Drop for OnInterrupt {
    fn drop(&mut self) {
        made().ends.remove(&self.number);
    }
}

/// Heeds signals from here on. To be called before there is any other thread: threads inherit what is blocked, and programs do not.
///
/// # Errors
/// The kernel gives no thread.
pub fn heed() -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().context("blocking signals")?;
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(move || {
        if signals.wait().is_err() {
            return;
        }
        let taken_down = std::thread::Builder::new().spawn(|| {
            take_down();
            std::process::exit(STATUS);
        });
        if taken_down.is_ok() {
            let _second = signals.wait();
        }
        std::process::exit(STATUS);
    })?;
    Ok(())
}

/// Waits for the end of this process if it was told to end; else returns at once. For a `main` that would end it sooner.
pub fn finish() {
    drop(made());
}

fn take_down() {
    let ends = {
        let mut made = made();
        made.ending = true;
        std::mem::take(&mut made.ends)
    };
    for end in ends.into_values().rev() {
        end();
    }
}

/// Never returns while the process ends.
fn made() -> MutexGuard<'static, Made> {
    let made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if !made.ending {
        return made;
    }
    drop(made);
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering};

    use super::*;

    #[test]
    fn what_is_gone_by_itself_is_not_taken_down() {
        let done = Arc::new(AtomicBool::new(false));
        let does = Arc::clone(&done);
        let guard = on_interrupt(move || does.store(true, Ordering::Relaxed));
        let number = guard.number;
        assert!(made().ends.contains_key(&number));
        drop(guard);
        assert!(!made().ends.contains_key(&number));
        assert_eq!(Arc::strong_count(&done), 1, "nobody will");
        assert!(!done.load(Ordering::Relaxed));
        finish();
    }
}
