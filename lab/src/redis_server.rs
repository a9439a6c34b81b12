//! A Redis server of a test's own, as the flow cache of PoPs or the state store of all nodes: on a loopback port, nothing on disk, stopped and started on
//! request.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use topology::{FailoverGroup, RedisUrl, StateStore, Topology};

use crate::wait;

const PROGRAM: &str = "/usr/bin/redis-server";
const START_MAX: Duration = Duration::from_secs(15);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Ports below those that the kernel gives to clients: nobody takes one while no server is there, not even who calls it in vain.
const PORTS: std::ops::Range<u16> = 12_000..22_000;
/// Ports that are tried.
const PORTS_TRIED_MAX: usize = 1000;

/// It is not installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing;

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`apt-get install redis-server` brings {PROGRAM}")
    }
}

impl std::error::Error for Missing {}

/// An address for a server, and the server when it runs. Killed when dropped, or when the thread that started it ends.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    child: Option<Child>,
}

impl Redis {
    /// Whether it is installed.
    ///
    /// # Errors
    /// It is not.
    pub fn find() -> Result<(), Missing> {
        Path::new(PROGRAM).exists().then_some(()).ok_or(Missing)
    }

    /// A port where nobody listens yet.
    ///
    /// # Errors
    /// No port is free.
    pub fn absent() -> anyhow::Result<Self> {
        Self::absent_at(Ipv4Addr::LOCALHOST.into())
    }

    fn absent_at(ip: IpAddr) -> anyhow::Result<Self> {
        let port = |_| -> anyhow::Result<u16> {
            let chance = TcpListener::bind((ip, 0)).context("looking for a port")?;
            let port = chance.local_addr()?.port();
            Ok(PORTS.start + port % (PORTS.end - PORTS.start))
        };
        for port in (0..PORTS_TRIED_MAX).map(port) {
            let address = SocketAddr::new(ip, port?);
            if TcpListener::bind(address).is_ok() {
                return Ok(Self {
                    address,
                    child: None,
                });
            }
        }
        anyhow::bail!("no port of {PORTS:?} is free")
    }

    /// On a port of its own.
    ///
    /// # Errors
    /// It is not installed, or does not come up.
    pub fn start() -> anyhow::Result<Self> {
        let mut redis = Self::absent()?;
        redis.begin()?;
        Ok(redis)
    }

    /// On a port of its own of this address, which is one of a test's own namespace: it lets everybody in.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn start_at(ip: IpAddr) -> anyhow::Result<Self> {
        let mut redis = Self::absent_at(ip)?;
        redis.begin()?;
        Ok(redis)
    }

    /// Starts it, empty.
    ///
    /// # Errors
    /// See [`Self::start`].
    pub fn begin(&mut self) -> anyhow::Result<()> {
        Self::find()?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", PROGRAM])
            .args(["--protected-mode", "no", "--bind"])
            .arg(self.address.ip().to_string())
            .arg("--port")
            .arg(self.address.port().to_string())
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting redis-server")?;
        self.child = Some(child);
        wait::until_true("redis-server to listen", START_MAX, || {
            TcpStream::connect(self.address).is_ok()
        })
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Either call fails only when the process is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// `SIGSTOP`: it takes connections, and says nothing.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self) -> anyhow::Result<()> {
        let child = self.child.as_ref().context("no redis-server runs")?;
        let pid = i32::try_from(child.id())?;
        kill(Pid::from_raw(pid), Signal::SIGSTOP).context("stopping redis-server")
    }

    /// How many keys it holds.
    ///
    /// # Errors
    /// It does not answer.
    pub fn keys(&self) -> anyhow::Result<u64> {
        let mut stream = TcpStream::connect(self.address).context("asking redis-server")?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"DBSIZE\r\n")?;
        let mut answer = [0; 32];
        let len = stream.read(&mut answer).context("asking redis-server")?;
        let answer = String::from_utf8_lossy(answer.get(..len).unwrap_or_default()).into_owned();
        let number = answer.trim_end().strip_prefix(':');
        let number = number.with_context(|| format!("DBSIZE answered {answer:?}"))?;
        Ok(number.parse()?)
    }

    /// Leaves it no memory for anything more.
    ///
    /// # Errors
    /// It does not answer, or not `OK`.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut stream = TcpStream::connect(self.address).context("asking redis-server")?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(b"CONFIG SET maxmemory 1\r\n")?;
        let mut answer = [0; 5];
        stream
            .read_exact(&mut answer)
            .context("asking redis-server")?;
        ensure!(answer == *b"+OK\r\n", "CONFIG SET was refused");
        Ok(())
    }

    /// What is under a key; `None` when there is nothing.
    ///
    /// # Errors
    /// It does not answer, or with no text.
    pub fn value(&self, key: &str) -> anyhow::Result<Option<String>> {
        let stream = TcpStream::connect(self.address).context("asking redis-server")?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        (&stream).write_all(format!("GET {key}\r\n").as_bytes())?;
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        stream.read_line(&mut head).context("asking redis-server")?;
        let len: i64 = head
            .trim_end()
            .strip_prefix('$')
            .with_context(|| format!("GET answered {head:?}"))?
            .parse()?;
        let Ok(len) = usize::try_from(len) else {
            return Ok(None);
        };
        let mut value = vec![0; len];
        stream
            .read_exact(&mut value)
            .context("asking redis-server")?;
        Ok(Some(String::from_utf8(value)?))
    }

    /// Makes it the state store of the network.
    pub fn keep_state(&self, topology: &mut Topology) {
        topology.network.state = Some(StateStore {
            redis: vec![self.url()],
            cluster: false,
            interval_ms: 100,
            ttl_s: 2,
        });
    }

    fn url(&self) -> RedisUrl {
        RedisUrl {
            tls: false,
            host: self.address.ip().to_string(),
            port: self.address.port(),
        }
    }

    /// Makes every PoP a member of one failover group, which keeps flows here.
    pub fn join(&self, topology: &mut Topology) {
        let name = "lab";
        topology.failover_groups = vec![FailoverGroup {
            name: name.to_owned(),
            redis: vec![self.url()],
            cluster: false,
            ttl_s: 60,
            lookup_max_ms: 50,
        }];
        for pop in &mut topology.pops {
            pop.failover_group = Some(name.to_owned());
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}
