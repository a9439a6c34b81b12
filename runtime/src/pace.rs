//! Between two turns of a worker: sleep until a socket is readable, look again for a moment first, or let packets gather.
//!
//! ```text
//! more than tick_above_pps          sleep until the next tick, whatever arrives, then take all that has gathered
//! a packet is due within busy_poll  look without sleeping, that long at most, then sleep
//! otherwise                         sleep until something is readable or a timer is due
//! ```
//!
//! A tick trades delay for processor time: fewer wakes, fuller batches. A busy poll trades processor time for delay, and pays
//! only where a worker has its processor to itself. What is due is judged by the packets of the last few milliseconds.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::clock;
use crate::poll::{Poller, Ready};

/// How a worker waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// How long to look without sleeping when a packet is due within that time; zero: never.
    pub busy_poll: Duration,
    /// Least time from the beginning of a turn to that of the next, under load; zero: no tick.
    pub tick: Duration,
    /// Packets a second that count as load.
    pub tick_above_pps: u32,
}

impl From<&topology::WorkerPacing> for Pacing {
    fn from(pacing: &topology::WorkerPacing) -> Self {
        Self {
            busy_poll: Duration::from_micros(pacing.busy_poll_us.into()),
            tick: Duration::from_micros(pacing.tick_us.into()),
            tick_above_pps: pacing.tick_above_pps,
        }
    }
}

/// See the module head. One per worker; owns its [`Poller`].
#[derive(Debug)]
pub struct Pace {
    pacing: Pacing,
    poller: Poller,
    load: Load,
}

impl Pace {
    /// Before the first turn.
    #[must_use]
    pub fn new(pacing: Pacing, now: Instant) -> Self {
        Self {
            pacing,
            poller: Poller::new(),
            load: Load::new(now),
        }
    }

    /// From here on it waits so.
    pub const fn set(&mut self, pacing: Pacing) {
        self.pacing = pacing;
    }

    /// Waits after a turn that began at `began`, `timeout` from then at most. `packets`: handled since the worker began.
    /// The first of `fds` is the waker, which ends every wait. Returns what to look at.
    ///
    /// # Errors
    /// See [`Poller::wait`].
    pub fn wait(
        &mut self,
        fds: &[BorrowedFd<'_>],
        began: Instant,
        timeout: Duration,
        packets: u64,
    ) -> io::Result<Ready> {
        self.load.note(packets, began);
        match self.load.choose(self.pacing) {
            Choice::Sleep => self.poller.wait(fds, Some(timeout)),
            Choice::Tick => self.tick(fds, began, timeout),
            Choice::BusyPoll => self.busy_poll(fds, timeout),
        }
    }

    fn tick(
        &mut self,
        fds: &[BorrowedFd<'_>],
        began: Instant,
        timeout: Duration,
    ) -> io::Result<Ready> {
        let next = began + self.pacing.tick.min(timeout);
        let rest = next.saturating_duration_since(clock::now());
        if rest > Duration::ZERO {
            self.poller
                .wait(fds.get(..1).unwrap_or_default(), Some(rest))?;
        }
        Ok(Ready::ALL)
    }

    fn busy_poll(&mut self, fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<Ready> {
        let until = clock::now() + self.pacing.busy_poll.min(timeout);
        loop {
            let ready = self.poller.wait(fds, Some(Duration::ZERO))?;
            if !ready.is_none() {
                return Ok(ready);
            }
            let now = clock::now();
            if now >= until {
                let rest = timeout.saturating_sub(self.pacing.busy_poll);
                return self.poller.wait(fds, Some(rest));
            }
        }
    }
}

/// How long the load is counted before it is judged anew.
const WINDOW: Duration = Duration::from_millis(5);

/// Packets a second, lately.
#[derive(Clone, Copy, Debug)]
struct Load {
    since: Instant,
    packets: u64,
    pps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Sleep,
    Tick,
    BusyPoll,
}

impl Load {
    const fn new(now: Instant) -> Self {
        Self {
            since: now,
            packets: 0,
            pps: 0,
        }
    }

    fn note(&mut self, packets: u64, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed < WINDOW {
            return;
        }
        let passed_us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        let fresh = packets.saturating_sub(self.packets);
        self.pps = (fresh * 1_000_000).checked_div(passed_us).unwrap_or(0);
        self.packets = packets;
        self.since = now;
    }

    fn choose(self, pacing: Pacing) -> Choice {
        let busy_poll_us = u64::try_from(pacing.busy_poll.as_micros()).unwrap_or(u64::MAX);
        if !pacing.tick.is_zero() && self.pps > u64::from(pacing.tick_above_pps) {
            Choice::Tick
        } else if self.pps.saturating_mul(busy_poll_us) >= 1_000_000 {
            Choice::BusyPoll
        } else {
            Choice::Sleep
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::Waker;
    use std::os::fd::AsFd as _;

    const PACING: Pacing = Pacing {
        busy_poll: Duration::from_micros(50),
        tick: Duration::from_micros(200),
        tick_above_pps: 40_000,
    };

    #[test]
    fn the_load_of_the_last_window_decides() {
        let start = clock::now();
        let mut load = Load::new(start);
        let mut at = |packets: u64, ms: u64| {
            load.note(packets, start + Duration::from_millis(ms));
            (load.pps, load.choose(PACING))
        };
        assert_eq!(at(1000, 4), (0, Choice::Sleep), "the window is not over");
        assert_eq!(at(1000, 10), (100_000, Choice::Tick));
        assert_eq!(at(1400, 20), (40_000, Choice::BusyPoll));
        assert_eq!(at(1600, 30), (20_000, Choice::BusyPoll), "one in 50 us");
        assert_eq!(at(1799, 40), (19_900, Choice::Sleep));
        assert_eq!(at(1799, 50), (0, Choice::Sleep));
    }

    #[test]
    fn what_is_zero_is_never_chosen() {
        let mut load = Load::new(clock::now());
        load.pps = 1_000_000;
        assert_eq!(load.choose(Pacing::default()), Choice::Sleep);
        let tick = Pacing {
            busy_poll: Duration::ZERO,
            ..PACING
        };
        assert_eq!(load.choose(tick), Choice::Tick);
    }

    #[test]
    fn a_tick_lasts_its_time_unless_the_worker_is_woken() {
        let (waker, other) = (Waker::new().unwrap(), Waker::new().unwrap());
        let fds = [waker.as_fd(), other.as_fd()];
        let tick = Duration::from_millis(20);
        let pacing = Pacing { tick, ..PACING };
        let began = clock::now();
        let mut pace = Pace::new(pacing, began - 2 * WINDOW);
        other.wake();
        let ready = pace.wait(&fds, began, Duration::from_secs(9), 1_000_000);
        assert_eq!(ready.unwrap(), Ready::ALL);
        assert!(clock::now() - began >= tick, "a packet ended the tick");
        // So long that no machine stands still for it.
        let tick = Duration::from_secs(60);
        pace.set(Pacing { tick, ..PACING });
        waker.wake();
        let began = clock::now();
        pace.wait(&fds, began, 2 * tick, 2_000_000).unwrap();
        assert!(clock::now() - began < tick / 2, "the waker did not");
    }

    #[test]
    fn a_busy_poll_ends_with_what_is_ready_or_with_the_time_out() {
        let (waker, other) = (Waker::new().unwrap(), Waker::new().unwrap());
        let fds = [waker.as_fd(), other.as_fd()];
        let began = clock::now();
        let mut pace = Pace::new(PACING, began - 2 * WINDOW);
        let timeout = Duration::from_millis(5);
        let ready = pace.wait(&fds, began, timeout, 300).unwrap();
        assert!(ready.is_none() && clock::now() - began >= timeout);
        other.wake();
        let ready = pace.wait(&fds, began, timeout, 300).unwrap();
        assert!(ready.is_ready(1) && !ready.is_ready(0));
    }
}
