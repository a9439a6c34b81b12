//! The instruments of signaling.

use hyper::{Method, StatusCode};
use runtime::metrics::{Counter, Registry};

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
