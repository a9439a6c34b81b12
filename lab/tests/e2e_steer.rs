//! Steering over HTTP between real programs: who may ask, what signaling does with the answer, and without one.

#![cfg(test)]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use lab::http;
use lab::net::{Network, Shape};
use lab::redis_server::Redis;
use lab::standstill::{Figures, figures};
use lab::wait;
use lab::whip::{SDP, bare_offer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use runtime::clock;
use serde_json::Value;
use topology::{Dns, GeoDns, Rule, Topology};

const VIP: &str = "192.0.2.100:3478";
/// How long a change may take to be heard, decided by and asked for.
const HEARD_MAX: Duration = Duration::from_secs(20);
/// What an offer may take besides the time that steering is waited for, on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

/// Two PoPs and a GeoDNS node; clients of this machine get p1 first, those of 198.51.100.0/24 get p2.
fn shape() -> Shape {
    Shape {
        pops: 2,
        ..Shape::default()
    }
}

fn steered(topology: &mut Topology) {
    let IpAddr::V4(region) = topology.regions[0].transceivers.cidr.network() else {
        panic!("the lab is on loopback");
    };
    let [_, octet, ..] = region.octets();
    let at = |port| SocketAddr::from(([127, octet, 41, 1], port));
    let dns = serde_json::json!({
        "zone": "voice.test", "hostmaster": "hostmaster@voice.test",
        "nameservers": [{ "name": "ns1.voice.test", "addresses": [at(1).ip()] }],
    });
    topology.dns = Some(serde_json::from_value::<Dns>(dns).unwrap());
    topology.geodns = vec![GeoDns {
        name: "g1".to_owned(),
        dns: vec![at(5353)],
        dot: Vec::new(),
        doh: Vec::new(),
        steer: at(8443),
        workers: 1,
        pin: false,
        admin: at(9100),
    }];
    let rule = |name: &str, cidr: &str, pops: [&str; 2]| Rule {
        name: name.to_owned(),
        cidrs: vec![cidr.parse().unwrap()],
        pops: pops.map(str::to_owned).into(),
        ..Rule::default()
    };
    topology.steering.rules = vec![
        rule("here", "127.0.0.0/8", ["p1", "p2"]),
        rule("there", "198.51.100.0/24", ["p2", "p1"]),
    ];
    topology.steering.measured.explore_permille = 0;
    topology.network.vips = vec![VIP.parse().unwrap()];
}

/// Candidates of the answer to one offer, in order, by name.
fn candidates(network: &Network, headers: &[(&str, &str)]) -> Vec<String> {
    candidates_behind(b"", network, headers)
}

/// The same through a proxy that says this first.
fn candidates_behind(proxy: &[u8], network: &Network, headers: &[(&str, &str)]) -> Vec<String> {
    let headers = [&[("content-type", SDP)], headers].concat();
    let (offer, whip) = (bare_offer(), network.whip("t1"));
    let answer = http::send_behind(proxy, "POST", &whip, &headers, offer.as_bytes()).unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    let session = answer.header("location").unwrap();
    let host = whip.strip_suffix("/whip").unwrap();
    http::send_behind(proxy, "DELETE", &format!("{host}{session}"), &[], b"").unwrap();
    let mut names: Vec<String> = Vec::new();
    for line in answer.body.lines() {
        let Some(candidate) = line.strip_prefix("a=candidate:") else {
            continue;
        };
        let address = candidate.split(' ').nth(4).unwrap_or_default();
        let is_of = |pop: &&str| network.ingress(pop).ip().to_string() == address;
        let name = ["p1", "p2"].into_iter().find(is_of).unwrap_or("vip");
        if names.last().is_none_or(|last| last != name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// Waits until offers are answered with these candidates. Nodes start together: a transceiver may look for steering too early.
fn until_candidates(network: &Network, expected: &[&str]) {
    let what = format!("offers to be answered with {expected:?}");
    wait::until_true(&what, HEARD_MAX, || candidates(network, &[]) == expected).unwrap();
}

/// What comes before a request, and its fields.
type Claims<'a> = (&'a [u8], &'a [(&'a str, &'a str)]);

/// Waits until an offer with these claims is answered with `expected`, and never with `wrong`. Steering that is slow for once is not
/// waited for, and its candidates are those of nobody in particular. Returns how often it was asked.
fn until_told(
    network: &Network,
    (proxy, headers): Claims<'_>,
    expected: [&str; 3],
    wrong: [&str; 3],
) -> f64 {
    let mut asked = 0.0;
    let what = format!("offers to be answered with {expected:?}");
    wait::until_true(&what, HEARD_MAX, || {
        asked += 1.0;
        let found = candidates_behind(proxy, network, headers);
        assert_ne!(found, wrong, "{headers:?}");
        found == expected
    })
    .unwrap();
    asked
}

fn counted(network: &Network, outcome: &str) -> f64 {
    let metric = "firsthop_transceiver_steering_questions_total";
    let scrape = network.metrics("t1").unwrap();
    scrape.sum(metric, &[("outcome", outcome)])
}

fn signal(network: &Network, node: &str, signal: Signal) {
    let pid = network.pid(node).unwrap();
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

/// Asks as `node` of `asker`, whose certificates may be another network's. The answers' bodies, then each one's seconds.
fn ask(network: &Network, asker: &Network, node: Option<&str>, times: usize) -> Option<String> {
    let topology = network.topology();
    let g1 = &topology.geodns[0];
    let ours = network.credentials("t1");
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "20", "--cacert"])
        .arg(ours.join("ca.pem"));
    if let Some(node) = node {
        let theirs = asker.credentials(node);
        curl.arg("--cert").arg(theirs.join("cert.pem"));
        curl.arg("--key").arg(theirs.join("key.pem"));
    }
    let output = curl
        .args(["--resolve", &format!("g1:8443:{}", g1.steer.ip())])
        .args(["--data", r#"{"client":"198.51.100.7","region":"eu"}"#])
        .args(["--write-out", "\n%{time_total}\n"])
        .arg(format!("https://g1:8443/v1/steer?[1-{times}]"))
        .output()
        .unwrap();
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).unwrap())
}

#[test]
fn nodes_of_the_topology_alone_are_answered_and_soon() {
    let network = Network::start_with(&shape(), steered).unwrap();
    let others = Network::prepare(&shape(), steered).unwrap();
    let told = ask(&network, &network, Some("t1"), 1).unwrap();
    let told: Value = serde_json::from_str(told.lines().next().unwrap()).unwrap();
    assert_eq!(told["region"], "eu");
    let ways = told["ingress"].as_array().unwrap();
    let ways: Vec<_> = ways.iter().map(|way| way["pop"].as_str()).collect();
    assert_eq!(ways, [Some("p2"), None, Some("p1")]);
    assert_eq!(told["decision"]["rules"][0]["rule"], "there");
    assert!(!told.to_string().contains("198.51.100.7"), "{told}");

    assert_eq!(ask(&network, &network, None, 1), None, "no certificate");
    let foreign = ask(&network, &others, Some("t1"), 1);
    assert_eq!(foreign, None, "another authority");
    let scrape = network.metrics("g1").unwrap();
    let refused = scrape.sum("firsthop_geodns_steer_connections_refused_total", &[]);
    assert!(refused >= 2.0, "{refused}");

    figures("answers of steering", || soon(&network)).unwrap();
}

/// A thousand questions on one connection.
fn soon(network: &Network) -> Figures {
    let many = ask(network, network, Some("t1"), 1_000).unwrap();
    let seconds = many.lines().filter_map(|line| line.parse::<f64>().ok());
    let mut seconds: Vec<f64> = seconds.collect();
    assert_eq!(seconds.len(), 1_000);
    seconds.sort_by(f64::total_cmp);
    let (p50, p99) = (seconds[500], seconds[990]);
    println!("steer over TLS, one connection: p50 {p50:.6} s, p99 {p99:.6} s");
    // A quiet machine has some 0.0005.
    let mut found = Figures::default();
    found.below("p99, s", p99, 0.02);
    found
}

#[test]
fn signaling_answers_in_time_whatever_steering_does() {
    figures("offers while steering is stuck", in_time).unwrap();
}

fn in_time() -> Figures {
    let mut network = Network::start_with(&shape(), steered).unwrap();
    let timeout_ms = network.topology().steering.timeout_ms;
    let within = Duration::from_millis(timeout_ms.into()) + SLACK;
    let steered = ["p1", "vip", "p2"];
    let unsteered = ["vip", "p1", "p2"];
    until_candidates(&network, &steered);
    let before = |outcome| counted(&network, outcome);
    let (timeouts, skips) = (before("timeout"), before("skipped"));

    signal(&network, "g1", Signal::SIGSTOP);
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let began = clock::now();
        assert_eq!(candidates(&network, &[]), unsteered);
        longest = longest.max(clock::now() - began);
    }
    // Three offers in a row, or one look at the node, find out; the others do not ask.
    assert!(counted(&network, "timeout") <= timeouts + 3.0);
    assert!(counted(&network, "skipped") >= skips + 2.0);
    signal(&network, "g1", Signal::SIGCONT);
    until_candidates(&network, &steered);

    let unreachable = counted(&network, "unreachable");
    network.kill("g1").unwrap();
    for _ in 0..3 {
        assert_eq!(candidates(&network, &[]), unsteered);
    }
    assert!(counted(&network, "unreachable") <= unreachable + 1.0);
    network.start_node("g1").unwrap();
    until_candidates(&network, &steered);
    let mut found = Figures::default();
    found.below("the longest offer", longest, within);
    found
}

#[test]
fn a_pop_that_drains_is_advertised_no_more() {
    let redis = Redis::start().unwrap();
    let mut network = Network::start_with(&shape(), |topology| {
        steered(topology);
        redis.keep_state(topology);
        topology.network.drain_max_s = 60;
    })
    .unwrap();
    until_candidates(&network, &["p1", "vip", "p2"]);
    network.terminate("p1").unwrap();
    until_candidates(&network, &["p2", "vip"]);
    let explained = format!(
        "{}/v1/explain?client=127.0.0.1&region=eu",
        network.admin("g1")
    );
    let explained = http::get(&explained).unwrap();
    let explained: Value = serde_json::from_str(&explained.body).unwrap();
    let p1 = explained["ingresses"].as_array().unwrap();
    let p1 = p1.iter().find(|pop| pop["name"] == "p1").unwrap();
    assert_eq!(p1["lost"]["reason"], "standing", "{p1}");
    network.wait_end("p1").unwrap();
    network.start_node("p1").unwrap();
    until_candidates(&network, &["p1", "vip", "p2"]);
}

/// What a GeoDNS node thinks of regions and PoPs.
fn sites(network: &Network) -> (Value, Value) {
    let mut state = network.state("g1").unwrap();
    (state["regions"].take(), state["pops"].take())
}

#[test]
fn a_dead_state_store_and_reloads_change_nothing() {
    let mut redis = Redis::start().unwrap();
    let mut network = Network::start_with(&shape(), |topology| {
        steered(topology);
        redis.keep_state(topology);
        topology.network.drain_max_s = 60;
    })
    .unwrap();
    network.terminate("p1").unwrap();
    until_candidates(&network, &["p2", "vip"]);
    redis.kill();
    let g1 = |network: &Network, metric: &str, labels: &[(&str, &str)]| {
        network.metrics("g1").unwrap().sum(metric, labels)
    };
    let attempts = |network: &Network| {
        let side = [("side", "watch")];
        g1(network, "firsthop_state_store_failures_total", &side)
    };
    wait::until_true("failures", HEARD_MAX, || attempts(&network) >= 5.0).unwrap();
    let known = sites(&network);
    wait::until_true("more of them", HEARD_MAX, || attempts(&network) >= 9.0).unwrap();
    assert_eq!(sites(&network), known);

    // A reload that is taken. p1 is not asked to: it has come to its end.
    let compiles = "firsthop_geodns_keeper_compiles_total";
    let before = g1(&network, compiles, &[]);
    let topology = network.topology().clone();
    let mut other = topology.clone();
    other.steering.ttl_s += 1;
    network.rewrite_topology(other).unwrap();
    wait::until_true("other tables", HEARD_MAX, || {
        g1(&network, compiles, &[]) > before
    })
    .unwrap();
    assert_eq!(sites(&network), known);

    // One that this node cannot do anything with: there is no key to sign the zone with.
    let mut unfit = topology;
    unfit.dns.as_mut().unwrap().dnssec = true;
    network.rewrite_topology(unfit).unwrap();
    let refused = [("result", "refused")];
    wait::until_true("a refusal", HEARD_MAX, || {
        g1(&network, "firsthop_config_reloads_total", &refused) >= 1.0
    })
    .unwrap();
    assert!(network.log("g1").contains("there is no dnssec.pem"));
    assert_eq!(sites(&network), known);
    until_candidates(&network, &["p2", "vip"]);
    network.expect_error("configuration not reloaded");
}

#[test]
fn the_word_of_trusted_proxies_counts_and_nobody_elses() {
    let mut network = Network::start_with(&shape(), steered).unwrap();
    let (here, there) = (["p1", "vip", "p2"], ["p2", "vip", "p1"]);
    until_candidates(&network, &here);
    let claims = [
        ("x-forwarded-for", "192.0.2.9, 198.51.100.7"),
        ("forwarded", "for=\"198.51.100.7:4711\";proto=https"),
    ];
    let mut asked = 0.0;
    for claim in claims {
        asked += until_told(&network, (b"", &[claim]), here, there);
    }
    let found = |network: &Network, found| {
        let scrape = network.metrics("t1").unwrap();
        scrape.sum("firsthop_proxy_clients_total", &[("found", found)])
    };
    assert!((found(&network, "spoofed") - asked).abs() < f64::EPSILON);
    let mut topology = network.topology().clone();
    topology.network.signaling.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    network.rewrite_topology(topology).unwrap();
    network.reload().unwrap();
    for claim in claims {
        until_told(&network, (b"", &[claim]), there, here);
    }
    let junk = ("x-forwarded-for", "junk");
    for claims in [&[][..], &[junk]] {
        until_told(&network, (b"", claims), here, there);
    }
    assert!(found(&network, "unreadable") >= 1.0);

    // The same with the PROXY protocol: a header that names a client, one of the proxy's own check, none, and one that is wrong.
    let mut topology = network.topology().clone();
    topology.network.signaling.proxy_protocol = true;
    network.rewrite_topology(topology).unwrap();
    network.reload().unwrap();
    let head = |version, family, rest: &[u8]| {
        let len = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [b"\r\n\r\n\0\r\nQUIT\n", &[version, family][..], &len, rest].concat()
    };
    let addresses = [198, 51, 100, 7, 127, 0, 0, 1, 0x12, 0x34, 0x1f, 0x90];
    let proxied = head(0x21, 0x11, &addresses);
    until_told(&network, (&proxied, &[]), there, here);
    assert!(found(&network, "proxy_header") >= 1.0);
    until_told(&network, (&head(0x20, 0, &[]), &[]), here, there);
    for wrong in [
        b"".to_vec(),
        head(0x31, 0x11, &addresses),
        head(0x21, 0x11, &addresses[..4]),
    ] {
        let answer = http::send_behind(&wrong, "GET", &network.whip("t1"), &[], b"");
        assert!(answer.is_err(), "{answer:?}");
    }
    let refused = network.metrics("t1").unwrap();
    let refused = refused.sum("firsthop_transceiver_whip_proxy_headers_refused_total", &[]);
    assert!(refused >= 3.0, "{refused}");
    assert!(!network.log("t1").contains("198.51.100.7"));
}

#[test]
fn what_cannot_work_is_refused_in_one_line() {
    let file = std::env::temp_dir().join(format!("firsthop-{}.mmdb", std::process::id()));
    fs::write(&file, b"no database").unwrap();
    let shape = Shape {
        geo_databases: vec![file.clone()],
        ..shape()
    };
    let mut network = Network::prepare(&shape, steered).unwrap();
    let line = network.refusal("g1", 2).unwrap();
    assert!(line.contains("MaxMind DB"), "{line}");
    fs::remove_file(&file).unwrap();
    let line = network.refusal("g1", 2).unwrap();
    assert!(line.contains("cannot be read"), "{line}");

    let mut network = Network::prepare(&self::shape(), |topology| {
        steered(topology);
        if let Some(dns) = &mut topology.dns {
            dns.dnssec = true;
        }
    })
    .unwrap();
    let without_key = network.credentials("g1").join("dnssec.pem");
    // Whoever makes credentials may have made a key.
    let _absent = fs::remove_file(without_key);
    let line = network.refusal("g1", 2).unwrap();
    assert!(line.contains("dnssec.pem"), "{line}");
    let mut topology = network.topology().clone();
    topology.dns = None;
    network.rewrite_topology(topology).unwrap();
    let line = network.refusal("g1", 2).unwrap();
    assert!(line.contains("geodns"), "{line}");
}
