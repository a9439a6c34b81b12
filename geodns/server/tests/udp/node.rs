//! UDP workers of one GeoDNS node as threads of this process, and a resolver's socket.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use geodns::udp::{Answers, SlowQueue};
use geodns_proto::content::Content;
use geodns_proto::render::AnswerId;
use geodns_proto::select::{Locate, Place, Selection, Served};
use geodns_proto::zone::Zone;
use runtime::control::Control;
use runtime::credentials::Credentials;
use runtime::node::{Config, NodeContext};
use topology::Topology;

pub(crate) const STEERED: &str = "signaling.rtc.example.com";
const PORT: u16 = 5300;

/// One list for everybody.
#[derive(Debug)]
pub(crate) struct Everywhere;

impl Locate for Everywhere {
    fn locate_v4(&self, _: u32) -> Place {
        Place { list: 0, scope: 9 }
    }

    fn locate_v6(&self, _: u128) -> Place {
        Place { list: 0, scope: 33 }
    }

    fn first_word(&self, _: IpAddr) -> &u32 {
        &0
    }

    fn slot(&self, _: IpAddr) -> u8 {
        0
    }
}

pub(crate) struct Node {
    context: NodeContext,
    answers: Answers<Everywhere>,
    zone: Zone,
    slow: SlowQueue,
    listen: Vec<SocketAddr>,
    workers: u8,
    threads: Vec<JoinHandle<()>>,
    thread_name: String,
    dir: PathBuf,
}

/// An address of this process alone.
pub(crate) fn address(host: u8) -> SocketAddr {
    let [.., b, c] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, 64 + b % 64, c, host), PORT))
}

pub(crate) fn address_v6() -> SocketAddr {
    let port = 20_000 + u16::try_from(std::process::id() % 20_000).unwrap();
    SocketAddr::from((Ipv6Addr::LOCALHOST, port))
}

impl Node {
    pub(crate) fn start(listen: &[SocketAddr], workers: u8, dns: &str) -> Self {
        let address = listen[0].ip().to_string();
        let host = address.rsplit(['.', ':']).next().unwrap();
        let thread_name = format!("dns-{host}");
        let dir = std::env::temp_dir().join(format!("geodns-{}-{thread_name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        crate::credentials::write(&dir);
        let topology = topology_of(listen, workers, dns);
        let zone = Zone::new(&topology).unwrap();
        let config = Config {
            topology,
            credentials: Credentials::load(&dir).unwrap(),
            generation: 1,
        };
        let context = NodeContext::new("geodns", "ns1", config, Control::new().unwrap());
        let answers = Answers::new(served(&zone, 0));
        let slow = SlowQueue::new();
        let config = context.config.load();
        let drawn = geodns_proto::cookie::Secrets::single([7; 16]);
        let bound = geodns::udp::bind(&context, &config, &answers, &slow, &drawn).unwrap();
        let threads = bound.into_iter().map(|worker| {
            runtime::thread::spawn_worker(&thread_name, None, move || worker.run()).unwrap()
        });
        Self {
            threads: threads.collect(),
            context,
            answers,
            zone,
            slow,
            listen: listen.to_vec(),
            workers,
            thread_name,
            dir,
        }
    }

    /// From here on the steered name has the address of this region.
    pub(crate) fn publish(&self, region: u16) {
        self.answers.publish(served(&self.zone, region));
    }

    pub(crate) fn reload(&self, dns: &str, cookies: Option<&str>) {
        if let Some(cookies) = cookies {
            std::fs::write(self.dir.join("cookie.keys"), cookies).unwrap();
        }
        let topology = topology_of(&self.listen, self.workers, dns);
        let credentials = Credentials::load(&self.dir).unwrap();
        self.context.config.publish(topology, credentials);
    }

    /// The slow path answered somebody who asked over a connection.
    pub(crate) fn answered_over_stream(&self) {
        self.slow.answered_over_stream();
    }

    /// A double of the slow path: it sends every query back as it came.
    pub(crate) fn answer_slow_queries(&self) {
        let slow = self.slow.clone();
        self.context.control.spawn(async move {
            loop {
                let query = slow.next().await;
                slow.answer(&query, query.bytes());
            }
        });
    }

    pub(crate) fn drain(&self) {
        self.context.shutdown.drain(Duration::from_secs(30));
    }

    pub(crate) fn stop(&self) {
        self.context.shutdown.stop();
    }

    pub(crate) fn until_ended(&self) {
        self.until("the workers to end", |_| {
            self.threads.iter().all(JoinHandle::is_finished)
        });
    }

    pub(crate) fn metrics(&self) -> String {
        self.context.metrics.prometheus()
    }

    pub(crate) fn until(&self, what: &str, reached: impl Fn(&str) -> bool) {
        crate::runtime_wait(what, || {
            std::thread::sleep(Duration::from_millis(5));
            reached(&self.metrics()).then_some(())
        });
    }

    /// The kernel's id of the one worker.
    pub(crate) fn worker_thread(&self) -> u32 {
        crate::runtime_wait("the worker's thread", || {
            std::fs::read_dir("/proc/self/task").ok()?.find_map(|task| {
                let path = task.ok()?.path();
                let comm = std::fs::read_to_string(path.join("comm")).ok()?;
                let id = path.file_name()?.to_str()?.parse().ok()?;
                (comm.trim_end() == self.thread_name).then_some(id)
            })
        })
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.context.shutdown.stop();
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

/// A resolver's socket, connected to one address of a node.
pub(crate) struct Client(UdpSocket);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let any: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        Self(socket)
    }

    pub(crate) fn send(&self, packet: &[u8]) {
        self.0.send(packet).unwrap();
    }

    /// One question. `None`: nobody listens there any more, as the kernel says.
    pub(crate) fn ask_or_refused(&self, packet: &[u8]) -> Option<()> {
        let refused = |error: std::io::Error| {
            assert_eq!(
                error.kind(),
                std::io::ErrorKind::ConnectionRefused,
                "{error}"
            );
        };
        self.0.send(packet).map_err(refused).ok().map(drop)
    }

    /// Its answer. `None`: the kernel says that nobody got it.
    pub(crate) fn answered_or_refused(&self) -> Option<()> {
        let refused = |error: std::io::Error| {
            let kind = error.kind();
            assert_eq!(
                kind,
                std::io::ErrorKind::ConnectionRefused,
                "neither answered nor refused: {error}"
            );
        };
        self.0.recv(&mut [0; 1500]).map_err(refused).ok().map(drop)
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 1500];
        let len = self.0.recv(&mut buffer).expect("an answer");
        buffer[..len].to_vec()
    }

    pub(crate) fn ask(&self, packet: &[u8]) -> Vec<u8> {
        self.send(packet);
        self.receive()
    }
}

/// The value of one series, 0 when it is not there.
pub(crate) fn total(metrics: &str, series: &str) -> u64 {
    let value = |line: &str| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok();
    metrics.lines().find_map(value).unwrap_or(0)
}

fn served(zone: &Zone, region: u16) -> Served<Everywhere> {
    let content = Content::new(
        zone.clone(),
        vec![zone.steered(&zone.carried([region], []))],
    );
    let mut selection = Selection::new();
    selection.push(AnswerId(0));
    Served {
        tables: Arc::new(Everywhere),
        selection: Arc::new(selection),
        rendered: Arc::new(content.render(1).unwrap()),
    }
}

/// The sample network with a GeoDNS node of our own.
fn topology_of(listen: &[SocketAddr], workers: u8, dns: &str) -> Topology {
    let sample = include_str!("../../../../topology/samples/world.yaml");
    let (network, _) = sample.split_once("\ngeodns:").unwrap();
    let dns = if dns.is_empty() {
        "  rate_limit: { responses_per_s: 0 }\n"
    } else {
        dns
    };
    let listen: Vec<String> = listen.iter().map(|at| format!("\"{at}\"")).collect();
    let listen = listen.join(", ");
    let text = format!(
        "{network}\n{dns}\ngeodns:\n  - {{ name: ns1, dns: [{listen}], steer: \"127.0.0.1:8443\", workers: {workers}, pin: false }}\n"
    );
    topology::load(&text, "test.yaml").unwrap()
}
