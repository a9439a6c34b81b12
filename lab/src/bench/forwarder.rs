//! Baselines as processes of their own, so that their processor time is counted like that of our programs: this program
//! again, as one hop. A hop binds its sockets, prints the address that packets from the client's side go to, and forwards
//! until it is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use runtime::poll::Poller;
use runtime::udp::{BindOptions, RecvBatch, UdpSocket};

use super::{plain, tunnel};
use crate::net::programs_dir;

/// The hops there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Hop {
    /// [`plain::edge`]
    PlainEdge,
    /// [`plain::core`]
    PlainCore,
    /// [`tunnel::edge`]
    TunnelEdge,
    /// [`tunnel::core`]
    TunnelCore,
}

impl Hop {
    const fn argument(self) -> &'static str {
        match self {
            Self::PlainEdge => "plain-edge",
            Self::PlainCore => "plain-core",
            Self::TunnelEdge => "tunnel-edge",
            Self::TunnelCore => "tunnel-core",
        }
    }
}

/// Is the hop, until killed. `next` is where packets from the client's side go on to.
///
/// # Errors
/// A socket's.
pub fn run(hop: Hop, next: SocketAddr) -> anyhow::Result<()> {
    match hop {
        Hop::PlainEdge => plain::edge(next),
        Hop::PlainCore => plain::core(next),
        Hop::TunnelEdge => tunnel::edge(next),
        Hop::TunnelCore => tunnel::core(next),
    }
}

/// A running hop.
pub struct Forwarder {
    child: Child,
    address: SocketAddr,
}

impl Forwarder {
    /// Starts it on one processor. It dies with the thread that called this.
    ///
    /// # Errors
    /// The `lab` program is not built, or does not bind its sockets.
    pub fn start(hop: Hop, next: SocketAddr, processor: usize) -> anyhow::Result<Self> {
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "taskset", "--cpu-list"])
            .arg(processor.to_string())
            .arg(programs_dir()?.join("lab"))
            .args(["bench", "hop", hop.argument(), &next.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting a hop")?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .with_context(|| format!("{hop:?} did not come up"))?;
        Ok(Self { child, address })
    }

    /// Where packets from the client's side go.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        // Either call fails only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Batches taken from one socket before the other has its turn.
const BATCHES_MAX: usize = 4;

/// A socket of a hop, on a port that the kernel chooses.
pub(super) fn bind(gro: bool) -> anyhow::Result<UdpSocket> {
    let options = BindOptions {
        gro,
        ..BindOptions::default()
    };
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0).into(), &options).context("binding a hop")
}

/// Says where packets from the client's side go.
pub(super) fn announce(socket: &UdpSocket) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", socket.local_addr())?;
    Ok(out.flush()?)
}

/// Sleeps until a socket has something and hands its batches to `upward` or `downward`, for ever.
pub(super) fn forward(
    (outer, outer_batch): (&UdpSocket, &mut RecvBatch),
    (inner, inner_batch): (&UdpSocket, &mut RecvBatch),
    mut upward: impl FnMut(&RecvBatch),
    mut downward: impl FnMut(&RecvBatch),
) -> anyhow::Result<()> {
    let mut poller = Poller::new();
    let fds = [outer.as_fd(), inner.as_fd()];
    loop {
        let ready = poller.wait(&fds, None)?;
        if ready.is_ready(0) {
            drain(outer, outer_batch, &mut upward)?;
        }
        if ready.is_ready(1) {
            drain(inner, inner_batch, &mut downward)?;
        }
    }
}

fn drain(
    socket: &UdpSocket,
    batch: &mut RecvBatch,
    take: &mut impl FnMut(&RecvBatch),
) -> anyhow::Result<()> {
    for _ in 0..BATCHES_MAX {
        let filled = batch.recv(socket)?;
        take(batch);
        if filled < batch.slots() {
            break;
        }
    }
    Ok(())
}
