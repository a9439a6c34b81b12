//! What BIRD reads: a device that this process holds, and a route through it for each prefix, whose metric is the state.
//!
//! The device is not persistent: however the process ends, the kernel takes it away, and the routes with it. Prefixes are announced
//! together or not at all: before the first of them is, each has had a route that BIRD ignores.

use std::io;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use pop_proto::announce::Announce;
use runtime::routes::{Route, Routes};
use runtime::tun::Tun;
use topology::Anycast;
use topology::bird::{METRIC_DRAINING, METRIC_PROOF, METRIC_UP};

/// Name of the device.
pub(super) const DEVICE: &str = "vip0";
/// How often routes are made again that somebody may have taken away.
const RESTORE_INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct Signpost {
    prefixes: Vec<IpNet>,
    table: u32,
    standing: Option<Standing>,
    shown: Announce,
    restore_at: Option<Instant>,
}

struct Standing {
    routes: Routes,
    device: u32,
    /// Nothing is ever read from it: no packet is routed there.
    _tun: Tun,
}

impl Signpost {
    /// Makes the device, and takes away what somebody has left in the table.
    pub(super) fn raise(anycast: &Anycast) -> io::Result<Self> {
        let mut signpost = Self {
            prefixes: anycast.prefixes.clone(),
            table: anycast.table,
            standing: None,
            shown: Announce::Withdrawn,
            restore_at: None,
        };
        let mut standing = Standing::raise()?;
        for prefix in &signpost.prefixes {
            let left = standing.routes.clear(*prefix, signpost.table)?;
            if left > 0 {
                tracing::warn!(%prefix, table = signpost.table, left, "routes of somebody else were in the table: they are gone");
            }
        }
        signpost.standing = Some(standing);
        Ok(signpost)
    }

    /// What the routes say.
    pub(super) const fn shown(&self) -> Announce {
        self.shown
    }

    /// Makes the routes say it, and go on saying it.
    ///
    /// # Errors
    /// They do not. Nothing is shown: the device is gone, and every route with it.
    pub(super) fn show(&mut self, announce: Announce, now: Instant) -> io::Result<()> {
        let restores = self.restore_at.is_some_and(|at| now >= at);
        if self.shown == announce && !restores {
            return Ok(());
        }
        let done = self.change(announce);
        if done.is_err() {
            self.standing = None;
            self.shown = Announce::Withdrawn;
        }
        self.restore_at = match self.shown {
            Announce::Withdrawn => None,
            Announce::Draining | Announce::Up => Some(now + RESTORE_INTERVAL),
        };
        done
    }

    /// What is new first, then what was goes, so that there is no moment without.
    fn change(&mut self, announce: Announce) -> io::Result<()> {
        let mut standing = match self.standing.take() {
            Some(standing) => standing,
            None => Standing::raise()?,
        };
        let device = standing.device;
        let route = |prefix: &IpNet, metric| Route {
            prefix: *prefix,
            table: self.table,
            metric,
            device,
        };
        if self.shown == Announce::Withdrawn {
            self.prove(&mut standing.routes, route)?;
        }
        for prefix in &self.prefixes {
            if let Some(new) = metric(announce) {
                standing.routes.set(&route(prefix, new))?;
            }
            if let Some(old) = metric(self.shown).filter(|_| self.shown != announce) {
                standing.routes.delete(&route(prefix, old))?;
            }
        }
        self.standing = Some(standing);
        self.shown = announce;
        Ok(())
    }

    /// Whether a route can be made for each prefix: one that cannot, as IPv6 where it is switched off, must not have the others come and go.
    fn prove(&self, routes: &mut Routes, route: impl Fn(&IpNet, u32) -> Route) -> io::Result<()> {
        for prefix in &self.prefixes {
            let proof = route(prefix, METRIC_PROOF);
            routes.set(&proof)?;
            routes.delete(&proof)?;
        }
        Ok(())
    }
}

impl Standing {
    fn raise() -> io::Result<Self> {
        let tun = Tun::create(DEVICE)?;
        let mut routes = Routes::open()?;
        let device = routes.device_up(DEVICE)?;
        Ok(Self {
            routes,
            device,
            _tun: tun,
        })
    }
}

const fn metric(announce: Announce) -> Option<u32> {
    match announce {
        Announce::Withdrawn => None,
        Announce::Draining => Some(METRIC_DRAINING),
        Announce::Up => Some(METRIC_UP),
    }
}
