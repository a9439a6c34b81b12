//! Texts that are no topology at all.

use super::{BASE, Case};

pub(super) const CASES: &[Case] = &[
    (
        "pops:",
        "failover_groups:\n  - name: a\n    redis:\n      - redis://user:pass@r:1\npops:",
        "43: failover_groups[0].redis: user and password belong in the credentials directory",
    ),
    (BASE, "", "1: topology: the file is empty"),
    (
        BASE,
        "# nothing but a comment\n",
        "1: topology: the file is empty",
    ),
    (
        "pops:",
        "---\npops:",
        "40: topology: a second YAML document starts here; a topology is exactly one",
    ),
    (
        "name: eu-r1",
        "name: &x eu-r1",
        "10: regions[0].core_relays[0].name: YAML anchors and aliases are not allowed; write the value out",
    ),
    (
        "pops:",
        "pops: [",
        "41: topology: not YAML: did not find expected node content at line 41 column 3, while parsing a flow node",
    ),
    (
        "    id: 2\n    signaling",
        "\tid: 2\n    signaling",
        "27: topology: not YAML: found a tab character that violates indentation at line 27 column 1, while scanning a plain scalar at line 26 column 11",
    ),
    (
        "version: 1",
        "version: 1\nregion: []",
        "2: region: unknown key, expected one of version, network, regions, failover_groups, pops, steering, dns, geodns",
    ),
    (
        "        address: 198.51.100.2",
        "        adress: 198.51.100.2",
        "13: regions[0].core_relays[1].adress: unknown key, expected one of name, address, link_port, record_port, workers, pin, admin",
    ),
    (
        "      country: NL",
        "      land: NL",
        "47: pops[0].location.land: unknown key, expected one of city, country, latitude, longitude",
    ),
    (
        "    id: 1\n",
        "    id: 1\n    id: 3\n",
        "8: regions[0].id: key given twice, first in line 7",
    ),
    (
        "    id: 1\n",
        "",
        "6: regions[0].id: required key is missing",
    ),
    ("version: 1\n", "", "1: version: required key is missing"),
    (
        "    id: 1\n",
        "    id: one\n",
        "7: regions[0].id: invalid type: string \"one\", expected u16",
    ),
    (
        "    id: 1\n",
        "    id: 65536\n",
        "7: regions[0].id: invalid value: integer `65536`, expected u16",
    ),
    (
        "    id: 1\n",
        "    id: -1\n",
        "7: regions[0].id: invalid type: integer `-1`, expected u16",
    ),
    (
        "regions: [eu, us]",
        "regions: eu",
        "44: pops[0].regions: invalid type: string \"eu\", expected a sequence",
    ),
    (
        "198.51.100.1\n",
        "198.51.100\n",
        "11: regions[0].core_relays[0].address: invalid IP address syntax",
    ),
    (
        "'192.0.2.1:3478'",
        "'192.0.2.1'",
        "43: pops[0].ingress[0]: invalid socket address syntax",
    ),
    (
        "203.0.113.0/25",
        "203.0.113.0/33",
        "15: regions[0].transceivers.cidr: invalid IP address syntax",
    ),
    (
        "      port: 5000\n",
        "      port: 5000\n      datagrams: double\n",
        "17: regions[0].transceivers.datagrams: unknown variant `double`, expected `packed` or `single`",
    ),
    (
        BASE,
        "just text",
        "1: topology: invalid type: string \"just text\", expected struct Topology",
    ),
    (
        BASE,
        "[1, 2]",
        "1: topology: invalid type: sequence, expected struct Topology",
    ),
];
