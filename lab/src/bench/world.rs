//! One PoP and one core relay from the built programs, with mutual TLS, both on one processor, between clients and a far
//! end that this process plays. No transceiver runs, so that what is measured is the packet path alone.
//!
//! ```text
//! clients ──► p1 ══QUIC══► r1 ──records──► far end (in the place of t1)
//!  here       PATH processor               here
//! ```

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use anyhow::Context;
use runtime::clock;
use topology::{Datagrams, Topology};
use wire::hint::{Hint, KeyRing, Minute};
use wire::{Owner, TransceiverId};

use super::clients::Clients;
use super::far_end::FarEnd;
use super::processor;
use crate::net::{Network, Shape};
use crate::raw::Request;

/// The processor of PoP and core relay.
pub const PATH: usize = 1;
/// The processor of whoever feeds and drains them.
pub const ENDS: usize = 0;

/// How long a client may wait for the answer to its checks.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A check is repeated after this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Clients that check at the same time: well within what a receive buffer holds.
const CHECKS_MAX: usize = 256;
/// Sessions these clients belong to: a PoP takes 16 unanswered addresses of one hint.
const SESSIONS: u8 = 32;

/// See the module head. Stops everything when dropped.
pub struct World {
    /// The programs `p1` and `r1`.
    pub network: Network,
    /// In the place of `t1`.
    pub far_end: FarEnd,
    ufrags: Vec<String>,
}

/// Processor time of both programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTime {
    /// Of the PoP.
    pub pop: Duration,
    /// Of the core relay.
    pub core_relay: Duration,
}

impl PathTime {
    /// From `earlier` to this.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            pop: self.pop.saturating_sub(earlier.pop),
            core_relay: self.core_relay.saturating_sub(earlier.core_relay),
        }
    }
}

impl World {
    /// Starts both programs on [`PATH`]; `datagrams` between the core relay and the far end are the same both ways. `adjust`
    /// may change the topology.
    ///
    /// # Errors
    /// A program is not built or does not come up.
    pub fn start(datagrams: Datagrams, adjust: impl FnOnce(&mut Topology)) -> anyhow::Result<Self> {
        let shape = Shape {
            core_relays: 1,
            datagrams,
            processor: Some(PATH),
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, adjust)?;
        for node in ["r1", "p1"] {
            network.start_node(node)?;
        }
        let far_end = FarEnd::bind(network.topology(), "t1")?;
        let ufrags = ufrags(&network)?;
        Ok(Self {
            network,
            far_end,
            ufrags,
        })
    }

    /// Where clients send to.
    #[must_use]
    pub fn ingress(&self) -> SocketAddr {
        self.network.ingress("p1")
    }

    /// The server's ufrag of a session that the far end owns.
    #[must_use]
    pub fn ufrag(&self) -> &str {
        self.ufrags.first().map_or("", String::as_str)
    }

    /// The server's ufrags of all sessions that the far end owns.
    #[must_use]
    pub fn ufrags(&self) -> &[String] {
        &self.ufrags
    }

    /// Processor time used so far.
    ///
    /// # Errors
    /// A program does not run.
    pub fn time(&self) -> anyhow::Result<PathTime> {
        Ok(PathTime {
            pop: processor::time(self.network.pid("p1")?)?,
            core_relay: processor::time(self.network.pid("r1")?)?,
        })
    }

    /// Has every client check until it is answered, so that its flow is committed.
    ///
    /// # Errors
    /// A client is not answered in time.
    pub fn commit(&mut self, clients: &mut Clients) -> anyhow::Result<()> {
        let all: Vec<_> = (0..clients.len()).collect();
        for some in all.chunks(CHECKS_MAX) {
            let mut waiting = some.to_vec();
            self.until_answered(&mut waiting, |client, ufrag, again| {
                if again {
                    clients.check(*client, ufrag);
                }
                clients.is_answered(*client)
            })?;
        }
        Ok(())
    }

    /// Commits flows of `count` clients whose sockets are closed again: for tables, not for traffic. No two calls on one
    /// network should overlap in `first..first + count`.
    ///
    /// # Errors
    /// A client is not answered in time.
    pub fn commit_absent(&mut self, first: u32, count: u32) -> anyhow::Result<()> {
        let net = match self.ingress() {
            SocketAddr::V4(ingress) => ingress.ip().octets()[1],
            SocketAddr::V6(_) => anyhow::bail!("absent clients have IPv4 addresses"),
        };
        let ingress = self.ingress();
        let all: Vec<_> = (first..first + count).collect();
        for some in all.chunks(CHECKS_MAX) {
            let mut waiting = Vec::with_capacity(some.len());
            for index in some {
                waiting.push(absent(net, *index, ingress)?);
            }
            self.until_answered(&mut waiting, |socket, ufrag, again| {
                if again {
                    let check = Request::check(*b"absentclient", ufrag.as_bytes());
                    socket.send(check.sign(b"password").bytes())?;
                }
                let mut answer = [0; 64];
                Ok(socket.recv(&mut answer).is_ok())
            })?;
        }
        Ok(())
    }

    /// Asks each of `waiting` again and again, telling it when to check, and plays the far end meanwhile.
    fn until_answered<C>(
        &mut self,
        waiting: &mut Vec<C>,
        mut is_answered: impl FnMut(&mut C, &str, bool) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let end = clock::now() + ANSWER_MAX;
        let mut check_at = clock::now();
        while !waiting.is_empty() {
            let now = clock::now();
            anyhow::ensure!(now < end, "{} checks are not answered", waiting.len());
            let again = now >= check_at;
            if again {
                check_at = now + CHECK_INTERVAL;
            }
            let mut still = Vec::with_capacity(waiting.len());
            for (mut client, ufrag) in waiting.drain(..).zip(self.ufrags.iter().cycle()) {
                if !is_answered(&mut client, ufrag, again)? {
                    still.push(client);
                }
            }
            *waiting = still;
            while self.far_end.receive(|_, _, _, _| {})? {}
        }
        Ok(())
    }
}

/// Sealed with the key the PoP holds: what a transceiver would have put into its answers.
fn ufrags(network: &Network) -> anyhow::Result<Vec<String>> {
    let file = network.credentials("p1").join("hint.keys");
    let keys = std::fs::read_to_string(file).context("reading the hint keys")?;
    let (region, node) = network
        .topology()
        .transceiver_named("t1")
        .context("no transceiver `t1`")?;
    let transceiver: TransceiverId = region
        .transceivers
        .id_of(node.address)
        .context("t1 is outside its CIDR")?;
    let hint = Hint {
        owner: Owner {
            region: region.region_id(),
            transceiver,
        },
        issued: Minute::from_unix_s(clock::unix_s()),
    };
    let ring = KeyRing::parse(&keys)?;
    let sealed = (0..SESSIONS).map(|session| ring.seal(hint, [1, 2, session]));
    Ok(sealed.map(|ufrag| ufrag.as_str().to_owned()).collect())
}

/// Addresses of absent clients: 127.R.128.0/17, ports from [`ABSENT_PORT_MIN`], [`ABSENT_PORTS`] of each address.
fn absent(net: u8, index: u32, ingress: SocketAddr) -> anyhow::Result<UdpSocket> {
    let host = 0x8001 + index / ABSENT_PORTS;
    let [_, _, high, low] = host.to_be_bytes();
    let port = ABSENT_PORT_MIN + u16::try_from(index % ABSENT_PORTS)?;
    let socket = UdpSocket::bind((Ipv4Addr::new(127, net, high, low), port))
        .context("binding an absent client")?;
    socket.connect(ingress)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

const ABSENT_PORT_MIN: u16 = 10_000;
const ABSENT_PORTS: u32 = 20_000;
