//! Harness: any sequence of packets and records leaves the table within its bounds.

use std::time::{Duration, Instant};

use topology::Topology;
use wire::hint::{Hint, KeyId, KeyRing, Minute};
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, RegionId, Tag, TransceiverId};

use crate::flows::{Flows, FlowsConfig, Now, Source};
use crate::routes::Routes;
use crate::verdict::Uplink;

const FLOWS_MAX: u32 = 16;

/// Reads `input` as a script of actions over a handful of clients and two owners.
///
/// # Panics
/// When a rule is broken.
pub fn flows(topology: &Topology, start: Instant, input: &[u8]) {
    let Some(pop) = topology.pops.first() else {
        return;
    };
    let Some(id) = KeyId::new(1) else { return };
    let keys = KeyRing::single(id, [7; 16]);
    let routes = Routes::new(topology, pop, KeyRing::single(id, [7; 16]));
    let mut flows = Flows::new(
        FlowsConfig {
            flows_max: FLOWS_MAX,
            hash_seed: 1,
            recovery: None,
        },
        start,
    );
    let mut now = Now {
        instant: start,
        minute: Minute(1000),
    };
    for step in input.chunks_exact(4) {
        let [action, client, which, rest] = *step else {
            return;
        };
        let from = ClientAddr::new(([192, 0, 2, client % 24], 4000).into());
        let source = source(from);
        let owner = Owner {
            region: RegionId(1),
            transceiver: TransceiverId(u32::from(which % 3) + 1),
        };
        let header = RecordHeader {
            owner,
            tag: Tag {
                pop: pop.pop_id(),
                worker: 0,
                ingress: 0,
            },
            client: from,
            hops: rest % 6,
            fragment: None,
        };
        match action % 6 {
            0 => {
                let ufrag = keys.seal(
                    Hint {
                        owner,
                        issued: now.minute,
                    },
                    [action, client, rest],
                );
                let request = binding_request(ufrag.as_bytes());
                let verdict = flows.handle_uplink(&routes, source, &request, now);
                assert!(
                    !matches!(verdict, Uplink::Forward { owner: to, .. } if to != owner),
                    "a Binding request is routed by its own hint"
                );
            }
            1 => {
                flows.handle_uplink(&routes, source, step, now);
            }
            2 => {
                flows.handle_downlink(&header, &[128, rest], now);
            }
            3 => flows.handle_end(&header, now),
            4 => now.instant += Duration::from_millis(u64::from(rest) * 97),
            _ => flows.handle_timeout(now),
        }
        let stats = flows.stats();
        assert!(stats.flows <= u64::from(FLOWS_MAX), "the table is bounded");
        assert!(stats.tentative <= stats.flows, "tentative flows are flows");
    }
}

const fn source(client: ClientAddr) -> Source {
    Source { client, ingress: 0 }
}

/// A Binding request with only a USERNAME, as a PoP sees it.
#[must_use]
pub fn binding_request(ufrag: &[u8]) -> Vec<u8> {
    let mut username = ufrag.to_vec();
    username.extend(b":peer");
    let length = u16::try_from(username.len()).unwrap_or(0);
    let mut packet = vec![0, 1];
    packet.extend((4 + length.next_multiple_of(4)).to_be_bytes());
    packet.extend(wire::stun::MAGIC_COOKIE);
    packet.extend([9; 12]);
    packet.extend(wire::stun::ATTR_USERNAME.to_be_bytes());
    packet.extend(length.to_be_bytes());
    packet.extend(&username);
    packet.resize(20 + 4 + usize::from(length.next_multiple_of(4)), 0);
    packet
}
