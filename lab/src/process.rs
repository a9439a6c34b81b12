//! What `/proc` says about a process: memory, processor time, UDP sockets.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

/// `USER_HZ`; 100 on every Linux that Rust runs on.
const TICKS_PER_S: f64 = 100.0;

/// A look at a process.
#[derive(Clone, Debug, Serialize)]
pub struct Usage {
    /// Process id.
    pub pid: u32,
    /// Name of its executable.
    pub name: String,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Processor time of all its threads so far, in seconds.
    pub cpu_s: f64,
    /// UDP sockets it holds.
    pub udp_sockets: usize,
}

impl Usage {
    /// Looks.
    ///
    /// # Errors
    /// There is no such process, or it is not ours to look at.
    pub fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/{file}"))
                .with_context(|| format!("reading /proc/{pid}/{file}"))
        };
        Ok(Self {
            pid,
            name: read("comm")?.trim().to_owned(),
            rss_bytes: rss_bytes(&read("status")?).context("no VmRSS: the process has ended")?,
            cpu_s: cpu_s(&read("stat")?).context("unreadable stat")?,
            udp_sockets: udp_sockets(pid)?,
        })
    }

    /// Share of one processor used between `earlier` and this look, `elapsed` apart.
    #[must_use]
    pub fn cpu_share_since(&self, earlier: &Self, elapsed: Duration) -> f64 {
        (self.cpu_s - earlier.cpu_s) / elapsed.as_secs_f64().max(0.001)
    }
}

fn rss_bytes(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Fields 14 and 15 of proc_pid_stat(5), counted after the closing parenthesis of the name.
pub(crate) fn cpu_s(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_S)
}

/// Sockets of its descriptors that are in its namespace's UDP tables.
fn udp_sockets(pid: u32) -> anyhow::Result<usize> {
    let mut inodes = Vec::new();
    for table in ["udp", "udp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}"))?;
        let rows = text.lines().skip(1);
        inodes.extend(rows.filter_map(|row| row.split_whitespace().nth(9).map(str::to_owned)));
    }
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))?;
    let held = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(held
        .filter_map(|target| {
            let target = target.to_string_lossy().into_owned();
            Some(
                target
                    .strip_prefix("socket:[")?
                    .strip_suffix(']')?
                    .to_owned(),
            )
        })
        .filter(|inode| inodes.contains(inode))
        .count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sees_this_process_and_its_sockets() {
        let before = Usage::of(std::process::id()).unwrap();
        let _sockets: Vec<_> = (0..3)
            .map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap())
            .collect();
        let after = Usage::of(std::process::id()).unwrap();
        assert!(after.udp_sockets >= before.udp_sockets + 3);
        assert!(after.rss_bytes > 1 << 20 && after.cpu_s >= before.cpu_s);
    }
}
