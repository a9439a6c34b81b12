//! The way to the transceivers, as the topology wants it: records packed into shared datagrams, or one each.

mod packed;
mod single;

use std::net::SocketAddr;

use core_relay_proto::DropReason;
use core_relay_proto::verdict::Drops;
use runtime::udp::{SendReport, UdpSocket};
use topology::{Datagrams, Link, Region};
use wire::record::RecordHeader;

use self::packed::Packed;
use self::single::Single;

/// See the module head.
pub(crate) enum Egress {
    Packed(Packed),
    Single(Single),
}

impl Egress {
    /// As `region` says; a datagram is as long as one of a link, which carries the same records.
    pub(crate) fn of(region: &Region, link: &Link) -> Self {
        let datagram_len_max = link.mtu_bytes.into();
        match region.transceivers.datagrams {
            Datagrams::Packed => Self::Packed(Packed::new(datagram_len_max)),
            Datagrams::Single => Self::Single(Single::new(datagram_len_max)),
        }
    }

    /// Takes over a reloaded topology, between two batches.
    pub(crate) fn follow(&mut self, region: &Region, link: &Link) {
        let stays = match self {
            Self::Packed(_) => region.transceivers.datagrams == Datagrams::Packed,
            Self::Single(_) => region.transceivers.datagrams == Datagrams::Single,
        };
        if !stays {
            *self = Self::of(region, link);
        }
    }

    /// Queues a record; it leaves when there is no room for more, or at [`Self::flush`].
    pub(crate) fn push(
        &mut self,
        to: SocketAddr,
        header: &RecordHeader,
        payload: &[u8],
        socket: &UdpSocket,
        drops: &mut Drops,
    ) {
        match self {
            Self::Packed(packed) => packed.push(to, header, payload, socket, drops),
            Self::Single(single) => single.push(to, header, payload, socket, drops),
        }
    }

    /// Ends a batch.
    pub(crate) fn flush(&mut self, socket: &UdpSocket, drops: &mut Drops) {
        match self {
            Self::Packed(packed) => packed.flush(socket, drops),
            Self::Single(single) => single.flush(socket, drops),
        }
    }
}

fn count_lost(report: SendReport, drops: &mut Drops) {
    let lost = u64::try_from(report.would_block + report.failed).unwrap_or(u64::MAX);
    drops.add(DropReason::SendFailed, lost);
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::udp::BindOptions;
    use wire::record::HOPS_MAX;
    use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

    pub(super) fn header() -> RecordHeader {
        RecordHeader {
            owner: Owner {
                region: RegionId(1),
                transceiver: TransceiverId(1),
            },
            tag: Tag {
                pop: PopId(1),
                worker: 0,
                ingress: 0,
            },
            client: ClientAddr::new(([192, 0, 2, 1], 5).into()),
            hops: HOPS_MAX,
            fragment: None,
            offered: false,
        }
    }

    pub(super) fn socket() -> UdpSocket {
        UdpSocket::bind(([127, 0, 0, 1], 0).into(), &BindOptions::default()).unwrap()
    }
}
