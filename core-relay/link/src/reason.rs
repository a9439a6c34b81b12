//! Closed lists of why a link is down and why a datagram was dropped, and the QUIC error codes that carry the former.

use quinn_proto::{ApplicationClose, ConnectionError, VarInt};

/// Why a link is not up, or why a connection was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DownReason {
    /// Nothing was heard from the peer for `down_after_ms`.
    Silent,
    /// The peer is heard but does not echo our heartbeats: our direction is broken.
    NoEcho,
    /// No connection within the time allowed for one attempt.
    Unreachable,
    /// The peer restarted and does not know the connection.
    Reset,
    /// The peer closed the link because it heard nothing from us.
    DeafPeer,
    /// The peer stops.
    PeerStopped,
    /// A newer connection of the same node and worker took over.
    Replaced,
    /// Another process has the name of this node, or of the peer, and each takes the link from the other.
    Duplicate,
    /// Small datagrams pass and those of `mtu_bytes` do not.
    Mtu,
    /// The topology no longer names the peer.
    Removed,
    /// The peer's certificate names nobody who may be at the other end.
    Identity,
    /// The peer's certificate is not from our CA.
    UnknownIssuer,
    /// The peer's certificate is expired or not valid yet.
    Expired,
    /// The peer presented no certificate.
    NoCertificate,
    /// The peer refused us before the handshake, for want of room.
    Busy,
    /// Any other violation of TLS, QUIC or the heartbeat format.
    Protocol,
    /// We closed it ourselves.
    Closed,
}

impl DownReason {
    /// Every reason.
    pub const ALL: [Self; 17] = [
        Self::Silent,
        Self::NoEcho,
        Self::Unreachable,
        Self::Reset,
        Self::DeafPeer,
        Self::PeerStopped,
        Self::Replaced,
        Self::Duplicate,
        Self::Mtu,
        Self::Removed,
        Self::Identity,
        Self::UnknownIssuer,
        Self::Expired,
        Self::NoCertificate,
        Self::Busy,
        Self::Protocol,
        Self::Closed,
    ];

    /// As a metric label and in logs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::NoEcho => "no_echo",
            Self::Unreachable => "unreachable",
            Self::Reset => "reset",
            Self::DeafPeer => "deaf_peer",
            Self::PeerStopped => "peer_stopped",
            Self::Replaced => "replaced",
            Self::Duplicate => "duplicate_name",
            Self::Mtu => "mtu",
            Self::Removed => "removed",
            Self::Identity => "identity",
            Self::UnknownIssuer => "unknown_issuer",
            Self::Expired => "expired",
            Self::NoCertificate => "no_certificate",
            Self::Busy => "busy",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
        }
    }

    /// What a lost connection means for the link.
    pub(crate) fn of(error: &ConnectionError) -> Self {
        match error {
            ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => Self::Protocol,
            ConnectionError::TransportError(error) => Self::of_transport(error.code.into()),
            ConnectionError::ConnectionClosed(close) => Self::of_transport(close.error_code.into()),
            ConnectionError::ApplicationClosed(close) => Self::of_application(close),
            ConnectionError::Reset => Self::Reset,
            ConnectionError::TimedOut => Self::Silent,
            ConnectionError::LocallyClosed => Self::Closed,
        }
    }

    /// RFC 9001 §4.8: a TLS alert travels as 0x100 + its number (RFC 8446 §6).
    const fn of_transport(code: u64) -> Self {
        match code {
            0x02 => Self::Busy,
            // bad_certificate: how rustls reports a name that does not match.
            0x12a => Self::Identity,
            0x12d => Self::Expired,
            // unknown_ca; decrypt_error when a CA of the same name signed with another key.
            0x130 | 0x133 => Self::UnknownIssuer,
            0x174 => Self::NoCertificate,
            _ => Self::Protocol,
        }
    }

    fn of_application(close: &ApplicationClose) -> Self {
        CloseCode::ALL
            .into_iter()
            .find(|code| code.var_int() == close.error_code)
            .map_or(Self::Protocol, CloseCode::seen_by_peer)
    }
}

/// Application error codes of a connection we close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseCode {
    /// The process stops.
    Stopping,
    /// Nothing heard for `down_after_ms`, or no echo.
    Deaf,
    /// A newer connection, of another process, took over.
    Replaced,
    /// One of the same process serves the link, or did: this one is not needed beside it.
    Retired,
    /// The topology no longer names the peer.
    Removed,
    /// The certificate names nobody we know, or the worker does not exist.
    Identity,
    /// Connected, but no heartbeat followed.
    NoHeartbeat,
    /// No heartbeat of full size is echoed.
    Mtu,
    /// The certificate is not of a CA we trust any more, or has expired since.
    Untrusted,
}

impl CloseCode {
    const ALL: [Self; 9] = [
        Self::Stopping,
        Self::Deaf,
        Self::Replaced,
        Self::Retired,
        Self::Removed,
        Self::Identity,
        Self::NoHeartbeat,
        Self::Mtu,
        Self::Untrusted,
    ];

    pub(crate) const fn var_int(self) -> VarInt {
        VarInt::from_u32(match self {
            Self::Stopping => 0,
            Self::Deaf => 1,
            Self::Replaced => 2,
            Self::Removed => 3,
            Self::Identity => 4,
            Self::NoHeartbeat => 5,
            Self::Mtu => 6,
            Self::Untrusted => 7,
            Self::Retired => 8,
        })
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Stopping => "stopping",
            Self::Deaf => "nothing heard",
            Self::Replaced => "replaced by a newer connection",
            Self::Retired => "another connection serves the link",
            Self::Removed => "not in the topology",
            Self::Identity => "identity not allowed",
            Self::NoHeartbeat => "no heartbeat",
            Self::Mtu => "full-size heartbeats do not pass",
            Self::Untrusted => "certificate no longer trusted",
        }
    }

    const fn seen_by_peer(self) -> DownReason {
        match self {
            Self::Stopping => DownReason::PeerStopped,
            Self::Deaf | Self::NoHeartbeat => DownReason::DeafPeer,
            // Whoever reads this is alive, so it was not replaced by its own successor.
            Self::Replaced => DownReason::Duplicate,
            Self::Retired => DownReason::Replaced,
            Self::Mtu => DownReason::Mtu,
            Self::Untrusted => DownReason::UnknownIssuer,
            Self::Removed => DownReason::Removed,
            Self::Identity => DownReason::Identity,
        }
    }
}

/// Why a record, a received datagram, or an attempt to connect, was dropped. What we were to send is counted in records (a
/// record is a client's packet, or a part of a split one); what we received and cannot look into, in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkDrop {
    /// The link is not up.
    NotUp,
    /// The send queue held 10 ms of the provisioned rate: the records of the oldest datagram made room.
    QueueFull,
    /// A record fits neither whole nor split.
    TooLarge,
    /// A received datagram has no valid header or heartbeat body.
    Malformed,
    /// Received before the first heartbeat told which worker sends.
    Unbound,
    /// The receiver did not take datagrams fast enough.
    InboxFull,
    /// An attempt to connect while as many as allowed were unfinished, or while nobody may connect.
    HalfOpenFull,
    /// A stateless answer (reset, version negotiation, refusal) while as many as allowed waited.
    AnswersFull,
}

impl LinkDrop {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::NotUp,
        Self::QueueFull,
        Self::TooLarge,
        Self::Malformed,
        Self::Unbound,
        Self::InboxFull,
        Self::HalfOpenFull,
        Self::AnswersFull,
    ];

    /// As a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotUp => "link_not_up",
            Self::QueueFull => "link_queue_full",
            Self::TooLarge => "link_too_large",
            Self::Malformed => "link_malformed",
            Self::Unbound => "link_unbound",
            Self::InboxFull => "link_inbox_full",
            Self::HalfOpenFull => "link_half_open_full",
            Self::AnswersFull => "link_answers_full",
        }
    }
}

/// Drops by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkDrops([u64; LinkDrop::ALL.len()]);

impl LinkDrops {
    /// How many were dropped for `reason`.
    #[must_use]
    pub fn count(&self, reason: LinkDrop) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or_default()
    }

    /// Each reason with its count, in the order of [`LinkDrop::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (LinkDrop, u64)> + '_ {
        LinkDrop::ALL.into_iter().zip(self.0)
    }

    pub(crate) fn add(&mut self, reason: LinkDrop, count: u64) {
        if let Some(cell) = self.0.get_mut(reason as usize) {
            *cell += count;
        }
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for (cell, count) in self.0.iter_mut().zip(other.0) {
            *cell += count;
        }
    }
}

/// Links that went down, or attempts that failed, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownCounts([u64; DownReason::ALL.len()]);

impl DownCounts {
    /// How many for `reason`.
    #[must_use]
    pub fn count(&self, reason: DownReason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or_default()
    }

    /// Each reason with its count, in the order of [`DownReason::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (DownReason, u64)> + '_ {
        DownReason::ALL.into_iter().zip(self.0)
    }

    pub(crate) fn add(&mut self, reason: DownReason) {
        if let Some(cell) = self.0.get_mut(reason as usize) {
            *cell += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_indexed_in_the_order_of_all() {
        let mut drops = LinkDrops::default();
        for (index, reason) in (1u64..).zip(LinkDrop::ALL) {
            drops.add(reason, index);
        }
        for (index, (reason, count)) in (1u64..).zip(drops.iter()) {
            assert_eq!((drops.count(reason), count), (index, index));
        }
    }

    #[test]
    fn every_close_code_reads_back() {
        for code in CloseCode::ALL {
            let close = ApplicationClose {
                error_code: code.var_int(),
                reason: code.text().into(),
            };
            let seen = DownReason::of(&ConnectionError::ApplicationClosed(close));
            assert_eq!(seen, code.seen_by_peer());
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = DownReason::ALL.iter().map(|r| r.as_str()).collect();
        names.extend(LinkDrop::ALL.iter().map(|r| r.as_str()));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
