//! The slow path of one GeoDNS node in this process, on ports the kernel chose, and clients of it from many sources.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use geodns::slow::{Answerer, Limits, Listeners, Running, Tls, Transport};
use geodns::udp::SlowQueue;
use runtime::credentials::Credentials;
use runtime::metrics::Registry;
use runtime::node::Shutdown;
use runtime::peer_tls;
use rustls::{ClientConnection, StreamOwned};
use tokio::net::TcpSocket;

use crate::{credentials, support};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Node {
    addresses: Vec<(Transport, SocketAddr)>,
    registry: Registry,
    shutdown: Shutdown,
    running: Option<Running>,
    credentials: Credentials,
    dir: PathBuf,
}

impl Node {
    /// `name` is that of the test.
    pub(crate) fn start(name: &str, limits: Limits) -> Self {
        let dir = format!("geodns-{}-slow-{name}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        credentials::write(&dir);
        let credentials = Credentials::load(&dir).unwrap();
        let node = serde_json::json!({
            "name": "ns1",
            "dns": ["127.0.0.1:0"],
            "dot": ["127.0.0.1:0"],
            "doh": ["127.0.0.1:0"],
            "steer": "127.0.0.1:8443",
        });
        let listeners = Listeners::bind(&serde_json::from_value(node).unwrap()).unwrap();
        let addresses = listeners.addresses().collect();
        let current = Arc::new(ArcSwap::from_pointee(support::snapshot(false)));
        let answerer = Answerer::new(current, "ns1", Arc::new(|_, _| Vec::new()));
        let (registry, shutdown) = (Registry::new("geodns", "ns1"), Shutdown::new());
        let running = listeners.serve(
            Arc::new(answerer),
            SlowQueue::new(),
            Arc::new(ArcSwap::from_pointee(Tls::new(&credentials).unwrap())),
            limits,
            &registry,
            shutdown.clone(),
        );
        Self {
            addresses,
            registry,
            shutdown,
            running: Some(running),
            credentials,
            dir,
        }
    }

    /// A connection from `source`.
    pub(crate) fn connect(&self, transport: Transport, source: Ipv4Addr) -> Client {
        let mut addresses = self.addresses.iter();
        let (_, to) = addresses.find(|(other, _)| *other == transport).unwrap();
        let stream = connect(source, *to);
        match transport {
            Transport::Udp | Transport::Tcp => Client(Box::new(stream)),
            Transport::Tls => self.tls(stream, b"dot"),
            Transport::Https => self.tls(stream, b"http/1.1"),
        }
    }

    fn tls(&self, stream: TcpStream, protocol: &[u8]) -> Client {
        let mut config = peer_tls::client(&self.credentials).unwrap();
        config.alpn_protocols = vec![protocol.to_vec()];
        let name = "ns1".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        Client(Box::new(StreamOwned::new(connection, stream)))
    }

    /// How many connections ended for this reason.
    pub(crate) fn ended(&self, reason: &str) -> u64 {
        let series = "firsthop_geodns_slow_connection_ends_total{";
        let label = format!("reason=\"{reason}\"");
        let metrics = self.registry.prometheus();
        let mut lines = metrics.lines();
        let line = lines.find(|line| line.starts_with(series) && line.contains(&label));
        let (_, count) = line.unwrap().rsplit_once(' ').unwrap();
        count.parse().unwrap()
    }

    /// Waits until `count` connections ended for this reason.
    pub(crate) fn until_ended(&self, reason: &str, count: u64) {
        let deadline = runtime::clock::now() + PATIENCE;
        while self.ended(reason) != count {
            let now = runtime::clock::now();
            assert!(now < deadline, "{reason}: {}", self.ended(reason));
            std::thread::yield_now();
        }
    }

    pub(crate) fn stop(&self) {
        self.shutdown.stop();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
        if let Some(running) = self.running.take() {
            running.finish();
        }
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

fn connect(from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await?.into_std()
    });
    let stream = stream.unwrap();
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What is read and written.
trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// One end of a connection.
pub(crate) struct Client(Box<dyn Stream>);

impl Client {
    /// `None`: the connection has ended.
    pub(crate) fn ask(&mut self, query: &[u8]) -> Option<Vec<u8>> {
        self.send(&framed(query))?;
        self.answer()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> Option<()> {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).ok()
    }

    /// The next message.
    pub(crate) fn answer(&mut self) -> Option<Vec<u8>> {
        let mut len = [0; 2];
        self.read(&mut len)?;
        let mut message = vec![0; u16::from_be_bytes(len).into()];
        self.read(&mut message)?;
        Some(message)
    }

    /// Asks with POST; the head of the response in small letters, and its body.
    pub(crate) fn post(&mut self, query: &[u8]) -> Option<(String, Vec<u8>)> {
        let head = format!(
            "POST /dns-query HTTP/1.1\r\nhost: ns1\r\ncontent-type: application/dns-message\r\ncontent-length: {}\r\n\r\n",
            query.len()
        );
        self.send(&[head.as_bytes(), query].concat())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.read(&mut byte)?;
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        let mut body = vec![0; body_len(&head)];
        self.read(&mut body)?;
        Some((head, body))
    }

    /// Whether the server ends it, in time and without another byte.
    pub(crate) fn ends(&mut self) -> bool {
        match self.0.read(&mut [0]) {
            Ok(len) => len == 0,
            Err(error) => !is_late(&error),
        }
    }

    fn read(&mut self, bytes: &mut [u8]) -> Option<()> {
        let read = self.0.read_exact(bytes);
        read.inspect_err(|error| assert!(!is_late(error), "no answer and no end"))
            .ok()
    }
}

fn body_len(head: &str) -> usize {
    let (_, len) = head.split_once("content-length: ").unwrap();
    len.lines().next().unwrap().parse().unwrap()
}

/// A message behind its length.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let len = u16::try_from(message.len()).unwrap();
    [&len.to_be_bytes(), message].concat()
}

/// Nothing came for as long as anything may take.
fn is_late(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}
