//! Steering, the DNS zone and the nodes that answer for it.

use super::Case;

pub(super) const CASES: &[Case] = &[
    (
        "steering:\n",
        "steering:\n  measured: {samples_min: 65}\n",
        "56: steering.measured.samples_min: 65 is outside 1..=64",
    ),
    (
        "geodns:\n  - name: ns1\n    dns: ['192.0.2.53:53']",
        "geodns:\n  - name: ns1\n    dns: []",
        "68: geodns[0].dns: 0 entries, 1..=16 are allowed",
    ),
    (
        "    steer: 198.51.100.53:8443",
        "    steer: 198.51.100.53:8443\n    workers: 65",
        "70: geodns[0].workers: 65 is outside 1..=64",
    ),
    (
        "  - name: ns1\n    dns",
        "  - name: ams\n    dns",
        "67: geodns[0].name: name `ams` is taken by pops[0].name",
    ),
    (
        "    steer: 198.51.100.53:8443",
        "    steer: 192.0.2.53:53",
        "69: geodns[0].steer: 192.0.2.53:53 is taken by geodns[0].dns[0]",
    ),
    (
        "['192.0.2.53:53']",
        "['0.0.0.0:53']",
        "68: geodns[0].dns[0]: 0.0.0.0 is unspecified, not an address a peer can send to",
    ),
    (
        "dns:\n  zone: rtc.example\n  hostmaster: dns@rtc.example\n  nameservers:\n    - name: ns1.rtc.example\n      addresses: [192.0.2.53]\n",
        "",
        "60: geodns: GeoDNS nodes need a zone: `dns` is missing",
    ),
    (
        "zone: rtc.example",
        "zone: RTC.example",
        "61: dns.zone: `RTC.example` is not a name: lower-case letters, digits, `-` and `.`, at most 63 between dots\nbad.yaml:65: dns.nameservers[0].addresses: a name server outside the zone has 1 addresses, expected none",
    ),
    // Explanations are a zone of their own, where no name server can be.
    (
        "name: ns1.rtc.example\n",
        "name: ns1._explain.signaling.rtc.example\n",
        "64: dns.nameservers[0].name: `ns1._explain.signaling.rtc.example` is not a name: lower-case letters, digits, `-` and `.`, at most 63 between dots",
    ),
    (
        "      addresses: [192.0.2.53]\n",
        "",
        "64: dns.nameservers[0].addresses: a name server inside the zone has 0 addresses, expected at least one",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  ingress: signaling",
        "62: dns.ingress: `signaling` is taken by dns.signaling",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  ttl_s: 0",
        "62: dns.ttl_s: 0 is outside 1..=86400",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  rate_limit: {slip: 11}",
        "62: dns.rate_limit.slip: 11 is outside 0..=10",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  caa: [{tag: 'is sue', value: ca.example}]",
        "62: dns.caa[0].tag: `is sue` is not a CAA tag: 1..=15 letters and digits",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  alpn: [h2, '']",
        "62: dns.alpn[1]: a protocol has a name",
    ),
    (
        "dns@rtc.example",
        "dns.rtc.example",
        "62: dns.hostmaster: `dns.rtc.example` is not a mailbox, expected user@host",
    ),
    (
        "zone: rtc.example",
        "zone: rtc.example\n  explain_from: [192.0.2.1/24]",
        "62: dns.explain_from[0]: 192.0.2.1/24 has bits set behind its prefix, write 192.0.2.0/24",
    ),
    (
        "      asns: [64500]\n",
        "",
        "57: steering.rules[0]: the rule names no client: give cidrs, asns, countries or continents",
    ),
    (
        "      pops: [nyc]\n",
        "",
        "57: steering.rules[0]: the rule says nothing: give regions, pops, avoid or residency",
    ),
    (
        "      pops: [nyc]",
        "      pops: [cdg]",
        "59: steering.rules[0].pops[0]: no PoP is named `cdg`",
    ),
    (
        "      pops: [nyc]",
        "      regions: [asia]",
        "59: steering.rules[0].regions[0]: no region is named `asia`",
    ),
    (
        "      pops: [nyc]",
        "      avoid: [asia]",
        "59: steering.rules[0].avoid[0]: neither a region nor a PoP is named `asia`",
    ),
    (
        "      pops: [nyc]",
        "      residency: eu",
        "59: steering.rules[0].residency: no region has the residency `eu`",
    ),
    (
        "      asns: [64500]",
        "      countries: [nl]",
        "58: steering.rules[0].countries[0]: `nl` is not an ISO 3166-1 alpha-2 country code",
    ),
    (
        "      asns: [64500]",
        "      cidrs: [192.0.2.1/24]",
        "58: steering.rules[0].cidrs[0]: 192.0.2.1/24 has bits set behind its prefix, write 192.0.2.0/24",
    ),
    (
        "      asns: [64500]",
        "      continents: [XX]",
        "58: steering.rules[0].continents[0]: unknown variant `XX`, expected one of `AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`",
    ),
    (
        "steering:\n",
        "steering:\n  load: {soft_percent: 90, full_percent: 90}\n",
        "56: steering.load.full_percent: 90 is not above soft_percent (90)",
    ),
    (
        "steering:\n",
        "steering:\n  timeout_ms: 4\n",
        "56: steering.timeout_ms: 4 is outside 5..=1000",
    ),
    (
        "  name: test\n",
        "  name: test\n  state: {redis: ['redis://r:1'], interval_ms: 5000, ttl_s: 10}\n",
        "4: network.state.ttl_s: 10 s is less than three intervals (15 s)",
    ),
    (
        "  name: test\n",
        "  name: test\n  signaling: {trusted_proxies: [10.0.0.1/8]}\n",
        "4: network.signaling.trusted_proxies[0]: 10.0.0.1/8 has bits set behind its prefix, write 10.0.0.0/8",
    ),
    (
        "    id: 2\n    signaling_url",
        "    id: 2\n    avoid_countries: [usa]\n    signaling_url",
        "28: regions[1].avoid_countries[0]: `usa` is not an ISO 3166-1 alpha-2 country code",
    ),
    (
        "    id: 2\n    signaling_url",
        "    id: 2\n    weight: 1001\n    signaling_url",
        "28: regions[1].weight: 1001 is outside 0..=1000",
    ),
];
