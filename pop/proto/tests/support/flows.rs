//! What the tests of flows share: owners, clients, packets, and how verdicts read.

use std::time::Instant;

use pop_proto::{DropReason, Routes, Uplink};
use wire::hint::{KeyRing, Minute};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

pub(crate) const MINUTE: Minute = Minute(30_000);
pub(crate) const RTP: &[u8] = &[0x80, 111, 0, 1];
pub(crate) const DTLS: &[u8] = &[22, 254, 253, 0];

pub(crate) const A: Owner = owner(1, 1);
pub(crate) const B: Owner = owner(1, 2);

const LOCAL: &str = include_str!("../../../../topology/samples/local.yaml");

pub(crate) const fn owner(region: u16, transceiver: u32) -> Owner {
    Owner {
        region: RegionId(region),
        transceiver: TransceiverId(transceiver),
    }
}

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

/// Those of a PoP of the sample topology.
pub(crate) fn routes(keys: KeyRing) -> Routes {
    let topology = topology::load(LOCAL, "local.yaml").unwrap();
    let pop = topology.pop_named("sin").unwrap();
    Routes::new(&topology, pop, keys)
}

pub(crate) fn client(port: u16) -> ClientAddr {
    ClientAddr::new(([198, 51, 100, 7], port).into())
}

/// The header of a record for a client that speaks to the first ingress.
pub(crate) fn record(owner: Owner, client: ClientAddr) -> RecordHeader {
    let tag = Tag {
        pop: PopId(3),
        worker: 0,
        ingress: 0,
    };
    RecordHeader {
        owner,
        tag,
        client,
        hops: 1,
        fragment: None,
        offered: false,
    }
}

pub(crate) fn to(owner: Owner) -> Uplink {
    Uplink::Forward { owner, also: None }
}

pub(crate) fn dropped(reason: DropReason) -> Uplink {
    Uplink::Drop(reason)
}
