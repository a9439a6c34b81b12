//! What holds for any client, any live state and any weights. proptest prints the seed of a failure and keeps it in
//! `properties.proptest-regressions`.

#![cfg(test)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use geodns_policy::{
    Choice, Client, Condition, Country, Decision, Facts, Live, Place, PlaceOf, Plan, PopIx,
    RegionIx, Request, SLOTS, Snapshot, classify, decide, rank, select, slot_of,
};
use proptest::prelude::*;
use topology::{Continent, Topology};

const CONTINENTS: [Continent; 7] = [
    Continent::Af,
    Continent::An,
    Continent::As,
    Continent::Eu,
    Continent::Na,
    Continent::Oc,
    Continent::Sa,
];

fn topology() -> Topology {
    let rules = "steering: { rules: [{ name: a, countries: [AA], regions: [ap], avoid: [fra] }, { name: b, asns: [7], residency: eu, pops: [jnb] }] }\n";
    let text = format!("{}{rules}", include_str!("network.yaml"));
    topology::load(&text, "network.yaml").expect("the network is valid")
}

fn plan() -> Plan {
    Plan::new(&topology())
}

prop_compose! {
    fn clients()(
        v4 in any::<u32>(), v6 in any::<u128>(), is_v4 in any::<bool>(),
        country in prop::option::of(prop::sample::select(vec!["AA", "BB", "CN"])),
        continent in prop::option::of(prop::sample::select(CONTINENTS.to_vec())),
        city in prop::option::of((-90.0..90.0_f64, -180.0..180.0_f64)),
        asn in prop::option::of(5_u32..9),
    ) -> Client {
        let address = if is_v4 { IpAddr::from(Ipv4Addr::from(v4)) } else { Ipv6Addr::from(v6).into() };
        Client::new(address, Facts {
            country: country.and_then(Country::new),
            continent,
            location: city.and_then(|(north, east)| Place::new(north, east, PlaceOf::City)),
            asn,
        })
    }
}

fn conditions() -> impl Strategy<Value = Condition> {
    (any::<bool>(), any::<bool>(), 0..130_u16).prop_map(|(healthy, draining, load_percent)| {
        Condition {
            healthy,
            draining,
            load_percent,
        }
    })
}

fn lives(plan: &Plan) -> impl Strategy<Value = Live> + use<> {
    let well = Live::well(plan);
    let (regions, pops) = (plan.regions().count(), plan.pops().count());
    let drawn = (
        prop::collection::vec(conditions(), regions),
        prop::collection::vec(conditions(), pops),
        prop::collection::vec(1..300_000_u32, regions * pops),
    );
    drawn.prop_map(move |(of_regions, of_pops, backbone)| {
        let mut live = well.clone();
        for (ix, condition) in (0..).map(RegionIx).zip(of_regions) {
            live.set_region(ix, condition);
        }
        for (ix, condition) in (0..).map(PopIx).zip(of_pops) {
            live.set_pop(ix, condition);
        }
        for (at, rtt_us) in (0..).zip(backbone) {
            let at: u16 = at;
            let regions = u16::try_from(regions).expect("few regions");
            live.set_backbone(PopIx(at / regions), RegionIx(at % regions), rtt_us);
        }
        live
    })
}

fn decided(client: &Client, snapshot: &Snapshot) -> Decision {
    decide(client, snapshot, &Request::default())
}

/// What tables answer a client with.
fn by_dns(client: &Client, snapshot: &Snapshot) -> Vec<RegionIx> {
    let ranking = rank(&classify(client, snapshot), snapshot).for_regions(&snapshot.plan);
    match select(&ranking, snapshot) {
        Choice::One(regions) => regions.best.into_vec(),
        Choice::Shared(slots) => {
            assert_eq!(slots.len(), usize::from(SLOTS));
            slots[usize::from(slot_of(client.address()))].best.to_vec()
        }
    }
}

fn names(decision: &Decision) -> (Vec<String>, Vec<String>) {
    [&decision.regions, &decision.ingresses]
        .map(|list| {
            list.iter()
                .map(|candidate| candidate.name.clone())
                .collect()
        })
        .into()
}

/// Who is sent elsewhere to be measured stays with what a rule names.
#[test]
fn exploration_leaves_nothing_that_a_rule_names() {
    let snapshot = Snapshot::of(plan());
    let of = |country, asn| {
        let facts = Facts {
            country: Country::new(country),
            continent: Some(Continent::Eu),
            location: Place::new(50.0, 8.0, PlaceOf::City),
            asn,
        };
        Client::new(IpAddr::from([9, 9, 9, 9]), facts)
    };
    for (client, named) in [
        (of("AA", None), "ap"),
        (of("BB", Some(7)), "jnb"),
        (of("BB", None), ""),
    ] {
        let mut explored = 0;
        for epoch in 0..20_000 {
            let request = Request::default().exploring_at(epoch * 600);
            let decision = decide(&client, &snapshot, &request);
            explored += u32::from(decision.explored_instead_of.is_some());
            match named {
                "ap" => assert_eq!(decision.region, named),
                "jnb" => assert_eq!(decision.ingresses[0].name, named),
                _ => {}
            }
        }
        // The one PoP that is named has no other beside it.
        assert_eq!(explored == 0, named == "jnb", "{named}: {explored}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_answer_is_empty_and_dns_agrees_with_http(client in clients(), live in lives(&plan())) {
        let snapshot = Snapshot { live: Arc::new(live), ..Snapshot::of(plan()) };
        let decision = decide(&client, &snapshot, &Request::default().explaining());
        prop_assert_eq!(decision.regions.len(), 5);
        prop_assert!(!decision.ingresses.is_empty());
        prop_assert_eq!(&decision.regions[0].name, &decision.region);
        prop_assert!(decision.regions[0].lost.is_none());
        prop_assert!(decision.regions[1..].iter().all(|region| region.lost.is_some()));
        prop_assert!(decision.ingresses[0].lost.is_none());
        prop_assert!(decision.ingresses[1..].iter().all(|pop| pop.lost.is_some()));
        let by_dns = by_dns(&client, &snapshot);
        prop_assert_eq!(by_dns.first(), Some(&decision.region_ix));
        for request in ["eu", "us"] {
            let request = Request::new(&snapshot.plan, None, Some(request)).expect("a residency");
            let residency = decide(&client, &snapshot, &request);
            let of_it = topology().regions.iter().any(|region| region.name == residency.region && region.residency == residency.residency);
            prop_assert!(of_it);
        }
    }

    #[test]
    fn all_down_is_as_all_well(client in clients(), which in 0..3_u8) {
        let well = Snapshot::of(plan());
        let mut live = Live::well(&well.plan);
        let down = Condition { healthy: false, ..Condition::default() };
        for region in well.plan.regions().filter(|_| which != 1) {
            live.set_region(region, down);
        }
        for pop in well.plan.pops().filter(|_| which != 0) {
            live.set_pop(pop, down);
        }
        let red = Snapshot { live: Arc::new(live), ..well.clone() };
        prop_assert_eq!(names(&decided(&client, &well)), names(&decided(&client, &red)));
        prop_assert_eq!(by_dns(&client, &well), by_dns(&client, &red));
    }

    #[test]
    fn a_drain_moves_only_its_own_clients(client in clients(), live in lives(&plan()), pop in 0..8_u16, region in 0..5_u16) {
        let before = Snapshot { live: Arc::new(live), ..Snapshot::of(plan()) };
        let was = decided(&client, &before);
        let draining = |condition: Condition| Condition { draining: true, ..condition };

        let mut live = (*before.live).clone();
        live.set_region(RegionIx(region), draining(live.region(RegionIx(region))));
        let after = Snapshot { live: Arc::new(live), ..before.clone() };
        if was.region_ix != RegionIx(region) {
            prop_assert_eq!(decided(&client, &after).region, was.region.clone());
        }

        // Drained PoPs: the region may be reached through another, so only the ingress of one region is compared.
        let mut live = (*before.live).clone();
        live.set_pop(PopIx(pop), draining(live.pop(PopIx(pop))));
        let after = Snapshot { live: Arc::new(live), ..before.clone() };
        let pinned = Request::new(&before.plan, Some(&was.region), None).expect("a region");
        let ingress = |snapshot| decide(&client, snapshot, &pinned).ingress_order().next();
        let was = ingress(&before);
        if was != Some(PopIx(pop)) {
            prop_assert_eq!(ingress(&after), was);
        }
    }

    #[test]
    fn a_client_of_one_share_prefix_is_answered_alike(client in clients(), low in any::<u128>()) {
        let snapshot = Snapshot::of(plan());
        let other = match client.address() {
            IpAddr::V4(ip) => IpAddr::V4((u32::from(ip) & !0xfff | u32::try_from(low & 0xfff).expect("12 bits")).into()),
            IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) & !(u128::MAX >> 40) | low & (u128::MAX >> 40)).into()),
        };
        let other = Client::new(other, client.facts);
        prop_assert_eq!(names(&decided(&client, &snapshot)), names(&decided(&other, &snapshot)));
    }
}

/// Regions of one place, in shares by weight.
fn shares(weights: &[u16], generation: u32) -> BTreeMap<String, Vec<u8>> {
    let mut topology = topology();
    let first = topology.regions[0].clone();
    topology.regions = weights
        .iter()
        .enumerate()
        .map(|(i, weight)| topology::Region {
            name: format!("r{generation}-{i}"),
            weight: *weight,
            ..first.clone()
        })
        .collect();
    topology.steering.rules.clear();
    for pop in &mut topology.pops {
        pop.regions = None;
    }
    let snapshot = Snapshot::of(Plan::new(&topology));
    let place = Place::new(50.1, 8.7, PlaceOf::City);
    let facts = Facts {
        location: place,
        ..Facts::default()
    };
    let client = Client::new(IpAddr::from([9, 9, 9, 9]), facts);
    let ranking = rank(&classify(&client, &snapshot), &snapshot);
    let mut shares: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let slots: Vec<_> = match select(&ranking, &snapshot) {
        Choice::One(regions) => vec![regions; usize::from(SLOTS)],
        Choice::Shared(slots) => slots.into_vec(),
    };
    for (slot, regions) in (0..).zip(slots) {
        let name = snapshot.plan.region_name(regions.best[0]).to_owned();
        shares.entry(name).or_default().push(slot);
    }
    shares
}

#[test]
fn shares_are_proportional_to_weights() {
    for weights in [
        &[100, 100][..],
        &[100, 300],
        &[1, 1, 1, 1],
        &[10, 20, 30, 40],
        &[5, 0, 5],
    ] {
        let sum: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut all = vec![0.0; weights.len()];
        let networks = 50_u32;
        for generation in 0..networks {
            let shares = shares(weights, generation);
            for (i, weight) in weights.iter().enumerate() {
                let slots = shares
                    .get(&format!("r{generation}-{i}"))
                    .map_or(0, Vec::len);
                let found = f64::from(u32::try_from(slots).expect("64 at most"));
                let expected = 64.0 * f64::from(*weight) / sum;
                // Of one network: within four standard deviations of 64 draws.
                let deviation = (expected * (1.0 - expected / 64.0)).sqrt();
                assert!(
                    (found - expected).abs() <= 4.0 * deviation,
                    "{weights:?} {shares:?}"
                );
                all[i] += (found - expected) / f64::from(networks);
            }
        }
        // Over all networks: within a slot and a half of 64.
        assert!(all.iter().all(|off| off.abs() < 1.5), "{weights:?} {all:?}");
    }
}

#[test]
fn a_weight_that_grows_takes_clients_and_gives_none_away() {
    for generation in 0..20 {
        let before = shares(&[100, 100, 100], generation);
        let after = shares(&[100, 200, 100], generation);
        let grown = format!("r{generation}-1");
        for (name, slots) in &after {
            let had = before.get(name).cloned().unwrap_or_default();
            let kept = had.iter().filter(|slot| slots.contains(slot)).count();
            if *name == grown {
                assert_eq!(kept, had.len(), "{before:?} {after:?}");
            } else {
                assert_eq!(kept, slots.len(), "{before:?} {after:?}");
            }
        }
        assert_ne!(before, after, "it takes some");
    }
}

#[test]
fn slots_are_used_evenly() {
    let mut counts = [0_u32; SLOTS as usize];
    for prefix in 0..1_u32 << 20 {
        counts[usize::from(geodns_policy::slot_of_v4(prefix << 12))] += 1;
    }
    let expected = (1 << 20) / u32::from(SLOTS);
    assert!(
        counts
            .iter()
            .all(|count| count.abs_diff(expected) < expected / 20),
        "{counts:?}"
    );
}
