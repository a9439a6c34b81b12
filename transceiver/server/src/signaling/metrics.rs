//! The instruments of signaling.

use hyper::{Method, StatusCode};
use runtime::metrics::{Counter, Registry};
use runtime::proxy::FoundCounters;

use crate::signaling::problem::{Problem, Reply};

const VERBS: [&str; 5] = ["post", "patch", "delete", "options", "other"];
/// Every status there is.
const STATUSES: [u16; 18] = [
    200, 201, 204, 400, 401, 404, 405, 408, 412, 413, 415, 421, 422, 428, 429, 502, 503, 504,
];

/// Counters of signaling.
pub(super) struct Metrics {
    responses: Vec<(&'static str, u16, Counter)>,
    forwards: [Counter; 3],
    /// Connections beyond the bound.
    pub(super) connections_refused: Counter,
    /// Handshakes on the peer address that failed, or came from no transceiver of the region.
    pub(super) peers_refused: Counter,
    /// Failures of `accept`.
    pub(super) accept_failed: Counter,
    /// Connections of trusted proxies without the PROXY header they should begin with.
    pub(super) proxy_headers_refused: Counter,
    /// Where clients' addresses were found.
    pub(super) clients: FoundCounters,
    /// Steering.
    pub(super) steering: SteerMetrics,
}

/// What came of asking a GeoDNS node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SteerOutcome {
    /// It told.
    Answered,
    /// It said nothing in time.
    Timeout,
    /// No connection, or a broken one.
    Unreachable,
    /// It refused, or told nothing that can be read.
    Refused,
    /// None was asked: all were down.
    Skipped,
}

/// Counters of steering.
pub(super) struct SteerMetrics {
    outcomes: [(SteerOutcome, Counter); 5],
    /// Answers to clients in the order of steering.
    pub(super) steered: Counter,
    /// Answers to clients without it.
    pub(super) unsteered: Counter,
}

impl SteerMetrics {
    fn new(registry: &Registry) -> Self {
        let outcome = |outcome, label| {
            let help = "Questions to GeoDNS nodes by outcome; skipped: all were known to be down.";
            let labels = [("outcome", label)];
            (
                outcome,
                registry.counter(
                    "transceiver.steering.questions",
                    "{question}",
                    help,
                    &labels,
                ),
            )
        };
        let answers = |by| {
            let help = "Answers to clients by what ordered their ingress list.";
            registry.counter(
                "transceiver.steering.answers",
                "{response}",
                help,
                &[("by", by)],
            )
        };
        Self {
            outcomes: [
                outcome(SteerOutcome::Answered, "answered"),
                outcome(SteerOutcome::Timeout, "timeout"),
                outcome(SteerOutcome::Unreachable, "unreachable"),
                outcome(SteerOutcome::Refused, "refused"),
                outcome(SteerOutcome::Skipped, "skipped"),
            ],
            steered: answers("steering"),
            unsteered: answers("topology"),
        }
    }

    /// Counts one.
    pub(super) fn count(&self, outcome: SteerOutcome) {
        let of = |(one, _): &&(SteerOutcome, Counter)| *one == outcome;
        if let Some((_, counter)) = self.outcomes.iter().find(of) {
            counter.add(1);
        }
    }
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub(super) fn new(registry: &Registry) -> Self {
        let mut responses = Vec::with_capacity(VERBS.len() * STATUSES.len());
        for verb in VERBS {
            for status in STATUSES {
                let labels = [("verb", verb), ("status", &*status.to_string())];
                responses.push((verb, status, response(registry, &labels)));
            }
        }
        Self {
            responses,
            forwards: ["answered", "owner_down", "owner_slow"].map(|outcome| {
                registry.counter(
                    "transceiver.whip.forwards",
                    "{request}",
                    "Requests passed to the owner of a session",
                    &[("outcome", outcome)],
                )
            }),
            connections_refused: registry.counter(
                "transceiver.whip.connections_refused",
                "{connection}",
                "Connections beyond the bound",
                &[],
            ),
            peers_refused: registry.counter(
                "transceiver.whip.peers_refused",
                "{connection}",
                "Connections to the peer address that were not from a transceiver of the region",
                &[],
            ),
            accept_failed: registry.counter(
                "transceiver.whip.accept_failed",
                "{error}",
                "Failures to accept a connection",
                &[],
            ),
            proxy_headers_refused: registry.counter(
                "transceiver.whip.proxy_headers_refused",
                "{connection}",
                "Connections of trusted proxies that do not begin with a PROXY header",
                &[],
            ),
            clients: FoundCounters::new(registry),
            steering: SteerMetrics::new(registry),
        }
    }

    /// Counts a response.
    pub(super) fn answered(&self, method: &Method, status: StatusCode) {
        let verb = match *method {
            Method::POST => "post",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            Method::OPTIONS => "options",
            _ => "other",
        };
        let of = |(v, s, _): &&(&'static str, u16, Counter)| *v == verb && *s == status.as_u16();
        if let Some((_, _, counter)) = self.responses.iter().find(of) {
            counter.add(1);
        }
    }

    /// Counts a request that was passed on.
    pub(super) fn forwarded(&self, outcome: &Result<Reply, Problem>) {
        let [answered, down, slow] = &self.forwards;
        match outcome {
            Ok(_) => answered.add(1),
            Err(Problem::OwnerSlow) => slow.add(1),
            Err(_) => down.add(1),
        }
    }
}

fn response(registry: &Registry, labels: &[(&'static str, &str)]) -> Counter {
    registry.counter(
        "transceiver.whip.responses",
        "{response}",
        "Responses by verb and status",
        labels,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signaling::bearer::Refusal;

    #[test]
    fn every_status_is_counted() {
        let problems = [
            Problem::Bad(""),
            Problem::Unauthorized(Refusal::NoToken),
            Problem::NotFound(""),
            Problem::Method { allow: "" },
            Problem::Slow,
            Problem::EtagMismatch,
            Problem::TooLarge,
            Problem::OfferType,
            Problem::PatchType,
            Problem::Misdirected,
            Problem::Unprocessable(""),
            Problem::IfMatchMissing,
            Problem::Rate { retry_after_s: 1 },
            Problem::OwnerDown,
            Problem::Unavailable(""),
            Problem::OwnerSlow,
        ];
        let metrics = Metrics::new(&Registry::new("transceiver", "t"));
        let total = || -> u64 {
            let counters = metrics.responses.iter();
            counters.map(|(_, _, counter)| counter.total()).sum()
        };
        for (before, problem) in (0..).zip(problems) {
            assert_eq!(total(), before);
            metrics.answered(&Method::POST, problem.status());
            assert_eq!(total(), before + 1, "{problem:?}");
        }
    }
}
