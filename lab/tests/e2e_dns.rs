//! The zone as the world's tools see it: dig, kdig, delv, zonemaster, resolvers that ask in odd ways, and clients of TCP that behave
//! badly. Two GeoDNS nodes in a namespace, on the ports of DNS.

#![cfg(test)]

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use lab::dns::{self, Answer, Edns, Query};
use lab::net::{Network, Shape, namespace};
use lab::wait;
use topology::{Dns, GeoDns, NameServer, Topology};

const ZONE: &str = "rtc.example.com";
const SIGNALING: &str = "signaling.rtc.example.com";
const SOON: Duration = Duration::from_secs(15);

/// Types by their numbers.
const A: u16 = 1;
const SOA: u16 = 6;
const DNSKEY: u16 = 48;
const RRSIG: u16 = 46;

/// Two running nodes.
struct World {
    network: Network,
    servers: [IpAddr; 2],
}

impl World {
    /// In the namespace of this thread.
    fn start() -> anyhow::Result<Self> {
        let mut servers = [IpAddr::from([0, 0, 0, 0]); 2];
        let mut network = Network::prepare(&Shape::default(), |topology| {
            servers = adjust(topology);
        })?;
        for node in ["ns1", "ns2"] {
            network.start_node(node)?;
        }
        Ok(Self { network, servers })
    }

    fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(self.servers[0], port)
    }

    /// What a tool says; it must end well.
    fn run(&self, tool: &str, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(tool)
            .args(arguments)
            .output()
            .with_context(|| format!("running {tool}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{tool} {arguments:?}: {text} {error}"
        );
        Ok(text)
    }

    fn ended(&self, reason: &str) -> anyhow::Result<f64> {
        let metrics = self.network.metrics("ns1")?;
        let name = "firsthop_geodns_slow_connection_ends_total";
        Ok(metrics.sum(name, &[("reason", reason)]))
    }
}

fn adjust(topology: &mut Topology) -> [IpAddr; 2] {
    let IpAddr::V4(region) = topology.regions[0].signaling_addresses[0] else {
        panic!("the lab speaks IPv4");
    };
    let [_, octet, ..] = region.octets();
    let servers = [1, 2].map(|host| IpAddr::from([127, octet, 41, host]));
    let region = &mut topology.regions[0];
    region.signaling_url = format!("https://eu.{SIGNALING}/whip");
    region
        .signaling_addresses
        .push("2001:db8::11".parse().unwrap());
    let dns = serde_json::json!({
        "zone": ZONE,
        "hostmaster": "host.master@example.com",
        "nameservers": [],
        "dnssec": true,
        "apex": ["192.0.2.1"],
        "txt": ["v=spf1 -all"],
        "caa": [{ "tag": "issue", "value": "ca.example" }],
        "explain_from": ["127.0.0.0/8"],
    });
    let mut dns: Dns = serde_json::from_value(dns).unwrap();
    dns.nameservers = (1..)
        .zip(servers)
        .map(|(number, address)| NameServer {
            name: format!("ns{number}.{ZONE}"),
            addresses: vec![address],
        })
        .collect();
    topology.dns = Some(dns);
    topology.geodns = (1..)
        .zip(servers)
        .map(|(number, address): (u8, _)| {
            let at = |port| SocketAddr::new(address, port);
            GeoDns {
                name: format!("ns{number}"),
                dns: vec![at(53)],
                dot: vec![at(853)],
                doh: vec![at(443)],
                steer: at(8443),
                workers: 1,
                pin: false,
                admin: at(9100),
            }
        })
        .collect();
    servers
}

#[test]
fn operators_tools_agree() {
    namespace::run(|_| {
        let world = World::start()?;
        records(&world)?;
        encrypted(&world)?;
        validation(&world)?;
        zonemaster(&world)?;
        odd_services(&world)
    })
    .unwrap();
}

fn records(world: &World) -> anyhow::Result<()> {
    let server = &format!("@{}", world.servers[0]);
    let dig = |arguments: &[&str]| {
        let all = [&[server.as_str(), "+norecurse", "+nocookie"], arguments].concat();
        world.run("dig", &all)
    };
    let eu = world.network.topology().regions[0].signaling_addresses[0].to_string();
    for (arguments, expected) in [
        (
            &["+short", ZONE, "SOA"][..],
            "host\\.master.example.com. 1 14400 3600 1209600 300",
        ),
        (&["+short", ZONE, "NS"], "ns2.rtc.example.com."),
        (&["+short", ZONE, "CAA"], "0 issue \"ca.example\""),
        (&["+short", ZONE, "TXT"], "\"v=spf1 -all\""),
        (&["+short", SIGNALING, "A"], &eu),
        (&["+short", SIGNALING, "AAAA"], "2001:db8::11"),
        (
            &["+short", SIGNALING, "HTTPS"],
            "1 . alpn=\"h2,http/1.1\" ipv4hint=",
        ),
        (&["+short", &format!("eu.{SIGNALING}"), "A"], &eu),
        (&["+short", &format!("p1.ingress.{ZONE}"), "A"], "127."),
        (&[&format!("ingress.{ZONE}"), "A"], "status: NOERROR"),
        (&[&format!("mars.{SIGNALING}"), "A"], "status: NXDOMAIN"),
        (&[SIGNALING, "MX"], "ANSWER: 0, AUTHORITY: 1"),
        (&["example.com", "A"], "status: REFUSED"),
        (
            &["+subnet=198.51.100.0/24", SIGNALING, "A"],
            "CLIENT-SUBNET: 198.51.100.0/24/",
        ),
        (&["+nsid", ZONE, "SOA"], "(\"ns1\")"),
        (&["+cookie", ZONE, "SOA"], "(good)"),
        (&["+tcp", SIGNALING, "A"], "(TCP)"),
        (&["+tcp", ZONE, "AXFR"], "; Transfer failed."),
        (&["CH", "TXT", "id.server"], "\"ns1\""),
        (&["CH", "TXT", "version.bind"], "\"firsthop\""),
        (
            &["+short", "TXT", &format!("_explain.{SIGNALING}")],
            "region=eu client=127.",
        ),
    ] {
        let said = dig(arguments).or_else(|error| {
            // dig ends with an error when a transfer is refused, as it should be.
            let text = error.to_string();
            if text.contains("Transfer failed") {
                Ok(text)
            } else {
                Err(error)
            }
        })?;
        ensure!(said.contains(expected), "dig {arguments:?}: {said}");
    }
    Ok(())
}

/// DNS over TLS and HTTPS, with the certificate of the node.
fn encrypted(world: &World) -> anyhow::Result<()> {
    let server = &format!("@{}", world.servers[0]);
    let ca = world.network.credentials("ns1").join("ca.pem");
    let ca = &format!("+tls-ca={}", ca.display());
    let hostname = "+tls-hostname=ns1";
    for transport in [&["+tls"][..], &["+https"], &["+https-get"]] {
        let all = [
            &[server, ca, hostname],
            transport,
            &["+padding", SIGNALING, "A"],
        ]
        .concat();
        let said = world.run("kdig", &all)?;
        ensure!(
            said.contains("status: NOERROR"),
            "kdig {transport:?}: {said}"
        );
        ensure!(said.contains("TLS session (TLS1.3)"), "{said}");
        ensure!(said.contains("Received 468 B"), "padded to a block: {said}");
    }
    Ok(())
}

/// A file that says to trust the key of the zone, by its DS.
fn anchors(world: &World) -> anyhow::Result<String> {
    let firsthop = lab::net::programs_dir()?.join("firsthop");
    let topology = world.network.topology_file();
    let keys = world.network.credentials("ns1").join("dnssec.pem");
    let (topology, keys) = (topology.display().to_string(), keys.display().to_string());
    let ds = world.run(
        &firsthop.display().to_string(),
        &["keys", "ds", &keys, "--topology", &topology],
    )?;
    let mut words = ds.split_whitespace().skip(3);
    let mut word = || words.next().context("DS has four fields");
    let (tag, algorithm, digest, hash) = (word()?, word()?, word()?, word()?);
    let anchors = world.network.credentials("ns1").join("anchors");
    fs::write(
        &anchors,
        format!("trust-anchors {{ {ZONE}. static-ds {tag} {algorithm} {digest} \"{hash}\"; }};\n"),
    )?;
    Ok(anchors.display().to_string())
}

/// Answers, and answers that there is nothing, are proven to one who trusts the key of the zone.
fn validation(world: &World) -> anyhow::Result<()> {
    let anchors = anchors(world)?;
    let (server, root) = (format!("@{}", world.servers[0]), format!("+root={ZONE}"));
    for (name, rtype, expected) in [
        (ZONE.to_owned(), "SOA", "; fully validated"),
        (ZONE.to_owned(), "DNSKEY", "; fully validated"),
        (ZONE.to_owned(), "CDS", "; fully validated"),
        (SIGNALING.to_owned(), "A", "; fully validated"),
        (SIGNALING.to_owned(), "HTTPS", "; fully validated"),
        (format!("p1.ingress.{ZONE}"), "A", "; fully validated"),
        (
            format!("p1.ingress.{ZONE}"),
            "AAAA",
            "; negative response, fully validated",
        ),
        (
            format!("ingress.{ZONE}"),
            "A",
            "; negative response, fully validated",
        ),
        (
            SIGNALING.to_owned(),
            "MX",
            "; negative response, fully validated",
        ),
        (
            format!("mars.{SIGNALING}"),
            "A",
            "; negative response, fully validated",
        ),
        // Explanations are made when they are asked for: that they are not signed is proven.
        (format!("_explain.{SIGNALING}"), "TXT", "; unsigned answer"),
        (
            format!("_explain.{SIGNALING}"),
            "A",
            "; negative response, unsigned answer",
        ),
        (
            format!("a.b._explain.{SIGNALING}"),
            "A",
            "; negative response, unsigned answer",
        ),
        (
            format!("_explain.{SIGNALING}"),
            "DS",
            "; negative response, fully validated",
        ),
        (
            format!("a.b.c.{ZONE}"),
            "TXT",
            "; negative response, fully validated",
        ),
        (
            format!("zzz.{ZONE}"),
            "A",
            "; negative response, fully validated",
        ),
    ] {
        let mut delv = Command::new("delv");
        let delv = delv
            .args([&server, "-a", &anchors, &root, &name, rtype])
            .output()?;
        let said = String::from_utf8_lossy(&delv.stdout);
        ensure!(said.contains(expected), "delv {name} {rtype}: {said}");
    }
    Ok(())
}

fn zonemaster(world: &World) -> anyhow::Result<()> {
    // It asks the servers of the root, too: that nobody is there is told at once, not after ten seconds for each of thirteen.
    world.run("ip", &["route", "replace", "unreachable", "default"])?;
    let servers = world.servers.map(|address| address.to_string());
    let ns = [1, 2].map(|number| format!("ns{number}.{ZONE}/{}", servers[number - 1]));
    let tests = ["Basic", "Consistency", "Nameserver", "Syntax", "Zone"];
    let mut arguments = vec![ZONE, "--no-ipv6", "--raw", "--level", "WARNING"];
    for server in &ns {
        arguments.extend(["--ns", server]);
    }
    for test in &tests {
        arguments.extend(["--test", test]);
    }
    let said = world.run("zonemaster-cli", &arguments)?;
    // What it says of every zone without mail, of loopback addresses, or of a parent that is not there is not about us.
    let about_us = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_finding = words.len() > 2 && ["WARNING", "ERROR", "CRITICAL"].contains(&words[1]);
        is_finding && !ELSEWHERE.iter().any(|tag| line.contains(tag))
    };
    let findings: Vec<_> = said.lines().filter(about_us).collect();
    ensure!(findings.is_empty(), "zonemaster: {findings:#?}");
    ensure!(!said.contains("UNABLE"), "{said}");
    Ok(())
}

/// Findings of zonemaster that are about a world of two loopback addresses and no parent.
const ELSEWHERE: &[&str] = &[
    "Z09_MISSING_MAIL_TARGET",
    "NO_RESPONSE_PTR_QUERY",
    "NAMESERVER_HAS_NO_PTR",
];

/// Services DNS also has, and this zone has not.
fn odd_services(world: &World) -> anyhow::Result<()> {
    let ask = |flags, rtype| {
        let query = Query {
            flags,
            ..Query::new(ZONE, rtype)
        };
        query.tcp(world.at(53))
    };
    // Transfers, NOTIFY, UPDATE.
    for (flags, rtype, code) in [(0, 252, 5), (0, 251, 5), (0x2000, SOA, 4), (0x2800, SOA, 4)] {
        ensure!(ask(flags, rtype)?.code == code, "{flags:04x} {rtype}");
    }
    // A cookie without a question, whose server's part is nobody's (RFC 7873 §5.4).
    let header = [0x42, 0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 28, 0, 10, 0, 24];
    let packet = [&header[..], &opt, &[7; 24]].concat();
    let answer = dns::udp(world.at(53), &packet)?.context("no answer")?;
    let answer = Answer::read(&answer)?;
    ensure!(answer.code == 23, "{answer:?}");
    let options = answer.edns.map(|edns| edns.options);
    let whole =
        options.is_some_and(|options| matches!(&options[..], [(10, data)] if data.len() == 24));
    ensure!(whole, "a right cookie is given");
    Ok(())
}

/// One probe: what is asked, over TCP or UDP, and what a server that does EDNS right says.
struct Probe {
    name: &'static str,
    query: Query,
    tcp: bool,
    code: u16,
    /// Whether the SOA that was asked for is there.
    answers: bool,
    /// Whether DO is set in the answer; `None`: there is no OPT record.
    dnssec_ok: Option<bool>,
    /// Codes of the options in the answer.
    options: &'static [u16],
}

const COOKIE: (u16, &[u8]) = (10, &[1, 2, 3, 4, 5, 6, 7, 8]);
const NSID: (u16, &[u8]) = (3, &[]);
const SUBNET: (u16, &[u8]) = (8, &[0, 1, 24, 0, 198, 51, 100]);

impl Probe {
    /// Without OPT, and answered with the SOA.
    fn plain(name: &'static str, flags: u16) -> Self {
        Self {
            name,
            query: Query {
                flags,
                ..Query::new(ZONE, SOA)
            },
            tcp: false,
            code: 0,
            answers: true,
            dnssec_ok: None,
            options: &[],
        }
    }

    /// With OPT. Version 0 is answered with the SOA, others with BADVERS.
    fn edns(
        name: &'static str,
        version: u8,
        flags: u16,
        options: &[(u16, &[u8])],
        echoed: &'static [u16],
    ) -> Self {
        let options = options.iter();
        let edns = Edns {
            version,
            flags,
            options: options.map(|(code, data)| (*code, data.to_vec())).collect(),
            ..Edns::default()
        };
        let mut probe = Self::plain(name, 0);
        probe.query.edns = Some(edns);
        Self {
            dnssec_ok: Some(flags & 0x8000 != 0),
            answers: version == 0,
            code: if version == 0 { 0 } else { 16 },
            options: echoed,
            ..probe
        }
    }

    /// Version 0 with one option that must not be accepted.
    fn malformed(name: &'static str, code: u16, data: &[u8]) -> Self {
        Self::edns(name, 0, 0, &[(code, data)], &[]).refused(1)
    }

    fn refused(self, code: u16) -> Self {
        Self {
            code,
            answers: false,
            ..self
        }
    }

    fn tcp(self) -> Self {
        Self { tcp: true, ..self }
    }

    /// Of a type nobody has.
    fn type666(mut self) -> Self {
        self.query.rtype = 666;
        self.answers = false;
        self
    }
}

/// The probes of <https://ednscomp.isc.org>, by the names they have there, and some more.
fn probes() -> Vec<Probe> {
    let edns = Probe::edns;
    let mut probes = plain_probes();
    probes.extend([
        edns("edns", 0, 0, &[], &[]),
        edns("edns1", 1, 0, &[], &[]),
        edns("edns255", 255, 0, &[], &[]),
        edns("ednsopt", 0, 0, &[(100, &[])], &[]),
        edns("edns1opt", 1, 0, &[(100, &[])], &[]),
        edns("do", 0, 0x8000, &[], &[]),
        edns("edns1do", 1, 0x8000, &[], &[]),
        edns("ednsflags", 0, 0x0080, &[], &[]),
        edns("edns1flags", 1, 0x0080, &[], &[]),
        edns("doflags", 0, 0xffff, &[], &[]),
        edns("docookie", 0, 0x8000, &[COOKIE], &[10]),
        edns("ednscookie", 0, 0, &[COOKIE], &[10]),
        edns("ednsnsid", 0, 0, &[NSID], &[3]),
        edns("ednssubnet", 0, 0, &[SUBNET], &[8]),
        edns("ednsexpire", 0, 0, &[(9, &[])], &[]),
        edns("ednskeepalive", 0, 0, &[(11, &[])], &[]),
        edns("ednspadding", 0, 0, &[(12, &[0; 32])], &[]),
        edns("ednschain", 0, 0, &[(13, &[0])], &[]),
        edns(
            "optlist",
            0,
            0,
            &[NSID, SUBNET, (9, &[]), COOKIE],
            &[3, 8, 10],
        ),
        edns("optlist1", 1, 0, &[NSID, SUBNET, COOKIE], &[]),
        edns("ednstype666", 0, 0x8000, &[], &[]).type666(),
        edns("ednstcp", 0, 0x8000, &[], &[]).tcp(),
        edns("ednsopttcp", 0, 0, &[NSID, COOKIE], &[3, 10]).tcp(),
        edns("edns1tcp", 1, 0, &[], &[]).tcp(),
        Probe::malformed("ednssubnet-scope", 8, &[0, 1, 24, 24, 1, 2, 3]),
        Probe::malformed("ednssubnet-long", 8, &[0, 1, 24, 0, 1, 2, 3, 4]),
        Probe::malformed("ednssubnet-short", 8, &[0, 1, 24, 0, 1, 2]),
        Probe::malformed("ednssubnet-family", 8, &[0, 3, 0, 0]),
        Probe::malformed("ednscookie-short", 10, &[1, 2, 3]),
    ]);
    probes
}

fn plain_probes() -> Vec<Probe> {
    let plain = Probe::plain;
    vec![
        plain("dns", 0),
        plain("aa", 0x0400),
        plain("ad", 0x0020),
        plain("cd", 0x0010),
        plain("ra", 0x0080),
        plain("rd", 0x0100),
        plain("tc", 0x0200),
        plain("zflag", 0x0040),
        plain("opcode", 0x7800).refused(4),
        plain("opcodeflg", 0x7ff0).refused(4),
        plain("type666", 0).type666(),
        plain("tcp", 0).tcp(),
    ]
}

#[test]
fn probes_of_edns_are_answered_right() {
    namespace::run(|_| {
        let world = World::start()?;
        let mut wrong = Vec::new();
        for probe in probes() {
            let server = world.at(53);
            let answer = if probe.tcp {
                probe.query.tcp(server)
            } else {
                probe.query.udp(server)
            };
            let fault = answer.and_then(|answer| fault(&probe, &answer));
            wrong.extend(
                fault
                    .err()
                    .map(|error| format!("{}: {error:#}", probe.name)),
            );
        }
        ensure!(wrong.is_empty(), "{wrong:#?}");
        sizes(&world)
    })
    .unwrap();
}

fn fault(probe: &Probe, answer: &Answer) -> anyhow::Result<()> {
    ensure!(answer.code == probe.code, "code {}", answer.code);
    let has_soa = answer.sections[0].contains(&SOA);
    ensure!(has_soa == probe.answers, "answers {:?}", answer.sections[0]);
    ensure!(!answer.is_truncated(), "truncated");
    // RFC 1035 §4.1.1, RFC 2535 §6.1: what has no meaning in an answer is clear.
    ensure!(answer.flags & 0x00f0 == 0, "flags {:04x}", answer.flags);
    ensure!(answer.is_authoritative() == (probe.code == 0), "AA");
    let Some(edns) = &answer.edns else {
        ensure!(probe.dnssec_ok.is_none(), "no OPT");
        return Ok(());
    };
    ensure!(probe.dnssec_ok.is_some(), "OPT without being asked");
    ensure!(edns.version == 0, "version {}", edns.version);
    let dnssec_ok = probe.dnssec_ok == Some(true);
    let flags = if dnssec_ok { 0x8000 } else { 0 };
    // An option that cannot be read says nothing of DO either.
    ensure!(
        edns.flags == flags || probe.code == 1,
        "flags {:04x}",
        edns.flags
    );
    let mut options: Vec<u16> = edns.options.iter().map(|(code, _)| *code).collect();
    options.sort_unstable();
    ensure!(options == probe.options, "options {options:?}");
    let signed = answer.sections[0].contains(&RRSIG);
    ensure!(signed == (dnssec_ok && probe.answers), "signatures");
    Ok(())
}

/// What does not fit is cut, and comes whole over TCP.
fn sizes(world: &World) -> anyhow::Result<()> {
    for (payload, name, rtype) in [
        (512, ZONE.to_owned(), DNSKEY),
        (512, format!("zzz.{ZONE}"), A),
        (1_232, format!("zzz.{ZONE}"), A),
        (65_535, format!("zzz.{ZONE}"), A),
    ] {
        let mut query = Query::new(&name, rtype);
        query.edns = Some(Edns {
            payload,
            flags: 0x8000,
            ..Edns::default()
        });
        let udp = query.udp(world.at(53))?;
        let tcp = query.tcp(world.at(53))?;
        ensure!(
            udp.len <= usize::from(payload.min(1_232)),
            "{payload}: {}",
            udp.len
        );
        ensure!(!tcp.is_truncated() && tcp.sections.concat().contains(&RRSIG));
        ensure!(
            udp.is_truncated() == (tcp.len > usize::from(payload)),
            "{payload} {}",
            tcp.len
        );
    }
    Ok(())
}

#[test]
fn connections_are_bounded_and_bad_ones_end() {
    namespace::run(|_| {
        let world = World::start()?;
        pipelined(&world)?;
        broken(&world)?;
        deaf(&world)?;
        many(&world)
    })
    .unwrap();
}

/// Hundreds of queries in one write, one of them split, are all answered.
fn pipelined(world: &World) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(world.at(53))?;
    stream.set_read_timeout(Some(SOON))?;
    let one = dns::framed(&Query::new(SIGNALING, A).bytes());
    let all = one.repeat(500);
    let (first, rest) = all.split_at(all.len() - 5);
    stream.write_all(first)?;
    for _ in 0..499 {
        ensure!(Answer::read(&dns::next(&mut stream)?)?.sections[0] == [A]);
    }
    stream.write_all(rest)?;
    ensure!(Answer::read(&dns::next(&mut stream)?)?.code == 0);
    drop(stream);
    let counted = || world.ended("peer").is_ok_and(|count| count > 0.0);
    wait::until_true("the end of the connection", SOON, counted)
}

/// Each kind of bad client loses its connection, and is counted.
fn broken(world: &World) -> anyhow::Result<()> {
    let query = Query::new(SIGNALING, A).bytes();
    let response = [&[0x42, 0x42, 0x80, 0][..], &query[4..]].concat();
    for (port, bytes, reason) in [
        (53, dns::framed(&response), "garbage"),
        (53, vec![0xff, 0xff], "long_query"),
        (53, vec![0, 40, 1], "slow_query"),
        (53, Vec::new(), "idle"),
        (853, b"GET / HTTP/1.0\r\n\r\n".to_vec(), "handshake"),
        (443, dns::framed(&query), "handshake"),
    ] {
        let before = world.ended(reason)?;
        let mut stream = TcpStream::connect(world.at(port))?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(&bytes)?;
        let mut rest = Vec::new();
        let ended = match stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        };
        ensure!(ended, "{reason}: the connection stays");
        let counted = || world.ended(reason).is_ok_and(|count| count > before);
        wait::until_true(reason, SOON, counted)?;
    }
    Ok(())
}

/// A client that asks and never reads is left alone once the kernel takes no more for it.
fn deaf(world: &World) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(world.at(53))?;
    stream.set_write_timeout(Some(Duration::from_secs(1)))?;
    let some = dns::framed(&Query::new(SIGNALING, A).bytes()).repeat(1_000);
    while stream.write_all(&some).is_ok() {}
    let counted = || world.ended("slow_reader").is_ok_and(|count| count > 0.0);
    wait::until_true("the end of the connection", SOON, counted)
}

/// One source has as many places as it may, and others have theirs.
fn many(world: &World) -> anyhow::Result<()> {
    let held: Vec<_> = (0..64)
        .map(|_| TcpStream::connect(world.at(53)))
        .collect::<Result<_, _>>()?;
    wait::until_true("the places of a source to be taken", SOON, || {
        TcpStream::connect(world.at(53)).is_ok()
            && world.ended("full_of_source").is_ok_and(|count| count > 0.0)
    })?;
    // From another address of the loopback network.
    let from = "-b127.77.0.1";
    let said = world.run(
        "dig",
        &[
            &format!("@{}", world.servers[0]),
            from,
            "+tcp",
            SIGNALING,
            "A",
        ],
    )?;
    ensure!(said.contains("status: NOERROR"), "{said}");
    drop(held);
    wait::until_true("the places to be given back", SOON, || {
        Query::new(SIGNALING, A).tcp(world.at(53)).is_ok()
    })
}
