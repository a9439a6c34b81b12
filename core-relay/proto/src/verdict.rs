//! What happens to a record, by value, and the closed list of reasons for dropping one.

use std::net::SocketAddr;

use wire::PopId;

/// Verdict on a record that came from a PoP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// Send it to the transceiver at this address.
    Forward {
        /// Address computed from the region's CIDR.
        to: SocketAddr,
    },
    /// Drop it.
    Drop(DropReason),
}

/// Verdict on a record that came from a transceiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downlink {
    /// Send it over the link of this PoP worker.
    ToLink {
        /// The PoP.
        pop: PopId,
        /// Its worker.
        worker: u8,
    },
    /// Drop it.
    Drop(DropReason),
}

wire::drop_reasons! {
    /// A datagram or record that does not parse.
    BadRecord = "bad_record",
    /// A record whose tag names another PoP than the link it came by.
    WrongPop = "wrong_pop",
    /// A record whose tag names another worker than the link it came by.
    WrongWorker = "wrong_worker",
    /// The owner is in another region.
    WrongRegion = "wrong_region",
    /// The owner lies outside the region's CIDR.
    OutsideCidr = "outside_cidr",
    /// A record that has been forwarded too often.
    HopLimit = "hop_limit",
    /// A datagram on the record socket from an address that is no transceiver of the region.
    UnknownSource = "unknown_source",
    /// A record whose owner is not the transceiver it came from.
    SpoofedOwner = "spoofed_owner",
    /// A heartbeat where only records belong.
    UnexpectedKind = "unexpected_kind",
    /// No link of that PoP worker is up.
    NoLink = "no_link",
    /// The link's send buffer was full: the oldest datagram went.
    LinkFull = "link_full",
    /// The record does not fit a datagram, not even split.
    Oversize = "oversize",
    /// The kernel refused to send to the transceiver.
    SendFailed = "send_failed",
}
