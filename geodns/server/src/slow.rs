//! Everything the fast path does not answer: DNS over TCP, TLS and HTTPS, and the odd queries over UDP.
//!
//! ```text
//! SlowQueue (UDP) ───────────────────┐
//! :53/tcp ── bounded ── stream ──────┤
//! :853 ───── bounded ── TLS ─ stream ┼──► Answerer ──► Zone::answer ──► hickory writes the message
//! :443 ───── bounded ── TLS ─ HTTP ──┘
//! ```
//!
//! It runs on a thread of its own, so that no flood of odd queries slows steering or the admin address. Connections are bounded in
//! number, per source, in time and in bytes, by ending those that wait and not by turning away those that come; each end is counted
//! by reason. A node that stops answers what it was asked, then closes.

mod answer;
mod doh;
pub mod fuzz;
mod message;
mod metrics;
mod odd;
mod peer;
mod places;
mod stream;
mod tls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use geodns_proto::select::Locate;
use runtime::clock;
use runtime::control::Control;
use runtime::metrics::Registry;
use runtime::node::{Shutdown, State};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::sync::oneshot::error::RecvError;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use topology::GeoDns;

use crate::udp::SlowQueue;
pub use answer::{Answerer, Current, Explain, Snapshot, Transport};
use message::Reply;
use metrics::{End, Metrics};
use peer::Peer;
pub use places::{CONNECTIONS_PER_SOURCE_MAX, Most};
use places::{Full, Notice, Places};
pub use tls::Tls;

/// Connections the kernel holds until we accept them.
const BACKLOG: u32 = 1_024;
/// Pause after `accept` failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Questions under way when the node stops may take as long.
const LAST_ANSWERS: Duration = Duration::from_secs(3);
/// Queries over UDP after which connections have their turn.
const UDP_TURN: usize = 16;

/// The sockets connections come to, open and not yet served.
pub struct Listeners {
    control: Control,
    list: Vec<(TcpListener, Transport)>,
}

/// The slow path while it runs; cut off when this is dropped.
pub struct Running {
    control: Control,
    /// Ends when every task has ended.
    alive: mpsc::Receiver<Infallible>,
}

/// What every task of the slow path holds while it lives.
type Alive = mpsc::Sender<Infallible>;

/// How many connections there may be, and how long they may take for what they do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at most.
    pub connections: Most,
    /// Until TLS has come about.
    pub handshake: Duration,
    /// From the first byte of a query to its last.
    pub query: Duration,
    /// Until a client has taken its answers.
    pub write: Duration,
    /// Between queries.
    pub idle: Duration,
    /// Between queries, when more than half the places are taken, or the node drains.
    pub idle_short: Duration,
    /// From a connection's first moment to its last, when more than half the places are taken.
    pub lifetime_short: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: Most::default(),
            handshake: Duration::from_secs(5),
            query: Duration::from_secs(5),
            write: Duration::from_secs(5),
            idle: Duration::from_secs(10),
            idle_short: Duration::from_secs(1),
            lifetime_short: Duration::from_secs(10),
        }
    }
}

/// What all connections share.
struct Shared<L> {
    limits: Limits,
    shutdown: Shutdown,
    answerer: Arc<Answerer<L>>,
    tls: Arc<ArcSwap<Tls>>,
    places: Places,
    queue: SlowQueue,
    metrics: Metrics,
}

impl Listeners {
    /// Opens the sockets of a node.
    ///
    /// # Errors
    /// An address is taken or not ours, or the kernel gives no thread or descriptor.
    pub fn bind(node: &GeoDns) -> anyhow::Result<Self> {
        let control = Control::new().context("thread of the slow path")?;
        let _guard = control.handle().enter();
        let transports = [
            (&node.dns, Transport::Tcp),
            (&node.dot, Transport::Tls),
            (&node.doh, Transport::Https),
        ];
        let mut list = Vec::new();
        for (addresses, transport) in transports {
            for address in addresses {
                let listener = listen(*address)
                    .with_context(|| format!("DNS over {transport:?} at {address}"))?;
                list.push((listener, transport));
            }
        }
        drop(_guard);
        Ok(Self { control, list })
    }

    /// Where they are, for tests that let the kernel choose ports.
    pub fn addresses(&self) -> impl Iterator<Item = (Transport, SocketAddr)> + '_ {
        let address = |(listener, transport): &(TcpListener, Transport)| {
            Some((*transport, listener.local_addr().ok()?))
        };
        self.list.iter().filter_map(address)
    }

    /// Serves them, and the queries that workers hand over.
    pub fn serve<L: Locate + Send + Sync + 'static>(
        self,
        answerer: Arc<Answerer<L>>,
        queue: SlowQueue,
        tls: Arc<ArcSwap<Tls>>,
        limits: Limits,
        registry: &Registry,
        shutdown: Shutdown,
    ) -> Running {
        let places = Places::new(limits.connections);
        let shared = Arc::new(Shared {
            limits,
            shutdown,
            answerer,
            tls,
            queue,
            metrics: Metrics::new(registry, &places),
            places,
        });
        let (tell, alive) = mpsc::channel(1);
        let queries = udp(Arc::clone(&shared), tell.clone());
        self.control.spawn(queries);
        for (listener, transport) in self.list {
            let task = accept(Arc::clone(&shared), listener, transport, tell.clone());
            self.control.spawn(task);
        }
        Running {
            control: self.control,
            alive,
        }
    }
}

impl Running {
    /// Once the node has stopped: lets what was asked be answered, for a few seconds at most, then ends.
    pub fn finish(mut self) {
        let ended = async { timeout(LAST_ANSWERS, self.alive.recv()).await };
        if self.control.block_on(ended).is_err() {
            tracing::debug!("connections that did not take their last answers are cut");
        }
    }
}

impl<L: Locate> Shared<L> {
    /// The answer to a query that came over a connection.
    fn reply(&self, query: &[u8], peer: &Peer) -> Option<Reply> {
        peer.asked(clock::now());
        let transport = peer.transport;
        let reply = self.answerer.reply(query, peer.source, transport, unix_s());
        self.metrics.answered(transport, reply.is_some());
        if reply.is_some() {
            self.queue.answered_over_stream();
        }
        reply
    }
}

impl<L> Shared<L> {
    /// Until the node has stopped, and the runtime has learned of everything that had come by then: who waits for both, and for what
    /// comes first, misses nothing.
    async fn stopped(&self) {
        self.shutdown.stopped().await;
        yield_now().await;
    }

    /// Whether nobody should wait long for a query.
    fn is_idling_short(&self, transport: Transport) -> bool {
        self.shutdown.state() != State::Running || self.places.are_short(transport)
    }

    fn idle(&self, transport: Transport) -> Duration {
        if self.is_idling_short(transport) {
            self.limits.idle_short
        } else {
            self.limits.idle
        }
    }

    /// Whether others need the place of `peer`, who had it for long enough.
    fn is_old(&self, peer: &Peer, now: Instant) -> bool {
        self.places.are_short(peer.transport) && peer.age(now) >= self.limits.lifetime_short
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Until the node has stopped and nothing is in the queue.
async fn udp<L: Locate>(shared: Arc<Shared<L>>, _alive: Alive) {
    let queue = &shared.queue;
    loop {
        for _ in 0..UDP_TURN {
            let query = tokio::select! {
                biased;
                query = queue.next() => query,
                () = shared.shutdown.stopped() => return,
            };
            let (bytes, source) = (query.bytes(), query.source);
            let answer = shared
                .answerer
                .answer(bytes, source, Transport::Udp, unix_s());
            shared.metrics.answered(Transport::Udp, answer.is_some());
            if let Some(answer) = answer {
                queue.answer(&query, &answer);
            }
        }
        yield_now().await;
    }
}

async fn accept<L: Locate + Send + Sync + 'static>(
    shared: Arc<Shared<L>>,
    listener: TcpListener,
    transport: Transport,
    alive: Alive,
) {
    loop {
        let accepted = tokio::select! {
            biased;
            accepted = listener.accept() => accepted,
            () = shared.stopped() => return,
        };
        let (stream, source) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "accepting a connection");
                shared.metrics.accept_failed.add(1);
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (place, notice) = shared.places.take(transport, source.ip());
        let peer = Arc::new(Peer::new(source, transport, place, clock::now()));
        let (shared, alive) = (Arc::clone(&shared), alive.clone());
        tokio::spawn(async move {
            // What has come is answered before the place is given up.
            let end = tokio::select! {
                biased;
                end = connection(&shared, stream, &peer) => end,
                Ok(full) = given_up(notice) => full.into(),
            };
            shared.metrics.ended(end);
            drop((peer, alive));
        });
    }
}

/// Until the place is another's, and the runtime has learned of everything that had come by then.
async fn given_up(notice: Notice) -> Result<Full, RecvError> {
    let full = notice.await;
    yield_now().await;
    full
}

async fn connection<L: Locate + Send + Sync + 'static>(
    shared: &Arc<Shared<L>>,
    stream: TcpStream,
    peer: &Arc<Peer>,
) -> End {
    // Answers are one write each; nothing is gained by waiting for more.
    let _ = stream.set_nodelay(true);
    match peer.transport {
        Transport::Udp | Transport::Tcp => stream::serve(shared, stream, peer).await,
        Transport::Tls => match handshake(shared, stream, peer.transport).await {
            Some(stream) => stream::serve(shared, stream, peer).await,
            None => End::Handshake,
        },
        Transport::Https => match handshake(shared, stream, peer.transport).await {
            Some(stream) => doh::serve(shared, stream, peer).await,
            None => End::Handshake,
        },
    }
}

async fn handshake<L>(
    shared: &Shared<L>,
    stream: TcpStream,
    transport: Transport,
) -> Option<TlsStream<TcpStream>> {
    let tls = shared.tls.load_full();
    let config = match transport {
        Transport::Https => &tls.doh,
        Transport::Udp | Transport::Tcp | Transport::Tls => &tls.dot,
    };
    let acceptor = TlsAcceptor::from(Arc::clone(config));
    timeout(shared.limits.handshake, acceptor.accept(stream))
        .await
        .ok()?
        .ok()
}

/// What cookies call now.
fn unix_s() -> u32 {
    u32::try_from(clock::unix_s() & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
