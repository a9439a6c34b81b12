//! The flow cache end to end, with a real redis-server: calls whose PoP dies go on by it, sessions that ended do not come
//! back by it, and a Redis that hangs or is not there costs nothing.

#![cfg(test)]

use std::time::Duration;

use lab::bench::processor;
use lab::bench::recovery::{Case, run};
use lab::load::{Plan, Running};
use lab::net::{Network, Shape};
use lab::raw::RawClient;
use lab::redis_server::Redis;
use lab::standstill::{Figures, figures};
use lab::wait;
use lab::whip::{Session, bare_offer};
use runtime::clock;

const SOON: Duration = Duration::from_secs(15);
/// Well below a fifth of the time between two checks of a client.
const GAP_MS_MAX: f64 = 400.0;
/// Packets a client sends, one after the other.
const PACKETS: u32 = 50;

#[test]
fn another_pop_takes_calls_over_without_a_check() {
    figures("calls that another PoP takes over", taken_over).unwrap();
}

fn taken_over() -> Figures {
    let found = run(&[Case::PopTakeover]).unwrap();
    let [row] = found.rows.as_slice() else {
        panic!("redis-server is installed: {:?}", found.missing)
    };
    println!(
        "{} calls: half of them silent for {:.0} ms, all for at most {:.0} ms; the other PoP was ready after {:?} ms",
        row.calls, row.silence_up_ms_median, row.silence_up_ms, row.restart_ms
    );
    assert!(row.silence_up_ms_median <= row.silence_up_ms);
    // Below one beat nothing was killed at all.
    assert!(row.silence_up_ms >= 20.0, "{row:?}");
    assert_eq!(row.moved, 0, "the far end sees another address");
    // The time until the other one was there comes on top.
    let away_ms = row.restart_ms.unwrap_or_default();
    let mut figures = Figures::default();
    let most = away_ms + GAP_MS_MAX;
    figures.below("longest silence, ms", row.silence_up_ms, most);
    figures
}

/// A session with one client that has been answered once, so that its flow is committed.
struct Call {
    session: Session,
    client: RawClient,
}

impl Call {
    fn open(network: &Network) -> Self {
        let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
        let mut call = Self {
            client: RawClient::connect(network.ingress("p1")).unwrap(),
            session,
        };
        call.check();
        call
    }

    fn check(&mut self) {
        let ufrag = self.session.attribute("ice-ufrag").unwrap();
        let password = self.session.attribute("ice-pwd").unwrap();
        let answered = self.client.answers_until_check(ufrag, password, SOON);
        answered.unwrap();
    }

    fn talk(&self, packets: u32) {
        for _ in 0..packets {
            self.client.send(b"\x80\x6fmedia of this client").unwrap();
        }
    }
}

#[test]
fn an_ended_session_does_not_come_back() {
    let redis = Redis::start().unwrap();
    let mut network =
        Network::start_with(&Shape::default(), |topology| redis.join(topology)).unwrap();
    let of_p1 = |network: &Network, name: &str, labels: &[(&str, &str)]| {
        network.metrics("p1").unwrap().sum(name, labels)
    };
    wait_state(&network, "up");
    let (ended, living) = (Call::open(&network), Call::open(&network));
    wait_keys(&redis, 2);
    ended.session.close().unwrap();
    wait_keys(&redis, 1);

    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    wait_state(&network, "up");
    // The first packet asks. What comes meanwhile is another test's business: few packets are held.
    let dropped = |packets: u32| {
        wait::until_true("the packets of nobody to be dropped", SOON, || {
            network.drops("p1", "uncached").unwrap() == f64::from(packets)
        })
        .unwrap();
    };
    ended.talk(1);
    dropped(1);
    ended.talk(PACKETS);
    dropped(1 + PACKETS);
    let up = [("direction", "up")];
    assert_eq!(of_p1(&network, PACKETS_FORWARDED, &up), 0.0);
    // The other session, by the same way, does.
    let forwarded = |packets: u32| {
        wait::until_true("packets of the living session to pass", SOON, || {
            of_p1(&network, PACKETS_FORWARDED, &up) == f64::from(packets)
        })
        .unwrap();
    };
    living.talk(1);
    forwarded(1);
    living.talk(PACKETS);
    forwarded(1 + PACKETS);
    assert_eq!(of_p1(&network, FLOWS_MADE, &[("by", "cache")]), 1.0);
    assert_eq!(of_p1(&network, FLOWS_MADE, &[]), 1.0);
    assert_eq!(redis.keys().unwrap(), 1);
}

#[test]
fn a_redis_that_comes_late_or_back_empty_is_told_of_calls_soon() {
    let mut redis = Redis::absent().unwrap();
    let shape = Shape::default();
    let network = Network::start_with(&shape, |topology| redis.join(topology)).unwrap();
    let mut call = Call::open(&network);
    for _ in 0..2 {
        redis.begin().unwrap();
        // Sooner than a third of the TTL, which is 20 s.
        wait::until_true("the flow to be in Redis", SOON, || {
            call.check();
            redis.keys().unwrap() == 1
        })
        .unwrap();
        redis.kill();
    }
}

/// Calls that flow while Redis is well, then while it is not, and then while their PoP starts again.
const CALLS: u64 = 20;
/// New clients whose first answer is timed, after the PoP has started.
const NEWCOMERS: usize = 11;
/// Without Redis a PoP may take so much more of anything. Single runs on a busy machine differ by as much.
const RATIO_MAX: f64 = 1.5;
/// Added to a ratio's bound, because what is compared is this small: well below what a lookup may take.
const SLACK_MS: f64 = 25.0;
/// So often a call checks its path.
const CHECK_MS: f64 = 2000.0;
/// How long a busy machine may stand still.
const STILL_MS: f64 = 500.0;

/// What is wrong with Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ill {
    /// There is no failover group: the baseline.
    NoGroup,
    /// `SIGSTOP`: the kernel takes connections and data, and nothing answers.
    Stopped,
    /// Nobody listens.
    Absent,
}

/// What a run with one kind of [`Ill`] found.
#[derive(Clone, Copy, Debug)]
struct Found {
    /// Packets that got lost when Redis fell ill, the PoP running.
    lost_before: u64,
    /// From the start of the PoP until it is ready.
    ready_ms: f64,
    /// Processor time of the PoP from its start until calls have flowed for some seconds.
    cpu_ms: f64,
    /// The longest silence of a call when the PoP was restarted.
    silence_ms: f64,
    /// Median time until the first answer to a client that comes for the first time.
    first_answer_ms: f64,
}

#[test]
fn a_redis_that_hangs_or_is_absent_costs_nothing() {
    let baseline = outage(Ill::NoGroup);
    for ill in [Ill::Stopped, Ill::Absent] {
        let what = format!("Redis: {ill:?}");
        figures(&what, || costs_nothing(ill, baseline)).unwrap();
    }
}

fn costs_nothing(ill: Ill, baseline: Found) -> Figures {
    let found = outage(ill);
    let mut figures = Figures::default();
    let mut at_most = |what: &str, found: f64, most: f64| {
        println!("{ill:?}: {what}: {found:.1} of {most:.1}");
        figures.holds(found <= most, || format!("{what}: {found:.1} of {most:.1}"));
    };
    let (before, without) = (found.lost_before as f64, baseline.lost_before as f64);
    at_most("packets lost while the PoP runs", before, without);
    for (what, with, without) in [
        ("start, ms", found.ready_ms, baseline.ready_ms),
        ("processor time, ms", found.cpu_ms, baseline.cpu_ms),
        (
            "first answer, ms",
            found.first_answer_ms,
            baseline.first_answer_ms,
        ),
    ] {
        at_most(what, with, without * RATIO_MAX + SLACK_MS);
    }
    // When a call checks next is chance; that it goes on with that check is not.
    let ceiling = found.ready_ms + CHECK_MS + STILL_MS;
    at_most("silence, ms", found.silence_ms, ceiling);
    figures
}

fn outage(ill: Ill) -> Found {
    let mut redis = Redis::absent().unwrap();
    redis.begin().unwrap();
    let shape = Shape {
        core_relays: 1,
        ..Shape::default()
    };
    let mut network = Network::start_with(&shape, |topology| {
        // Without offers only a check, or the cache, makes a call go on.
        topology.network.offer_unknown = false;
        if ill != Ill::NoGroup {
            redis.join(topology);
        }
    })
    .unwrap();
    let wait = |network: &Network, state: &str| match ill {
        Ill::NoGroup => assert!(!network.metrics("p1").unwrap().has(STATE)),
        Ill::Stopped | Ill::Absent => wait_state(network, state),
    };
    wait(&network, "up");
    let plan = Plan::new(
        network.whip("t1"),
        usize::try_from(CALLS).unwrap(),
        Duration::from_secs(120),
    );
    let load = Running::start(plan);
    load.wait_connected(CALLS, SOON).unwrap();
    let second = CALLS * 50;
    load.wait_received(second, SOON).unwrap();
    match ill {
        Ill::NoGroup => {}
        Ill::Stopped => redis.pause().unwrap(),
        Ill::Absent => redis.kill(),
    }
    wait(&network, "down");
    load.wait_received(2 * second, SOON).unwrap();
    let lost_before = missing(&load);

    network.kill("p1").unwrap();
    let killed = clock::now();
    network.start_node("p1").unwrap();
    let ready = clock::now() - killed;
    load.wait_received(4 * second, SOON).unwrap();
    let cpu = processor::time(network.pid("p1").unwrap()).unwrap();
    let mut answers: Vec<_> = (0..NEWCOMERS).map(|_| first_answer_ms(&network)).collect();
    answers.sort_unstable_by(f64::total_cmp);
    wait(&network, "down");
    let report = load.stop().unwrap();
    assert_eq!(report.sessions_lost, 0, "{ill:?}: {report:?}");
    Found {
        lost_before,
        ready_ms: ready.as_secs_f64() * 1e3,
        cpu_ms: cpu.as_secs_f64() * 1e3,
        silence_ms: report.gap_ms_max,
        first_answer_ms: answers[NEWCOMERS / 2],
    }
}

/// Packets that have not come back; some are always on their way.
fn missing(load: &Running) -> u64 {
    let sent = load.progress().sent();
    let what = "every echo";
    let all = wait::until_true(what, Duration::from_secs(1), || {
        load.progress().received() >= sent
    });
    match all {
        Ok(()) => 0,
        Err(_) => sent - load.progress().received().min(sent),
    }
}

fn first_answer_ms(network: &Network) -> f64 {
    let session = Session::open(&network.whip("t1"), &bare_offer(), None).unwrap();
    let mut client = RawClient::connect(network.ingress("p1")).unwrap();
    let ufrag = session.attribute("ice-ufrag").unwrap();
    let password = session.attribute("ice-pwd").unwrap();
    let start = clock::now();
    // Media that comes first, as from a client of a PoP that is no more, asks the cache.
    client.send(b"\x80\x6fearly media").unwrap();
    client.answers_until_check(ufrag, password, SOON).unwrap();
    (clock::now() - start).as_secs_f64() * 1e3
}

fn wait_state(network: &Network, state: &str) {
    let what = format!("the cache to be {state}");
    wait::until_true(&what, SOON, || {
        network
            .metrics("p1")
            .unwrap()
            .sum(STATE, &[("state", state)])
            == 1.0
    })
    .unwrap();
}

const STATE: &str = "firsthop_pop_flow_cache_state";
const PACKETS_FORWARDED: &str = "firsthop_pop_packets_total";
const FLOWS_MADE: &str = "firsthop_pop_flows_made_total";

fn wait_keys(redis: &Redis, keys: u64) {
    let what = format!("{keys} keys in Redis");
    wait::until_true(&what, SOON, || {
        redis.keys().is_ok_and(|found| found == keys)
    })
    .unwrap();
}
