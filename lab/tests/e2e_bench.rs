//! The network that benchmarks use: flows commit, and what clients send comes back whole, in both datagramss.

#![cfg(test)]

use std::time::Duration;

use lab::bench::clients::Clients;
use lab::bench::closed_loop::{Direction, Load, saturate};
use lab::bench::paced::pace;
use lab::bench::path::{Path, Variant};
use lab::bench::world::World;
use lab::standstill::{Figures, figures};
use lab::wait;
use topology::Datagrams;

const SOON: Duration = Duration::from_secs(5);

#[test]
fn every_client_gets_its_packets_back() {
    for datagrams in [Datagrams::Packed, Datagrams::Single] {
        let mut world = World::start(datagrams, |_| {}).unwrap();
        let mut clients = Clients::open(300, world.ingress()).unwrap();
        world.commit(&mut clients).unwrap();
        let before = world.time().unwrap();
        for client in 0..clients.len() {
            assert!(clients.send(client, &packets(client), 1200));
        }
        let mut back = vec![Vec::new(); clients.len()];
        wait::until_true("every packet to come back", SOON, || {
            world.far_end.echo().unwrap();
            for (client, back) in back.iter_mut().enumerate() {
                let take = |packet: &[u8]| back.extend_from_slice(packet);
                clients.receive(client, take).unwrap();
            }
            back.iter().all(|back| back.len() == 2400)
        })
        .unwrap();
        for (client, back) in back.iter().enumerate() {
            assert!(*back == packets(client), "client {client}");
        }
        let used = world.time().unwrap().since(before);
        assert!(used.pop > Duration::ZERO && used.core_relay > Duration::ZERO);
    }
}

#[test]
fn flows_outlive_the_sockets_of_absent_clients() {
    let mut world = World::start(Datagrams::Packed, |_| {}).unwrap();
    world.commit_absent(0, 1000).unwrap();
    world.commit_absent(1000, 1000).unwrap();
    let flows = || world.network.metrics("p1").unwrap().sum(FLOWS, &[]);
    wait::until_true("two thousand flows", SOON, || flows() == 2000.0).unwrap();
}

#[test]
fn every_path_of_the_benchmark_carries_both_ways_and_accounts_for_each_hop() {
    let load = |burst| Load {
        direction: Direction::Both,
        packet_len: 160,
        burst,
    };
    for variant in Variant::ALL {
        let mut path = Path::start(variant, 40, 0).unwrap();
        for burst in [1, 8] {
            let sample = saturate(&mut path, load(burst), Duration::from_millis(100)).unwrap();
            assert!(
                sample.up > 100 && sample.down > 100,
                "{variant:?} {sample:?}"
            );
            let working = sample.time.iter().filter(|time| !time.is_zero()).count();
            let hops = if variant == Variant::PlainOneHop {
                1
            } else {
                2
            };
            assert_eq!(working, hops, "{variant:?}");
        }
        let what = format!("{variant:?} at a thousand packets a second");
        figures(&what, || {
            let sample = pace(&mut path, 1000, 100, Duration::from_millis(100)).unwrap();
            assert!(sample.p50_us > 1.0 && sample.p99_us >= sample.p50_us);
            let mut found = Figures::default();
            found.below("lost, or late", sample.lost, 1);
            found
        })
        .unwrap();
    }
}

const FLOWS: &str = "firsthop_pop_flows";

/// Two packets of 1,200 bytes that look like media and that no other client sends.
fn packets(client: usize) -> Vec<u8> {
    let byte = |at: usize| u8::try_from((at * 7 + client * 13) & 0xff).unwrap();
    let mut packets: Vec<_> = (0..2400).map(byte).collect();
    packets[0] = 0x80;
    packets[1200] = 0x80;
    packets
}
