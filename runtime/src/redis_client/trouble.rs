//! What can go wrong with Redis, as closed lists.

/// Why a connection could not be made, or was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody listens, or no way leads there.
    Refused,
    /// No answer in time: not there, stopped, or far too slow.
    Timeout,
    /// It answers, but not within what an operation may take.
    Slow,
    /// Wrong user or password, or not allowed what we need.
    Auth,
    /// The TLS handshake came to nothing.
    Tls,
    /// The connection was closed.
    Closed,
    /// A server that only reads.
    ReadOnly,
    /// Anything else: not a Redis, still loading, not a cluster.
    Unfit,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Refused,
        Self::Timeout,
        Self::Slow,
        Self::Auth,
        Self::Tls,
        Self::Closed,
        Self::ReadOnly,
        Self::Unfit,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Slow => "slow",
            Self::Auth => "auth",
            Self::Tls => "tls",
            Self::Closed => "closed",
            Self::ReadOnly => "read_only",
            Self::Unfit => "unfit",
        }
    }
}

/// Why a server did not do one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Out of memory.
    Oom,
    /// Something that is no string is under the key.
    WrongType,
    /// The user may not.
    Denied,
    /// The server only reads.
    ReadOnly,
    /// The connection, or the cluster's node, went away.
    Lost,
    /// Anything else.
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_distinct() {
        let mut labels: Vec<_> = Trouble::ALL.map(Trouble::as_str).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Trouble::ALL.len());
    }
}
