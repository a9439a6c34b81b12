//! Calls without WebRTC: clients with committed flows that send numbered packets at an even pace and count the echoes.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::clock;
use runtime::poll::Poller;
use runtime::udp::{BindOptions, RecvBatch, SourceBatch, UdpSocket};

use super::echo::GOODBYE;
use super::hints::Hints;
use super::pace::Pace;
use super::talk::{Figures, Talk};
use crate::raw::{Request, is_success};

/// Packets sent or received with one call.
const SLOTS: usize = 64;
/// All echoes come to one socket, and this process has other things to do.
const BUFFER_BYTES: usize = 32 << 20;
/// How long this thread waits for packets before it looks what is due.
const WAIT_MAX: Duration = Duration::from_micros(500);
/// Clients that check at the same time.
const COMMIT_AT_ONCE: usize = 250;
/// How long a flow may take to be committed, and when its check is repeated.
const COMMIT_MAX: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Echoes are waited for so long after the last packet was sent.
const LINGER: Duration = Duration::from_secs(1);
/// First and last free third byte of a client's address `127.NET.x.y`.
const CLIENTS_FROM: u8 = 64;

/// See the module head. Each client has a source address of its own; they share one socket and its port.
pub struct Calls {
    socket: UdpSocket,
    ingress: SocketAddr,
    net: u8,
    clients: Vec<Client>,
    /// Clients there ever were.
    made: usize,
    out: SourceBatch,
    batch: RecvBatch,
    poller: Poller,
}

struct Client {
    number: usize,
    source: Ipv4Addr,
    check: Vec<u8>,
    /// Its flow is committed.
    live: bool,
}

impl Client {
    fn new(net: u8, number: usize, hints: &mut Hints) -> Self {
        let check = Request::check(transaction(number), hints.seal().as_bytes());
        Self {
            number,
            source: source(net, number),
            // Nobody on the way knows the password.
            check: check.sign(b"password").bytes().to_vec(),
            live: false,
        }
    }
}

/// Clients that go and others that come in their place.
struct Churn<'a> {
    pace: Pace,
    hints: &'a mut Hints,
    /// Clients that are not answered yet.
    waiting: Vec<usize>,
    check_at: Instant,
}

impl Calls {
    /// `count` clients of `ingress`, on addresses of its network 127.x. None has a flow yet.
    ///
    /// # Errors
    /// The ingress is not on loopback, or there is no socket.
    pub fn open(count: usize, ingress: SocketAddr, hints: &mut Hints) -> anyhow::Result<Self> {
        let SocketAddr::V4(v4) = ingress else {
            anyhow::bail!("calls come from IPv4 addresses");
        };
        let [_, net, _, _] = v4.ip().octets();
        let options = BindOptions {
            recv_buffer_bytes: BUFFER_BYTES,
            send_buffer_bytes: BUFFER_BYTES,
            ..BindOptions::default()
        };
        let clients = (0..count).map(|number| Client::new(net, number, hints));
        Ok(Self {
            socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &options)?,
            ingress,
            net,
            clients: clients.collect(),
            made: count,
            out: SourceBatch::new(SLOTS, 256),
            batch: RecvBatch::new(SLOTS, 2048),
            poller: Poller::new(),
        })
    }

    /// Has every client check until it is answered, so that its flow is committed. Somebody plays the far end.
    ///
    /// # Errors
    /// A client is not answered in time.
    pub fn commit(&mut self) -> anyhow::Result<()> {
        let all: Vec<usize> = (0..self.clients.len()).collect();
        all.chunks(COMMIT_AT_ONCE)
            .try_for_each(|some| self.commit_some(some.to_vec()))
    }

    fn commit_some(&mut self, mut waiting: Vec<usize>) -> anyhow::Result<()> {
        let end = clock::now() + COMMIT_MAX;
        let mut check_at = clock::now();
        let mut talk = Talk::new(check_at);
        while !waiting.is_empty() {
            let now = clock::now();
            anyhow::ensure!(now < end, "{} clients are not answered", waiting.len());
            if now >= check_at {
                check_at = now + CHECK_INTERVAL;
                self.check(&waiting);
            }
            self.wait()?;
            while self.receive(&mut talk, &mut waiting)? {}
        }
        Ok(())
    }

    /// Every client sends `per_s` packets a second until `over` says so, and for a moment echoes are waited for.
    ///
    /// # Errors
    /// The socket's.
    pub fn talk(
        &mut self,
        per_s: u64,
        over: impl FnMut(Instant) -> bool,
    ) -> anyhow::Result<Figures> {
        let packets_per_s = per_s * self.clients.len() as u64;
        self.run(packets_per_s, None, over)
    }

    /// All together send `packets_per_s`, as [`Self::talk`].
    ///
    /// # Errors
    /// The socket's.
    pub fn talk_at(
        &mut self,
        packets_per_s: u64,
        over: impl FnMut(Instant) -> bool,
    ) -> anyhow::Result<Figures> {
        self.run(packets_per_s, None, over)
    }

    /// All together send `packets_per_s`, and `churn_per_s` times a second the client that was there longest says goodbye and
    /// another comes in its place.
    ///
    /// # Errors
    /// The socket's.
    pub fn talk_and_churn(
        &mut self,
        packets_per_s: u64,
        churn_per_s: u64,
        hints: &mut Hints,
        over: impl FnMut(Instant) -> bool,
    ) -> anyhow::Result<Figures> {
        let now = clock::now();
        let churn = Churn {
            pace: Pace::new(churn_per_s, now),
            hints,
            waiting: Vec::new(),
            check_at: now,
        };
        self.run(packets_per_s, Some(churn), over)
    }

    fn run(
        &mut self,
        packets_per_s: u64,
        mut churn: Option<Churn<'_>>,
        mut over: impl FnMut(Instant) -> bool,
    ) -> anyhow::Result<Figures> {
        let mut talk = Talk::new(clock::now());
        let mut pace = Pace::new(packets_per_s, talk.began);
        let overflows = self.socket.recv_drops();
        let (mut linger_until, mut nobody) = (None, Vec::new());
        loop {
            let now = clock::now();
            match linger_until {
                None if over(now) => linger_until = Some(now + LINGER),
                None => {
                    self.send(pace.take(now), &mut talk, now);
                    if let Some(churn) = &mut churn {
                        self.churn(churn, now);
                    }
                }
                Some(end) if now > end || talk.is_complete() => break,
                Some(_) => {}
            }
            self.wait()?;
            let waiting = churn
                .as_mut()
                .map_or(&mut nobody, |churn| &mut churn.waiting);
            while self.receive(&mut talk, waiting)? {}
        }
        let overflows = self.socket.recv_drops() - overflows;
        Ok(talk.figures(overflows))
    }

    /// Clients come and go as many as are due, and those that are not answered check again.
    fn churn(&mut self, churn: &mut Churn<'_>, now: Instant) {
        for _ in 0..churn.pace.take(now) {
            let slot = self.made % self.clients.len().max(1);
            let Some(client) = self.clients.get_mut(slot).filter(|client| client.live) else {
                // It has hardly come: the next one in turn waits for it.
                break;
            };
            let gone = client.source;
            *client = Client::new(self.net, self.made, churn.hints);
            self.made += 1;
            self.push(gone, GOODBYE.to_vec());
            self.check(&[slot]);
            churn.waiting.push(slot);
        }
        if now >= churn.check_at {
            churn.check_at = now + CHECK_INTERVAL;
            self.check(&churn.waiting);
        }
    }

    fn send(&mut self, due: u64, talk: &mut Talk, now: Instant) {
        for _ in 0..due {
            let packet = talk.packet(now);
            let slot = usize::try_from(talk.sent).unwrap_or(0) % self.clients.len().max(1);
            let Some(client) = self.clients.get(slot) else {
                return;
            };
            if !client.live {
                talk.skip();
                continue;
            }
            let source = client.source;
            if !self.out.push(source, self.ingress, &packet) {
                self.flush(talk);
                // An empty batch takes any packet of this length.
                let _ = self.out.push(source, self.ingress, &packet);
            }
            talk.sent += 1;
        }
        self.flush(talk);
    }

    /// Sends the checks of some.
    fn check(&mut self, slots: &[usize]) {
        for slot in slots {
            if let Some(client) = self.clients.get(*slot) {
                self.push(client.source, client.check.clone());
            }
        }
        self.out.flush(&self.socket);
    }

    fn push(&mut self, source: Ipv4Addr, packet: Vec<u8>) {
        if !self.out.push(source, self.ingress, &packet) {
            self.out.flush(&self.socket);
            let _ = self.out.push(source, self.ingress, &packet);
        }
    }

    fn flush(&mut self, talk: &mut Talk) {
        let report = self.out.flush(&self.socket);
        talk.refused += (report.failed + report.would_block) as u64;
    }

    /// Takes echoes, and answers to the checks of those who wait. Whether more may be there.
    fn receive(&mut self, talk: &mut Talk, waiting: &mut Vec<usize>) -> anyhow::Result<bool> {
        let filled = self.batch.recv(&self.socket).context("receiving echoes")?;
        let now = clock::now();
        for (_, packet) in self.batch.iter() {
            if !packet.starts_with(&[1, 1]) {
                talk.take(packet, now);
                continue;
            }
            // An answer; one that came before is nothing new.
            let clients = &mut self.clients;
            waiting.retain(|slot| {
                let Some(client) = clients.get_mut(*slot) else {
                    return false;
                };
                client.live = is_success(packet, transaction(client.number));
                !client.live
            });
        }
        Ok(filled == SLOTS)
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let fds = [self.socket.as_fd()];
        self.poller.wait(&fds, Some(WAIT_MAX)).context("waiting")?;
        Ok(())
    }
}

fn source(net: u8, index: usize) -> Ipv4Addr {
    let [.., high, low] = index.to_be_bytes();
    Ipv4Addr::new(127, net, CLIENTS_FROM + high % CLIENTS_FROM, low)
}

fn transaction(index: usize) -> [u8; 12] {
    let [a, b, c, d, e, f, g, h] = index.to_be_bytes();
    [b'c', b'a', b'l', b'l', a, b, c, d, e, f, g, h]
}
