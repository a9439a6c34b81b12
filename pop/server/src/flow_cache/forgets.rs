//! What is still to be forgotten: deletions that Redis has not confirmed. A dead session's entry must not come back when Redis does.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::flow_cache::queues::Write;

/// Deletions kept while Redis cannot be told; beyond, the oldest is given up, and its entry lives until its TTL is over.
pub(crate) const FORGETS_MAX: usize = 1 << 16;

pub(crate) struct Forgets {
    waiting: VecDeque<(Write, Instant)>,
    ttl: Duration,
    /// Given up for want of a place.
    pub(crate) lost: u64,
}

impl Forgets {
    pub(crate) const fn new(ttl: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            ttl,
            lost: 0,
        }
    }

    /// Keeps a deletion until it is done or the entry has expired.
    pub(crate) fn keep(&mut self, write: Write, now: Instant) {
        if self.waiting.len() >= FORGETS_MAX {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back((write, now + self.ttl));
    }

    /// The next one whose entry may still exist.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Write> {
        while let Some((write, until)) = self.waiting.pop_front() {
            if now < until {
                return Some(write);
            }
        }
        None
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

    fn forget(port: u16) -> Write {
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
        }
    }

    #[test]
    fn kept_in_order_until_the_entry_has_expired_and_bounded() {
        let start = runtime::clock::now();
        let second = Duration::from_secs(1);
        let mut forgets = Forgets::new(60 * second);
        forgets.keep(forget(1), start);
        forgets.keep(forget(2), start + 30 * second);
        forgets.keep(forget(3), start + 31 * second);
        let next = forgets.next(start + 61 * second).unwrap();
        assert_eq!(next.place.client.port(), 2);
        assert_eq!(forgets.len(), 1);
        assert!(forgets.next(start + 200 * second).is_none());
        for port in 0..=u16::MAX {
            forgets.keep(forget(port), start);
        }
        assert_eq!((forgets.len(), forgets.lost), (FORGETS_MAX, 0));
        forgets.keep(forget(7), start);
        assert_eq!((forgets.len(), forgets.lost), (FORGETS_MAX, 1));
        assert_eq!(forgets.next(start).unwrap().place.client.port(), 1);
    }
}
