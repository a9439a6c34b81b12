//! Whether the machine let this process run: a figure of speed that does not hold may be the machine's doing.
//!
//! ```text
//! processor 0 ──[thread, wakes every 5 ms]──┐
//! processor 1 ──[thread, wakes every 5 ms]──┴─► how late they were: at most, and in the mean
//! ```
//!
//! [`figures`] measures again when a figure does not hold and the machine stood still meanwhile, or had too much to do, and says so. One that
//! does not hold while the machine ran, or in no attempt, is the product's. What is no figure of speed is not for it: that is asserted, in every attempt.

use std::fmt::Debug;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use runtime::clock;

/// Attempts at most.
const ATTEMPTS: usize = 3;
/// Whoever is later than this did not run: two frames of a call.
pub const STANDSTILL: Duration = Duration::from_millis(40);
/// Where threads are later than this in the mean, more want to run than there are processors: a machine that runs is late by a tenth of it.
const CROWDED: Duration = Duration::from_millis(1);
/// How often a thread looks at the clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What a measurement found of figures of speed.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Figures {
    /// Those that do not hold, in words.
    broken: Vec<String>,
}

impl Figures {
    /// A figure has to be below its limit.
    pub fn below<T: Debug + PartialOrd>(&mut self, what: &str, found: T, limit: T) {
        let holds = found < limit;
        self.holds(holds, || format!("{what}: {found:?}, not below {limit:?}"));
    }

    /// A figure has to be so; the text says how it is.
    pub fn holds(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.broken.push(text());
        }
    }
}

/// Measures, and measures again when figures do not hold and the machine stood still meanwhile.
///
/// # Errors
/// They hold in no attempt, or they do not although the machine ran.
pub fn figures(what: &str, mut measure: impl FnMut() -> Figures) -> anyhow::Result<()> {
    repeat(what, || {
        let watch = Standstill::watch()?;
        Ok((measure(), watch.lateness()))
    })
}

fn repeat(
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<(Figures, Lateness)>,
) -> anyhow::Result<()> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (Figures { broken }, late) = attempt()?;
        if broken.is_empty() {
            return Ok(());
        }
        let broken = broken.join("; ");
        let Lateness { longest, mean } = late;
        let machine = format!("the machine was late by {longest:?} at most, {mean:?} in the mean");
        if attempts >= ATTEMPTS || !late.disturbs() {
            bail!("{what}: {broken}; {machine}");
        }
        let mut out = std::io::stdout();
        writeln!(out, "{what}: {broken}; {machine}: once more")?;
    }
}

/// How late threads were that had something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// The longest time in which a processor did not run its thread that was due.
    pub longest: Duration,
    /// Over all times it was.
    pub mean: Duration,
}

impl Lateness {
    /// Whether a figure of speed may be the machine's.
    #[must_use]
    pub fn disturbs(self) -> bool {
        self.longest >= STANDSTILL || self.mean >= CROWDED
    }
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Standstill {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    longest_us: AtomicU64,
    all_us: AtomicU64,
    looks: AtomicU64,
    ended: AtomicBool,
}

impl Standstill {
    /// Begins, on every processor that this process may use.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn watch() -> anyhow::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = sched_getaffinity(Pid::from_raw(0)).context("processors of this process")?;
        let processors =
            (0..CpuSet::count()).filter(|processor| own.is_set(*processor) == Ok(true));
        let begin = |processor| {
            let shared = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("standstill".to_owned());
            thread.spawn(move || shared.look(processor))
        };
        let threads = processors.map(begin).collect::<Result<_, _>>();
        Ok(Self {
            threads: threads.context("threads that look at the clock")?,
            shared,
        })
    }

    /// How late threads were so far.
    #[must_use]
    pub fn lateness(&self) -> Lateness {
        let of = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let looks = of(&self.shared.looks).max(1);
        Lateness {
            longest: Duration::from_micros(of(&self.shared.longest_us)),
            mean: Duration::from_micros(of(&self.shared.all_us) / looks),
        }
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has nothing to say.
            let _ended = thread.join();
        }
    }
}

impl Shared {
    fn look(&self, processor: usize) {
        let mut only = CpuSet::new();
        if only.set(processor).is_ok() {
            // Taken away meanwhile: then it looks from another one.
            let _pinned = sched_setaffinity(Pid::from_raw(0), &only);
        }
        while !self.ended.load(Ordering::Relaxed) {
            let due = clock::now() + LOOK_INTERVAL;
            std::thread::sleep(LOOK_INTERVAL);
            let late = clock::now().saturating_duration_since(due);
            let late_us = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
            self.longest_us.fetch_max(late_us, Ordering::Relaxed);
            self.all_us.fetch_add(late_us, Ordering::Relaxed);
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAN: Lateness = Lateness {
        longest: Duration::from_millis(39),
        mean: Duration::from_micros(999),
    };

    /// Attempts that were made when each finds one figure, held or not, and a machine so late; and what came of it.
    fn attempts(found: &[(bool, Lateness)]) -> (usize, String) {
        let mut left = found.iter();
        let outcome = repeat("test", || {
            let (holds, late) = left.next().context("an attempt too many")?;
            let mut figures = Figures::default();
            figures.holds(*holds, || "slow".to_owned());
            Ok((figures, *late))
        });
        let said = outcome.err().map(|error| error.to_string());
        (found.len() - left.count(), said.unwrap_or_default())
    }

    #[test]
    fn figures_that_do_not_hold_are_measured_again_when_the_machine_was_late_and_not_else() {
        let stood_still = Lateness {
            longest: STANDSTILL,
            ..RAN
        };
        let crowded = Lateness {
            mean: CROWDED,
            ..RAN
        };
        for late in [stood_still, crowded] {
            let well = String::new();
            assert_eq!(attempts(&[(true, late), (true, late)]), (1, well.clone()));
            assert_eq!(attempts(&[(false, late), (true, RAN)]), (2, well));
            let (made, said) = attempts(&[(false, late); ATTEMPTS + 1]);
            assert_eq!(made, ATTEMPTS);
            assert!(said.contains("slow"), "{said}");
        }
        let (made, said) = attempts(&[(false, RAN), (true, RAN)]);
        assert_eq!(made, 1);
        assert_eq!(
            said,
            "test: slow; the machine was late by 39ms at most, 999µs in the mean"
        );
    }

    #[test]
    fn a_figure_at_its_limit_does_not_hold() {
        let mut figures = Figures::default();
        figures.below("it", 2, 3);
        assert!(figures.broken.is_empty());
        figures.below("it", 3, 3);
        assert_eq!(figures.broken, ["it: 3, not below 3"]);
    }

    #[test]
    fn threads_note_how_late_they_are() {
        let watch = Standstill::watch().unwrap();
        assert!(!watch.threads.is_empty());
        // No thread is ever as early as that.
        let late = || {
            let found = watch.lateness();
            found.longest >= found.mean && found.mean > Duration::ZERO
        };
        crate::wait::until_true("a thread that is late", Duration::from_secs(20), late).unwrap();
    }
}
