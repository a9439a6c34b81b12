//! The core relay as a real process: records cross it both ways, what must not pass is dropped for its reason, and it heals.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "functions that tests share, where a panic is a failed test"
)]
#![expect(
    clippy::float_cmp,
    reason = "metrics are counts, exact as floats, and compared for equality"
)]

#[path = "relay/net.rs"]
mod net;

use std::net::SocketAddr;
use std::time::Duration;

use core_relay_link::{DownReason, LinkEvent};
use net::{Net, datagrams, header, udp, until};
use topology::Link;
use wire::record::{DatagramKind, HOPS_MAX, RecordHeader, datagram_header, put_record};
use wire::{Owner, PopId, RegionId, Tag, TransceiverId};

/// A datagram of records, as a transceiver sends it.
fn datagram(records: &[(RecordHeader, &[u8])]) -> Vec<u8> {
    let mut out = datagram_header(DatagramKind::Records, 0).to_vec();
    for (header, payload) in records {
        put_record(&mut out, header, payload);
    }
    out
}

fn with_owner(region: u16, transceiver: u32) -> RecordHeader {
    RecordHeader {
        owner: Owner {
            region: RegionId(region),
            transceiver: TransceiverId(transceiver),
        },
        ..header(1)
    }
}

fn with_tag(pop: u16, worker: u8) -> RecordHeader {
    let tag = header(1).tag;
    RecordHeader {
        tag: Tag {
            pop: PopId(pop),
            worker,
            ..tag
        },
        ..header(1)
    }
}

fn too_far() -> RecordHeader {
    RecordHeader {
        hops: HOPS_MAX,
        ..header(1)
    }
}

#[test]
fn records_cross_both_ways_regrouped() {
    let mut net = Net::new(1);
    net.start();
    let (t1, t2) = (net.transceiver(1), net.transceiver(2));
    let mut ams = net.pop("ams");
    let mut nyc = net.pop("nyc");
    ams.up();
    nyc.up();
    // 64 records for two transceivers, alternating, 160 bytes each.
    for index in 0..64u8 {
        ams.send(&header(1 + u32::from(index % 2)), &[index; 160]);
    }
    ams.flush();
    for (socket, remainder) in [(t1.try_clone().unwrap(), 0u8), (t2, 1)] {
        let got = datagrams(&socket);
        let payloads: Vec<_> = got.iter().flat_map(|(_, records)| records).collect();
        let expected: Vec<u8> = (0..64).filter(|index| index % 2 == remainder).collect();
        let indexes: Vec<u8> = payloads.iter().map(|(_, payload)| payload[0]).collect();
        assert_eq!(indexes, expected);
        assert!(payloads.iter().all(|(header, _)| header.hops == 1));
        assert!(got.iter().all(|(from, _)| *from == net.record_address()));
        // As many as came in, at most: batches may split them, a forwarder of packets would need 32.
        assert!(got.len() <= 10, "{} datagrams", got.len());
    }
    // Downlink for both PoPs in one datagram.
    let back = header(1);
    let to_nyc = with_tag(2, 0);
    let down = datagram(&[
        (back, b"for ams"),
        (to_nyc, b"for nyc"),
        (back, b"too"),
        (back, b""),
    ]);
    t1.send_to(&down, net.record_address()).unwrap();
    until("downlink", || {
        ams.turn();
        nyc.turn();
        ams.received.len() == 3 && nyc.received.len() == 1
    });
    assert_eq!(ams.received[0].1, b"for ams");
    assert_eq!(ams.received[1].1, b"too");
    assert_eq!(ams.received[2].1, b"", "an end record");
    assert_eq!(nyc.received[0].1, b"for nyc");
    assert_eq!(nyc.received[0].0.hops, 1);
    until("figures", || {
        net.metric("firsthop_core_relay_records_total") == 68.0
    });
    assert_eq!(net.metric("firsthop_core_relay_link_up"), 2.0);
    assert_eq!(net.metric("firsthop_core_relay_drops_total"), 0.0);
    let state = net.get("/state");
    for part in [
        "\"pop\":\"ams\"",
        "\"pop\":\"nyc\"",
        "\"rtt_us\":",
        "\"region\":\"eu\"",
    ] {
        assert!(state.contains(part), "{part} in {state}");
    }
}

#[test]
fn loss_and_disorder_between_transceivers_and_the_relay_are_counted() {
    let mut net = Net::new(1);
    net.start();
    let (t1, t2) = (net.transceiver(1), net.transceiver(2));
    // Of the first, three are missing and two change places; of the second, none.
    let all = (0..400u16).filter(|sequence| !(200..203).contains(sequence));
    let swapped = all.map(|sequence| match sequence {
        100 => 101,
        101 => 100,
        other => other,
    });
    let records = |sequence| {
        let mut out = datagram_header(DatagramKind::Records, sequence).to_vec();
        put_record(&mut out, &header(1), b"down");
        out
    };
    for sequence in swapped {
        t1.send_to(&records(sequence), net.record_address())
            .unwrap();
        t2.send_to(&records(sequence / 2), net.record_address())
            .unwrap();
    }
    let figure = |name| {
        net.metric(&format!(
            "firsthop_core_relay_transceivers_datagrams_{name}"
        ))
    };
    until("figures", || figure("arrived") == 794.0);
    assert_eq!((figure("lost"), figure("reordered")), (3.0, 1.0));
}

#[test]
fn uplink_that_must_not_pass_is_dropped_for_its_reason() {
    let mut net = Net::new(2);
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    ams.up();
    let good = header(1);
    let uplink = [
        ("outside_cidr", with_owner(1, 15)),
        ("outside_cidr", with_owner(1, 4096)),
        ("wrong_region", with_owner(2, 1)),
        ("wrong_pop", with_tag(2, 0)),
        ("wrong_worker", with_tag(1, 1)),
        ("hop_limit", too_far()),
    ];
    for (_, header) in &uplink {
        ams.send(header, b"no");
    }
    ams.send(&good, b"yes");
    ams.flush();
    for (reason, _) in &uplink {
        let count = uplink.iter().filter(|(other, _)| other == reason).count();
        net.expect_drops(&mut ams, reason, f64::from(u8::try_from(count).unwrap()));
    }
    let got = datagrams(&t1);
    assert_eq!((got.len(), &got[0].1[0].1[..]), (1, &b"yes"[..]));
}

#[test]
fn downlink_that_must_not_pass_is_dropped_for_its_reason() {
    let mut net = Net::new(9);
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    ams.up();
    let good = header(1);
    let stranger = udp(SocketAddr::new(net.ip(50), net::TRANSCEIVER_PORT));
    let wrong_port = udp(SocketAddr::new(net.ip(2), net::TRANSCEIVER_PORT + 1));
    for socket in [&stranger, &wrong_port] {
        socket
            .send_to(&datagram(&[(good, b"no")]), net.record_address())
            .unwrap();
    }
    net.expect_drops(&mut ams, "unknown_source", 2.0);
    let downlink = [
        ("spoofed_owner", datagram(&[(header(2), b"no")])),
        ("no_link", datagram(&[(with_tag(9, 0), b"no")])),
        ("bad_record", b"not a datagram of records".to_vec()),
        (
            "unexpected_kind",
            datagram_header(DatagramKind::Ping, 0).to_vec(),
        ),
    ];
    for (reason, bytes) in &downlink {
        t1.send_to(bytes, net.record_address()).unwrap();
        net.expect_drops(&mut ams, reason, 1.0);
    }
    t1.send_to(
        &datagram(&[(too_far(), b"no"), (good, b"yes")]),
        net.record_address(),
    )
    .unwrap();
    net.expect_drops(&mut ams, "hop_limit", 1.0);
    until("downlink", || {
        ams.turn();
        !ams.received.is_empty()
    });
    assert_eq!(ams.received[0].1, b"yes");
}

#[test]
fn killed_and_restarted_it_heals() {
    // Silence is what this is about.
    let mut net = Net::with_link(3, Link::default());
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    ams.up();
    net.kill();
    let took = until("the PoP notices", || {
        ams.turn();
        !ams.is_up()
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    net.start();
    ams.up();
    ams.send(&header(1), b"again");
    ams.flush();
    assert_eq!(datagrams(&t1)[0].1[0].1, b"again");
    // At once: nothing told the PoP but the relay that does not know it any more.
    net.kill();
    net.start();
    until("the PoP notices", || {
        ams.turn();
        matches!(ams.events.last(), Some(LinkEvent::Up { .. }))
            && ams.links.stats(ams.link).unwrap().ups == 3
    });
}

#[test]
fn only_pops_of_the_topology_may_connect() {
    let mut net = Net::new(4);
    net.start();
    for name in ["t1", "r1", "lon"] {
        let mut other = net.pop(name);
        until("refused", || {
            other.turn();
            let refused = |event: &LinkEvent| {
                matches!(
                    event,
                    LinkEvent::DialFailed {
                        reason: DownReason::Identity,
                        ..
                    }
                )
            };
            other.events.iter().any(refused)
        });
        assert!(!other.is_up());
    }
    let identity = "firsthop_core_relay_links_refused_total{reason=\"identity\"}";
    until("counted", || net.metric(identity) >= 3.0);
}

#[test]
fn garbage_to_both_ports_changes_nothing() {
    let mut net = Net::new(5);
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    ams.up();
    let stranger = udp(SocketAddr::from(([127, 0, 0, 1], 0)));
    let mut random = 1u64;
    for round in 0..20_000u32 {
        let len = usize::try_from(round % 1500).unwrap();
        let packet: Vec<u8> = (0..len)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                random.to_be_bytes()[0]
            })
            .collect();
        let _ = stranger.send_to(&packet, net.link_address());
        let _ = stranger.send_to(&packet, net.record_address());
        let _ = t1.send_to(&packet, net.record_address());
        if round % 100 == 0 {
            ams.turn();
        }
    }
    ams.send(&header(1), b"still here");
    ams.flush();
    let got = datagrams(&t1);
    assert_eq!(got.last().unwrap().1[0].1, b"still here");
    assert_eq!(ams.links.stats(ams.link).unwrap().ups, 1);
    assert!(net.drops("unknown_source") > 0.0 && net.drops("bad_record") > 0.0);
}

#[test]
fn told_to_end_it_drains_and_ends() {
    let mut net = Net::new(6);
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    ams.up();
    net.signal("-TERM");
    until("the PoP is told", || {
        ams.turn();
        ams.links.stats(ams.link).unwrap().draining
    });
    until("not ready", || net.get("/readyz").contains("draining"));
    // While records come, it serves.
    for _ in 0..6 {
        ams.send(&header(1), b"late");
        ams.flush();
        assert_eq!(datagrams(&t1).len(), 1);
        let pause = runtime::clock::now() + Duration::from_millis(300);
        until("a pause", || {
            ams.turn();
            runtime::clock::now() > pause
        });
        assert!(!net.has_ended());
    }
    let took = until("it ended", || {
        ams.turn();
        net.has_ended()
    });
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(net.exit_status().code(), Some(0));
    until("the PoP heard", || {
        ams.turn();
        let stopped = |event: &LinkEvent| {
            matches!(
                event,
                LinkEvent::Down {
                    reason: DownReason::PeerStopped,
                    ..
                }
            )
        };
        ams.events.iter().any(stopped)
    });
}

#[test]
fn a_reload_keeps_the_links_of_pops_that_stay() {
    let mut net = Net::new(7);
    net.start();
    let t1 = net.transceiver(1);
    let mut ams = net.pop("ams");
    let mut nyc = net.pop("nyc");
    ams.up();
    nyc.up();
    net.write_credentials();
    net.write_topology(&["ams"]);
    net.signal("-HUP");
    until("nyc is out", || {
        ams.turn();
        nyc.turn();
        !nyc.is_up()
    });
    ams.send(&header(1), b"kept");
    ams.flush();
    assert_eq!(datagrams(&t1)[0].1[0].1, b"kept");
    assert_eq!(ams.links.stats(ams.link).unwrap().ups, 1);
    // One that comes later meets the certificate of the reload.
    let mut later = net.pop("ams");
    later.up();
    net.write_topology(&["ams", "nyc"]);
    net.signal("-HUP");
    nyc.up();
}

#[test]
fn an_address_that_is_taken_is_one_line_and_nothing_is_left() {
    let mut net = Net::new(8);
    net.start();
    let other = std::process::Command::new(env!("CARGO_BIN_EXE_core-relay"))
        .args(net.arguments())
        .output()
        .unwrap();
    assert_eq!(other.status.code(), Some(1));
    let text = String::from_utf8(other.stderr).unwrap();
    let last = text.lines().last().unwrap();
    assert!(
        last.contains("worker 0") && last.contains(":7443"),
        "{text}"
    );
}
