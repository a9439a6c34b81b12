//! Metrics of recovery: what a worker asks the flow cache, what it holds meanwhile, and what it offers to owners that may know.

use pop_proto::Stats;
use runtime::metrics::{Counter, Gauge, Registry};

pub(super) struct RecoveryCells {
    questions: Counter,
    late_answers: Counter,
    commands_refused: Counter,
    unlearned: Counter,
    offered: Counter,
    taken: Counter,
    open_questions: Gauge,
    held_packets: Gauge,
}

impl RecoveryCells {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, unit, help| registry.counter(name, unit, help, &[]);
        let gauge = |name, unit, help| registry.gauge(name, unit, help, &[]);
        Self {
            questions: counter(
                "pop.recovery.questions",
                "{question}",
                "Clients the flow cache was asked about.",
            ),
            late_answers: counter(
                "pop.recovery.late_answers",
                "{answer}",
                "Answers that nobody waited for any more.",
            ),
            commands_refused: counter(
                "pop.recovery.commands_refused",
                "{command}",
                "What found no place in a worker's queue towards the flow cache.",
            ),
            unlearned: counter(
                "pop.recovery.unlearned",
                "{flow}",
                "Flows not made by a downlink record or an answer, because the table was full.",
            ),
            offered: counter(
                "pop.offers",
                "{packet}",
                "Packets of unknown clients that were offered to owners of other clients at the same IP address.",
            ),
            taken: counter(
                "pop.offers_taken",
                "{record}",
                "Answers of owners that know such a client.",
            ),
            open_questions: gauge(
                "pop.recovery.open_questions",
                "{question}",
                "Questions without an answer yet.",
            ),
            held_packets: gauge("pop.recovery.held_packets", "{packet}", "Packets held."),
        }
    }

    pub(super) fn set(&self, flows: &Stats) {
        self.questions.set_total(flows.questions);
        self.late_answers.set_total(flows.late_answers);
        self.commands_refused.set_total(flows.commands_refused);
        self.unlearned.set_total(flows.unlearned);
        self.offered.set_total(flows.offered);
        self.taken.set_total(flows.taken);
        self.open_questions.set_count(flows.open_questions);
        self.held_packets.set_count(flows.held_packets);
    }
}
