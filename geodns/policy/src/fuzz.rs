//! Harness for fuzzing: any bytes as a database. No panic, an end, and a walk and a look-up that agree.

use std::net::IpAddr;

use crate::databases::{Database, Databases, Networks, Raw, probe, special};

/// A harness.
pub type Target = fn(&[u8]);

/// Every harness by name; the name is also its corpus directory.
pub const TARGETS: [(&str, Target); 1] = [("mmdb", mmdb)];

/// Networks whose facts are looked up again.
const CHECKED_MAX: usize = 512;

/// A database: what is known of a network's ends is what a look-up in the bytes finds there.
///
/// # Panics
/// When a property does not hold.
pub fn mmdb(bytes: &[u8]) {
    let (Ok(raw), opened) = (Raw::open(bytes.to_vec()), Database::open(bytes.to_vec())) else {
        assert!(Database::open(bytes.to_vec()).is_err());
        return;
    };
    let about = raw.about();
    assert!(about.kind.chars().count() <= 64 && about.bytes == bytes.len());
    let whole_v4 = walk(
        &raw,
        opened.as_ref().ok(),
        raw.networks_v4(),
        u32::MAX.into(),
    );
    let whole_v6 = walk(&raw, opened.as_ref().ok(), raw.networks_v6(), u128::MAX);
    assert_eq!(opened.is_ok(), whole_v4 && whole_v6);
    let Ok(database) = opened else {
        return;
    };
    if let Ok(survey) = probe(&database, None) {
        assert!(survey.located + survey.coordinates + survey.asn > 0);
        assert_eq!(probe(&database, Some(&survey)), Ok(survey));
    }
    let databases = Databases::new([database.into()]);
    for private in ["10.0.0.1", "fe80::1", "::ffff:127.0.0.1"] {
        let private = private.parse().expect("an address");
        assert!(databases.facts(private).is_unknown());
    }
}

/// Whether the walk comes to the last address.
fn walk(raw: &Raw, opened: Option<&Database>, networks: Networks<'_>, end: u128) -> bool {
    let address = |bits: u128| match u32::try_from(bits) {
        Ok(bits) if end == u32::MAX.into() => IpAddr::V4(bits.into()),
        _ => IpAddr::V6(bits.into()),
    };
    let mut next = Some(0);
    for (count, network) in networks.enumerate() {
        let Ok(network) = network else {
            return false;
        };
        let first = next.expect("nothing follows the last address");
        assert!(first <= network.last && network.last <= end, "out of order");
        let ends = [first, network.last].map(address);
        for address in ends.into_iter().filter(|address| is_walked(*address)) {
            if let Some(database) = opened
                && count < CHECKED_MAX
            {
                assert_eq!(database.facts(address), raw.facts(address), "{address}");
            }
        }
        next = network.last.checked_add(1).filter(|next| *next <= end);
    }
    assert_eq!(next, None, "addresses are left");
    true
}

/// Not `::/8` and not what carries IPv4 addresses.
fn is_walked(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => v6.octets().first() != Some(&0) && special::canonical(address) == address,
    }
}
