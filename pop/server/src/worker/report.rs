//! What a worker tells: log lines about its links, and its figures a few times a second.

use std::time::{Duration, Instant};

use core_relay_link::{DownReason, LinkEvent, LinkId};
use pop_proto::DropReason;

use super::Worker;
use crate::metrics::Totals;
use crate::state::{LinkView, WorkerState};

/// How often figures are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// A failed attempt to connect is logged once in this time; all are counted.
const DIAL_LOG_INTERVAL: Duration = Duration::from_secs(10);

impl Worker {
    pub(super) fn log(&mut self, event: &LinkEvent, now: Instant) {
        match event {
            LinkEvent::Up { peer, worker, .. } => {
                tracing::info!(relay = %peer, relay_worker = worker, "link up");
            }
            LinkEvent::Down {
                peer,
                worker,
                reason,
                ..
            } => {
                if *reason == DownReason::Duplicate {
                    tracing::warn!(
                        relay = %peer,
                        relay_worker = worker,
                        "another process runs with this node's name and has the link: one of the two must stop"
                    );
                }
                let reason = reason.as_str();
                tracing::info!(relay = %peer, relay_worker = worker, reason, "link down");
            }
            LinkEvent::Draining { link, draining } => {
                let relay = self.relay_of(*link);
                tracing::info!(relay, draining, "core relay drains");
            }
            LinkEvent::DialFailed { link, reason } => {
                let quiet = |at: Instant| now < at + DIAL_LOG_INTERVAL;
                if !self.dial_logged.is_some_and(quiet) {
                    self.dial_logged = Some(now);
                    let relay = self.relay_of(*link);
                    tracing::warn!(
                        relay,
                        reason = reason.as_str(),
                        "no link: it is dialed again"
                    );
                }
            }
            LinkEvent::Refused { from, reason } => {
                tracing::debug!(%from, reason = reason.as_str(), "refused");
            }
        }
    }

    fn relay_of(&self, link: LinkId) -> String {
        let stats = self.links.stats(link);
        stats.map_or_else(String::new, |stats| stats.peer.to_string())
    }

    pub(super) fn publish(&mut self, now: Instant) {
        if now < self.publish_at {
            return;
        }
        self.publish_at = now + PUBLISH_INTERVAL;
        let lost = self.reassembler.stats();
        let unfinished = lost.expired + lost.evicted + lost.superseded;
        let drops = &mut self.totals.drops;
        drops.add(DropReason::Reassembly, unfinished - self.totals.unfinished);
        self.totals.unfinished = unfinished;
        let (link_drops, flows) = (self.links.drops(), self.flows.stats());
        self.metrics.publish(&Totals {
            up: self.totals.up,
            down: self.totals.down,
            drops: &self.totals.drops,
            link_drops: &link_drops,
            flows,
            backbone_lost: self.totals.backbone_lost,
            downs: self.links.downs(),
            dials_failed: self.links.refused(),
        });
        for (region, reachable) in self.regions.reachable() {
            self.metrics
                .publish_region(&self.registry, region, !reachable);
        }
        let mut views = Vec::new();
        for link in self.links.all_stats() {
            self.metrics.publish_link(&self.registry, self.index, &link);
            let (region, carries_uplink) = self.regions.role_of(link.id).unwrap_or_default();
            views.push(LinkView {
                relay: link.peer.to_string(),
                relay_worker: link.worker,
                region: region.to_owned(),
                up: link.up_since.is_some(),
                carries_uplink,
                draining: link.draining,
                rtt_us: link.rtt_us,
                jitter_us: link.jitter_us,
                loss_ppm: link.loss_ppm,
                peer_loss_ppm: link.peer_loss_ppm,
            });
        }
        self.heart
            .packets(self.totals.up.packets + self.totals.down.packets);
        self.board.show(WorkerState {
            worker: self.index,
            draining: self.draining,
            flows: flows.flows,
            flows_tentative: flows.tentative,
            flows_by_hint: flows.created,
            flows_by_downlink: flows.learned,
            flows_by_cache: flows.recovered,
            flows_expired: flows.expired,
            flows_ended: flows.ended,
            packets_up: self.totals.up.packets,
            packets_down: self.totals.down.packets,
            drops: self.totals.drops.total(),
            config_generation: self.generation,
            links: views,
        });
    }
}
