//! Real WebRTC clients through PoP, core relay and transceiver as separate processes.

#![cfg(test)]

use lab::clients::{Client, Plan, call};
use lab::net::{Network, Shape, namespace};
use serde_json::Value;

/// Starts a network, makes one call through its first PoP, and checks what every client must have seen.
fn call_through(client: Client, seconds: u32, actions: &[&str], shape: &Shape) -> Value {
    let network = Network::start(shape).unwrap();
    let plan = Plan {
        whip: &network.whip("t1"),
        seconds,
        actions,
        only: None,
    };
    let result = call(client, &plan).unwrap();
    eprintln!("{result}");
    assert_eq!(result["remote"], network.ingress("p1").to_string());
    assert_eq!(result["state"], "connected");
    assert_eq!(result["echoes"], 20, "data channel");
    assert_eq!(result["deleted"], 200);
    assert_eq!(result["session"], "t1/1");
    let (sent, received) = (count(&result, "sent"), count(&result, "received"));
    assert!(sent >= u64::from(seconds) * 40, "sent {sent}");
    // What was sent in the last moment is still on its way when the client looks.
    assert!(received + 10 >= sent, "{received} of {sent} came back");
    assert_eq!(count(&result, "lost"), 0);
    network.wait_no_sessions("t1").unwrap();
    for direction in ["up", "down"] {
        let packets = network.metrics("p1").unwrap();
        let packets = packets.sum("firsthop_pop_packets_total", &[("direction", direction)]);
        assert!(
            packets >= received as f64,
            "{packets} went {direction} through the PoP"
        );
    }
    result
}

fn assert_audible(result: &Value) {
    assert!(
        result["energy_in"].as_f64().unwrap() > 0.0,
        "only silence came back"
    );
    assert!(count(result, "samples_in") > 48_000);
    assert_eq!(result["blob_echoed"], true);
}

fn count(result: &Value, field: &str) -> u64 {
    result[field]
        .as_u64()
        .unwrap_or_else(|| panic!("{field} of {result}"))
}

const ALL_ACTIONS: &[&str] = &["trickle", "restart", "renegotiate", "restart"];

#[test]
fn chromium_calls_restarts_ice_and_renegotiates() {
    let result = call_through(Client::Chromium, 6, ALL_ACTIONS, &Shape::default());
    assert_audible(&result);
    assert_eq!(result["trickle"]["status"], 204);
    assert_eq!(result["restart"]["status"], 200);
    assert_eq!(result["restart"]["new_ufrag"], true);
    assert_eq!(result["restart"]["new_etag"], true);
    assert_eq!(result["renegotiate"]["status"], 200);
    assert_eq!(result["renegotiate"]["sections"], 3);
}

#[test]
fn firefox_calls_in_a_namespace() {
    let result = namespace::run(|address| {
        let shape = Shape {
            ingress: Some(address),
            ..Shape::default()
        };
        Ok(call_through(Client::Firefox, 5, &["restart"], &shape))
    });
    let result = result.unwrap();
    assert_audible(&result);
    assert_eq!(result["restart"]["status"], 200);
}

#[test]
fn aiortc_calls() {
    let result = call_through(Client::Aiortc, 5, &[], &Shape::default());
    assert!(count(&result, "frames") >= 200);
}

#[test]
fn libdatachannel_calls_and_gets_its_payloads_back_unaltered() {
    let result = call_through(Client::Libdatachannel, 5, &[], &Shape::default());
    assert_eq!(count(&result, "altered"), 0);
}

#[test]
fn libwebrtc_calls_and_restarts_ice() {
    let result = call_through(Client::Libwebrtc, 5, &["restart"], &Shape::default());
    assert_audible(&result);
    assert!(count(&result, "loud_frames") >= 200, "the tone came back");
    assert_eq!(result["restart"]["status"], 200);
}
