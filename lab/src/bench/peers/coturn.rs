//! coturn: a TURN server that asks for no credentials, one relay thread, a socket for each allocation.

use std::net::SocketAddr;

use super::program::{Missing, Process, debian, free_port, work_dir};

/// Running.
#[derive(Debug)]
pub(crate) struct Coturn {
    /// Where clients send to.
    pub(crate) address: SocketAddr,
    process: Process,
}

impl Coturn {
    /// Whether it is installed.
    pub(crate) fn find() -> Result<(), Missing> {
        debian(PROGRAM, "coturn").map(|_| ())
    }

    /// On a port of its own; clients name their peers.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let dir = work_dir("coturn")?;
        let address = free_port()?;
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let process = Process::start(&debian(PROGRAM, "coturn")?, &dir, |command| {
            command
                .args(["-n", "--no-auth", "--allow-loopback-peers", "--no-cli"])
                .args(["--no-tcp", "--no-tls", "--no-dtls", "--relay-threads=1"])
                .args(["--listening-ip", &ip, "--relay-ip", &ip])
                .args(["--listening-port", &port, "--realm", "bench"])
                .args(["--min-port", "20000", "--max-port", "65535"])
                .args(["--log-file", "stdout", "--simple-log", "--pidfile"])
                .arg(dir.join("turnserver.pid"));
        })?;
        Ok(Self { address, process })
    }

    /// Fails when it has ended.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        self.process.check()
    }
}

const PROGRAM: &str = "/usr/bin/turnserver";
