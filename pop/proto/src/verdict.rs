//! What happens to a packet, by value, and the closed list of reasons for dropping one.

use wire::Owner;

use crate::neighbours::Owners;

/// Verdict on a client's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// Send it to `owner`, and to `also` while two owners share the client's address.
    Forward {
        /// Who gets it.
        owner: Owner,
        /// Second owner of the same address, for a bounded time.
        also: Option<Owner>,
    },
    /// Kept for a moment while the flow cache is asked whose client this is: it comes back by `Flows::next_released`.
    Hold,
    /// Nobody here knows whose it is: send it to each of these, as an offer.
    Offer {
        /// Who may know.
        owners: Owners,
    },
    /// Drop it.
    Drop(DropReason),
}

/// Verdict on a downlink record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downlink {
    /// Send the payload to the client.
    Deliver,
    /// Drop it.
    Drop(DropReason),
}

wire::drop_reasons! {
    /// A client packet without a byte in it.
    Empty = "empty",
    /// A client packet longer than `wire::record::PAYLOAD_LEN_MAX`.
    TooLong = "too_long",
    /// From an address that belongs to the network itself.
    OwnAddress = "own_address",
    /// From port 0, or a source no client can have (unspecified, multicast, broadcast).
    BadSource = "bad_source",
    /// Looks like STUN and is not, and the address has no committed flow.
    StunMalformed = "stun_malformed",
    /// A Binding request without a usable USERNAME.
    StunNoUsername = "stun_no_username",
    /// The ufrag is not a hint at all.
    HintMalformed = "hint_malformed",
    /// The hint's key id is not one of the live keys.
    HintUnknownKey = "hint_unknown_key",
    /// The hint's redundancy does not match.
    HintForged = "hint_forged",
    /// The hint is too old, or too far ahead, to make a flow.
    HintExpired = "hint_expired",
    /// The hint names a region this PoP has no links to.
    UnknownRegion = "unknown_region",
    /// The hint names a transceiver outside its region's CIDR.
    OutsideCidr = "outside_cidr",
    /// The flow table is full.
    TableFull = "table_full",
    /// The share of the table that tentative flows may take is full.
    TentativeFull = "tentative_full",
    /// The few tentative flows that one hint may have at a time are taken.
    TentativeHint = "tentative_hint",
    /// The PoP is draining and takes no new client.
    Draining = "draining",
    /// Not a Binding request, and the address has no flow.
    NoFlow = "no_flow",
    /// Not a Binding request, and the flow is still tentative.
    NotCommitted = "not_committed",
    /// The owner has just said that the session of this address is over.
    Ended = "ended",
    /// The flow cache does not know the address: it said so, or did a moment ago.
    Uncached = "uncached",
    /// The flow cache did not answer in time, or cannot be asked.
    Unanswered = "unanswered",
    /// As many questions to the flow cache are open as may be.
    QuestionsFull = "questions_full",
    /// Too many questions for clients of one prefix.
    QuestionPrefixRate = "question_prefix_rate",
    /// Too many questions at all.
    QuestionRate = "question_rate",
    /// As many packets of this client are held as may be.
    HoldClientFull = "hold_client_full",
    /// As many packets are held as may be.
    HoldFull = "hold_full",
    /// As many packets of this client were offered as may be before an owner takes it.
    OfferClient = "offer_client",
    /// Too many offers of packets from one prefix.
    OfferPrefixRate = "offer_prefix_rate",
    /// Too many offers at all.
    OfferRate = "offer_rate",
    /// No link to the owner's region is up.
    LinkDown = "link_down",
    /// The link's send buffer was full: the oldest datagram went.
    LinkFull = "link_full",
    /// Neither whole nor in fragments does the packet fit a datagram of the link.
    Oversize = "oversize",
    /// A datagram or record from a link that does not parse.
    BadRecord = "bad_record",
    /// A downlink record for another PoP or worker.
    WrongTag = "wrong_tag",
    /// A downlink record of an owner in another region than the link's.
    WrongRegion = "wrong_region",
    /// A downlink record for an ingress this PoP does not have, or of the other address family.
    BadIngress = "bad_ingress",
    /// A record that has been forwarded too often.
    HopLimit = "hop_limit",
    /// A downlink fragment that could not be reassembled.
    Reassembly = "reassembly",
    /// The kernel refused to send to the client.
    SendFailed = "send_failed",
}

impl DropReason {
    /// Whether it takes packets of sessions that go on, and not only strays and what nobody asked for: what a drain tells as lost.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        match self {
            Self::TableFull
            | Self::TentativeFull
            | Self::Draining
            | Self::Unanswered
            | Self::QuestionsFull
            | Self::QuestionPrefixRate
            | Self::QuestionRate
            | Self::HoldClientFull
            | Self::HoldFull
            | Self::LinkDown
            | Self::LinkFull
            | Self::Oversize
            | Self::HopLimit
            | Self::Reassembly
            | Self::SendFailed => true,
            Self::Empty
            | Self::TooLong
            | Self::OwnAddress
            | Self::BadSource
            | Self::StunMalformed
            | Self::StunNoUsername
            | Self::HintMalformed
            | Self::HintUnknownKey
            | Self::HintForged
            | Self::HintExpired
            | Self::UnknownRegion
            | Self::OutsideCidr
            | Self::TentativeHint
            | Self::NoFlow
            | Self::NotCommitted
            | Self::Ended
            | Self::Uncached
            | Self::OfferClient
            | Self::OfferPrefixRate
            | Self::OfferRate
            | Self::BadRecord
            | Self::WrongTag
            | Self::WrongRegion
            | Self::BadIngress => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_is_told_from_strays() {
        let lost = DropReason::ALL.iter().filter(|reason| reason.is_loss());
        assert_eq!(lost.count(), 15);
        assert!(DropReason::LinkDown.is_loss() && !DropReason::HintForged.is_loss());
    }

    #[test]
    fn labels_are_distinct_and_every_reason_has_its_own_cell() {
        let mut labels: Vec<_> = DropReason::ALL
            .iter()
            .map(|reason| reason.as_str())
            .collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), DropReason::ALL.len());
        let mut drops = Drops::default();
        for reason in DropReason::ALL {
            drops.count(*reason);
            assert_eq!(drops.get(*reason), 1);
        }
        assert_eq!(drops.total(), DropReason::ALL.len() as u64);
    }
}
