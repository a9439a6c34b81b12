//! Floods from a million spoofed sources while a thousand calls run: no call loses a packet, tables stay at their bound,
//! memory and logs do not grow, and every packet of the flood is in exactly one counter.
//!
//! The baseline is the same calls at the same rate without a flood, in the same run: what is lost then is the machine's doing.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lab::bench::far_end::FarEnd;
use lab::net::{Network, Shape};
use lab::siege::{Calls, Echo, Figures, Flood, Flooded, Hints, Weapon};
use lab::standstill::{self, figures};
use lab::wait;
use runtime::clock;
use wire::TransceiverId;

const CALLS: usize = 1000;
/// Packets of each call a second: 20 ms of audio each.
const CALL_PER_S: u64 = 50;
const PACKETS: u64 = 1_000_000;
const FLOOD_PER_S: u64 = 100_000;
/// How long calls are watched alone.
const PEACE: Duration = Duration::from_secs(4);
const ATTEMPTS: usize = 3;
const SOON: Duration = Duration::from_secs(10);
/// A process of constant memory may still touch pages it has not touched before.
const RSS_SLACK_BYTES: u64 = 4 << 20;
/// What a node may say about a flood.
const LOG_LINES_MAX: usize = 10;
/// Figures of a node are no older than this.
const PUBLISHED_WITHIN: Duration = Duration::from_millis(300);
/// Clients that come while a flood runs.
const NEW_CLIENTS: usize = 50;
/// What the PoP allows.
const TENTATIVE_OF_ONE_HINT_MAX: f64 = 16.0;
/// A transceiver that its region has room for and that is not there.
const ABSENT: TransceiverId = TransceiverId(200);

struct Siege {
    network: Network,
    calls: Calls,
    hints: Hints,
    _echo: Echo,
}

impl Siege {
    /// One PoP, one core relay, a far end that echoes, and calls with committed flows.
    fn begin() -> Self {
        let shape = Shape {
            core_relays: 1,
            ..Shape::default()
        };
        let mut network = Network::prepare(&shape, |_| {}).unwrap();
        for node in ["r1", "p1"] {
            network.start_node(node).unwrap();
        }
        let far_end = FarEnd::bind(network.topology(), "t1").unwrap();
        let echo = Echo::start(far_end);
        let mut hints = Hints::of(&network, TransceiverId(1)).unwrap();
        let mut calls = Calls::open(CALLS, network.ingress("p1"), &mut hints).unwrap();
        calls.commit().unwrap();
        Self {
            network,
            calls,
            hints,
            _echo: echo,
        }
    }

    /// Calls alone.
    fn peace(&mut self, time: Duration) -> Figures {
        let end = clock::now() + time;
        self.calls.talk(CALL_PER_S, |now| now > end).unwrap()
    }

    /// Calls beside a flood.
    fn flood(&mut self, flood: &mut Flood, count: u64, per_s: Option<u64>) -> (Figures, Flooded) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let flooded = scope.spawn(|| {
                let flooded = flood.run(count, per_s);
                over.store(true, Ordering::Relaxed);
                flooded
            });
            let talk = self
                .calls
                .talk(CALL_PER_S, |_| over.load(Ordering::Relaxed));
            (talk.unwrap(), flooded.join().unwrap())
        })
    }

    /// Figures once they rest: nodes publish them a few times a second.
    fn settled(&self) -> Look {
        let mut last = (clock::now(), self.look());
        wait::until("figures to rest", SOON, || {
            let look = self.look();
            if look.seen() != last.1.seen() {
                last = (clock::now(), look);
                return None;
            }
            (clock::now() > last.0 + PUBLISHED_WITHIN).then_some(look)
        })
        .unwrap()
    }

    fn look(&self) -> Look {
        let metrics = self.network.metrics("p1").unwrap();
        Look {
            drops: metrics.by_label("firsthop_pop_drops_total", "reason"),
            up: metrics.sum("firsthop_pop_packets_total", &[("direction", "up")]),
            overflows: metrics.sum("firsthop_udp_rcvbuf_errors_total", &[("socket", "ingress")]),
            committed: metrics.sum("firsthop_pop_flows", &[("state", "committed")]),
            tentative: metrics.sum("firsthop_pop_flows", &[("state", "tentative")]),
            log_lines: ["p1", "r1"].map(|node| self.network.log(node).lines().count()),
            rss_bytes: ["p1", "r1"].map(|node| self.network.usage(node).unwrap().rss_bytes),
            pop_cpu_s: self.network.usage("p1").unwrap().cpu_s,
        }
    }
}

/// What a PoP shows, and its core relay.
#[derive(Debug)]
struct Look {
    drops: BTreeMap<String, f64>,
    up: f64,
    /// Packets the kernel dropped in front of the PoP.
    overflows: f64,
    committed: f64,
    tentative: f64,
    log_lines: [usize; 2],
    rss_bytes: [u64; 2],
    pop_cpu_s: f64,
}

impl Look {
    /// Reasons whose counters have moved since `before`, with by how much.
    fn moved(&self, before: &Self) -> Vec<(&str, f64)> {
        let moved = self.drops.iter().map(|(reason, drops)| {
            let before = before.drops.get(reason).copied().unwrap_or(0.0);
            (reason.as_str(), drops - before)
        });
        moved.filter(|(_, more)| *more > 0.0).collect()
    }

    /// Packets that came to the PoP's address so far, as its counters have it.
    fn seen(&self) -> f64 {
        self.drops.values().sum::<f64>() + self.up + self.overflows
    }
}

/// Floods the PoP of 1,000 calls, and checks that nobody noticed. `reasons` are those the flood is dropped for.
///
/// What a call loses is weighed best of [`ATTEMPTS`]: a machine that is busy elsewhere loses packets now and then, a PoP that
/// gives way to a flood does so every time. What counters, tables, memory and logs must show holds each time.
fn nobody_notices(siege: &mut Siege, weapon: &Weapon, reasons: &[&str]) {
    let mut flood = Flood::new(weapon, siege.network.ingress("p1")).unwrap();
    // Buffers are touched for the first time.
    siege.flood(&mut flood, 20_000, Some(FLOOD_PER_S));
    let mut unharmed = false;
    for _ in 0..ATTEMPTS {
        let alone = siege.peace(PEACE);
        let before = siege.settled();
        let (calls, flooded) = siege.flood(&mut flood, PACKETS, Some(FLOOD_PER_S));
        let after = siege.settled();
        let cost = (after.pop_cpu_s - before.pop_cpu_s) / flooded.took.as_secs_f64();
        eprintln!(
            "{:.0} packets/s of flood; calls lose {} of {} (p50 {:?}, p99 {:?}), without it {} of {} (p50 {:?}, p99 {:?}); the PoP uses {:.0} % of a processor; dropped {:?}",
            flooded.per_s(),
            calls.lost(),
            calls.sent,
            calls.p50,
            calls.p99,
            alone.lost(),
            alone.sent,
            alone.p50,
            alone.p99,
            cost * 100.0,
            after.moved(&before),
        );
        is_bounded_and_counted(&before, &after, &calls, &flooded, reasons);
        let whole = alone.received * 100 > alone.sent * 99;
        let at_rate = flooded.per_s() > 0.9 * FLOOD_PER_S as f64;
        if whole && at_rate && calls.lost() <= alone.lost() {
            unharmed = true;
            break;
        }
    }
    assert!(unharmed, "calls lose packets to a flood each time");
}

fn is_bounded_and_counted(
    before: &Look,
    after: &Look,
    calls: &Figures,
    flooded: &Flooded,
    reasons: &[&str],
) {
    let sent = (flooded.sent + calls.sent) as f64;
    let counted = after.seen() - before.seen();
    assert_eq!(counted, sent, "each packet is in one counter: {after:?}");
    assert_eq!(flooded.sent, PACKETS, "the flood was sent");
    assert_eq!(flooded.answered, 0, "nothing goes to who sends a flood");
    assert_eq!(calls.strange, 0);
    let moved = after.moved(before);
    assert!(
        moved.iter().all(|(reason, _)| reasons.contains(reason)),
        "dropped for {moved:?}"
    );
    assert_eq!(after.committed, CALLS as f64);
    for node in 0..2 {
        let lines = after.log_lines[node] - before.log_lines[node];
        assert!(lines <= LOG_LINES_MAX, "{lines} lines were logged");
        let grown = after.rss_bytes[node].saturating_sub(before.rss_bytes[node]);
        assert!(grown <= RSS_SLACK_BYTES, "memory grew by {grown} B");
    }
}

#[test]
fn a_million_checks_with_bad_hints_harm_no_call() {
    let mut siege = Siege::begin();
    let weapon = Weapon::BadHints(siege.hints.seal());
    let reasons = ["hint_malformed", "hint_unknown_key", "hint_forged"];
    nobody_notices(&mut siege, &weapon, &reasons);
    assert_eq!(siege.look().tentative, 0.0, "a bad hint makes no flow");
}

#[test]
fn a_million_packets_of_strangers_harm_no_call() {
    let mut siege = Siege::begin();
    nobody_notices(&mut siege, &Weapon::NotStun, &["no_flow"]);
    assert_eq!(siege.look().tentative, 0.0);
}

#[test]
fn a_million_empty_datagrams_harm_no_call() {
    let mut siege = Siege::begin();
    nobody_notices(&mut siege, &Weapon::Empty, &["empty"]);
}

#[test]
fn a_million_sources_with_one_good_hint_harm_no_call_and_keep_no_client_out() {
    let mut siege = Siege::begin();
    // Of a session whose transceiver never answers, as none answers checks it cannot authenticate.
    let hint = Hints::of(&siege.network, ABSENT).unwrap().seal();
    let before = siege.settled();
    nobody_notices(&mut siege, &Weapon::OneHint(hint), &["tentative_hint"]);
    let mut flood = Flood::new(&Weapon::OneHint(hint), siege.network.ingress("p1")).unwrap();
    let ingress = siege.network.ingress("p1");
    let mut clients = Calls::open(NEW_CLIENTS, ingress, &mut siege.hints).unwrap();
    thread::scope(|scope| {
        let flooding = scope.spawn(|| flood.run(PACKETS / 2, Some(FLOOD_PER_S)));
        clients.commit().unwrap();
        assert!(!flooding.is_finished(), "they came in while the flood ran");
        flooding.join().unwrap();
    });
    let after = siege.settled();
    assert_eq!(after.committed, before.committed + NEW_CLIENTS as f64);
    assert!(after.tentative <= TENTATIVE_OF_ONE_HINT_MAX, "{after:?}");
}

#[test]
fn where_a_flood_breaks_calls_and_that_they_are_whole_after_it() {
    let mut siege = Siege::begin();
    let weapon = Weapon::BadHints(siege.hints.seal());
    let mut flood = Flood::new(&weapon, siege.network.ingress("p1")).unwrap();
    for per_s in [100_000, 200_000, 300_000, 400_000, 600_000, 1_000_000] {
        let before = siege.look();
        let (calls, flooded) = siege.flood(&mut flood, per_s * 2, Some(per_s));
        let overflows = siege.look().overflows - before.overflows;
        let lost_percent = 100.0 * calls.lost() as f64 / calls.sent as f64;
        eprintln!(
            "{per_s} asked, {:.0} packets/s: calls lose {} of {} ({lost_percent:.2} %), {overflows} overflows, p50 {:?}, p99 {:?}",
            flooded.per_s(),
            calls.lost(),
            calls.sent,
            calls.p50,
            calls.p99
        );
    }
    let expected = siege.look().committed;
    assert_eq!(expected, CALLS as f64, "no call was pushed out");
    figures("calls after a flood", || {
        let calls = siege.peace(Duration::from_secs(2));
        let mut found = standstill::Figures::default();
        found.below("packets lost", calls.lost() * 1000, calls.sent);
        found
    })
    .unwrap();
}
