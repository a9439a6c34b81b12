//! What a topology must mean beyond having the right shape. Finds everything, not only the first.
//!
//! `ranges` looks at one value at a time, `names` at identities, `addresses` at who sends to whom, `sockets` at ports,
//! `anycast`, `steering` and `dns` at their sections; `own` lists who has which address. None of them knows lines: a [`Finding`] names its field.

mod addresses;
mod anycast;
mod dns;
mod names;
mod own;
mod ranges;
mod sockets;
mod steering;

use crate::error::{ERRORS_MAX, Problem};
use crate::model::Topology;

/// A problem and the path of its field.
pub(crate) struct Finding {
    pub(crate) field: String,
    pub(crate) problem: Problem,
}

/// Everything wrong with `topology`, at most [`ERRORS_MAX`] and a note that there is more.
pub(crate) fn check(topology: &Topology) -> Vec<Finding> {
    let mut findings = Findings::default();
    ranges::check(topology, &mut findings);
    names::check(topology, &mut findings);
    addresses::check(topology, &mut findings);
    anycast::check(topology, &mut findings);
    sockets::check(topology, &mut findings);
    steering::check(topology, &mut findings);
    dns::check(topology, &mut findings);
    findings.list
}

/// The bounded list the checks write to.
#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, field: impl Into<String>, problem: Problem) {
        let finding = match self.list.len() {
            0..ERRORS_MAX => Finding {
                field: field.into(),
                problem,
            },
            ERRORS_MAX => Finding {
                field: String::new(),
                problem: Problem::More,
            },
            _ => return,
        };
        self.list.push(finding);
    }

    /// `found` must lie in `min..=max`.
    fn range(&mut self, field: impl Into<String>, found: impl Into<u64>, min: u64, max: u64) {
        let found = found.into();
        if !(min..=max).contains(&found) {
            self.add(field, Problem::OutOfRange { found, min, max });
        }
    }
}
