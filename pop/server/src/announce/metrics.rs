//! Metrics of announcements and drains.

use std::time::Instant;

use pop_proto::announce::{Announce, Announcer, Permit, Reason};
use pop_proto::drain::{Drain, Step};
use runtime::metrics::{Counter, Gauge, Registry};

pub(super) struct Metrics {
    steps: [(Step, Gauge); 6],
    lost: Gauge,
    announce: Option<Cells>,
}

/// Of a PoP that announces.
struct Cells {
    states: [(Announce, Gauge); 3],
    reasons: [(Reason, Gauge); 10],
    changes: [(Announce, Counter); 3],
    permit: Gauge,
    falls: Gauge,
    shown: Announce,
}

impl Metrics {
    pub(super) fn new(registry: &Registry, announces: bool) -> Self {
        let step = |step: Step| {
            let labels = [("step", step.as_str())];
            let help = "1 for the step a drain is in; `serving` when there is none.";
            (step, registry.gauge("pop.drain.step", "", help, &labels))
        };
        Self {
            steps: Step::ALL.map(step),
            lost: registry.gauge(
                "pop.drain.lost",
                "{packet}",
                "Packets of sessions that were dropped since the drain began.",
                &[],
            ),
            announce: announces.then(|| Cells::new(registry)),
        }
    }

    pub(super) fn show(
        &mut self,
        drain: &Drain,
        announcer: Option<(&Announcer, Announce)>,
        now: Instant,
    ) {
        for (step, gauge) in &self.steps {
            gauge.set_count(u64::from(*step == drain.step()));
        }
        let lost = if drain.step() == Step::Serving {
            0
        } else {
            drain.lost()
        };
        self.lost.set_count(lost);
        if let (Some(cells), Some((announcer, shown))) = (&mut self.announce, announcer) {
            cells.show(announcer, shown, now);
        }
    }
}

impl Cells {
    fn new(registry: &Registry) -> Self {
        let state = |announce: Announce| {
            let labels = [("state", announce.as_str())];
            let help = "1 for what the routes of the VIPs say: up, draining or withdrawn.";
            (
                announce,
                registry.gauge("pop.announce.state", "", help, &labels),
            )
        };
        let reason = |reason: Reason| {
            let labels = [("reason", reason.as_str())];
            let help = "1 while this is amiss, whether it changes what is announced or not.";
            (
                reason,
                registry.gauge("pop.announce.amiss", "", help, &labels),
            )
        };
        let change = |announce: Announce| {
            let labels = [("to", announce.as_str())];
            let help = "How often the routes of the VIPs came to say something else.";
            let counter = registry.counter("pop.announce.changes", "{change}", help, &labels);
            (announce, counter)
        };
        Self {
            states: Announce::ALL.map(state),
            reasons: Reason::ALL.map(reason),
            changes: Announce::ALL.map(change),
            permit: registry.gauge(
                "pop.announce.permit_held",
                "{permit}",
                "1 while this PoP holds one of the permits to be away.",
                &[],
            ),
            falls: registry.gauge(
                "pop.announce.falls",
                "{fall}",
                "Falls from `up` within the last hour, those of processes before included: each doubles the time it takes to come up.",
                &[],
            ),
            shown: Announce::Withdrawn,
        }
    }

    fn show(&mut self, announcer: &Announcer, shown: Announce, now: Instant) {
        for (state, gauge) in &self.states {
            gauge.set_count(u64::from(*state == shown));
        }
        for (reason, gauge) in &self.reasons {
            let amiss = announcer.amiss().any(|amiss| amiss == *reason);
            gauge.set_count(amiss.into());
        }
        let held = matches!(announcer.permit(now), Permit::Held { .. });
        self.permit.set_count(held.into());
        let falls = announcer.falls(now);
        self.falls.set_count(falls.try_into().unwrap_or(u64::MAX));
        if std::mem::replace(&mut self.shown, shown) != shown {
            let changes = self.changes.iter().filter(|(to, _)| *to == shown);
            changes.for_each(|(_, counter)| counter.add(1));
        }
    }
}
