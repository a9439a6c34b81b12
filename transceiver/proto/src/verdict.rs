//! What happens to a packet, by value, and the closed list of reasons for dropping one.

use std::net::SocketAddr;

use wire::Tag;

use crate::sessions::Slot;
use crate::streams::Claimants;

/// The way back to a client: the core relay its packet came through, and where it entered the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReturnPath {
    /// Record address of the core relay.
    pub relay: SocketAddr,
    /// PoP, worker and ingress.
    pub tag: Tag,
}

/// Verdict on a client's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A check was answered: send [`crate::Sessions::answer`] back the way the packet came.
    Answer {
        /// The session.
        slot: Slot,
        /// The session has its first nominated path: the media engine may connect.
        connected: bool,
    },
    /// Hand the packet to the media engine of the session, and of a second one that claims the same address. The engine that
    /// accepts it says so with [`crate::Sessions::handle_authenticated`]; when neither does, ask
    /// [`crate::Sessions::handle_refused`].
    Media {
        /// The session.
        slot: Slot,
        /// Another session bound to the same client address, or one whose media comes from there.
        also: Option<Slot>,
    },
    /// Its address is bound to no session, but its stream may be one of these: the first whose media engine authenticates it has it, and
    /// says so with [`crate::Sessions::handle_authenticated`].
    Try {
        /// Sessions that have sent a stream of this SSRC.
        slots: Claimants,
    },
    /// Drop it.
    Drop(DropReason),
}

wire::drop_reasons! {
    /// From an address that is no core relay of the region.
    UnknownRelay = "unknown_relay",
    /// A datagram or record that does not parse.
    BadRecord = "bad_record",
    /// A record for another transceiver.
    WrongOwner = "wrong_owner",
    /// A fragment that could not be reassembled.
    Reassembly = "reassembly",
    /// A Binding request that does not parse.
    StunMalformed = "stun_malformed",
    /// A Binding request for a ufrag we did not issue, or whose session is over.
    UnknownUfrag = "unknown_ufrag",
    /// A Binding request from a ufrag that is not the client's.
    WrongPeerUfrag = "wrong_peer_ufrag",
    /// A Binding request with missing or wrong MESSAGE-INTEGRITY.
    BadIntegrity = "bad_integrity",
    /// Not a Binding request, from an address bound to no session, and not offered.
    UnboundAddress = "unbound_address",
    /// Offered, and of no stream that we know.
    OfferUnknown = "offer_unknown",
    /// From an address bound to no session, of a known stream, and more of them than are tried.
    OfferRate = "offer_rate",
    /// Such a packet that no media engine accepted: forged or replayed.
    OfferRefused = "offer_refused",
    /// STUN other than a Binding request: we make no checks, so there is nothing to answer us.
    UnexpectedStun = "unexpected_stun",
    /// The table of client addresses is full.
    AddressesFull = "addresses_full",
    /// A Binding request whose transaction came from another address before: a replay.
    ReplayedCheck = "replayed_check",
    /// DTLS that is malformed, or more of it than a handshake takes.
    DtlsRefused = "dtls_refused",
    /// The media engine refused the packet.
    MediaRefused = "media_refused",
    /// A packet towards a client that has no path yet.
    NoPath = "no_path",
    /// A packet towards a client that fits no datagram even in fragments.
    Oversize = "oversize",
    /// A packet towards one core-relay worker more than a batch keeps apart.
    RelaysFull = "relays_full",
    /// What a backend sent was more than may wait, or the media engine did not take it.
    BackendRefused = "backend_refused",
    /// The kernel refused to send to the core relay.
    SendFailed = "send_failed",
}
