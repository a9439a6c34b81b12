//! What a worker tells: log lines about its links, and its figures a few times a second.

use std::time::{Duration, Instant};

use core_relay_link::{DownReason, LinkDrop, LinkDrops, LinkEvent, LinkId};
use pop_proto::DropReason;
use pop_proto::announce::Reach;
use runtime::log_limit::LogLimit;

use super::Worker;
use crate::metrics::{Totals, as_drop_reason};
use crate::state::{LinkView, OwnerRtt, WorkerState};
use crate::vitals::Figures;

/// How often figures are published.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
/// Lines about links are bounded in this time; everything is counted.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Links up, and links down, that are logged in it: those of a few core relays at once.
const LINK_LINES_MAX: u32 = 20;

/// Bounds of the lines that a peer, or a network that flaps, can cause.
pub(super) struct LogLimits {
    up: LogLimit,
    down: LogLimit,
    duplicate: LogLimit,
    draining: LogLimit,
    dial_failed: LogLimit,
}

impl LogLimits {
    pub(super) const fn new() -> Self {
        Self {
            up: LogLimit::new(LINK_LINES_MAX, LOG_INTERVAL),
            down: LogLimit::new(LINK_LINES_MAX, LOG_INTERVAL),
            duplicate: LogLimit::new(1, LOG_INTERVAL),
            draining: LogLimit::new(LINK_LINES_MAX, LOG_INTERVAL),
            dial_failed: LogLimit::new(1, LOG_INTERVAL),
        }
    }
}

impl Worker {
    pub(super) fn log(&mut self, event: &LinkEvent, now: Instant) {
        match event {
            LinkEvent::Up { peer, worker, .. } => {
                if let Some(unlogged) = self.log_limits.up.admit(now) {
                    tracing::info!(relay = %peer, relay_worker = worker, unlogged, "link up");
                }
            }
            LinkEvent::Down {
                peer,
                worker,
                reason,
                ..
            } => {
                if *reason == DownReason::Duplicate
                    && self.log_limits.duplicate.admit(now).is_some()
                {
                    tracing::warn!(
                        relay = %peer,
                        relay_worker = worker,
                        "another process runs with this node's name and has the link: one of the two must stop"
                    );
                }
                if let Some(unlogged) = self.log_limits.down.admit(now) {
                    let reason = reason.as_str();
                    tracing::info!(relay = %peer, relay_worker = worker, reason, unlogged, "link down");
                }
            }
            LinkEvent::Draining { link, draining } => {
                if let Some(unlogged) = self.log_limits.draining.admit(now) {
                    let relay = self.relay_of(*link);
                    tracing::info!(relay, draining, unlogged, "core relay drains");
                }
            }
            LinkEvent::Suspect { link, suspect } => {
                let relay = self.relay_of(*link);
                tracing::debug!(
                    relay,
                    suspect,
                    "core relay not heard lately, or heard again"
                );
            }
            LinkEvent::DialFailed { link, reason } => {
                if let Some(unlogged) = self.log_limits.dial_failed.admit(now) {
                    let relay = self.relay_of(*link);
                    tracing::warn!(
                        relay,
                        reason = reason.as_str(),
                        unlogged,
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
        while let Some(sample) = self.flows.next_sample() {
            self.samples.push(sample);
        }
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
        let links = self.links();
        self.show_vitals(flows.flows, &link_drops);
        let owner_rtts = self.owner_rtts();
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
            questions: flows.questions,
            questions_open: flows.open_questions,
            packets_held: flows.held_packets,
            rtt_samples: flows.timing.samples,
            owner_rtts,
            packets_up: self.totals.up.packets,
            packets_down: self.totals.down.packets,
            drops: self.totals.drops.total(),
            config_generation: self.generation,
            links,
        });
    }

    fn show_vitals(&self, flows: u64, link_drops: &LinkDrops) {
        let mut reach = Reach {
            backbone: false,
            regions: true,
        };
        for (_, reachable) in self.regions.reachable() {
            reach.backbone |= reachable;
            reach.regions &= reachable;
        }
        let counted = DropReason::ALL.iter().filter(|reason| reason.is_loss());
        let dropped: u64 = counted.map(|reason| self.totals.drops.get(*reason)).sum();
        let on_links: u64 = link_drops
            .iter()
            .filter(|(reason, _)| is_loss(*reason))
            .map(|(_, count)| count)
            .sum();
        let figures = Figures {
            vip_packets: self.vip_packets,
            lost: dropped + on_links + self.totals.backbone_lost,
            flows,
        };
        self.board.vitals.show(self.index, reach, figures);
    }

    fn links(&mut self) -> Vec<LinkView> {
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
                suspect: link.suspect,
                rtt_us: link.rtt_us,
                jitter_us: link.jitter_us,
                loss_ppm: link.loss_ppm,
                peer_loss_ppm: link.peer_loss_ppm,
            });
        }
        views
    }

    fn owner_rtts(&self) -> Vec<OwnerRtt> {
        let named = self.flows.owner_rtts().filter_map(|(region, rtt_us)| {
            let region = self.regions.name_of(region)?.to_owned();
            Some(OwnerRtt { region, rtt_us })
        });
        named.collect()
    }
}

/// Whether what links drop for this reason are packets of sessions.
fn is_loss(reason: LinkDrop) -> bool {
    reason == LinkDrop::InboxFull || as_drop_reason(reason).is_some_and(DropReason::is_loss)
}
