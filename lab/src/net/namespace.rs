//! A network namespace for one thread: whatever it opens and whomever it starts lives there. It is gone when the
//! thread and its children are.

use std::net::IpAddr;
use std::process::Command;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, unshare};

/// What every namespace holds: loopback, and an address that is not loopback, with a default route. Firefox pairs no
/// loopback candidates, and looks for its own address by way of the default route.
const SETUP: &[&[&str]] = &[
    &["link", "set", "lo", "up"],
    &[
        "link", "add", "lab0", "type", "veth", "peer", "name", "lab1",
    ],
    &["address", "add", "10.77.0.1/24", "dev", "lab0"],
    &["link", "set", "lab0", "up"],
    &["link", "set", "lab1", "up"],
    &["route", "add", "default", "via", "10.77.0.2"],
];

/// Runs `test` on a thread with a namespace of its own, and gives it the namespace's non-loopback address.
///
/// # Errors
/// Not root, `ip` is missing, or what `test` returns.
pub fn run<T: Send>(test: impl FnOnce(IpAddr) -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| test(enter()?));
        match thread.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

fn enter() -> anyhow::Result<IpAddr> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace needs root")?;
    for arguments in SETUP {
        let output = Command::new("ip")
            .args(*arguments)
            .output()
            .context("running ip")?;
        if !output.status.success() {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            bail!("ip {}: {error}", arguments.join(" "));
        }
    }
    Ok(IpAddr::from([10, 77, 0, 1]))
}
