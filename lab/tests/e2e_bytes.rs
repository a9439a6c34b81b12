//! Payload bytes in are payload bytes out, up to the longest client packet, both ways. The test plays the transceiver:
//! it holds the transceiver's address and speaks records, so nothing between hides a change.

#![cfg(test)]

use std::net::UdpSocket;
use std::time::Duration;

use lab::fake_transceiver::FakeTransceiver;
use lab::net::{Network, Shape};
use lab::wait;
use wire::record::PAYLOAD_LEN_MAX;

const SOON: Duration = Duration::from_secs(5);

fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let len = client.recv(&mut buffer).expect("a packet for the client");
    buffer[..len].to_vec()
}

/// `len` bytes that look like RTP and are all different.
fn packet(len: usize) -> Vec<u8> {
    let bytes = (0..len).map(|at| u8::try_from((at * 7 + len * 13 + (at >> 8)) & 0xff).unwrap());
    let mut packet: Vec<u8> = bytes.collect();
    packet[0] = 0x80;
    packet
}

#[test]
fn every_length_arrives_whole_both_ways() {
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for node in ["r1", "r2", "p1"] {
        network.start_node(node).unwrap();
    }
    let mut transceiver = FakeTransceiver::bind(network.topology(), "t1").unwrap();
    let flow = transceiver.commit(&network).unwrap();
    let lengths = (1..=PAYLOAD_LEN_MAX).step_by(11).chain([PAYLOAD_LEN_MAX]);
    for len in lengths {
        let sent = packet(len);
        flow.client.send(&sent).unwrap();
        let (relay, header, payload) = transceiver.receive().unwrap();
        assert_eq!(payload, sent, "{len} bytes up");
        assert_eq!(
            (header.client, header.tag),
            (flow.header.client, flow.header.tag)
        );
        transceiver.send(relay, flow.header, &sent).unwrap();
        assert_eq!(receive(&flow.client), sent, "{len} bytes down");
    }
    let too_long = packet(PAYLOAD_LEN_MAX + 1);
    flow.client.send(&too_long).unwrap();
    flow.client.send(&packet(9)).unwrap();
    assert_eq!(
        transceiver.receive().unwrap().2,
        packet(9),
        "what is too long does not arrive"
    );
    wait::until_true("the drop to be counted", SOON, || {
        network.drops("p1", "too_long").unwrap() == 1.0
    })
    .unwrap();
    assert_ne!(flow.relay.port(), 0);
}

#[test]
fn a_restarted_pop_delivers_downlink_before_it_has_heard_of_anyone() {
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for node in ["r1", "r2", "p1"] {
        network.start_node(node).unwrap();
    }
    let mut transceiver = FakeTransceiver::bind(network.topology(), "t1").unwrap();
    let flow = transceiver.commit(&network).unwrap();
    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    let down = packet(200);
    transceiver.send(flow.relay, flow.header, &down).unwrap();
    assert_eq!(receive(&flow.client), down);
    // That was enough to know whose client it is: no STUN check is needed.
    let up = packet(100);
    flow.client.send(&up).unwrap();
    assert_eq!(transceiver.receive().unwrap().2, up);
    wait::until_true("the flow to be counted", SOON, || {
        let metrics = network.metrics("p1").unwrap();
        metrics.sum("firsthop_pop_flows_made_total", &[("by", "downlink")]) == 1.0
    })
    .unwrap();
}

#[test]
fn a_restarted_pop_knows_a_client_by_the_ufrag_of_its_next_check() {
    let mut network = Network::prepare(&Shape::default(), |_| {}).unwrap();
    for node in ["r1", "r2", "p1"] {
        network.start_node(node).unwrap();
    }
    let mut transceiver = FakeTransceiver::bind(network.topology(), "t1").unwrap();
    let flow = transceiver.commit(&network).unwrap();
    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    // The transceiver says nothing, so nothing but the client's check can tell the PoP whose client it is.
    flow.client.send(&packet(100)).unwrap();
    wait::until_true("media before the check to be dropped", SOON, || {
        network.drops("p1", "no_flow").unwrap() == 1.0
    })
    .unwrap();
    flow.client.send(&flow.check).unwrap();
    let (relay, header, payload) = transceiver.receive().unwrap();
    assert_eq!(payload, flow.check);
    assert_eq!(
        (header.owner, header.client, header.tag),
        (flow.header.owner, flow.header.client, flow.header.tag)
    );
    transceiver.send(relay, header, &flow.answer).unwrap();
    assert_eq!(receive(&flow.client), flow.answer);
    flow.client.send(&packet(100)).unwrap();
    assert_eq!(transceiver.receive().unwrap().2, packet(100));
    let made = |by| {
        let metrics = network.metrics("p1").unwrap();
        metrics.sum("firsthop_pop_flows_made_total", &[("by", by)])
    };
    wait::until_true("the flow to be counted", SOON, || made("hint") == 1.0).unwrap();
    assert_eq!(made("downlink"), 0.0);
}
