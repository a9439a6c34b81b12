//! WireGuard in user space: two `boringtun-cli`, one thread each, a tunnel between two network namespaces.
//!
//! ```text
//! this namespace                                     | the far one
//!  who sends to 10.78.0.2 ─► TUN ─► boringtun        |
//!                                    │ UDP, loopback |
//!                                   boringtun ───────┼─► TUN ─► 10.78.0.2, the echo
//! ```
//!
//! Both ends run in this namespace, so that what they send each other crosses loopback and no veth pair; the far TUN device
//! is moved. The calling thread must be in a namespace of its own: devices and addresses are left to end with it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, setns, unshare};

use super::program::{Missing, Process, boringtun, free_port, work_dir};
use crate::bench::round_trips::PlainEcho;
use crate::wait;

/// Both ends, and the echo behind them.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// In the far namespace.
    pub(crate) echo: PlainEcho,
    near: Process,
    far: Process,
    _namespace: File,
}

impl Tunnel {
    /// Whether it is installed, and whether this process may make devices.
    pub(crate) fn find() -> Result<(), Missing> {
        boringtun()?;
        let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let reason = || Missing("TUN devices and namespaces need root".to_owned());
        root.then_some(()).ok_or_else(reason)
    }

    /// Sets everything up.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let dir = work_dir("boringtun")?;
        let [near, far] = ["n", "f"].map(|side| format!("fh{side}{}", std::process::id()));
        let process = |device: &str| {
            Process::start(&boringtun()?, &dir, |command| {
                command
                    .args(["--foreground", "--threads", "1"])
                    .args(["--disable-drop-privileges", device]);
            })
        };
        let (near_process, far_process) = (process(&near)?, process(&far)?);
        let (near_port, far_port) = (free_port()?.port(), free_port()?.port());
        configure(&near, &settings(&NEAR, near_port, &FAR, far_port))?;
        configure(&far, &settings(&FAR, far_port, &NEAR, near_port))?;
        let namespace = new_namespace()?;
        let (from, at) = (own_namespace()?, namespace_path(&namespace));
        ip(&["link", "set", &far, "netns", &at])?;
        address(&near, NEAR.address)?;
        setns(&namespace, CloneFlags::CLONE_NEWNET).context("entering the far namespace")?;
        let echo = address(&far, FAR.address).and_then(|()| PlainEcho::bind(FAR.address));
        setns(from, CloneFlags::CLONE_NEWNET).context("leaving the far namespace")?;
        Ok(Self {
            echo: echo?,
            near: near_process,
            far: far_process,
            _namespace: namespace,
        })
    }

    /// Fails when an end has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.near.check()?;
        self.far.check()
    }
}

/// One end. The keys guard nothing: both are here for everyone to read.
struct End {
    address: Ipv4Addr,
    private: &'static str,
    public: &'static str,
}

const NEAR: End = End {
    address: Ipv4Addr::new(10, 78, 0, 1),
    private: "77076d0a7318a57d3c16c17251b26645df4c2f92ebc099f6f9c5b1c5a7c5e2b9",
    public: "0dd555501f565048bd75455f79c71cf9300842189182af24e48669a77165b720",
};
const FAR: End = End {
    address: Ipv4Addr::new(10, 78, 0, 2),
    private: "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    public: "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
};

/// The `set` operation of WireGuard's cross-platform interface.
fn settings(own: &End, port: u16, other: &End, other_port: u16) -> String {
    format!(
        "set=1\nprivate_key={}\nlisten_port={port}\npublic_key={}\nendpoint=127.0.0.1:{other_port}\nallowed_ip={}/32\n\n",
        own.private, other.public, other.address
    )
}

/// Tells a running end; it makes its socket once it is up.
fn configure(device: &str, settings: &str) -> anyhow::Result<()> {
    let path = PathBuf::from(format!("/var/run/wireguard/{device}.sock"));
    let what = format!("boringtun's {}", path.display());
    let mut stream = wait::until(&what, START_MAX, || UnixStream::connect(&path).ok())?;
    stream.write_all(settings.as_bytes())?;
    stream.set_read_timeout(Some(START_MAX))?;
    let mut answer = [0; 64];
    let len = stream.read(&mut answer).context("boringtun's answer")?;
    let answer = String::from_utf8_lossy(answer.get(..len).unwrap_or_default()).into_owned();
    ensure!(answer.trim() == "errno=0", "boringtun answers {answer:?}");
    Ok(())
}

fn address(device: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    ip(&["address", "add", &format!("{address}/24"), "dev", device])?;
    // 160-byte packets in and out of a queue as long as everybody else's.
    ip(&[
        "link",
        "set",
        device,
        "mtu",
        "1420",
        "txqueuelen",
        "4096",
        "up",
    ])
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.context("running ip")?;
    let error = String::from_utf8_lossy(&output.stderr);
    let line = arguments.join(" ");
    ensure!(output.status.success(), "ip {line}: {}", error.trim());
    Ok(())
}

/// An empty namespace that lives as long as the file is open.
fn new_namespace() -> anyhow::Result<File> {
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).context("a network namespace needs root")?;
        own_namespace()
    });
    match thread.join() {
        Ok(file) => file,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn own_namespace() -> anyhow::Result<File> {
    File::open("/proc/thread-self/ns/net").context("opening this namespace")
}

fn namespace_path(file: &File) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        for side in ["n", "f"] {
            // boringtun was killed and could not.
            let socket = format!("/var/run/wireguard/fh{side}{}.sock", std::process::id());
            let _ = fs::remove_file(socket);
        }
    }
}

const START_MAX: Duration = Duration::from_secs(5);
