//! One thread that is all clients and the far end at once: sends at a given rate, returns what comes out of the relay,
//! and times what comes back. It never sleeps: what a round trip takes is the relay's and the kernel's.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use runtime::clock;
use runtime::udp::{BindOptions, RecvBatch, SendBatch, UdpSocket};

use super::crowd::Crowd;
use super::dialect::{Dialect, Mark};
use crate::bench::far_end::FarEnd;

/// Sends what arrives back to where it came from.
pub(crate) trait Echo {
    /// One batch, without waiting.
    fn turn(&mut self) -> anyhow::Result<()>;
}

impl Echo for FarEnd {
    fn turn(&mut self) -> anyhow::Result<()> {
        self.echo().map(|_| ())
    }
}

/// An echo of plain datagrams.
#[derive(Debug)]
pub(crate) struct PlainEcho {
    socket: UdpSocket,
    batch: RecvBatch,
    back: SendBatch,
}

impl PlainEcho {
    /// At this address, on a port the kernel chooses.
    pub(crate) fn bind(address: Ipv4Addr) -> anyhow::Result<Self> {
        let options = BindOptions {
            recv_buffer_bytes: ECHO_BUFFER_BYTES,
            send_buffer_bytes: ECHO_BUFFER_BYTES,
            ..BindOptions::default()
        };
        Ok(Self {
            socket: UdpSocket::bind((address, 0).into(), &options).context("the echo")?,
            batch: RecvBatch::new(SLOTS, PACKET_LEN_MAX),
            back: SendBatch::new(SLOTS, PACKET_LEN_MAX),
        })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.socket.local_addr()
    }
}

impl Echo for PlainEcho {
    fn turn(&mut self) -> anyhow::Result<()> {
        self.batch.recv(&self.socket).context("the echo")?;
        let mut refused = false;
        for (from, packet) in self.batch.iter() {
            refused |= !self.back.push(from, packet);
        }
        ensure!(!refused, "the echo's batches are of one size");
        if !self.back.is_empty() {
            // What the kernel does not take does not come back, and shows as loss.
            self.back.flush(&self.socket);
        }
        Ok(())
    }
}

/// Clients, a relay somewhere, and the far end.
pub(crate) struct Load<'a> {
    crowd: Crowd,
    dialect: Dialect,
    echo: &'a mut dyn Echo,
    epoch: Instant,
    holds: u16,
    next: u32,
    packet: Vec<u8>,
    trips_us: Vec<u32>,
}

/// What came of one rate.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// Packets that were to be sent.
    pub(crate) due: u64,
    pub(crate) sent: u64,
    pub(crate) back: u64,
    /// Median round trip, in microseconds.
    pub(crate) p50_us: u32,
    pub(crate) p99_us: u32,
}

impl Hold {
    /// Whether the rate was carried.
    pub(crate) fn is_carried(&self) -> bool {
        let lost = self.sent.saturating_sub(self.back);
        self.is_offered() && lost * LOST_PER_MAX <= self.sent && self.p50_us <= P50_US_MAX
    }

    /// Whether this thread sent what it was to send; if not, it is the limit.
    pub(crate) const fn is_offered(&self) -> bool {
        self.sent * 100 >= self.due * OFFERED_PERCENT_MIN
    }
}

impl<'a> Load<'a> {
    /// Opens the clients' socket.
    pub(crate) fn open(
        clients: u32,
        to: SocketAddr,
        dialect: Dialect,
        echo: &'a mut dyn Echo,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            crowd: Crowd::open(clients, to)?,
            dialect,
            echo,
            epoch: clock::now(),
            holds: 0,
            next: 0,
            packet: Vec::with_capacity(PACKET_LEN_MAX),
            trips_us: Vec::new(),
        })
    }

    /// Has every client say what its relay wants to hear, and then send a packet until one has come back.
    pub(crate) fn join(&mut self) -> anyhow::Result<()> {
        self.join_range(0, self.crowd.count())?;
        let all: Vec<_> = (0..self.crowd.count()).collect();
        all.chunks(JOINING_MAX)
            .try_for_each(|some| self.join_stage(None, some))
    }

    /// As [`Self::join`] for some of the clients, without the packet.
    pub(crate) fn join_range(&mut self, first: u32, count: u32) -> anyhow::Result<()> {
        let all: Vec<_> = (first..first + count).collect();
        for some in all.chunks(JOINING_MAX) {
            for stage in 0..self.dialect.stages() {
                self.join_stage(Some(stage), some)?;
            }
        }
        Ok(())
    }

    /// `stage` is a request's, `None` a packet of media.
    fn join_stage(&mut self, stage: Option<u8>, clients: &[u32]) -> anyhow::Result<()> {
        let mut waiting = clients.to_vec();
        let end = clock::now() + JOIN_MAX;
        let mut again_at = clock::now();
        while !waiting.is_empty() {
            let now = clock::now();
            ensure!(
                now < end,
                "{} of {} clients get no answer to {}",
                waiting.len(),
                clients.len(),
                stage.map_or_else(|| "media".to_owned(), |stage| format!("request {stage}"))
            );
            if now >= again_at {
                again_at = now + JOIN_INTERVAL;
                for client in &waiting {
                    self.ask(stage, *client);
                }
                self.crowd.flush();
            }
            self.echo.turn()?;
            let dialect = &self.dialect;
            let first = clients.first().copied().unwrap_or_default();
            let mut answered = vec![false; clients.len()];
            self.crowd.receive(|bytes| {
                let client = match stage {
                    Some(stage) => dialect.granted(stage, bytes),
                    None => dialect.read(bytes).map(|mark| mark.client),
                };
                let index = client.and_then(|client| client.checked_sub(first));
                let index = index.and_then(|index| usize::try_from(index).ok());
                if let Some(slot) = index.and_then(|index| answered.get_mut(index)) {
                    *slot = true;
                }
            })?;
            waiting.retain(|client| {
                let index = usize::try_from(client - first).unwrap_or(usize::MAX);
                !answered.get(index).is_some_and(|answered| *answered)
            });
        }
        Ok(())
    }

    fn ask(&mut self, stage: Option<u8>, client: u32) {
        if let Some(stage) = stage {
            let request = self.dialect.request(stage, client);
            self.crowd.send(client, &request);
        } else {
            self.send(client, 0);
        }
    }

    fn send(&mut self, client: u32, stamp: u64) {
        let mark = Mark {
            hold: self.holds,
            client,
            stamp,
        };
        self.dialect.write(mark, &mut self.packet);
        self.crowd.send(client, &self.packet);
    }

    /// All clients in turn, `rate` packets a second in all.
    pub(crate) fn hold(&mut self, rate: u32, length: Duration) -> anyhow::Result<Hold> {
        self.settle()?;
        self.holds = self.holds.wrapping_add(1);
        self.trips_us.clear();
        let mut hold = Hold::default();
        let start = clock::now();
        loop {
            let now = clock::now();
            let elapsed = now - start;
            if elapsed >= length {
                break;
            }
            hold.due = packets(rate, elapsed);
            for _ in 0..hold.due.saturating_sub(hold.sent).min(BURST_MAX) {
                self.send(self.next, ns(now - self.epoch));
                self.next = (self.next + 1) % self.crowd.count();
                hold.sent += 1;
            }
            self.crowd.flush();
            self.echo.turn()?;
            self.take()?;
        }
        let end = clock::now() + LATE_MAX;
        while self.back() < hold.sent && clock::now() < end {
            self.echo.turn()?;
            self.take()?;
        }
        hold.back = self.back();
        hold.p50_us = quantile(&mut self.trips_us, 50);
        hold.p99_us = quantile(&mut self.trips_us, 99);
        Ok(hold)
    }

    fn back(&self) -> u64 {
        u64::try_from(self.trips_us.len()).unwrap_or_default()
    }

    fn take(&mut self) -> anyhow::Result<bool> {
        let now = ns(clock::now() - self.epoch);
        let (dialect, hold, trips) = (&self.dialect, self.holds, &mut self.trips_us);
        self.crowd.receive(|bytes| {
            let mark = dialect.read(bytes).filter(|mark| mark.hold == hold);
            if let Some(mark) = mark {
                let trip_us = now.saturating_sub(mark.stamp) / 1000;
                trips.push(u32::try_from(trip_us).unwrap_or(u32::MAX));
            }
        })
    }

    /// Lets what an earlier hold left behind run out.
    fn settle(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + SETTLE;
        while clock::now() < end {
            self.echo.turn()?;
            self.take()?;
        }
        Ok(())
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn packets(rate: u32, elapsed: Duration) -> u64 {
    ns(elapsed) * u64::from(rate) / 1_000_000_000
}

fn quantile(values: &mut [u32], percent: usize) -> u32 {
    let index = (values.len() * percent / 100).min(values.len().saturating_sub(1));
    if values.is_empty() {
        return u32::MAX;
    }
    *values.select_nth_unstable(index).1
}

/// Packets a call of the echo.
const SLOTS: usize = 64;
const PACKET_LEN_MAX: usize = 512;
const ECHO_BUFFER_BYTES: usize = 32 << 20;
/// One packet in so many may be lost.
const LOST_PER_MAX: u64 = 10_000;
/// More than that at the median is a queue that stands.
const P50_US_MAX: u32 = 5_000;
const OFFERED_PERCENT_MIN: u64 = 98;
/// Packets sent before what came back is looked at.
const BURST_MAX: u64 = 64;
/// What is not back so long after the last packet is lost.
const LATE_MAX: Duration = Duration::from_millis(100);
const SETTLE: Duration = Duration::from_millis(30);
/// Clients that join at the same time: well within what a receive buffer holds.
const JOINING_MAX: usize = 128;
/// How long one such group may take.
const JOIN_MAX: Duration = Duration::from_secs(10);
const JOIN_INTERVAL: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_to_the_echo_comes_back() {
        let mut echo = PlainEcho::bind(Ipv4Addr::LOCALHOST).unwrap();
        let to = echo.address();
        let mut load = Load::open(300, to, Dialect::Plain, &mut echo).unwrap();
        load.join().unwrap();
        let hold = load.hold(2_000, Duration::from_millis(200)).unwrap();
        assert!(hold.due >= 300 && hold.back > 0, "{hold:?}");
        assert_eq!(hold.back, hold.sent);
    }

    #[test]
    fn a_relay_that_loses_or_queues_does_not_carry_the_rate() {
        let carried = Hold {
            due: 10_000,
            sent: 10_000,
            back: 9_999,
            p50_us: 5_000,
            p99_us: 0,
        };
        assert!(carried.is_carried());
        for (sent, back, p50_us) in [
            (10_000, 9_998, 1),
            (10_000, 10_000, 5_001),
            (9_799, 9_799, 1),
        ] {
            let hold = Hold {
                sent,
                back,
                p50_us,
                ..carried
            };
            assert!(!hold.is_carried(), "{hold:?}");
        }
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile(&mut [], 50), u32::MAX);
        assert_eq!(quantile(&mut [3, 1, 2], 50), 2);
        assert_eq!(quantile(&mut (0..=100).collect::<Vec<_>>(), 99), 99);
    }
}
