//! Connections: how many, for how long, and over what. What is asked on them is `route`'s matter.
//!
//! A client that sends slowly, or nothing, holds one of [`CONNECTIONS_MAX`] places for a bounded time: the head of a request
//! must come within [`HEAD_TIMEOUT`] (also the longest a connection may idle), the body within `body::BODY_TIMEOUT`, and no
//! connection outlives [`LIFETIME_MAX`], whatever it does. Beyond the number of places a connection is told 503 and closed. On the
//! peers' address a connection has a place once it has shown a transceiver's certificate, and waits in a [`Lobby`] until then.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use runtime::peer_tls::lobby::{Lobby, Visit};
use runtime::proxy::v2;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::signaling::App;
use crate::signaling::route::{From, Origin, answer};

/// Connections on one address at most.
pub(super) const CONNECTIONS_MAX: usize = 1024;
/// The head of a request has come by then; counted from the end of the last response.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A trusted proxy has said whom it speaks for by then.
const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(3);
/// No connection is used longer.
const LIFETIME_MAX: Duration = Duration::from_secs(300);
/// What is in flight when a connection has to end may take as long.
const LAST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// All connections have ended by then.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(4);
/// Pause after `accept` failed, for instance for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HEADERS_MAX: usize = 64;
const READ_BUFFER_LEN_MAX: usize = 16 * 1024;
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 2\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Becomes true when everything has to end.
pub(super) type Stop = watch::Receiver<bool>;

/// Accepts until `stop`.
pub(super) async fn serve(app: Arc<App>, listener: TcpListener, from: From, mut stop: Stop) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let lobby = Lobby::default();
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            app.metrics.accept_failed.add(1);
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Responses are one write each; nothing is gained by waiting for more.
        let _ = stream.set_nodelay(true);
        let (app, stop, peer) = (Arc::clone(&app), stop.clone(), peer.ip());
        match from {
            From::Client => match Arc::clone(&places).try_acquire_owned() {
                Ok(place) => {
                    tokio::spawn(client(app, stream, peer, stop, place));
                }
                Err(_) => {
                    app.metrics.connections_refused.add(1);
                    // The socket is fresh: this fits its buffer or the client does not want it.
                    let _ = stream.try_write(FULL);
                }
            },
            From::Transceiver => {
                let (visit, places) = (lobby.enter(peer), Arc::clone(&places));
                tokio::spawn(transceiver(app, stream, (peer, visit), stop, places));
            }
        }
    }
}

async fn client(
    app: Arc<App>,
    mut stream: TcpStream,
    peer: IpAddr,
    stop: Stop,
    _place: OwnedSemaphorePermit,
) {
    let mut origin = Origin { peer, source: None };
    if app.settings().proxies.sends_proxy_header(peer) {
        match timeout(PROXY_HEADER_TIMEOUT, v2::read(&mut stream)).await {
            Ok(Ok(source)) => origin.source = source,
            Ok(Err(_)) | Err(_) => {
                app.metrics.proxy_headers_refused.add(1);
                return;
            }
        }
    }
    http(app, stream, (From::Client, origin), stop).await;
}

async fn transceiver(
    app: Arc<App>,
    stream: TcpStream,
    (peer, visit): (IpAddr, Visit),
    stop: Stop,
    places: Arc<Semaphore>,
) {
    let settings = app.settings();
    let shown = visit.during(settings.gate.accept(stream)).await.flatten();
    drop(settings);
    let Some(stream) = shown else {
        app.metrics.peers_refused.add(1);
        return;
    };
    let Ok(_place) = places.try_acquire_owned() else {
        app.metrics.connections_refused.add(1);
        return;
    };
    let origin = Origin { peer, source: None };
    http(app, stream, (From::Transceiver, origin), stop).await;
}

async fn http<S>(app: Arc<App>, stream: S, from: (From, Origin), mut stop: Stop)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = service_fn(|request: Request<Incoming>| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(answer(app, from, request).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(HEADERS_MAX)
        .max_buf_size(READ_BUFFER_LEN_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    // A connection that breaks, or talks no HTTP, concerns nobody but its client.
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
        () = sleep(LIFETIME_MAX) => {}
    }
    serving.as_mut().graceful_shutdown();
    let _ = timeout(LAST_RESPONSE_TIMEOUT, serving).await;
}
