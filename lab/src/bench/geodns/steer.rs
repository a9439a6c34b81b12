//! What a question over HTTP takes: `POST /v1/steer` as transceivers ask it, over mutual TLS and connections that stay open.
//!
//! ```text
//! processor 0                                     processor 1
//! ┌─────────────────────────┐  POST /v1/steer    ┌──────────────────────┐
//! │ 4 nodes, a connection   │ ─────────────────► │ geodns, as it is for │
//! │ and a thread each       │ ◄───────────────── │ DNS questions        │
//! └─────────────────────────┘  region, checked   └──────────────────────┘
//! ```
//!
//! A closed loop: each node asks again once it is answered. The time of an answer is from the first byte of the question to
//! the last of the answer, encryption on both sides included; reading what the answer says is not.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use runtime::clock;
use runtime::credentials::Credentials;
use runtime::peer_tls;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};

use super::database::Database;
use super::load::Found;
use super::map::PLACES;
use super::ours::{self, NODE};
use super::questions::Random;
use super::report::WARM;
use crate::bench::median::median;
use crate::bench::processor;
use crate::bench::world::ENDS;
use crate::net::{Network, Program};

/// What came of it, medians of the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Steer {
    /// Nodes that ask at the same time.
    pub askers: usize,
    /// PoPs of the topology: as many costs are in an answer.
    pub pops: u8,
    /// Answers a second, of all of them.
    pub answers_per_s: f64,
    /// Half of the answers took no longer.
    pub p50_ms: f64,
    /// All but one in a hundred took no longer.
    pub p99_ms: f64,
    /// Answers that were right, of all rounds.
    pub answered: u64,
    /// Answers with another region than the map says, of all rounds.
    pub wrong: u64,
}

/// Starts our node and asks, round after round.
///
/// # Errors
/// It does not come up, or an answer is none.
pub fn run(database: &Database, rounds: usize, length: Duration) -> anyhow::Result<Steer> {
    let network = ours::start(database, POPS)?;
    let to = Target::of(&network)?;
    to.ask(database, WARM)?;
    let found: Vec<_> = (0..rounds)
        .map(|_| to.ask(database, length))
        .collect::<anyhow::Result<_>>()?;
    Ok(Steer::new(&found))
}

/// One line for people.
#[must_use]
pub fn text(steer: &Steer) -> String {
    format!(
        "steering over HTTP, {} PoPs, {} nodes ask: {:.0} answers/s, p50 {:.2} ms, p99 {:.2} ms, {} wrong\n",
        steer.pops, steer.askers, steer.answers_per_s, steer.p50_ms, steer.p99_ms, steer.wrong
    )
}

impl Steer {
    fn new(rounds: &[Found]) -> Self {
        let middle = |value: &dyn Fn(&Found) -> f64| median(rounds.iter().map(value));
        Self {
            askers: ASKERS,
            pops: POPS,
            answers_per_s: middle(&Found::rate),
            p50_ms: middle(&|found| found.latency_us(500) / 1000.0),
            p99_ms: middle(&|found| found.latency_us(990) / 1000.0),
            answered: rounds.iter().map(|found| found.answered).sum(),
            wrong: rounds.iter().map(|found| found.wrong).sum(),
        }
    }
}

/// Whom to ask, and as whom.
struct Target {
    address: SocketAddr,
    tls: Arc<ClientConfig>,
}

impl Target {
    fn of(network: &Network) -> anyhow::Result<Self> {
        let node = network.topology().geodns_named(NODE);
        let address = node.context("a node that steers")?.steer;
        let asker = network.names(Program::Transceiver).next();
        let dir = network.credentials(asker.context("a node that asks")?);
        let credentials = Credentials::load(&dir)?;
        Ok(Self {
            address,
            tls: Arc::new(peer_tls::client(&credentials)?),
        })
    }

    /// All askers at once.
    fn ask(&self, database: &Database, length: Duration) -> anyhow::Result<Found> {
        std::thread::scope(|scope| {
            let askers: Vec<_> = (1..=ASKERS)
                .zip(1..)
                .map(|(_, seed)| scope.spawn(move || self.ask_as_one(database, seed, length)))
                .collect();
            let mut all = Found::default();
            for asker in askers {
                match asker.join() {
                    Ok(found) => {
                        let found = found?;
                        all.elapsed = all.elapsed.max(found.elapsed);
                        all.sent += found.sent;
                        all.add(&found);
                    }
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            Ok(all)
        })
    }

    fn ask_as_one(
        &self,
        database: &Database,
        seed: u64,
        length: Duration,
    ) -> anyhow::Result<Found> {
        processor::pin(ENDS)?;
        let mut connection = Connection::open(self)?;
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let (mut found, start) = (Found::default(), clock::now());
        while found.elapsed < length {
            let client = random.public_v4().into();
            let asked = clock::now();
            let told = connection.ask(client)?;
            found.note(clock::now().saturating_duration_since(asked));
            found.sent += 1;
            if told.is_right(client, database) {
                found.answered += 1;
            } else {
                found.wrong += 1;
            }
            found.elapsed = since(start);
        }
        Ok(found)
    }
}

/// What of an answer is looked at.
#[derive(Deserialize)]
struct Told {
    region: String,
    ingress: Vec<serde::de::IgnoredAny>,
}

impl Told {
    fn is_right(&self, client: IpAddr, database: &Database) -> bool {
        // Whoever is nowhere gets the first.
        let [nowhere, ..] = &PLACES;
        let place = database.place(client).unwrap_or(nowhere);
        self.region == place.name && !self.ingress.is_empty()
    }
}

/// A connection that stays open.
struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    host: String,
    bytes: Vec<u8>,
}

impl Connection {
    fn open(target: &Target) -> anyhow::Result<Self> {
        let name = ServerName::try_from(NODE)?;
        let tls = ClientConnection::new(Arc::clone(&target.tls), name)?;
        let stream = TcpStream::connect_timeout(&target.address, SILENCE_MAX)
            .context("connecting to the steer address")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            stream: StreamOwned::new(tls, stream),
            host: format!("{NODE}:{}", target.address.port()),
            bytes: Vec::with_capacity(ANSWER_BYTES_MAX),
        })
    }

    /// The body of the answer is in `bytes` when its last byte has come.
    fn ask(&mut self, client: IpAddr) -> anyhow::Result<Told> {
        let question = self.question(client);
        self.stream.write_all(question.as_bytes())?;
        self.bytes.clear();
        let body = loop {
            if let Some(body) = body(&self.bytes)? {
                break body;
            }
            ensure!(
                self.bytes.len() < ANSWER_BYTES_MAX,
                "an answer without an end"
            );
            let had = self.bytes.len();
            self.bytes.resize(ANSWER_BYTES_MAX, 0);
            let room = self.bytes.get_mut(had..).unwrap_or_default();
            let len = self.stream.read(room).context("waiting for an answer")?;
            self.bytes.truncate(had + len);
            ensure!(len > 0, "the node has closed the connection");
        };
        serde_json::from_slice(body).context("an answer that says no region")
    }

    fn question(&self, client: IpAddr) -> String {
        let (host, body) = (&self.host, format!(r#"{{"client":"{client}"}}"#));
        let len = body.len();
        format!(
            "POST /v1/steer HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len}\r\n\r\n{body}"
        )
    }
}

/// The body of an answer that is whole; an answer that is not 200 is an error.
fn body(bytes: &[u8]) -> anyhow::Result<Option<&[u8]>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let (head, rest) = bytes.split_at(end + 4);
    let head = std::str::from_utf8(head).context("a head of other than text")?;
    if !head.starts_with("HTTP/1.1 200 ") {
        bail!("answered with {}", head.lines().next().unwrap_or_default());
    }
    let len = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let len = len.context("an answer without a length")?;
    Ok(rest.get(..len))
}

fn since(start: Instant) -> Duration {
    clock::now().saturating_duration_since(start)
}

/// As few as a region's transceivers that have an offer at the same moment.
const ASKERS: usize = 4;
/// Two for each region.
const POPS: u8 = 12;
const SILENCE_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_when_it_is_whole() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        for len in 0..answer.len() {
            assert_eq!(body(&answer[..len]).unwrap(), None, "{len}");
        }
        assert_eq!(body(answer).unwrap(), Some(&b"{}"[..]));
        assert!(body(b"HTTP/1.1 422 Unprocessable\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(body(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn what_is_told_of_rounds_is_their_median_and_wrong_answers_add_up() {
        let round = |us, wrong| {
            let mut found = Found {
                answered: 100,
                wrong,
                elapsed: Duration::from_secs(1),
                ..Found::default()
            };
            (0..100).for_each(|_| found.note(Duration::from_micros(us)));
            found
        };
        let steer = Steer::new(&[round(900, 0), round(200, 2), round(400, 1)]);
        assert_eq!((steer.p50_ms, steer.p99_ms), (0.4, 0.4));
        assert_eq!((steer.answered, steer.wrong), (300, 3));
        assert!(text(&steer).contains("p99 0.40 ms, 3 wrong"));
    }
}
