//! Databases of every shape vendors ship, and every one that is damaged on purpose.

#![cfg(test)]

#[path = "support/mmdb.rs"]
mod mmdb;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use geodns_policy::databases::{Database, DatabaseError, Databases, ProbeError, probe};
use geodns_policy::{Country, Facts, Place, PlaceOf};
use mmdb::{Draft, Value, map, text};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use topology::Continent;

fn corpus() -> Vec<(String, PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpora/mmdb");
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let bytes = std::fs::read(&path).unwrap();
            (name, path, bytes)
        })
        .collect();
    files.sort();
    files
}

fn open(draft: &Draft) -> Arc<Database> {
    Arc::new(Database::open(draft.write()).unwrap())
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn net(text: &str) -> ipnet::IpNet {
    text.parse().unwrap()
}

fn country(code: &str) -> Option<Country> {
    Country::new(code)
}

#[test]
fn the_corpus_holds_and_so_do_its_mutations() {
    let corpus = corpus();
    assert!(corpus.len() >= 40, "files are missing");
    for (name, target) in geodns_policy::fuzz::TARGETS {
        assert_eq!(name, "mmdb");
        for (_, path, bytes) in &corpus {
            check(target, bytes, &path.display().to_string());
        }
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
        for round in 0..MUTATIONS {
            let bytes = mutate(&corpus, &mut rng);
            check(target, &bytes, &format!("seeded input {round}"));
        }
    }
}

const MUTATIONS: usize = 4_000;

fn check(target: fn(&[u8]), bytes: &[u8], origin: &str) {
    let outcome = std::panic::catch_unwind(|| target(bytes));
    assert!(outcome.is_ok(), "failed on {origin}: {bytes:02x?}");
}

/// A file with a few bytes changed, mostly near its ends, where the tree and the metadata are; sometimes cut off.
fn mutate(corpus: &[(String, PathBuf, Vec<u8>)], rng: &mut TestRng) -> Vec<u8> {
    let below = |rng: &mut TestRng, n: usize| {
        let random = rng.next_u32() % u32::try_from(n.max(1)).unwrap();
        usize::try_from(random).unwrap()
    };
    let (_, _, bytes) = &corpus[below(rng, corpus.len())];
    let mut bytes = bytes.clone();
    if below(rng, 8) == 0 {
        bytes.truncate(below(rng, bytes.len() + 1));
    }
    for _ in 0..=below(rng, 8) {
        let len = bytes.len();
        let window = 256.min(len);
        let at = match below(rng, 3) {
            0 => below(rng, window),
            1 => len.saturating_sub(1 + below(rng, window)),
            _ => below(rng, len),
        };
        if let Some(byte) = bytes.get_mut(at) {
            *byte = rng.next_u32().to_le_bytes()[0];
        }
    }
    bytes
}

/// What becomes of each file.
#[test]
fn every_file_is_used_or_refused_for_a_reason() {
    let found: Vec<_> = corpus()
        .into_iter()
        .map(|(name, _, bytes)| (name, verdict(bytes)))
        .collect();
    let expected: Vec<_> = VERDICTS
        .into_iter()
        .map(|(name, verdict)| (name.to_owned(), verdict))
        .collect();
    assert_eq!(found, expected);
}

fn verdict(bytes: Vec<u8>) -> &'static str {
    let database = match Database::open(bytes) {
        Ok(database) => database,
        Err(DatabaseError::Format) => return "format",
        Err(DatabaseError::Tree) => return "tree",
        Err(DatabaseError::TooLarge) => return "too large",
    };
    match probe(&database, None) {
        Ok(_) => "used",
        Err(ProbeError::Records) => "records",
        Err(ProbeError::Empty) => "empty",
        Err(ProbeError::Misplaced) => "misplaced",
        Err(ProbeError::Shrunk) => "shrunk",
    }
}

const VERDICTS: [(&str, &str); 44] = [
    ("GeoIP2-City-Test", "used"),
    ("GeoIP2-City-Test-Broken-Double-Format", "records"),
    ("GeoIP2-City-Test-Invalid-Node-Count", "format"),
    ("GeoIP2-Country-Test", "used"),
    ("GeoLite2-ASN-Test", "used"),
    ("MaxMind-DB-no-ipv4-search-tree", "records"),
    ("MaxMind-DB-string-value-entries", "records"),
    ("MaxMind-DB-test-broken-pointers-24", "tree"),
    ("MaxMind-DB-test-broken-search-tree-24", "tree"),
    ("MaxMind-DB-test-decode-path-shared-budget", "empty"),
    ("MaxMind-DB-test-decoder", "empty"),
    (
        "MaxMind-DB-test-decoder-value-limit-pointer-heavy",
        "records",
    ),
    ("MaxMind-DB-test-ipv4-24", "empty"),
    ("MaxMind-DB-test-ipv4-28", "empty"),
    ("MaxMind-DB-test-ipv4-32", "empty"),
    ("MaxMind-DB-test-ipv6-24", "empty"),
    ("MaxMind-DB-test-ipv6-32", "empty"),
    ("MaxMind-DB-test-metadata-pointers", "empty"),
    ("MaxMind-DB-test-mixed-24", "empty"),
    ("MaxMind-DB-test-mixed-28", "empty"),
    ("MaxMind-DB-test-nested", "empty"),
    ("MaxMind-DB-test-pointer-decoder-dos", "records"),
    ("MaxMind-DB-test-pointer-decoder-dos-ipv6", "records"),
    ("bad-unicode-in-map-key", "tree"),
    ("cyclic-data-structure", "format"),
    ("invalid-bytes-length", "format"),
    ("invalid-data-record-offset", "format"),
    ("invalid-map-key-length", "format"),
    ("invalid-string-length", "format"),
    ("libmaxminddb-corrupt-search-tree", "empty"),
    ("libmaxminddb-deep-array-nesting", "records"),
    ("libmaxminddb-deep-nesting", "records"),
    ("libmaxminddb-empty-array-last-in-metadata", "empty"),
    ("libmaxminddb-empty-map-last-in-metadata", "empty"),
    ("libmaxminddb-metadata-marker-only", "format"),
    ("libmaxminddb-offset-integer-overflow", "format"),
    ("libmaxminddb-oversized-array", "records"),
    ("libmaxminddb-oversized-map", "records"),
    ("libmaxminddb-separator-record-max-left", "tree"),
    ("libmaxminddb-separator-record-min-left", "tree"),
    ("libmaxminddb-separator-record-min-right", "tree"),
    ("libmaxminddb-uint64-max-epoch", "format"),
    ("metadata-is-an-uint128", "format"),
    ("unexpected-bytes", "format"),
];

#[test]
fn nested_databases_of_maxmind() {
    let databases = |names: &[&str]| {
        let files = corpus();
        let named = |name: &&str| {
            let (_, _, bytes) = files.iter().find(|(file, _, _)| file == name).unwrap();
            Arc::new(Database::open(bytes.clone()).unwrap())
        };
        Databases::new(names.iter().map(named))
    };
    let city = databases(&["GeoIP2-City-Test", "GeoLite2-ASN-Test"]);
    let london = Facts {
        country: country("GB"),
        continent: Some(Continent::Eu),
        location: Place::new(51.5, -0.1, PlaceOf::City),
        asn: None,
    };
    assert_eq!(city.facts(address("81.2.69.142")), london);
    // The same client, by other addresses.
    for other in [
        "::ffff:81.2.69.142",
        "2002:5102:458e::1",
        "64:ff9b::81.2.69.142",
        "2001:0:1:2:3:4:aefd:ba71",
    ] {
        assert_eq!(city.facts(address(other)), london, "{other}");
    }
    assert_eq!(city.facts(address("1.128.0.1")).asn, Some(1221));
    assert_eq!(city.facts(address("2001:218::1")).country, country("JP"));
    let countries = databases(&["GeoIP2-Country-Test"]);
    let facts = countries.facts(address("81.2.69.142"));
    assert_eq!(facts.location.map(|place| place.of), Some(PlaceOf::Country));
    assert!(city.facts(address("9.9.9.9")).is_unknown());
}

/// A city database in the flat schema, its families in files of their own, coordinates as `f32` and `f64`; networks in a third.
#[test]
fn flat_databases_split_by_family() {
    let city = |north: Value, east: Value| {
        map([
            ("country_code", text("NL")),
            ("city", text("Amsterdam")),
            ("latitude", north),
            ("longitude", east),
        ])
    };
    let v4 = Draft {
        ip_version: 4,
        ..Draft::new(vec![(
            net("5.0.0.0/16"),
            city(Value::Float(52.37), Value::Float(4.9)),
        )])
    };
    let v6 = Draft::new(vec![(
        net("2a00::/24"),
        city(Value::Double(52.37), Value::Double(4.9)),
    )]);
    let asn = Draft::new(vec![
        (
            net("5.0.128.0/17"),
            map([("autonomous_system_number", Value::Number(64_500))]),
        ),
        (net("2a00:1::/32"), map([("asn", text("AS64501"))])),
    ]);
    let databases = Databases::new([open(&v4), open(&v6), open(&asn)]);
    let amsterdam = Facts {
        country: country("NL"),
        continent: Some(Continent::Eu),
        location: Place::new(52.4, 4.9, PlaceOf::City),
        asn: None,
    };
    let with = |asn| Facts { asn, ..amsterdam };
    assert_eq!(databases.facts(address("5.0.0.1")), amsterdam);
    assert_eq!(databases.facts(address("5.0.200.1")), with(Some(64_500)));
    assert_eq!(databases.facts(address("2a00::1")), amsterdam);
    assert_eq!(databases.facts(address("2a00:1::1")), with(Some(64_501)));
    assert!(databases.facts(address("5.1.0.1")).is_unknown());
    assert_eq!(databases.built_unix_s(), Some(1_790_000_000));
}

#[test]
fn records_may_name_the_continent_alone() {
    let record = map([("continent", map([("code", text("AF"))]))]);
    let databases = Databases::new([open(&Draft::new(vec![(net("41.0.0.0/8"), record)]))]);
    let facts = databases.facts(address("41.1.2.3"));
    assert_eq!(facts.continent, Some(Continent::Af));
    assert_eq!((facts.country, facts.location), (None, None));
}

/// What a database says of private space is not believed.
#[test]
fn special_addresses_are_unknown_whatever_a_database_says() {
    let record = || map([("country_code", text("US"))]);
    let everywhere = vec![
        (net("0.0.0.0/1"), record()),
        (net("128.0.0.0/1"), record()),
        (net("8000::/1"), record()),
    ];
    let databases = Databases::new([open(&Draft::new(everywhere))]);
    for special in [
        "10.1.2.3",
        "100.64.1.1",
        "192.168.0.1",
        "127.0.0.1",
        "169.254.0.1",
        "198.51.100.1",
        "::ffff:10.1.2.3",
        "2002:a00:1::",
        "fd00::1",
        "ff02::1",
    ] {
        assert!(databases.facts(address(special)).is_unknown(), "{special}");
    }
    for ordinary in ["8.8.8.8", "100.128.0.1", "9000::1"] {
        assert_eq!(
            databases.facts(address(ordinary)).country,
            country("US"),
            "{ordinary}"
        );
    }
}

#[test]
fn a_database_of_the_world_must_know_where_well_known_networks_are() {
    let world = |code: &str| {
        let record = map([("country_code", text(code))]);
        let nets = (0..12_000_u32).map(|i| {
            let first = std::net::Ipv4Addr::from(0x0b00_0000 + (i << 8));
            (net(&format!("{first}/24")), record.clone())
        });
        let known = [
            ("193.0.0.0/16", "NL"),
            ("130.149.0.0/16", "DE"),
            ("18.0.0.0/8", "US"),
            ("133.0.0.0/8", "JP"),
        ];
        let known =
            known.map(|(prefix, country)| (net(prefix), map([("country_code", text(country))])));
        Draft::new(nets.chain(known).collect())
    };
    assert_eq!(verdict(world("DE").write()), "used");
    let mut shifted = world("DE");
    for (prefix, record) in &mut shifted.networks {
        if prefix.prefix_len() < 24 {
            *record = map([("country_code", text("BR"))]);
        }
    }
    assert_eq!(verdict(shifted.write()), "misplaced");
    let mut unknown = world("DE");
    unknown.networks.truncate(12_000);
    assert_eq!(verdict(unknown.write()), "misplaced");
}

#[test]
fn a_successor_that_lost_half_is_refused() {
    let draft = |count: u8| {
        let record = |i: u8| {
            (
                net(&format!("{i}.0.0.0/8")),
                map([("country_code", text("FR"))]),
            )
        };
        Draft::new((20..20 + count).map(record).collect())
    };
    let before = probe(&open(&draft(40)), None).unwrap();
    assert!(probe(&open(&draft(20)), Some(&before)).is_ok());
    assert_eq!(
        probe(&open(&draft(19)), Some(&before)),
        Err(ProbeError::Shrunk)
    );
}
