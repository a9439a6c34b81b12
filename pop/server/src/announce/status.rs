//! What `/state` and `/v1/drain` show of announcements and drains. The thread writes it when nobody reads at that moment.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use pop_proto::announce::Permit;
use pop_proto::drain::Drain;
use runtime::watch::STALLED_AFTER;
use serde::Serialize;
use topology::Anycast;

use super::plane::Plane;
use crate::ingress::Addresses;

/// See the module head.
pub(crate) struct Status {
    views: Mutex<Views>,
    began: Instant,
    /// When the thread looked last, after `began`.
    looked_ms: AtomicU64,
}

#[derive(Clone)]
struct Views {
    announce: Option<AnnounceView>,
    drain: DrainView,
}

/// Announcements as `/state` shows them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AnnounceView {
    /// What the routes say: `up`, `draining`, `withdrawn`.
    announce: &'static str,
    /// Why it is not `up`.
    reason: Option<&'static str>,
    /// Everything that is amiss.
    amiss: Vec<&'static str>,
    /// `held`, `refused`, `unknown`.
    permit: &'static str,
    /// PoPs that may be away at once.
    permit_slots: u32,
    /// How long everything must be well before it comes up.
    up_after_ms: u64,
    /// Falls within the last hour, each of which doubles that.
    falls: usize,
    prefixes: Vec<IpNet>,
    table: u32,
    device: &'static str,
    vips: Vec<SocketAddr>,
}

/// A drain as `/v1/drain` shows it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct DrainView {
    /// Whose it is.
    node: String,
    /// Whether an operator ordered it.
    ordered: bool,
    /// Whether the order outlives the process.
    kept: bool,
    step: &'static str,
    in_step_ms: u64,
    announce: Option<&'static str>,
    /// Steps that are over, of this drain or the last.
    steps: Vec<StepView>,
    /// Packets of clients on VIPs a second: before the drain, and lately.
    vip_pps_before: u64,
    vip_pps: u64,
    /// Packets of sessions that were dropped since it began.
    lost: u64,
    flows_unstored: u64,
    flows_left: u64,
    /// Of the answer to an order: other PoPs that are up.
    #[serde(skip_serializing_if = "Option::is_none")]
    others_up: Option<OthersUp>,
}

/// How many other PoPs are up.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(super) enum OthersUp {
    Known(u32),
    Unknown(&'static str),
}

/// A step that is over.
#[derive(Clone, Debug, Serialize)]
struct StepView {
    step: &'static str,
    took_ms: u64,
    effect: &'static str,
    good: bool,
}

impl Status {
    pub(super) fn new(anycast: Option<&Anycast>, addresses: &Addresses, now: Instant) -> Self {
        let announce = anycast.map(|anycast| AnnounceView {
            announce: "withdrawn",
            reason: None,
            amiss: Vec::new(),
            permit: "unknown",
            permit_slots: 0,
            up_after_ms: 0,
            falls: 0,
            prefixes: anycast.prefixes.clone(),
            table: anycast.table,
            device: super::signpost::DEVICE,
            vips: addresses.vips().collect(),
        });
        let drain = DrainView {
            step: "serving",
            ..DrainView::default()
        };
        Self {
            views: Mutex::new(Views { announce, drain }),
            began: now,
            looked_ms: AtomicU64::new(0),
        }
    }

    pub(super) fn show(&self, drain: &Drain, plane: Option<&Plane>, ordered: bool, now: Instant) {
        let since = now.saturating_duration_since(self.began);
        self.looked_ms.store(ms(since), Ordering::Relaxed);
        let Ok(mut views) = self.views.try_lock() else {
            return;
        };
        let shown = plane.map(|plane| plane.signpost.shown().as_str());
        views.drain = drain_view(drain, shown, ordered, now);
        if let (Some(view), Some(plane)) = (&mut views.announce, plane) {
            let announcer = &plane.announcer;
            view.announce = plane.signpost.shown().as_str();
            view.reason = announcer.reason().map(|reason| reason.as_str());
            view.amiss = announcer.amiss().map(|reason| reason.as_str()).collect();
            view.permit = match announcer.permit(now) {
                Permit::Unknown => "unknown",
                Permit::Refused => "refused",
                Permit::Held { .. } => "held",
            };
            view.permit_slots = plane.office.slots();
            view.up_after_ms = ms(announcer.need(now));
            view.falls = announcer.falls(now);
        }
    }

    /// Whether the thread that announces and drains has not looked for long.
    pub(crate) fn stands_still(&self, now: Instant) -> bool {
        let looked = self.began + Duration::from_millis(self.looked_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(looked) > STALLED_AFTER
    }

    /// For `/state`.
    pub(crate) fn announce(&self) -> Option<AnnounceView> {
        self.views().announce
    }

    /// With whose it is, and whether it is ordered and that is kept at this moment: the thread may not have seen it yet.
    pub(crate) fn drain(&self, node: &str, ordered: bool, kept: bool) -> DrainView {
        DrainView {
            node: node.to_owned(),
            ordered,
            kept,
            ..self.views().drain
        }
    }

    fn views(&self) -> Views {
        self.views
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl DrainView {
    pub(super) const fn with_others_up(mut self, others_up: Option<OthersUp>) -> Self {
        self.others_up = others_up;
        self
    }
}

fn drain_view(
    drain: &Drain,
    announce: Option<&'static str>,
    ordered: bool,
    now: Instant,
) -> DrainView {
    let (vip_pps_before, vip_pps) = drain.traffic_pps(now);
    let steps = drain.passed().iter().map(|passed| StepView {
        step: passed.step.as_str(),
        took_ms: ms(passed.took),
        effect: passed.effect.as_str(),
        good: passed.effect.is_good(),
    });
    DrainView {
        node: String::new(),
        ordered,
        kept: false,
        step: drain.step().as_str(),
        in_step_ms: ms(drain.in_step(now)),
        announce,
        steps: steps.collect(),
        vip_pps_before,
        vip_pps,
        lost: drain.lost(),
        flows_unstored: drain.unstored(),
        flows_left: drain.flows_left(),
        others_up: None,
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
