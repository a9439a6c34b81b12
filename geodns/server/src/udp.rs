//! DNS over UDP: pinned threads, each with a socket of its own at every address of the node.
//!
//! ```text
//!                       ┌ worker i ────────────────────────────────────────────────┐
//! resolvers ──recvmmsg──► slots ── read, locate, answer (geodns-proto) ── sendmmsg ──► resolvers
//!                       └────┬──────────────▲──────────────────────────────────────┘
//!                      SlowQueue         Answers: tables, selection, bytes; exchanged as a whole, looked at once a batch
//!                            ▼
//!                     slow path, which sends its answers itself, from the socket the query came to
//! ```
//!
//! Nothing here knows what a name means. A worker takes no lock, waits for nobody, and allocates nothing for a query.

mod hand_over;
mod metrics;
mod worker;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use geodns_proto::cookie::{Secrets, SecretsError};
use geodns_proto::rate_limit::Limits;
use geodns_proto::select::{Locate, Served};
use runtime::credentials::Credentials;
use runtime::node::{Config, NodeContext};
use runtime::random;
use runtime::udp::{BindOptions, UdpSocket};

pub use hand_over::{SLOW_QUERIES_MAX, SlowQuery, SlowQueue};
pub use worker::Worker;

/// Addresses of one node at most; the topology allows no more.
pub const ADDRESSES_MAX: usize = 16;
/// Receive buffer of a socket: some 5,000 queries.
const RECV_BUFFER_BYTES: usize = 4 << 20;

/// What queries are answered from, as of now. Clones share it.
#[derive(Debug)]
pub struct Answers<L> {
    shared: Arc<Shared<L>>,
}

#[derive(Debug)]
struct Shared<L> {
    current: ArcSwap<Served<L>>,
    generation: AtomicU64,
}

impl<L> Clone for Answers<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<L> Answers<L> {
    /// Begins with `served`.
    #[must_use]
    pub fn new(served: Served<L>) -> Self {
        Self {
            shared: Arc::new(Shared {
                current: ArcSwap::from_pointee(served),
                generation: AtomicU64::new(1),
            }),
        }
    }

    /// Replaces it: queries that are received from here on are answered from `served`. What was there is freed by the worker that
    /// uses it last, between two of its batches.
    pub fn publish(&self, served: Served<L>) {
        self.shared.current.store(Arc::new(served));
        self.shared.generation.fetch_add(1, Ordering::Release);
    }

    /// All of it.
    #[must_use]
    pub fn load(&self) -> Arc<Served<L>> {
        self.shared.current.load_full()
    }

    /// Rises with each [`Self::publish`]: one atomic load.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }
}

/// Opens every socket of the node, one for each worker and address. The kernel queues what arrives until the workers run. `drawn` is
/// what cookies are made with for as long as there is no file of secrets.
///
/// # Errors
/// An address is taken or not ours, secrets that are not ones, or the kernel has no randomness or descriptors left.
pub fn bind<L: Locate + Send + Sync + 'static>(
    context: &NodeContext,
    config: &Config,
    answers: &Answers<L>,
    slow: &SlowQueue,
    drawn: &Secrets,
) -> anyhow::Result<Vec<Worker<L>>> {
    let node = config
        .topology
        .geodns_named(&context.name)
        .with_context(|| format!("the topology has no GeoDNS node named `{}`", context.name))?;
    (0..node.workers)
        .map(|index| {
            let sockets = node
                .dns
                .iter()
                .map(|address| open(context, *address, index))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let plan = worker::Plan {
                index,
                workers: node.workers,
                drawn: drawn.clone(),
            };
            Worker::new(
                context,
                config,
                plan,
                sockets,
                answers.clone(),
                slow.clone(),
            )
            .with_context(|| format!("worker {index}"))
        })
        .collect()
}

/// Checks what [`bind`] needs of the credentials.
///
/// # Errors
/// See [`SecretsError`].
pub fn check_credentials(credentials: &Credentials) -> anyhow::Result<()> {
    secrets(credentials).context("cookie.keys").map(drop)
}

/// `None`: there is no file of them.
pub(crate) fn secrets(credentials: &Credentials) -> Result<Option<Secrets>, SecretsError> {
    let text = credentials.cookie_keys.as_ref();
    let text = text.map(|text| std::str::from_utf8(text.expose()).unwrap_or_default());
    text.map(Secrets::parse).transpose()
}

/// What cookies are made with when there is no file.
///
/// # Errors
/// The kernel has no randomness left.
pub(crate) fn draw_secrets() -> anyhow::Result<Secrets> {
    let random = random::bytes().context("secret of cookies")?;
    let secret = *random.first_chunk().context("secret of cookies")?;
    Ok(Secrets::single(secret))
}

fn limits(config: &Config, workers: u8) -> Limits {
    let limits = config.topology.dns.as_ref().map(|dns| &dns.rate_limit);
    let limits = limits.map_or(
        Limits {
            responses_per_s: 0,
            slip: 0,
        },
        |limit| Limits {
            responses_per_s: limit.responses_per_s,
            slip: limit.slip,
        },
    );
    limits.share(workers.into())
}

fn open(context: &NodeContext, address: SocketAddr, worker: u8) -> anyhow::Result<UdpSocket> {
    let options = BindOptions {
        reuse_port: true,
        recv_buffer_bytes: RECV_BUFFER_BYTES,
        // Answers are short enough for every path. What somebody says of a path's MTU must not cut them into fragments, which can be
        // forged (RFC 9715 §3.1); and the kernel needs to draw no identification for what is not fragmented.
        dont_fragment: true,
        ..BindOptions::default()
    };
    let socket = UdpSocket::bind(address, &options).context("DNS socket")?;
    let labels = [("socket", "dns"), ("worker", &worker.to_string())];
    socket.observe(&context.metrics, &labels);
    Ok(socket)
}
