//! Workers over real sockets: both families, exchange of answers under load, the slow path's queue, limits that are reloaded, and that
//! nothing is allocated for a query.

#![cfg(test)]

#[path = "../support/credentials.rs"]
mod credentials;
mod node;
#[path = "../support/query.rs"]
mod query;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use geodns::udp::SLOW_QUERIES_MAX;
use node::{Client, Node, STEERED};
use query::query;
use runtime::counting::{CountingAllocator, allocations_of};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const A: u16 = 1;

#[test]
fn all_workers_answer_at_all_addresses_from_where_they_were_asked() {
    let mut listen = vec![node::address(1), node::address(2)];
    if std::path::Path::new("/proc/net/if_inet6").exists() {
        listen.push(node::address_v6());
    }
    let node = Node::start(&listen, 2, "");
    for to in &listen {
        // Many ports, so that each worker has some. A connected socket hears only the address it asked.
        for _ in 0..16 {
            let client = Client::to(*to);
            let answer = client.ask(&query(7, STEERED, A, &[]));
            assert_eq!(
                (answer[0], answer[1], answer[3] & 15, answer[7]),
                (0, 7, 0, 1)
            );
        }
    }
    node.until("every query to be counted", |metrics| {
        node::total(metrics, "firsthop_geodns_udp_queries_total") == 16 * listen.len() as u64
    });
    let metrics = node.metrics();
    let responses = "firsthop_geodns_udp_responses_total{rcode=\"noerror\"}";
    assert_eq!(node::total(&metrics, responses), 16 * listen.len() as u64);
    let steered = "firsthop_geodns_udp_steered_total{basis=\"resolver\"}";
    assert_eq!(node::total(&metrics, steered), 16 * listen.len() as u64);
    assert!(metrics.contains("firsthop_udp_rcvbuf_errors_total"));
}

#[test]
fn no_query_is_lost_or_refused_while_answers_are_exchanged() {
    let node = Node::start(&[node::address(3)], 1, "");
    let client = Client::to(node::address(3));
    let mut seen = [0u32; 3];
    for round in 0..400u16 {
        let region = round % 3;
        node.publish(region);
        let ids: Vec<u16> = (0..32).map(|i| round * 32 + i).collect();
        for id in &ids {
            client.send(&query(*id, STEERED, A, &[]));
        }
        let mut open = ids.clone();
        for _ in &ids {
            let answer = client.receive();
            let id = u16::from_be_bytes([answer[0], answer[1]]);
            open.retain(|waits| *waits != id);
            assert_eq!(
                (answer[3] & 15, answer[7]),
                (0, 1),
                "refused, or without a record"
            );
            // What was published before the query was sent is what it is answered from. OPT has eleven bytes.
            let last = answer[answer.len() - 12];
            assert_eq!(u16::from(last), 131 + region);
            seen[usize::from(region)] += 1;
        }
        assert!(open.is_empty(), "lost: {open:?}");
    }
    assert_eq!(seen.iter().sum::<u32>(), 400 * 32);
}

/// Steered with and without client subnet, cookies, missing and foreign names, malformed ones, other opcodes, noise.
fn mixed(index: u32) -> Vec<u8> {
    let [.., hi, lo] = index.to_be_bytes();
    let id = u16::from_be_bytes([hi, lo]);
    let subnet = [0, 8, 0, 7, 0, 1, 24, 0, 1 + hi % 200, lo, 9];
    let cookie = [0, 10, 0, 8, hi, lo, 3, 4, 5, 6, 7, 8];
    match index % 10 {
        0 => query(id, STEERED, A, &subnet),
        1 => query(id, STEERED, 28, &cookie),
        2 => query(id, STEERED, 65, &[&subnet[..], &cookie].concat()),
        3 => query(id, "rtc.example.com", 6, &[]),
        4 => query(id, &format!("n{index}.rtc.example.com"), A, &subnet),
        5 => query(id, "www.example.org", A, &[]),
        6 => query(id, STEERED, A, &[0, 8, 0, 1, 0]),
        7 => query(id, "rtc.example.com", 252, &[]),
        8 => query(id, "RtC.eXample.com", 255, &[0, 3, 0, 0]),
        _ => vec![lo; usize::from(hi) % 40],
    }
}

#[test]
fn a_hundred_thousand_queries_allocate_nothing() {
    let node = Node::start(&[node::address(4)], 1, "");
    node.answer_slow_queries();
    let client = Client::to(node::address(4));
    let thread = node.worker_thread();
    let ask_many = |from: u32, count: u32| {
        for first in (from..from + count).step_by(40) {
            let packets: Vec<Vec<u8>> = (first..first + 40).map(mixed).collect();
            packets.iter().for_each(|packet| client.send(packet));
            // All but noise are answered, 4 of 40 the slow way.
            for _ in 0..36 {
                client.receive();
            }
        }
    };
    ask_many(0, 4_000);
    let before = allocations_of(thread);
    ask_many(4_000, 100_000);
    let after = allocations_of(thread);
    let count = |list: &[(usize, u64)]| list.iter().map(|(_, times)| times).sum::<u64>();
    assert!(
        count(&before) > 0,
        "the worker's thread is the one that is looked at"
    );
    assert_eq!(before, after, "sizes and times");
    node.until("all to be counted", |metrics| {
        node::total(metrics, "firsthop_geodns_udp_queries_total") == 104_000
    });
}

#[test]
fn the_slow_path_answers_from_the_address_it_was_asked_at_and_its_queue_is_bounded() {
    let node = Node::start(&[node::address(5), node::address(6)], 1, "");
    let client = Client::to(node::address(6));
    let transfer = query(1, "rtc.example.com", 252, &[]);
    for _ in 0..SLOW_QUERIES_MAX + 10 {
        client.send(&transfer);
    }
    node.until("the overflow to be counted", |metrics| {
        node::total(metrics, "firsthop_geodns_drops_total{reason=\"slow_full\"}") == 10
    });
    let handed = "firsthop_geodns_udp_handed_over_total{reason=\"meta_type\"}";
    assert!(node::total(&node.metrics(), handed) >= SLOW_QUERIES_MAX as u64);
    node.answer_slow_queries();
    for _ in 0..SLOW_QUERIES_MAX {
        assert_eq!(
            client.receive(),
            transfer,
            "the double of the slow path echoes"
        );
    }
}

#[test]
fn a_draining_node_stays_while_connections_are_asked() {
    let node = Node::start(&[node::address(11)], 1, "");
    let (begun, client) = (runtime::clock::now(), Client::to(node::address(11)));
    node.drain();
    // Twice as long as nobody asks it over UDP.
    runtime_wait("two seconds of questions over connections", || {
        node.answered_over_stream();
        std::thread::sleep(Duration::from_millis(20));
        (runtime::clock::now() - begun > Duration::from_secs(2)).then_some(())
    });
    let answer = client.ask(&query(3, STEERED, A, &[]));
    assert_eq!(answer[7], 1, "it is still there");
    node.until_ended();
}

#[test]
fn limits_and_secrets_are_taken_over_when_they_change() {
    let node = Node::start(&[node::address(7)], 1, "");
    let client = Client::to(node::address(7));
    let asked = query(9, STEERED, A, &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
    let first = client.ask(&asked);
    node.reload(
        "  rate_limit: { responses_per_s: 1, slip: 1 }\n",
        Some("current 000102030405060708090a0b0c0d0e0f"),
    );
    let truncated = runtime_wait("a truncated answer", || {
        let answer = client.ask(&asked);
        (answer[2] & 2 != 0).then_some(answer)
    });
    // The last eight bytes are the hash in the cookie.
    let hash = |answer: &[u8]| answer[answer.len() - 8..].to_vec();
    assert_ne!(hash(&first), hash(&truncated));
    node.until("it to be counted", |metrics| {
        node::total(metrics, "firsthop_geodns_udp_slipped_total") > 0
    });
    let valid = [&[0, 10, 0, 24][..], &truncated[truncated.len() - 24..]].concat();
    for _ in 0..20 {
        let answer = client.ask(&query(9, STEERED, A, &valid));
        assert_eq!(answer[2] & 2, 0, "a right cookie is beyond limits");
    }
}

#[test]
fn a_draining_node_answers_until_nobody_asks() {
    let node = Node::start(&[node::address(8)], 1, "");
    let client = Client::to(node::address(8));
    node.drain();
    let answer = client.ask(&query(3, STEERED, A, &[]));
    assert_eq!(answer[7], 1);
    node.until_ended();
}

/// More questions are on the way at every moment than a worker takes at once, also at the one when it ends.
#[test]
fn a_node_that_ends_answers_what_it_received() {
    const ROUNDS: usize = 200;
    let node = Node::start(&[node::address(10)], 1, "");
    let mut clients: Vec<_> = (0..200).map(|_| Client::to(node::address(10))).collect();
    let asked = query(5, STEERED, A, &[]);
    let (mut round, mut answered) = (0, 0_u64);
    while !clients.is_empty() {
        round += 1;
        assert!(round < 2 * ROUNDS, "it goes on and on");
        let mut told = false;
        for (index, client) in clients.iter().enumerate() {
            // In the middle of a round.
            if round == ROUNDS && index == 100 && !told {
                node.stop();
                told = true;
            }
            let _ = client.ask_or_refused(&asked);
        }
        clients.retain(|client| {
            let is_answered = client.answered_or_refused().is_some();
            answered += u64::from(is_answered);
            is_answered
        });
    }
    assert!(answered >= 199 * 200, "{answered}");
    node.until_ended();
    let counted = node::total(&node.metrics(), "firsthop_geodns_udp_queries_total");
    assert_eq!(counted, answered, "everything received is answered");
}

#[test]
fn oversize_and_empty_packets_are_counted() {
    let node = Node::start(&[node::address(9)], 1, "");
    let socket = UdpSocket::bind((IpAddr::from([127, 0, 0, 1]), 0)).unwrap();
    let to: SocketAddr = node::address(9);
    socket.send_to(&[0; 4000], to).unwrap();
    socket.send_to(&[], to).unwrap();
    node.until("both to be dropped", |metrics| {
        let drops = |reason| {
            let name = format!("firsthop_geodns_drops_total{{reason=\"{reason}\"}}");
            node::total(metrics, &name)
        };
        (drops("oversize"), drops("short")) == (1, 1)
    });
}

fn runtime_wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = runtime::clock::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(runtime::clock::now() < deadline, "waited for {what}");
        std::thread::yield_now();
    }
}
