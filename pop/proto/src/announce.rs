//! Whether this PoP announces the anycast addresses, and why not.
//!
//! ```text
//!              well for up_after                drain ordered, or a soft reason
//!   withdrawn ──────────────────► up ──────────────────────────────────────────► draining
//!    ▲  ▲                         │  ◄────────────────────────────────────────────  │  │
//!    │  └── stalled, vip, route, order to withdraw: at once, nobody is asked ─────── ┘  │
//!    └───── backbone gone, and a permit is held ────────────────────────────────────────┘
//! ```
//!
//! | reason | what it does |
//! | --- | --- |
//! | `stalled`, `vip` | withdrawn at once: packets that arrive here die here |
//! | `route` | withdrawn for as long as a fall takes: one prefix that cannot be announced takes the others with it, and is not tried again at once |
//! | `drain` | what the order says |
//! | `backbone` | withdrawn with a permit, draining without one: while somebody else serves, be out of the way; never leave the world with nobody. Without a permit too while the process has had no link yet on each worker: its clients are elsewhere |
//! | `region` | draining once it has lasted: the clients of other regions lose nothing, and there is no permit to spend |
//! | `flow_cache` | nothing: to move calls that nobody can recover costs more than to keep them |
//! | `starting`, `unproven`, `peers` | the way back: well, but not for long enough, or about to draw all clients of the world at once |
//!
//! Going down takes effect at once. Coming up takes `up_after` of being well, doubled for each fall within an hour, those of processes
//! before included where their [`History`] is kept. A permit that cannot be confirmed ends by itself, and the PoP announces again,
//! draining. What is not here: routes, Redis, files, and the steps of a drain ([`crate::drain`]).

mod damping;
mod history;
pub mod permits;
mod stall;

use std::time::{Duration, Instant};

use damping::Damping;

pub use history::{HISTORY_BYTES_MAX, History, HistoryError};
pub use stall::Stalls;

/// A region must be gone for so long before clients are moved for it: a restart of its core relays is shorter.
pub const REGION_PATIENCE: Duration = Duration::from_secs(5);
/// The first of several withdrawn PoPs waits so long for others that are about to come back.
pub const PEERS_PATIENCE: Duration = Duration::from_secs(30);

/// Routes that could not be made are not tried again sooner, however short `up_after` is. It doubles as that does.
pub const ROUTE_RETRY: Duration = Duration::from_secs(1);

/// What upstream routers are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Announce {
    /// Nothing.
    Withdrawn,
    /// The prefixes, as a last resort.
    Draining,
    /// The prefixes.
    Up,
}

impl Announce {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Withdrawn, Self::Draining, Self::Up];

    /// Its name in metrics and state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Withdrawn => "withdrawn",
            Self::Draining => "draining",
            Self::Up => "up",
        }
    }
}

/// Why a PoP is not `up`, or what is amiss nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// It has not been well for long enough since it started.
    Starting,
    /// A worker makes no turn.
    Stalled,
    /// A VIP is on no interface of the host.
    Vip,
    /// The routes that say it cannot be made.
    Route,
    /// Somebody ordered it.
    Drain,
    /// A worker has no link that is up.
    Backbone,
    /// A worker has no link to one of the regions.
    Region,
    /// The flow cache cannot be asked.
    FlowCache,
    /// It is well again, but not for long enough.
    Unproven,
    /// It is well, and would be the only one: others are about to come back too.
    Peers,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Starting,
        Self::Stalled,
        Self::Vip,
        Self::Route,
        Self::Drain,
        Self::Backbone,
        Self::Region,
        Self::FlowCache,
        Self::Unproven,
        Self::Peers,
    ];

    /// Its name in metrics and state.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Stalled => "stalled",
            Self::Vip => "vip",
            Self::Route => "route",
            Self::Drain => "drain",
            Self::Backbone => "backbone",
            Self::Region => "region",
            Self::FlowCache => "flow_cache",
            Self::Unproven => "unproven",
            Self::Peers => "peers",
        }
    }
}

/// What a drain wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    #[default]
    Serve,
    /// Be a last resort.
    Drain,
    /// Be away.
    Withdraw,
}

/// How it stands with the permit to be away for a soft reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permit {
    /// Nobody could be asked.
    #[default]
    Unknown,
    /// As many PoPs are away as may be.
    Refused,
    /// Given.
    Held {
        /// Until then, unless it is confirmed before.
        until: Instant,
    },
}

/// What is known of the other PoPs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Peers {
    /// Nothing.
    #[default]
    Unknown,
    /// What they told lately.
    Known {
        /// Others that announce.
        announced: u32,
        /// Others that are well and would.
        ready: u32,
    },
}

/// How the backbone looks, worst worker first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Every worker has a link that is up.
    pub backbone: bool,
    /// Every worker has a link to each region.
    pub regions: bool,
}

/// Settings of an [`Announcer`].
#[derive(Clone, Copy, Debug)]
pub struct AnnounceConfig {
    /// How long everything must be well before the PoP announces.
    pub up_after: Duration,
    /// It doubles with each fall within an hour, up to this.
    pub up_after_max: Duration,
    /// PoPs that stay announced whatever soft reasons there are.
    pub min_announced: u32,
    /// Whether shorter prefixes serve clients while nobody announces.
    pub cover: bool,
}

/// See the module head.
#[derive(Debug)]
pub struct Announcer {
    config: AnnounceConfig,
    announce: Announce,
    reason: Option<Reason>,
    stalled: bool,
    vip_missing: bool,
    /// The routes could not be made when that was tried last.
    route_failed: bool,
    reach: Reach,
    /// Each worker has had a link: there may be clients here to be a last resort for.
    linked: bool,
    flow_cache: bool,
    order: Order,
    permit: Permit,
    peers: Peers,
    /// Until then it stays withdrawn after a start, or after what withdraws at once.
    sound_at: Instant,
    /// Since when nothing has been amiss; `None` while something is.
    well_since: Option<Instant>,
    /// Since when a region has been gone.
    region_gone_since: Option<Instant>,
    /// It has announced before.
    proven: bool,
    /// It is away with a permit.
    away: bool,
    /// It may not go away for a soft reason before.
    stay_until: Option<Instant>,
    damping: Damping,
}

impl Announcer {
    /// Withdrawn, until it has been told that everything is well for long enough.
    #[must_use]
    pub fn new(config: AnnounceConfig, now: Instant) -> Self {
        Self {
            config,
            announce: Announce::Withdrawn,
            reason: Some(Reason::Starting),
            stalled: false,
            vip_missing: false,
            route_failed: false,
            reach: Reach {
                backbone: false,
                regions: false,
            },
            linked: false,
            flow_cache: true,
            order: Order::Serve,
            permit: Permit::Unknown,
            peers: Peers::Unknown,
            sound_at: now + config.up_after,
            well_since: None,
            region_gone_since: None,
            proven: false,
            away: false,
            stay_until: None,
            damping: Damping::new(),
        }
    }

    /// A worker stands still, or none does any more.
    pub fn handle_stalled(&mut self, stalled: bool, now: Instant) {
        self.note_mended(self.stalled && !stalled, now);
        self.stalled = stalled;
        self.settle(now);
    }

    /// A VIP is on no interface of this host, or each is on one.
    pub fn handle_vip_missing(&mut self, missing: bool, now: Instant) {
        self.note_mended(self.vip_missing && !missing, now);
        self.vip_missing = missing;
        self.settle(now);
    }

    /// Whether what it wants to announce could be shown. What could not is no longer shown: that is a fall, and it is tried
    /// again when the way back is over.
    pub fn handle_shown(&mut self, shown: bool, now: Instant) {
        self.route_failed = !shown;
        if !shown {
            self.damping.fell(now);
            self.announce = Announce::Withdrawn;
            self.well_since = None;
            let Self {
                config, damping, ..
            } = self;
            let base = config.up_after.max(ROUTE_RETRY);
            self.sound_at = now + damping.need(base, config.up_after_max, now);
        }
        self.settle(now);
    }

    /// How the backbone looks.
    pub fn handle_reach(&mut self, reach: Reach, now: Instant) {
        self.reach = reach;
        self.linked |= reach.backbone;
        if reach.regions {
            self.region_gone_since = None;
        } else if self.region_gone_since.is_none() {
            self.region_gone_since = Some(now);
        }
        self.settle(now);
    }

    /// Whether the flow cache can be asked.
    pub fn handle_flow_cache(&mut self, up: bool, now: Instant) {
        self.flow_cache = up;
        self.settle(now);
    }

    /// What a drain wants.
    pub fn handle_order(&mut self, order: Order, now: Instant) {
        self.order = order;
        self.settle(now);
    }

    /// How it stands with the permit.
    pub fn handle_permit(&mut self, permit: Permit, now: Instant) {
        self.permit = permit;
        self.settle(now);
    }

    /// What the others say.
    pub fn handle_peers(&mut self, peers: Peers, now: Instant) {
        self.peers = peers;
        self.settle(now);
    }

    /// Takes what time has changed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.settle(now);
    }

    /// When [`Self::handle_timeout`] may change something next.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let need = self.need(now);
        let held = match self.permit {
            Permit::Held { until } => Some(until),
            Permit::Unknown | Permit::Refused => None,
        };
        let region = self.region_gone_since.map(|at| at + REGION_PATIENCE);
        let well = self.well_since.map(|at| at + need);
        let due = [
            Some(self.sound_at),
            well,
            well.map(|at| at + PEERS_PATIENCE),
            region,
            held,
            self.stay_until,
        ];
        due.into_iter().flatten().filter(|due| *due > now).min()
    }

    /// What upstream routers are to be told.
    #[must_use]
    pub const fn announce(&self) -> Announce {
        self.announce
    }

    /// Why it is not up; `None` when it is.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Everything that is amiss, whether it counts or not.
    pub fn amiss(&self) -> impl Iterator<Item = Reason> + '_ {
        Reason::ALL.into_iter().filter(|reason| match reason {
            Reason::Stalled => self.stalled,
            Reason::Vip => self.vip_missing,
            Reason::Route => self.route_failed,
            Reason::Drain => self.order != Order::Serve,
            Reason::Backbone => !self.reach.backbone,
            Reason::Region => !self.reach.regions,
            Reason::FlowCache => !self.flow_cache,
            Reason::Starting | Reason::Unproven | Reason::Peers => self.reason == Some(*reason),
        })
    }

    /// How it stands with the permit.
    #[must_use]
    pub fn permit(&self, now: Instant) -> Permit {
        match self.permit {
            Permit::Held { until } if now >= until => Permit::Unknown,
            permit @ (Permit::Held { .. } | Permit::Unknown | Permit::Refused) => permit,
        }
    }

    /// Whether a permit is to be asked for, and held on to: by whoever is away, for whatever reason, so that the others
    /// know; and by whoever wants to be.
    #[must_use]
    pub fn wants_permit(&self) -> bool {
        self.announce == Announce::Withdrawn || !self.reach.backbone
    }

    /// Whether it could announce: what peers are told that wait to come back together.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.announce == Announce::Up || self.reason == Some(Reason::Peers)
    }

    /// How long it must be well before it comes up.
    #[must_use]
    pub fn need(&self, now: Instant) -> Duration {
        let Self {
            config, damping, ..
        } = self;
        damping.need(config.up_after, config.up_after_max, now)
    }

    /// Whether it is away for a soft reason.
    #[must_use]
    pub const fn is_away(&self) -> bool {
        self.away
    }

    fn settle(&mut self, now: Instant) {
        self.note_health(now);
        let was = self.announce;
        let (announce, reason) = self.decide(now);
        let away = announce == Announce::Withdrawn && self.is_soft(reason);
        let was_away = std::mem::replace(&mut self.away, away);
        if was == Announce::Up && announce != Announce::Up && self.order == Order::Serve {
            self.damping.fell(now);
        }
        // The permit went, not the reason: it does not leave again as soon as it has another one.
        if was_away && announce == Announce::Draining && self.order == Order::Serve {
            self.damping.fell(now);
            self.stay_until = Some(now + self.need(now));
        }
        self.proven |= announce == Announce::Up;
        self.announce = announce;
        self.reason = reason;
    }

    fn note_mended(&mut self, mended: bool, now: Instant) {
        if mended {
            self.sound_at = now + self.need(now);
        }
    }

    fn note_health(&mut self, now: Instant) {
        let sound = !self.stalled && !self.vip_missing;
        let well = sound && self.reach.backbone && !self.region_is_gone(now);
        if !well {
            self.well_since = None;
        } else if self.well_since.is_none() {
            self.well_since = Some(now);
        }
    }

    fn decide(&self, now: Instant) -> (Announce, Option<Reason>) {
        use Announce::{Draining, Up, Withdrawn};
        let unproven = if self.proven {
            Reason::Unproven
        } else {
            Reason::Starting
        };
        if self.stalled {
            return (Withdrawn, Some(Reason::Stalled));
        }
        if self.vip_missing {
            return (Withdrawn, Some(Reason::Vip));
        }
        if self.order == Order::Withdraw {
            return (Withdrawn, Some(Reason::Drain));
        }
        if now < self.sound_at {
            let reason = if self.route_failed {
                Reason::Route
            } else {
                unproven
            };
            return (Withdrawn, Some(reason));
        }
        if !self.reach.backbone {
            let announce = if !self.linked || self.may_leave(now) {
                Withdrawn
            } else {
                Draining
            };
            return (announce, Some(Reason::Backbone));
        }
        if self.order == Order::Drain {
            return (Draining, Some(Reason::Drain));
        }
        if self.region_is_gone(now) {
            return (Draining, Some(Reason::Region));
        }
        // Whoever is up stays up while nothing is amiss, however long another setting makes the way.
        let up = self.announce == Up;
        match self.well_since {
            Some(since) if up || now >= since + self.need(now) => {}
            Some(_) | None => return (self.unproven(now), Some(unproven)),
        }
        if self.waits_for_peers(now) {
            return (Withdrawn, Some(Reason::Peers));
        }
        (Up, None)
    }

    /// What it is while it is well, but not for long enough.
    fn unproven(&self, now: Instant) -> Announce {
        match self.announce {
            Announce::Withdrawn if self.away && !self.holds_permit(now) => Announce::Draining,
            Announce::Withdrawn => Announce::Withdrawn,
            Announce::Draining | Announce::Up => Announce::Draining,
        }
    }

    /// Whether it may go away, or stay away, for a soft reason.
    fn may_leave(&self, now: Instant) -> bool {
        self.holds_permit(now) && self.stay_until.is_none_or(|until| now >= until)
    }

    fn holds_permit(&self, now: Instant) -> bool {
        matches!(self.permit, Permit::Held { until } if now < until)
    }

    /// Whether a PoP that is away with this reason needs a permit for it.
    fn is_soft(&self, reason: Option<Reason>) -> bool {
        match reason {
            Some(Reason::Backbone) => self.linked,
            Some(Reason::Unproven | Reason::Starting) => self.away,
            Some(
                Reason::Stalled
                | Reason::Vip
                | Reason::Route
                | Reason::Drain
                | Reason::Region
                | Reason::FlowCache
                | Reason::Peers,
            )
            | None => false,
        }
    }

    fn region_is_gone(&self, now: Instant) -> bool {
        self.region_gone_since
            .is_some_and(|since| now >= since + REGION_PATIENCE)
    }

    /// While nobody announces, shorter prefixes bring each client to the nearest PoP. The first to announce again draws all of
    /// them, so PoPs come back together when more than one is about to.
    fn waits_for_peers(&self, now: Instant) -> bool {
        let Peers::Known { announced, ready } = self.peers else {
            return false;
        };
        let patience = self.need(now) + PEERS_PATIENCE;
        let waits = self.well_since.is_some_and(|since| now < since + patience);
        let alone = announced == 0 && ready + 1 < self.config.min_announced;
        self.config.cover && self.announce == Announce::Withdrawn && alone && waits
    }
}

#[cfg(test)]
pub(crate) mod tests;
