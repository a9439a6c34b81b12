//! Table of questions on the sample network, and of what is said to them.

use std::collections::BTreeMap;

use super::*;
use crate::record::Owner;

const OUTSIDE: &str = "198.51.100.7";
const EXPLAINED: &str = "192.0.2.9";

fn sample() -> Topology {
    let text = include_str!("../../../../topology/samples/world.yaml");
    topology::load(text, "world.yaml").unwrap()
}

fn zone() -> Zone {
    Zone::new(&sample()).unwrap()
}

fn ask(zone: &Zone, name: &str, rtype: Type, source: &str) -> Answer {
    let name = if name == "." {
        Name::root()
    } else {
        Name::parse(name).unwrap()
    };
    let question = Question {
        name: name.as_wire(),
        rtype,
        class: Class::IN,
    };
    zone.answer(&question, source.parse().unwrap())
}

/// One line an answer, short enough for a table.
fn said(zone: &Zone, name: &str, rtype: Type) -> String {
    let answer = ask(zone, name, rtype, OUTSIDE);
    let Answer::Set(id) = answer else {
        return format!("{answer:?}").split('(').next().unwrap().to_owned();
    };
    let set = zone.set(id).unwrap();
    let (name, records) = (&set.name, set.rdata.len());
    format!("{name} {:?} x{records} ttl {}", set.rtype, set.ttl_s)
}

/// Name, type, what is said.
const TABLE: &[(&str, Type, &str)] = &[
    (
        "rtc.example.com",
        Type::SOA,
        "rtc.example.com. TYPE6 x1 ttl 3600",
    ),
    (
        "rtc.example.com",
        Type::NS,
        "rtc.example.com. TYPE2 x2 ttl 3600",
    ),
    (
        "rtc.example.com",
        Type::CAA,
        "rtc.example.com. TYPE257 x1 ttl 3600",
    ),
    ("rtc.example.com", Type::A, "NoData"),
    ("rtc.example.com", Type::TXT, "NoData"),
    ("rtc.example.com", Type::DS, "NoData"),
    (
        "rtc.example.com",
        Type::ANY,
        "rtc.example.com. TYPE6 x1 ttl 3600",
    ),
    ("rtc.example.com", Type::RRSIG, "NoData"),
    (
        "ns1.rtc.example.com",
        Type::A,
        "ns1.rtc.example.com. TYPE1 x1 ttl 3600",
    ),
    (
        "ns1.rtc.example.com",
        Type::AAAA,
        "ns1.rtc.example.com. TYPE28 x1 ttl 3600",
    ),
    ("ns2.rtc.example.com", Type::AAAA, "NoData"),
    ("ns3.rtc.example.com", Type::A, "NoName"),
    ("a.ns1.rtc.example.com", Type::A, "NoName"),
    ("signaling.rtc.example.com", Type::A, "Steered"),
    ("signaling.rtc.example.com", Type::AAAA, "Steered"),
    ("signaling.rtc.example.com", Type::HTTPS, "Steered"),
    ("signaling.rtc.example.com", Type::ANY, "Steered"),
    ("signaling.rtc.example.com", Type::TXT, "NoData"),
    (
        "eu.signaling.rtc.example.com",
        Type::A,
        "eu.signaling.rtc.example.com. TYPE1 x1 ttl 3600",
    ),
    (
        "eu.signaling.rtc.example.com",
        Type::HTTPS,
        "eu.signaling.rtc.example.com. TYPE65 x1 ttl 3600",
    ),
    ("mars.signaling.rtc.example.com", Type::A, "NoName"),
    ("_explain.signaling.rtc.example.com", Type::TXT, "Refused"),
    ("_explain.signaling.rtc.example.com", Type::A, "CutNoData"),
    (
        "_explain.signaling.rtc.example.com",
        Type::NSEC,
        "CutNoData",
    ),
    (
        "_explain.signaling.rtc.example.com",
        Type::RRSIG,
        "CutNoData",
    ),
    ("_explain.signaling.rtc.example.com", Type::DS, "NoData"),
    (
        "_explain.signaling.rtc.example.com",
        Type::SOA,
        "_explain.signaling.rtc.example.com. TYPE6 x1 ttl 3600",
    ),
    (
        "a.b._explain.signaling.rtc.example.com",
        Type::A,
        "CutNoName",
    ),
    (
        "a._explain.signaling.rtc.example.com",
        Type::DS,
        "CutNoName",
    ),
    ("a_explain.signaling.rtc.example.com", Type::A, "NoName"),
    (
        "_explain.signaling.rtc.example.com",
        Type::NS,
        "_explain.signaling.rtc.example.com. TYPE2 x2 ttl 3600",
    ),
    ("ingress.rtc.example.com", Type::A, "NoData"),
    ("ingress.rtc.example.com", Type::ANY, "NoData"),
    (
        "ams.ingress.rtc.example.com",
        Type::A,
        "ams.ingress.rtc.example.com. TYPE1 x1 ttl 3600",
    ),
    (
        "ams.ingress.rtc.example.com",
        Type::AAAA,
        "ams.ingress.rtc.example.com. TYPE28 x1 ttl 3600",
    ),
    ("ams.ingress.rtc.example.com", Type::HTTPS, "NoData"),
    ("rtc.example.com", Type::AXFR, "Refused"),
    ("rtc.example.com", Type::IXFR, "Refused"),
    ("rtc.example.com", Type(250), "NotImplemented"),
    ("rtc.example.com", Type::OPT, "FormErr"),
    ("rtc.example.com", Type::NXNAME, "FormErr"),
    ("rtc.example.com", Type(65_280), "NoData"),
    ("example.com", Type::A, "Refused"),
    ("com", Type::SOA, "Refused"),
    (".", Type::NS, "Refused"),
    ("xrtc.example.com", Type::A, "Refused"),
];

#[test]
fn every_kind_of_name_and_type() {
    let zone = zone();
    for (name, rtype, expected) in TABLE.iter().copied() {
        assert_eq!(said(&zone, name, rtype), expected, "{name} {rtype:?}");
    }
}

#[test]
fn explanations_are_for_those_who_may_ask() {
    let zone = zone();
    let name = "_explain.signaling.rtc.example.com";
    for (source, expected) in [
        (EXPLAINED, Answer::Explain),
        ("::ffff:192.0.2.9", Answer::Explain),
        (OUTSIDE, Answer::Refused),
    ] {
        assert_eq!(ask(&zone, name, Type::TXT, source), expected, "{source}");
    }
    let mut topology = sample();
    topology.dns.as_mut().unwrap().explain_from.clear();
    let zone = Zone::new(&topology).unwrap();
    assert_eq!(ask(&zone, name, Type::TXT, EXPLAINED), Answer::NoName);
}

#[test]
fn other_classes() {
    let zone = zone();
    for (name, rtype, class, expected) in [
        ("version.bind", Type::TXT, 3, Answer::Chaos(Chaos::Version)),
        (
            "version.server",
            Type::TXT,
            3,
            Answer::Chaos(Chaos::Version),
        ),
        ("id.server", Type::TXT, 3, Answer::Chaos(Chaos::Identity)),
        (
            "hostname.bind",
            Type::ANY,
            3,
            Answer::Chaos(Chaos::Identity),
        ),
        ("id.server", Type::A, 3, Answer::Refused),
        ("rtc.example.com", Type::TXT, 3, Answer::Refused),
        ("rtc.example.com", Type::SOA, 255, Answer::Refused),
        ("rtc.example.com", Type::SOA, 4, Answer::Refused),
    ] {
        let name = Name::parse(name).unwrap();
        let question = Question {
            name: name.as_wire(),
            rtype,
            class: Class(class),
        };
        let answer = zone.answer(&question, OUTSIDE.parse().unwrap());
        assert_eq!(answer, expected, "{name} {rtype:?} {class}");
    }
}

#[test]
fn names_with_dots_have_names_between() {
    let mut topology = sample();
    topology.regions[0].name = "north.eu".to_owned();
    topology.pops[0].name = "a.b.c".to_owned();
    topology.dns.as_mut().unwrap().apex = vec!["192.0.2.77".parse().unwrap()];
    let zone = Zone::new(&topology).unwrap();
    for (name, expected) in [
        (
            "north.eu.signaling.rtc.example.com",
            "north.eu.signaling.rtc.example.com. TYPE1 x1 ttl 3600",
        ),
        ("eu.signaling.rtc.example.com", "NoData"),
        (
            "a.b.c.ingress.rtc.example.com",
            "a.b.c.ingress.rtc.example.com. TYPE1 x1 ttl 3600",
        ),
        ("b.c.ingress.rtc.example.com", "NoData"),
        ("c.ingress.rtc.example.com", "NoData"),
        ("b.ingress.rtc.example.com", "NoName"),
        ("rtc.example.com", "rtc.example.com. TYPE1 x1 ttl 3600"),
    ] {
        assert_eq!(said(&zone, name, Type::A), expected, "{name}");
    }
}

#[test]
fn name_servers_bring_their_addresses() {
    let zone = zone();
    let Answer::Set(ns) = ask(&zone, "rtc.example.com", Type::NS, OUTSIDE) else {
        panic!("no NS");
    };
    let glue: Vec<_> = zone
        .additional(ns)
        .iter()
        .map(|id| zone.set(*id).map(|set| (set.name.to_string(), set.rtype)))
        .collect();
    let expected = [
        ("ns1.rtc.example.com.", Type::A),
        ("ns1.rtc.example.com.", Type::AAAA),
        ("ns2.rtc.example.com.", Type::A),
    ];
    assert_eq!(
        glue,
        expected.map(|(name, rtype)| Some((name.to_owned(), rtype)))
    );
    assert!(zone.additional(zone.negative_soa()).is_empty());
}

#[test]
fn absence_counts_as_long_as_the_topology_says() {
    let zone = zone();
    let soa = zone.set(zone.negative_soa()).unwrap();
    assert_eq!((soa.rtype, soa.ttl_s), (Type::SOA, 300));
    assert!(soa.rdata[0].ends_with(&300_u32.to_be_bytes()));
    let steered = zone.set(zone.steered_soa()).unwrap();
    assert_eq!((steered.rtype, steered.ttl_s), (Type::SOA, 60));
    let mailbox = b"\x0ahostmaster\x07example\x03com\x00";
    assert!(soa.rdata[0].windows(mailbox.len()).any(|at| at == mailbox));
}

#[test]
fn the_selection_decides_the_records_of_the_steered_name() {
    let zone = zone();
    let one = zone.steered(&zone.carried([1, 0], []));
    assert_eq!(one.a.as_ref().unwrap().rdata, [[192, 0, 2, 132]]);
    assert_eq!(one.a.as_ref().unwrap().ttl_s, 60);
    assert_eq!(
        one.https.unwrap().rdata,
        [[
            &[0, 1, 0][..],
            b"\x00\x01\x00\x0c\x02h2\x08http/1.1",
            &[0, 4, 0, 4, 192, 0, 2, 132],
            b"\x00\x06\x00\x10\x20\x01\x0d\xb8\x02\x00\0\0\0\0\0\0\0\0\x01\x32",
        ]
        .concat()]
    );

    let mut topology = sample();
    topology.dns.as_mut().unwrap().answers_max = 3;
    topology.regions[2].signaling_addresses.clear();
    topology.regions[0].signaling_addresses.truncate(1);
    topology.regions[1].signaling_url = "https://a.example:8443/whip".to_owned();
    let zone = Zone::new(&topology).unwrap();
    let carried = |best: &[u16]| zone.carried(best.iter().copied(), []);
    assert_eq!(carried(&[2, 1, 1, 0, 3]), carried(&[1, 0, 3, 2]));
    let three = zone.steered(&zone.carried([2, 1, 1, 0, 3], []));
    assert_eq!(
        three.a.unwrap().rdata,
        [[192, 0, 2, 132], [192, 0, 2, 131], [192, 0, 2, 134]]
    );
    assert_eq!(three.aaaa.unwrap().rdata.len(), 2, "a region without IPv6");
    let https = three.https.unwrap().rdata;
    let target = b"\x07us-east\x09signaling\x03rtc\x07example\x03com\x00";
    assert_eq!(https.len(), 3);
    assert_eq!(https[0][..2], [0, 1]);
    assert_eq!(&https[0][2..2 + target.len()], target);
    assert!(
        https[0].windows(6).any(|at| at == [0, 3, 0, 2, 0x20, 0xfb]),
        "port"
    );
    assert_eq!(https[2][..2], [0, 3]);
    assert_eq!(zone.steered(&zone.carried([0], [])).aaaa, None);
    assert_eq!(zone.steered(&zone.carried([2, 99], [])).first(), None);
}

#[test]
fn a_family_the_best_regions_lack_comes_from_the_next_that_has_it() {
    let mut topology = sample();
    let family = |region: usize, is: fn(&IpAddr) -> bool| {
        let mut addresses = sample().regions[region].signaling_addresses.clone();
        addresses.retain(is);
        addresses
    };
    topology.regions[0].signaling_addresses = family(0, IpAddr::is_ipv6);
    topology.regions[1].signaling_addresses = family(1, IpAddr::is_ipv6);
    let zone = Zone::new(&topology).unwrap();
    let last = |set: &Option<Rrset>| -> Vec<u8> {
        let last = |rdata: &Vec<u8>| rdata.last().copied().unwrap();
        set.iter()
            .flat_map(|set| set.rdata.iter().map(last))
            .collect()
    };
    let records = |zone: &Zone, best: &[u16], fill: &[u16]| {
        zone.steered(&zone.carried(best.iter().copied(), fill.iter().copied()))
    };
    let hosts = |steered: &Steered| (last(&steered.a), last(&steered.aaaa));
    // IPv6 of the best, IPv4 of the first that has it, and none of its IPv6.
    let steered = records(&zone, &[0], &[1, 2, 3]);
    assert_eq!(hosts(&steered), (vec![133], vec![0x31]));
    // Each way in has its own address and port.
    let https = steered.https.as_ref().unwrap();
    let targets = https.rdata.iter().map(|rdata| rdata[3..5].to_vec());
    assert_eq!(targets.collect::<Vec<_>>(), [b"eu", b"us"]);
    // Where one has both, nobody else is needed; where nobody has it, there is none.
    assert_eq!(zone.carried([2], [0, 1, 3]), zone.carried([2, 0, 1, 3], []));
    assert_eq!(records(&zone, &[0], &[0, 1]).a, None);
    // An answer of several has all of the best, and of the others the family alone, whatever place it has.
    topology.dns.as_mut().unwrap().answers_max = 3;
    let zone = Zone::new(&topology).unwrap();
    let steered = records(&zone, &[0], &[2, 3]);
    assert_eq!(hosts(&steered), (vec![133], vec![0x31]));
    let both = records(&zone, &[0, 2], &[]);
    assert_eq!(hosts(&both), (vec![133], vec![0x31, 0x33]));
    assert_ne!(zone.carried([0], [2]), zone.carried([0, 2], []));
}

#[test]
fn what_is_given_twice_is_in_the_zone_once() {
    let mut topology = sample();
    let dns = topology.dns.as_mut().unwrap();
    dns.txt = vec!["a".to_owned(), "b".to_owned(), "a".to_owned()];
    dns.caa.push(dns.caa[0].clone());
    let mut again = dns.nameservers[0].clone();
    again.name.make_ascii_uppercase();
    dns.nameservers.push(again);
    let zone = Zone::new(&topology).unwrap();
    for (rtype, records) in [(Type::TXT, 2), (Type::CAA, 1), (Type::NS, 2)] {
        let expected = format!("rtc.example.com. {rtype:?} x{records} ttl 3600");
        assert_eq!(said(&zone, "rtc.example.com", rtype), expected);
    }
}

#[test]
fn browsers_are_not_sent_to_https_where_there_is_none() {
    let mut topology = sample();
    topology.regions[0].signaling_url = "http://eu.example/whip".to_owned();
    let zone = Zone::new(&topology).unwrap();
    assert_eq!(zone.steered(&zone.carried([1], [])).https, None);
    let at = |name: &str| said(&zone, &format!("{name}rtc.example.com"), Type::HTTPS);
    assert_eq!(at("signaling."), "NoData");
    assert_eq!(at("eu.signaling."), "NoData");
    assert_eq!(
        at("ap.signaling."),
        "ap.signaling.rtc.example.com. TYPE65 x1 ttl 3600"
    );
    topology.dns.as_mut().unwrap().alpn.clear();
    let zone = Zone::new(&topology).unwrap();
    assert_eq!(
        said(&zone, "ap.signaling.rtc.example.com", Type::HTTPS),
        "NoData"
    );
}

#[test]
fn no_name_is_given_twice() {
    let mut topology = sample();
    topology.dns.as_mut().unwrap().nameservers[0].name = "signaling.rtc.example.com".to_owned();
    let error = Zone::new(&topology).unwrap_err();
    assert_eq!(
        error,
        ZoneError::Taken("signaling.rtc.example.com.".to_owned())
    );
    topology.dns = None;
    assert_eq!(Zone::new(&topology).unwrap_err(), ZoneError::Missing);
}

#[test]
fn records_have_their_wire_form() {
    let zone = zone();
    let Answer::Set(id) = ask(&zone, "ns2.rtc.example.com", Type::A, OUTSIDE) else {
        panic!("no A");
    };
    let set = zone.set(id).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(set.write(Owner::Question, &mut bytes), 1);
    assert_eq!(
        bytes,
        b"\xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\xca"
    );
    bytes.clear();
    assert_eq!(set.write(Owner::Whole, &mut bytes), 1);
    assert!(bytes.starts_with(b"\x03ns2\x03rtc\x07example\x03com\0\0\x01\0\x01"));
    assert_eq!(set.write_signatures(Owner::Whole, &mut bytes), 0);
}

mod signed {
    use ring::rand::SystemRandom;

    use super::*;
    use crate::dnssec::tests::{keys, verifies};
    use crate::dnssec::{Keys, Signer, Validity};

    fn signed(topology: &Topology, keys: &Keys) -> Zone {
        let zone = Zone::new(topology).unwrap();
        let apex = zone.apex().clone();
        zone.sign(&signer(&apex, keys)).unwrap()
    }

    fn signer<'a>(apex: &'a Name, keys: &'a Keys) -> Signer<'a> {
        Signer {
            apex,
            keys,
            validity: Validity::at(1_700_000_000),
            random: Box::leak(Box::new(SystemRandom::new())),
        }
    }

    /// Owner, next name and types of an NSEC set.
    fn nsec(set: &Rrset) -> String {
        assert_eq!((set.rtype, set.rdata.len()), (Type::NSEC, 1));
        let rdata = &set.rdata[0];
        let labels: Vec<_> = name::labels(rdata).collect();
        let next = Name::root().below_labels(labels).unwrap();
        let mut bitmap = &rdata[next.as_wire().len()..];
        let mut types = Vec::new();
        while let [window, len, rest @ ..] = bitmap {
            let (bits, rest) = rest.split_at((*len).into());
            assert_ne!(bits.last(), Some(&0), "RFC 4034 §4.1.2");
            for (at, byte) in (0_u16..).zip(bits) {
                let set = (0..8).filter(|bit| byte & (0x80 >> bit) != 0);
                types.extend(set.map(|bit| u16::from(*window) * 256 + at * 8 + bit));
            }
            bitmap = rest;
        }
        format!("{} {next} {types:?}", set.name)
    }

    fn proof(zone: &Zone, name: &str, rtype: Type) -> Vec<String> {
        let answer = ask(zone, name, rtype, OUTSIDE);
        let name = Name::parse(name).unwrap();
        let ids = zone.denial(answer, name.as_wire());
        ids.iter()
            .flatten()
            .map(|id| nsec(zone.set(*id).unwrap()))
            .collect()
    }

    #[test]
    fn every_set_is_signed_and_the_chain_is_a_ring() {
        let keys = keys();
        let zone = signed(&sample(), &keys);
        let mut next = BTreeMap::new();
        for (_, set) in zone.sets() {
            let is_cut = [Type::NS, Type::SOA].contains(&set.rtype) && set.name != *zone.apex();
            assert_ne!(verifies(set, &keys, zone.apex()), is_cut, "{set:?}");
            if set.rtype == Type::NSEC {
                let text = nsec(set);
                let mut words = text.split(' ').map(str::to_owned);
                next.insert(words.next().unwrap(), words.next().unwrap());
            }
        }
        let (mut at, mut steps) = ("rtc.example.com.".to_owned(), 0);
        while let Some(name) = next.remove(&at) {
            (at, steps) = (name, steps + 1);
        }
        assert!(next.is_empty(), "not on the ring: {next:?}");
        assert_eq!(
            (at.as_str(), steps),
            ("rtc.example.com.", 1 + 2 + 12 + 1 + 4 + 1)
        );
    }

    #[test]
    fn absence_is_proven() {
        let zone = signed(&sample(), &keys());
        let end = "ns2.rtc.example.com. signaling.rtc.example.com. [1, 46, 47]";
        let start = "rtc.example.com. ams.ingress.rtc.example.com. [2, 6, 46, 47, 48, 59, 60, 257]";
        let signaling =
            "signaling.rtc.example.com. _explain.signaling.rtc.example.com. [1, 28, 46, 47, 65]";
        let explain =
            "_explain.signaling.rtc.example.com. ap.signaling.rtc.example.com. [2, 46, 47]";
        let eu =
            "eu.signaling.rtc.example.com. us-east.signaling.rtc.example.com. [1, 28, 46, 47, 65]";
        let last = "us-west.signaling.rtc.example.com. rtc.example.com. [1, 28, 46, 47, 65]";
        let waw = "waw.ingress.rtc.example.com. ns1.rtc.example.com. [1, 28, 46, 47]";
        for (name, rtype, expected) in [
            ("rtc.example.com", Type::A, &[start][..]),
            ("rtc.example.com", Type::SOA, &[]),
            ("ns2.rtc.example.com", Type::AAAA, &[end]),
            ("signaling.rtc.example.com", Type::TXT, &[signaling]),
            // A cut without a DS: that what is said there is not signed is proven.
            ("_explain.signaling.rtc.example.com", Type::DS, &[explain]),
            // A name between others has no NSEC of its own.
            ("ingress.rtc.example.com", Type::A, &[start]),
            // The gap of the name, then that of the wildcard.
            ("nsx.rtc.example.com", Type::A, &[end, start]),
            ("a.b.c.rtc.example.com", Type::A, &[start]),
            ("zzz.rtc.example.com", Type::A, &[last, start]),
            ("mars.signaling.rtc.example.com", Type::A, &[eu, signaling]),
            ("zzz.ingress.rtc.example.com", Type::A, &[waw, start]),
            (
                "a.zzz.signaling.rtc.example.com",
                Type::A,
                &[last, signaling],
            ),
            ("example.com", Type::A, &[]),
        ] {
            assert_eq!(proof(&zone, name, rtype), expected, "{name} {rtype:?}");
        }
        let unsigned = super::zone();
        assert!(proof(&unsigned, "nsx.rtc.example.com", Type::A).is_empty());
    }

    #[test]
    fn a_selection_proves_what_it_lacks() {
        let mut topology = sample();
        topology.regions[0].signaling_addresses.truncate(1);
        let keys = keys();
        let zone = signed(&topology, &keys);
        let signer = signer(zone.apex(), &keys);
        let mut steered = zone.steered(&zone.carried([0], []));
        zone.sign_steered(&mut steered, &signer).unwrap();
        assert_eq!(steered.aaaa, None);
        let proof = steered.nsec.as_ref().unwrap();
        let expected =
            "signaling.rtc.example.com. _explain.signaling.rtc.example.com. [1, 46, 47, 65]";
        assert_eq!((nsec(proof).as_str(), proof.ttl_s), (expected, 0));
        let sets = [&steered.a, &steered.https, &steered.nsec];
        for set in sets.into_iter().flatten() {
            assert!(verifies(set, &keys, zone.apex()));
        }

        let unsigned = Zone::new(&topology).unwrap();
        let mut steered = unsigned.steered(&unsigned.carried([0], []));
        unsigned.sign_steered(&mut steered, &signer).unwrap();
        assert_eq!(steered, unsigned.steered(&unsigned.carried([0], [])));
    }

    #[test]
    fn signatures_may_be_asked_for() {
        let zone = signed(&sample(), &keys());
        let ask = |name, rtype| ask(&zone, name, rtype, OUTSIDE);
        let apex = "rtc.example.com";
        let Answer::Set(soa) = ask(apex, Type::SOA) else {
            panic!("no SOA");
        };
        assert_eq!(ask(apex, Type::RRSIG), Answer::Signatures(Signed::Set(soa)));
        let steered = ask("signaling.rtc.example.com", Type::RRSIG);
        assert_eq!(steered, Answer::Signatures(Signed::Steered));
        assert!(matches!(
            ask("_explain.signaling.rtc.example.com", Type::RRSIG),
            Answer::CutNoData
        ));
        for rtype in [Type::DNSKEY, Type::CDS, Type::CDNSKEY, Type::NSEC] {
            let Answer::Set(id) = ask(apex, rtype) else {
                panic!("no {rtype:?}");
            };
            assert_eq!(zone.set(id).unwrap().rtype, rtype);
        }
        assert!(matches!(
            ask("ingress.rtc.example.com", Type::NSEC),
            Answer::NoData(_)
        ));
        assert!(matches!(
            ask("ingress.rtc.example.com", Type::ANY),
            Answer::NoData(_)
        ));
    }
}
