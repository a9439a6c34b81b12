//! Every metric of the engine, declared once. The engine keeps plain totals and publishes them a few times a second.

use runtime::metrics::{Counter, Figure, Gauge, Group, Registry};
use transceiver_proto::DropReason;

use crate::engine::core::{Core, Ended};

pub(crate) struct Metrics {
    packets: [Counter; 2],
    bytes: [Counter; 2],
    rtp: [Counter; 2],
    rtp_lost: Counter,
    messages: [Counter; 2],
    relays: Group,
    drops: Vec<(DropReason, Counter)>,
    ended: [Counter; 6],
    end_records: Counter,
    offers: OfferCells,
    created: Counter,
    sessions: Gauge,
    pending: Gauge,
    addresses: Gauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let traffic = |name, unit, help| {
            ["up", "down"]
                .map(|direction| registry.counter(name, unit, help, &[("direction", direction)]))
        };
        let ended = |reason| {
            let help = "Sessions that ended, by reason.";
            registry.counter(
                "transceiver.sessions_ended",
                "{session}",
                help,
                &[("reason", reason)],
            )
        };
        let gauge = |name, unit, help| registry.gauge(name, unit, help, &[]);
        Self {
            packets: traffic(
                "transceiver.packets",
                "{packet}",
                "Client packets, up from and down to core relays.",
            ),
            bytes: traffic("transceiver.bytes", "By", "Bytes in client packets."),
            rtp: traffic(
                "transceiver.rtp_packets",
                "{packet}",
                "RTP packets the media engine accepted from clients, and sent to them.",
            ),
            rtp_lost: registry.counter(
                "transceiver.rtp_lost",
                "{packet}",
                "RTP packets of clients that did not come in their turn.",
                &[],
            ),
            messages: traffic(
                "transceiver.messages",
                "{message}",
                "Data-channel messages from clients, and to them.",
            ),
            relays: registry.group(RELAY_FIGURES, &[]),
            drops: drops(registry),
            ended: Ended::default()
                .by_reason()
                .map(|(reason, _)| ended(reason)),
            end_records: registry.counter(
                "transceiver.end_records",
                "{record}",
                "Records that told a PoP to forget a client whose session ended.",
                &[],
            ),
            offers: OfferCells::new(registry),
            created: registry.counter(
                "transceiver.sessions_created",
                "{session}",
                "Sessions made from an offer.",
                &[],
            ),
            sessions: gauge("transceiver.sessions", "{session}", "Sessions that exist."),
            pending: gauge(
                "transceiver.sessions_pending",
                "{session}",
                "Sessions without an authenticated client.",
            ),
            addresses: gauge(
                "transceiver.addresses",
                "{address}",
                "Client addresses bound to sessions.",
            ),
        }
    }

    pub(crate) fn publish(&self, core: &Core) {
        let set = |counters: &[Counter; 2], totals: [u64; 2]| {
            for (counter, total) in counters.iter().zip(totals) {
                counter.set_total(total);
            }
        };
        set(&self.packets, [core.packets_in, core.egress.packets]);
        set(&self.bytes, [core.bytes_in, core.egress.bytes]);
        let relays = core.receipts.arrivals();
        self.relays
            .set([relays.received, relays.lost, relays.reordered]);
        let media = &core.media;
        set(&self.rtp, [media.rtp_in, media.rtp_out]);
        self.rtp_lost.set_total(media.rtp_lost);
        set(&self.messages, [media.messages_in, media.messages_out]);
        for (reason, counter) in &self.drops {
            counter.set_total(core.drops.get(*reason));
        }
        for (counter, (_, total)) in self.ended.iter().zip(core.ended.by_reason()) {
            counter.set_total(total);
        }
        self.end_records.set_total(core.egress.ends);
        let load = core.sessions.load();
        self.created.set_total(core.last_id);
        self.sessions.set_count(load.sessions.into());
        self.pending.set_count(load.pending.into());
        self.addresses.set_count(load.addresses.into());
        self.offers.set(core, load.guests);
    }
}

/// Clients whose address changed.
struct OfferCells {
    taken: Counter,
    copies: Counter,
    guests: Gauge,
}

impl OfferCells {
    fn new(registry: &Registry) -> Self {
        Self {
            taken: registry.counter(
                "transceiver.offers_taken",
                "{packet}",
                "Packets of clients that their PoP did not know and a session has authenticated.",
                &[],
            ),
            copies: registry.counter(
                "transceiver.copies",
                "{packet}",
                "Packets sent to an address that media comes from, beside the one that a check has proved.",
                &[],
            ),
            guests: registry.gauge(
                "transceiver.guests",
                "{address}",
                "Client addresses that media comes from and that no check has proved.",
                &[],
            ),
        }
    }

    fn set(&self, core: &Core, guests: u32) {
        self.taken.set_total(core.offers_taken);
        self.copies.set_total(core.copies);
        self.guests.set_count(guests.into());
    }
}

fn drops(registry: &Registry) -> Vec<(DropReason, Counter)> {
    let drop = |reason: &DropReason| {
        let labels = [("reason", reason.as_str())];
        let help = "Packets and records dropped, by reason.";
        (
            *reason,
            registry.counter("transceiver.drops", "{packet}", help, &labels),
        )
    };
    DropReason::ALL.iter().map(drop).collect()
}

/// By the sequence numbers that each worker of a core relay gives the datagrams it sends here.
const RELAY_FIGURES: [Figure; 3] = [
    Figure {
        name: "transceiver.core_relays.datagrams_arrived",
        unit: "{datagram}",
        help: "Datagrams of core relays that arrived.",
        rises: true,
    },
    Figure {
        name: "transceiver.core_relays.datagrams_lost",
        unit: "{datagram}",
        help: "Datagrams of core relays that did not arrive within the 127 after them.",
        rises: true,
    },
    Figure {
        name: "transceiver.core_relays.datagrams_reordered",
        unit: "{datagram}",
        help: "Datagrams of core relays that arrived after later ones.",
        rises: true,
    },
];
