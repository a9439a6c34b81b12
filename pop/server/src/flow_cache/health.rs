//! What became of an operation, as a closed list, and when Redis has been silent often enough to stop asking.

use runtime::redis_client::{Refusal, Trouble};

/// What became of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Done; a lookup found an owner.
    Ok,
    /// A lookup found nothing.
    Miss,
    /// A lookup found something that is no entry of ours, or an old one.
    BadValue,
    /// No answer in time.
    Timeout,
    /// See [`Refusal`].
    Refused(Refusal),
}

impl Outcome {
    pub(crate) const ALL: [Self; 10] = [
        Self::Ok,
        Self::Miss,
        Self::BadValue,
        Self::Timeout,
        Self::Refused(Refusal::Oom),
        Self::Refused(Refusal::WrongType),
        Self::Refused(Refusal::Denied),
        Self::Refused(Refusal::ReadOnly),
        Self::Refused(Refusal::Lost),
        Self::Refused(Refusal::Other),
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Miss => "miss",
            Self::BadValue => "bad_value",
            Self::Timeout => "timeout",
            Self::Refused(Refusal::Oom) => "oom",
            Self::Refused(Refusal::WrongType) => "wrong_type",
            Self::Refused(Refusal::Denied) => "denied",
            Self::Refused(Refusal::ReadOnly) => "read_only",
            Self::Refused(Refusal::Lost) => "lost",
            Self::Refused(Refusal::Other) => "error",
        }
    }
}

impl Outcome {
    /// What becomes of every operation of a batch that met this.
    pub(crate) const fn of_batch(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Timeout | Trouble::Slow => Self::Timeout,
            Trouble::Refused | Trouble::Tls | Trouble::Closed => Self::Refused(Refusal::Lost),
            Trouble::Auth => Self::Refused(Refusal::Denied),
            Trouble::ReadOnly => Self::Refused(Refusal::ReadOnly),
            Trouble::Unfit => Self::Refused(Refusal::Other),
        }
    }

    /// Whether an entry that was to be deleted may still be there.
    pub(crate) const fn may_be_undone(self) -> bool {
        match self {
            Self::Timeout => true,
            // Under the key is something that is no entry.
            Self::Ok | Self::Miss | Self::BadValue | Self::Refused(Refusal::WrongType) => false,
            Self::Refused(
                Refusal::Oom | Refusal::Denied | Refusal::ReadOnly | Refusal::Lost | Refusal::Other,
            ) => true,
        }
    }
}

/// Batches of lookups in a row that got no answer in time: then Redis is not asked until it has proved itself again.
const SILENT_MAX: u8 = 3;

/// Lookups without an answer in a row.
#[derive(Default)]
pub(crate) struct Health {
    silent: u8,
}

impl Health {
    pub(crate) const fn answered(&mut self) {
        self.silent = 0;
    }

    /// Whether this was one too many.
    #[must_use]
    pub(crate) const fn silent(&mut self) -> bool {
        self.silent = self.silent.saturating_add(1);
        self.silent >= SILENT_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_distinct() {
        let mut labels: Vec<_> = Outcome::ALL.map(Outcome::as_str).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Outcome::ALL.len());
    }

    #[test]
    fn three_silences_in_a_row_are_too_many() {
        let mut health = Health::default();
        assert!(!health.silent() && !health.silent());
        health.answered();
        assert!(!health.silent() && !health.silent());
        assert!(health.silent());
    }
}
