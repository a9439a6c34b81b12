//! What moves nobody, and what is explored all the same: evidence that loses its oldest part, a link that is cut.

#![cfg(test)]

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use geodns_policy::policy::explore;
use geodns_policy::{
    Client, Condition, Facts, GroupKey, Live, Measured, Median, Memory, Place, PlaceOf, Plan,
    PopIx, RegionIx, Report, Request, Snapshot, decide, gather,
};

const AGE_MAX_S: u32 = 86_400;
/// The next look comes after it is too old.
const NEARLY_TOO_OLD_S: u32 = AGE_MAX_S - 50;
/// Clients of a prefix: too few for a median of its own.
const CLIENTS: u32 = 10;

struct World {
    plan: Plan,
    live: Live,
    memory: Memory,
}

impl World {
    fn new() -> Self {
        let text = include_str!("../../../topology/samples/world.yaml");
        let mut topology = topology::load(text, "world.yaml").unwrap();
        topology.steering.rules.clear();
        let plan = Plan::new(&topology);
        let measured = &plan.steering().measured;
        assert_eq!((measured.age_max_s, measured.samples_min), (AGE_MAX_S, 20));
        let hysteresis = &plan.steering().hysteresis;
        assert_eq!((hysteresis.better_by_ms, hysteresis.hold_s), (10, 300));
        let mut live = Live::well(&plan);
        for pop in plan.pops() {
            live.set_backbone(pop, RegionIx(0), 12_000);
        }
        Self {
            plan,
            live,
            memory: Memory::default(),
        }
    }

    fn settle(&mut self, reports: &[Report], now_s: u64) -> Measured {
        let constants = &self.plan.steering().measured;
        let gathered = gather(reports.iter().copied(), |_| Facts::default(), constants);
        self.memory.settle(&gathered, &self.plan, &self.live, now_s)
    }
}

/// Reports of prefixes of one /20: each is so many milliseconds away, and so old.
fn reports(pop: PopIx, of: impl IntoIterator<Item = (u32, u32)>) -> Vec<Report> {
    let of = (0..16).zip(of).map(|(at, (ms, age_s))| Report {
        pop,
        prefix: format!("20.0.{at}.0/24").parse().unwrap(),
        median: Median {
            rtt_us: ms * 1_000,
            clients: CLIENTS,
        },
        age_s,
    });
    of.collect()
}

fn common_ms(measured: &Measured, pop: PopIx) -> Option<u32> {
    let key = GroupKey::Neighbours("20.0.0.0/20".parse().unwrap());
    let median = measured.median(measured.group(&key)?, pop)?;
    Some(median.rtt_us / 1_000)
}

/// A and B share clients; what B says without its oldest prefixes is no reason to move them at once.
#[test]
fn prefixes_that_grow_too_old_move_nobody_at_once() {
    let (a, b) = (PopIx(0), PopIx(1));
    for (old, young) in [(1, 3), (4, 3), (7, 3)] {
        let mut world = World::new();
        let by_a = reports(a, [(50, 0); 4]);
        let ages = |age_s: u32| {
            let young = std::iter::repeat_n((52, 0), young);
            std::iter::repeat_n((52, age_s), old).chain(young)
        };
        let all = [by_a.clone(), reports(b, ages(NEARLY_TOO_OLD_S))].concat();
        let measured = world.settle(&all, 0);
        assert_eq!(common_ms(&measured, b), Some(52), "{old} old");
        let between = world.memory.measured(59);
        assert_eq!(common_ms(&between, b), Some(52), "{old} old: until a look");
        let without = |ms: u32| [by_a.clone(), reports(b, [(ms, 0); 3])].concat();
        for now_s in [60, 120, 600] {
            let measured = world.settle(&without(45), now_s);
            let found = [a, b].map(|pop| common_ms(&measured, pop));
            assert_eq!(found, [Some(50), Some(52)], "{old} old, {now_s} s");
        }
        for (now_s, expected) in [(660, 52), (900, 52), (960, 30)] {
            let measured = world.settle(&without(30), now_s);
            assert_eq!(common_ms(&measured, b), Some(expected), "{now_s} s");
        }
        assert_eq!(world.memory.moved(), 1, "{old} old");
    }
}

/// In silence a common value counts until half of what it is of is too old; that of one prefix until most of its clients are.
#[test]
fn a_common_value_is_as_old_as_its_middle() {
    let pop = PopIx(0);
    let prefix = |clients, age_s| Report {
        median: Median {
            rtt_us: 50_000,
            clients,
        },
        ..reports(pop, [(50, age_s)])[0]
    };
    let common = |ages_s: [u32; 3]| reports(pop, ages_s.map(|age_s| (50, age_s)));
    let own = GroupKey::Prefix(prefix(1, 0).prefix);
    let around = GroupKey::Neighbours("20.0.0.0/20".parse().unwrap());
    for (told, key, age_s) in [
        (common([86_000, 10, 20]), around, 20),
        (common([86_000, 80_000, 20]), around, 80_000),
        (vec![prefix(30, 86_000), prefix(40, 30)], own, 30),
        (vec![prefix(40, 30), prefix(30, 86_000)], own, 30),
    ] {
        let mut world = World::new();
        world.settle(&told, 0);
        let counts = |measured: &Measured| {
            let group = measured.group(&key);
            group.is_some_and(|group| measured.median(group, pop).is_some())
        };
        let last_s = u64::from(AGE_MAX_S - age_s);
        assert!(counts(&world.settle(&[], last_s)), "{age_s}");
        assert!(!counts(&world.settle(&[], last_s + 1)), "{age_s}");
    }
}

/// A PoP that cannot reach the best region is tried for another that it reaches.
#[test]
fn a_cut_link_to_the_best_region_keeps_no_pop_from_being_explored() {
    let World { plan, mut live, .. } = World::new();
    let plan = Arc::new(plan);
    let facts = Facts {
        location: Place::new(38.7, -9.1, PlaceOf::City),
        ..Facts::default()
    };
    let client = Client::new(IpAddr::from([20, 0, 0, 77]), facts);
    let snapshot = |live: &Live| Snapshot {
        plan: Arc::clone(&plan),
        live: Arc::new(live.clone()),
        measured: Arc::default(),
    };
    let plain = decide(&client, &snapshot(&live), &Request::default());
    let cut = PopIx(plain.ingresses[1].index);
    // Nobody else is to be tried.
    for other in &plain.ingresses[2..] {
        let condition = Condition {
            healthy: false,
            ..Condition::default()
        };
        live.set_pop(PopIx(other.index), condition);
    }
    let explored = |live: &Live| -> BTreeSet<(String, bool)> {
        let snapshot = snapshot(live);
        let epochs = (0..4_000).map(|epoch| epoch * explore::EPOCH_S);
        let decisions = epochs.map(|at| {
            let request = Request::default().exploring_at(at);
            decide(&client, &snapshot, &request)
        });
        let explored = decisions.filter(|it| it.explored_instead_of.is_some());
        let tried = explored.map(|it| (it.ingresses[0].name.clone(), it.region == plain.region));
        tried.collect()
    };
    let name = plan.pop_name(cut).to_owned();
    assert!(explored(&live).contains(&(name.clone(), true)));
    live.set_cut(cut, plain.region_ix, true);
    let found = explored(&live);
    assert!(found.contains(&(name.clone(), false)), "{name}: {found:?}");
    assert!(!found.contains(&(name, true)));
}
