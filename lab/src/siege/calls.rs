//! Calls without WebRTC: clients with committed flows that send numbered packets at an even pace and count the echoes.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Context;
use runtime::clock;
use runtime::poll::Poller;
use runtime::udp::{BindOptions, RecvBatch, SourceBatch, UdpSocket};

use super::hints::Hints;
use super::pace::Pace;
use crate::raw::{Request, is_success};

/// Bytes of a packet: 20 ms of Opus with its SRTP around it, roughly.
const PACKET_LEN: usize = 160;
/// Packets sent or received with one call.
const SLOTS: usize = 64;
/// All echoes come to one socket, and this process has other things to do.
const BUFFER_BYTES: usize = 32 << 20;
/// How long this thread waits for packets before it looks what is due.
const WAIT_MAX: Duration = Duration::from_micros(500);
/// How long a flow may take to be committed, and when its check is repeated.
const COMMIT_MAX: Duration = Duration::from_secs(10);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// Echoes are waited for so long after the last packet was sent.
const LINGER: Duration = Duration::from_secs(1);
/// Round trips of which percentiles are taken at most.
const ROUND_TRIPS_MAX: usize = 1 << 20;
/// First and last free third byte of a client's address `127.NET.x.y`.
const CLIENTS_FROM: u8 = 64;

/// See the module head. Each client has a source address of its own; they share one socket and its port.
pub struct Calls {
    socket: UdpSocket,
    ingress: SocketAddr,
    sources: Vec<Ipv4Addr>,
    checks: Vec<Vec<u8>>,
    out: SourceBatch,
    batch: RecvBatch,
    poller: Poller,
}

/// What became of the packets of a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Packets sent.
    pub sent: u64,
    /// Packets whose echo came.
    pub received: u64,
    /// Echoes that came twice, or that nobody had sent.
    pub strange: u64,
    /// Echoes that the kernel dropped in front of the clients: the lab's loss, not the network's.
    pub overflows: u64,
    /// Half of the echoes came within this.
    pub p50: Duration,
    /// All but a hundredth came within this.
    pub p99: Duration,
}

impl Figures {
    /// Packets whose echo did not come.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.sent - self.received
    }
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
        let sources: Vec<_> = (0..count).map(|index| source(net, index)).collect();
        let checks = (0..count).map(|index| {
            let check = Request::check(transaction(index), hints.seal().as_bytes());
            // Nobody on the way knows the password.
            check.sign(b"password").bytes().to_vec()
        });
        Ok(Self {
            socket: UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0).into(), &options)?,
            ingress,
            checks: checks.collect(),
            sources,
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
        let end = clock::now() + COMMIT_MAX;
        let mut waiting: Vec<usize> = (0..self.sources.len()).collect();
        let mut check_at = clock::now();
        while !waiting.is_empty() {
            let now = clock::now();
            anyhow::ensure!(now < end, "{} clients are not answered", waiting.len());
            if now >= check_at {
                check_at = now + CHECK_INTERVAL;
                for index in &waiting {
                    self.push_check(*index);
                }
                self.out.flush(&self.socket);
            }
            self.wait()?;
            self.batch.recv(&self.socket)?;
            let answers: Vec<_> = self.batch.iter().map(|(_, packet)| packet).collect();
            waiting.retain(|index| {
                let own = |packet: &&[u8]| is_success(packet, transaction(*index));
                !answers.iter().any(own)
            });
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
        mut over: impl FnMut(Instant) -> bool,
    ) -> anyhow::Result<Figures> {
        let clients = self.sources.len() as u64;
        let mut talk = Talk::new(clock::now());
        let mut pace = Pace::new(per_s * clients, talk.began);
        let overflows = self.socket.recv_drops();
        let mut linger_until = None;
        loop {
            let now = clock::now();
            match linger_until {
                None if over(now) => linger_until = Some(now + LINGER),
                None => self.send(pace.take(now), &mut talk, now),
                Some(end) if now > end || talk.is_complete() => break,
                Some(_) => {}
            }
            self.wait()?;
            while self.receive(&mut talk)? {}
        }
        let overflows = self.socket.recv_drops() - overflows;
        Ok(talk.figures(overflows))
    }

    fn send(&mut self, due: u64, talk: &mut Talk, now: Instant) {
        for _ in 0..due {
            let packet = talk.packet(now);
            let client = usize::try_from(talk.sent).unwrap_or(0) % self.sources.len().max(1);
            let Some(source) = self.sources.get(client).copied() else {
                return;
            };
            if !self.out.push(source, self.ingress, &packet) {
                self.flush(talk);
                // An empty batch takes any packet of this length.
                let _ = self.out.push(source, self.ingress, &packet);
            }
            talk.sent += 1;
        }
        self.flush(talk);
    }

    fn flush(&mut self, talk: &mut Talk) {
        let report = self.out.flush(&self.socket);
        talk.refused += (report.failed + report.would_block) as u64;
    }

    /// Whether more may be waiting.
    fn receive(&mut self, talk: &mut Talk) -> anyhow::Result<bool> {
        let filled = self.batch.recv(&self.socket).context("receiving echoes")?;
        let now = clock::now();
        for (_, packet) in self.batch.iter() {
            talk.take(packet, now);
        }
        Ok(filled == SLOTS)
    }

    fn push_check(&mut self, index: usize) {
        let (Some(source), Some(check)) = (self.sources.get(index), self.checks.get(index)) else {
            return;
        };
        if !self.out.push(*source, self.ingress, check) {
            self.out.flush(&self.socket);
            let _ = self.out.push(*source, self.ingress, check);
        }
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let fds = [self.socket.as_fd()];
        self.poller.wait(&fds, Some(WAIT_MAX)).context("waiting")?;
        Ok(())
    }
}

/// Packets under way.
///
/// ```text
/// 0 0x80 | 1 zero | 8 number u64 | 16 sent, µs after the beginning, u64 | 24 filler
/// ```
struct Talk {
    began: Instant,
    sent: u64,
    refused: u64,
    received: u64,
    strange: u64,
    /// A bit for each number whose echo came.
    seen: Vec<u64>,
    round_trips_us: Vec<u32>,
}

impl Talk {
    const fn new(began: Instant) -> Self {
        Self {
            began,
            sent: 0,
            refused: 0,
            received: 0,
            strange: 0,
            seen: Vec::new(),
            round_trips_us: Vec::new(),
        }
    }

    fn packet(&self, now: Instant) -> [u8; PACKET_LEN] {
        let mut packet = [0x55; PACKET_LEN];
        let sent_us = u64::try_from((now - self.began).as_micros()).unwrap_or(u64::MAX);
        let head = [
            0x8000_0000_0000_0000_u64.to_be_bytes(),
            self.sent.to_be_bytes(),
            sent_us.to_be_bytes(),
        ]
        .concat();
        for (slot, byte) in packet.iter_mut().zip(head) {
            *slot = byte;
        }
        packet
    }

    fn take(&mut self, packet: &[u8], now: Instant) {
        let number = |at: usize| {
            let bytes = packet.get(at..)?.first_chunk::<8>()?;
            Some(u64::from_be_bytes(*bytes))
        };
        let (Some(index), Some(sent_us)) = (number(8), number(16)) else {
            self.strange += 1;
            return;
        };
        if packet.len() != PACKET_LEN || index >= self.sent || !self.mark(index) {
            self.strange += 1;
            return;
        }
        self.received += 1;
        if self.round_trips_us.len() < ROUND_TRIPS_MAX {
            let now_us = (now - self.began).as_micros();
            let took_us = now_us.saturating_sub(sent_us.into());
            self.round_trips_us
                .push(u32::try_from(took_us).unwrap_or(u32::MAX));
        }
    }

    /// Whether it is the first echo of this number.
    fn mark(&mut self, index: u64) -> bool {
        let word = usize::try_from(index / 64).unwrap_or(usize::MAX);
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let bit = 1_u64 << (index % 64);
        let Some(bits) = self.seen.get_mut(word) else {
            return false;
        };
        let first = *bits & bit == 0;
        *bits |= bit;
        first
    }

    const fn is_complete(&self) -> bool {
        self.received + self.refused >= self.sent
    }

    fn figures(mut self, overflows: u64) -> Figures {
        self.round_trips_us.sort_unstable();
        let at = |hundredths: usize| {
            let index = self.round_trips_us.len() * hundredths / 100;
            let us = self.round_trips_us.get(index).copied().unwrap_or(0);
            Duration::from_micros(us.into())
        };
        Figures {
            sent: self.sent - self.refused,
            received: self.received,
            strange: self.strange,
            overflows,
            p50: at(50),
            p99: at(99),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_counted_once() {
        let now = clock::now();
        let mut talk = Talk::new(now);
        let packets: Vec<_> = (0..200)
            .map(|_| {
                let packet = talk.packet(now);
                talk.sent += 1;
                packet
            })
            .collect();
        let later = now + Duration::from_millis(3);
        for packet in packets.iter().rev().chain(&packets[..5]) {
            talk.take(packet, later);
        }
        talk.take(b"short", later);
        let mut unsent = packets[0];
        unsent[8] = 0xff;
        talk.take(&unsent, later);
        assert!(talk.is_complete());
        let figures = talk.figures(0);
        assert_eq!(
            (figures.received, figures.lost(), figures.strange),
            (200, 0, 7)
        );
        assert_eq!(
            (figures.p50, figures.p99),
            (Duration::from_millis(3), Duration::from_millis(3))
        );
    }
}
