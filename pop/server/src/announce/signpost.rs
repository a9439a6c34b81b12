//! What BIRD reads: a device that this process holds, and a route through it for each prefix, whose metric is the state.
//!
//! The device is not persistent: however the process ends, the kernel takes it away, and the routes with it.

use std::io;

use ipnet::IpNet;
use pop_proto::announce::Announce;
use runtime::routes::{Route, Routes};
use runtime::tun::Tun;
use topology::Anycast;
use topology::bird::{METRIC_DRAINING, METRIC_UP};

/// Name of the device.
pub(super) const DEVICE: &str = "vip0";

pub(super) struct Signpost {
    prefixes: Vec<IpNet>,
    table: u32,
    standing: Option<Standing>,
    shown: Announce,
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

    /// Makes the routes say it: what is new first, then what was goes, so that there is no moment without.
    pub(super) fn show(&mut self, announce: Announce) -> io::Result<()> {
        if self.shown == announce {
            return Ok(());
        }
        let mut standing = match self.standing.take() {
            Some(standing) => standing,
            None => Standing::raise()?,
        };
        for prefix in &self.prefixes {
            let route = |metric| Route {
                prefix: *prefix,
                table: self.table,
                metric,
                device: standing.device,
            };
            let (new, old) = (metric(announce).map(route), metric(self.shown).map(route));
            if let Some(new) = new {
                standing.routes.set(&new)?;
            }
            if let Some(old) = old {
                standing.routes.delete(&old)?;
            }
        }
        self.standing = Some(standing);
        self.shown = announce;
        Ok(())
    }

    /// Takes away everything, device and all.
    pub(super) fn fell(&mut self) {
        self.standing = None;
        self.shown = Announce::Withdrawn;
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
