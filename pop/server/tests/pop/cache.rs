//! The flow cache with a real Redis: what it gives, and that nothing Redis does is felt.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::redis_server::RedisServer;
use crate::world::{Client, KEYS, RTP, World};
use wire::ClientAddr;
use wire::record::RecordHeader;

fn group(urls: &[String]) -> String {
    let urls = urls.join("\", \"");
    format!("  - {{ name: test, redis: [\"{urls}\"] }}\n")
}

fn world(net: u8, redis: &RedisServer) -> World {
    World::with_cache(net, &group(&[redis.url()]), &[])
}

fn is_up(world: &World) -> bool {
    world.get("/state").1.contains("\"state\":\"up\"")
}

fn until_up(world: &mut World) {
    world.until("the flow cache is up", |world| is_up(world));
}

fn until_down(world: &mut World, failure: &str) {
    let failure = format!("\"last_failure\":\"{failure}\"");
    world.until(&failure, |world| {
        let state = world.get("/state").1;
        state.contains(&failure) && state.contains("\"state\":\"down\"")
    });
}

fn until_done(world: &mut World, op: &str, result: &str) {
    let labels = [format!("op=\"{op}\""), format!("result=\"{result}\"")];
    world.until(&format!("{op} {result}"), |world| {
        world.metric("firsthop_pop_flow_cache_operations_total", &labels) > 0
    });
}

/// Forwarding does not know what Redis does.
fn talk(world: &mut World, (client, header): &(Client, RecordHeader)) {
    for _ in 0..20 {
        client.send(RTP);
        let (relay, got, payload) = world.next_record();
        assert_eq!((got.client, payload.as_slice()), (header.client, RTP));
        world.down(relay, header, RTP);
        assert_eq!(world.next_packet(client).1, RTP);
    }
}

fn restart(world: &mut World) {
    world.stop();
    world.restart();
    let mut ups = None;
    world.until("links are up again", |world| {
        let now: Vec<_> = world.relays.iter().map(|relay| relay.up.len()).collect();
        let ready = world.get("/readyz").0 == 200;
        ups = Some(now);
        ready
    });
    world.until("settled", |world| {
        world.get("/state").1.matches("\"up\":true").count() == 2
    });
}

#[test]
fn a_restarted_pop_goes_on_without_stun_or_downlink() {
    let redis = RedisServer::start(&[]);
    let mut world = world(31, &redis);
    until_up(&mut world);
    let call = world.committed(KEYS);
    until_done(&mut world, "store", "ok");
    restart(&mut world);
    until_up(&mut world);
    let start = Instant::now();
    call.0.send(RTP);
    call.0.send(b"\x80\x6f\x00\x02 the next frame");
    assert_eq!(world.next_record().2, RTP, "held, then sent");
    assert_eq!(world.next_record().2, b"\x80\x6f\x00\x02 the next frame");
    // At once, as far as a busy machine lets it: nothing but the cache says whose they are, however long one waits.
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    world.until("counted", |world| {
        world.get("/state").1.contains("\"flows_by_cache\":1")
    });
    talk(&mut world, &call);
}

#[test]
fn the_mapping_of_a_dead_session_does_not_come_back() {
    let redis = RedisServer::start(&[]);
    let mut world = world(32, &redis);
    until_up(&mut world);
    let (first, second) = (world.committed(KEYS), world.committed(KEYS));
    world.until("both are stored", |_| redis.cli(&["DBSIZE"]).trim() == "2");
    world.down(0, &first.1, b"");
    world.until("deleted", |_| redis.cli(&["DBSIZE"]).trim() == "1");
    // While Redis does not answer, a session ends; it is forgotten once Redis is back.
    redis.signal("STOP");
    world.down(0, &second.1, b"");
    until_down(&mut world, "timeout");
    redis.signal("CONT");
    world.until("deleted later", |_| redis.cli(&["DBSIZE"]).trim() == "0");
    until_up(&mut world);
    restart(&mut world);
    until_up(&mut world);
    first.0.send(RTP);
    second.0.send(RTP);
    world.until("nobody's", |world| world.drops("uncached") == 2);
    assert!(world.relays.iter().all(|relay| relay.records.is_empty()));
}

/// Redis writes nothing for a moment, so the deletion is still under way when the PoP is told to stop.
#[test]
fn what_was_to_be_forgotten_when_the_pop_stops_is_forgotten() {
    let redis = RedisServer::start(&[]);
    let mut world = world(41, &redis);
    until_up(&mut world);
    let (_, header) = world.committed(KEYS);
    world.until("stored", |_| redis.cli(&["DBSIZE"]).trim() == "1");
    redis.cli(&["CLIENT", "PAUSE", "600", "WRITE"]);
    world.down(0, &header, b"");
    world.until("ended", |world| {
        world.get("/state").1.contains("\"flows_ended\":1")
    });
    world.stop();
    assert_eq!(redis.cli(&["DBSIZE"]).trim(), "0");
}

#[test]
fn what_redis_does_not_forget_is_shown_while_it_is_in_use() {
    let redis = RedisServer::start(&[]);
    acl(&redis, "+set +getrange");
    let user = [("redis.user", "pops"), ("redis.password", "secret")];
    let mut world = World::with_cache(42, &group(&[redis.url()]), &user);
    until_up(&mut world);
    let (_, header) = world.committed(KEYS);
    until_done(&mut world, "store", "ok");
    world.down(0, &header, b"");
    world.until("shown", |world| {
        world.get("/state").1.contains("\"forgets_waiting\":1")
    });
    until_done(&mut world, "forget", "denied");
    assert!(is_up(&world));
}

/// A transceiver that stops ends all its sessions at once.
#[test]
fn thousands_of_sessions_that_end_together_are_all_forgotten() {
    const ENDED: u32 = 12_000;
    let redis = RedisServer::start(&[]);
    let mut world = world(40, &redis);
    until_up(&mut world);
    let (_, header) = world.committed(KEYS);
    let client = |index: u32| {
        let ip = std::net::Ipv4Addr::from(0x0808_0000 + index);
        ClientAddr::new(SocketAddr::from((ip, 4000)))
    };
    world.end_all(0, &header, (0..ENDED).map(client));
    let labels = ["op=\"forget\"".to_owned(), "result=\"ok\"".to_owned()];
    world.until("all are forgotten", |world| {
        world.metric("firsthop_pop_flow_cache_operations_total", &labels) == u64::from(ENDED)
    });
}

#[test]
fn redis_shows_nothing_of_a_client() {
    let redis = RedisServer::start(&[]);
    let mut world = world(33, &redis);
    until_up(&mut world);
    let clients: Vec<_> = (0..8).map(|_| world.committed(KEYS)).collect();
    world.until("stored", |_| redis.cli(&["DBSIZE"]).trim() == "8");
    let keys = redis.cli(&["--no-raw", "KEYS", "*"]);
    let mut seen = keys.clone();
    for (client, _) in &clients {
        let SocketAddr::V4(address) = client.addr().socket_addr() else {
            panic!("an IPv4 client")
        };
        seen += &redis.cli(&["--no-raw", "EVAL", "local all = '' for _, key in ipairs(redis.call('KEYS', '*')) do all = all .. key .. redis.call('GET', key) end return all", "0"]);
        let [p0, p1] = address.port().to_be_bytes();
        let escaped = |bytes: &[u8]| -> String {
            bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect()
        };
        for secret in [
            address.to_string(),
            address.ip().to_string(),
            escaped(&address.ip().octets()),
            escaped(&[address.ip().octets().as_slice(), &[p0, p1]].concat()),
        ] {
            assert!(!seen.contains(&secret), "{secret} in {seen}");
        }
    }
    assert!(seen.contains("firsthop:flow:"), "the scan sees the entries");
}

#[test]
fn whatever_redis_does_packets_pass_and_it_is_taken_up_again() {
    let mut redis = RedisServer::stopped(&[]);
    let started = Instant::now();
    let mut world = world(34, &redis);
    let absent = started.elapsed();
    until_down(&mut world, "refused");
    let call = world.committed(KEYS);
    talk(&mut world, &call);
    // It comes.
    redis.restart();
    until_up(&mut world);
    // Stopped.
    redis.signal("STOP");
    talk(&mut world, &call);
    until_down(&mut world, "timeout");
    talk(&mut world, &call);
    let other = world.client();
    other.send(RTP);
    world.until("answered at once", |world| world.drops("unanswered") > 0);
    redis.signal("CONT");
    until_up(&mut world);
    // Slow: nothing is answered for a while, and it is not asked any more.
    redis.cli(&["CLIENT", "PAUSE", "2500", "ALL"]);
    talk(&mut world, &call);
    let strangers: Vec<_> = (0..8).map(|_| world.client()).collect();
    let mut turn = strangers.iter().cycle();
    world.until("down", |world| {
        turn.next().unwrap().send(RTP);
        !is_up(world)
    });
    until_up(&mut world);
    // Gone and back, empty.
    redis.kill();
    talk(&mut world, &call);
    world.until("down", |world| !is_up(world));
    redis.restart();
    until_up(&mut world);
    redis.cli(&["FLUSHALL"]);
    talk(&mut world, &call);
    // Out of memory.
    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let next = world.committed(KEYS);
    until_done(&mut world, "store", "oom");
    talk(&mut world, &next);
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert!(is_up(&world), "lookups work all the time");
    // The start does not wait for Redis: with it, it takes about as long as without.
    drop(world);
    let started = Instant::now();
    let world = self::world(35, &redis);
    let present = started.elapsed();
    assert!(
        absent < present * 3 + Duration::from_secs(1),
        "{absent:?} {present:?}"
    );
    drop(world);
}

#[test]
fn garbage_under_our_keys_is_no_owner() {
    let redis = RedisServer::start(&[]);
    let mut world = world(36, &redis);
    until_up(&mut world);
    let (first, second) = (world.committed(KEYS), world.committed(KEYS));
    world.until("stored", |_| redis.cli(&["DBSIZE"]).trim() == "2");
    let script = "local keys = redis.call('KEYS', '*') \
        redis.call('SET', keys[1], string.rep('x', 1000000)) \
        redis.call('DEL', keys[2]) redis.call('LPUSH', keys[2], 'x') return 'done'";
    assert_eq!(redis.cli(&["EVAL", script, "0"]).trim(), "done");
    restart(&mut world);
    until_up(&mut world);
    first.0.send(RTP);
    second.0.send(RTP);
    until_done(&mut world, "lookup", "bad_value");
    until_done(&mut world, "lookup", "wrong_type");
    assert!(world.relays.iter().all(|relay| relay.records.is_empty()));
    assert!(is_up(&world));
    let call = world.committed(KEYS);
    talk(&mut world, &call);
}

fn acl(redis: &RedisServer, commands: &str) {
    let rules = format!("on >secret ~firsthop:flow:* -@all {commands} +ping +cluster|slots");
    let rules: Vec<&str> = rules.split(' ').collect();
    let set = [&["ACL", "SETUSER", "pops"], rules.as_slice()].concat();
    assert_eq!(redis.cli(&set).trim(), "OK");
    assert_eq!(
        redis
            .cli(&["ACL", "SETUSER", "default", "resetpass", ">other"])
            .trim(),
        "OK"
    );
}

#[test]
fn a_user_limited_to_what_is_used_is_enough_and_a_wrong_password_is_seen() {
    let redis = RedisServer::start(&[]);
    acl(&redis, "+set +getrange +del +eval");
    let user = [("redis.user", "pops"), ("redis.password", "wrong")];
    let mut world = World::with_cache(37, &group(&[redis.url()]), &user);
    until_down(&mut world, "auth");
    let call = world.committed(KEYS);
    talk(&mut world, &call);
    world.publish_file("redis.password", "secret");
    until_up(&mut world);
    let call = world.committed(KEYS);
    until_done(&mut world, "store", "ok");
    restart(&mut world);
    until_up(&mut world);
    call.0.send(RTP);
    assert_eq!(world.next_record().2, RTP);
    world.down(0, &call.1, RTP);
    world.down(0, &call.1, b"");
    until_done(&mut world, "forget", "ok");
    for result in ["denied", "error", "lost"] {
        let labels = [format!("result=\"{result}\"")];
        assert_eq!(
            world.metric("firsthop_pop_flow_cache_operations_total", &labels),
            0
        );
    }
}

#[test]
fn a_cluster_serves_as_one() {
    let nodes: Vec<_> = (0..3)
        .map(|_| {
            RedisServer::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
        })
        .collect();
    let addresses: Vec<_> = nodes
        .iter()
        .map(|node| format!("127.0.0.1:{}", node.port))
        .collect();
    let mut create = vec!["--cluster", "create"];
    create.extend(addresses.iter().map(String::as_str));
    create.extend(["--cluster-yes"]);
    let said = nodes[0].cli(&create);
    assert!(said.contains("All 16384 slots covered"), "{said}");
    let serves = |node: &RedisServer| node.cli(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    let end = Instant::now() + Duration::from_secs(20);
    while !nodes.iter().all(serves) {
        assert!(Instant::now() < end, "the cluster serves");
    }
    let urls = nodes[0].url();
    let group = format!("  - {{ name: test, redis: [\"{urls}\"], cluster: true }}\n");
    let mut world = World::with_cache(38, &group, &[]);
    until_up(&mut world);
    let calls: Vec<_> = (0..24).map(|_| world.committed(KEYS)).collect();
    world.until("stored on all", |_| {
        let sizes: Vec<u32> = nodes
            .iter()
            .map(|node| node.cli(&["DBSIZE"]).trim().parse().unwrap())
            .collect();
        sizes.iter().sum::<u32>() == 24 && sizes.iter().all(|size| *size > 0)
    });
    restart(&mut world);
    until_up(&mut world);
    for (client, header) in &calls {
        client.send(RTP);
        assert_eq!(world.next_record().1.client, header.client);
        world.down(0, header, b"");
    }
    world.until("all deleted", |_| {
        nodes.iter().all(|node| node.cli(&["DBSIZE"]).trim() == "0")
    });
}

#[test]
fn tls_trusts_the_ca_of_the_credentials_and_no_other() {
    let files = World::tls_files(39);
    let path = |name: &str| files.join(name).display().to_string();
    let redis = RedisServer::start(&[
        "--tls-port",
        "--tls-cert-file",
        &path("redis.cert.pem"),
        "--tls-key-file",
        &path("redis.key.pem"),
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &path("ca.pem"),
    ]);
    let group = format!(
        "  - {{ name: test, redis: [\"rediss://127.0.0.1:{}\"] }}\n",
        redis.port
    );
    let mut world = World::with_cache(39, &group, &[("redis.ca.pem", &World::other_ca())]);
    world.until("not trusted", |world| {
        let state = world.get("/state").1;
        state.contains("\"last_failure\":\"tls\"") || state.contains("\"last_failure\":\"closed\"")
    });
    let own = std::fs::read_to_string(path("ca.pem")).unwrap();
    world.publish_file("redis.ca.pem", &own);
    until_up(&mut world);
    let call = world.committed(KEYS);
    until_done(&mut world, "store", "ok");
    restart(&mut world);
    until_up(&mut world);
    call.0.send(RTP);
    assert_eq!(world.next_record().2, RTP);
}
