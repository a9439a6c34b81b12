//! Tables against a naive model that asks about every address that could differ, and against `classify` and `rank`.

#![cfg(test)]

#[path = "support/mmdb.rs"]
#[expect(dead_code, reason = "not every test writes every kind of value")]
mod mmdb;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use geodns_policy::compile::{Compiled, Inputs, build};
use geodns_policy::databases::{Database, Databases};
use geodns_policy::{Country, Facts};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use mmdb::{Draft, Value, map, text};
use proptest::prelude::*;

/// A world small enough to be asked about address by address: databases and prefixes, in order of trust.
#[derive(Clone, Debug)]
struct World {
    /// For each database, networks and the country of each.
    databases: Vec<Vec<(IpNet, u8)>>,
    prefixes: Vec<IpNet>,
}

impl World {
    fn databases(&self) -> Databases {
        let open = |networks: &Vec<(IpNet, u8)>| {
            let networks = networks
                .iter()
                .map(|(net, country)| (*net, record(*country)));
            let bytes = Draft::new(networks.collect()).write();
            Arc::new(Database::open(bytes).unwrap())
        };
        Databases::new(self.databases.iter().map(open))
    }

    /// What decides about an address, found by looking at every network: the country of the first database that has one,
    /// and the longest prefix. Folded to few lists, so that neighbours often merge.
    fn list(&self, address: IpAddr) -> u32 {
        let longest = |networks: &Vec<(IpNet, u8)>| {
            let holding = networks
                .iter()
                .enumerate()
                .filter(|(_, (net, _))| net.contains(&address));
            holding
                .max_by_key(|(at, (net, _))| (net.prefix_len(), *at))
                .map(|(_, (_, country))| *country)
        };
        let country = self.databases.iter().find_map(longest);
        let holding = self.prefixes.iter().filter(|net| net.contains(&address));
        let prefix = holding.max_by_key(|net| net.prefix_len());
        fold(country.map(name), prefix.copied())
    }

    /// The largest block around an address all of which has its list: every address that begins something is asked about.
    fn scope(&self, address: IpAddr) -> u8 {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let nets = self
            .databases
            .iter()
            .flatten()
            .map(|(net, _)| *net)
            .chain(self.prefixes.iter().copied());
        let mut starts: Vec<IpAddr> = nets
            .flat_map(|net| [Some(net.network()), after(net)])
            .flatten()
            .collect();
        starts.retain(|start| start.is_ipv4() == address.is_ipv4());
        let list = self.list(address);
        let one = |block: &IpNet| {
            let inside = starts.iter().filter(|start| block.contains(*start));
            self.list(block.network()) == list
                && inside.copied().all(|start| self.list(start) == list)
        };
        let blocks = (0..=bits).map(|len| IpNet::new(address, len).unwrap().trunc());
        blocks
            .into_iter()
            .find(one)
            .map_or(bits, |block| block.prefix_len())
    }

    fn compile(&self) -> Compiled<u32> {
        let databases = self.databases();
        let inputs = Inputs {
            databases: &databases,
            prefixes: &self.prefixes,
        };
        let prefix_of = |client: IpAddr| {
            let holding = self.prefixes.iter().filter(|net| net.contains(&client));
            holding.max_by_key(|net| net.prefix_len()).copied()
        };
        let country = |facts: &Facts| facts.country.map(|country| country.code().to_owned());
        build(
            inputs,
            |facts| facts,
            |class| fold(country(&class.facts), prefix_of(class.client)),
        )
        .unwrap()
    }
}

fn fold(country: Option<String>, prefix: Option<IpNet>) -> u32 {
    let country = country.map_or(0, |code| u32::from(code.as_bytes()[1] % 3) + 1);
    match prefix {
        Some(net) => 10 + u32::from(net.prefix_len() % 2),
        None => country,
    }
}

fn name(country: u8) -> String {
    format!("A{}", char::from(b'A' + country))
}

fn record(country: u8) -> Value {
    map([("country_code", text(&name(country)))])
}

/// The address after a network.
fn after(net: IpNet) -> Option<IpAddr> {
    match net {
        IpNet::V4(net) => u32::from(net.broadcast())
            .checked_add(1)
            .map(|next| Ipv4Addr::from(next).into()),
        IpNet::V6(net) => u128::from(net.broadcast())
            .checked_add(1)
            .map(|next| Ipv6Addr::from(next).into()),
    }
}

/// Networks near each other, so that they nest and touch: of a few ordinary blocks, of any length.
fn network() -> impl Strategy<Value = IpNet> {
    let v4 = (0..4_u32, any::<u32>(), 1..=32_u8).prop_map(|(block, low, len)| {
        let high = [0x0800_0000_u32, 0x0801_0000, 0xd000_0000, 0x5102_4500][block as usize];
        IpNet::V4(
            Ipv4Net::new(Ipv4Addr::from(high | low & 0x3ff), len)
                .unwrap()
                .trunc(),
        )
    });
    let v6 = (0..3_usize, any::<u64>(), any::<u128>(), 4..=128_u8).prop_map(
        |(block, high, low, len)| {
            let base = [0x2a00_1450_u128 << 96, 0x2a00_1451 << 96, 0xb000 << 112][block];
            let bits = base | u128::from(high & 0xf) << 76 | low & 0xf;
            IpNet::V6(Ipv6Net::new(Ipv6Addr::from(bits), len).unwrap().trunc())
        },
    );
    prop_oneof![v4, v6]
}

fn world() -> impl Strategy<Value = World> {
    let database = prop::collection::vec((network(), 0..6_u8), 0..24);
    let databases = prop::collection::vec(database, 0..3);
    (databases, prop::collection::vec(network(), 0..8)).prop_map(|(databases, mut prefixes)| {
        prefixes.sort();
        prefixes.dedup();
        World {
            databases,
            prefixes,
        }
    })
}

/// Special space and what carries IPv4 is the business of other tests: the model knows nothing of it.
fn modelled(address: IpAddr) -> bool {
    use geodns_policy::databases::special;
    special::canonical(address) == address && special::special(address).is_none()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Lists are those of the model; scopes too, where no special space lies in the block.
    #[test]
    fn tables_are_the_naive_model(world in world(), others in prop::collection::vec(any::<(u32, u128)>(), 16)) {
        let compiled = world.compile();
        let nets = world.databases.iter().flatten().map(|(net, _)| *net).chain(world.prefixes.iter().copied());
        let ends = nets.flat_map(|net| [Some(net.network()), Some(net.broadcast()), after(net)]).flatten();
        let others = others.into_iter().flat_map(|(v4, v6)| [IpAddr::V4(v4.into()), IpAddr::V6(v6.into())]);
        for address in ends.chain(others).filter(|address| modelled(*address)) {
            let located = compiled.tables.lookup(address);
            let list = compiled.lists[located.list.0 as usize];
            prop_assert_eq!(list, world.list(address), "{}", address);
            let scope = world.scope(address);
            // A block that the model thinks one may hold special space, which has a list of its own.
            prop_assert!(located.scope >= scope, "{}: {} for {}", address, located.scope, scope);
            let longer = located.scope > scope;
            let block = IpNet::new(address, located.scope.saturating_sub(1)).unwrap();
            prop_assert!(!longer || holds_special(block), "{}: {} for {}", address, located.scope, scope);
        }
    }
}

fn holds_special(block: IpNet) -> bool {
    let special = [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
        "::/8",
        "100::/8",
        "2001::/32",
        "2001:2::/48",
        "2001:10::/28",
        "2001:20::/28",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/9",
        "ff00::/8",
    ];
    special.iter().any(|net| {
        block.contains(&net.parse::<IpNet>().unwrap())
            || net.parse::<IpNet>().unwrap().contains(&block)
    })
}

/// Who carries an IPv4 address has its list, and its scope after the bits before.
#[test]
fn carried_addresses_have_the_list_of_the_ipv4_address() {
    let world = World {
        databases: vec![vec![
            ("81.2.69.0/24".parse().unwrap(), 1),
            ("2000::/3".parse().unwrap(), 2),
        ]],
        prefixes: Vec::new(),
    };
    let compiled = world.compile();
    let lookup = |text: &str| {
        let located = compiled.tables.lookup(text.parse().unwrap());
        (located.list, located.scope)
    };
    let (list, scope) = lookup("81.2.69.142");
    assert_eq!(
        (compiled.lists[list.0 as usize], scope),
        (fold(Some(name(1)), None), 24)
    );
    for (text, bits) in [
        ("::ffff:81.2.69.142", 96),
        ("::81.2.69.142", 96),
        ("64:ff9b::81.2.69.142", 96),
        ("2002:5102:458e::1", 16),
        ("2001:0:1:2:3:4:aefd:ba71", 96),
    ] {
        assert_eq!(lookup(text), (list, scope + bits), "{text}");
    }
    let (list, scope) = lookup("2003::1");
    assert_eq!(
        (compiled.lists[list.0 as usize], scope),
        (fold(Some(name(2)), None), 16)
    );
    assert_eq!(compiled.lists[lookup("::1").0.0 as usize], 0);
}

/// A rule holds for private space, where no database is believed.
#[test]
fn prefixes_hold_in_special_space() {
    let world = World {
        databases: vec![vec![("0.0.0.0/1".parse().unwrap(), 1)]],
        prefixes: vec!["10.1.0.0/16".parse().unwrap()],
    };
    let compiled = world.compile();
    let list = |text: &str| {
        let located = compiled.tables.lookup(text.parse().unwrap());
        (compiled.lists[located.list.0 as usize], located.scope)
    };
    assert_eq!(list("10.1.2.3"), (10, 16));
    assert_eq!(list("10.2.2.3"), (0, 15));
    assert_eq!(list("11.0.0.1"), (fold(Some(name(1)), None), 8));
    assert_eq!(
        Country::new(&name(1)).map(|country| country.code().to_owned()),
        Some(name(1))
    );
}
