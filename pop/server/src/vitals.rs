//! What each worker tells the thread that decides about announcements, without a lock: a worker that hangs, or a control runtime that does,
//! must not keep that thread from seeing it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use pop_proto::announce::Reach;
use runtime::watch::Turns;

/// One place for each worker.
#[derive(Debug)]
pub(crate) struct Vitals {
    workers: Vec<Worker>,
    /// Number of the latest flush that was ordered; 0: none.
    flush: AtomicU64,
    /// Packets of clients are to be served although the node drains.
    held: AtomicBool,
}

/// What one worker writes.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    turns: OnceLock<Turns>,
    reach: AtomicU8,
    vip_packets: AtomicU64,
    lost: AtomicU64,
    flows: AtomicU64,
    flushed: AtomicU64,
    unstored: AtomicU64,
}

/// Figures of a worker, totals since its start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) vip_packets: u64,
    pub(crate) lost: u64,
    pub(crate) flows: u64,
}

const BACKBONE: u8 = 1;
const REGIONS: u8 = 2;

impl Vitals {
    pub(crate) fn new(workers: u8) -> Self {
        Self {
            workers: (0..workers).map(|_| Worker::default()).collect(),
            flush: AtomicU64::new(0),
            held: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_turns(&self, worker: u8, turns: Turns) {
        if let Some(own) = self.workers.get(usize::from(worker)) {
            own.turns.get_or_init(|| turns);
        }
    }

    pub(crate) fn show(&self, worker: u8, reach: Reach, figures: Figures) {
        let Some(own) = self.workers.get(usize::from(worker)) else {
            return;
        };
        let backbone = if reach.backbone { BACKBONE } else { 0 };
        let regions = if reach.regions { REGIONS } else { 0 };
        let bits = backbone | regions;
        own.reach.store(bits, Ordering::Relaxed);
        own.vip_packets
            .store(figures.vip_packets, Ordering::Relaxed);
        own.lost.store(figures.lost, Ordering::Relaxed);
        own.flows.store(figures.flows, Ordering::Relaxed);
    }

    /// The flush a worker is to do, unless it has done it.
    pub(crate) fn flush_wanted(&self, done: u64) -> Option<u64> {
        let wanted = self.flush.load(Ordering::Relaxed);
        (wanted != done).then_some(wanted)
    }

    /// A worker has stored what it could; so many flows it could not.
    pub(crate) fn flushed(&self, worker: u8, flush: u64, unstored: u64) {
        if let Some(own) = self.workers.get(usize::from(worker)) {
            own.unstored.store(unstored, Ordering::Relaxed);
            own.flushed.store(flush, Ordering::Release);
        }
    }

    /// Orders a flush.
    pub(crate) fn order_flush(&self) {
        self.flush.fetch_add(1, Ordering::Relaxed);
    }

    /// Once every worker has done the latest flush: flows they could not store.
    pub(crate) fn flush_over(&self) -> Option<u64> {
        let wanted = self.flush.load(Ordering::Relaxed);
        let done = |worker: &Worker| worker.flushed.load(Ordering::Acquire) == wanted;
        let unstored = self
            .workers
            .iter()
            .map(|own| own.unstored.load(Ordering::Relaxed));
        self.workers.iter().all(done).then(|| unstored.sum())
    }

    /// Turns of each worker.
    pub(crate) fn turns(&self) -> impl Iterator<Item = u64> + '_ {
        let each = self.workers.iter();
        each.map(|own| own.turns.get().map_or(0, Turns::so_far))
    }

    /// Whether every worker has ended.
    pub(crate) fn ended(&self) -> bool {
        let mut each = self.workers.iter();
        each.all(|own| own.turns.get().is_some_and(Turns::ended))
    }

    /// How the backbone looks to the worst of them.
    pub(crate) fn reach(&self) -> Reach {
        let all = |bit: u8| {
            let mut each = self.workers.iter();
            each.all(|own| own.reach.load(Ordering::Relaxed) & bit != 0)
        };
        Reach {
            backbone: all(BACKBONE),
            regions: all(REGIONS),
        }
    }

    /// Of all of them together.
    pub(crate) fn figures(&self) -> Figures {
        let mut sum = Figures::default();
        for own in &self.workers {
            sum.vip_packets += own.vip_packets.load(Ordering::Relaxed);
            sum.lost += own.lost.load(Ordering::Relaxed);
            sum.flows += own.flows.load(Ordering::Relaxed);
        }
        sum
    }

    /// Whether clients are served although the node drains, because a drain has steps of its own to do first.
    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn hold(&self, held: bool) {
        self.held.store(held, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Reach = Reach {
        backbone: true,
        regions: true,
    };

    #[test]
    fn the_worst_worker_counts_and_figures_add_up() {
        let vitals = Vitals::new(2);
        let figures = Figures {
            vip_packets: 5,
            lost: 1,
            flows: 2,
        };
        vitals.show(0, ALL, figures);
        assert_eq!(vitals.reach(), Reach::default(), "the other has not begun");
        let no_region = Reach {
            regions: false,
            ..ALL
        };
        vitals.show(1, no_region, figures);
        assert_eq!(vitals.reach(), no_region);
        vitals.show(1, ALL, figures);
        assert_eq!(vitals.reach(), ALL);
        let sum = vitals.figures();
        assert_eq!((sum.vip_packets, sum.lost, sum.flows), (10, 2, 4));
        assert!(!vitals.ended());
    }

    #[test]
    fn a_flush_is_over_when_every_worker_has_done_it() {
        let vitals = Vitals::new(2);
        assert_eq!(vitals.flush_wanted(0), None);
        vitals.order_flush();
        assert_eq!(
            (vitals.flush_wanted(0), vitals.flush_over()),
            (Some(1), None)
        );
        vitals.flushed(0, 1, 3);
        assert_eq!(vitals.flush_over(), None);
        vitals.flushed(1, 1, 4);
        assert_eq!(
            (vitals.flush_wanted(1), vitals.flush_over()),
            (None, Some(7))
        );
    }
}
