//! The instruments of the slow path.

use runtime::metrics::{Counter, Registry};

use super::answer::Transport;
use super::places::{Full, Places};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed it, or it broke.
    Peer,
    /// No query for a while.
    Idle,
    /// A query took too long to come.
    SlowQuery,
    /// A query longer than any that makes sense.
    LongQuery,
    /// Bytes that deserve no answer.
    Garbage,
    /// The client does not read its answers.
    SlowReader,
    /// TLS did not come about, or not in time.
    Handshake,
    /// It had waited longest for a query when another needed its place.
    Full,
    /// It had waited longest for a query when its source had one too many.
    FullOfSource,
    /// It had its place for long enough.
    Old,
    /// The node stopped, and everything asked was answered.
    Stopped,
}

impl End {
    const ALL: [Self; 11] = [
        Self::Peer,
        Self::Idle,
        Self::SlowQuery,
        Self::LongQuery,
        Self::Garbage,
        Self::SlowReader,
        Self::Handshake,
        Self::Full,
        Self::FullOfSource,
        Self::Old,
        Self::Stopped,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Peer => "peer",
            Self::Idle => "idle",
            Self::SlowQuery => "slow_query",
            Self::LongQuery => "long_query",
            Self::Garbage => "garbage",
            Self::SlowReader => "slow_reader",
            Self::Handshake => "handshake",
            Self::Full => "full",
            Self::FullOfSource => "full_of_source",
            Self::Old => "old",
            Self::Stopped => "stopped",
        }
    }
}

impl From<Full> for End {
    fn from(full: Full) -> Self {
        match full {
            Full::All => Self::Full,
            Full::Source => Self::FullOfSource,
        }
    }
}

impl Transport {
    const ALL: [Self; 4] = [Self::Udp, Self::Tcp, Self::Tls, Self::Https];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Https => "https",
        }
    }
}

/// Counters of the slow path.
pub(super) struct Metrics {
    answers: Vec<(Transport, Counter)>,
    unanswered: Vec<(Transport, Counter)>,
    ends: Vec<(End, Counter)>,
    pub(super) accept_failed: Counter,
}

impl Metrics {
    pub(super) fn new(registry: &Registry, places: &Places) -> Self {
        let by_transport = |name, help| {
            let cell = |transport: Transport| {
                let labels = [("transport", transport.as_str())];
                (transport, registry.counter(name, "{query}", help, &labels))
            };
            Transport::ALL.map(cell).to_vec()
        };
        let end = |end: End| {
            let labels = [("reason", end.as_str())];
            let help = "Connections that ended, by reason.";
            (
                end,
                registry.counter("geodns.slow.connection_ends", "{connection}", help, &labels),
            )
        };
        let places = places.clone();
        registry.observe_gauge(
            "geodns.slow.connections",
            "{connection}",
            "Connections there are.",
            &[],
            move || f64::from(u32::try_from(places.taken()).unwrap_or(u32::MAX)),
        );
        Self {
            answers: by_transport("geodns.slow.answers", "Answers of the slow path."),
            unanswered: by_transport(
                "geodns.slow.unanswered",
                "Queries that deserved no answer, or that none could be written to.",
            ),
            ends: End::ALL.map(end).to_vec(),
            accept_failed: registry.counter(
                "geodns.slow.accept_failed",
                "{error}",
                "Failures to accept a connection.",
                &[],
            ),
        }
    }

    pub(super) fn answered(&self, transport: Transport, has_answer: bool) {
        let cells = if has_answer {
            &self.answers
        } else {
            &self.unanswered
        };
        add(cells, transport);
    }

    pub(super) fn ended(&self, end: End) {
        add(&self.ends, end);
    }
}

fn add<T: PartialEq + Copy>(cells: &[(T, Counter)], label: T) {
    if let Some((_, counter)) = cells.iter().find(|(cell, _)| *cell == label) {
        counter.add(1);
    }
}
