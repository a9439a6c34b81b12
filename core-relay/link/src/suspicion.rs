//! Links that are up and fell silent: noticed long before they are down, told to both ends, and taken back at the first sign of life.
//!
//! ```text
//!                  not heard for suspect_after, or the peer says so of us
//!          clear ─────────────────────────────────────────────────────────► suspect ──► down, as in `health.rs`
//!                ◄─────────────────────────────────────────────────────────
//!                  anything heard, and the peer hears us
//! ```
//!
//! Nothing is closed, dropped or sent again: whoever chooses among links may pass a suspect one by until it is clear. A wrong suspicion
//! therefore costs nothing, so it may be quick. An end that hears nothing says so in a Ping at once, and when it hears again: of a
//! path that fails one way the other end would learn only when the link is down.
//!
//! A worker that stood still hears nothing of anybody, and is heard by nobody. It knows from the Ping that it did not send in time, and
//! neither its own silence nor what peers say of it counts.

use std::time::{Duration, Instant};

use crate::link::{LinkId, LinkState};
use crate::links::{LinkEvent, Links};

impl Links {
    /// Whether the peer has answered so lately that the path works both ways as far as can be known: who looks for a link in place
    /// of a suspect one takes none that does not. When all fail at once, none does.
    #[must_use]
    pub fn answers(&self, id: LinkId, now: Instant) -> bool {
        let link = self.link_at(id);
        link.is_some_and(|link| link.up_since.is_some() && link.health.answers(now))
    }

    /// A Ping that is late by this much was held up by us.
    pub(crate) fn late_min(&self) -> Duration {
        Duration::from_millis(self.config.link.heartbeat_ms.into()) / 4
    }

    /// Takes the time in which we stood still out of every silence. Pings are sent in time by whoever has turns.
    pub(crate) fn excuse_standstill(&mut self, now: Instant) {
        let late_min = self.late_min();
        let attached = self.links.iter_mut().flatten();
        for link in attached.filter(|link| link.is_attached()) {
            let late = now.saturating_duration_since(link.next_ping);
            if late >= late_min {
                link.health.excuse(late, now);
            }
        }
    }

    /// Looks whether a link has become silent.
    pub(crate) fn listen(&mut self, index: usize, now: Instant) {
        if let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) {
            state.health.listen(now);
            self.judge(index, now);
        }
    }

    /// Tells our side and the peer when something else is to be said of a link than was.
    pub(crate) fn judge(&mut self, index: usize, now: Instant) {
        let Some(state) = self.links.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let suspect = state.is_suspect();
        let changed = std::mem::replace(&mut state.suspect, suspect) != suspect;
        state.suspected += u64::from(changed && suspect);
        let tells = state.says_deaf != state.health.is_silent();
        if tells {
            self.send_ping(index, now);
        }
        if let Some(link) = self.id(index).filter(|_| changed) {
            self.event(LinkEvent::Suspect { link, suspect });
        }
    }
}

impl LinkState {
    fn is_suspect(&self) -> bool {
        self.up_since.is_some() && self.health.is_suspect()
    }

    /// Whether [`Links::judge`] has something to say.
    pub(crate) fn is_judged_otherwise(&self) -> bool {
        self.suspect != self.is_suspect() || self.says_deaf != self.health.is_silent()
    }
}
