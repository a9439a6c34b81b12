//! The state store with a real redis-server: absent, hung, restarted, emptied, guarded by a password, full of garbage, behind a slow line; with two
//! of them; and the hub of one process.

#![cfg(test)]

#[path = "support/issue.rs"]
mod issue;
#[path = "support/redis_server.rs"]
mod redis_server;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use issue::{Ca, Dir, Leaf};
use redis_server::RedisServer;
use runtime::clock;
use runtime::control::Control;
use runtime::credentials::Credentials;
use runtime::node::{Config, NodeContext};
use runtime::store::{
    self, Hub, MEDIANS_MAX, PopState, PrefixMedian, Publication, Role, Seen, States, Tell, Told,
    Watch,
};
use topology::{RedisUrl, StateStore, Topology};

const LOCAL: &str = include_str!("../../topology/samples/local.yaml");
const PATIENCE: Duration = Duration::from_secs(30);
const POP: &str = "ams";

/// A PoP that tells how often it told.
#[derive(Clone, Default)]
struct Teller(Arc<AtomicU64>);

impl Tell for Teller {
    fn state(&mut self) -> Told {
        Told {
            ready: true,
            draining: false,
            role: Role::Pop(PopState {
                flows: self.0.fetch_add(1, Ordering::Relaxed),
                ..PopState::default()
            }),
        }
    }

    fn medians(&mut self) -> Option<Vec<PrefixMedian>> {
        let prefix = "192.0.2.0/24".parse().unwrap();
        Some(vec![PrefixMedian {
            prefix,
            rtt_us: 5000,
            clients: 3,
            age_s: 0,
        }])
    }
}

/// A PoP with all the medians there may be.
#[derive(Default)]
struct LongTeller(Teller);

impl Tell for LongTeller {
    fn state(&mut self) -> Told {
        self.0.state()
    }

    fn medians(&mut self) -> Option<Vec<PrefixMedian>> {
        let all = (0..u32::try_from(MEDIANS_MAX).unwrap()).map(|number| PrefixMedian {
            prefix: ipnet::Ipv4Net::new((0x0b00_0000 + (number << 8)).into(), 24)
                .unwrap()
                .into(),
            rtt_us: 123_456,
            clients: 64,
            age_s: 12_345,
        });
        Some(all.collect())
    }
}

struct World {
    control: Control,
    dir: Dir,
    topology: Topology,
    pop: String,
    hub: Hub,
}

impl World {
    fn new(redis: Option<&RedisServer>) -> Self {
        let urls: Vec<String> = redis.iter().map(|redis| redis.url()).collect();
        Self::of(&urls)
    }

    fn of(urls: &[String]) -> Self {
        let mut topology = topology::load(LOCAL, "local.yaml").unwrap();
        let redis: Vec<_> = urls
            .iter()
            .map(|url| RedisUrl::parse(url).unwrap())
            .collect();
        topology.network.state = (!redis.is_empty()).then_some(StateStore {
            redis,
            cluster: false,
            interval_ms: 100,
            ttl_s: 1,
        });
        let pop = topology.pops[0].name.clone();
        Self {
            control: Control::new().unwrap(),
            dir: Dir::with_credentials(&Ca::new(), &Leaf::of(POP)),
            topology,
            pop,
            hub: Hub::default(),
        }
    }

    fn context(&self, name: &str) -> NodeContext {
        let config = Config {
            topology: self.topology.clone(),
            credentials: Credentials::load(self.dir.path()).unwrap(),
            generation: 1,
        };
        NodeContext::new("pop", name, config, self.control.clone()).with_hub(self.hub.clone())
    }

    fn tell(&self) -> (NodeContext, Publication) {
        let context = self.context(&self.pop);
        let publication = store::publish(&context, Teller::default()).unwrap();
        (context, publication)
    }

    fn watch(&self) -> (NodeContext, Watch) {
        let context = self.context("watcher");
        let watch = store::watch(&context).unwrap();
        (context, watch)
    }

    fn seen(&self, states: &States) -> Seen {
        states.nodes.get(&self.pop).cloned().unwrap_or_default()
    }

    fn flows(&self, states: &States) -> Option<u64> {
        match &self.seen(states).state?.role {
            Role::Pop(pop) => Some(pop.flows),
            Role::CoreRelay(_) | Role::Transceiver(_) | Role::GeoDns(_) => None,
        }
    }

    /// Waits until the PoP has told something that was not known.
    fn wait_news(&self, watch: &Watch) {
        let before = self.flows(&watch.load());
        wait("news", || self.flows(&watch.load()) > before);
    }

    fn key(&self, kind: &str) -> String {
        self.key_of(kind, &self.pop)
    }

    fn key_of(&self, kind: &str, node: &str) -> String {
        format!("firsthop:{kind}:{}:{node}", self.topology.network.name)
    }
}

fn wait(what: &str, is_so: impl Fn() -> bool) {
    let end = clock::now() + PATIENCE;
    while !is_so() {
        assert!(clock::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn counted(context: &NodeContext, line: &str) -> bool {
    count(context, line) > 0.0
}

fn count(context: &NodeContext, line: &str) -> f64 {
    let text = context.metrics.prometheus();
    let at = text.lines().find_map(|it| it.strip_prefix(line));
    at.map_or(0.0, |value| value.trim().parse().unwrap())
}

#[test]
fn what_is_told_is_seen_and_a_node_that_falls_silent_is_gone() {
    let redis = RedisServer::start(&[]);
    let world = World::new(Some(&redis));
    let (_teller, told) = world.tell();
    let (_watcher, watch) = world.watch();
    world.wait_news(&watch);
    let states = watch.load();
    assert!(states.alive && !world.seen(&states).gone);
    wait("medians", || watch.load().medians.contains_key(&world.pop));
    assert_eq!(watch.load().medians[&world.pop].prefixes[0].rtt_us, 5000);
    // A key per node, which goes by itself; medians stay for as long as they count.
    let ttl: i64 = redis
        .cli(&["TTL", &world.key("state")])
        .trim()
        .parse()
        .unwrap();
    assert!((0..=1).contains(&ttl), "{ttl}");
    let ttl: i64 = redis
        .cli(&["TTL", &world.key("rtt")])
        .trim()
        .parse()
        .unwrap();
    assert!(ttl > 80_000, "{ttl}");
    drop(told);
    wait("the end", || world.seen(&watch.load()).gone);
    let states = watch.load();
    assert!(world.seen(&states).state.is_some() && !states.medians.is_empty());
    let (_teller, _told) = world.tell();
    wait("the return", || !world.seen(&watch.load()).gone);
}

#[test]
fn a_store_that_is_absent_hung_restarted_or_emptied_takes_nothing_away() {
    let mut redis = RedisServer::stopped(&[]);
    let world = World::new(Some(&redis));
    let (teller, _told) = world.tell();
    let (watcher, watch) = world.watch();
    wait("a failure", || {
        counted(
            &watcher,
            "firsthop_state_store_failures_total{side=\"watch\",reason=\"refused\"}",
        ) && counted(
            &teller,
            "firsthop_state_store_failures_total{side=\"tell\",reason=\"refused\"}",
        )
    });
    assert!(watch.load().answered_at.is_none() && watch.load().nodes.is_empty());
    redis.restart();
    world.wait_news(&watch);

    redis.signal("STOP");
    wait("silence", || !watch.load().alive);
    let known = world.seen(&watch.load());
    assert!(known.state.is_some() && !known.gone);
    wait("its count", || {
        counted(
            &watcher,
            "firsthop_state_store_failures_total{side=\"watch\",reason=\"timeout\"}",
        )
    });
    assert!(counted(&watcher, "firsthop_state_store_age_s"));
    redis.signal("CONT");
    world.wait_news(&watch);

    redis.restart();
    world.wait_news(&watch);
    assert!(!world.seen(&watch.load()).gone);

    redis.cli(&["FLUSHALL"]);
    world.wait_news(&watch);
    assert!(watch.load().alive && !world.seen(&watch.load()).gone);
}

#[test]
fn a_wrong_password_is_told_and_a_right_one_is_taken_up_at_the_next_reload() {
    let redis = RedisServer::start(&["--requirepass", "right"]);
    let world = World::new(Some(&redis));
    world.dir.write("redis.password", "wrong\n");
    let (teller, _told) = world.tell();
    let (watcher, watch) = world.watch();
    for (context, side) in [(&teller, "tell"), (&watcher, "watch")] {
        let line =
            format!("firsthop_state_store_failures_total{{side=\"{side}\",reason=\"auth\"}}");
        wait("a refusal", || counted(context, &line));
    }
    world.dir.write("redis.password", "right\n");
    for context in [&teller, &watcher] {
        let credentials = Credentials::load(world.dir.path()).unwrap();
        context.config.publish(world.topology.clone(), credentials);
    }
    world.wait_news(&watch);
    // Gone again: what was known stays.
    world.dir.remove("redis.password");
    let credentials = Credentials::load(world.dir.path()).unwrap();
    watcher.config.publish(world.topology.clone(), credentials);
    wait("another refusal", || !watch.load().alive);
    let seen = world.seen(&watch.load());
    assert!(seen.state.is_some() && !seen.gone);
}

#[test]
fn garbage_under_the_keys_is_counted_and_leaves_what_was_known() {
    let redis = RedisServer::start(&[]);
    let world = World::new(Some(&redis));
    let (_teller, told) = world.tell();
    let (watcher, watch) = world.watch();
    world.wait_news(&watch);
    wait("medians", || !watch.load().medians.is_empty());
    drop(told);
    let long = "x".repeat(100_000);
    let result = |result: &str| {
        format!("firsthop_state_store_operations_total{{side=\"watch\",result=\"{result}\"}}")
    };
    for (garbage, reason) in [
        ("not json", "json"),
        ("{\"version\":7}", "version"),
        (long.as_str(), "too_long"),
        (
            "{\"version\":1,\"node\":\"other\",\"ready\":true,\"draining\":false,\"role\":{\"geodns\":{}}}",
            "node",
        ),
    ] {
        redis.cli(&["SET", &world.key("state"), garbage]);
        redis.cli(&["SET", &world.key("rtt"), garbage]);
        wait(reason, || counted(&watcher, &result(reason)));
        let seen = world.seen(&watch.load());
        assert!(seen.state.is_some() && !seen.gone, "{reason}");
    }
    // Something that is no string at all.
    redis.cli(&["DEL", &world.key("state")]);
    redis.cli(&["LPUSH", &world.key("state"), "x"]);
    world.wait_after(&watch, Duration::from_secs(1));
    let states = watch.load();
    assert!(states.alive && world.seen(&states).state.is_some());
    assert!(!states.medians.is_empty());
    // A node that comes back writes over it.
    let before = world.flows(&states);
    let (_teller, _told) = world.tell();
    wait("news", || world.flows(&watch.load()) != before);
}

/// Servers in use on the side that watches.
fn servers_up(context: &NodeContext) -> String {
    let text = context.metrics.prometheus();
    let line = "firsthop_state_store_servers_up{side=\"watch\"}";
    let found = text.lines().find_map(|it| it.strip_prefix(line));
    found.unwrap_or_default().trim().to_owned()
}

#[test]
fn of_two_servers_either_may_be_killed_or_hang_and_nobody_is_missed() {
    let mut first = RedisServer::start(&[]);
    let second = RedisServer::start(&[]);
    let world = World::of(&[first.url(), second.url()]);
    let (teller, _told) = world.tell();
    let (watcher, watch) = world.watch();
    world.wait_news(&watch);
    wait("both", || servers_up(&watcher) == "2");
    // Longer than a node is missed before it is gone: it never is, and what is known never goes back.
    let mut known = 0;
    let mut lives_on = |what: &str| {
        let end = clock::now() + Duration::from_secs(8);
        let before = known;
        while clock::now() < end {
            let states = watch.load();
            let flows = world.flows(&states).unwrap();
            assert!(states.alive && !world.seen(&states).gone, "{what}");
            assert!(flows >= known, "{what}: {flows} after {known}");
            known = flows;
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(known > before + 20, "{what}: {known} after {before}");
    };
    first.kill();
    lives_on("the first is killed");
    assert_eq!(servers_up(&watcher), "1");
    // Who comes now learns it all from the other.
    let (_late, late) = world.watch();
    wait("the late one", || world.flows(&late.load()).is_some());
    assert!(!world.seen(&late.load()).gone);
    wait("its medians", || !late.load().medians.is_empty());
    first.restart();
    wait("its return", || servers_up(&watcher) == "2");
    lives_on("the first is back, and empty");
    second.signal("STOP");
    lives_on("the second hangs");
    second.signal("CONT");
    wait("its return", || servers_up(&watcher) == "2");
    lives_on("the second is back, with what it slept on");
    for (context, side) in [(&teller, "tell"), (&watcher, "watch")] {
        let line = format!("firsthop_state_store_up{{side=\"{side}\"}}");
        assert!(counted(context, &line), "{side}");
    }
}

/// As many bytes a second as any line here needs.
const FAST: u32 = 1_000_000_000;

/// A line to a server, of so many bytes a second to it and from it, for each connection.
fn slow_line(server: &RedisServer, (up, down): (u32, u32)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let server = server.url().trim_start_matches("redis://").to_owned();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(&server).unwrap());
            let ends = [&client, &server].map(|it| it.try_clone().unwrap());
            let [from_client, from_server] = ends;
            std::thread::spawn(move || carry(from_client, server, up));
            std::thread::spawn(move || carry(from_server, client, down));
        }
    });
    url
}

fn carry(mut from: TcpStream, mut to: TcpStream, bytes_per_s: u32) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let len_u32 = u32::try_from(len).unwrap();
        std::thread::sleep(Duration::from_secs(1) * len_u32 / bytes_per_s);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// A world of so many PoPs, all of which have told 400 kB of medians.
fn world_of_medians(redis: &RedisServer, url: String, pops: usize) -> World {
    let mut world = World::of(&[url]);
    let first = world.topology.pops[0].clone();
    for number in 1..pops {
        let name = format!("p{number}");
        let pop = topology::Pop {
            name,
            ..first.clone()
        };
        world.topology.pops.push(pop);
    }
    for pop in &world.topology.pops {
        let script = "return redis.call('SET', KEYS[1], ARGV[1]..string.rep(' ', 400000)..ARGV[2])";
        let head = format!("{{\"version\":1,\"node\":\"{}\",", pop.name);
        let key = world.key_of("rtt", &pop.name);
        let tail = "\"told_unix_s\":9,\"prefixes\":[]}";
        let said = redis.cli(&["EVAL", script, "1", &key, &head, tail]);
        assert_eq!(said.trim(), "OK");
    }
    world
}

const WATCH_TIMEOUTS: &str =
    "firsthop_state_store_failures_total{side=\"watch\",reason=\"timeout\"}";
const TELL_TIMEOUTS: &str = "firsthop_state_store_failures_total{side=\"tell\",reason=\"timeout\"}";

#[test]
fn medians_of_many_pops_arrive_by_a_line_that_carries_a_few_at_a_time() {
    const POPS: usize = 24;
    let redis = RedisServer::start(&[]);
    // All of them take several times what a batch may take.
    let line = slow_line(&redis, (FAST, 4_000_000));
    let world = world_of_medians(&redis, line, POPS);
    let (watcher, watch) = world.watch();
    wait("all medians", || watch.load().medians.len() == POPS);
    assert!(watch.load().alive);
    assert!(!counted(&watcher, WATCH_TIMEOUTS));
}

#[test]
fn medians_arrive_by_a_line_that_carries_one_at_a_time() {
    const POPS: usize = 5;
    let redis = RedisServer::start(&[]);
    // Two of them take longer than a batch may take.
    let line = slow_line(&redis, (FAST, 600_000));
    let world = world_of_medians(&redis, line, POPS);
    let (watcher, watch) = world.watch();
    wait("all medians", || watch.load().medians.len() == POPS);
    assert!(counted(&watcher, WATCH_TIMEOUTS), "no slow line");
    assert!(watch.load().alive);
}

#[test]
fn a_line_that_carries_no_medians_hides_no_node_that_is_gone() {
    let redis = RedisServer::start(&[]);
    // One of them takes four seconds.
    let line = slow_line(&redis, (FAST, 100_000));
    let world = world_of_medians(&redis, line, 9);
    let (watcher, watch) = world.watch();
    let (_teller, told) = world.tell();
    world.wait_news(&watch);
    wait("a slow line", || counted(&watcher, WATCH_TIMEOUTS));
    assert!(!world.seen(&watch.load()).gone);
    drop(told);
    wait("the end", || world.seen(&watch.load()).gone);
    let others =
        |states: &States| (1..9).all(|pop| !states.medians.contains_key(&format!("p{pop}")));
    assert!(others(&watch.load()), "no slow line");
    assert!(count(&watcher, WATCH_TIMEOUTS) > 1.0);
}

#[test]
fn a_line_that_carries_no_medians_carries_the_state() {
    let redis = RedisServer::start(&[]);
    let mut world = World::of(&[slow_line(&redis, (50_000, FAST))]);
    let teller = world.context(&world.pop);
    let told = LongTeller::default();
    let times = told.0.clone();
    let _told = store::publish(&teller, told).unwrap();
    wait("a slow line", || counted(&teller, TELL_TIMEOUTS));
    wait("its state, often", || times.0.load(Ordering::Relaxed) >= 40);
    let timeouts = count(&teller, TELL_TIMEOUTS);
    assert!(timeouts <= 4.0, "{timeouts}");
    world.topology.network.state = StateStore {
        redis: vec![RedisUrl::parse(&redis.url()).unwrap()],
        ..world.topology.network.state.clone().unwrap()
    }
    .into();
    let (_watcher, watch) = world.watch();
    world.wait_news(&watch);
}

#[test]
fn a_reload_waits_for_no_server_that_does_not_answer() {
    const RELOADS: u32 = 10;
    let redis = RedisServer::start(&[]);
    // Connections are made, and nothing is ever said.
    let hung = TcpListener::bind("127.0.0.1:0").unwrap();
    let hung_url = format!("redis://{}", hung.local_addr().unwrap());
    let mut world = World::of(&[hung_url, redis.url()]);
    let (teller, _told) = world.tell();
    let (watcher, watch) = world.watch();
    world.wait_news(&watch);
    let begins = clock::now();
    for number in 0..RELOADS {
        let pop = topology::Pop {
            name: format!("p{number}"),
            ..world.topology.pops[0].clone()
        };
        let name = pop.name.clone();
        world.topology.pops.push(pop);
        world.topology.network.name = format!("net{number}");
        for context in [&teller, &watcher] {
            let credentials = Credentials::load(world.dir.path()).unwrap();
            context.config.publish(world.topology.clone(), credentials);
        }
        wait("what is asked", || watch.load().nodes.contains_key(&name));
        wait("what is told", || {
            redis.cli(&["EXISTS", &world.key("state")]).trim() == "1"
        });
    }
    let took = clock::now().saturating_duration_since(begins);
    // A connection that is not answered is waited for for a second: each of them would have taken so long.
    assert!(took < RELOADS * Duration::from_millis(600), "{took:?}");
    drop(hung);
}

#[test]
fn nodes_of_one_process_know_each_other_without_a_store() {
    let world = World::new(None);
    let (_teller, _told) = world.tell();
    let (_watcher, watch) = world.watch();
    world.wait_news(&watch);
    assert!(watch.load().alive);
    wait("medians", || !watch.load().medians.is_empty());
    assert!(World::new(None).hub_is_empty(&world));
}

impl World {
    /// Until the store has been read for so long.
    fn wait_after(&self, watch: &Watch, time: Duration) {
        let answered = |states: &States| -> Option<Instant> { states.answered_at };
        let from = answered(&watch.load()).unwrap();
        wait("readings", || {
            answered(&watch.load()).unwrap() > from + time
        });
    }

    /// Nodes of another process are not known.
    fn hub_is_empty(&self, other: &Self) -> bool {
        let (_watcher, watch) = self.watch();
        wait("a reading", || watch.load().alive);
        self.pop == other.pop && self.seen(&watch.load()).state.is_none()
    }
}

#[test]
fn the_corpus_and_mutations_of_it_hold() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/store");
    let entries = std::fs::read_dir(dir).unwrap();
    let corpus: Vec<Vec<u8>> = entries
        .map(|it| std::fs::read(it.unwrap().path()).unwrap())
        .collect();
    assert!(corpus.len() > 8, "the corpus is missing");
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below.max(1)).unwrap()).unwrap()
    };
    for input in &corpus {
        store::fuzz::value(input);
        for _ in 0..2000 {
            let mut input = input.clone();
            for _ in 0..=random(3) {
                let at = random(input.len());
                match random(4) {
                    0 => input.truncate(at),
                    1 if !input.is_empty() => input[at] = u8::try_from(random(256)).unwrap(),
                    2 => input.insert(at, b"{}[]\",:0-e."[random(11)]),
                    _ => {
                        let other = &corpus[random(corpus.len())];
                        input.extend(&other[random(other.len())..]);
                    }
                }
            }
            store::fuzz::value(&input);
        }
    }
}
