//! Which of a region's core relays carries its uplink. A pure function of what is known of each and of the time.
//!
//! The first in topology order is preferred. Whichever carries uplink is left at once when its link is down or its relay
//! drains, and then only: an earlier one that came back carries it again after [`RETURN_AFTER`] without a break. So a
//! relay that comes and goes moves nothing, and after an incident traffic is where the topology says.
//!
//! While the link of that relay is suspect, another one that answers stands in for it ([`stand_in`]), and nothing else changes: as soon as the link
//! is clear it carries uplink again, and when it goes down the choice is made as ever. When every link fails at once, as it looks when the
//! PoP's own network does, none answers and nobody is moved.

use std::time::{Duration, Instant};

/// How long an earlier relay must have been usable before uplink returns to it.
pub(crate) const RETURN_AFTER: Duration = Duration::from_secs(10);

/// What is known of the link to one core relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    up: bool,
    draining: bool,
    /// It is up, and one end does not hear the other lately.
    suspect: bool,
    /// Since when it is up and its relay does not drain.
    usable_since: Option<Instant>,
}

impl Standing {
    /// A link that is there already, or not.
    pub(crate) fn of(up: bool, draining: bool, now: Instant) -> Self {
        Self {
            up,
            draining,
            suspect: false,
            usable_since: (up && !draining).then_some(now),
        }
    }

    pub(crate) const fn is_up(self) -> bool {
        self.up
    }

    /// It came up or went down.
    pub(crate) fn change(&mut self, up: bool, draining: bool, now: Instant) {
        let since = self.usable_since.unwrap_or(now);
        *self = Self::of(up, draining, since);
    }

    /// Its relay began or ceased to drain.
    pub(crate) fn set_draining(&mut self, draining: bool, now: Instant) {
        let suspect = self.suspect;
        self.change(self.up, draining, now);
        self.suspect = suspect;
    }

    pub(crate) const fn set_suspect(&mut self, suspect: bool) {
        self.suspect = suspect;
    }

    const fn is_usable(self) -> bool {
        self.usable_since.is_some()
    }

    const fn is_trusted(self) -> bool {
        self.is_usable() && !self.suspect
    }

    fn returns_at(self) -> Option<Instant> {
        Some(self.usable_since? + RETURN_AFTER)
    }
}

/// Index of the relay for uplink, after `chosen` was it.
pub(crate) fn choose(relays: &[Standing], chosen: Option<usize>, now: Instant) -> Option<usize> {
    let usable = |relay: &Standing| relay.is_usable();
    let kept = chosen.filter(|index| relays.get(*index).is_some_and(usable));
    let Some(kept) = kept else {
        let best = relays.iter().position(usable);
        return best.or_else(|| relays.iter().position(|relay| relay.up));
    };
    let settled = |relay: &Standing| relay.returns_at().is_some_and(|at| now >= at);
    let earlier = relays.iter().take(kept).position(settled);
    Some(earlier.unwrap_or(kept))
}

/// Index of the relay that carries uplink while the link of `chosen` is suspect, after `before` did; none while it is not, or when no other is
/// better. `answers`: whether a link is known to work this very moment. One that stands in is left for one that is not suspect
/// only, so that an answer that is late moves nothing.
pub(crate) fn stand_in(
    relays: &[Standing],
    chosen: Option<usize>,
    before: Option<usize>,
    answers: impl Fn(usize) -> bool,
) -> Option<usize> {
    if !relays.get(chosen?)?.suspect {
        return None;
    }
    let before = before.filter(|index| relays.get(*index).is_some_and(|relay| relay.is_usable()));
    if before.is_some_and(|index| relays.get(index).is_some_and(|relay| relay.is_trusted())) {
        return before;
    }
    let mut others = relays.iter().enumerate();
    let other = others.find(|(index, relay)| relay.is_trusted() && answers(*index));
    other.map(|(index, _)| index).or(before)
}

/// Whether [`stand_in`] may find somebody as soon as one answers.
pub(crate) fn lacks_stand_in(
    relays: &[Standing],
    chosen: Option<usize>,
    stand_in: Option<usize>,
) -> bool {
    let of = |index: Option<usize>| index.and_then(|index| relays.get(index));
    let suspect = of(chosen).is_some_and(|relay| relay.suspect);
    let stands_in = of(stand_in).is_some_and(|relay| relay.is_trusted());
    suspect && !stands_in && relays.iter().any(|relay| relay.is_trusted())
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

    /// As `relays`, and `s` up and suspect.
    fn with_suspects(letters: &str) -> Vec<Standing> {
        let mut relays = relays(letters, at(100));
        for (relay, letter) in relays.iter_mut().zip(letters.chars()) {
            relay.set_suspect(letter == 's');
        }
        relays
    }

    #[test]
    fn who_stands_in_by_who_is_suspect_and_who_answers() {
        type Case = (
            &'static str,
            Option<usize>,
            Option<usize>,
            &'static str,
            Option<usize>,
        );
        // Links; the chosen one and who stood in; who answers; who stands in.
        let cases: [Case; 16] = [
            ("uu", None, None, "yy", None),
            ("uu", Some(0), None, "yy", None),
            ("us", Some(0), None, "yn", None),
            ("su", Some(0), None, "ny", Some(1)),
            ("us", Some(1), None, "yn", Some(0)),
            ("suu", Some(0), None, "nny", Some(2)),
            // Nobody answers: it is us, or the network as a whole.
            ("suu", Some(0), None, "nnn", None),
            ("sss", Some(0), None, "nnn", None),
            ("s", Some(0), None, "y", None),
            // What is down or drains does not stand in.
            ("s-", Some(0), None, "ny", None),
            ("sd", Some(0), None, "ny", None),
            ("s-u", Some(0), Some(1), "nny", Some(2)),
            // Once it stands in, a late answer changes nothing; that it is suspect does, when there is a better one.
            ("suu", Some(0), Some(2), "nyn", Some(2)),
            ("sus", Some(0), Some(2), "nyn", Some(1)),
            ("sss", Some(0), Some(2), "nnn", Some(2)),
            ("uuu", Some(0), Some(2), "yyy", None),
        ];
        for (letters, chosen, before, answering, after) in cases {
            let relays = with_suspects(letters);
            let answers = |index| answering.chars().nth(index) == Some('y');
            let found = stand_in(&relays, chosen, before, answers);
            assert_eq!(found, after, "{letters} {chosen:?} {before:?} {answering}");
        }
    }

    #[test]
    fn suspicion_moves_no_choice_and_takes_no_time_away() {
        let mut relays = relays("uu", at(0));
        relays[0].set_suspect(true);
        assert_eq!(choose(&relays, Some(0), at(1)), Some(0));
        assert_eq!(choose(&relays, Some(1), at(10)), Some(0));
        relays[0].set_draining(true, at(20));
        assert_eq!(
            stand_in(&relays, Some(0), None, |index| index == 1),
            Some(1)
        );
        relays[0].set_draining(false, at(20));
        // Down and up again is clear.
        relays[0].change(false, false, at(30));
        relays[0].change(true, false, at(30));
        assert_eq!(stand_in(&relays, Some(0), Some(1), |_| true), None);
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
