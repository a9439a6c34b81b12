//! Calls that go on whatever happens: every client sends media on its beat and a connectivity check now and then, the far end
//! sends on its own beat to whatever way back it knows last, and each silence is timed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::clock;
use wire::record::RecordHeader;

use crate::bench::far_end::FarEnd;
use crate::bench::round_trips::{Crowd, Dialect, Mark, read};
use crate::wait;

/// Calls.
const CALLS: u32 = 200;
/// Between two packets of a call in one direction.
const BEAT: Duration = Duration::from_millis(20);
/// Between two checks of a client: what Chromium sends on a pair that works.
const CHECK_INTERVAL: Duration = Duration::from_millis(2_500);
/// A direction that has been silent for so long does not flow.
const FLOWING: Duration = Duration::from_millis(100);
/// While nothing is due.
const NAP: Duration = Duration::from_micros(200);

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    BothWays,
    /// The far end answers checks and sends nothing else.
    UplinkOnly,
    /// As [`Self::UplinkOnly`], and clients check no more once silences count.
    UplinkUnchecked,
}

/// What the thread of the calls and the one that disturbs them tell each other.
#[derive(Debug, Default)]
pub(super) struct Board {
    stop: AtomicBool,
    /// Silences count from here on.
    armed: Mutex<Option<Instant>>,
    flowing: AtomicBool,
}

impl Board {
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Silences count from now on, and calls have yet to show that they flow.
    pub(super) fn arm(&self) {
        *self.lock() = Some(clock::now());
        self.flowing.store(false, Ordering::Relaxed);
    }

    /// Waits until every call flows, and has been heard after [`Self::arm`].
    pub(super) fn wait_flowing(&self, deadline: Duration) -> anyhow::Result<()> {
        let flowing = || self.flowing.load(Ordering::Relaxed);
        wait::until_true("every call to flow", deadline, flowing)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the calls saw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) calls: usize,
    pub(super) silence_up: Duration,
    pub(super) silence_up_median: Duration,
    pub(super) silence_down: Option<Duration>,
    pub(super) moved: usize,
}

/// One direction of one call.
#[derive(Clone, Copy, Debug, Default)]
struct Hearing {
    last: Option<Instant>,
    silence: Duration,
}

impl Hearing {
    fn hear(&mut self, now: Instant, armed: bool) {
        if let Some(last) = self.last.filter(|_| armed) {
            self.silence = self.silence.max(now - last);
        }
        self.last = Some(now);
    }

    fn flows(&self, now: Instant, since: Option<Instant>) -> bool {
        self.last.is_some_and(|last| {
            now.saturating_duration_since(last) < FLOWING
                && since.is_none_or(|since| last > since + FLOWING)
        })
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Call {
    up: Hearing,
    down: Hearing,
    /// How the far end reaches the client.
    way_back: Option<(SocketAddr, RecordHeader)>,
    moved: bool,
}

/// All of them.
pub(super) struct Calls {
    crowd: Crowd,
    dialect: Dialect,
    far_end: FarEnd,
    media: Media,
    board: Arc<Board>,
    calls: Vec<Call>,
    packet: Vec<u8>,
    start: Instant,
    /// Uplink packets, downlink packets and checks so far.
    done: [u64; 3],
}

impl Calls {
    pub(super) fn open(
        ingress: SocketAddr,
        ufrags: Vec<String>,
        far_end: FarEnd,
        media: Media,
        board: Arc<Board>,
    ) -> anyhow::Result<Self> {
        let calls = usize::try_from(CALLS)?;
        Ok(Self {
            crowd: Crowd::open(CALLS, ingress)?,
            dialect: Dialect::Hint { ufrags },
            far_end,
            media,
            board,
            calls: vec![Call::default(); calls],
            packet: Vec::new(),
            start: clock::now(),
            done: [0; 3],
        })
    }

    /// Until told to stop.
    pub(super) fn run(mut self) -> anyhow::Result<Report> {
        while !self.board.stop.load(Ordering::Relaxed) {
            let now = clock::now();
            let armed = *self.board.lock();
            self.speak(now, armed.is_some());
            self.hear(now, armed.is_some())?;
            let both = self.media == Media::BothWays;
            let flows =
                |call: &Call| call.up.flows(now, armed) && (!both || call.down.flows(now, armed));
            let flowing = self.calls.iter().all(flows);
            self.board.flowing.store(flowing, Ordering::Relaxed);
            std::thread::sleep(NAP);
        }
        Ok(self.report())
    }

    fn report(&self) -> Report {
        let longest =
            |of: fn(&Call) -> Duration| self.calls.iter().map(of).max().unwrap_or_default();
        let silence_down = longest(|call| call.down.silence);
        let mut silences: Vec<_> = self.calls.iter().map(|call| call.up.silence).collect();
        silences.sort_unstable();
        let median = silences.get(silences.len() / 2);
        Report {
            calls: self.calls.len(),
            silence_up: longest(|call| call.up.silence),
            silence_up_median: median.copied().unwrap_or_default(),
            silence_down: (self.media == Media::BothWays).then_some(silence_down),
            moved: self.calls.iter().filter(|call| call.moved).count(),
        }
    }

    /// Sends whatever is due in either direction.
    fn speak(&mut self, now: Instant, armed: bool) {
        let elapsed = now - self.start;
        let [up, down, checks] = self.done;
        let [up_due, checks_due] = [BEAT, CHECK_INTERVAL].map(|each| due(elapsed, each));
        let unchecked = armed && self.media == Media::UplinkUnchecked;
        for client in turns(checks, checks_due).filter(|_| !unchecked) {
            let check = self.dialect.request(0, client);
            self.crowd.send(client, &check);
        }
        for client in turns(up, up_due) {
            self.write(client);
            self.crowd.send(client, &self.packet);
        }
        self.crowd.flush();
        if self.media == Media::BothWays {
            for client in turns(down, up_due) {
                self.write(client);
                let call = self
                    .calls
                    .get(usize::try_from(client).unwrap_or(usize::MAX));
                if let Some((relay, header)) = call.and_then(|call| call.way_back) {
                    self.far_end.egress().send(relay, &header, &self.packet);
                }
            }
            self.far_end.egress().flush();
        }
        self.done = [up_due, up_due, checks_due];
    }

    fn write(&mut self, client: u32) {
        let mark = Mark {
            hold: 0,
            client,
            stamp: 0,
        };
        self.dialect.write(mark, &mut self.packet);
    }

    fn hear(&mut self, now: Instant, armed: bool) -> anyhow::Result<()> {
        let calls = &mut self.calls;
        self.far_end.receive(|_, relay, header, packet| {
            if let Some(call) = call_of(calls, packet) {
                let known = call.way_back.map(|(_, header)| header.client);
                call.moved |= known.is_some_and(|known| known != header.client);
                call.way_back = Some((relay, *header));
                call.up.hear(now, armed);
            }
        })?;
        while self.crowd.receive(|packet| {
            if let Some(call) = call_of(calls, packet) {
                call.down.hear(now, armed);
            }
        })? {}
        Ok(())
    }
}

fn call_of<'a>(calls: &'a mut [Call], packet: &[u8]) -> Option<&'a mut Call> {
    let client = read(packet)?.client;
    calls.get_mut(usize::try_from(client).ok()?)
}

/// Turns that calls have had after `elapsed` when each has one every `each`.
fn due(elapsed: Duration, each: Duration) -> u64 {
    let turns = elapsed.as_nanos() * u128::from(CALLS) / each.as_nanos();
    u64::try_from(turns).unwrap_or(u64::MAX)
}

/// Whose turn it is, one after the other.
fn turns(from: u64, to: u64) -> impl Iterator<Item = u32> {
    (from..to).filter_map(|turn| u32::try_from(turn % u64::from(CALLS)).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silences_count_once_armed() {
        let start = clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut hearing = Hearing::default();
        hearing.hear(at(0), false);
        hearing.hear(at(900), false);
        assert_eq!(hearing.silence, Duration::ZERO);
        for ms in [920, 940, 1_240, 1_260] {
            hearing.hear(at(ms), true);
        }
        assert_eq!(hearing.silence, Duration::from_millis(300));
        assert!(hearing.flows(at(1_300), None) && !hearing.flows(at(1_400), None));
        // What arrives right after a kill was on its way before.
        assert!(!hearing.flows(at(1_300), Some(at(1_200))));
    }

    #[test]
    fn everybody_has_a_turn_in_an_interval() {
        let second = Duration::from_secs(1);
        assert_eq!(due(second, BEAT), 10_000);
        assert_eq!(due(second, CHECK_INTERVAL), 80);
        let all: Vec<_> = turns(0, u64::from(CALLS)).collect();
        assert_eq!(all, (0..CALLS).collect::<Vec<_>>());
    }
}
