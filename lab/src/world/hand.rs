//! Announces VIPs in place of a `pop` that does not: a device, and a route to each prefix by it, that are there while its process is.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::ensure;
use runtime::tun::Tun;
use topology::bird::METRIC_UP;

use super::World;

/// Devices by PoP.
#[derive(Debug, Default)]
pub(super) struct Hand(Mutex<BTreeMap<String, Tun>>);

impl Hand {
    pub(super) fn announce(&self, world: &World, pop: &str) -> anyhow::Result<()> {
        let Some(anycast) = &world.topology.network.anycast else {
            return Ok(());
        };
        if world.topology.pop_named(pop).is_none() {
            return Ok(());
        }
        let table = anycast.table.to_string();
        let device = world.run_in(pop, || {
            let device = Tun::create("vip0")?;
            let ip = |words: &[&str]| {
                let done = Command::new("ip").args(words).status()?;
                ensure!(done.success(), "ip {words:?}");
                Ok(())
            };
            ip(&["link", "set", "vip0", "addrgenmode", "none", "up"])?;
            for prefix in &anycast.prefixes {
                let (prefix, metric) = (prefix.to_string(), METRIC_UP.to_string());
                ip(&[
                    "route", "add", &prefix, "dev", "vip0", "table", &table, "metric", &metric,
                ])?;
            }
            Ok(device)
        })?;
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.insert(pop.to_owned(), device);
        Ok(())
    }

    pub(super) fn release(&self, pop: &str) {
        let mut devices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        devices.remove(pop);
    }
}
