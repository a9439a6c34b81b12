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

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)+) => {
        /// Why the core relay dropped a record or datagram: the label of its one drop counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $name,)+
        }

        impl DropReason {
            /// Every reason, in the order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $label,)+
                }
            }
        }
    };
}

drop_reasons! {
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

/// Size of an array indexed by reason; at least `DropReason::ALL.len()`.
pub const DROP_REASONS: usize = 16;

const _: () = assert!(DropReason::ALL.len() <= DROP_REASONS);

/// Drops counted by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DROP_REASONS]);

impl Drops {
    /// Counts one.
    pub fn count(&mut self, reason: DropReason) {
        self.add(reason, 1);
    }

    /// Counts several.
    pub fn add(&mut self, reason: DropReason, records: u64) {
        if let Some(cell) = self.0.get_mut(reason as usize) {
            *cell = cell.saturating_add(records);
        }
    }

    /// Total of one reason.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }
}
