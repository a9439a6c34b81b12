//! Permits to be away: a bounded number of slots in a store that all PoPs share, each held by one PoP for a bounded time.
//!
//! ```text
//!  wanted, none held:  Look ─► a slot with our name: Confirm    (we were restarted)
//!                          └─► too many are away: refused
//!                          └─► a free slot: Take ─► given: Confirm, or another was faster
//!  wanted, held:       Confirm, again and again ─► held for ttl from when the question left, less a margin
//!                                             └─► too many are away: Release
//!  not wanted, held:   Release, if there is time left to do so before it may be another's
//! ```
//!
//! Slots are as many as PoPs that may be away. Others that are away without one count too: dead, stopped, or on their way back.
//! Whoever comes looks again after it has taken a slot, so of two that come at once at most one stays; of those that hold one already the
//! last slots go back first, when somebody has died.
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
    /// Keep this one for another [`PERMIT_TTL`], and look who has which.
    Confirm(u32),
    /// Give this one back.
    Release(u32),
}

/// What the store has at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Who has each of the slots, in their order.
    pub holders: &'a [Holder],
    /// Other PoPs that do not announce, and hold no slot.
    pub gone: u32,
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
        Self {
            slots: slots(pops, min_announced),
            first: seed,
            held: None,
            then: None,
            otherwise: Permit::Unknown,
        }
    }

    /// Another topology. A slot that there is no more is not held.
    pub fn set_pops(&mut self, pops: u32, min_announced: u32) {
        self.slots = slots(pops, min_announced);
        self.then = None;
        self.held = self.held.filter(|held| held.slot < self.slots);
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
        // It may be another's: whoever looks will see.
        self.held = self.held.filter(|held| now < held.until);
        match (wanted, self.held) {
            (true, Some(held)) => {
                self.then = None;
                Some(Ask::Confirm(held.slot))
            }
            (true, None) if self.slots == 0 => {
                self.otherwise = Permit::Refused;
                None
            }
            (true, None) => Some(self.then.take().unwrap_or(Ask::Look)),
            (false, held) => {
                let then = self.then.take();
                self.otherwise = Permit::Unknown;
                self.held = None;
                match (held, then) {
                    (Some(held), _) => Some(Ask::Release(held.slot)),
                    // Taken, but not looked at.
                    (None, Some(Ask::Confirm(slot) | Ask::Release(slot))) => {
                        Some(Ask::Release(slot))
                    }
                    (None, Some(Ask::Look | Ask::Take(_)) | None) => None,
                }
            }
        }
    }

    /// The answer to [`Ask::Look`]. Whether there is something to ask at once.
    pub fn handle_look(&mut self, look: &Look<'_>) -> bool {
        let own = self
            .turned()
            .find(|slot| look.holder(*slot) == Some(Holder::Own));
        let free = self
            .turned()
            .find(|slot| look.holder(*slot) == Some(Holder::Nobody));
        let room = look.away(self.slots) < self.slots;
        self.then = match (own, free) {
            (Some(slot), _) => Some(Ask::Confirm(slot)),
            (None, Some(slot)) if room => Some(Ask::Take(slot)),
            (None, _) => None,
        };
        if self.then.is_none() {
            self.otherwise = Permit::Refused;
        }
        self.then.is_some()
    }

    /// The answer to [`Ask::Take`]. Whether there is something to ask at once.
    pub const fn handle_taken(&mut self, slot: u32, given: bool) -> bool {
        if given {
            self.then = Some(Ask::Confirm(slot));
        } else {
            self.otherwise = Permit::Refused;
        }
        given
    }

    /// The answer to [`Ask::Confirm`], which left at `asked`. Whether there is something to ask at once.
    pub fn handle_confirmed(&mut self, slot: u32, look: &Look<'_>, asked: Instant) -> bool {
        // Whoever comes looks at all of them, whoever is here at those before it.
        let before = if self.held.is_some() {
            slot
        } else {
            self.slots
        };
        self.held = None;
        let own = look.holder(slot) == Some(Holder::Own);
        if own && look.away(before) < self.slots {
            self.held = Some(Held {
                slot,
                until: asked + PERMIT_TTL - MARGIN,
            });
            return false;
        }
        self.otherwise = Permit::Refused;
        self.then = own.then_some(Ask::Release(slot));
        own
    }

    /// Slots, from where this PoP looks first.
    fn turned(&self) -> impl Iterator<Item = u32> + use<> {
        let (first, slots) = (self.first, self.slots);
        (0..slots).map(move |step| (first % slots + step) % slots)
    }

    /// Nobody answers. What is held is held until its time is over.
    pub const fn handle_silence(&mut self) {
        self.then = None;
        self.otherwise = Permit::Unknown;
    }
}

impl Look<'_> {
    fn holder(&self, slot: u32) -> Option<Holder> {
        let place = usize::try_from(slot).ok()?;
        self.holders.get(place).copied()
    }

    /// Others that are away, as far as they hold one of the first slots or none.
    fn away(&self, slots: u32) -> u32 {
        let others = (0..slots).filter(|slot| self.holder(*slot) == Some(Holder::Other));
        let others = u32::try_from(others.count()).unwrap_or(u32::MAX);
        others.saturating_add(self.gone)
    }
}

const fn slots(pops: u32, min_announced: u32) -> u32 {
    let slots = pops.saturating_sub(min_announced);
    if slots < SLOTS_MAX { slots } else { SLOTS_MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        crate::announce::tests::start() + Duration::from_secs(seconds)
    }

    const FREE: Holder = Holder::Nobody;
    const OWN: Holder = Holder::Own;
    const OTHER: Holder = Holder::Other;

    const fn look(holders: &[Holder], gone: u32) -> Look<'_> {
        Look { holders, gone }
    }

    /// One that holds slot 1 of 3 since the beginning.
    fn holder() -> Permits {
        let mut permits = Permits::new(5, 2, 7);
        assert!(permits.handle_taken(1, true));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Confirm(1)));
        assert!(!permits.handle_confirmed(1, &look(&[FREE, OWN, FREE], 0), at(0)));
        permits
    }

    #[test]
    fn a_slot_is_looked_for_taken_confirmed_and_given_back() {
        let mut permits = Permits::new(5, 2, 7);
        assert_eq!(permits.slots(), 3);
        assert_eq!(permits.next(false, at(0)), None);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        assert!(permits.handle_look(&look(&[OTHER, OTHER, FREE], 0)));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Take(2)));
        assert!(permits.handle_taken(2, true));
        assert_eq!(permits.permit(at(0)), Permit::Unknown, "not looked at yet");
        assert_eq!(permits.next(true, at(0)), Some(Ask::Confirm(2)));
        assert!(!permits.handle_confirmed(2, &look(&[OTHER, OTHER, OWN], 0), at(0)));
        let until = at(0) + PERMIT_TTL - MARGIN;
        assert_eq!(permits.permit(at(1)), Permit::Held { until });
        assert_eq!(permits.next(true, at(3)), Some(Ask::Confirm(2)));
        permits.handle_silence();
        assert_eq!(permits.permit(at(3)), Permit::Held { until });
        assert_eq!(permits.permit(until), Permit::Unknown, "it ends by itself");
        assert!(!permits.handle_confirmed(2, &look(&[FREE, FREE, OWN], 0), at(6)));
        assert_eq!(permits.next(false, at(7)), Some(Ask::Release(2)));
        assert_eq!(permits.permit(at(7)), Permit::Unknown);
        assert_eq!(permits.next(false, at(7)), None);
    }

    #[test]
    fn none_is_given_when_all_are_taken_or_another_is_faster_or_there_is_none() {
        let mut permits = Permits::new(3, 2, 0);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        assert!(!permits.handle_look(&look(&[OTHER], 0)));
        assert_eq!(permits.permit(at(0)), Permit::Refused);
        assert_eq!(permits.next(true, at(1)), Some(Ask::Look));
        assert!(permits.handle_look(&look(&[FREE], 0)));
        assert_eq!(permits.next(true, at(1)), Some(Ask::Take(0)));
        assert!(!permits.handle_taken(0, false));
        assert_eq!(permits.permit(at(1)), Permit::Refused);
        let mut none = Permits::new(2, 2, 0);
        assert_eq!(none.next(true, at(0)), None);
        assert_eq!(none.permit(at(0)), Permit::Refused);
    }

    #[test]
    fn those_that_are_gone_count_and_who_comes_gives_way() {
        for (holders, gone, takes) in [
            ([FREE, FREE, FREE], 2, true),
            ([FREE, FREE, FREE], 3, false),
            ([OTHER, FREE, FREE], 1, true),
            ([OTHER, FREE, FREE], 2, false),
        ] {
            let mut permits = Permits::new(5, 2, 1);
            assert_eq!(permits.handle_look(&look(&holders, gone)), takes);
        }
        // Between the look and the take others came too.
        let mut permits = Permits::new(5, 2, 1);
        assert!(permits.handle_taken(0, true));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Confirm(0)));
        assert!(permits.handle_confirmed(0, &look(&[OWN, OTHER, OTHER], 1), at(0)));
        assert_eq!(permits.permit(at(0)), Permit::Refused);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Release(0)));
        assert_eq!(permits.next(true, at(1)), Some(Ask::Look));
    }

    #[test]
    fn a_death_ends_the_last_of_the_permits_that_are_held() {
        for (holders, gone, stays) in [
            ([FREE, OWN, OTHER], 2, true),
            ([OTHER, OWN, OTHER], 1, true),
            ([OTHER, OWN, FREE], 2, false),
            ([FREE, OWN, FREE], 3, false),
        ] {
            let mut permits = holder();
            let more = permits.handle_confirmed(1, &look(&holders, gone), at(1));
            assert_eq!(more, !stays, "{holders:?} {gone}");
            let held = matches!(permits.permit(at(1)), Permit::Held { .. });
            assert_eq!(held, stays, "{holders:?} {gone}");
        }
    }

    #[test]
    fn a_restart_finds_its_own_slot_and_an_old_one_is_not_given_back() {
        let mut permits = Permits::new(4, 2, 0);
        assert_eq!(permits.next(true, at(0)), Some(Ask::Look));
        let holders = [FREE, OWN];
        assert!(permits.handle_look(&look(&holders, 0)));
        assert_eq!(permits.next(true, at(0)), Some(Ask::Confirm(1)));
        assert!(!permits.handle_confirmed(1, &look(&holders, 0), at(0)));
        assert_eq!(permits.next(false, at(60)), None, "it may be another's");
        // Wanted no more in the middle.
        let mut permits = Permits::new(4, 2, 0);
        assert!(permits.handle_taken(1, true));
        assert_eq!(permits.next(false, at(0)), Some(Ask::Release(1)));
    }

    #[test]
    fn a_store_that_lost_it_ends_it() {
        let mut permits = holder();
        assert_eq!(permits.next(true, at(1)), Some(Ask::Confirm(1)));
        assert!(!permits.handle_confirmed(1, &look(&[FREE, FREE, FREE], 0), at(1)));
        assert_eq!(permits.permit(at(1)), Permit::Refused);
        assert_eq!(permits.next(true, at(2)), Some(Ask::Look));
    }

    #[test]
    fn a_smaller_network_has_fewer_slots() {
        let mut permits = holder();
        permits.set_pops(4, 2);
        assert!(matches!(permits.permit(at(1)), Permit::Held { .. }));
        permits.set_pops(3, 2);
        assert_eq!(permits.slots(), 1);
        assert_eq!(permits.next(true, at(1)), Some(Ask::Look));
        permits.set_pops(2, 2);
        assert_eq!(permits.next(true, at(1)), None);
        assert_eq!(permits.permit(at(1)), Permit::Refused);
    }
}
