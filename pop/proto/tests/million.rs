//! A table of a million flows: what it weighs, and that neither growth, churn nor expiry ever takes long at once.

#![expect(clippy::unwrap_used, reason = "a test fails loudly")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use pop_proto::{Downlink, Flows, FlowsConfig, Neighbours, Now};
use wire::hint::Minute;
use wire::record::RecordHeader;
use wire::{ClientAddr, Owner, PopId, RegionId, Tag, TransceiverId};

const MILLION: u32 = 1_000_000;
const RTP: &[u8] = &[0x80, 111, 0, 1];
/// What a flow may weigh, index included.
const FLOW_BYTES_MAX: usize = 128;

#[expect(clippy::disallowed_methods, reason = "a test has to begin somewhere")]
fn now() -> Now {
    Now {
        instant: Instant::now(),
        minute: Minute(1),
    }
}

fn empty(flows_max: u32, now: Now) -> Flows {
    let config = FlowsConfig {
        flows_max,
        hash_seed: 7,
        recovery: None,
    };
    Flows::new(config, now.instant)
}

fn v4(number: u32) -> ClientAddr {
    let ip = Ipv4Addr::from_bits(0x0b00_0000 + number / 4);
    ClientAddr::new(SocketAddr::new(IpAddr::V4(ip), port(number)))
}

fn v6(number: u32) -> ClientAddr {
    let ip = Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(number / 4) << 64 | 1);
    ClientAddr::new(SocketAddr::new(IpAddr::V6(ip), port(number)))
}

fn port(number: u32) -> u16 {
    u16::try_from(number % 4).unwrap() * 16_000 + 1000
}

/// Makes the flow of this client, or hears its owner.
fn hear(flows: &mut Flows, client: ClientAddr, now: Now) {
    let header = RecordHeader {
        owner: Owner {
            region: RegionId(1),
            transceiver: TransceiverId(1),
        },
        tag: Tag {
            pop: PopId(1),
            worker: 0,
            ingress: 0,
        },
        client,
        hops: 0,
        fragment: None,
        offered: false,
    };
    let verdict = flows.handle_downlink(&header, RTP, now);
    assert_eq!(verdict, Downlink::Deliver);
}

#[test]
fn a_flow_weighs_less_than_128_bytes_and_an_empty_table_next_to_nothing() {
    for (family, client) in [("IPv4", v4 as fn(u32) -> ClientAddr), ("IPv6", v6)] {
        let now = now();
        let mut flows = empty(1 << 20, now);
        let idle = flows.memory_bytes();
        assert!(idle < 1 << 20, "{idle} bytes without a flow");
        let mut worst = 0;
        for number in 0..MILLION {
            hear(&mut flows, client(number), now);
            // At every size there are, not only where the shards happen to be well filled.
            if number >= 100_000 && number % 1000 == 0 {
                worst = worst.max((flows.memory_bytes() - idle) / number as usize);
            }
        }
        assert_eq!(flows.stats().flows, u64::from(MILLION));
        // What workers share to offer packets by, as if this were the only one.
        let shared = Neighbours::new(1 << 20, 7, now.instant).bytes();
        let each = (flows.memory_bytes() + shared).div_ceil(MILLION as usize);
        println!(
            "{family}: {each} bytes a flow at 1 M, {worst} at the worst size above 100 k, {idle} bytes idle"
        );
        assert!(each <= FLOW_BYTES_MAX, "{family}: {each} bytes");
        assert!(worst <= FLOW_BYTES_MAX, "{family}: {worst} bytes");
    }
}

#[test]
fn churn_takes_no_more_memory_and_expiry_goes_in_small_steps() {
    const FLOWS: u32 = 200_000;
    let mut now = now();
    let mut flows = empty(FLOWS, now);
    for number in 0..FLOWS {
        hear(&mut flows, v4(number), now);
    }
    let full = flows.memory_bytes();
    for round in 1..=3 {
        now.instant += Duration::from_secs(61);
        let (mut expired, mut steps) = (flows.stats().expired, 0);
        let begin = now.instant;
        while let Some(due) = flows.poll_timeout() {
            now.instant = now.instant.max(due);
            flows.handle_timeout(now);
            let gone = flows.stats().expired - expired;
            expired += gone;
            assert!(gone <= 1024, "{gone} in one step");
            steps += 1;
        }
        let took = now.instant - begin;
        assert_eq!(
            (flows.stats().flows, expired),
            (0, u64::from(FLOWS * round))
        );
        assert!(steps >= FLOWS / 1024, "{steps}");
        assert!(took < Duration::from_secs(5), "{took:?} for a pass");
        for number in 0..FLOWS {
            hear(&mut flows, v4(number + FLOWS * round), now);
        }
        // Addresses fall into shards as chance has it: a few of them may grow once more.
        assert!(flows.memory_bytes() <= full + full / 20, "round {round}");
    }
    assert_eq!(flows.stats().unlearned, 0);
}
