//! What is still to be forgotten: deletions that Redis has not confirmed. A dead session's entry must not come back when Redis does.
//!
//! A deletion that was tried in vain is tried again after a pause: a node of a Cluster may be gone, and the others have work.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::flow_cache::queues::Write;

/// After a deletion that came to nothing, none that is kept is tried for so long.
const PAUSE: Duration = Duration::from_secs(1);

/// An entry may be so much younger than the deletion: a store that was said before waits in a queue, too.
const YOUNGER_MAX: Duration = Duration::from_secs(5);

/// Deletions kept while Redis cannot be told; beyond, the oldest is given up, and its entry lives until its TTL is over.
pub(crate) const FORGETS_MAX: usize = 1 << 16;

pub(crate) struct Forgets {
    waiting: VecDeque<Write>,
    ttl: Duration,
    /// When the next one may be tried.
    again_at: Option<Instant>,
    /// Given up for want of a place.
    pub(crate) lost: u64,
}

impl Forgets {
    pub(crate) const fn new(ttl: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            ttl,
            again_at: None,
            lost: 0,
        }
    }

    /// Keeps a deletion until it is done or the entry has expired.
    pub(crate) fn keep(&mut self, write: Write) {
        if self.waiting.len() >= FORGETS_MAX {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back(write);
    }

    /// Keeps one that was tried in vain.
    pub(crate) fn keep_tried(&mut self, write: Write, now: Instant) {
        self.keep(write);
        self.again_at = Some(now + PAUSE);
    }

    /// There is another connection: all may be tried.
    pub(crate) const fn try_all(&mut self) {
        self.again_at = None;
    }

    /// The next one to try whose entry may still exist.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Write> {
        if self.again_at.is_some_and(|at| now < at) {
            return None;
        }
        while let Some(write) = self.waiting.pop_front() {
            if now < write.said + self.ttl + YOUNGER_MAX {
                return Some(write);
            }
        }
        None
    }

    /// None of them will be done.
    pub(crate) fn give_up(&mut self) {
        self.lost += u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        self.waiting.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow_cache::queues::{Place, What};
    use wire::{ClientAddr, Owner, RegionId, TransceiverId};

    fn forget(port: u16, said: Instant) -> Write {
        Write {
            what: What::Forget,
            place: Place {
                client: ClientAddr::new(([192, 0, 2, 1], port).into()),
                ingress: 0,
            },
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            said,
        }
    }

    #[test]
    fn kept_in_order_until_the_entry_has_expired_and_bounded() {
        let start = runtime::clock::now();
        let second = Duration::from_secs(1);
        let mut forgets = Forgets::new(60 * second);
        forgets.keep(forget(1, start));
        forgets.keep(forget(2, start + 30 * second));
        forgets.keep(forget(3, start + 31 * second));
        let next = forgets.next(start + 66 * second).unwrap();
        assert_eq!(next.place.client.port(), 2);
        assert_eq!(forgets.len(), 1);
        assert!(forgets.next(start + 200 * second).is_none());
        for port in 0..=u16::MAX {
            forgets.keep(forget(port, start));
        }
        assert_eq!((forgets.len(), forgets.lost), (FORGETS_MAX, 0));
        forgets.keep(forget(7, start));
        assert_eq!((forgets.len(), forgets.lost), (FORGETS_MAX, 1));
        assert_eq!(forgets.next(start).unwrap().place.client.port(), 1);
        forgets.give_up();
        assert_eq!((forgets.len(), forgets.lost), (0, FORGETS_MAX as u64));
    }

    #[test]
    fn one_tried_in_vain_makes_a_pause_and_is_not_kept_for_longer() {
        let start = runtime::clock::now();
        let second = Duration::from_secs(1);
        let mut forgets = Forgets::new(60 * second);
        forgets.keep(forget(1, start));
        forgets.keep(forget(2, start));
        let mut tries = 0;
        for tenth in 0..700 {
            let now = start + second * tenth / 10;
            while let Some(write) = forgets.next(now) {
                forgets.keep_tried(write, now);
                tries += 1;
                assert!(tries <= 65, "without a pause");
            }
        }
        assert_eq!((tries, forgets.len()), (65, 0));
        forgets.keep_tried(forget(3, start + 70 * second), start + 70 * second);
        assert!(forgets.next(start + 70 * second).is_none());
        forgets.try_all();
        assert!(forgets.next(start + 70 * second).is_some());
    }
}
