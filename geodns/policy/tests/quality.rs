//! How well steering does on a world whose round trips are known and where geography misleads, and that noise, lost probes and a
//! silent control plane move nobody. Everything is drawn from a seed that is printed when a test fails.

#![cfg(test)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use geodns_policy::policy::{distance, explore};
use geodns_policy::rank::Evidence;
use geodns_policy::{
    Client, Condition, Facts, Gathered, Live, Median, Memory, Place, PlaceOf, Plan, PopIx,
    RegionIx, Report, Request, Snapshot, decide, gather,
};
use ipnet::IpNet;

const SEEDS: [u64; 2] = [1, 20_261];
/// Where clients live: city, degrees north and east. Each is an autonomous system.
const AREAS: [(&str, f64, f64); 12] = [
    ("Oslo", 59.9, 10.8),
    ("Lisbon", 38.7, -9.1),
    ("Istanbul", 41.0, 29.0),
    ("Cairo", 30.0, 31.2),
    ("Nairobi", -1.3, 36.8),
    ("Mumbai", 19.1, 72.9),
    ("Manila", 14.6, 121.0),
    ("Perth", -31.9, 115.9),
    ("Honolulu", 21.3, -157.9),
    ("Denver", 39.7, -105.0),
    ("Lima", -12.0, -77.0),
    ("Recife", -8.1, -34.9),
];
/// Prefixes of an area, in blocks of four that share a /20.
const PREFIXES: u8 = 24;
/// Sessions of one prefix in ten minutes.
const SESSIONS: u32 = 8;
/// Clients of a prefix that a PoP keeps.
const CLIENTS_MAX: usize = 64;
/// What is promised of steering: it is right after this many sessions of an autonomous system, one of a hundred explored.
const SESSIONS_PROMISED: u32 = 30_000;
/// A round trip that costs more than the best way and what may be tried unmeasured.
const FAR_US: u32 = 400_000;
/// How often in a row, ten epochs apart, it must be found right.
const STAYS_RIGHT: usize = 4;
/// Ages of evidence that are waited for it to be found right, and that it must stay so then.
const LEARNS_AGES: u64 = 2;
const STAYS_AGES: u64 = 9;

/// The truth, in microseconds.
struct World {
    plan: Arc<Plan>,
    live: Arc<Live>,
    /// Of an area to a PoP.
    access: Vec<Vec<u32>>,
    random: Random,
}

#[test]
fn measured_evidence_finds_what_geography_misses() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        let mut known = Known::default();
        let (median, p95) = world.regret(&known);
        assert!(
            p95 > 40.0,
            "seed {seed}: geography alone is no challenge: {median} {p95}"
        );
        let per_epoch = u32::from(PREFIXES) * SESSIONS;
        let mut right = Vec::new();
        for epoch in 0..SESSIONS_PROMISED / per_epoch {
            world.epoch(&mut known, u64::from(epoch), true);
            let found = if epoch % 10 == 9 {
                world.regret(&known)
            } else {
                continue;
            };
            if found.0 == 0.0 && found.1 <= 10.0 {
                right.push((epoch + 1) * per_epoch);
            } else {
                right.clear();
            }
            if right.len() == STAYS_RIGHT {
                break;
            }
        }
        let found = world.regret(&known);
        println!(
            "seed {seed}: geography {median:.1}/{p95:.1} ms, measured {found:.1?} ms (median, p95), right after {right:?} sessions"
        );
        assert!(
            right.len() == STAYS_RIGHT,
            "seed {seed}: regret {found:?} ms after {SESSIONS_PROMISED} sessions"
        );
    }
}

/// A PoP that was found to be far is tried seldom, so what was measured of it grows too old to count: that must send nobody there again.
#[test]
fn evidence_that_grows_old_sends_nobody_back() {
    for seed in SEEDS {
        // A quarter of the time and four times the exploration: as much is measured in one age as by default.
        let mut world = World::with(seed, |steering| {
            steering.measured.age_max_s /= 4;
            steering.measured.explore_permille *= 4;
        });
        let mut known = Known::default();
        // Where geography sends one area is too far to be tried as if nobody knew it.
        let first = first_ingress(&world.client(3, 0), &world.snapshot(&known));
        world.access[3][usize::from(first.0)] = FAR_US;
        let per_age = u64::from(world.plan.steering().measured.age_max_s) / explore::EPOCH_S;
        let mut wrong = BTreeMap::<usize, u32>::new();
        let mut was_right = Vec::new();
        for epoch in 0..per_age * (LEARNS_AGES + STAYS_AGES) {
            world.epoch(&mut known, epoch, true);
            if epoch < per_age * LEARNS_AGES {
                continue;
            }
            let regrets = world.all_regrets(&known);
            let (median, p95) = quantiles(regrets.clone());
            assert!(
                median == 0.0 && p95 <= 10.0,
                "seed {seed} epoch {epoch}: {median} {p95} ms"
            );
            let right: Vec<bool> = regrets.iter().map(|us| *us <= 10_000).collect();
            for (at, is_right) in right.iter().enumerate() {
                let was_right = was_right.get(at).copied().unwrap_or(*is_right);
                *wrong.entry(at).or_default() += u32::from(was_right && !is_right);
            }
            was_right = right;
        }
        let left = wrong.values().filter(|times| **times > 0).count();
        let often = wrong.values().copied().max().unwrap_or_default();
        println!("seed {seed}: {left} prefixes left what is right, {often} times at most");
        assert!(often <= 1, "seed {seed}: there and back: {wrong:?}");
    }
}

/// Only what the chosen ingress measures is told: an answer once given is no evidence for itself.
#[test]
fn a_bad_choice_is_left_although_only_it_is_measured() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        let mut known = Known::default();
        let snapshot = world.snapshot(&known);
        let client = world.client(3, 0);
        let first = first_ingress(&client, &snapshot);
        world.access[3][usize::from(first.0)] = FAR_US;
        let (_, before) = world.regret_of_area(3, &known);
        for epoch in 0..12 {
            world.epoch(&mut known, epoch, false);
        }
        let then = first_ingress(&client, &world.snapshot(&known));
        let (_, after) = world.regret_of_area(3, &known);
        assert_ne!(then, first, "seed {seed}: {}", world.plan.pop_name(first));
        assert!(
            after < before,
            "seed {seed}: regret {before} ms, then {after} ms"
        );
    }
}

#[test]
fn noise_of_three_milliseconds_moves_a_client_at_most_once() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        let mut live = (*world.live).clone();
        let mut known = Known::default();
        let mut moves = BTreeMap::new();
        let mut last = BTreeMap::new();
        let pops = ["ams", "lhr"].map(|name| world.plan.pop_named(name).expect("a PoP"));
        for minute in 0..60 {
            let mut reports = Vec::new();
            for prefix in 0..PREFIXES {
                for pop in pops {
                    let rtt_us = 40_000 + world.random.below(6_001) - 3_000;
                    reports.push(world.report(0, prefix, pop, rtt_us, 50));
                }
            }
            for pop in pops {
                let rtt_us = 12_000 + world.random.below(6_001) - 3_000;
                live.set_backbone(pop, RegionIx(0), rtt_us);
            }
            world.live = Arc::new(live.clone());
            known.settle(&world, &reports, minute * 60);
            let snapshot = world.snapshot(&known);
            for prefix in 0..PREFIXES {
                let now = first_ingress(&world.client(0, prefix), &snapshot);
                let before = last.insert(prefix, now);
                *moves.entry(prefix).or_insert(0) +=
                    u32::from(before.is_some_and(|pop| pop != now));
            }
        }
        assert!(
            moves.values().all(|moves| *moves <= 1),
            "seed {seed}: {moves:?}"
        );
    }
}

#[test]
fn a_group_moves_when_another_is_better_for_long_enough() {
    let mut world = World::new(1);
    let [ams, lhr] = ["ams", "lhr"].map(|name| world.plan.pop_named(name).expect("a PoP"));
    let mut live = Live::well(&world.plan);
    for pop in [ams, lhr] {
        live.set_backbone(pop, RegionIx(0), 12_000);
    }
    let down = Condition {
        healthy: false,
        ..Condition::default()
    };
    for pop in world.plan.pops().filter(|pop| ![ams, lhr].contains(pop)) {
        live.set_pop(pop, down);
    }
    world.live = Arc::new(live);
    let client = world.client(0, 0);
    // Minute after minute: round trip by ams, by lhr, in milliseconds (0: not told), and where the client is after it.
    let table: &[(u64, u32, u32, PopIx, &str)] = &[
        (0, 40, 70, ams, "the first word counts at once"),
        (1, 40, 26, ams, "better, but only just now"),
        (5, 40, 26, ams, "not for long enough"),
        (6, 40, 26, lhr, "for five minutes"),
        (7, 20, 26, lhr, "not better by enough"),
        (30, 20, 26, lhr, "for however long"),
        (31, 10, 26, lhr, "by enough"),
        (35, 40, 26, lhr, "one that takes the word back"),
        (36, 10, 26, lhr, "and begins anew"),
        (40, 0, 0, lhr, "nothing told is nothing better"),
        (41, 10, 26, lhr, "and begins anew"),
        (42, 10, 0, lhr, "one probe lost is no word at all"),
        (46, 10, 26, ams, "for five minutes"),
        (200, 0, 0, ams, "silence"),
    ];
    let mut known = Known::default();
    for (minute, by_ams, by_lhr, expected, why) in table {
        let told = [(ams, *by_ams), (lhr, *by_lhr)];
        let told = told.into_iter().filter(|(_, ms)| *ms > 0);
        let reports: Vec<_> = told
            .map(|(pop, ms)| world.report(0, 0, pop, ms * 1_000, 50))
            .collect();
        known.settle(&world, &reports, minute * 60);
        let found = first_ingress(&client, &world.snapshot(&known));
        assert_eq!(found, *expected, "minute {minute}: {why}");
    }
}

#[test]
fn one_lost_or_wild_probe_moves_nobody() {
    for seed in SEEDS {
        let mut world = World::new(seed);
        let mut known = Known::default();
        let mut reports = world.all_reports();
        known.settle(&world, &reports, 0);
        let before = world.choices(&known);
        for minute in 1..40 {
            let at = usize::try_from(
                world
                    .random
                    .below(u32::try_from(reports.len()).expect("few")),
            )
            .expect("few");
            let lost = reports[at];
            if minute % 2 == 0 {
                reports.remove(at);
            } else {
                reports[at].median.rtt_us = 1_000 + world.random.below(900_000);
            }
            known.settle(&world, &reports, minute * 60);
            assert_eq!(world.choices(&known), before, "seed {seed} minute {minute}");
            if minute % 2 == 0 {
                reports.insert(at, lost);
            } else {
                reports[at] = lost;
            }
        }
        assert_eq!(known.memory.moved(), 0);
    }
}

#[test]
fn an_hour_without_a_control_plane_changes_nothing() {
    let mut world = World::new(2);
    let mut live = (*world.live).clone();
    let draining = Condition {
        draining: true,
        ..Condition::default()
    };
    live.set_pop(PopIx(3), draining);
    world.live = Arc::new(live);
    let mut known = Known::default();
    let reports = world.all_reports();
    known.settle(&world, &reports, 0);
    let before = world.choices(&known);
    for minute in 1..=60 {
        // The last word is repeated, growing old, or there is none at all.
        let aged = reports.iter().map(|report| Report {
            age_s: u32::try_from(minute * 60).expect("an hour"),
            ..*report
        });
        let told: Vec<_> = if minute % 2 == 0 {
            aged.collect()
        } else {
            Vec::new()
        };
        known.settle(&world, &told, minute * 60);
        assert_eq!(world.choices(&known), before, "minute {minute}");
    }
}

#[test]
fn what_nobody_tells_any_more_is_forgotten() {
    let world = World::new(2);
    let mut known = Known::default();
    known.settle(&world, &world.all_reports(), 0);
    let day = u64::from(world.plan.steering().measured.age_max_s);
    known.settle(&world, &[], day);
    let (area, client) = (3, world.client(3, 0));
    let evidence = |known: &Known| {
        let snapshot = world.snapshot(known);
        let class = geodns_policy::classify(&client, &snapshot);
        let of = |pop| geodns_policy::rank::cost_of(&class, &snapshot, pop);
        world.plan.pops().map(of).collect::<Vec<_>>()
    };
    let is_measured = |it: &(u16, Evidence)| matches!(it.1, Evidence::Measured(_));
    assert!(
        evidence(&known).iter().all(is_measured),
        "a day is not over"
    );
    let guessed = evidence(&Known::default());
    for (after, has_floors) in [(day + 1, true), (day * 8, true), (day * 8 + 1, false)] {
        known.settle(&world, &[], after);
        let found = evidence(&known);
        for (pop, (found, guessed)) in world.plan.pops().zip(found.iter().zip(&guessed)) {
            let truth_ms = world.access[area][usize::from(pop.0)].saturating_add(500) / 1_000;
            let floor = u16::try_from(truth_ms).expect("less than a minute");
            let expected = if has_floors && floor > guessed.0 {
                (floor, Evidence::MeasuredBefore)
            } else {
                *guessed
            };
            assert_eq!(*found, expected, "{pop:?} after {after} s");
        }
        assert_eq!(known.measured.is_empty(), !has_floors);
    }
}

#[test]
fn exploration_is_bounded_and_the_same_at_every_node() {
    let prefixes = (0..20_000_u32).map(|i| prefix(i << 8));
    for (permille, low, high) in [(0, 0, 0), (10, 1_600, 2_400), (100, 19_000, 21_000)] {
        let drawn = prefixes.clone().map(|net| {
            let times = (0..10)
                .filter(|epoch| explore::drawn(net, epoch * explore::EPOCH_S, permille).is_some());
            times.count()
        });
        let drawn: usize = drawn.sum();
        assert!(
            (low..=high).contains(&drawn),
            "{permille} permille of 200000: {drawn}"
        );
    }
    let net = prefix(0x0102_0300);
    let (first, last) = (explore::EPOCH_S * 7, explore::EPOCH_S * 8 - 1);
    assert_eq!(
        explore::drawn(net, first, 500),
        explore::drawn(net, last, 500)
    );
}

/// What is measured to be far is tried too, but seldom.
#[test]
fn far_ways_are_tried_seldom() {
    let world = World::new(1);
    let mut known = Known::default();
    let far = |report: &Report| report.median.rtt_us > 150_000;
    let reports = world.all_reports();
    assert!(reports.iter().any(far));
    known.settle(&world, &reports, 0);
    let snapshot = world.snapshot(&known);
    let (mut explored, mut tried_far) = (0, 0);
    for epoch in 0..40_000 {
        let client = world.client(7, 0);
        let request = Request::default().exploring_at(epoch * explore::EPOCH_S);
        let decision = decide(&client, &snapshot, &request);
        if decision.explored_instead_of.is_some() {
            explored += 1;
            let plain = decide(&client, &snapshot, &Request::default());
            let [tried, best] =
                [&decision, &plain].map(|it| it.ingresses[0].cost_ms.expect("a cost"));
            tried_far += u32::from(tried > best + explore::KNOWN_WITHIN_MS);
        }
    }
    let share = u32::try_from(explore::FAR_EVERY).expect("few");
    assert!(explored > 300, "{explored}");
    assert!(
        tried_far > 0 && tried_far * share < explored * 2,
        "{tried_far} of {explored}"
    );
}

/// What an explored ingress may be: usable, plausible, not avoided; the region stays.
#[test]
fn exploration_keeps_the_region_and_leaves_out_what_is_not_usable() {
    let mut world = World::new(3);
    let mut live = (*world.live).clone();
    for pop in [1, 2, 5] {
        live.set_pop(
            PopIx(pop),
            Condition {
                healthy: false,
                ..Condition::default()
            },
        );
    }
    world.live = Arc::new(live);
    let snapshot = world.snapshot(&Known::default());
    let mut explored = 0;
    for epoch in 0..400 {
        for area in 0..AREAS.len() {
            let client = world.client(area, 0);
            let plain = decide(&client, &snapshot, &Request::default());
            let request = Request::default().exploring_at(epoch * explore::EPOCH_S);
            let decision = decide(&client, &snapshot, &request);
            let pinned = Request::new(&world.plan, Some(&plain.region), None).expect("a region");
            let pinned = pinned.exploring_at(epoch * explore::EPOCH_S);
            let pinned = decide(&client, &snapshot, &pinned);
            assert_eq!(pinned.region, plain.region);
            assert_eq!(
                pinned.explored_instead_of.is_some(),
                decision.explored_instead_of.is_some()
            );
            let Some(instead_of) = decision.explored_instead_of else {
                assert_eq!(decision.ingresses, plain.ingresses);
                continue;
            };
            explored += 1;
            assert_eq!(instead_of, plain.ingresses[0].name);
            let [first, second, ..] = &decision.ingresses[..] else {
                panic!("two ingresses")
            };
            if decision.region == plain.region {
                assert_eq!(second.name, instead_of, "the best is the second");
            }
            assert!(![1, 2, 5].contains(&first.index), "{}", first.name);
            let extra = first.cost_ms.unwrap() - plain.ingresses[0].cost_ms.unwrap();
            assert!(extra <= explore::WITHIN_MS, "{extra}");
        }
    }
    assert!(explored > 20, "{explored}");
}

/// What a GeoDNS node knows of round trips.
#[derive(Default)]
struct Known {
    memory: Memory,
    measured: Arc<geodns_policy::Measured>,
    /// What PoPs keep of each prefix: when and how long, the latest of so many clients as PoPs keep, none older than counts.
    samples: BTreeMap<(usize, u8, PopIx), Vec<(u64, u32)>>,
}

impl Known {
    fn settle(&mut self, world: &World, reports: &[Report], now_s: u64) {
        let constants = &world.plan.steering().measured;
        let gathered: Gathered = gather(reports.iter().copied(), facts_of, constants);
        self.measured = Arc::new(
            self.memory
                .settle(&gathered, &world.plan, &world.live, now_s),
        );
    }
}

impl World {
    /// Twelve PoPs and four regions. The public Internet is up to three times slower than distance says, or twice as fast.
    fn new(seed: u64) -> Self {
        Self::with(seed, |_| ())
    }

    fn with(seed: u64, change: impl Fn(&mut topology::Steering)) -> Self {
        let text = include_str!("../../../topology/samples/world.yaml");
        let mut topology = topology::load(text, "world.yaml").expect("the sample is valid");
        topology.steering.rules.clear();
        change(&mut topology.steering);
        let plan = Plan::new(&topology);
        let mut random = Random(seed);
        let mut live = Live::well(&plan);
        for (at, pop) in (0..).map(PopIx).zip(&topology.pops) {
            for (to, region) in (0..).map(RegionIx).zip(&topology.regions) {
                let ms = distance::backbone_ms(place_of(&pop.location), place_of(&region.location));
                let percent = 90 + random.below(50);
                live.set_backbone(at, to, u32::from(ms) * percent * 10 + 1_000);
            }
        }
        let access = AREAS.iter().map(|area| {
            let pops = topology.pops.iter().map(|pop| {
                let ms = distance::client_ms(city(area), place_of(&pop.location));
                let percent = match random.below(10) {
                    0..3 => 180 + random.below(120),
                    3..6 => 50 + random.below(20),
                    _ => 90 + random.below(30),
                };
                u32::from(ms) * percent * 10
            });
            pops.collect()
        });
        Self {
            access: access.collect(),
            plan: Arc::new(plan),
            live: Arc::new(live),
            random,
        }
    }

    fn snapshot(&self, known: &Known) -> Snapshot {
        Snapshot {
            plan: self.plan.clone(),
            live: self.live.clone(),
            measured: known.measured.clone(),
        }
    }

    /// Ten minutes of sessions; PoPs report the medians of all they have timed.
    fn epoch(&mut self, known: &mut Known, epoch: u64, explores: bool) {
        let snapshot = self.snapshot(known);
        let mut request = Request::default();
        if explores {
            request = request.exploring_at(epoch * explore::EPOCH_S);
        }
        for area in 0..AREAS.len() {
            for prefix in 0..PREFIXES {
                let decision = decide(&self.client(area, prefix), &snapshot, &request);
                let pop = decision.ingress_order().next().expect("an ingress");
                let truth = self.access[area][usize::from(pop.0)];
                let samples = known.samples.entry((area, prefix, pop)).or_default();
                for _ in 0..SESSIONS {
                    samples.push((epoch, truth + self.random.below(6_000)));
                }
            }
        }
        let age_max = u64::from(self.plan.steering().measured.age_max_s) / explore::EPOCH_S;
        known.samples.retain(|_, samples| {
            samples.retain(|(at, _)| epoch - at <= age_max);
            let more = samples.len().saturating_sub(CLIENTS_MAX);
            samples.drain(..more);
            !samples.is_empty()
        });
        let reports = known.samples.iter().map(|((area, prefix, pop), samples)| {
            let mut rtts: Vec<u32> = samples.iter().map(|(_, rtt_us)| *rtt_us).collect();
            rtts.sort_unstable();
            let clients = u32::try_from(rtts.len()).expect("few");
            let middle = samples.get(samples.len() / 2);
            let middle = middle.map_or(epoch, |(at, _)| *at);
            let age_s = (epoch - middle) * explore::EPOCH_S;
            Report {
                age_s: u32::try_from(age_s).expect("days"),
                ..self.report(*area, *prefix, *pop, rtts[(rtts.len() - 1) / 2], clients)
            }
        });
        let reports: Vec<_> = reports.collect();
        known.settle(self, &reports, (epoch + 1) * explore::EPOCH_S);
    }

    /// Every prefix as every PoP would time it.
    fn all_reports(&self) -> Vec<Report> {
        let areas = 0..AREAS.len();
        let pairs = areas.flat_map(|area| (0..PREFIXES).map(move |prefix| (area, prefix)));
        let all = pairs.flat_map(|(area, prefix)| {
            let pops = self.access[area].iter().zip((0..).map(PopIx));
            pops.map(move |(truth, pop)| self.report(area, prefix, pop, *truth, 50))
        });
        all.collect()
    }

    fn report(&self, area: usize, prefix: u8, pop: PopIx, rtt_us: u32, clients: u32) -> Report {
        Report {
            pop,
            prefix: self.client(area, prefix).prefix(),
            median: Median { rtt_us, clients },
            age_s: 0,
        }
    }

    fn client(&self, area: usize, prefix: u8) -> Client {
        let area = u8::try_from(area).expect("few areas");
        let address = IpAddr::from([20, area, prefix / 4 * 16 + prefix % 4, 77]);
        Client::new(address, facts_of(address))
    }

    fn choices(&self, known: &Known) -> Vec<(RegionIx, PopIx)> {
        let snapshot = self.snapshot(known);
        let clients = (0..AREAS.len())
            .flat_map(|area| (0..PREFIXES).map(move |prefix| self.client(area, prefix)));
        let choices = clients.map(|client| {
            let decision = decide(&client, &snapshot, &Request::default());
            let ingress = decision.ingress_order().next();
            (decision.region_ix, ingress.expect("an ingress"))
        });
        choices.collect()
    }

    /// What clients lose against the best there is: median and 95th percentile, in milliseconds.
    fn regret(&self, known: &Known) -> (f64, f64) {
        quantiles(self.all_regrets(known))
    }

    fn all_regrets(&self, known: &Known) -> Vec<u32> {
        let areas = 0..AREAS.len();
        areas.flat_map(|area| self.regrets(area, known)).collect()
    }

    fn regret_of_area(&self, area: usize, known: &Known) -> (f64, f64) {
        quantiles(self.regrets(area, known))
    }

    fn regrets(&self, area: usize, known: &Known) -> Vec<u32> {
        let snapshot = self.snapshot(known);
        let best = self.plan.pops().flat_map(|pop| {
            let regions = self.plan.regions();
            regions.filter_map(move |region| self.truth(area, pop, region))
        });
        let best = best.min().expect("a way");
        let regrets = (0..PREFIXES).map(|prefix| {
            let decision = decide(&self.client(area, prefix), &snapshot, &Request::default());
            let ingress = decision.ingress_order().next().expect("an ingress");
            let found = self.truth(area, ingress, decision.region_ix);
            found.expect("a link") - best
        });
        regrets.collect()
    }

    fn truth(&self, area: usize, pop: PopIx, region: RegionIx) -> Option<u32> {
        let on = self.plan.backbone_ms(pop, region, &self.live)?;
        Some(self.access[area][usize::from(pop.0)] + u32::from(on) * 1_000)
    }
}

fn quantiles(mut regrets: Vec<u32>) -> (f64, f64) {
    regrets.sort_unstable();
    let at = |share: usize| f64::from(regrets[(regrets.len() - 1) * share / 100]) / 1_000.0;
    (at(50), at(95))
}

fn first_ingress(client: &Client, snapshot: &Snapshot) -> PopIx {
    let decision = decide(client, snapshot, &Request::default());
    decision.ingress_order().next().expect("an ingress")
}

fn facts_of(address: IpAddr) -> Facts {
    let IpAddr::V4(ip) = address else {
        return Facts::default();
    };
    let [_, area, ..] = ip.octets();
    let of = AREAS.get(usize::from(area));
    of.map_or_else(Facts::default, |of| Facts {
        asn: Some(64_500 + u32::from(area)),
        location: Some(city(of)),
        ..Facts::default()
    })
}

fn city(area: &(&str, f64, f64)) -> Place {
    Place::new(area.1, area.2, PlaceOf::City).expect("coordinates")
}

fn place_of(location: &Option<topology::Location>) -> Place {
    let location = location
        .as_ref()
        .expect("every site of the sample has a place");
    Place::new(location.latitude, location.longitude, PlaceOf::City).expect("coordinates")
}

fn prefix(address: u32) -> IpNet {
    IpNet::new(Ipv4Addr::from(address).into(), 24).expect("24 bits")
}

/// SplitMix64: the same everywhere, from the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        u32::try_from(x % u64::from(end)).expect("below 2^32")
    }
}
