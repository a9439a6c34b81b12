//! Which ingress addresses an answer advertises, and in which order. A pure function of the topology.

use std::net::SocketAddr;

use topology::{Pop, Topology};

/// No PoP of this name serves the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no PoP of this name serves this region")]
pub struct UnknownPop;

/// The candidates for a session of `region`: the PoPs that serve it in topology order, `signaling.ingress_max` PoPs at
/// most with all addresses of each, then the VIPs. A PoP the client asked for by name stands alone: that is
/// how one tells PoPs apart.
///
/// # Errors
/// [`UnknownPop`] when `wanted` does not exist or has no links to the region.
pub fn select(
    topology: &Topology,
    region: &str,
    wanted: Option<&str>,
) -> Result<Vec<SocketAddr>, UnknownPop> {
    let mut serving = topology.pops.iter().filter(|pop| serves(pop, region));
    if let Some(name) = wanted {
        let pop = serving.find(|pop| pop.name == name).ok_or(UnknownPop)?;
        return Ok(addresses(pop));
    }
    let pops_max = usize::from(topology.network.signaling.ingress_max);
    let mut chosen: Vec<SocketAddr> = Vec::new();
    let of_pops = serving.take(pops_max).flat_map(addresses);
    // An address that moves between PoPs is one candidate.
    for address in of_pops.chain(topology.network.vips.iter().copied()) {
        if !chosen.contains(&address) {
            chosen.push(address);
        }
    }
    Ok(chosen)
}

fn serves(pop: &Pop, region: &str) -> bool {
    pop.regions
        .as_ref()
        .is_none_or(|regions| regions.iter().any(|name| name == region))
}

/// The first address of each family, then the others, each part in topology order.
fn addresses(pop: &Pop) -> Vec<SocketAddr> {
    let first = |v4: bool| pop.ingress.iter().position(|addr| addr.is_ipv4() == v4);
    let (v4, v6) = (first(true), first(false));
    let leads = |index: usize| Some(index) == v4 || Some(index) == v6;
    let indexed = || pop.ingress.iter().enumerate();
    indexed()
        .filter(|(index, _)| leads(*index))
        .chain(indexed().filter(|(index, _)| !leads(*index)))
        .map(|(_, addr)| *addr)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// name, ingress, regions
    type Row = (
        &'static str,
        &'static [&'static str],
        Option<&'static [&'static str]>,
    );

    const POPS: &[Row] = &[
        ("ams", &["192.0.2.1:3478", "[2001:db8::1]:3478"], None),
        ("nyc", &["192.0.2.2:3478"], Some(&["us"])),
        ("sin", &["192.0.2.3:3478"], Some(&["us", "eu"])),
        (
            "fra",
            &[
                "192.0.2.4:3478",
                "192.0.2.4:443",
                "[2001:db8::4]:443",
                "[2001:db8::4]:3478",
            ],
            Some(&["eu"]),
        ),
        // Either serves the address.
        ("ewr", &["192.0.2.2:3478"], Some(&["sa"])),
        ("nyc2", &["192.0.2.2:3478"], Some(&["sa"])),
    ];

    #[test]
    fn table() {
        let ams = ["192.0.2.1:3478", "[2001:db8::1]:3478"].as_slice();
        let sin = ["192.0.2.3:3478"].as_slice();
        let fra = [
            "192.0.2.4:3478",
            "[2001:db8::4]:443",
            "192.0.2.4:443",
            "[2001:db8::4]:3478",
        ]
        .as_slice();
        let nyc = ["192.0.2.2:3478"].as_slice();
        let vip = ["198.51.100.1:3478"].as_slice();
        let of = |parts: &[&[&'static str]]| Ok(parts.concat());
        for (name, region, wanted, ingress_max, vips, expected) in [
            (
                "order, all of each",
                "eu",
                None,
                9,
                &[][..],
                of(&[ams, sin, fra]),
            ),
            ("other region", "us", None, 9, &[], of(&[ams, nyc, sin])),
            ("bound counts PoPs", "eu", None, 2, &[], of(&[ams, sin])),
            ("VIPs come last", "eu", None, 1, vip, of(&[ams, vip])),
            ("VIPs alone", "eu", None, 0, vip, of(&[vip])),
            ("no VIP twice", "eu", None, 2, sin, of(&[ams, sin])),
            ("one PoP alone", "eu", Some("fra"), 1, vip, of(&[fra])),
            ("unknown PoP", "eu", Some("lhr"), 3, &[], Err(UnknownPop)),
            ("other region's", "eu", Some("nyc"), 3, &[], Err(UnknownPop)),
            ("empty name", "eu", Some(""), 3, &[], Err(UnknownPop)),
            ("an address that moves", "sa", None, 3, &[], of(&[ams, nyc])),
            ("region of one", "ap", None, 3, &[], of(&[ams])),
        ] {
            let topology = topology(ingress_max, vips);
            let expected = expected.map(|addrs| parse(&addrs));
            assert_eq!(select(&topology, region, wanted), expected, "{name}");
        }
    }

    fn parse(addrs: &[&str]) -> Vec<SocketAddr> {
        addrs.iter().map(|addr| addr.parse().unwrap()).collect()
    }

    fn topology(ingress_max: u8, vips: &[&str]) -> Topology {
        let pops: Vec<_> = POPS
            .iter()
            .zip(1..)
            .map(|((name, ingress, regions), id)| {
                serde_json::json!({ "name": name, "id": id, "ingress": ingress, "regions": regions })
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "version": 1,
            "network": { "name": "n", "vips": vips, "signaling": { "ingress_max": ingress_max } },
            "regions": [],
            "pops": pops,
        }))
        .unwrap()
    }
}
