//! WHIP signaling (RFC 9725) on the transceiver: HTTP in, questions to the engine, HTTP out.
//!
//! ```text
//! client --HTTP--> load balancer --> listen -> route -+-> offer ---+
//!                                                     |            +--> EngineHandle --> engine thread
//!                                                     +-> session -+
//!                                                            |  another transceiver's session
//!                                                            +-> forward --HTTPS, node certificates--> its `peer` address
//! ```
//!
//! Deliberately absent: any state of a session (the engine has it), any map of sessions to transceivers (the URL carries
//! the owner, sealed), TLS towards clients (the load balancer's). `docs/protocol/whip.md` is the contract.

pub mod admin;
pub mod bearer;
mod body;
mod candidates;
mod cors;
mod forward;
pub mod fuzz;
pub mod ingress;
mod listen;
mod metrics;
mod offer;
pub mod precondition;
mod problem;
mod rate;
mod route;
pub mod sdpfrag;
mod session;
mod settings;
mod steering;

use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use ring::rand::{SecureRandom as _, SystemRandom};
use runtime::control::Control;
use runtime::node::{ConfigHandle, NodeContext};
use tokio::sync::{Semaphore, watch};

use crate::engine::handle::EngineHandle;
use metrics::Metrics;
use rate::Rate;
use route::From;
use settings::Settings;

/// The engine has answered by then; it has nothing slow to do.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(3);

/// The sockets of signaling, bound before anything runs.
#[derive(Debug)]
pub struct Sockets {
    whip: TcpListener,
    peer: TcpListener,
}

impl Sockets {
    /// Binds the public and the peer address.
    ///
    /// # Errors
    /// An address that cannot be bound, named.
    pub fn bind(whip: SocketAddr, peer: SocketAddr) -> anyhow::Result<Self> {
        let bind = |what, addr: SocketAddr| -> anyhow::Result<TcpListener> {
            let listener =
                TcpListener::bind(addr).with_context(|| format!("bind {what} address {addr}"))?;
            listener.set_nonblocking(true).context("set non-blocking")?;
            Ok(listener)
        };
        Ok(Self {
            whip: bind("whip", whip)?,
            peer: bind("peer", peer)?,
        })
    }
}

/// What all requests share.
struct App {
    engine: EngineHandle,
    node: String,
    config: ConfigHandle,
    control: Control,
    settings: ArcSwap<Generation>,
    offers: Mutex<Rate>,
    forwards: Semaphore,
    random: SystemRandom,
    metrics: Metrics,
}

struct Generation {
    number: u64,
    settings: Arc<Settings>,
}

impl App {
    fn new(context: &NodeContext, engine: EngineHandle) -> anyhow::Result<Self> {
        let number = context.config.generation();
        let settings = Settings::new(&context.name, context.config.load(), &context.control)?;
        Ok(Self {
            engine,
            node: context.name.clone(),
            config: context.config.clone(),
            control: context.control.clone(),
            settings: ArcSwap::from_pointee(Generation {
                number,
                settings: Arc::new(settings),
            }),
            offers: Mutex::new(Rate::new(runtime::clock::now())),
            forwards: Semaphore::new(forward::FORWARDS_MAX),
            random: SystemRandom::new(),
            metrics: Metrics::new(&context.metrics),
        })
    }

    /// The settings of the moment. After a reload the first request derives them; one that cannot be used keeps the old.
    fn settings(&self) -> Arc<Settings> {
        let current = self.settings.load();
        let number = self.config.generation();
        if current.number == number {
            return Arc::clone(&current.settings);
        }
        let settings = match Settings::new(&self.node, self.config.load(), &self.control) {
            Ok(settings) => Arc::new(settings),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "signaling keeps its old settings"
                );
                Arc::clone(&current.settings)
            }
        };
        self.settings.store(Arc::new(Generation {
            number,
            settings: Arc::clone(&settings),
        }));
        settings
    }

    /// Takes one offer from the rate; the error says how long to wait.
    fn take_offer(&self, per_s: u32) -> Result<(), Duration> {
        let mut offers = self.offers.lock().unwrap_or_else(PoisonError::into_inner);
        offers.take(per_s, runtime::clock::now())
    }

    fn random(&self) -> [u8; 3] {
        let mut random = [0; 3];
        // Only spreads tokens of one minute; the session key is the secret, and the engine draws that.
        let _ = self.random.fill(&mut random);
        random
    }
}

/// Signaling, bound and ready to run.
pub struct Signaling {
    app: Arc<App>,
    sockets: Sockets,
}

impl Signaling {
    /// Signaling of the node in `context` for the sessions of `engine`.
    ///
    /// # Errors
    /// The node is no transceiver of the topology, or its certificates do not fit.
    pub fn new(
        context: &NodeContext,
        engine: EngineHandle,
        sockets: Sockets,
    ) -> anyhow::Result<Self> {
        let app = Arc::new(App::new(context, engine)?);
        Ok(Self { app, sockets })
    }

    /// Serves until `stopped` resolves; then what is in flight gets a moment to end. A draining node keeps serving: its
    /// sessions still get their `PATCH` and `DELETE`, offers get 503.
    ///
    /// # Errors
    /// The sockets cannot be handed to the runtime.
    pub async fn run(self, stopped: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
        let Sockets { whip, peer } = self.sockets;
        let listener = |socket| tokio::net::TcpListener::from_std(socket).context("listen");
        let (whip, peer) = (listener(whip)?, listener(peer)?);
        let (stop, stopping) = watch::channel(false);
        let clients = listen::serve(Arc::clone(&self.app), whip, From::Client, stopping.clone());
        let transceivers = listen::serve(self.app, peer, From::Transceiver, stopping);
        let stopping = async {
            stopped.await;
            // Nobody listens when both have ended already.
            let _ = stop.send(true);
        };
        tokio::join!(clients, transceivers, stopping);
        // Connections hold a receiver each until they have ended.
        let _ = tokio::time::timeout(listen::END_TIMEOUT, stop.closed()).await;
        Ok(())
    }
}
