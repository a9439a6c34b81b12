//! Every metric of the core relay, declared once. A worker keeps plain totals and publishes them a few times a second.

use core_relay_link::{
    DownCounts, DownReason, LINK_FIGURES, LinkDrop, LinkDrops, LinkFigure, LinkStats,
};
use core_relay_proto::DropReason;
use core_relay_proto::verdict::Drops;
use runtime::metrics::{Counter, Figure, Group, Registry};
use wire::sequence::Arrivals;

/// Records and payload bytes of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) records: u64,
    pub(crate) bytes: u64,
}

impl Traffic {
    pub(crate) fn count(&mut self, len: usize) {
        self.records += 1;
        self.bytes += u64::try_from(len).unwrap_or_default();
    }
}

/// One worker's cells.
pub(crate) struct Metrics {
    registry: Registry,
    worker: String,
    up: TrafficCells,
    down: TrafficCells,
    drops: Vec<(DropReason, Counter)>,
    link_drops: Vec<(LinkDrop, Counter)>,
    downs: Vec<(DownReason, Counter)>,
    refused: Vec<(DownReason, Counter)>,
    link_send_failures: Counter,
    transceivers: Group,
    links: Vec<LinkCells>,
}

struct TrafficCells {
    records: Counter,
    bytes: Counter,
}

struct LinkCells {
    pop: String,
    pop_worker: u8,
    cells: Group,
}

/// What a worker publishes.
pub(crate) struct Totals<'a> {
    pub(crate) up: Traffic,
    pub(crate) down: Traffic,
    pub(crate) drops: &'a Drops,
    pub(crate) link_drops: &'a LinkDrops,
    pub(crate) downs: &'a DownCounts,
    pub(crate) refused: &'a DownCounts,
    pub(crate) link_send_failures: u64,
    /// Datagrams of transceivers.
    pub(crate) transceivers: Arrivals,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry, worker: u8) -> Self {
        let reasons = |name, help| {
            let cell = |reason: DownReason| {
                let labels = [("reason", reason.as_str())];
                (reason, registry.counter(name, "{link}", help, &labels))
            };
            DownReason::ALL.into_iter().map(cell).collect()
        };
        Self {
            registry: registry.clone(),
            worker: worker.to_string(),
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
            downs: reasons("core_relay.link_downs", "Links that went down."),
            refused: reasons(
                "core_relay.links_refused",
                "Attempts to connect that were refused or came to nothing.",
            ),
            link_send_failures: registry.counter(
                "core_relay.link_send_failures",
                "{datagram}",
                "UDP payloads that the kernel refused on the link socket; QUIC sees them as loss.",
                &[],
            ),
            transceivers: registry.group(TRANSCEIVER_FIGURES, &[]),
            links: Vec::new(),
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
        for (reason, counter) in &self.downs {
            counter.set_total(totals.downs.count(*reason));
        }
        for (reason, counter) in &self.refused {
            counter.set_total(totals.refused.count(*reason));
        }
        self.link_send_failures.set_total(totals.link_send_failures);
        let Arrivals {
            received,
            lost,
            reordered,
        } = totals.transceivers;
        self.transceivers.set([received, lost, reordered]);
    }

    /// Publishes one link. Its cells are made when it is first seen; links are few and named by the topology.
    pub(crate) fn publish_link(&mut self, link: &LinkStats) {
        let known =
            |cells: &&LinkCells| *cells.pop == *link.peer && cells.pop_worker == link.worker;
        if !self.links.iter().any(|cells| known(&cells)) {
            let cells = LinkCells::new(&self.registry, &self.worker, link);
            self.links.push(cells);
        }
        if let Some(cells) = self.links.iter().find(known) {
            cells.set(link);
        }
    }

    /// Shows links as down that are not in `links`: the topology no longer names their PoP.
    pub(crate) fn retire_links(&self, still_there: impl Fn(&str, u8) -> bool) {
        for cells in &self.links {
            if !still_there(&cells.pop, cells.pop_worker) {
                cells.cells.retire();
            }
        }
    }
}

/// Losses inside a link that are the same to an operator as losses in front of it.
const fn as_drop_reason(reason: LinkDrop) -> Option<DropReason> {
    match reason {
        LinkDrop::NotUp => Some(DropReason::NoLink),
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
        records: registry.counter(
            "core_relay.records",
            "{record}",
            "Records forwarded: up to transceivers, down to PoPs.",
            &labels,
        ),
        bytes: registry.counter(
            "core_relay.bytes",
            "By",
            "Payload of `core_relay.records`.",
            &labels,
        ),
    }
}

impl TrafficCells {
    fn set(&self, traffic: Traffic) {
        self.records.set_total(traffic.records);
        self.bytes.set_total(traffic.bytes);
    }
}

fn drop_counter(registry: &Registry, reason: &str) -> Counter {
    registry.counter(
        "core_relay.drops",
        "{record}",
        "Records dropped; where a datagram was lost whole, datagrams.",
        &[("reason", reason)],
    )
}

impl LinkCells {
    fn new(registry: &Registry, worker: &str, link: &LinkStats) -> Self {
        let pop_worker = link.worker.to_string();
        let labels = [
            ("pop", &*link.peer),
            ("pop_worker", pop_worker.as_str()),
            ("worker", worker),
        ];
        let figure = |figure: LinkFigure| Figure {
            name: figure.core_relay,
            unit: figure.unit,
            help: figure.help,
            rises: figure.rises,
        };
        Self {
            pop: link.peer.to_string(),
            pop_worker: link.worker,
            cells: registry.group(LINK_FIGURES.map(figure), &labels),
        }
    }

    fn set(&self, link: &LinkStats) {
        self.cells
            .set(LINK_FIGURES.map(|figure| (figure.read)(link)));
    }
}

/// By the sequence numbers that each transceiver gives the datagrams it sends to this worker.
const TRANSCEIVER_FIGURES: [Figure; 3] = [
    Figure {
        name: "core_relay.transceivers.datagrams_arrived",
        unit: "{datagram}",
        help: "Datagrams of transceivers that arrived.",
        rises: true,
    },
    Figure {
        name: "core_relay.transceivers.datagrams_lost",
        unit: "{datagram}",
        help: "Datagrams of transceivers that did not arrive within the 127 after them.",
        rises: true,
    },
    Figure {
        name: "core_relay.transceivers.datagrams_reordered",
        unit: "{datagram}",
        help: "Datagrams of transceivers that arrived after later ones.",
        rises: true,
    },
];
