//! A Redis server that keeps nothing on disk.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context;

use super::program::{Missing, Process, debian, work_dir};
use crate::wait;

/// Running.
#[derive(Debug)]
pub(crate) struct Redis {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _process: Process,
}

impl Redis {
    /// Whether it is installed.
    pub(crate) fn find() -> Result<(), Missing> {
        debian(PROGRAM, "redis-server").map(|_| ())
    }

    /// On a port of its own.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let dir = work_dir("redis")?;
        let free = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
        let address = free.local_addr()?;
        drop(free);
        let port = address.port().to_string();
        let mut process = Process::start(&debian(PROGRAM, "redis-server")?, &dir, |command| {
            command
                .args(["--bind", "127.0.0.1", "--port", &port])
                .args(["--save", "", "--appendonly", "no"]);
        })?;
        let what = "redis-server to listen";
        wait::until_true(what, START_MAX, || TcpStream::connect(address).is_ok())
            .or_else(|error| process.check().and(Err(error)))?;
        Ok(Self {
            address,
            _process: process,
        })
    }
}

const PROGRAM: &str = "/usr/bin/redis-server";
const START_MAX: Duration = Duration::from_secs(5);
