//! Saturation: as many packets as a path carries. A window of packets is kept on the way in each direction, so that
//! forwarders always find a full batch and nothing overflows; what counts is processor time of the forwarders for each
//! packet that arrived whole.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use runtime::clock;

use super::packet;
use super::path::Path;

/// Packets on the way in one direction at most.
const WINDOW: u64 = 1024;
/// Packets that clients send in one turn at most, before what has arrived is taken.
const TURN: u64 = 32;
/// Packets that the far end sends in one turn, always: a server with many calls has that many at hand when its clock ticks.
const TURN_DOWN: u64 = 64;
/// Without an arrival for this long, what is on the way is lost.
const LOST_AFTER: Duration = Duration::from_millis(20);
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_millis(200);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Load {
    /// Which ways.
    pub direction: Direction,
    /// Bytes of every packet.
    pub packet_len: usize,
    /// Packets that a client sends at a time.
    pub burst: usize,
}

/// Which ways packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From clients to the far end.
    Up,
    /// From the far end to clients.
    Down,
    /// Both, as many each way as the path carries.
    Both,
}

impl Direction {
    const fn is_up(self) -> bool {
        matches!(self, Self::Up | Self::Both)
    }

    const fn is_down(self) -> bool {
        matches!(self, Self::Down | Self::Both)
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Packets that reached the far end whole.
    pub up: u64,
    /// Packets that reached their client whole.
    pub down: u64,
    /// Share of packets that did not arrive, of the direction that lost more; warm-up included.
    pub lost: f64,
    /// How long it was measured.
    pub elapsed: Duration,
    /// Processor time of each hop, from the client's side on.
    pub time: Vec<Duration>,
}

impl Sample {
    /// Processor time of all hops for one packet, in nanoseconds.
    #[must_use]
    pub fn ns_per_packet(&self) -> f64 {
        let total: Duration = self.time.iter().sum();
        total.as_nanos() as f64 / (self.up + self.down).max(1) as f64
    }

    /// Share of the forwarders' processor that they used: well under 1 means that the ends were the bottleneck.
    #[must_use]
    pub fn busy(&self) -> f64 {
        let total: Duration = self.time.iter().sum();
        total.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}

/// Drives a path for `measured`, after a warm-up.
///
/// # Errors
/// A socket's, or a forwarder has ended.
pub fn saturate(path: &mut Path, load: Load, measured: Duration) -> anyhow::Result<Sample> {
    let mut ends = Ends::new(path, load);
    ends.drive(WARM_UP)?;
    let (time, started) = (ends.path.time()?, clock::now());
    let (up, down) = (ends.up.clone(), ends.down.clone());
    ends.drive(measured)?;
    let elapsed = clock::now() - started;
    let time_after = ends.path.time()?;
    let (up_after, down_after) = (ends.up.received, ends.down.received);
    ends.settle()?;
    Ok(Sample {
        up: up_after - up.received,
        down: down_after - down.received,
        lost: ends.up.lost_share().max(ends.down.lost_share()),
        elapsed,
        time: time_after.iter().zip(&time).map(|(a, b)| *a - *b).collect(),
    })
}

struct Ends<'a> {
    path: &'a mut Path,
    load: Load,
    up: Window,
    down: Window,
    burst: Vec<u8>,
    next_up: usize,
    next_down: usize,
    /// Clients that packets are on the way to, in order.
    awaited: VecDeque<usize>,
    /// Packets of each client that were taken together with one before them.
    early: Vec<u64>,
}

impl<'a> Ends<'a> {
    fn new(path: &'a mut Path, load: Load) -> Self {
        let mut burst = vec![0; load.packet_len * load.burst];
        for slot in burst.chunks_mut(load.packet_len) {
            packet::write(slot, 0, 0);
        }
        Self {
            early: vec![0; path.clients.len()],
            path,
            load,
            up: Window::new(),
            down: Window::new(),
            burst,
            next_up: 0,
            next_down: 0,
            awaited: VecDeque::with_capacity(usize::try_from(WINDOW).unwrap_or_default()),
        }
    }

    fn drive(&mut self, duration: Duration) -> anyhow::Result<()> {
        let end = clock::now() + duration;
        loop {
            let now = clock::now();
            if now >= end {
                return Ok(());
            }
            if self.load.direction.is_up() {
                self.send_up(now);
            }
            if self.load.direction.is_down() {
                self.send_down(now);
            }
            self.receive()?;
        }
    }

    fn send_up(&mut self, now: Instant) {
        let burst = u64::try_from(self.load.burst).unwrap_or(1);
        for _ in 0..self.up.room(now).min(TURN) / burst {
            let client = u32::try_from(self.next_up).unwrap_or_default();
            for slot in self.burst.chunks_mut(self.load.packet_len) {
                packet::mark(slot, client, 0);
            }
            let len = self.load.packet_len;
            self.path.clients.send(self.next_up, &self.burst, len);
            self.up.sent += burst;
            self.next_up = (self.next_up + 1) % self.path.clients.len();
        }
    }

    /// One packet to each client in turn: a voice server has many clients, and nothing but one packet for each at a time.
    fn send_down(&mut self, now: Instant) {
        let room = self.down.room(now);
        if room < TURN_DOWN {
            return;
        }
        if room == WINDOW {
            self.awaited.clear();
            self.early.fill(0);
        }
        for _ in 0..TURN_DOWN {
            let client = self.next_down;
            let Some(packet) = self.burst.get_mut(..self.load.packet_len) else {
                return;
            };
            packet::mark(packet, u32::try_from(client).unwrap_or_default(), 0);
            self.path.send_far(client, packet);
            self.awaited.push_back(client);
            self.down.sent += 1;
            self.next_down = (client + 1) % self.path.clients.len();
        }
        self.path.flush_far();
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let len = self.load.packet_len;
        let mut arrived = 0;
        while self.path.receive_far(len, |_| arrived += 1)? {}
        self.up.arrived(arrived);
        let mut arrived = 0;
        while let Some(client) = self.awaited.front().copied() {
            let Some(early) = self.early.get_mut(client) else {
                break;
            };
            if *early > 0 {
                *early -= 1;
            } else {
                let mut taken: u64 = 0;
                self.path.clients.receive(client, |packet| {
                    taken += u64::from(packet::read(packet, len).is_some());
                })?;
                if taken == 0 {
                    break;
                }
                arrived += taken;
                *early = taken - 1;
            }
            self.awaited.pop_front();
        }
        self.down.arrived(arrived);
        Ok(())
    }

    /// Takes what is still on the way, so that the next measurement does not find it.
    fn settle(&mut self) -> anyhow::Result<()> {
        let end = clock::now() + LOST_AFTER;
        while clock::now() < end {
            self.receive()?;
        }
        self.path.clients.discard()
    }
}

/// Packets on the way in one direction.
#[derive(Clone)]
struct Window {
    sent: u64,
    received: u64,
    /// Of those sent and not received, how many no longer count as on the way.
    given_up: u64,
    last_arrival: Instant,
}

impl Window {
    fn new() -> Self {
        Self {
            sent: 0,
            received: 0,
            given_up: 0,
            last_arrival: clock::now(),
        }
    }

    /// How many may be sent.
    fn room(&mut self, now: Instant) -> u64 {
        if now - self.last_arrival > LOST_AFTER {
            self.given_up = self.sent - self.received;
            self.last_arrival = now;
        }
        let on_the_way = self.sent - self.received;
        WINDOW.saturating_sub(on_the_way.saturating_sub(self.given_up))
    }

    fn lost_share(&self) -> f64 {
        (self.sent - self.received) as f64 / self.sent.max(1) as f64
    }

    fn arrived(&mut self, packets: u64) {
        if packets > 0 {
            self.received += packets;
            self.last_arrival = clock::now();
        }
    }
}
