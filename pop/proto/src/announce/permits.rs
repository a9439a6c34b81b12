//! Permits to be away: a bounded number of slots in a store that all PoPs share, each held by one PoP for a bounded time.
//!
//! ```text
//!  wanted, none held:  Look ─► a slot with our name: Confirm    (we were restarted)
//!                          └─► a free slot: Take ─► given, or another was faster
//!                          └─► none free: refused
//!  wanted, held:       Confirm, again and again ─► held for ttl from when the question left, less a margin
//!  not wanted, held:   Release, if there is time left to do so before it may be another's
//! ```
//!
//! Whoever holds a slot stops believing it before the store forgets it, so no slot has two holders, whatever is lost on the way,
//! unless the store loses what it has; then until the next [`Ask::Confirm`] at the latest.

use std::time::{Duration, Instant};

use super::Permit;

/// Slots at most; PoPs beyond hold none.
pub const SLOTS_MAX: u32 = 64;

/// How long a slot is held without being confirmed.
pub const PERMIT_TTL: Duration = Duration::from_secs(10);
/// A holder stops believing so long before that: more than a question may take, and clocks run apart in such a time.
const MARGIN: Duration = Duration::from_secs(3);

/// What the store is to be asked next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Who has each of the slots?
    Look,
    /// Be given this one, if nobody has it.
    Take(u32),
    /// Keep this one for another [`PERMIT_TTL`], and say who has it.
    Confirm(u32),
    /// Give this one back.
    Release(u32),
}

/// Who has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Nobody,
    /// This PoP.
    Own,
    /// Another.
    Other,
}

/// See the module head.
#[derive(Debug)]
pub struct Permits {
    slots: u32,
    /// Where to look first, so that PoPs do not all try the same slot.
    first: u32,
    held: Option<Held>,
    /// What to ask after a look.
    then: Option<Ask>,
    /// What there is to say while nothing is held.
    otherwise: Permit,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    slot: u32,
    until: Instant,
}

impl Permits {
    /// None held. `pops` of the network can announce, and `min_announced` of them stay; `seed` tells PoPs apart.
    #[must_use]
    pub const fn new(pops: u32, min_announced: u32, seed: u32) -> Self {
        let slots = pops.saturating_sub(min_announced);
        let slots = if slots < SLOTS_MAX { slots } else { SLOTS_MAX };
        Self {
            slots,
            first: if slots == 0 { 0 } else { seed % slots },
            held: None,
            then: None,
            otherwise: Permit::Unknown,
        }
    }

    /// Slots there are.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How it stands.
    #[must_use]
    pub fn permit(&self, now: Instant) -> Permit {
        match self.held {
            Some(Held { until, .. }) if now < until => Permit::Held { until },
            Some(_) | None => self.otherwise,
        }
    }

    /// What to ask; one question at a time. After an answer that is not the last word there is another at once.
    pub fn next(&mut self, wanted: bool, now: Instant) -> Option<Ask> {
        if let Some(held) = self.held.filter(|held| now >= held.until) {
            // It may be another's: whoever looks will see.
            debug_assert!(held.slot < self.slots);
            self.held = None;
        }
        match (wanted, self.held) {
            (true, Some(held)) => Some(Ask::Confirm(held.slot)),
            (true, None) if self.slots == 0 => {
                self.otherwise = Permit::Refused;
                None
            }
            (true, None) => Some(self.then.take().unwrap_or(Ask::Look)),
            (false, held) => {
                self.then = None;
                self.otherwise = Permit::Unknown;
                self.held = None;
                held.map(|held| Ask::Release(held.slot))
            }
        }
    }

    /// Who has the slots, in their order: the answer to [`Ask::Look`]. Whether there is something to ask at once.
    pub fn handle_look(&mut self, holders: &[Holder]) -> bool {
        let len = self.slots.max(1);
        let turned = (0..self.slots).map(|step| (self.first + step) % len);
        let mut free = None;
        for slot in turned {
            let place = usize::try_from(slot).unwrap_or(usize::MAX);
            match holders.get(place) {
                Some(Holder::Own) => {
                    self.then = Some(Ask::Confirm(slot));
                    return true;
                }
                Some(Holder::Nobody) if free.is_none() => free = Some(slot),
                Some(Holder::Nobody | Holder::Other) | None => {}
            }
        }
        self.then = free.map(Ask::Take);
        if free.is_none() {
            self.otherwise = Permit::Refused;
        }
        free.is_some()
    }

    /// Who has the slot: the answer to [`Ask::Take`] or [`Ask::Confirm`], which left at `asked`.
    pub fn handle_holder(&mut self, slot: u32, holder: Holder, asked: Instant) {
        self.held = match holder {
            Holder::Own => Some(Held {
                slot,
                until: asked + PERMIT_TTL - MARGIN,
            }),
            Holder::Nobody | Holder::Other => {
                self.otherwise = Permit::Refused;
                None
            }
        };
    }

    /// Nobody answers. What is held is held until its time is over.
    pub const fn handle_silence(&mut self) {
        self.then = None;
        self.otherwise = Permit::Unknown;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        crate::announce::tests::start() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_slot_is_looked_for_taken_confirmed_and_given_back() {
        let mut permits = Permits::new(5, 2, 7);
        assert_eq!(permits.slots(), 3);
        assert_eq!(permits.next(false, at(0)), None);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        let all = [Holder::Other, Holder::Other, Holder::Nobody];
        assert!(permits.handle_look(&all));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Take(2)));
        permits.handle_holder(2, Holder::Own, at(0));
        let until = at(0) + PERMIT_TTL - MARGIN;
        assert_eq!(permits.permit(at(1)), Permit::Held { until });
        assert_eq!(permits.next(true, at(3)), Some(Ask::Confirm(2)));
        permits.handle_silence();
        assert_eq!(permits.permit(at(3)), Permit::Held { until });
        assert_eq!(permits.permit(until), Permit::Unknown, "it ends by itself");
        permits.handle_holder(2, Holder::Own, at(6));
        assert_eq!(permits.next(false, at(7)), Some(Ask::Release(2)));
        assert_eq!(permits.permit(at(7)), Permit::Unknown);
        assert_eq!(permits.next(false, at(7)), None);
    }

    #[test]
    fn none_is_given_when_all_are_taken_or_another_is_faster_or_there_is_none() {
        let mut permits = Permits::new(3, 2, 0);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        assert!(!permits.handle_look(&[Holder::Other]));
        assert_eq!(permits.permit(at(0)), Permit::Refused);
        assert_eq!(permits.next(true, at(1)), Some(Ask::Look));
        assert!(permits.handle_look(&[Holder::Nobody]));
        assert_eq!(permits.next(true, at(1)), Some(Ask::Take(0)));
        permits.handle_holder(0, Holder::Other, at(1));
        assert_eq!(permits.permit(at(1)), Permit::Refused);
        let mut none = Permits::new(2, 2, 0);
        assert_eq!(none.next(true, at(0)), None);
        assert_eq!(none.permit(at(0)), Permit::Refused);
    }

    #[test]
    fn a_restart_finds_its_own_slot_and_an_old_one_is_not_given_back() {
        let mut permits = Permits::new(4, 2, 0);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        assert!(permits.handle_look(&[Holder::Nobody, Holder::Own]));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Confirm(1)));
        permits.handle_holder(1, Holder::Own, at(0));
        assert_eq!(permits.next(false, at(60)), None, "it may be another's");
    }

    #[test]
    fn a_store_that_lost_it_ends_it() {
        let mut permits = Permits::new(4, 2, 1);
        permits.handle_holder(1, Holder::Own, at(0));
        assert_eq!(permits.next(true, at(1)), Some(Ask::Confirm(1)));
        permits.handle_holder(1, Holder::Nobody, at(1));
        assert_eq!(permits.permit(at(1)), Permit::Refused);
        assert_eq!(permits.next(true, at(2)), Some(Ask::Look));
    }
}
