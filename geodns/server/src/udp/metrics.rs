//! What a worker counts, published a few times a second.

use geodns_proto::cookie::Standing;
use geodns_proto::counts::{Basis, Counts, DropReason, Outcome, SlowReason};
use geodns_proto::render::Kind;
use runtime::metrics::{Counter, Registry};

/// One worker's cells.
pub(super) struct Metrics {
    queries: Counter,
    truncated: Counter,
    slipped: Counter,
    displaced: Counter,
    send_failures: Counter,
    outcomes: Vec<(Outcome, Counter)>,
    kinds: Vec<(Kind, Counter)>,
    drops: Vec<(DropReason, Counter)>,
    slow: Vec<(SlowReason, Counter)>,
    cookies: Vec<(Standing, Counter)>,
    bases: Vec<(Basis, Counter)>,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let plain = |name, unit, help| registry.counter(name, unit, help, &[]);
        Self {
            queries: plain(
                "geodns.udp.queries",
                "{packet}",
                "Packets received at DNS sockets.",
            ),
            truncated: plain(
                "geodns.udp.truncated",
                "{response}",
                "Answers sent truncated because they are longer than the asker takes.",
            ),
            slipped: plain(
                "geodns.udp.slipped",
                "{response}",
                "Answers sent truncated because their source prefix was over the limit.",
            ),
            displaced: plain(
                "geodns.udp.limits_displaced",
                "{prefix}",
                "Source prefixes whose count was lost before it was paid off, because the table of limits is full.",
            ),
            send_failures: plain(
                "geodns.udp.send_failures",
                "{response}",
                "Answers the kernel did not take.",
            ),
            outcomes: labelled(
                registry,
                ("geodns.udp.responses", "{response}"),
                "Answers by response code; nodata is NOERROR without records.",
                "rcode",
                Outcome::ALL.map(|outcome| (outcome, outcome.as_str())),
            ),
            kinds: labelled(
                registry,
                ("geodns.udp.questions", "{query}"),
                "Questions inside the zone by type.",
                "type",
                Kind::ALL.map(|kind| (kind, kind.as_str())),
            ),
            drops: labelled(
                registry,
                ("geodns.drops", "{packet}"),
                "Packets that got no answer, by reason.",
                "reason",
                DropReason::ALL.map(|reason| (reason, reason.as_str())),
            ),
            slow: labelled(
                registry,
                ("geodns.udp.handed_over", "{query}"),
                "Queries handed to the slow path, by reason.",
                "reason",
                SlowReason::ALL.map(|reason| (reason, reason.as_str())),
            ),
            cookies: labelled(
                registry,
                ("geodns.udp.cookies", "{query}"),
                "Queries by what their cookie says.",
                "cookie",
                Standing::ALL.map(|standing| (standing, standing.as_str())),
            ),
            bases: labelled(
                registry,
                ("geodns.udp.steered", "{response}"),
                "Steered answers by what they were chosen for.",
                "basis",
                Basis::ALL.map(|basis| (basis, basis.as_str())),
            ),
        }
    }

    pub(super) fn publish(&self, counts: &Counts, displaced: u64, send_failures: u64) {
        self.queries.set_total(counts.queries);
        self.truncated.set_total(counts.truncated);
        self.slipped.set_total(counts.slipped);
        self.displaced.set_total(displaced);
        self.send_failures.set_total(send_failures);
        set(&self.outcomes, counts.outcomes());
        set(&self.kinds, counts.kinds());
        set(&self.drops, counts.drops());
        set(&self.slow, counts.slow());
        set(&self.cookies, counts.cookies());
        set(&self.bases, counts.bases());
    }
}

fn labelled<T: Copy, const N: usize>(
    registry: &Registry,
    (name, unit): (&'static str, &'static str),
    help: &'static str,
    key: &'static str,
    labels: [(T, &'static str); N],
) -> Vec<(T, Counter)> {
    let cell = |(value, label)| {
        let counter = registry.counter(name, unit, help, &[(key, label)]);
        (value, counter)
    };
    labels.into_iter().map(cell).collect()
}

/// Cells and totals are in the order of one list of labels.
fn set<T>(cells: &[(T, Counter)], totals: impl Iterator<Item = (T, u64)>) {
    for ((_, cell), (_, total)) in cells.iter().zip(totals) {
        cell.set_total(total);
    }
}
