//! Where threads run, and the processor time that processes use.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Lets this thread, and every process it starts from here on, run on one processor only.
///
/// # Errors
/// There is no such processor, or this process may not use it.
pub fn pin(processor: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)
        .with_context(|| format!("no processor {processor}"))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .with_context(|| format!("running on processor {processor} only"))
}

/// Lets every thread that a process has now run on one processor only, whatever the process chose itself.
///
/// # Errors
/// There is no such process, or no such processor.
pub fn pin_threads(pid: u32, processor: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)
        .with_context(|| format!("no processor {processor}"))?;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let name = thread?.file_name();
        let thread = name.to_string_lossy().parse().context("no thread id")?;
        sched_setaffinity(Pid::from_raw(thread), &set)
            .with_context(|| format!("moving thread {thread} to processor {processor}"))?;
    }
    Ok(())
}

/// Processor time that all threads of a process have used so far, to the nanosecond as the scheduler accounts it. What a
/// sender's system call does for the receiver (the softirq of loopback) is the sender's.
///
/// # Errors
/// There is no such process.
pub fn time(pid: u32) -> anyhow::Result<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .with_context(|| format!("reading the threads of process {pid}"))?;
    let mut total = Duration::ZERO;
    for thread in threads {
        // A thread that ended between the two looks has no say any more.
        if let Ok(line) = fs::read_to_string(thread?.path().join("schedstat")) {
            total += running(&line).context("unreadable schedstat")?;
        }
    }
    Ok(total)
}

/// The first number: nanoseconds spent on a processor.
fn running(schedstat: &str) -> Option<Duration> {
    let ns = schedstat.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::clock;

    #[test]
    fn time_of_this_process_grows_as_it_works() {
        assert_eq!(
            running("12000000001 77 5"),
            Some(Duration::new(12, 1)),
            "nanoseconds, not what it waited for"
        );
        let before = time(std::process::id()).unwrap();
        let end = clock::now() + Duration::from_millis(50);
        while clock::now() < end {}
        let used = time(std::process::id()).unwrap() - before;
        assert!(used > Duration::from_millis(10), "{used:?}");
    }
}
