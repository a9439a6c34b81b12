//! The slow path over real connections: that nobody is shut out, that nobody keeps a place for good, what is said of caching, and the
//! last answers of a node that stops.

#![cfg(test)]

#[path = "../support/credentials.rs"]
mod credentials;
mod node;
#[path = "../support/query.rs"]
mod query;
#[path = "../support/mod.rs"]
mod support;

use std::net::Ipv4Addr;
use std::time::Duration;

use geodns::slow::{Limits, Most, Transport};
use node::{Client, Node, framed};
use query::query;

const ZONE: &str = "rtc.example.com";
const STEERED: &str = "signaling.rtc.example.com";
const A: u16 = 1;
const SOA: u16 = 6;
const STREAMS: [Transport; 2] = [Transport::Tcp, Transport::Tls];

/// Places of each transport: half of them are 4, seven eighths 7.
const PLACES: usize = 8;

fn few_places() -> Limits {
    Limits {
        connections: Most {
            tcp: PLACES,
            tls: PLACES,
            https: PLACES,
        },
        // Nothing ends for these reasons while a test looks at others.
        idle: Duration::from_secs(600),
        idle_short: Duration::from_secs(600),
        lifetime_short: Duration::from_secs(600),
        ..Limits::default()
    }
}

fn source(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 7, u8::try_from(number).unwrap())
}

/// Whether the answer says NOERROR and has records.
fn is_answer(answer: &[u8]) -> bool {
    answer[3] & 15 == 0 && answer[7] > 0
}

/// Asks for what there is.
fn asks(client: &mut Client) -> bool {
    client
        .ask(&query(7, STEERED, A, &[]))
        .is_some_and(|answer| is_answer(&answer))
}

#[test]
fn a_late_client_is_answered_whoever_holds_the_places() {
    let node = Node::start("late", few_places());
    for transport in STREAMS {
        let before = node.ended("full");
        let mut held = Vec::new();
        for number in 0..PLACES {
            let mut client = node.connect(transport, source(number + 1));
            assert!(asks(&mut client));
            held.push(client);
        }
        // The first asks once more, so that the second has waited longest.
        assert!(asks(&mut held[0]));
        let mut late = node.connect(transport, source(100));
        assert!(asks(&mut late), "{transport:?}");
        assert!(held[1].ends());
        node.until_ended("full", before + 1);
        assert!(asks(&mut held[0]) && asks(&mut held[2]));
    }
}

#[test]
fn a_source_with_one_too_many_loses_its_own() {
    let node = Node::start("source", few_places());
    let mut other = node.connect(Transport::Tcp, source(1));
    assert!(asks(&mut other));
    let mut mine = Vec::new();
    // Four of one source, for half the places are taken when the last comes.
    for _ in 0..5 {
        let mut client = node.connect(Transport::Tcp, source(2));
        assert!(asks(&mut client));
        mine.push(client);
    }
    node.until_ended("full_of_source", 1);
    assert!(mine[0].ends());
    assert!(mine[1..].iter_mut().all(asks) && asks(&mut other));
}

#[test]
fn who_asks_on_and_on_keeps_a_place_only_while_there_are_many() {
    let limits = Limits {
        lifetime_short: Duration::from_millis(100),
        ..few_places()
    };
    for transport in STREAMS {
        let node = Node::start("old", limits);
        let mut held = Vec::new();
        for number in 1..=PLACES / 2 {
            let mut client = node.connect(transport, source(number));
            assert!(asks(&mut client));
            held.push(client);
        }
        let start = runtime::clock::now();
        while runtime::clock::now() - start < 2 * limits.lifetime_short {
            assert!(asks(&mut held[0]), "{transport:?}");
        }
        assert_eq!(node.ended("old"), 0);
        // One more is more than half.
        let mut fifth = node.connect(transport, source(100));
        assert!(asks(&mut fifth));
        while asks(&mut held[0]) {}
        node.until_ended("old", 1);
    }
}

/// Asks over HTTPS.
fn posts(client: &mut Client) -> bool {
    client.post(&query(7, STEERED, A, &[])).is_some()
}

#[test]
fn who_came_early_over_https_may_not_idle_when_others_come() {
    let limits = Limits {
        idle_short: Duration::from_millis(500),
        ..few_places()
    };
    let node = Node::start("doh-idle", limits);
    let connect = |number| {
        let mut client = node.connect(Transport::Https, source(number));
        assert!(posts(&mut client));
        client
    };
    let mut early = connect(1);
    let mut late: Vec<_> = (2..=1 + PLACES / 2).map(connect).collect();
    std::thread::scope(|scope| {
        let early = scope.spawn(move || early.ends());
        while !early.is_finished() {
            assert!(late.iter_mut().all(posts));
        }
        assert!(early.join().unwrap());
    });
    node.until_ended("idle", 1);
    assert!(late.iter_mut().all(posts), "there are enough places");
}

#[test]
fn nobody_over_https_keeps_a_place_for_long_while_places_are_short() {
    let limits = Limits {
        lifetime_short: Duration::from_millis(300),
        ..few_places()
    };
    let node = Node::start("doh-old", limits);
    let connect = |number| {
        let mut client = node.connect(Transport::Https, source(number));
        assert!(posts(&mut client));
        client
    };
    let _held: Vec<_> = (1..=PLACES).map(connect).collect();
    node.until_ended("old", u64::try_from(PLACES / 2).unwrap());
}

/// An option of a query.
fn option(code: u8, data: &[u8]) -> Vec<u8> {
    [&[0, code, 0, u8::try_from(data.len()).unwrap()], data].concat()
}

/// A query without a question, with a cookie.
fn cookie_alone(cookie: &[u8]) -> Vec<u8> {
    let options = option(10, cookie);
    let mut packet = vec![0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    packet.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0]);
    packet.extend([u8::try_from(options.len()).unwrap()]);
    packet.extend(options);
    packet
}

/// Code of an answer whose OPT record, at its end, has a whole cookie and nothing else.
fn code_beside_cookie(answer: &[u8]) -> u16 {
    let opt = &answer[answer.len() - 11 - 28..];
    assert_eq!(opt[..3], [0, 0, 41]);
    assert_eq!(opt[9..15], [0, 28, 0, 10, 0, 24]);
    u16::from(opt[5]) << 4 | u16::from(answer[3] & 15)
}

#[test]
fn answers_for_one_alone_are_kept_by_no_shared_cache() {
    let node = Node::start("private", Limits::default());
    let mut client = node.connect(Transport::Https, source(1));
    let cookie = option(10, b"clientck");
    let subnet = option(8, &[0, 1, 24, 0, 198, 51, 100]);
    for (packet, expected) in [
        (query(7, ZONE, SOA, &[]), "\ncache-control: max-age="),
        (query(7, ZONE, SOA, &cookie), "\ncache-control: private, "),
        (query(7, ZONE, SOA, &subnet), "\ncache-control: private, "),
        (query(7, STEERED, A, &[]), "\ncache-control: private, "),
        (cookie_alone(b"clientck"), "\ncache-control: private, "),
    ] {
        let (head, body) = client.post(&packet).unwrap();
        assert!(head.starts_with("http/1.1 200"), "{head}");
        assert!(head.contains(expected), "{head}");
        assert_eq!(body[..2], packet[..2]);
    }
}

#[test]
fn a_wrong_cookie_alone_is_told_so() {
    let node = Node::start("cookie", Limits::default());
    for transport in STREAMS {
        let mut client = node.connect(transport, source(1));
        let answer = client.ask(&cookie_alone(b"clientck")).unwrap();
        assert_eq!(code_beside_cookie(&answer), 0);
        let ours = answer[answer.len() - 24..].to_vec();
        let again = client.ask(&cookie_alone(&ours)).unwrap();
        assert_eq!(code_beside_cookie(&again), 0);
        let mut forged = ours;
        forged[23] ^= 1;
        let answer = client.ask(&cookie_alone(&forged)).unwrap();
        assert_eq!(code_beside_cookie(&answer), 23);
        // Somebody else's, of another length.
        let answer = client.ask(&cookie_alone(&[1; 32])).unwrap();
        assert_eq!(code_beside_cookie(&answer), 23);
    }
}

#[test]
fn what_was_asked_before_the_end_is_answered() {
    for transport in STREAMS {
        let node = Node::start("stop", Limits::default());
        let connect = |number| {
            let mut client = node.connect(transport, source(number));
            assert!(asks(&mut client));
            client
        };
        let (mut whole, mut half, mut silent) = (connect(1), connect(2), connect(3));
        let bytes = framed(&query(8, STEERED, A, &[]));
        let (first, rest) = bytes.split_at(bytes.len() / 2);
        whole.send(&bytes).unwrap();
        half.send(first).unwrap();
        node.stop();
        assert!(is_answer(&whole.answer().expect("asked before the end")));
        half.send(rest).unwrap();
        assert!(is_answer(&half.answer().expect("asked before the end")));
        assert!(whole.ends() && half.ends() && silent.ends());
        node.until_ended("stopped", 3);
    }
}
