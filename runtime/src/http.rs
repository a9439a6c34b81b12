//! HTTP/1.1 of the control plane: a router served to a bounded number of connections, each for a bounded time, in the clear or to
//! certain nodes over TLS.
//!
//! In the clear, connections beyond the number of places wait in the kernel's backlog. Of nodes, only a connection that has shown a
//! certificate takes a place, so nobody else can take them all; until then it is in the [`Lobby`], and beyond the number it is closed.
//! A client that sends slowly, or nothing, holds its place until the head of a request is overdue (also the longest a connection may
//! idle), and no connection outlives its lifetime.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use crate::metrics::Counter;
use crate::peer_tls::Gate;
use crate::peer_tls::lobby::{Lobby, Visit};

/// What one address serves at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections held at once.
    pub connections: usize,
    /// The head of a request has come by then; counted from the end of the last response.
    pub head: Duration,
    /// No connection is used longer.
    pub lifetime: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head: Duration::from_secs(10),
            lifetime: Duration::from_secs(300),
        }
    }
}

/// Requests under way when a connection, or all, have to end may take as long.
const LAST_RESPONSE: Duration = Duration::from_secs(3);
/// Pause after `accept` failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HEADERS_MAX: usize = 64;
const READ_BUFFER_LEN_MAX: usize = 16 * 1024;

/// The gate of the moment: a connection meets the one there is when it arrives. Whoever it turns away is counted.
#[derive(Clone)]
pub struct Nodes {
    /// Gives the gate.
    pub gate: Arc<dyn Fn() -> Arc<Gate> + Send + Sync>,
    /// Connections turned away: not a node's, or too many.
    pub refused: Counter,
}

impl std::fmt::Debug for Nodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nodes").finish_non_exhaustive()
    }
}

/// Accepts until `stop`, and answers what is under way then. Handlers find the peer's address as [`ConnectInfo`].
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    stop: impl Future<Output = ()> + Send,
) {
    serve_with(listener, router, limits, None, stop).await;
}

/// The same over TLS, for nodes.
pub async fn serve_nodes(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    nodes: Nodes,
    stop: impl Future<Output = ()> + Send,
) {
    serve_with(listener, router, limits, Some(nodes), stop).await;
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    nodes: Option<Nodes>,
    stop: impl Future<Output = ()> + Send,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let lobby = Lobby::default();
    let (tell, stopping) = watch::channel(false);
    let mut stop = std::pin::pin!(stop);
    loop {
        // Only a closed semaphore refuses, and nobody closes this one.
        let place = async {
            match nodes {
                Some(_) => None,
                None => Arc::clone(&places).acquire_owned().await.ok(),
            }
        };
        let (place, (stream, peer)) = tokio::select! {
            biased;
            () = &mut stop => break,
            accepted = async { (place.await, accept(&listener).await) } => accepted,
        };
        // Responses are one write each; nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let one = Connection {
            router: router.clone(),
            peer,
            limits,
            stop: stopping.clone(),
            place,
        };
        match &nodes {
            None => tokio::spawn(one.http(stream)),
            Some(nodes) => {
                let visit = lobby.enter(peer.ip());
                tokio::spawn(one.node(stream, visit, nodes.clone(), Arc::clone(&places)))
            }
        };
    }
    drop((listener, stopping));
    // Nobody listens when no connection is left.
    let _ = tell.send(true);
    let _ = timeout(LAST_RESPONSE, tell.closed()).await;
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::debug!(%error, "accepting a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

struct Connection {
    router: Router,
    peer: SocketAddr,
    limits: Limits,
    stop: watch::Receiver<bool>,
    /// Held for as long as it is served.
    place: Option<OwnedSemaphorePermit>,
}

impl Connection {
    /// Of a node, if it shows that it is one.
    async fn node(mut self, stream: TcpStream, visit: Visit, nodes: Nodes, places: Arc<Semaphore>) {
        let gate = (nodes.gate)();
        let shown = visit.during(gate.accept(stream)).await.flatten();
        match shown.zip(places.try_acquire_owned().ok()) {
            Some((stream, place)) => {
                self.place = Some(place);
                self.http(stream).await;
            }
            None => nodes.refused.add(1),
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send>(mut self, stream: S) {
        let service = service_fn(|mut request: Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(self.peer));
            self.router.clone().oneshot(request)
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head)
            .max_headers(HEADERS_MAX)
            .max_buf_size(READ_BUFFER_LEN_MAX)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        // A connection that breaks, or talks no HTTP, concerns nobody but its client.
        tokio::select! {
            _ = serving.as_mut() => return,
            _ = self.stop.wait_for(|stop| *stop) => {}
            () = sleep(self.limits.lifetime) => {}
        }
        serving.as_mut().graceful_shutdown();
        let _ = timeout(LAST_RESPONSE, serving).await;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use axum::routing::get;
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock;
    use crate::control::Control;

    const ASK: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    struct Server {
        address: SocketAddr,
        _stop: oneshot::Sender<()>,
        _control: Control,
    }

    fn server(limits: Limits) -> Server {
        let control = Control::new().unwrap();
        let _inside = control.handle().enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let whoever = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
        let router = Router::new().route("/", get(whoever));
        let (stop, stopped) = oneshot::channel::<()>();
        control.spawn(serve(listener, router, limits, async {
            let _ = stopped.await;
        }));
        drop(_inside);
        Server {
            address,
            _stop: stop,
            _control: control,
        }
    }

    /// Everything until the server closes, and how long that took.
    fn until_closed(mut stream: std::net::TcpStream) -> (String, Duration) {
        let began = clock::now();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer, clock::now() - began)
    }

    #[test]
    fn a_connection_that_sends_nothing_half_a_head_or_nothing_more_is_closed() {
        let head = Duration::from_millis(300);
        let server = server(Limits {
            head,
            ..Limits::default()
        });
        for (sent, answered) in [(&b""[..], false), (&ASK[..20], false), (ASK, true)] {
            let mut stream = std::net::TcpStream::connect(server.address).unwrap();
            stream.write_all(sent).unwrap();
            let own = stream.local_addr().unwrap().to_string();
            let (answer, took) = until_closed(stream);
            assert!(took < head * 20, "{sent:?} held its place for {took:?}");
            assert_eq!(answer.starts_with("HTTP/1.1 200"), answered, "{answer}");
            assert_eq!(answer.ends_with(&own), answered, "{answer}");
        }
    }

    #[test]
    fn no_connection_outlives_its_lifetime_however_busy_it_is() {
        let lifetime = Duration::from_millis(300);
        let server = server(Limits {
            lifetime,
            ..Limits::default()
        });
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        let began = clock::now();
        // Whatever is read is an answer; the end of it comes as an end or as a reset.
        while stream.write_all(ASK).is_ok() && stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0)
        {
            assert!(clock::now() < began + lifetime * 50, "it goes on and on");
        }
        assert!(clock::now() >= began + lifetime);
    }
}
