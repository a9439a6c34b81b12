//! Over real loopback sockets.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use bytes::BytesMut;

use super::*;
use crate::metrics::Registry;
use crate::poll::Poller;

fn loopback(options: BindOptions) -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap()
}

fn gro() -> BindOptions {
    BindOptions {
        gro: true,
        ..BindOptions::default()
    }
}

/// Receives until `wanted` datagrams are in, each with its sender.
fn receive(socket: &UdpSocket, batch: &mut RecvBatch, wanted: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut poller = Poller::new();
    let mut got = Vec::new();
    while got.len() < wanted {
        let ready = poller
            .wait(&[socket.as_fd()], Some(Duration::from_secs(5)))
            .unwrap();
        assert!(
            ready.is_ready(0),
            "{} of {wanted} datagrams came",
            got.len()
        );
        batch.recv(socket).unwrap();
        got.extend(batch.iter().map(|(from, segment)| (from, segment.to_vec())));
    }
    got
}

fn payload(index: u8, len: usize) -> Vec<u8> {
    vec![index; len]
}

#[test]
fn a_batch_goes_out_in_one_call_and_comes_in_whole() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let mut out = SendBatch::new(64, 1500);
    for index in 0..64 {
        assert!(out.push(
            receiver.local_addr(),
            &payload(index, 1 + usize::from(index))
        ));
    }
    assert!(out.is_full() && !out.push(receiver.local_addr(), b"one too many"));
    let report = out.flush(&sender);
    let expected = SendReport {
        sent: 64,
        calls: 1,
        ..SendReport::default()
    };
    assert_eq!(report, expected);
    assert!(out.is_empty());
    let mut batch = RecvBatch::new(64, 1500);
    let got = receive(&receiver, &mut batch, 64);
    for (index, (from, bytes)) in (0..).zip(got) {
        assert_eq!(from, sender.local_addr());
        assert_eq!(bytes, payload(index, 1 + usize::from(index)));
    }
    assert_eq!(batch.recv(&receiver).unwrap(), 0);
    assert_eq!(batch.iter().count(), 0);
}

#[test]
fn one_bad_destination_holds_up_nobody() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let mut out = SendBatch::new(8, 70_000);
    let to = receiver.local_addr();
    // Broadcast without SO_BROADCAST, an address of the other family, and a datagram no packet holds.
    assert!(out.push("255.255.255.255:9".parse().unwrap(), b"a"));
    assert!(out.push(to, b"b"));
    assert!(out.push("[::1]:9".parse().unwrap(), b"c"));
    assert!(out.push(to, &payload(0, 66_000)));
    assert!(out.push(to, b"d"));
    let report = out.flush(&sender);
    assert_eq!((report.sent, report.failed, report.would_block), (2, 3, 0));
    let got = receive(&receiver, &mut RecvBatch::new(8, 1500), 2);
    let bytes: Vec<&[u8]> = got.iter().map(|(_, bytes)| bytes.as_slice()).collect();
    assert_eq!(bytes, [b"b", b"d"]);
}

#[test]
fn a_payload_longer_than_a_slot_is_refused_and_one_that_is_received_is_counted() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let mut out = SendBatch::new(4, 1000);
    let to = receiver.local_addr();
    assert!(!out.push(to, &payload(0, 1001)));
    assert!(out.push(to, &payload(1, 1000)) && out.push(to, &payload(2, 100)));
    out.flush(&sender);
    let mut batch = RecvBatch::new(4, 500);
    let got = receive(&receiver, &mut batch, 1);
    assert_eq!(got[0].1, payload(2, 100));
    assert_eq!(batch.truncated(), 1);
}

#[test]
fn a_datagram_without_a_byte_in_it_is_seen() {
    for options in [BindOptions::default(), gro()] {
        let (sender, receiver) = (loopback(BindOptions::default()), loopback(options));
        let mut out = SendBatch::new(4, 8);
        for payload in [&b"a"[..], b"", b"b", b""] {
            assert!(out.push(receiver.local_addr(), payload));
        }
        assert_eq!(out.flush(&sender).sent, 4);
        let got = receive(&receiver, &mut RecvBatch::new(8, GRO_SLOT_BYTES), 4);
        let lens: Vec<usize> = got.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(lens.iter().sum::<usize>(), 2, "{lens:?}");
    }
}

fn train(segments: usize, segment_bytes: usize, tail: usize) -> Vec<u8> {
    let mut buf = Vec::new();
    for index in 0..segments {
        buf.extend(payload(u8::try_from(index % 251).unwrap(), segment_bytes));
    }
    buf.extend(payload(255, tail));
    buf
}

#[test]
fn a_train_is_segmented_by_the_kernel_and_joined_again() {
    let (sender, receiver) = (loopback(BindOptions::default()), loopback(gro()));
    let buf = train(40, 1452, 100);
    send_segments(&sender, receiver.local_addr(), &buf, 1452).unwrap();
    assert_eq!(sender.segmentation_fallbacks(), 0);
    let mut poller = Poller::new();
    poller
        .wait(&[receiver.as_fd()], Some(Duration::from_secs(5)))
        .unwrap();
    let mut batch = RecvBatch::new(8, GRO_SLOT_BYTES);
    assert_eq!(
        batch.recv(&receiver).unwrap(),
        1,
        "one slot holds the train"
    );
    let lens: Vec<usize> = batch.iter().map(|(_, segment)| segment.len()).collect();
    assert_eq!(lens.len(), 41);
    assert!(lens[..40].iter().all(|len| *len == 1452) && lens[40] == 100);
    let joined: Vec<u8> = batch
        .iter()
        .flat_map(|(_, segment)| segment.to_vec())
        .collect();
    assert_eq!(joined, buf);
}

#[test]
fn a_receiver_without_gro_gets_single_datagrams_of_a_long_train() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let buf = train(150, 200, 1);
    send_segments(&sender, receiver.local_addr(), &buf, 200).unwrap();
    let got = receive(&receiver, &mut RecvBatch::new(64, 1500), 151);
    let joined: Vec<u8> = got.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert_eq!(joined, buf);
}

#[test]
fn where_the_kernel_refuses_segmentation_datagrams_go_out_one_by_one() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    sender.segmentation().refuse();
    let buf = train(5, 300, 7);
    send_segments(&sender, receiver.local_addr(), &buf, 300).unwrap();
    assert_eq!(sender.segmentation_fallbacks(), 1);
    assert_eq!(receive(&receiver, &mut RecvBatch::new(8, 1500), 6).len(), 6);
}

#[test]
fn segments_to_a_bad_destination_are_an_error() {
    let sender = loopback(BindOptions::default());
    let to = "255.255.255.255:9".parse().unwrap();
    assert!(send_segments(&sender, to, &train(3, 100, 0), 100).is_err());
    assert!(send_segments(&sender, to, &[0; 70_000], 70_000).is_err());
    assert_eq!(sender.segmentation_fallbacks(), 0);
}

#[test]
fn owned_segments_reuse_their_memory_once_dropped_and_survive_when_kept() {
    let (sender, receiver) = (loopback(BindOptions::default()), loopback(gro()));
    let mut batch = RecvBatch::new(1, GRO_SLOT_BYTES);
    let mut poller = Poller::new();
    let mut next = |batch: &mut RecvBatch, fill: u8| -> Vec<BytesMut> {
        let mut buf = payload(fill, 1000);
        buf.extend(payload(fill + 1, 1000));
        send_segments(&sender, receiver.local_addr(), &buf, 1000).unwrap();
        poller
            .wait(&[receiver.as_fd()], Some(Duration::from_secs(5)))
            .unwrap();
        assert_eq!(batch.recv(&receiver).unwrap(), 1);
        let segments = batch.drain().map(|(from, segment)| {
            assert_eq!(from, sender.local_addr());
            segment
        });
        segments.collect()
    };
    let first = next(&mut batch, 1);
    let address = first[0].as_ptr();
    drop(first);
    let second = next(&mut batch, 3);
    assert_eq!(second[0].as_ptr(), address, "the slot was allocated anew");
    let third = next(&mut batch, 5);
    assert_eq!(
        second.concat(),
        [payload(3, 1000), payload(4, 1000)].concat()
    );
    assert_eq!(
        third.concat(),
        [payload(5, 1000), payload(6, 1000)].concat()
    );
}

#[test]
fn drained_batches_are_empty() {
    let (sender, receiver) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let mut out = SendBatch::new(2, 100);
    assert!(out.push(receiver.local_addr(), b"a") && out.push(receiver.local_addr(), b"b"));
    out.flush(&sender);
    let mut batch = RecvBatch::new(4, 100);
    assert_eq!(receive(&receiver, &mut batch, 2).len(), 2);
    assert_eq!(batch.drain().next().unwrap().1.as_ref(), b"a");
    assert_eq!(batch.iter().count(), 0);
}

#[test]
fn what_the_receive_buffer_does_not_hold_is_counted() {
    let small = BindOptions {
        recv_buffer_bytes: 4096,
        ..BindOptions::default()
    };
    let (sender, receiver) = (loopback(BindOptions::default()), loopback(small));
    let registry = Registry::new("pop", "pop-a");
    receiver.observe(&registry, &[("socket", "client")]);
    let mut out = SendBatch::new(64, 1000);
    for _ in 0..64 {
        assert!(out.push(receiver.local_addr(), &[0; 1000]));
    }
    assert_eq!(out.flush(&sender).sent, 64);
    let drops = receiver.recv_drops();
    assert!(drops > 0 && drops <= 64, "{drops}");
    let name = "firsthop_udp_rcvbuf_errors_total{socket=\"client\"}";
    assert!(registry.prometheus().contains(&format!("{name} {drops}\n")));
    drop(receiver);
    assert!(registry.prometheus().contains(&format!("{name} 0\n")));
}

#[test]
fn sockets_that_share_an_address_must_all_say_so() {
    let shared = BindOptions {
        reuse_port: true,
        ..BindOptions::default()
    };
    let first = loopback(shared);
    assert!(UdpSocket::bind(first.local_addr(), &shared).is_ok());
    let error = UdpSocket::bind(first.local_addr(), &BindOptions::default()).unwrap_err();
    let line = format!(
        "bind {}: Address already in use (os error 98)",
        first.local_addr()
    );
    assert_eq!(error.to_string(), line);
}

#[test]
fn an_address_that_is_not_there_yet_needs_free_bind() {
    let absent: SocketAddr = "192.0.2.77:0".parse().unwrap();
    assert!(UdpSocket::bind(absent, &BindOptions::default()).is_err());
    let free = BindOptions {
        free_bind: true,
        dont_fragment: true,
        ..BindOptions::default()
    };
    assert_eq!(
        UdpSocket::bind(absent, &free).unwrap().local_addr().ip(),
        absent.ip()
    );
}

#[test]
fn ipv6_works_where_the_machine_has_it() {
    let options = BindOptions {
        dont_fragment: true,
        ..gro()
    };
    let bind = || UdpSocket::bind("[::1]:0".parse().unwrap(), &options);
    let (Ok(sender), Ok(receiver)) = (bind(), bind()) else {
        assert!(
            !std::path::Path::new("/proc/net/if_inet6").exists(),
            "IPv6 is there"
        );
        return;
    };
    let mut out = SendBatch::new(1, 100);
    assert!(out.push(receiver.local_addr(), b"six"));
    assert_eq!(out.flush(&sender).sent, 1);
    send_segments(&sender, receiver.local_addr(), &train(3, 100, 0), 100).unwrap();
    let got = receive(&receiver, &mut RecvBatch::new(8, GRO_SLOT_BYTES), 4);
    assert_eq!(got[0], (sender.local_addr(), b"six".to_vec()));
}

#[test]
fn buffers_are_as_asked_or_the_line_names_the_sysctl() {
    assert_eq!(socket::clamp_line("net.core.rmem_max", 100, 100), None);
    assert_eq!(
        socket::clamp_line("net.core.rmem_max", 8_388_608, 212_992).unwrap(),
        "socket buffer is 212992 bytes, 8388608 were asked for: raise it with `sysctl -w net.core.rmem_max=8388608`"
    );
    let socket = loopback(BindOptions::default());
    assert!(socket.recv_buffer_bytes() >= 4096 && socket.send_buffer_bytes() >= 4096);
}

#[test]
fn one_socket_sends_from_many_addresses_and_hears_what_comes_back_to_each() {
    let (receiver, options) = (loopback(BindOptions::default()), BindOptions::default());
    let clients = UdpSocket::bind("0.0.0.0:0".parse().unwrap(), &options).unwrap();
    let source = |host: u8| Ipv4Addr::new(127, 20, 0, host);
    let mut out = SourceBatch::new(3, 8);
    for host in 1..=3 {
        assert!(out.push(source(host), receiver.local_addr(), &[host]));
    }
    assert!(!out.push(source(4), receiver.local_addr(), &[4]));
    assert_eq!(out.flush(&clients).sent, 3);
    assert!(!out.push(source(4), receiver.local_addr(), &[4; 9]));
    let mut batch = RecvBatch::new(4, 64);
    let got = receive(&receiver, &mut batch, 3);
    let port = clients.local_addr().port();
    let mut back = SendBatch::new(3, 8);
    for (host, (from, payload)) in (1..).zip(&got) {
        assert_eq!(
            (*from, &payload[..]),
            ((source(host), port).into(), &[host][..])
        );
        assert!(back.push(*from, payload));
    }
    assert_eq!(back.flush(&receiver).sent, 3);
    assert_eq!(receive(&clients, &mut batch, 3).len(), 3);
}

#[test]
fn a_connected_socket_names_no_destination_and_hears_nobody_else() {
    let (client, server) = (
        loopback(BindOptions::default()),
        loopback(BindOptions::default()),
    );
    let stranger = loopback(BindOptions::default());
    client.connect(server.local_addr()).unwrap();
    let mut out = SendBatch::new(2, 8);
    assert!(out.push_connected(3, |slot| slot.copy_from_slice(b"ask")));
    assert!(!out.push_connected(9, |_| {}), "longer than a slot");
    assert_eq!(out.flush(&client).sent, 1);
    let mut batch = RecvBatch::new(4, 64);
    let got = receive(&server, &mut batch, 1);
    assert_eq!(got, [(client.local_addr(), b"ask".to_vec())]);
    for from in [&stranger, &server] {
        assert!(out.push(client.local_addr(), b"hello"));
        assert_eq!(out.flush(from).sent, 1);
    }
    let got = receive(&client, &mut batch, 1);
    assert_eq!(got, [(server.local_addr(), b"hello".to_vec())]);
}
