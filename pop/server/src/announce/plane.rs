//! Of a PoP that announces: everything the decision is made of, the decision, and what makes it so.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use pop_proto::announce::{Announce, AnnounceConfig, Announcer, Stalls};
use pop_proto::drain::Drain;
use runtime::log_limit::LogLimit;
use runtime::metrics::Counter;
use runtime::node::{NodeContext, Refused};
use topology::{Anycast, Pop};

use super::keeper::Keeper;
use super::permit::Office;
use super::signpost::{self, Signpost};
use super::{Cache, LOOK};
use crate::ingress::Addresses;
use crate::state::Board;

/// How often it looks whether each VIP is on an interface.
const VIPS_INTERVAL: Duration = Duration::from_secs(1);
/// Lines about a device or route that could not be made in [`LOG_INTERVAL`].
const LOG_LINES_MAX: u32 = 3;
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// See the module head.
pub(super) struct Plane {
    pub(super) announcer: Announcer,
    stalls: Stalls,
    pub(super) office: Office,
    pub(super) signpost: Signpost,
    keeper: Option<Keeper>,
    addresses: Addresses,
    vip_missing: bool,
    vips_at: Instant,
    log: LogLimit,
    /// How often routes could not be made.
    unmade: Counter,
    told: Announce,
}

impl Plane {
    pub(super) fn new(
        context: &NodeContext,
        (pop, anycast): (&Pop, &Anycast),
        addresses: &Addresses,
        now: Instant,
    ) -> anyhow::Result<Self> {
        let signpost = Signpost::raise(anycast).map_err(not_raised)?;
        let mut announcer = Announcer::new(announce_config(anycast), now);
        let keeper = Keeper::open(context).map(|(keeper, history)| {
            announcer.handle_history(&history, now);
            keeper
        });
        if announcer.falls(now) > 0 {
            let (falls, up_after) = (announcer.falls(now), announcer.need(now));
            tracing::warn!(
                falls,
                ?up_after,
                "this PoP fell within the last hour: it comes up more slowly"
            );
        }
        Ok(Self {
            announcer,
            stalls: Stalls::new(stalled_after(anycast), 2 * LOOK, now),
            office: Office::open(context, pop)?,
            signpost,
            keeper,
            addresses: addresses.clone(),
            vip_missing: false,
            vips_at: now,
            log: LogLimit::new(LOG_LINES_MAX, LOG_INTERVAL),
            unmade: context.metrics.counter(
                "pop.announce.routes_unmade",
                "{try}",
                "How often the device or its routes could not be made, and nothing was announced.",
                &[],
            ),
            told: Announce::Withdrawn,
        })
    }

    /// Settings of a reload.
    pub(super) fn follow(&mut self, anycast: &Anycast, now: Instant) {
        self.announcer.set_config(announce_config(anycast), now);
        self.stalls.set_after(stalled_after(anycast));
    }

    /// The routes go, and nobody is told of a fall that was none.
    pub(super) fn end(self, as_told: bool, now: Instant) {
        let Self {
            announcer,
            signpost,
            keeper,
            ..
        } = self;
        drop(signpost);
        if let Some(keeper) = keeper.filter(|_| as_told) {
            keeper.end(&announcer, now);
        }
    }

    /// Looks at everything, decides, and makes it so.
    pub(super) fn look(
        &mut self,
        board: &Board,
        cache: Option<&Cache>,
        drain: &Drain,
        now: Instant,
    ) {
        self.look_for_vips(now);
        let announcer = &mut self.announcer;
        let stalled = self.stalls.look(board.vitals.turns(), now);
        announcer.handle_stalled(stalled.is_some(), now);
        announcer.handle_reach(board.vitals.reach(), now);
        announcer.handle_order(drain.order(), now);
        if let Some(up) = cache.and_then(Cache::is_up) {
            announcer.handle_flow_cache(up, now);
        }
        if let Some(said) = self.office.said() {
            announcer.handle_permit(said.permit, now);
            announcer.handle_peers(said.peers, now);
        }
        announcer.handle_timeout(now);
        self.show(now);
        let announcer = &self.announcer;
        if let Some(keeper) = &mut self.keeper {
            keeper.keep(announcer, now);
        }
        self.office.tell(
            announcer.wants_permit(),
            self.signpost.shown(),
            announcer.is_ready(),
        );
    }

    /// Makes the routes what has been decided, and hears whether they are.
    fn show(&mut self, now: Instant) {
        let wanted = self.announcer.announce();
        let shown = self.signpost.show(wanted, now);
        if shown.is_err() {
            self.unmade.add(1);
        }
        if let Err(error) = &shown
            && let Some(unlogged) = self.log.admit(now)
        {
            tracing::warn!(%error, unlogged, "routes to BIRD: nothing is announced, it is tried again later");
        }
        if shown.is_err() || wanted != Announce::Withdrawn {
            self.announcer.handle_shown(shown.is_ok(), now);
        }
        self.say(self.signpost.shown());
    }

    /// What came for a VIP that is on no interface would be answered by nobody.
    fn look_for_vips(&mut self, now: Instant) {
        if now < self.vips_at {
            return;
        }
        self.vips_at = now + VIPS_INTERVAL;
        let missing = self.addresses.vips_missing().next();
        let was = std::mem::replace(&mut self.vip_missing, missing.is_some());
        self.announcer.handle_vip_missing(missing.is_some(), now);
        if let Some(vip) = missing.filter(|_| !was)
            && let Some(unlogged) = self.log.admit(now)
        {
            tracing::warn!(%vip, unlogged, "this VIP is on no interface of this host, so nothing is announced: put it on lo");
        }
    }

    /// What is announced, and why, as often as it changes. Damping bounds how often that is.
    fn say(&mut self, announce: Announce) {
        if self.told == announce {
            return;
        }
        self.told = announce;
        let reason = self
            .announcer
            .reason()
            .map_or("well", |reason| reason.as_str());
        let announce = announce.as_str();
        match self.told {
            Announce::Up => tracing::info!(announce, reason, "VIPs"),
            Announce::Draining | Announce::Withdrawn => tracing::warn!(announce, reason, "VIPs"),
        }
    }
}

fn announce_config(anycast: &Anycast) -> AnnounceConfig {
    AnnounceConfig {
        up_after: Duration::from_secs(anycast.up_after_s.into()),
        up_after_max: Duration::from_secs(anycast.up_after_max_s.into()),
        min_announced: anycast.min_announced.into(),
        cover: !anycast.cover.is_empty(),
    }
}

fn stalled_after(anycast: &Anycast) -> Duration {
    Duration::from_millis(anycast.stalled_after_ms.into())
}

pub(super) fn linger(anycast: &Anycast) -> Duration {
    Duration::from_secs(anycast.linger_s.into())
}

/// Why a PoP cannot begin.
fn not_raised(error: std::io::Error) -> anyhow::Error {
    let device = signpost::DEVICE;
    if error.kind() == ErrorKind::PermissionDenied {
        let text = "network.anycast needs the right to make a device and routes (CAP_NET_ADMIN, /dev/net/tun)";
        return anyhow::Error::new(Refused(format!("{text}: {error}")));
    }
    let why = if error.kind() == ErrorKind::ResourceBusy {
        ": it is there already. Another pop of this host announces (one can), or it was made to outlive its process, and routes through it would, too"
    } else {
        ""
    };
    anyhow::Error::new(error).context(format!("device {device} for routes to BIRD{why}"))
}
