//! HTTP of nodes while strangers take all the connections they can get and say nothing on them.

#![cfg(test)]

#[path = "support/issue.rs"]
#[expect(dead_code, reason = "no credentials are changed here")]
mod issue;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use issue::{Ca, Dir, Leaf};
use runtime::control::Control;
use runtime::credentials::Credentials;
use runtime::http::{Limits, Nodes, serve_nodes};
use runtime::metrics::Registry;
use runtime::peer_tls::{Gate, client};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Connections with a certificate that are served at once.
const PLACES: usize = 4;
/// Well below what a handshake may take until it is given up.
const AT_ONCE: Duration = Duration::from_secs(2);

struct Served {
    control: Control,
    address: SocketAddr,
    node: Credentials,
}

fn served() -> Served {
    let ca = Ca::new();
    let credentials = |name| {
        let dir = Dir::with_credentials(&ca, &Leaf::of(name));
        Credentials::load(dir.path()).unwrap()
    };
    let control = Control::new().unwrap();
    let listener = {
        let _inside = control.handle().enter();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        TcpListener::from_std(listener).unwrap()
    };
    let address = listener.local_addr().unwrap();
    let gate = Arc::new(Gate::new(&credentials("server"), vec!["node".to_owned()]).unwrap());
    let nodes = Nodes {
        gate: Arc::new(move || Arc::clone(&gate)),
        refused: Registry::new("test", "server").counter("refused", "{connection}", "-", &[]),
    };
    let limits = Limits {
        connections: PLACES,
        ..Limits::default()
    };
    let router = Router::new().route("/", get(|| async { "well" }));
    control.spawn(serve_nodes(
        listener,
        router,
        limits,
        nodes,
        std::future::pending(),
    ));
    Served {
        control,
        address,
        node: credentials("node"),
    }
}

/// A node's question, on a connection of its own.
async fn ask(address: SocketAddr, node: &Credentials) -> std::io::Result<String> {
    let tls = TlsConnector::from(Arc::new(client(node).unwrap()));
    let stream = tokio::net::TcpStream::connect(address).await?;
    let mut stream = tls
        .connect(ServerName::try_from("server").unwrap(), stream)
        .await?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: server\r\nconnection: close\r\n\r\n")
        .await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[test]
fn half_open_connections_shut_no_node_out() {
    let served = served();
    // Many times the places, from one source and then from several.
    for sources in [1, 24] {
        let flood: Vec<TcpStream> = (0..50 * PLACES)
            .map(|i| {
                let from = [127, 0, 0, 2 + u8::try_from(i % sources).unwrap()];
                let socket = socket2::Socket::new(
                    socket2::Domain::IPV4,
                    socket2::Type::STREAM,
                    Some(socket2::Protocol::TCP),
                )
                .unwrap();
                socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
                socket.connect(&served.address.into()).unwrap();
                socket.into()
            })
            .collect();
        let asked = ask(served.address, &served.node);
        let answer = served
            .control
            .block_on(async { timeout(AT_ONCE, asked).await });
        let answer = answer.expect("a node is answered at once").unwrap();
        assert!(answer.ends_with("well"), "{answer}");
        drop(flood);
    }
}
