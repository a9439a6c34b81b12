//! Every metric of the PoP, declared once. A worker keeps plain totals and publishes them a few times a second.

use core_relay_link::{
    DownCounts, DownReason, LINK_FIGURES, LinkDrop, LinkDrops, LinkFigure, LinkStats,
};
use pop_proto::verdict::Drops;
use pop_proto::{DropReason, Stats};
use runtime::metrics::{Counter, Figure, Gauge, Group, Registry};

use crate::metrics::recovery::RecoveryCells;
use crate::metrics::timing::TimingCells;

mod recovery;
mod timing;

/// Packets and bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

impl Traffic {
    pub(crate) fn count(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += u64::try_from(len).unwrap_or_default();
    }
}

/// One worker's cells.
pub(crate) struct Metrics {
    up: TrafficCells,
    down: TrafficCells,
    drops: Vec<(DropReason, Counter)>,
    link_drops: Vec<(LinkDrop, Counter)>,
    committed: Gauge,
    tentative: Gauge,
    by_hint: Counter,
    by_downlink: Counter,
    by_cache: Counter,
    recovery: RecoveryCells,
    timing: TimingCells,
    expired: Counter,
    ended: Counter,
    backbone_lost: Counter,
    downs: Vec<(DownReason, Counter)>,
    dials_failed: Vec<(DownReason, Counter)>,
    links: Vec<LinkCells>,
    regions: Vec<(String, Gauge)>,
}

struct TrafficCells {
    packets: Counter,
    bytes: Counter,
}

struct LinkCells {
    relay: String,
    relay_worker: u8,
    cells: Group,
}

/// What a worker publishes.
pub(crate) struct Totals<'a> {
    pub(crate) up: Traffic,
    pub(crate) down: Traffic,
    pub(crate) drops: &'a Drops,
    pub(crate) link_drops: &'a LinkDrops,
    pub(crate) flows: Stats,
    pub(crate) backbone_lost: u64,
    pub(crate) downs: &'a DownCounts,
    pub(crate) dials_failed: &'a DownCounts,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let reasons = |name, help| {
            let cell = |reason: DownReason| {
                let labels = [("reason", reason.as_str())];
                (reason, registry.counter(name, "{link}", help, &labels))
            };
            DownReason::ALL.into_iter().map(cell).collect()
        };
        Self {
            up: traffic(registry, "up"),
            down: traffic(registry, "down"),
            drops: DropReason::ALL
                .iter()
                .map(|reason| (*reason, drop_counter(registry, reason.as_str())))
                .collect(),
            link_drops: LinkDrop::ALL
                .into_iter()
                .filter(|reason| as_drop_reason(*reason).is_none())
                .map(|reason| (reason, drop_counter(registry, reason.as_str())))
                .collect(),
            committed: flows_gauge(registry, "committed"),
            tentative: flows_gauge(registry, "tentative"),
            by_hint: flows_made(registry, "hint"),
            by_downlink: flows_made(registry, "downlink"),
            by_cache: flows_made(registry, "cache"),
            recovery: RecoveryCells::new(registry),
            timing: TimingCells::new(registry),
            expired: registry.counter(
                "pop.flows_expired",
                "{flow}",
                "Flows that fell silent or were never answered.",
                &[],
            ),
            ended: registry.counter(
                "pop.flows_ended",
                "{flow}",
                "Flows whose owner said that the session is over.",
                &[],
            ),
            backbone_lost: registry.counter(
                "pop.backbone_send_failures",
                "{datagram}",
                "UDP payloads that the kernel refused on the backbone socket; QUIC sees them as loss.",
                &[],
            ),
            downs: reasons("pop.link_downs", "Links that went down."),
            dials_failed: reasons(
                "pop.dials_failed",
                "Attempts to connect to a core relay that came to nothing.",
            ),
            links: Vec::new(),
            regions: Vec::new(),
        }
    }

    pub(crate) fn publish(&self, totals: &Totals<'_>) {
        self.up.set(totals.up);
        self.down.set(totals.down);
        for (reason, counter) in &self.drops {
            let in_links: u64 = LinkDrop::ALL
                .into_iter()
                .filter(|link| as_drop_reason(*link) == Some(*reason))
                .map(|link| totals.link_drops.count(link))
                .sum();
            counter.set_total(totals.drops.get(*reason) + in_links);
        }
        for (reason, counter) in &self.link_drops {
            counter.set_total(totals.link_drops.count(*reason));
        }
        let flows = totals.flows;
        self.committed
            .set_count(flows.flows.saturating_sub(flows.tentative));
        self.tentative.set_count(flows.tentative);
        self.by_hint.set_total(flows.created);
        self.by_downlink.set_total(flows.learned);
        self.by_cache.set_total(flows.recovered);
        self.recovery.set(&flows);
        self.timing.set(&flows.timing);
        self.expired.set_total(flows.expired);
        self.ended.set_total(flows.ended);
        self.backbone_lost.set_total(totals.backbone_lost);
        for (reason, counter) in &self.downs {
            counter.set_total(totals.downs.count(*reason));
        }
        for (reason, counter) in &self.dials_failed {
            counter.set_total(totals.dials_failed.count(*reason));
        }
    }

    /// Publishes one link. Its cells are made when it is first seen; links are few and named by the topology.
    pub(crate) fn publish_link(&mut self, registry: &Registry, worker: u8, link: &LinkStats) {
        let known =
            |cells: &&LinkCells| *cells.relay == *link.peer && cells.relay_worker == link.worker;
        if !self.links.iter().any(|cells| known(&cells)) {
            self.links.push(LinkCells::new(registry, worker, link));
        }
        if let Some(cells) = self.links.iter().find(known) {
            cells.set(link);
        }
    }

    /// Publishes whether the worker lacks a link to a region of the topology.
    pub(crate) fn publish_region(&mut self, registry: &Registry, region: &str, cut_off: bool) {
        if !self.regions.iter().any(|(name, _)| name == region) {
            let gauge = registry.gauge(
                "pop.region.workers_cut_off",
                "{worker}",
                "Workers without a link to the region.",
                &[("region", region)],
            );
            self.regions.push((region.to_owned(), gauge));
        }
        if let Some((_, gauge)) = self.regions.iter().find(|(name, _)| name == region) {
            gauge.set_count(cut_off.into());
        }
    }

    /// Regions that are served no longer lack nothing.
    pub(crate) fn retire_regions(&self, still_there: impl Fn(&str) -> bool) {
        for (_, gauge) in self.regions.iter().filter(|(name, _)| !still_there(name)) {
            gauge.set_count(0);
        }
    }

    /// Shows links as down that the topology no longer names.
    pub(crate) fn retire_links(&self, still_there: impl Fn(&str, u8) -> bool) {
        for cells in &self.links {
            if !still_there(&cells.relay, cells.relay_worker) {
                cells.cells.retire();
            }
        }
    }
}

/// Losses inside a link that are the same to an operator as losses in front of it.
pub(crate) const fn as_drop_reason(reason: LinkDrop) -> Option<DropReason> {
    match reason {
        LinkDrop::NotUp => Some(DropReason::LinkDown),
        LinkDrop::QueueFull => Some(DropReason::LinkFull),
        LinkDrop::TooLarge => Some(DropReason::Oversize),
        LinkDrop::Malformed
        | LinkDrop::Unbound
        | LinkDrop::InboxFull
        | LinkDrop::HalfOpenFull
        | LinkDrop::AnswersFull => None,
    }
}

fn traffic(registry: &Registry, direction: &'static str) -> TrafficCells {
    let labels = [("direction", direction)];
    TrafficCells {
        packets: registry.counter(
            "pop.packets",
            "{packet}",
            "Client packets forwarded: up to core relays, down to clients.",
            &labels,
        ),
        bytes: registry.counter("pop.bytes", "By", "Payload of `pop.packets`.", &labels),
    }
}

impl TrafficCells {
    fn set(&self, traffic: Traffic) {
        self.packets.set_total(traffic.packets);
        self.bytes.set_total(traffic.bytes);
    }
}

fn drop_counter(registry: &Registry, reason: &str) -> Counter {
    registry.counter(
        "pop.drops",
        "{packet}",
        "Packets dropped; in a link's queue, datagrams.",
        &[("reason", reason)],
    )
}

fn flows_gauge(registry: &Registry, state: &str) -> Gauge {
    registry.gauge(
        "pop.flows",
        "{flow}",
        "Flows there are.",
        &[("state", state)],
    )
}

fn flows_made(registry: &Registry, by: &str) -> Counter {
    registry.counter(
        "pop.flows_made",
        "{flow}",
        "Flows made by a client's hint, by downlink for a client the PoP had forgotten, or by an answer of the flow cache.",
        &[("by", by)],
    )
}

impl LinkCells {
    fn new(registry: &Registry, worker: u8, link: &LinkStats) -> Self {
        let (worker, relay_worker) = (worker.to_string(), link.worker.to_string());
        let labels = [
            ("relay", &*link.peer),
            ("worker", worker.as_str()),
            ("relay_worker", relay_worker.as_str()),
        ];
        let figure = |figure: LinkFigure| Figure {
            name: figure.pop,
            unit: figure.unit,
            help: figure.help,
            rises: figure.rises,
        };
        Self {
            relay: link.peer.to_string(),
            relay_worker: link.worker,
            cells: registry.group(LINK_FIGURES.map(figure), &labels),
        }
    }

    fn set(&self, link: &LinkStats) {
        self.cells
            .set(LINK_FIGURES.map(|figure| (figure.read)(link)));
    }
}
