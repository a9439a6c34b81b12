//! The database of the whole world that `cargo xtask geo-db` fetches, opened and compiled: tables and decisions agree, scopes are
//! right, everything is quick. In release, like all tests of this name.

#![cfg(test)]

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use geodns_policy::compile::{Compiled, compile};
use geodns_policy::databases::{Database, Databases, probe, special};
use geodns_policy::{Client, Plan, Ranking, Snapshot, classify, rank};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use topology::Topology;

const CLIENTS: usize = 100_000;

fn database() -> Arc<Database> {
    let programs = std::env::var_os("FIRSTHOP_BIN_DIR").map(PathBuf::from);
    let programs = programs.expect("FIRSTHOP_BIN_DIR, as `cargo xtask test` sets it");
    let file = programs
        .parent()
        .unwrap()
        .join("geo-databases/iptoasn-country.mmdb");
    let bytes = std::fs::read(&file);
    let bytes = bytes.unwrap_or_else(|_| panic!("no {}: run `cargo xtask geo-db`", file.display()));
    Arc::new(Database::open(bytes).unwrap())
}

/// The sample of a network round the world, with a rule of every kind.
fn topology() -> Topology {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../topology/samples/world.yaml"
    );
    topology::load(&std::fs::read_to_string(path).unwrap(), "world.yaml").unwrap()
}

fn world() -> (Snapshot, Databases, Compiled<Ranking>) {
    let snapshot = Snapshot::of(Plan::new(&topology()));
    let databases = Databases::new([database()]);
    let compiled = compile(&snapshot, &databases).unwrap();
    (snapshot, databases, compiled)
}

/// Half of each family; of IPv6 what is given out, and what carries IPv4.
fn client(rng: &mut TestRng) -> IpAddr {
    let random = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    match rng.next_u32() % 8 {
        0..4 => IpAddr::V4(rng.next_u32().into()),
        4 => IpAddr::V6((0x2001_u128 << 112 | random >> 20).into()),
        5 => IpAddr::V6((0x2002_u128 << 112 | random >> 16).into()),
        6 => IpAddr::V6((0x2_u128 << 124 | random >> 4).into()),
        _ => IpAddr::V6((0x2a00_u128 << 112 | random >> 12).into()),
    }
}

/// Another client in the prefix an answer holds for.
fn neighbour(client: IpAddr, scope: u8, rng: &mut TestRng) -> IpAddr {
    let random = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    match client {
        IpAddr::V4(v4) => {
            let hosts = u32::MAX.checked_shr(scope.into()).unwrap_or(0);
            let random = u32::try_from(random >> 96).unwrap();
            IpAddr::V4((v4.to_bits() & !hosts | random & hosts).into())
        }
        IpAddr::V6(v6) => {
            let hosts = u128::MAX.checked_shr(scope.into()).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & !hosts | random & hosts).into())
        }
    }
}

#[test]
fn tables_say_what_decisions_rest_on() {
    let (snapshot, databases, compiled) = world();
    let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[3; 32]);
    let mut known = 0;
    for _ in 0..CLIENTS {
        let address = client(&mut rng);
        let located = compiled.tables.lookup(address);
        let facts = databases.facts(address);
        known += usize::from(facts.country.is_some());
        let class = classify(&Client::new(address, facts), &snapshot);
        let ranking = rank(&class, &snapshot).for_regions(&snapshot.plan);
        assert_eq!(
            compiled.lists[located.list.0 as usize], ranking,
            "{address}"
        );
        let other = neighbour(address, located.scope, &mut rng);
        // An IPv6 prefix that ends before the IPv4 address begins is never a scope.
        assert_eq!(
            compiled.tables.lookup(other),
            located,
            "{address} and {other} in /{}",
            located.scope
        );
    }
    assert!(known > CLIENTS / 3, "only {known} are known at all");
}

#[test]
fn a_database_of_the_world_is_fit_and_compiled_in_time() {
    let database = database();
    let survey = probe(&database, None).unwrap();
    assert!(survey.ipv4 > 200_000 && survey.ipv6 > 50_000, "{survey:?}");
    assert_eq!(survey.records_bad, 0);
    let (_, _, compiled) = world();
    println!("{survey:?}\n{:?}", compiled.figures);
    assert!(compiled.figures.bytes < 16 << 20);
    assert!(compiled.figures.lists < 1000);
}

/// Special space is unknown, and a list of its own only where neighbours differ.
#[test]
fn special_space_has_the_list_of_nobody() {
    let (_, databases, compiled) = world();
    let unknown = compiled.tables.lookup("10.0.0.1".parse().unwrap()).list;
    for address in [
        "100.64.0.1",
        "192.168.1.1",
        "127.0.0.1",
        "::1",
        "fd00::1",
        "2002:a00:1::1",
        "2001:db8::1",
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert!(databases.facts(address).is_unknown());
        assert!(special::special(special::canonical(address)).is_some());
        assert_eq!(compiled.tables.lookup(address).list, unknown, "{address}");
    }
}
