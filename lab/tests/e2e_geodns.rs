//! GeoDNS nodes against gdnsd from Debian with the same database and the same map: the same answers with the same scopes; and
//! files that are replaced under load.

#![cfg(test)]

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use lab::bench::geodns::answer::Answer;
use lab::bench::geodns::ask;
use lab::bench::geodns::database::{Database, Edition};
use lab::bench::geodns::query::{A, Query};
use lab::bench::geodns::questions::mixed;
use lab::bench::geodns::reload;
use lab::bench::geodns::servers::{Running, Server};
use lab::net::programs_dir;
use lab::standstill::{Figures, figures};

/// Where a test writes, emptied when it passes.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let dir = programs_dir().unwrap().join("e2e-runs").join(name);
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// So that no figure of the benchmark is that of a server set up wrong.
#[test]
fn every_name_server_of_the_benchmark_gives_the_answers_of_the_map() {
    let dir = Dir::new("geodns-map");
    let database = Database::write(&dir.0, Edition::First).unwrap();
    let queries: Vec<_> = mixed(3_000, 11, &database)
        .into_iter()
        .filter(|query| place_of(query, &database).is_some())
        .collect();
    assert!(queries.len() > 1000);
    for server in Server::ALL
        .into_iter()
        .filter(|server| *server != Server::Floor)
    {
        if let Some(why) = server.missing() {
            println!("{}: {why}", server.name());
            continue;
        }
        let running = Running::start(server, &database).unwrap();
        let answers = ask::all(running.address(), &queries).unwrap();
        for (query, answer) in queries.iter().zip(&answers) {
            let expected = place_of(query, &database);
            assert_eq!(answer.address, expected, "{} {query:?}", server.name());
        }
    }
}

/// What the map says of plain addresses; of what is special the servers may differ.
fn place_of(query: &Query, database: &Database) -> Option<IpAddr> {
    let subnet = query.subnet?;
    if subnet.prefix_len == 0 || is_special(subnet.address) {
        return None;
    }
    let place = database.place(subnet.address)?;
    Some(if query.kind == A {
        place.v4().into()
    } else {
        place.v6().into()
    })
}

/// Space that servers may see differently (RFC 6890); gdnsd and ours do not, Knot and hickory-server alone ask their database.
fn is_special(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => SPECIAL_V4.iter().any(|(net, len)| is_in_v4(v4, *net, *len)),
        IpAddr::V6(v6) => SPECIAL_V6.iter().any(|(net, len)| is_in_v6(v6, *net, *len)),
    }
}

const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

const SPECIAL_V6: &[(Ipv6Addr, u32)] = &[
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 8),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8),
];

fn is_in_v4(address: Ipv4Addr, net: Ipv4Addr, len: u32) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (32 - len) == 0
}

fn is_in_v6(address: Ipv6Addr, net: Ipv6Addr, len: u32) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (128 - len) == 0
}

#[test]
fn answers_and_scopes_are_those_of_gdnsd() {
    let dir = Dir::new("geodns-differential");
    let database = Database::write(&dir.0, Edition::First).unwrap();
    let (ours, theirs) = (
        Running::start(Server::Ours, &database).unwrap(),
        Running::start(Server::Gdnsd, &database).unwrap(),
    );
    let queries = mixed(QUERIES, 5, &database);
    let our_answers = ask::all(ours.address(), &queries).unwrap();
    let their_answers = ask::all(theirs.address(), &queries).unwrap();
    let answers = our_answers.iter().zip(&their_answers);
    let same = |answer: &Answer| (answer.code, answer.records, answer.address, answer.subnet);
    // The table of differences that are justified is empty: there are none.
    let different: Vec<_> = queries
        .iter()
        .zip(answers)
        .filter(|(_, (ours, theirs))| same(ours) != same(theirs))
        .collect();
    for (query, (ours, theirs)) in different.iter().take(20) {
        println!("{query:?}\n  ours   {ours:?}\n  theirs {theirs:?}");
    }
    assert!(different.is_empty(), "{} differ", different.len());
    let scopes = our_answers.iter().filter_map(|answer| answer.subnet);
    let scopes: BTreeSet<_> = scopes.map(|subnet| subnet.scope).collect();
    assert!(scopes.len() > 30, "scopes are all alike: {scopes:?}");
}

#[test]
fn files_that_are_replaced_under_load_cost_no_answer() {
    let dir = Dir::new("geodns-reload");
    figures("files that are replaced under load", || {
        let found = reload::run(RELOAD_RATE, &dir.0).unwrap();
        println!("{}", reload::text(&found));
        assert_eq!((found.refused, found.wrong), (0, 0));
        assert!(found.sent > u64::from(RELOAD_RATE) / 2, "hardly any load");
        assert_eq!(found.changes.len(), 5);
        let mut figures = Figures::default();
        figures.below("answers that did not come", found.lost, 1);
        figures
    })
    .unwrap();
}

const QUERIES: usize = 100_000;
/// Well below what a busy machine can ask; the benchmark asks five times as much.
const RELOAD_RATE: u32 = 20_000;
