//! A core relay as a real process on loopback addresses of its own, with PoPs and transceivers that the test plays.

use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use core_relay_link::{Congestion, LinkEvent, LinkId, Links, LinksConfig, Target, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use runtime::clock;
use topology::Link;
use wire::record::{Record, RecordHeader, Records, open_datagram};
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
pub(crate) const TRANSCEIVER_PORT: u16 = 5000;
/// Silence that makes a link down where a test is about something else: whoever plays a PoP has other things to do, too.
const PATIENT_MS: u32 = 8_000;

/// A network of one region `eu` with relay `r1`, transceivers `t1`, `t2`, and PoPs `ams` (id 1) and `nyc` (id 2).
pub(crate) struct Net {
    dir: PathBuf,
    octets: [u8; 2],
    issuer: Issuer<'static, KeyPair>,
    ca_pem: String,
    link: Link,
    relay: Option<Child>,
}

impl Net {
    /// `test` keeps the addresses of tests that run at the same time apart. Links bear long silences.
    pub(crate) fn new(test: u8) -> Self {
        Self::with_link(
            test,
            Link {
                down_after_ms: PATIENT_MS,
                ..Link::default()
            },
        )
    }

    pub(crate) fn with_link(test: u8, link: Link) -> Self {
        let process = std::process::id();
        let octets = [range(), test];
        let dir = std::env::temp_dir().join(format!("core-relay-{process}-{test}"));
        std::fs::create_dir_all(&dir).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = params.self_signed(&key).unwrap().pem();
        let net = Self {
            dir,
            octets,
            issuer: Issuer::new(params, key),
            ca_pem,
            link,
            relay: None,
        };
        net.write_credentials();
        std::fs::write(net.dir.join("topology.yaml"), net.topology(&["ams", "nyc"])).unwrap();
        net
    }

    pub(crate) fn ip(&self, host: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(127, self.octets[0], self.octets[1], host))
    }

    fn topology(&self, pops: &[&str]) -> String {
        let ip = |host| self.ip(host);
        let mut text = format!(
            "version: 1
network: {{ name: test, drain_max_s: 5, link: {{ down_after_ms: {down_after_ms} }} }}
regions:
  - name: eu
    id: 1
    signaling_url: http://127.0.0.1/whip
    core_relays:
      - {{ name: r1, address: {r}, workers: 2, pin: false, admin: '{r}:9100' }}
    transceivers:
      cidr: {cidr}/28
      port: {TRANSCEIVER_PORT}
      nodes:
        - {{ name: t1, address: {t1}, whip: '{t1}:8080', peer: '{t1}:8443', admin: '{t1}:9100' }}
        - {{ name: t2, address: {t2}, whip: '{t2}:8080', peer: '{t2}:8443', admin: '{t2}:9100' }}
pops:
",
            down_after_ms = self.link.down_after_ms,
            r = ip(100),
            cidr = ip(0),
            t1 = ip(1),
            t2 = ip(2),
        );
        for (id, name, host) in [(1, "ams", 101), (2, "nyc", 102)] {
            if pops.contains(&name) {
                text += &format!(
                    "  - {{ name: {name}, id: {id}, ingress: ['{p}:3478'], workers: 2, pin: false, admin: '{p}:9100' }}\n",
                    p = ip(host)
                );
            }
        }
        text
    }

    pub(crate) fn write_topology(&self, pops: &[&str]) {
        std::fs::write(self.dir.join("topology.yaml"), self.topology(pops)).unwrap();
    }

    /// Certificate and key of a node, as PEM.
    fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        (pem, key.serialize_pem())
    }

    pub(crate) fn write_credentials(&self) {
        let (cert, key) = self.certificate("r1");
        let hint_keys = "current 0 000102030405060708090a0b0c0d0e0f\n";
        for (file, text) in [
            ("ca.pem", self.ca_pem.as_str()),
            ("key.pem", &key),
            ("cert.pem", &cert),
            ("hint.keys", hint_keys),
        ] {
            let path = self.dir.join(file);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        }
    }

    /// Starts the relay and waits until it is ready.
    pub(crate) fn start(&mut self) {
        let child = Command::new(env!("CARGO_BIN_EXE_core-relay"))
            .args(self.arguments())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        self.relay = Some(child);
        until("the relay is ready", || {
            self.get("/readyz").starts_with("HTTP/1.1 200")
        });
    }

    pub(crate) fn arguments(&self) -> [std::ffi::OsString; 6] {
        [
            "--topology".into(),
            self.dir.join("topology.yaml").into(),
            "--node".into(),
            "r1".into(),
            "--credentials".into(),
            self.dir.clone().into(),
        ]
    }

    pub(crate) fn signal(&self, signal: &str) {
        let process = self.relay.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill")
            .args([signal, &process])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        let mut relay = self.relay.take().unwrap();
        relay.kill().unwrap();
        relay.wait().unwrap();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.relay.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    pub(crate) fn exit_status(&mut self) -> ExitStatus {
        self.relay.as_mut().unwrap().wait().unwrap()
    }

    /// The whole HTTP answer of the admin address; empty when nobody listens.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect((self.ip(100), 9100)) {
            let request =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    /// A value of /metrics: all series whose line starts with `series` added up.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        self.get("/metrics")
            .lines()
            .filter(|line| line.starts_with(series))
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    pub(crate) fn drops(&self, reason: &str) -> f64 {
        self.metric(&format!(
            "firsthop_core_relay_drops_total{{reason=\"{reason}\"}}"
        ))
    }

    /// Waits until drops for `reason` have come to `count`, while `pop` keeps its link up.
    pub(crate) fn expect_drops(&self, pop: &mut TestPop, reason: &str, count: f64) {
        until(reason, || {
            pop.turn();
            self.drops(reason) >= count
        });
        assert_eq!(self.drops(reason), count, "{reason}");
    }

    /// Worker 0 of a PoP.
    pub(crate) fn pop(&self, certificate: &str) -> TestPop {
        let (cert, key) = self.certificate(certificate);
        let tls = Tls::from_pem(
            self.ca_pem.as_bytes(),
            cert.as_bytes(),
            key.as_bytes(),
            clock::unix_s,
        )
        .unwrap();
        let target = Target {
            name: "r1".to_owned(),
            worker: 0,
            address: SocketAddr::new(self.ip(100), 7443),
        };
        TestPop::new(tls, &target, &self.link)
    }

    /// Transceiver `t<number>`.
    pub(crate) fn transceiver(&self, number: u8) -> UdpSocket {
        udp(SocketAddr::new(self.ip(number), TRANSCEIVER_PORT))
    }

    pub(crate) fn record_address(&self) -> SocketAddr {
        SocketAddr::new(self.ip(100), 7543)
    }

    pub(crate) fn link_address(&self) -> SocketAddr {
        SocketAddr::new(self.ip(100), 7443)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if let Some(mut relay) = self.relay.take() {
            let _ = relay.kill();
            let _ = relay.wait();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
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

/// A PoP worker: links over a real socket, driven by whoever waits for something.
pub(crate) struct TestPop {
    pub(crate) links: Links,
    pub(crate) link: LinkId,
    socket: UdpSocket,
    pub(crate) events: Vec<LinkEvent>,
    pub(crate) received: Vec<(RecordHeader, Vec<u8>)>,
}

impl TestPop {
    fn new(tls: Tls, target: &Target, link: &Link) -> Self {
        let now = clock::now();
        let config = LinksConfig {
            worker: 0,
            link: link.clone(),
            seed: [7; 32],
            congestion: Congestion::default(),
        };
        let mut links = Links::dialer(config, tls, std::slice::from_ref(target), now);
        let link = links.set_targets(std::slice::from_ref(target), now)[0];
        Self {
            links,
            link,
            socket: udp(SocketAddr::from(([127, 0, 0, 1], 0))),
            events: Vec::new(),
            received: Vec::new(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.links.stats(self.link).unwrap().up_since.is_some()
    }

    /// One turn of its loop.
    pub(crate) fn turn(&mut self) {
        let mut buffer = vec![0; 65_536];
        while let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            self.links.handle_packet(from, &buffer[..len], clock::now());
        }
        let now = clock::now();
        if self.links.poll_timeout().is_some_and(|due| due <= now) {
            self.links.handle_timeout(now);
        }
        while let Some(event) = self.links.next_event() {
            self.events.push(event);
        }
        while let Some((_, body)) = self.links.next_datagram() {
            for record in Records::new(&body) {
                let record = record.unwrap();
                self.received.push((record.header, record.payload.to_vec()));
            }
        }
        while let Some(transmit) = self.links.poll_transmit(now, &mut buffer) {
            let segment = transmit.segment.unwrap_or(transmit.len);
            for packet in buffer[..transmit.len].chunks(segment) {
                let _ = self.socket.send_to(packet, transmit.to);
            }
        }
    }

    pub(crate) fn up(&mut self) {
        until("the link is up", || {
            self.turn();
            self.is_up()
        });
    }

    pub(crate) fn send(&mut self, header: &RecordHeader, payload: &[u8]) {
        self.links.put_record(self.link, header, payload).unwrap();
    }

    pub(crate) fn flush(&mut self) {
        self.links.flush();
        self.turn();
    }
}

/// A record of PoP 1, worker 0, for transceiver `transceiver` of region 1.
pub(crate) fn header(transceiver: u32) -> RecordHeader {
    RecordHeader {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(transceiver),
        },
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: 0,
        },
        client: ClientAddr::new(SocketAddr::from(([192, 0, 2, 1], 4000))),
        hops: 0,
        fragment: None,
        offered: false,
    }
}

/// The records of one datagram.
pub(crate) type OwnedRecords = Vec<(RecordHeader, Vec<u8>)>;

/// Datagrams that come to a transceiver until none comes for 200 ms: the records of each, and the sender.
pub(crate) fn datagrams(socket: &UdpSocket) -> Vec<(SocketAddr, OwnedRecords)> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 65_536];
    let mut quiet_since = clock::now();
    while clock::now() < quiet_since + Duration::from_millis(200) {
        let Ok((len, from)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        quiet_since = clock::now();
        let (_, _, body) = open_datagram(&buffer[..len]).unwrap();
        let owned = |record: Record<'_>| (record.header, record.payload.to_vec());
        let records = Records::new(body).map(|record| owned(record.unwrap()));
        all.push((from, records.collect()));
    }
    all
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) -> Duration {
    let start: Instant = clock::now();
    while !done() {
        assert!(
            clock::now() < start + DEADLINE,
            "{what}: not within {DEADLINE:?}"
        );
        std::thread::yield_now();
    }
    clock::now() - start
}

pub(crate) fn udp(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    // Short reads: who waits for something else takes turns.
    socket
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    socket
}
