//! Which ingress addresses an answer advertises, and in which order. A pure function of the topology.

use std::net::SocketAddr;

use topology::{Pop, Topology};

use crate::signaling::steering::Way;

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
        return Ok(pop.advertised());
    }
    let pops_max = usize::from(topology.network.signaling.ingress_max);
    let of_pops = serving.take(pops_max).flat_map(Pop::advertised);
    Ok(once_each(
        of_pops.chain(topology.network.vips.iter().copied()),
    ))
}

/// The candidates that steering chose, in its order. What the topology does not have, or does not serve the region, is left out;
/// `signaling.ingress_max` PoPs at most.
#[must_use]
pub(super) fn steered(topology: &Topology, region: &str, ways: &[Way]) -> Vec<SocketAddr> {
    let mut pops_left = topology.network.signaling.ingress_max;
    let addresses = ways.iter().flat_map(|way| match way {
        Way::Vips => topology.network.vips.clone(),
        Way::Pop(name) => {
            let pop = topology.pop_named(name);
            let pop = pop.filter(|pop| pops_left > 0 && serves(pop, region));
            pops_left -= u8::from(pop.is_some());
            pop.map(Pop::advertised).unwrap_or_default()
        }
    });
    once_each(addresses)
}

/// The candidates when steering does not answer: what all PoPs share leads to the nearest without anybody's advice, so the VIPs
/// come first.
#[must_use]
pub(super) fn unsteered(topology: &Topology, region: &str) -> Vec<SocketAddr> {
    let pops = select(topology, region, None).unwrap_or_default();
    once_each(topology.network.vips.iter().copied().chain(pops))
}

/// An address that moves between PoPs is one candidate.
fn once_each(addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    let mut chosen: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        if !chosen.contains(&address) {
            chosen.push(address);
        }
    }
    chosen
}

fn serves(pop: &Pop, region: &str) -> bool {
    pop.regions
        .as_ref()
        .is_none_or(|regions| regions.iter().any(|name| name == region))
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

    #[test]
    fn steered_and_not() {
        let pop = |name: &str| Way::Pop(name.to_owned());
        let (sin, fra) = (pop("sin"), pop("fra"));
        let vip = ["198.51.100.1:3478"];
        let topology = topology(2, &vip);
        for (name, ways, expected) in [
            (
                "as it says",
                &[sin.clone(), Way::Vips][..],
                &["192.0.2.3:3478", vip[0]][..],
            ),
            (
                "VIPs first",
                &[Way::Vips, sin.clone()],
                &[vip[0], "192.0.2.3:3478"],
            ),
            (
                "nothing twice",
                &[sin.clone(), sin.clone()],
                &["192.0.2.3:3478"],
            ),
            ("another region's", &[pop("nyc"), Way::Vips], &[vip[0]]),
            ("unknown", &[pop("lhr")], &[]),
            ("nobody", &[], &[]),
        ] {
            assert_eq!(steered(&topology, "eu", ways), parse(expected), "{name}");
        }
        let bounded = steered(&topology, "eu", &[sin, fra, pop("ams")]);
        assert_eq!(bounded.len(), 1 + 4, "two PoPs");
        let without = unsteered(&topology, "eu");
        assert_eq!(without.first(), parse(&vip).first());
        assert_eq!(without.len(), 1 + 2 + 1);
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
