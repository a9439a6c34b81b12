//! A backbone of 1,280-byte packets, for real: the loopback of a namespace carries no more. Client packets of every length
//! arrive whole, both ways, over IPv4 and IPv6, whatever else is in the batch. The test plays the transceiver.

#![cfg(test)]

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use lab::fake_transceiver::FakeTransceiver;
use lab::net::{Network, Shape, namespace};
use lab::wait;
use topology::Topology;
use wire::record::{DATAGRAM_HEADER_LEN, FRAGMENT_HEADER_LEN, PAYLOAD_LEN_MAX};

const SOON: Duration = Duration::from_secs(10);
/// What an IPv6 path carries at least (RFC 8200 §5), and the loopback of these tests at most.
const IP_MTU: u16 = 1280;

/// Every length around those at which a record fills a datagram, whole or as one of two parts.
fn lengths(room: usize, header_len: usize) -> Vec<usize> {
    let whole = room - header_len;
    let part = room - header_len - FRAGMENT_HEADER_LEN;
    let around = [1, whole, whole / 2, part, 2 * part, PAYLOAD_LEN_MAX];
    let mut lengths: Vec<_> = around
        .into_iter()
        .flat_map(|at| at.saturating_sub(2)..=at + 2)
        .filter(|len| (1..=PAYLOAD_LEN_MAX).contains(len))
        .collect();
    lengths.extend((1..PAYLOAD_LEN_MAX).step_by(97));
    lengths
}

/// Every node speaks IPv6, but for its admin HTTP, which stays on loopback.
fn to_ipv6(topology: &mut Topology) {
    let v6 = |address: IpAddr| -> IpAddr {
        let IpAddr::V4(v4) = address else {
            return address;
        };
        let [_, run, net, host] = v4.octets().map(u16::from);
        IpAddr::from([0xfd77, 0, 0, 0, 0, run, net, host])
    };
    let socket = |address: &mut SocketAddr| address.set_ip(v6(address.ip()));
    let region = &mut topology.regions[0];
    for relay in &mut region.core_relays {
        relay.address = v6(relay.address);
    }
    let network = v6(region.transceivers.cidr.network());
    region.transceivers.cidr = ipnet::IpNet::new_assert(network, 112);
    for node in &mut region.transceivers.nodes {
        node.address = v6(node.address);
        socket(&mut node.whip);
        socket(&mut node.peer);
    }
    for pop in &mut topology.pops {
        pop.ingress.iter_mut().for_each(socket);
        pop.backbone = v6(pop.backbone);
    }
}

fn ip(arguments: &str) {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

fn addresses(topology: &Topology) -> Vec<IpAddr> {
    let region = &topology.regions[0];
    let relays = region.core_relays.iter().map(|relay| relay.address);
    let transceivers = region.transceivers.nodes.iter().map(|node| node.address);
    let pops = topology.pops.iter().map(|pop| pop.backbone);
    relays.chain(transceivers).chain(pops).collect()
}

fn packet(len: usize) -> Vec<u8> {
    let bytes = (0..len).map(|at| u8::try_from((at * 7 + len * 13 + (at >> 8)) & 0xff).unwrap());
    let mut packet: Vec<u8> = bytes.collect();
    packet[0] = 0x80;
    packet
}

fn every_length_arrives(v6: bool) {
    let headers = if v6 { 48 } else { 28 };
    // Addresses of the PoP are its own, so that clients of the same family reach it.
    let mut network = Network::prepare(&Shape::default(), |topology| {
        topology.network.link.mtu_bytes = IP_MTU - headers;
        if v6 {
            to_ipv6(topology);
        }
    })
    .unwrap();
    for address in addresses(network.topology()) {
        if address.is_ipv6() {
            ip(&format!("address add {address}/128 dev lo nodad"));
        }
    }
    ip(&format!("link set lo mtu {IP_MTU}"));
    for node in ["r1", "r2", "p1"] {
        network.start_node(node).unwrap();
    }
    let mut transceiver = FakeTransceiver::bind(network.topology(), "t1").unwrap();
    let (one, other) = (
        transceiver.commit(&network).unwrap(),
        transceiver.commit(&network).unwrap(),
    );
    let room = network.topology().network.link.datagram_len_max() - DATAGRAM_HEADER_LEN;
    let mut buffer = [0; 2048];
    for len in lengths(room, one.header.encoded_len()) {
        // A small packet of another flow goes before and after it, most often in the same batch.
        let (small, sent) = (packet(60), packet(len));
        other.client.send(&small).unwrap();
        one.client.send(&sent).unwrap();
        other.client.send(&small).unwrap();
        let mut arrived: Vec<_> = (0..3)
            .map(|_| transceiver.receive().unwrap())
            .map(|(_, header, payload)| (header.client, payload))
            .collect();
        arrived.retain(|(client, payload)| *client == one.header.client || *payload != small);
        assert_eq!(arrived, [(one.header.client, sent.clone())], "{len} up");
        for (flow, payload) in [(&other, &small), (&one, &sent), (&other, &small)] {
            transceiver.send(flow.relay, flow.header, payload).unwrap();
        }
        let got = one.client.recv(&mut buffer).unwrap();
        assert_eq!(buffer[..got], sent, "{len} down");
        for _ in 0..2 {
            let got = other.client.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..got], small);
        }
    }
    let drops = [("p1", "pop"), ("r1", "core_relay"), ("r2", "core_relay")];
    for (node, program) in drops {
        let metrics = network.metrics(node).unwrap();
        let dropped = metrics.sum(&format!("firsthop_{program}_drops_total"), &[]);
        assert_eq!(dropped, 0.0, "{node}");
    }
    let failed = network.metrics("p1").unwrap();
    assert_eq!(
        failed.sum("firsthop_pop_backbone_send_failures_total", &[]),
        0.0
    );
}

#[test]
fn every_length_arrives_whole_over_1280_bytes_of_ipv4() {
    namespace::run(|_| {
        every_length_arrives(false);
        Ok(())
    })
    .unwrap();
}

#[test]
fn every_length_arrives_whole_over_1280_bytes_of_ipv6() {
    namespace::run(|_| {
        every_length_arrives(true);
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_path_that_shrinks_below_the_topology_is_reported_as_such() {
    namespace::run(|_| {
        let network = Network::start(&Shape::default())?;
        let downs = || {
            let metrics = network.metrics("p1")?;
            let labels = [("reason", "mtu")];
            anyhow::Ok(metrics.sum("firsthop_pop_link_downs_total", &labels))
        };
        let up = || {
            let metrics = network.metrics("p1");
            metrics.is_ok_and(|metrics| metrics.sum("firsthop_pop_link_up", &[]) == 2.0)
        };
        wait::until_true("both links", SOON, up)?;
        ip("link set lo mtu 1400");
        wait::until_true("both to be given up for their size", SOON, || {
            downs().is_ok_and(|downs| downs == 2.0)
        })?;
        ip("link set lo mtu 1500");
        wait::until_true("both links again", SOON, up)
    })
    .unwrap();
}
