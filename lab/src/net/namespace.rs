//! A network namespace for the calling thread: whatever it opens and whomever it starts from then on lives there.
//! It is gone when the thread and its children are.

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

/// Moves the calling thread into a namespace of its own and returns the namespace's non-loopback address.
///
/// # Errors
/// Not root, or `ip` is missing.
pub fn enter() -> anyhow::Result<IpAddr> {
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace needs root")?;
    for arguments in SETUP {
        let output = Command::new("ip")
            .args(*arguments)
            .output()
            .context("running ip")?;
        if !output.status.success() {
            bail!(
                "ip {}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(IpAddr::from([10, 77, 0, 1]))
}
