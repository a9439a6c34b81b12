//! The flow cache end to end, with a real redis-server: calls whose PoP dies go on by it, sessions that ended do not come
//! back by it, and a Redis that hangs or is not there costs nothing.

#![cfg(test)]

use std::time::Duration;

use lab::bench::recovery::{Case, run};
use lab::net::{Network, Shape};
use lab::raw::RawClient;
use lab::redis::Redis;
use lab::wait;
use lab::whip::{Session, bare_offer};

const SOON: Duration = Duration::from_secs(15);
/// A fifth of the time between two checks of a client.
const GAP_MS_MAX: f64 = 500.0;
/// Packets a client sends, one after the other.
const PACKETS: u32 = 50;

#[test]
fn another_pop_takes_calls_over_without_a_check() {
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
    assert!((20.0..GAP_MS_MAX).contains(&row.silence_up_ms));
    assert_eq!(row.moved, 0, "the far end sees another address");
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
    wait::until_true("the cache to be in use", SOON, || {
        of_p1(&network, STATE, &[("state", "up")]) == 1.0
    })
    .unwrap();
    let (ended, living) = (Call::open(&network), Call::open(&network));
    wait_keys(&redis, 2);
    ended.session.close().unwrap();
    wait_keys(&redis, 1);

    network.kill("p1").unwrap();
    network.start_node("p1").unwrap();
    wait::until_true("the cache to be in use again", SOON, || {
        of_p1(&network, STATE, &[("state", "up")]) == 1.0
    })
    .unwrap();
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
