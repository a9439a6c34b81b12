//! Harness: any datagram from either side is decided without a panic, and what is forwarded stays inside the region.

use std::net::SocketAddr;

use topology::Topology;
use wire::PopId;
use wire::record::{self, DatagramKind, HOPS_MAX, RecordHeader, Records};

use crate::relay::Relay;
use crate::verdict::{Downlink, Uplink};
use wire::regroup::Regroup;

const DATAGRAM_LEN_MAX: usize = 1414;

/// Takes `input` once as a datagram of PoP 1, worker 0, and once as one from the region's first transceiver.
///
/// # Panics
/// When a rule is broken.
pub fn datagram(topology: &Topology, input: &[u8]) {
    let Some(region) = topology.regions.first() else {
        return;
    };
    let relay = Relay::new(region);
    let Ok((DatagramKind::Records, _, body)) = record::open_datagram(input) else {
        return;
    };
    let mut regroup: Regroup<SocketAddr> = Regroup::new(4);
    let (mut taken, mut given) = (0, 0);
    for record in Records::new(body).map_while(Result::ok) {
        if let Uplink::Forward { to } = relay.handle_uplink(PopId(1), 0, &record.header) {
            assert!(
                region.transceivers.cidr.contains(&to.ip()),
                "nothing leaves the CIDR"
            );
            assert_eq!(to.port(), region.transceivers.port);
            assert!(record.header.hops < HOPS_MAX);
            let header = RecordHeader {
                hops: record.header.hops + 1,
                ..record.header
            };
            taken += usize::from(
                regroup
                    .push(to, &header, record.payload, DATAGRAM_LEN_MAX)
                    .is_ok(),
            );
        }
        let source = region
            .transceivers
            .nodes
            .first()
            .map(|node| SocketAddr::new(node.address, region.transceivers.port));
        if let Some(Ok(source)) = source.map(|source| relay.handle_source(source))
            && let Downlink::ToLink { pop, worker } = relay.handle_downlink(source, &record.header)
        {
            assert_eq!(
                (pop, worker),
                (record.header.tag.pop, record.header.tag.worker)
            );
        }
    }
    regroup.drain(|_, bytes, segment_bytes| {
        for datagram in bytes.chunks(segment_bytes) {
            assert!(datagram.len() <= DATAGRAM_LEN_MAX);
            let opened = record::open_datagram(datagram);
            assert!(opened.is_ok(), "what is sent parses");
            if let Ok((_, _, body)) = opened {
                given += Records::new(body).filter(Result::is_ok).count();
            }
        }
    });
    assert_eq!(taken, given, "regrouping loses nothing");
}
