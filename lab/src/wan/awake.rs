//! Processors that stay awake while packets are about. One that idles takes long to come back, a virtual one a quarter of a
//! millisecond, and every packet waits for it: when it is read, when it is due, and when its receiver is woken. While somebody holds
//! `/dev/cpu_dma_latency` open with 0 in it (the kernel's pm_qos_interface), idle processors look for work in place of sleeping. It
//! takes no time from anybody: they look only while nobody else wants to run.
//!
//! [`Vigil`] decides when; [`Processors`] tells the kernel.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::time::Duration;

/// The kernel's word for whoever tells how long processors may take to come back.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// Microseconds that mean: at once.
const AT_ONCE_US: i32 = 0;
/// Microseconds that mean: as long as they like (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`, 2000 s).
const WHENEVER_US: i32 = 2_000_000_000;

/// From a packet until so long after the last one, processors are to be awake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vigil {
    linger: Duration,
    last: Option<Duration>,
    awake: bool,
}

impl Vigil {
    /// Nothing was seen so far. Without time to linger nobody is ever kept awake.
    pub(crate) const fn new(linger: Duration) -> Self {
        Self {
            linger,
            last: None,
            awake: false,
        }
    }

    /// Looks at it all: `packets` came or are in the air at `now`. Returns what changes: whether processors are to be awake.
    pub(crate) fn look(&mut self, packets: bool, now: Duration) -> Option<bool> {
        if packets {
            self.last = Some(now);
        }
        let awake = self.ends().is_some_and(|end| now < end);
        let changes = awake != self.awake;
        self.awake = awake;
        changes.then_some(awake)
    }

    /// When to look again, though nothing comes.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.ends().filter(|_end| self.awake)
    }

    fn ends(&self) -> Option<Duration> {
        self.last.map(|last| last + self.linger)
    }
}

/// The machine's processors. Dropped, they sleep as they like.
#[derive(Debug)]
pub(crate) struct Processors {
    demand: File,
}

impl Processors {
    /// Nothing is demanded of them yet.
    ///
    /// # Errors
    /// Not root, or a kernel without it.
    pub(crate) fn open() -> io::Result<Self> {
        let demand = OpenOptions::new().write(true).open(DEVICE)?;
        Ok(Self { demand })
    }

    /// They stay awake from here on, or no longer.
    pub(crate) fn keep_awake(&self, awake: bool) -> io::Result<()> {
        let demand = if awake { AT_ONCE_US } else { WHENEVER_US };
        (&self.demand).write_all(&demand.to_ne_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn processors_are_awake_from_the_first_packet_until_a_while_after_the_last() {
        let mut vigil = Vigil::new(50 * MS);
        assert_eq!(vigil.look(false, MS), None, "nobody wants anything");
        assert_eq!(vigil.poll_timeout(), None);
        assert_eq!(vigil.look(true, 2 * MS), Some(true));
        assert_eq!(vigil.look(true, 40 * MS), None, "as they are");
        assert_eq!(vigil.poll_timeout(), Some(90 * MS));
        assert_eq!(vigil.look(false, 89 * MS), None);
        assert_eq!(vigil.look(false, 90 * MS), Some(false));
        assert_eq!(vigil.poll_timeout(), None, "nothing to look at again");
        assert_eq!(vigil.look(false, 500 * MS), None);
        assert_eq!(vigil.look(true, 501 * MS), Some(true), "and again");
    }

    #[test]
    fn a_flow_of_voice_is_one_vigil() {
        let mut vigil = Vigil::new(50 * MS);
        let changes = (0..1000).filter_map(|ms| vigil.look(ms % 20 == 0, MS * ms));
        assert_eq!(changes.collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn without_time_to_linger_nobody_is_kept_awake() {
        let mut vigil = Vigil::new(Duration::ZERO);
        assert!((1..100).all(|ms| vigil.look(true, MS * ms).is_none()));
        assert_eq!(vigil.poll_timeout(), None);
    }
}
