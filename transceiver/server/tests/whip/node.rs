//! Transceivers with signaling, in this process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};
use runtime::control::Control;
use runtime::credentials::Credentials;
use runtime::node::{Config, NodeContext};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use topology::Topology;
use transceiver::signaling::{Signaling, Sockets};

use super::engine::FakeEngine;

/// A certificate authority.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM.
#[derive(Clone)]
pub(crate) struct Certificate {
    pub(crate) chain: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "test");
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Certificate {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Certificate {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

/// The network of a test: region `eu` with transceivers `eu-t1`..., region `us`, PoPs `ams`, `nyc`, `sin`.
pub(crate) struct Network {
    pub(crate) authority: Authority,
    pub(crate) topology: Value,
    pub(crate) secret: Option<Vec<u8>>,
    pub(crate) keys: String,
    addrs: Vec<(SocketAddr, SocketAddr)>,
}

impl Network {
    pub(crate) fn new(transceivers: u8) -> Self {
        let addrs: Vec<_> = (0..transceivers)
            .map(|_| (free_addr(), free_addr()))
            .collect();
        let nodes: Vec<_> = (1u8..).zip(&addrs).map(node).collect();
        let topology = json!({
            "version": 1,
            "network": { "name": "test" },
            "regions": [
                {
                    "name": "eu", "id": 1, "signaling_url": "https://voice.test/eu/whip",
                    "core_relays": [],
                    "transceivers": { "cidr": "127.9.0.0/24", "port": 5000, "nodes": nodes },
                },
                {
                    "name": "us", "id": 2, "signaling_url": "https://voice.test/us/whip",
                    "core_relays": [],
                    "transceivers": { "cidr": "127.9.1.0/24", "port": 5000, "nodes": [] },
                },
            ],
            "pops": [
                { "name": "ams", "id": 1, "ingress": ["192.0.2.1:3478", "[2001:db8::1]:3478"] },
                { "name": "nyc", "id": 2, "ingress": ["192.0.2.2:3478"], "regions": ["us"] },
                { "name": "sin", "id": 3, "ingress": ["192.0.2.3:3478"], "regions": ["us", "eu"] },
            ],
        });
        Self {
            authority: Authority::new(),
            topology,
            secret: None,
            keys: format!("current 1 {}", "11".repeat(16)),
            addrs,
        }
    }

    /// The public address of transceiver `eu-t<number>`.
    pub(crate) fn whip(&self, number: usize) -> SocketAddr {
        self.addrs[number - 1].0
    }

    /// Its peer address.
    pub(crate) fn peer(&self, number: usize) -> SocketAddr {
        self.addrs[number - 1].1
    }

    /// Limits of signaling, to change.
    pub(crate) fn signaling(&mut self) -> &mut Value {
        &mut self.topology["network"]["signaling"]
    }

    /// Starts `eu-t<number>`.
    pub(crate) fn start(&self, number: usize) -> Node {
        let name = format!("eu-t{number}");
        self.start_with(number, &self.authority.issue(&name))
    }

    /// Starts it with a certificate that may be somebody else's.
    pub(crate) fn start_with(&self, number: usize, certificate: &Certificate) -> Node {
        let engine = FakeEngine::start();
        let (whip, peer) = self.addrs[number - 1];
        let control = Control::new().unwrap();
        let config = Config {
            topology: self.topology(),
            credentials: self.credentials(certificate),
            generation: 1,
        };
        let name = format!("eu-t{number}");
        let context = NodeContext::new("transceiver", &name, config, control);
        let sockets = Sockets::bind(whip, peer).unwrap();
        let signaling = Signaling::new(&context, engine.handle.clone(), sockets).unwrap();
        let shutdown = context.shutdown.clone();
        let task = signaling.run(async move { shutdown.stopped().await });
        let task = context.control.spawn(task);
        Node {
            whip,
            peer,
            engine,
            context,
            task: Some(task),
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        serde_json::from_value(self.topology.clone()).unwrap()
    }

    pub(crate) fn credentials(&self, certificate: &Certificate) -> Credentials {
        let dir = ScratchDir::new();
        let write = |name: &str, content: &[u8]| std::fs::write(dir.0.join(name), content).unwrap();
        write("ca.pem", self.authority.pem().as_bytes());
        write("cert.pem", certificate.chain.as_bytes());
        write("key.pem", certificate.key.as_bytes());
        write("hint.keys", self.keys.as_bytes());
        if let Some(secret) = &self.secret {
            write("whip.secret", secret);
        }
        Credentials::load(&dir.0).unwrap()
    }
}

fn node((number, (whip, peer)): (u8, &(SocketAddr, SocketAddr))) -> Value {
    json!({
        "name": format!("eu-t{number}"),
        "address": format!("127.9.0.{number}"),
        "whip": whip,
        "peer": peer,
    })
}

/// A running transceiver: signaling before a fake engine.
pub(crate) struct Node {
    pub(crate) whip: SocketAddr,
    pub(crate) peer: SocketAddr,
    pub(crate) engine: FakeEngine,
    pub(crate) context: NodeContext,
    task: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Node {
    /// Reloads: what the network says by then, with this certificate.
    pub(crate) fn reload(&self, network: &Network, certificate: &Certificate) {
        let credentials = network.credentials(certificate);
        self.context.config.publish(network.topology(), credentials);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.context.shutdown.stop();
        let task = self.task.take().unwrap();
        let ended = self.context.control.block_on(task);
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// A directory that is gone when this is.
struct ScratchDir(PathBuf);

impl ScratchDir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("firsthop-whip-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A free port of a loopback address that no other node has. Clients leave from 127.0.0.1, so that none of theirs takes the
/// port before the node does.
pub(crate) fn free_addr() -> SocketAddr {
    static TAKEN: AtomicU16 = AtomicU16::new(1);
    let [high, low] = TAKEN.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let process = u8::try_from(std::process::id() % 200).unwrap();
    let own = Ipv4Addr::new(127, 50 + process, high, low);
    let listener = TcpListener::bind((own, 0)).unwrap();
    listener.local_addr().unwrap()
}
