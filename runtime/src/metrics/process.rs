//! What every node says about itself: build, start time, memory, processor time.

use super::Registry;
use crate::{clock, sys};

pub(super) fn register(registry: &Registry) {
    let version = env!("CARGO_PKG_VERSION");
    let shared = &registry.shared;
    let labels = [
        ("program", shared.program.as_str()),
        ("node", shared.node.as_str()),
        ("version", version),
    ];
    registry.observe_gauge(
        "build_info",
        "",
        "Always 1; the labels say what runs.",
        &labels,
        || 1.0,
    );
    let started_s = clock::unix_s();
    registry.observe_gauge(
        "process.start_time_s",
        "s",
        "When the node started, in seconds since the Unix epoch.",
        &[],
        move || float(started_s),
    );
    registry.observe_gauge(
        "process.resident_memory_bytes",
        "By",
        "Resident memory of the process.",
        &[],
        || float(resident_bytes().unwrap_or(0)),
    );
    registry.observe_gauge(
        "process.cpu_s",
        "s",
        "Processor time the process has used, in user and kernel mode.",
        &[],
        || sys::process::processor_time().as_secs_f64(),
    );
}

/// `VmRSS:     1234 kB` of proc_pid_status(5).
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[expect(clippy::cast_precision_loss, reason = "seconds and bytes below 2^53")]
const fn float(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    #[test]
    fn resident_memory_is_read() {
        assert!(super::resident_bytes().unwrap() > 100_000);
    }
}
