//! One bad file per kind of error, with the exact line it prints.
//!
//! Every bad file is `BASE` with one edit, so what a case is about is what it shows. Lines of `BASE` are numbered.

#![cfg(test)]

#[path = "errors/anycast.rs"]
mod anycast;
#[path = "errors/shape.rs"]
mod shape;
#[path = "errors/steering.rs"]
mod steering;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use topology::{LINE_BYTES_MAX, LoadErrors, Problem, TEXT_BYTES_MAX, Topology, load};

const BASE: &str = "\
version: 1
network:
  name: test
  vips: ['192.0.2.100:3478']
regions:
  - name: eu
    id: 1
    signaling_url: https://eu.example/whip
    core_relays:
      - name: eu-r1
        address: 198.51.100.1
      - name: eu-r2
        address: 198.51.100.2
    transceivers:
      cidr: 203.0.113.0/25
      port: 5000
      nodes:
        - name: eu-t1
          address: 203.0.113.1
          whip: 203.0.113.1:8080
          peer: 203.0.113.1:8443
        - name: eu-t2
          address: 203.0.113.2
          whip: 203.0.113.2:8080
          peer: 203.0.113.2:8443
  - name: us
    id: 2
    signaling_url: https://us.example/whip
    core_relays:
      - name: us-r1
        address: 198.51.100.3
    transceivers:
      cidr: 203.0.113.128/25
      port: 5000
      nodes:
        - name: us-t1
          address: 203.0.113.129
          whip: 203.0.113.129:8080
          peer: 203.0.113.129:8443
pops:
  - name: ams
    id: 1
    ingress: ['192.0.2.1:3478']
    regions: [eu, us]
    location:
      city: Amsterdam
      country: NL
      latitude: 52.37
      longitude: 4.9
  - name: nyc
    id: 2
    ingress:
      - 192.0.2.2:3478
      - '[2001:db8::2]:3478'
steering:
  rules:
    - name: carrier
      asns: [64500]
      pops: [nyc]
dns:
  zone: rtc.example
  hostmaster: dns@rtc.example
  nameservers:
    - name: ns1.rtc.example
      addresses: [192.0.2.53]
geodns:
  - name: ns1
    dns: ['192.0.2.53:53']
    steer: 198.51.100.53:8443
";

/// Text to replace (its first occurrence), replacement, the printed error without the file name.
type Case = (&'static str, &'static str, &'static str);

const MEANING: &[Case] = &[
    (
        "pops:",
        "failover_groups:\n  - { name: a, redis: ['redis://r:1', 'rediss://r:2'], ttl_s: 59, lookup_max_ms: 4 }\n  - { name: a, redis: [] }\npops:",
        "41: failover_groups[0].redis: redis:// and rediss:// in one group\n\
         bad.yaml:41: failover_groups[0].ttl_s: 59 is outside 60..=3600\n\
         bad.yaml:41: failover_groups[0].lookup_max_ms: 4 is outside 5..=1000\n\
         bad.yaml:42: failover_groups[1].redis: 0 entries, 1..=16 are allowed\n\
         bad.yaml:42: failover_groups[1].name: name `a` is taken by failover_groups[0].name",
    ),
    (
        "    regions: [eu, us]\n",
        "    failover_group: europe\n",
        "44: pops[0].failover_group: no failover group is named `europe`",
    ),
    // ranges
    (
        "version: 1",
        "version: 2",
        "1: version: version 2 is not supported, this program reads version 1",
    ),
    (
        "name: test\n",
        "name: test\n  hint_age_max_min: 9\n",
        "4: network.hint_age_max_min: 9 is outside 10..=32000",
    ),
    (
        "name: test\n",
        "name: test\n  drain_max_s: 3601\n",
        "4: network.drain_max_s: 3601 is outside 0..=3600",
    ),
    (
        "name: test\n",
        "name: test\n  worker: { busy_poll_us: 1001 }\n",
        "4: network.worker.busy_poll_us: 1001 is outside 0..=1000",
    ),
    (
        "name: test\n",
        "name: test\n  worker: { tick_us: 1001 }\n",
        "4: network.worker.tick_us: 1001 is outside 0..=1000",
    ),
    (
        "name: test\n",
        "name: test\n  worker: { tick_above_pps: 0 }\n",
        "4: network.worker.tick_above_pps: 0 is outside 1..=10000000",
    ),
    (
        "name: test\n",
        "name: test\n  link: { mtu_bytes: 1199 }\n",
        "4: network.link.mtu_bytes: 1199 is outside 1200..=8900",
    ),
    (
        "name: test\n",
        "name: test\n  link: { rate_mbps: 0 }\n",
        "4: network.link.rate_mbps: 0 is outside 1..=400000",
    ),
    (
        "name: test\n",
        "name: test\n  link: { rtt_ms: 1001 }\n",
        "4: network.link.rtt_ms: 1001 is outside 1..=1000",
    ),
    (
        "name: test\n",
        "name: test\n  link: { heartbeat_ms: 19 }\n",
        "4: network.link.heartbeat_ms: 19 is outside 20..=5000",
    ),
    (
        "name: test\n",
        "name: test\n  link:\n    heartbeat_ms: 200\n",
        "4: network.link.down_after_ms: 500 is less than three heartbeats (600)",
    ),
    (
        "name: test\n",
        "name: test\n  link: { heartbeat_ms: 20, suspect_after_ms: 39 }\n",
        "4: network.link.suspect_after_ms: 39 is outside 40..=60000\nbad.yaml:4: network.link.suspect_after_ms: 39 is less than two heartbeats (40)",
    ),
    (
        "name: test\n",
        "name: test\n  link: { suspect_after_ms: 199 }\n",
        "4: network.link.suspect_after_ms: 199 is less than two heartbeats (200)",
    ),
    (
        "name: test\n",
        "name: test\n  link: { suspect_after_ms: 501 }\n",
        "4: network.link.suspect_after_ms: 501 is more than down_after_ms (500)",
    ),
    (
        "name: test\n",
        "name: test\n  signaling: { ingress_max: 0 }\n",
        "4: network.signaling.ingress_max: 0 is outside 1..=16",
    ),
    (
        "name: test\n",
        "name: test\n  signaling: { body_max_bytes: 1 }\n",
        "4: network.signaling.body_max_bytes: 1 is outside 1024..=1048576",
    ),
    (
        "    id: 1\n",
        "    id: 0\n",
        "7: regions[0].id: 0 is outside 1..=65535",
    ),
    (
        "  - name: nyc\n    id: 2",
        "  - name: nyc\n    id: 0",
        "51: pops[1].id: 0 is outside 1..=65535",
    ),
    (
        "198.51.100.1\n",
        "198.51.100.1\n        workers: 65\n",
        "12: regions[0].core_relays[0].workers: 65 is outside 1..=64",
    ),
    (
        "regions: [eu, us]",
        "workers: 0",
        "44: pops[0].workers: 0 is outside 1..=64",
    ),
    (
        "regions: [eu, us]",
        "flows_max: 0",
        "44: pops[0].flows_max: 0 is outside 1..=16777216",
    ),
    (
        "latitude: 52.37",
        "latitude: 90.5",
        "48: pops[0].location.latitude: 90.5 is outside -90..=90 degrees",
    ),
    (
        "longitude: 4.9",
        "longitude: .nan",
        "49: pops[0].location.longitude: NaN is outside -180..=180 degrees",
    ),
    (
        "country: NL",
        "country: nl",
        "47: pops[0].location.country: `nl` is not an ISO 3166-1 alpha-2 country code",
    ),
    (
        "https://us.example/whip",
        "us.example/whip",
        "28: regions[1].signaling_url: not an http:// or https:// URL with a host",
    ),
    (
        "https://us.example/whip",
        "https:///whip",
        "28: regions[1].signaling_url: not an http:// or https:// URL with a host",
    ),
    (
        "ingress: ['192.0.2.1:3478']",
        "ingress: []",
        "43: pops[0].ingress: 0 entries, 1..=16 are allowed",
    ),
    // names
    (
        "name: eu-r1",
        "name: EU-R1",
        "10: regions[0].core_relays[0].name: `EU-R1` is not a name: lower-case letters, digits, `-` and `.`, at most 63 between dots",
    ),
    (
        "name: ams",
        "name: us-r1",
        "41: pops[0].name: name `us-r1` is taken by regions[1].core_relays[0].name",
    ),
    (
        "name: eu-t2",
        "name: eu-r1",
        "22: regions[0].transceivers.nodes[1].name: name `eu-r1` is taken by regions[0].core_relays[0].name",
    ),
    (
        "    id: 2\n    signaling",
        "    id: 1\n    signaling",
        "27: regions[1].id: id 1 is taken by regions[0].id",
    ),
    (
        "  - name: nyc\n    id: 2",
        "  - name: nyc\n    id: 1",
        "51: pops[1].id: id 1 is taken by pops[0].id",
    ),
    (
        "[eu, us]",
        "[eu, asia]",
        "44: pops[0].regions[1]: no region is named `asia`",
    ),
    (
        "[eu, us]",
        "[eu, eu]",
        "44: pops[0].regions[1]: region `eu` is listed twice",
    ),
    (
        "[eu, us]",
        "[]",
        "44: pops[0].regions: 0 entries, 1..=2 are allowed",
    ),
    // regions without what makes them one
    (
        "      - name: us-r1\n        address: 198.51.100.3\n",
        "      []\n",
        "29: regions[1].core_relays: region `us` has no core relay",
    ),
    (
        "        - name: us-t1\n          address: 203.0.113.129\n          whip: 203.0.113.129:8080\n          peer: 203.0.113.129:8443\n",
        "        []\n",
        "35: regions[1].transceivers.nodes: region `us` has no transceiver",
    ),
    // addresses
    (
        "203.0.113.0/25",
        "203.0.113.5/25",
        "15: regions[0].transceivers.cidr: 203.0.113.5/25 has bits set behind its prefix, write 203.0.113.0/25",
    ),
    (
        "203.0.113.0/25",
        "203.0.113.0/24",
        "33: regions[1].transceivers.cidr: 203.0.113.128/25 overlaps 203.0.113.0/24 of region `eu`",
    ),
    (
        "address: 203.0.113.2\n",
        "address: 203.0.114.2\n",
        "23: regions[0].transceivers.nodes[1].address: 203.0.114.2 lies outside the region's transceiver CIDR 203.0.113.0/25",
    ),
    (
        "address: 203.0.113.2\n",
        "address: 203.0.113.0\n",
        "23: regions[0].transceivers.nodes[1].address: 203.0.113.0 is the network address of 203.0.113.0/25, which no transceiver can have",
    ),
    (
        "address: 203.0.113.2\n",
        "address: 203.0.113.127\n",
        "23: regions[0].transceivers.nodes[1].address: 203.0.113.127 is the broadcast address of 203.0.113.0/25, which no transceiver can have",
    ),
    (
        "address: 203.0.113.2\n",
        "address: 203.0.113.1\n",
        "23: regions[0].transceivers.nodes[1].address: address 203.0.113.1 is taken by regions[0].transceivers.nodes[0].address",
    ),
    (
        "192.0.2.2:3478",
        "203.0.113.9:3478",
        "53: pops[1].ingress[0]: 203.0.113.9 lies in the transceiver CIDR 203.0.113.0/25 of region `eu`",
    ),
    (
        "192.0.2.100:3478",
        "203.0.113.9:3478",
        "4: network.vips[0]: 203.0.113.9 lies in the transceiver CIDR 203.0.113.0/25 of region `eu`",
    ),
    (
        "192.0.2.100:3478",
        "192.0.2.1:3479",
        "4: network.vips[0]: VIP 192.0.2.1 is an address of its own in pops[0].ingress[0]",
    ),
    (
        "192.0.2.100:3478",
        "198.51.100.3:3478",
        "4: network.vips[0]: VIP 198.51.100.3 is an address of its own in regions[1].core_relays[0].address",
    ),
    (
        "'192.0.2.100:3478'",
        "'192.0.2.100:3478', '192.0.2.100:3478'",
        "4: network.vips[1]: 192.0.2.100:3478 is taken by network.vips[0]",
    ),
    (
        "regions: [eu, us]",
        "backbone: 2001:db8::1\n    regions: [us]",
        "44: pops[0].backbone: 2001:db8::1 and 198.51.100.3 (regions[1].core_relays[0].address) are of different address families",
    ),
    (
        "198.51.100.1\n",
        "0.0.0.0\n",
        "11: regions[0].core_relays[0].address: 0.0.0.0 is unspecified, not an address a peer can send to",
    ),
    (
        "192.0.2.2:3478",
        "224.0.0.1:3478",
        "53: pops[1].ingress[0]: 224.0.0.1 is multicast, not an address a peer can send to",
    ),
    (
        "192.0.2.2:3478",
        "255.255.255.255:3478",
        "53: pops[1].ingress[0]: 255.255.255.255 is broadcast, not an address a peer can send to",
    ),
    (
        "192.0.2.2:3478",
        "'[::ffff:192.0.2.2]:3478'",
        "53: pops[1].ingress[0]: ::ffff:192.0.2.2 is IPv4-mapped (write it as IPv4), not an address a peer can send to",
    ),
    (
        "[2001:db8::2]:3478",
        "[fe80::2]:3478",
        "54: pops[1].ingress[1]: fe80::2 is link-local, not an address a peer can send to",
    ),
    // sockets
    (
        "192.0.2.2:3478",
        "192.0.2.1:3478",
        "53: pops[1].ingress[0]: 192.0.2.1:3478 is taken by pops[0].ingress[0]",
    ),
    (
        "ingress: ['192.0.2.1:3478']",
        "ingress: ['192.0.2.1:3478', '192.0.2.1:3478']",
        "43: pops[0].ingress[1]: 192.0.2.1:3478 is taken by pops[0].ingress[0]",
    ),
    (
        "198.51.100.1\n",
        "198.51.100.1\n        link_port: 7541\n        workers: 3\n",
        "10: regions[0].core_relays[0].record_port: 198.51.100.1:7543 is taken by regions[0].core_relays[0].link_port",
    ),
    (
        "198.51.100.2\n",
        "198.51.100.1\n",
        "12: regions[0].core_relays[1].link_port: 198.51.100.1:7443 is taken by regions[0].core_relays[0].link_port\nbad.yaml:12: regions[0].core_relays[1].record_port: 198.51.100.1:7543 is taken by regions[0].core_relays[0].record_port",
    ),
    (
        "198.51.100.1\n",
        "198.51.100.1\n        record_port: 65535\n        workers: 2\n",
        "12: regions[0].core_relays[0].record_port: port 65535 and 2 workers pass port 65535",
    ),
    (
        "198.51.100.1\n",
        "198.51.100.1\n        link_port: 0\n",
        "12: regions[0].core_relays[0].link_port: port 0 cannot be reached",
    ),
    (
        "port: 5000",
        "port: 0",
        "16: regions[0].transceivers.port: port 0 cannot be reached",
    ),
    (
        "'192.0.2.1:3478'",
        "'192.0.2.1:0'",
        "43: pops[0].ingress[0]: port 0 cannot be reached",
    ),
    (
        "peer: 203.0.113.2:8443",
        "peer: 203.0.113.1:8443",
        "25: regions[0].transceivers.nodes[1].peer: 203.0.113.1:8443 is taken by regions[0].transceivers.nodes[0].peer",
    ),
    (
        "peer: 203.0.113.2:8443",
        "peer: 0.0.0.0:8443",
        "25: regions[0].transceivers.nodes[1].peer: 0.0.0.0 is unspecified, not an address a peer can send to",
    ),
    (
        "whip: 203.0.113.2:8080",
        "whip: 127.0.0.1:9100",
        "22: regions[0].transceivers.nodes[1].admin: 127.0.0.1:9100 is taken by regions[0].transceivers.nodes[1].whip",
    ),
    (
        "regions: [eu, us]",
        "admin: 192.0.2.1:9100",
        "44: pops[0].admin: admin address 192.0.2.1:9100 is not loopback",
    ),
    (
        "198.51.100.1\n",
        "198.51.100.1\n        admin: 0.0.0.0:9100\n",
        "12: regions[0].core_relays[0].admin: admin address 0.0.0.0:9100 is not loopback",
    ),
];

/// Cases that take more than an edit.
fn generated() -> Vec<(String, String)> {
    let large = format!("{BASE}{}", "#\n".repeat(TEXT_BYTES_MAX / 2));
    let found = large.len();
    let no_region = "version: 1\nnetwork: { name: test }\nregions: []\npops:\n- { name: a, id: 1, ingress: ['192.0.2.1:1'] }\n";
    let no_pop = BASE
        .split("pops:")
        .next()
        .map(|head| format!("{head}pops: []\n"));
    let six = BASE
        .replace("203.0.113.0/25", "2001:db8::/64")
        .replace("address: 203.0.113.1\n", "address: 2001:db8::1:0:0:1\n")
        .replace("address: 203.0.113.2\n", "address: 2001:db8::2\n")
        .replace("[2001:db8::2]", "[2001:db8:1::2]")
        .replace("    core_relays:\n      - name: eu-r1\n        address: 198.51.100.1\n      - name: eu-r2\n        address: 198.51.100.2\n", "    core_relays:\n      - name: eu-r1\n        address: 198.51.100.1\n");
    let mut many = BASE.split("steering:").next().unwrap().to_owned();
    for i in 0..200 {
        writeln!(
            many,
            "  - {{ name: p{i}, id: 0, ingress: ['192.0.3.{i}:1'] }}"
        )
        .unwrap();
    }
    let seventeen = BASE.replace(
        "['192.0.2.1:3478']",
        &format!(
            "{:?}",
            (1..=17)
                .map(|i| format!("192.0.2.1:{i}"))
                .collect::<Vec<_>>()
        ),
    );
    let long = format!("# {}", "x".repeat(LINE_BYTES_MAX));
    let deep = format!("version: {}", "[\n".repeat(100));
    vec![
        (format!("{BASE}{long}"), "70: topology: line of 4098 bytes, at most 4096 are read".to_owned()),
        (deep, "65: topology: more than 64 brackets are open here".to_owned()),
        (large, format!("1: topology: {found} bytes, at most {TEXT_BYTES_MAX} are read")),
        (no_region.to_owned(), "3: regions: at least one region is needed".to_owned()),
        (no_pop.unwrap(), "40: pops: at least one PoP is needed".to_owned()),
        (six, "11: regions[0].core_relays[0].address: 198.51.100.1 and 2001:db8:: (regions[0].transceivers.cidr) are of different address families\n\
               bad.yaml:17: regions[0].transceivers.nodes[0].address: 2001:db8::1:0:0:1 is more than 2^32 addresses into 2001:db8::/64; a hint cannot name it".to_owned()),
        (seventeen, "43: pops[0].ingress: 17 entries, 1..=16 are allowed".to_owned()),
        (
            BASE.replacen("zone: rtc.example", &format!("zone: rtc.example\n  txt: ['{}']", "x".repeat(256)), 1),
            "62: dns.txt[0]: 256 bytes, at most 255 fit a DNS character string".to_owned(),
        ),
        (many, "1: topology: more errors follow; the first 100 are shown".to_owned()),
    ]
}

fn bad(text: &str) -> LoadErrors {
    load(text, "bad.yaml").expect_err("a bad file was accepted")
}

fn edit((from, to, _): &Case) -> String {
    assert!(BASE.contains(from), "BASE does not contain {from:?}");
    BASE.replacen(from, to, 1)
}

#[test]
fn the_base_is_good() {
    for base in [BASE, &anycast::base()] {
        load(base, "base.yaml")
            .map_err(|errors| errors.to_string())
            .unwrap();
    }
}

/// Which group a PoP is in decides whether the address of another is an error.
#[test]
fn an_ingress_moves_within_a_failover_group_alone() {
    for (first_group, second_group, good) in [("a", "a", true), ("a", "b", false)] {
        let groups = "failover_groups:\n  - { name: a, redis: ['redis://r:1'] }\n  - { name: b, redis: ['redis://r:2'] }\npops:";
        let text = BASE
            .replacen("pops:", groups, 1)
            .replace("192.0.2.2:3478", "192.0.2.1:3478");
        let text = text.replace(
            "    id: 1\n    ingress",
            &format!("    id: 1\n    failover_group: {first_group}\n    ingress"),
        );
        let text = text.replace(
            "    id: 2\n    ingress",
            &format!("    id: 2\n    failover_group: {second_group}\n    ingress"),
        );
        assert!(text.matches("failover_group: ").count() == 2, "{text}");
        assert_eq!(
            load(&text, "base.yaml").is_ok(),
            good,
            "{first_group} {second_group}"
        );
        let twice = text.replace("[2001:db8::2]:3478", "192.0.2.1:3478");
        assert!(load(&twice, "base.yaml").is_err(), "one PoP has it twice");
    }
}

#[test]
fn every_error_prints_its_line_and_field() {
    let mut wrong = String::new();
    let fixed = shape::CASES.iter().chain(MEANING).chain(steering::CASES);
    let mut cases: Vec<_> = fixed.map(|case| (edit(case), case.2.to_owned())).collect();
    cases.extend(generated());
    cases.extend(anycast::cases());
    for (text, expected) in cases {
        let printed = bad(&text).to_string();
        let expected = format!("bad.yaml:{expected}");
        let first = printed
            .lines()
            .take(expected.lines().count())
            .collect::<Vec<_>>()
            .join("\n");
        let only_first = expected.contains("more errors follow");
        if (if only_first { &first } else { &printed }) != &expected {
            writeln!(wrong, "expected {expected}\n     got {printed}\n").unwrap();
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn every_kind_of_error_has_a_case() {
    let fixed = shape::CASES
        .iter()
        .chain(MEANING)
        .chain(steering::CASES)
        .map(edit);
    let generated = generated().into_iter().chain(anycast::cases());
    let texts = fixed.chain(generated.map(|(text, _)| text));
    let reached: BTreeSet<_> = texts
        .flat_map(|text| bad(&text).as_slice().to_vec())
        .map(|error| kind(&error.problem))
        .collect();
    let declared = include_str!("../src/error.rs").matches("#[error(").count();
    assert_eq!(reached.len(), declared, "reached: {reached:?}");
}

fn kind(problem: &Problem) -> String {
    let debug = format!("{problem:?}");
    debug
        .split(|c: char| !c.is_alphanumeric())
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn all_meaning_errors_are_listed_in_the_order_of_their_lines() {
    let text = MEANING
        .iter()
        .filter(|(from, ..)| {
            ["name: ams", "country: NL", "version: 1", "port: 5000"].contains(from)
        })
        .fold(BASE.to_owned(), |text, (from, to, _)| {
            text.replacen(from, to, 1)
        });
    let errors = bad(&text);
    let places: Vec<_> = errors
        .as_slice()
        .iter()
        .map(|e| (e.line, e.field.as_str()))
        .collect();
    assert_eq!(
        places,
        [
            (1, "version"),
            (16, "regions[0].transceivers.port"),
            (41, "pops[0].name"),
            (47, "pops[0].location.country"),
        ]
    );
}

#[test]
fn a_quoted_text_cannot_break_the_line_of_the_error() {
    let long = "x".repeat(10_000);
    for key in ["a\\nb", "a\\u001b[31mb", long.as_str()] {
        let printed =
            bad(&BASE.replacen("version: 1", &format!("version: 1\n\"{key}\": 2"), 1)).to_string();
        assert!(!printed.contains(char::is_control), "{printed}");
        assert!(printed.chars().count() < 600);
    }
}

#[test]
fn bombs_are_refused_at_once() {
    let nested = format!("version: {}", "[".repeat(100_000));
    let nested_lines = format!("version: {}", "[\n ".repeat(100_000));
    let deep = format!("version: {}", "[".repeat(1_000));
    let wide = format!("a: &a [{}]\nversion: [*a, *a]\n", "1,".repeat(100_000));
    let keys = format!("? {}1\n", "? ".repeat(100_000));
    for text in [nested, nested_lines, deep, wide, keys] {
        assert_eq!(bad(&text).as_slice().len(), 1);
    }
}

#[test]
fn defaults_are_those_of_the_model() {
    let topology: Topology = load(BASE, "base.yaml").unwrap();
    assert_eq!(topology.network.hint_age_max_min, 1440);
    assert_eq!(topology.network.link.mtu_bytes, 1452);
    assert_eq!(topology.regions[0].core_relays[0].link_port, 7443);
    assert!(topology.pops[0].backbone.is_unspecified());
}
