//! Which of a region's core relays carries its uplink. A pure function of what is known of each and of the time.
//!
//! The first in topology order is preferred. Whichever carries uplink is left at once when its link is down or its relay
//! drains, and then only: an earlier one that came back carries it again after [`RETURN_AFTER`] without a break. So a
//! relay that comes and goes moves nothing, and after an incident traffic is where the topology says.

use std::time::{Duration, Instant};

/// How long an earlier relay must have been usable before uplink returns to it.
pub(crate) const RETURN_AFTER: Duration = Duration::from_secs(10);

/// What is known of the link to one core relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    up: bool,
    draining: bool,
    /// Since when it is up and its relay does not drain.
    usable_since: Option<Instant>,
}

impl Standing {
    /// A link that is there already, or not.
    pub(crate) fn of(up: bool, draining: bool, now: Instant) -> Self {
        Self {
            up,
            draining,
            usable_since: (up && !draining).then_some(now),
        }
    }

    pub(crate) const fn is_up(self) -> bool {
        self.up
    }

    /// It came up, went down, or its relay began or ceased to drain.
    pub(crate) fn change(&mut self, up: bool, draining: bool, now: Instant) {
        let since = self.usable_since.unwrap_or(now);
        *self = Self::of(up, draining, since);
    }

    pub(crate) fn set_draining(&mut self, draining: bool, now: Instant) {
        self.change(self.up, draining, now);
    }

    fn returns_at(self) -> Option<Instant> {
        Some(self.usable_since? + RETURN_AFTER)
    }
}

/// Index of the relay for uplink, after `chosen` was it.
pub(crate) fn choose(relays: &[Standing], chosen: Option<usize>, now: Instant) -> Option<usize> {
    let usable = |relay: &Standing| relay.usable_since.is_some();
    let kept = chosen.filter(|index| relays.get(*index).is_some_and(usable));
    let Some(kept) = kept else {
        let best = relays.iter().position(usable);
        return best.or_else(|| relays.iter().position(|relay| relay.up));
    };
    let settled = |relay: &Standing| relay.returns_at().is_some_and(|at| now >= at);
    let earlier = relays.iter().take(kept).position(settled);
    Some(earlier.unwrap_or(kept))
}

/// When [`choose`] may answer otherwise without anything having happened.
pub(crate) fn next_return(relays: &[Standing], chosen: Option<usize>) -> Option<Instant> {
    let earlier = relays.iter().take(chosen?);
    earlier.filter_map(|relay| relay.returns_at()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        static EPOCH: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *EPOCH.get_or_init(runtime::clock::now) + Duration::from_secs(s)
    }

    /// Each relay's letter: `u` up, `d` up and draining, `-` down.
    fn relays(letters: &str, now: Instant) -> Vec<Standing> {
        let one = |letter| Standing::of(letter != '-', letter == 'd', now);
        letters.chars().map(one).collect()
    }

    #[test]
    fn what_is_chosen_by_what_is_up() {
        type Case = (&'static str, Option<usize>, Option<usize>);
        let cases: [Case; 12] = [
            ("", None, None),
            ("---", None, None),
            ("-u-", None, Some(1)),
            ("uuu", None, Some(0)),
            ("duu", None, Some(1)),
            ("d--", None, Some(0)),
            ("-d-", Some(0), Some(1)),
            ("-uu", Some(0), Some(1)),
            ("-uu", Some(2), Some(2)),
            ("uuu", Some(2), Some(2)),
            ("uud", Some(2), Some(0)),
            ("u", Some(7), Some(0)),
        ];
        for (letters, before, after) in cases {
            let relays = relays(letters, at(100));
            assert_eq!(
                choose(&relays, before, at(101)),
                after,
                "{letters} {before:?}"
            );
        }
    }

    #[test]
    fn uplink_returns_to_an_earlier_relay_once_it_has_been_well_for_long() {
        let mut relays = relays("uu", at(0));
        relays[0].change(false, false, at(20));
        assert_eq!(choose(&relays, Some(0), at(20)), Some(1));
        assert_eq!(next_return(&relays, Some(1)), None);
        relays[0].change(true, false, at(30));
        assert_eq!(next_return(&relays, Some(1)), Some(at(40)));
        assert_eq!(choose(&relays, Some(1), at(39)), Some(1));
        // A break starts the time over, and so does a drain.
        relays[0].change(false, false, at(39));
        relays[0].change(true, false, at(39));
        relays[0].set_draining(true, at(45));
        assert_eq!(choose(&relays, Some(1), at(50)), Some(1));
        relays[0].set_draining(false, at(50));
        assert_eq!(choose(&relays, Some(1), at(59)), Some(1));
        assert_eq!(choose(&relays, Some(1), at(60)), Some(0));
        assert_eq!(next_return(&relays, Some(0)), None);
    }

    #[test]
    fn a_relay_that_flaps_never_gets_uplink_back() {
        let mut relays = relays("uu", at(0));
        let mut chosen = Some(1);
        for second in 1..300 {
            relays[0].change(second % 9 != 0, false, at(second));
            chosen = choose(&relays, chosen, at(second));
            assert_eq!(chosen, Some(1), "{second}");
        }
    }

    #[test]
    fn a_message_that_changes_nothing_keeps_the_time() {
        let mut relays = relays("uu", at(0));
        relays[0].set_draining(false, at(9));
        assert_eq!(choose(&relays, Some(1), at(10)), Some(0));
    }
}
