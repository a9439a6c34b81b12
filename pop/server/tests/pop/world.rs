//! A PoP in this process with real sockets, and core relays that are nothing but an acceptor of links: they keep what
//! arrives and send what a test tells them.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket as StdSocket};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use core_relay_link::{Allowed, Congestion, LinkEvent, LinkId, Links, LinksConfig, Tls};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use runtime::clock;
use runtime::control::Control;
use runtime::credentials::Credentials;
use runtime::node::{Config, NodeContext, Running};
use runtime::udp::{BindOptions, GRO_SLOT_BYTES, RecvBatch, UdpSocket, send_segments};
use topology::Topology;
use wire::hint::{Hint, KeyRing, Minute};
use wire::reassembly::{Reassembled, Reassembler};
use wire::record::{RecordHeader, Records};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

pub(crate) const KEYS: &str = "current 1 000102030405060708090a0b0c0d0e0f\n\
    next 2 101112131415161718191a1b1c1d1e1f\n";
pub(crate) const OWNER: Owner = Owner {
    region: RegionId(1),
    transceiver: TransceiverId(1),
};
pub(crate) const RTP: &[u8] = b"\x80\x6f\x00\x01 a frame of Opus";
/// Longest wait for anything; nothing here takes a tenth of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Silence that makes a link down, where a test is not about silence: relays work only while a test waits for something.
const PATIENT_MS: u32 = 8_000;

/// The network of one test, on addresses of its own: 127.R.`net`.x, with an R of the process's own.
pub(crate) struct World {
    pub(crate) topology: Topology,
    dir: PathBuf,
    ca: Ca,
    pub(crate) relays: Vec<Relay>,
    pub(crate) context: NodeContext,
    running: Option<Running>,
    /// The relay that the last committed client's request came to.
    pub(crate) carrier: usize,
}

impl World {
    /// Two core relays and a PoP that has links to both.
    pub(crate) fn new(net: u8, workers: u8, mtu_bytes: u16) -> Self {
        let mut world = Self::without_pop(net, workers, mtu_bytes);
        world.start_with_links(workers);
        world
    }

    /// As [`Self::new`], and silence of a relay is noticed within so many milliseconds.
    pub(crate) fn impatient(net: u8, workers: u8, mtu_bytes: u16, down_after_ms: u32) -> Self {
        let [patient, impatient] =
            [PATIENT_MS, down_after_ms].map(|ms| format!("down_after_ms: {ms} "));
        let text = topology_text(net, workers, mtu_bytes).replace(&patient, &impatient);
        let mut world = Self::of(&text, Ca::new(), dir_of(net));
        world.start_with_links(workers);
        world
    }

    pub(crate) fn without_pop(net: u8, workers: u8, mtu_bytes: u16) -> Self {
        let text = topology_text(net, workers, mtu_bytes);
        Self::of(&text, Ca::new(), dir_of(net))
    }

    fn start_with_links(&mut self, workers: u8) {
        self.start().unwrap();
        self.until("links are up", |world| {
            let mut relays = world.relays.iter();
            relays.all(|relay| relay.up.len() == usize::from(workers))
                && world.get("/readyz").0 == 200
        });
    }

    fn of(text: &str, ca: Ca, dir: PathBuf) -> Self {
        let topology = topology::load(text, "test.yaml").unwrap();
        std::fs::create_dir_all(&dir).unwrap();
        let relays = (0..2).map(|i| Relay::new(&topology, i, &ca)).collect();
        let context = context(&topology, &ca, &dir);
        Self {
            topology,
            dir,
            ca,
            relays,
            context,
            running: None,
            carrier: 0,
        }
    }

    /// A PoP in a failover group, as YAML; `files` go to its credentials. Its links are up.
    pub(crate) fn with_cache(net: u8, group: &str, files: &[(&str, &str)]) -> Self {
        let text = topology_text(net, 1, 1452)
            .replace("\npops:\n", &format!("\nfailover_groups:\n{group}pops:\n"))
            + "    failover_group: test\n";
        let dir = dir_of(net);
        std::fs::create_dir_all(&dir).unwrap();
        for (name, content) in files {
            std::fs::write(dir.join(name), content).unwrap();
        }
        let mut world = Self::of(&text, Ca::new(), dir);
        world.start_with_links(1);
        world
    }

    /// A directory with the certificate of a Redis on 127.0.0.1, its key, and the CA that signed it.
    pub(crate) fn tls_files(net: u8) -> PathBuf {
        let (ca, dir) = (Ca::new(), dir_of(net).join("redis"));
        std::fs::create_dir_all(&dir).unwrap();
        let (cert, key) = ca.node("127.0.0.1");
        for (name, text) in [
            ("redis.cert.pem", cert),
            ("redis.key.pem", key),
            ("ca.pem", ca.pem),
        ] {
            std::fs::write(dir.join(name), text).unwrap();
        }
        dir
    }

    /// A CA that signed nothing here.
    pub(crate) fn other_ca() -> String {
        Ca::new().pem
    }

    /// Puts a file among the PoP's credentials, and lets it notice.
    pub(crate) fn publish_file(&self, name: &str, content: &str) {
        std::fs::write(self.dir.join(name), content).unwrap();
        let credentials = Credentials::load(&self.dir).unwrap();
        let topology = self.topology.clone();
        self.context.config.publish(topology, credentials);
        self.context.shutdown.wake_all();
    }

    /// The sum of a metric's cells with all of these labels.
    pub(crate) fn metric(&self, name: &str, labels: &[String]) -> u64 {
        let text = self.get("/metrics").1;
        text.lines()
            .filter(|line| {
                line.starts_with(name) && labels.iter().all(|label| line.contains(label))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        self.running = Some(pop::start(self.context.clone())?);
        Ok(())
    }

    /// Ends the PoP as SIGKILL would for everybody else: at once.
    pub(crate) fn stop(&mut self) {
        self.context.shutdown.stop();
        self.join();
    }

    pub(crate) fn join(&mut self) {
        let running = self.running.take().unwrap();
        let ended = Instant::now() + PATIENCE;
        while !running.is_finished() {
            assert!(Instant::now() < ended, "the workers have ended");
            self.step();
        }
        running.join();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.running.as_ref().is_some_and(Running::is_finished)
    }

    /// A new process in the place of one that has stopped.
    pub(crate) fn restart(&mut self) {
        self.context = context(&self.topology, &self.ca, &self.dir);
        self.start().unwrap();
    }

    /// Puts another key file in place.
    pub(crate) fn publish_keys(&self, keys: &str) {
        std::fs::write(self.dir.join("hint.keys"), keys).unwrap();
        let credentials = Credentials::load(&self.dir).unwrap();
        let topology = self.topology.clone();
        self.context.config.publish(topology, credentials);
        self.context.shutdown.wake_all();
    }

    pub(crate) fn ingress(&self) -> SocketAddr {
        self.topology.pops[0].ingress[0]
    }

    pub(crate) fn client(&self) -> Client {
        let socket = StdSocket::bind(("127.0.0.1", 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Client {
            socket,
            to: self.ingress(),
        }
    }

    /// Lets the relays work for a moment.
    pub(crate) fn step(&mut self) {
        for relay in &mut self.relays {
            relay.step();
        }
        std::thread::sleep(Duration::from_millis(1));
    }

    /// Works until it holds.
    pub(crate) fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(
                Instant::now() < end,
                "{what}; state: {}",
                self.get("/state").1
            );
            self.step();
        }
    }

    /// Works for this long.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step();
        }
    }

    /// The next record that reaches a relay, and which.
    pub(crate) fn next_record(&mut self) -> (usize, RecordHeader, Vec<u8>) {
        let mut found = None;
        self.until("a record arrives", |world| {
            for (index, relay) in world.relays.iter_mut().enumerate() {
                if !relay.records.is_empty() {
                    let (header, payload) = relay.records.remove(0);
                    found = Some((index, header, payload));
                    return true;
                }
            }
            false
        });
        found.unwrap()
    }

    /// The next packet a client gets.
    pub(crate) fn next_packet(&mut self, client: &Client) -> (SocketAddr, Vec<u8>) {
        let mut found = None;
        self.until("a packet arrives", |_| {
            found = client.recv();
            found.is_some()
        });
        found.unwrap()
    }

    /// Sends a packet to a client through relay `relay`.
    pub(crate) fn down(&mut self, relay: usize, header: &RecordHeader, payload: &[u8]) {
        let relay = &mut self.relays[relay];
        let worker = header.tag.worker;
        let (_, link) = relay
            .up
            .iter()
            .find(|(w, _)| *w == worker)
            .copied()
            .unwrap();
        relay.links.put_record(link, header, payload).unwrap();
        relay.links.flush();
        relay.step();
    }

    /// An end record for each of `clients`, all at once.
    pub(crate) fn end_all(
        &mut self,
        relay: usize,
        header: &RecordHeader,
        clients: impl Iterator<Item = ClientAddr>,
    ) {
        let relay = &mut self.relays[relay];
        let mut up = relay.up.iter();
        let (_, link) = *up.find(|(own, _)| *own == header.tag.worker).unwrap();
        for client in clients {
            let header = RecordHeader { client, ..*header };
            relay.links.put_record(link, &header, b"").unwrap();
        }
        relay.links.flush();
        relay.step();
    }

    /// A client that the owner has answered.
    pub(crate) fn committed(&mut self, keys: &str) -> (Client, RecordHeader) {
        let client = self.client();
        client.send(&binding_request(ufrag(keys, OWNER).as_bytes()));
        let (relay, header, _) = self.next_record();
        self.carrier = relay;
        self.down(relay, &header, &binding_success());
        assert_eq!(self.next_packet(&client).1, binding_success());
        (client, header)
    }

    /// One counter of `/metrics`, all its cells.
    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let text = self.get("/metrics").1;
        let label = format!("reason=\"{reason}\"");
        let line = text
            .lines()
            .find(|line| line.starts_with("firsthop_pop_drops_total") && line.contains(&label));
        let value = line.and_then(|line| line.rsplit(' ').next());
        value.unwrap().parse().unwrap()
    }

    /// GET from the admin address: status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let Ok(mut stream) = TcpStream::connect(self.topology.pops[0].admin) else {
            return (0, String::new());
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok());
        (status.unwrap_or(0), body.to_owned())
    }

    pub(crate) fn header_for(&self, client: &Client, worker: u8) -> RecordHeader {
        RecordHeader {
            owner: OWNER,
            tag: Tag {
                pop: PopId(1),
                worker,
                ingress: 0,
            },
            client: client.addr(),
            hops: 0,
            fragment: None,
            offered: false,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.context.shutdown.stop();
        if let Some(running) = self.running.take() {
            running.join();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn dir_of(net: u8) -> PathBuf {
    std::env::temp_dir().join(format!("firsthop-pop-{}-{net}", std::process::id()))
}

/// A client's socket.
pub(crate) struct Client {
    socket: StdSocket,
    to: SocketAddr,
}

impl Client {
    pub(crate) fn addr(&self) -> ClientAddr {
        ClientAddr::new(self.socket.local_addr().unwrap())
    }

    pub(crate) fn send(&self, packet: &[u8]) {
        self.socket.send_to(packet, self.to).unwrap();
    }

    pub(crate) fn recv(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; 2048];
        let (len, from) = self.socket.recv_from(&mut buffer).ok()?;
        Some((from, buffer[..len].to_vec()))
    }
}

/// The far end of links.
pub(crate) struct Relay {
    socket: UdpSocket,
    batch: RecvBatch,
    pub(crate) links: Links,
    reassembler: Reassembler,
    buffer: Vec<u8>,
    /// PoP workers whose link is up.
    pub(crate) up: Vec<(u8, LinkId)>,
    pub(crate) records: Vec<(RecordHeader, Vec<u8>)>,
    /// Records as they came, parts counted one by one.
    pub(crate) parts: usize,
    /// How often a link came up.
    pub(crate) ups: usize,
    /// Whether it hears and says nothing any more.
    pub(crate) dead: bool,
}

impl Relay {
    fn new(topology: &Topology, index: usize, ca: &Ca) -> Self {
        let relay = &topology.regions[0].core_relays[index];
        let options = BindOptions {
            gro: true,
            ..BindOptions::default()
        };
        let address = (relay.address, relay.link_port).into();
        let config = LinksConfig {
            worker: 0,
            link: topology.network.link.clone(),
            seed: [u8::try_from(index).unwrap() + 1; 32],
            congestion: Congestion::default(),
        };
        let allowed = Allowed {
            name: "ams".to_owned(),
            workers: topology.pops[0].workers,
        };
        let (cert, key) = ca.node(&relay.name);
        let tls = Tls::from_pem(
            ca.pem.as_bytes(),
            cert.as_bytes(),
            key.as_bytes(),
            clock::unix_s,
        );
        Self {
            socket: UdpSocket::bind(address, &options).unwrap(),
            batch: RecvBatch::new(16, GRO_SLOT_BYTES),
            links: Links::acceptor(config, tls.unwrap(), &[allowed], clock::now()),
            reassembler: Reassembler::new(16, Duration::from_secs(1), 1),
            buffer: Vec::new(),
            up: Vec::new(),
            records: Vec::new(),
            parts: 0,
            ups: 0,
            dead: false,
        }
    }

    pub(crate) fn step(&mut self) {
        let now = clock::now();
        while self.batch.recv(&self.socket).unwrap() > 0 {
            for (from, packet) in self.batch.iter().filter(|_| !self.dead) {
                self.links.handle_packet(from, packet, now);
            }
        }
        if self.dead {
            return;
        }
        if self.links.poll_timeout().is_some_and(|due| due <= now) {
            self.links.handle_timeout(now);
        }
        self.take(now);
        while let Some(transmit) = self.links.poll_transmit(now, &mut self.buffer) {
            let segment = transmit.segment.unwrap_or(transmit.len);
            let _ = send_segments(
                &self.socket,
                transmit.to,
                &self.buffer[..transmit.len],
                segment,
            );
        }
    }

    fn take(&mut self, now: Instant) {
        while let Some(event) = self.links.next_event() {
            match event {
                LinkEvent::Up { link, worker, .. } => {
                    self.up.retain(|(w, _)| *w != worker);
                    self.up.push((worker, link));
                    self.ups += 1;
                }
                LinkEvent::Down { worker, .. } => self.up.retain(|(w, _)| *w != worker),
                LinkEvent::Suspect { .. }
                | LinkEvent::Draining { .. }
                | LinkEvent::DialFailed { .. }
                | LinkEvent::Refused { .. } => {}
            }
        }
        while let Some((_, body)) = self.links.next_datagram() {
            for record in Records::new(&body) {
                let record = record.unwrap();
                self.parts += 1;
                let pushed = self.reassembler.push(&record.header, record.payload, now);
                if let Reassembled::Complete(payload) = pushed {
                    self.records.push((record.header, payload.to_vec()));
                }
            }
        }
    }
}

/// A certificate authority.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Certificate and key of a node.
    fn node(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let cert = params.signed_by(&key, &self.issuer).unwrap().pem();
        (cert, key.serialize_pem())
    }
}

fn context(topology: &Topology, ca: &Ca, dir: &Path) -> NodeContext {
    let (cert, key) = ca.node("ams");
    for (name, text) in [
        ("ca.pem", ca.pem.as_str()),
        ("cert.pem", &cert),
        ("key.pem", &key),
        ("hint.keys", KEYS),
    ] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    let config = Config {
        topology: topology.clone(),
        credentials: Credentials::load(dir).unwrap(),
        generation: 1,
    };
    NodeContext::new("pop", "ams", config, Control::new().unwrap())
}

/// R of this process: a 127.R.0.0/16 that no other test run has, held by a listening socket as those of the lab are.
fn range() -> u8 {
    const HOLD_PORT: u16 = 4999;
    static RANGE: LazyLock<(u8, TcpListener)> = LazyLock::new(|| {
        let start = usize::from(std::process::id().to_le_bytes()[0]);
        let octets = (64..=250u8).cycle().skip(start).take(187);
        let hold = |octet| TcpListener::bind((Ipv4Addr::new(127, octet, 255, 254), HOLD_PORT));
        let mut free = octets.filter_map(|octet| Some((octet, hold(octet).ok()?)));
        free.next().expect("a range that nobody has")
    });
    RANGE.0
}

/// Tests are numbered below 64: each has four nets of the range.
fn topology_text(net: u8, workers: u8, mtu_bytes: u16) -> String {
    let r = range();
    let [eu_transceivers, us_relays, us_transceivers] = [64, 128, 192].map(|base| base + net);
    format!(
        "version: 1
network:
  name: test
  link: {{ mtu_bytes: {mtu_bytes}, heartbeat_ms: 50, down_after_ms: {PATIENT_MS} }}
regions:
  - name: eu
    id: 1
    signaling_url: http://127.0.0.1:8080/whip
    core_relays:
      - {{ name: eu-r1, address: 127.{r}.{net}.1, pin: false, admin: \"127.{r}.{net}.1:9100\" }}
      - {{ name: eu-r2, address: 127.{r}.{net}.2, pin: false, admin: \"127.{r}.{net}.2:9100\" }}
    transceivers:
      cidr: 127.{r}.{eu_transceivers}.0/24
      port: 5000
      nodes:
        - {{ name: eu-t1, address: 127.{r}.{eu_transceivers}.1, whip: \"127.{r}.{eu_transceivers}.1:8080\", peer: \"127.{r}.{eu_transceivers}.1:8443\", admin: \"127.{r}.{eu_transceivers}.1:9100\" }}
  - name: us
    id: 2
    signaling_url: http://127.0.0.1:8080/whip
    core_relays:
      - {{ name: us-r1, address: 127.{r}.{us_relays}.1, pin: false, admin: \"127.{r}.{us_relays}.1:9100\" }}
    transceivers:
      cidr: 127.{r}.{us_transceivers}.0/24
      port: 5000
      nodes:
        - {{ name: us-t1, address: 127.{r}.{us_transceivers}.1, whip: \"127.{r}.{us_transceivers}.1:8080\", peer: \"127.{r}.{us_transceivers}.1:8443\", admin: \"127.{r}.{us_transceivers}.1:9100\" }}
pops:
  - name: ams
    id: 1
    ingress: [\"127.{r}.{net}.3:3478\"]
    backbone: 127.{r}.{net}.3
    regions: [eu]
    workers: {workers}
    pin: false
    flows_max: 1024
    admin: \"127.{r}.{net}.3:9100\"
"
    )
}

/// A hint of the key file's current key, issued now.
pub(crate) fn ufrag(keys: &str, owner: Owner) -> String {
    let hint = Hint {
        owner,
        issued: Minute::from_unix_s(clock::unix_s()),
    };
    let ring = KeyRing::parse(keys).unwrap();
    ring.seal(hint, [7, 8, 9]).as_str().to_owned()
}

pub(crate) fn binding_request(ufrag: &[u8]) -> Vec<u8> {
    let mut name = ufrag.to_vec();
    name.extend_from_slice(b":client");
    let padded = name.len().next_multiple_of(4);
    let mut packet = vec![0, 1];
    packet.extend(u16::try_from(4 + padded).unwrap().to_be_bytes());
    packet.extend(b"\x21\x12\xa4\x42transaction1");
    packet.extend([0, 6]);
    packet.extend(u16::try_from(name.len()).unwrap().to_be_bytes());
    packet.extend(&name);
    packet.resize(20 + 4 + padded, 0);
    packet
}

pub(crate) fn binding_success() -> Vec<u8> {
    b"\x01\x01\x00\x00\x21\x12\xa4\x42transaction1".to_vec()
}
