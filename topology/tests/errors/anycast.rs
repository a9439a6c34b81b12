//! Anycast: what is announced, and to whom.

use super::{BASE, Case};

/// What the cases edit: `BASE` with an announcement and a session.
pub(super) fn base() -> String {
    BASE.replacen(
        "  vips: ['192.0.2.100:3478']\n",
        "  vips: ['192.0.2.100:3478']\n  anycast:\n    asn: 64500\n    prefixes: [192.0.2.96/28]\n    cover: [192.0.2.64/26]\n",
        1,
    )
    .replacen(
        "    regions: [eu, us]\n",
        "    regions: [eu, us]\n    bgp:\n      - name: transit1\n        asn: 65001\n        address: 10.254.0.0\n        local: 10.254.0.1\n",
        1,
    )
}

/// Bad files and what they print.
pub(super) fn cases() -> impl Iterator<Item = (String, String)> {
    CASES.iter().map(|(from, to, expected)| {
        let base = base();
        assert!(base.contains(from), "{from} is not in the base");
        (base.replacen(from, to, 1), (*expected).to_owned())
    })
}

/// Edits that put an address of the file into the announced prefix, and the field that has it then.
const INSIDE: &[(&str, &str, &str)] = &[
    (
        "https://eu.example/whip",
        "https://192.0.2.97/whip",
        "regions[0].signaling_url",
    ),
    (
        "    signaling_url: https://eu",
        "    signaling_addresses: [192.0.2.97]\n    signaling_url: https://eu",
        "regions[0].signaling_addresses[0]",
    ),
    (
        "address: 198.51.100.2\n",
        "address: 192.0.2.97\n",
        "regions[0].core_relays[1].address",
    ),
    (
        "whip: 203.0.113.1:",
        "whip: 192.0.2.97:",
        "regions[0].transceivers.nodes[0].whip",
    ),
    (
        "peer: 203.0.113.1:",
        "peer: 192.0.2.97:",
        "regions[0].transceivers.nodes[0].peer",
    ),
    (
        "address: 203.0.113.129\n",
        "address: 203.0.113.129\n          admin: 192.0.2.97:9100\n",
        "regions[1].transceivers.nodes[0].admin",
    ),
    (
        "address: 198.51.100.3\n",
        "address: 198.51.100.3\n        admin: '[::ffff:192.0.2.97]:9100'\n",
        "regions[1].core_relays[0].admin",
    ),
    ("192.0.2.1:3478", "192.0.2.97:3478", "pops[0].ingress[0]"),
    (
        "[eu, us]",
        "[eu, us]\n    backbone: 192.0.2.97",
        "pops[0].backbone",
    ),
    (
        "[eu, us]",
        "[eu, us]\n    admin: 192.0.2.97:9100",
        "pops[0].admin",
    ),
    (
        "address: 10.254.0.0",
        "address: 192.0.2.97",
        "pops[0].bgp[0].address",
    ),
    (
        "local: 10.254.0.1",
        "local: 192.0.2.97",
        "pops[0].bgp[0].local",
    ),
    (
        "pops:",
        "failover_groups: [{ name: a, redis: ['redis://192.0.2.97:1'] }]\npops:",
        "failover_groups[0].redis[0]",
    ),
    (
        "name: test\n",
        "name: test\n  state: { redis: ['redis://a:1', 'redis://192.0.2.97:1'] }\n",
        "network.state.redis[1]",
    ),
    (
        "addresses: [192.0.2.53]",
        "addresses: [192.0.2.97]",
        "dns.nameservers[0].addresses[0]",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  apex: [192.0.2.97]",
        "dns.apex[0]",
    ),
    (
        "dns: ['192.0.2.53:53']",
        "dns: ['192.0.2.97:53']",
        "geodns[0].dns[0]",
    ),
    (
        "steer: 198",
        "dot: ['192.0.2.97:853']\n    steer: 198",
        "geodns[0].dot[0]",
    ),
    (
        "steer: 198",
        "doh: ['192.0.2.97:443']\n    steer: 198",
        "geodns[0].doh[0]",
    ),
    ("198.51.100.53:8443", "192.0.2.97:8443", "geodns[0].steer"),
    (
        "198.51.100.53:8443",
        "198.51.100.53:8443\n    admin: 192.0.2.97:9100",
        "geodns[0].admin",
    ),
];

#[test]
fn no_address_of_the_file_is_announced_but_the_vips() {
    for (from, to, field) in INSIDE {
        let text = base().replacen(from, to, 1);
        assert_ne!(text, base(), "{from}");
        let errors = topology::load(&text, "bad.yaml").unwrap_err().to_string();
        let said = format!("192.0.2.97 of {field} lies in 192.0.2.96/28");
        assert!(errors.contains(&said), "{said} in {errors}");
    }
}

#[test]
fn a_service_may_be_at_a_vip_and_a_node_may_not() {
    let at_vip = |text: &str| topology::load(text, "vip.yaml").map_err(|errors| errors.to_string());
    let base = base();
    let named = base.replace("192.0.2.53", "192.0.2.100");
    assert!(at_vip(&named).is_ok(), "{:?}", at_vip(&named).err());
    let steered = base.replace("198.51.100.53:8443", "192.0.2.100:8443");
    let clash = "VIP 192.0.2.100 is an address of its own in geodns[0].steer";
    assert!(at_vip(&steered).unwrap_err().contains(clash));
}

const CASES: &[Case] = &[
    // what is announced
    (
        "asn: 64500",
        "asn: 0\n    min_announced: 0\n    up_after_s: 3601\n    up_after_max_s: 60\n    stalled_after_ms: 49\n    linger_s: 3601\n    table: 254\n    hold_s: 2\n    bfd: { interval_ms: 9, multiplier: 1 }\n    drain_prepend: 11",
        "6: network.anycast.asn: AS 0 is reserved\n\
         bad.yaml:7: network.anycast.min_announced: 0 is outside 1..=1000\n\
         bad.yaml:8: network.anycast.up_after_s: 3601 is outside 0..=3600\n\
         bad.yaml:9: network.anycast.up_after_max_s: 60 is less than up_after_s (3601)\n\
         bad.yaml:10: network.anycast.stalled_after_ms: 49 is outside 50..=60000\n\
         bad.yaml:11: network.anycast.linger_s: 3601 is outside 0..=3600\n\
         bad.yaml:12: network.anycast.table: table 254 belongs to the kernel\n\
         bad.yaml:13: network.anycast.hold_s: 2 is outside 3..=240\n\
         bad.yaml:14: network.anycast.bfd.interval_ms: 9 is outside 10..=5000\n\
         bad.yaml:14: network.anycast.bfd.multiplier: 1 is outside 2..=50\n\
         bad.yaml:15: network.anycast.drain_prepend: 11 is outside 0..=10",
    ),
    (
        "asn: 64500",
        "asn: 23456\n    up_after_max_s: 86401\n    table: 0",
        "6: network.anycast.asn: AS 23456 is reserved\n\
         bad.yaml:7: network.anycast.up_after_max_s: 86401 is outside 0..=86400\n\
         bad.yaml:8: network.anycast.table: table 0 belongs to the kernel",
    ),
    (
        "[192.0.2.96/28]",
        "[]",
        "4: network.vips[0]: VIP 192.0.2.100 lies in none of network.anycast.prefixes\n\
         bad.yaml:7: network.anycast.prefixes: 0 entries, 1..=16 are allowed\n\
         bad.yaml:8: network.anycast.cover[0]: 192.0.2.64/26 is not a shorter prefix around one of network.anycast.prefixes\n\
         bad.yaml:50: pops[0].bgp[0]: a session over IPv4, and none of network.anycast.prefixes is IPv4",
    ),
    (
        "vips: ['192.0.2.100:3478']",
        "vips: ['192.0.2.112:3478', '192.0.2.100:3478', '[2001:db8:1::1]:3478']",
        "4: network.vips[0]: VIP 192.0.2.112 lies in none of network.anycast.prefixes\n\
         bad.yaml:4: network.vips[2]: VIP 2001:db8:1::1 lies in none of network.anycast.prefixes",
    ),
    (
        "cover: [192.0.2.64/26]",
        "cover: [0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0, 0.0.0.0/0]",
        "8: network.anycast.cover: 17 entries, 0..=16 are allowed",
    ),
    (
        "[192.0.2.96/28]",
        "[192.0.2.96/28, 192.0.2.112/28]",
        "7: network.anycast.prefixes[1]: no VIP lies in 192.0.2.112/28",
    ),
    (
        "[192.0.2.96/28]",
        "[192.0.2.96/28, 192.0.2.100/32]",
        "7: network.anycast.prefixes[1]: 192.0.2.100/32 overlaps 192.0.2.96/28 of network.anycast.prefixes[0]",
    ),
    (
        "[192.0.2.96/28]",
        "[192.0.2.100/28]",
        "7: network.anycast.prefixes[0]: 192.0.2.100/28 has bits set behind its prefix, write 192.0.2.96/28",
    ),
    (
        "cover: [192.0.2.64/26]",
        "cover: [192.0.2.64/26, 192.0.2.96/28, 192.0.2.64/26, 192.0.0.0/7, '2000::/15']",
        "8: network.anycast.cover[1]: 192.0.2.96/28 is not a shorter prefix around one of network.anycast.prefixes\n\
         bad.yaml:8: network.anycast.cover[2]: 192.0.2.64/26 overlaps 192.0.2.64/26 of network.anycast.cover[0]\n\
         bad.yaml:8: network.anycast.cover[3]: 192.0.0.0/7 is shorter than /8\n\
         bad.yaml:8: network.anycast.cover[4]: 2000::/15 is shorter than /16\n\
         bad.yaml:8: network.anycast.cover[4]: 2000::/15 is not a shorter prefix around one of network.anycast.prefixes",
    ),
    (
        "asn: 65001",
        "asn: 65001\n        med: 4294966296",
        "52: pops[0].bgp[0].med: 4294966296 is outside 0..=4294966295",
    ),
    (
        "[192.0.2.96/28]",
        "[192.0.2.0/25]",
        "7: network.anycast.prefixes[0]: 192.0.2.1 of pops[0].ingress[0] lies in 192.0.2.0/25: its packets would go to whichever PoP is nearest\n\
         bad.yaml:7: network.anycast.prefixes[0]: 192.0.2.2 of pops[1].ingress[0] lies in 192.0.2.0/25: its packets would go to whichever PoP is nearest\n\
         bad.yaml:7: network.anycast.prefixes[0]: 192.0.2.53 of geodns[0].dns[0] lies in 192.0.2.0/25: its packets would go to whichever PoP is nearest\n\
         bad.yaml:7: network.anycast.prefixes[0]: 192.0.2.53 of dns.nameservers[0].addresses[0] lies in 192.0.2.0/25: its packets would go to whichever PoP is nearest\n\
         bad.yaml:8: network.anycast.cover[0]: 192.0.2.64/26 is not a shorter prefix around one of network.anycast.prefixes",
    ),
    (
        "local: 10.254.0.1",
        "local: 192.0.2.100",
        "4: network.vips[0]: VIP 192.0.2.100 is an address of its own in pops[0].bgp[0].local\n\
         bad.yaml:7: network.anycast.prefixes[0]: 192.0.2.100 of pops[0].bgp[0].local lies in 192.0.2.96/28: its packets would go to whichever PoP is nearest",
    ),
    (
        "cidr: 203.0.113.0/25",
        "cidr: 192.0.2.104/29",
        "7: network.anycast.prefixes[0]: 192.0.2.96/28 overlaps 192.0.2.104/29 of region `eu`\n\
         bad.yaml:23: regions[0].transceivers.nodes[0].address: 203.0.113.1 lies outside the region's transceiver CIDR 192.0.2.104/29\n\
         bad.yaml:27: regions[0].transceivers.nodes[1].address: 203.0.113.2 lies outside the region's transceiver CIDR 192.0.2.104/29",
    ),
    (
        "  anycast:\n    asn: 64500\n    prefixes: [192.0.2.96/28]\n    cover: [192.0.2.64/26]\n",
        "",
        "45: pops[0].bgp: sessions announce what `network.anycast` says, which is missing",
    ),
    (
        "ingress: ['192.0.2.1:3478']",
        "ingress: ['192.0.2.1:1', '192.0.2.1:2', '192.0.2.1:3', '192.0.2.1:4', '192.0.2.1:5', '192.0.2.1:6', '192.0.2.1:7', '192.0.2.1:8', '192.0.2.1:9', '192.0.2.1:10', '192.0.2.1:11', '192.0.2.1:12', '192.0.2.1:13', '192.0.2.1:14', '192.0.2.1:15', '192.0.2.1:16']",
        "47: pops[0].ingress: 16 addresses and 1 of network.vips: a PoP that announces serves 16 together at most",
    ),
    // sessions
    (
        "asn: 65001",
        "asn: 64500",
        "51: pops[0].bgp[0].asn: AS 64500 is the network's own; sessions are with other networks",
    ),
    (
        "asn: 65001",
        "asn: 65535\n        multihop: 1\n        max_prefixes: 0\n        prepend: 11\n        communities: ['1:2', '65535:0']\n        password_file: bird.secret",
        "51: pops[0].bgp[0].asn: AS 65535 is reserved\n\
         bad.yaml:52: pops[0].bgp[0].multihop: 1 is outside 2..=255\n\
         bad.yaml:53: pops[0].bgp[0].max_prefixes: 0 is outside 1..=100000\n\
         bad.yaml:54: pops[0].bgp[0].prepend: 11 is outside 0..=10\n\
         bad.yaml:55: pops[0].bgp[0].communities[1]: 65535:0 says that a PoP drains, and is added when it does\n\
         bad.yaml:56: pops[0].bgp[0].password_file: not an absolute path of letters, digits and `/._-`",
    ),
    (
        "asn: 65001",
        "asn: 65001\n        password_file: /etc/bird/*.conf",
        "52: pops[0].bgp[0].password_file: not an absolute path of letters, digits and `/._-`",
    ),
    (
        "asn: 65001",
        "asn: 65001\n        drain_communities: ['65001:80', '1:2:3', '65536:1']",
        "52: pops[0].bgp[0].drain_communities: expected a community, A:B with numbers up to 65535, or a large one, A:B:C with numbers up to 4294967295",
    ),
    (
        "name: transit1",
        "name: transit.1",
        "50: pops[0].bgp[0].name: `transit.1` is not a session name: lower-case letters, digits and `-`, at most 32",
    ),
    (
        "        local: 10.254.0.1\n",
        "        local: 10.254.0.0\n      - { name: transit1, asn: 1, address: 10.254.0.0, local: 10.254.0.3 }\n      - { name: b, asn: 1, address: '2001:db8::1', local: 10.254.0.3 }\n      - { name: c, asn: 1, address: 'fe80::1', local: 'fe80::2' }\n",
        "52: pops[0].bgp[0].address: address 10.254.0.0 is taken by pops[0].bgp[0].local\n\
         bad.yaml:54: pops[0].bgp[1].name: name `transit1` is taken by pops[0].bgp[0].name\n\
         bad.yaml:55: pops[0].bgp[2].address: 2001:db8::1 and 10.254.0.3 (pops[0].bgp[2].local) are of different address families\n\
         bad.yaml:55: pops[0].bgp[2]: a session over IPv6, and none of network.anycast.prefixes is IPv6\n\
         bad.yaml:56: pops[0].bgp[3].local: fe80::2 is link-local, not an address a peer can send to\n\
         bad.yaml:56: pops[0].bgp[3].address: fe80::1 is link-local, not an address a peer can send to\n\
         bad.yaml:56: pops[0].bgp[3]: a session over IPv6, and none of network.anycast.prefixes is IPv6",
    ),
    (
        "        local: 10.254.0.1\n",
        "        local: 10.254.0.1\n      - { name: b, asn: 65002, address: 10.254.0.0, local: 10.254.0.3 }\n",
        "54: pops[0].bgp[1].address: address 10.254.0.0 is taken by pops[0].bgp[0].address",
    ),
    (
        "ingress: ['192.0.2.1:3478']",
        "ingress: ['[2001:db8::1]:3478']",
        "45: pops[0].router_id: a PoP with BGP sessions and no IPv4 address needs a router_id",
    ),
    (
        "    ingress:\n      - 192.0.2.2:3478\n",
        "    router_id: 0.0.0.0\n    ingress:\n      - 192.0.2.2:3478\n",
        "61: pops[1].router_id: 0.0.0.0 is unspecified, not an address a peer can send to",
    ),
];
