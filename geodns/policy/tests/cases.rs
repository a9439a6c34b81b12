//! Decides the cases of `tests/cases/*.yaml` in the network of `tests/network.yaml` and compares: tables that an operator can
//! read and extend. The form of a case is the struct `Case`; what is not said under `expect` is not looked at.

#![cfg(test)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::{env, fs};

use geodns_policy::decision::{Choosable, Term};
use geodns_policy::{
    Choice, Client, Condition, Country, Decision, Facts, Live, Measured, Median, Memory, Place,
    PlaceOf, Plan, Report, Request, Snapshot, classify, decide, gather, rank, select, slot_of,
};
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::Value;
use topology::{Continent, Steering};

/// A file of cases.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// In place of the `steering` section of a topology, for all cases.
    #[serde(default)]
    steering: Steering,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    client: Who,
    #[serde(default)]
    request: Asked,
    #[serde(default)]
    live: State,
    /// What PoPs reported before.
    #[serde(default)]
    measured: Vec<Timed>,
    expect: Expected,
}

/// A client and what databases say of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Who {
    address: IpAddr,
    country: Option<Country>,
    continent: Option<Continent>,
    /// Degrees north and east.
    city: Option<[f64; 2]>,
    /// The middle of its country, degrees north and east.
    middle: Option<[f64; 2]>,
    asn: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    region: Option<String>,
    residency: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct State {
    /// Names of regions and PoPs.
    down: Vec<String>,
    draining: Vec<String>,
    load_percent: BTreeMap<String, u16>,
    /// `POP REGION`: no link is up.
    cut: Vec<String>,
    /// `POP REGION`: milliseconds.
    backbone_ms: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timed {
    prefix: IpNet,
    pop: String,
    ms: u32,
    #[serde(default = "many")]
    clients: u32,
    #[serde(default)]
    age_s: u32,
    asn: Option<u32>,
    country: Option<Country>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    region: Option<String>,
    /// The first regions, best first.
    regions: Option<Vec<String>>,
    ingress: Option<String>,
    /// The first ingresses, best first.
    ingresses: Option<Vec<String>>,
    /// What the chosen ingress's round trip rests on.
    evidence: Option<String>,
    /// Of regions and PoPs that were not chosen.
    #[serde(default)]
    lost: BTreeMap<String, String>,
    /// Cost of regions and PoPs, in milliseconds.
    #[serde(default)]
    cost_ms: BTreeMap<String, u32>,
    /// Names of the rules that said something, strongest first.
    rules: Option<Vec<String>>,
    /// Whether equals share the clients.
    shared: Option<bool>,
    /// Things that would flip the choice, in the words of `explain`: each must be among them.
    #[serde(default)]
    flips: Vec<BTreeMap<String, Value>>,
}

const fn many() -> u32 {
    100
}

#[test]
fn every_case_is_decided_as_its_table_says() {
    let mut count = 0;
    let mut wrong = Vec::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    for entry in fs::read_dir(folder).expect("cases are there") {
        let path = entry.expect("an entry").path();
        let text = fs::read_to_string(&path).expect("a file of cases");
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let file: File =
            serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        for case in &file.cases {
            count += 1;
            let found = differences(&file.steering, case);
            wrong.extend(
                found
                    .into_iter()
                    .map(|what| format!("{name}: {}: {what}", case.name)),
            );
        }
    }
    assert!(count > 40, "cases are missing: {count}");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_wrong_table_is_found() {
    let case = |expect| {
        let text =
            format!("name: x\nclient: {{ address: 9.9.9.9, city: [51.5, 0.1] }}\nexpect: {expect}");
        serde_yaml::from_str::<Case>(&text).expect("a case")
    };
    for (expect, count) in [
        ("{ ingress: lhr, evidence: city, lost: { us: farther } }", 0),
        (
            "{ ingress: sin, evidence: country, lost: { us: share }, cost_ms: { lhr: 1 } }",
            4,
        ),
        (
            "{ regions: [us], ingresses: [sin], rules: [r], shared: false, flips: [{ when: never }] }",
            5,
        ),
        ("{ lost: { nowhere: share } }", 1),
    ] {
        let found = differences(&Steering::default(), &case(expect));
        assert_eq!(found.len(), count, "{expect}: {found:#?}");
    }
}

/// What differs from the table, and what may never be.
fn differences(steering: &Steering, case: &Case) -> Vec<String> {
    let snapshot = snapshot(steering, case);
    let client = client(&case.client);
    let request = Request::new(
        &snapshot.plan,
        case.request.region.as_deref(),
        case.request.residency.as_deref(),
    )
    .expect("the request names what exists")
    .explaining();
    let decision = decide(&client, &snapshot, &request);
    let mut wrong = Wrong::default();
    wrong.in_choice(&case.expect, &decision);
    wrong.in_reasons(&case.expect, &decision);
    if case.request.region.is_none() && case.request.residency.is_none() {
        wrong.compare(
            "region by DNS",
            &decision.region,
            by_dns(&client, &snapshot),
        );
    }
    wrong.0
}

/// What differs from a table, in words.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn compare(&mut self, what: &str, expected: impl Debug, found: impl Debug) {
        let [expected, found] = [format!("{expected:?}"), format!("{found:?}")];
        if expected != found {
            let text = format!("{what} should be {expected}, is {found}");
            self.0.push(text);
        }
    }

    fn in_choice(&mut self, expect: &Expected, decision: &Decision) {
        if let Some(region) = &expect.region {
            self.compare("region", region, &decision.region);
        }
        if let Some(ingress) = &expect.ingress {
            self.compare("ingress", ingress, &decision.ingresses[0].name);
        }
        for (what, expected, found) in [
            ("regions", &expect.regions, &decision.regions),
            ("ingresses", &expect.ingresses, &decision.ingresses),
        ] {
            if let Some(expected) = expected {
                let found = found.iter().map(|candidate| &candidate.name);
                let found: Vec<_> = found.take(expected.len()).collect();
                self.compare(what, expected, found);
            }
        }
        if let Some(shared) = expect.shared {
            self.compare("shared", shared, decision.shared);
        }
    }

    fn in_reasons(&mut self, expect: &Expected, decision: &Decision) {
        if let Some(evidence) = &expect.evidence {
            self.compare("evidence", evidence, shown_evidence(decision));
        }
        if let Some(rules) = &expect.rules {
            let found: Vec<_> = decision.rules.iter().map(|rule| &rule.rule).collect();
            self.compare("rules", rules, found);
        }
        for (name, lost) in &expect.lost {
            self.compare(name, lost, shown_lost(decision, name));
        }
        for (name, cost) in &expect.cost_ms {
            let found = candidate(decision, name).and_then(|candidate| candidate.cost_ms);
            self.compare(&format!("cost of {name}"), Some(cost), found);
        }
        let flips = serde_json::to_value(&decision.flips).expect("flips are JSON");
        for flip in &expect.flips {
            let holds = |shown: &Value| {
                flip.iter()
                    .all(|(key, value)| shown.get(key) == Some(value))
            };
            let is_there = flips
                .as_array()
                .is_some_and(|flips| flips.iter().any(holds));
            self.compare(&format!("{flip:?} in {flips}"), true, is_there);
        }
    }
}

/// The first region that tables would answer with.
fn by_dns(client: &Client, snapshot: &Snapshot) -> String {
    let ranking = rank(&classify(client, snapshot), snapshot).for_regions(&snapshot.plan);
    let regions = match select(&ranking, snapshot) {
        Choice::One(regions) => regions,
        Choice::Shared(slots) => slots[usize::from(slot_of(client.address()))].clone(),
    };
    snapshot.plan.region_name(regions.best[0]).to_owned()
}

fn snapshot(steering: &Steering, case: &Case) -> Snapshot {
    let text = include_str!("network.yaml");
    let mut topology = topology::load(text, "network.yaml").expect("the network is valid");
    topology.steering = steering.clone();
    let text = topology::to_yaml(&topology).expect("a topology is YAML");
    let topology = topology::load(&text, &case.name).expect("the rules are valid");
    let plan = Plan::new(&topology);
    let mut live = Live::well(&plan);
    set_live(&case.live, &plan, &mut live);
    let measured = measured(&case.measured, &plan, &live);
    Snapshot {
        live: Arc::new(live),
        measured: Arc::new(measured),
        plan: Arc::new(plan),
    }
}

fn set_live(state: &State, plan: &Plan, live: &mut Live) {
    let mut conditions: BTreeMap<&String, Condition> = BTreeMap::new();
    for name in &state.down {
        conditions.entry(name).or_default().healthy = false;
    }
    for name in &state.draining {
        conditions.entry(name).or_default().draining = true;
    }
    for (name, percent) in &state.load_percent {
        conditions.entry(name).or_default().load_percent = *percent;
    }
    for (name, condition) in conditions {
        match (plan.region_named(name), plan.pop_named(name)) {
            (Some(region), _) => live.set_region(region, condition),
            (None, Some(pop)) => live.set_pop(pop, condition),
            (None, None) => panic!("{name} is neither a region nor a PoP"),
        }
    }
    let ends = |link: &str| {
        let (pop, region) = link.split_once(' ').expect("POP REGION");
        let pop = plan.pop_named(pop).expect("a PoP");
        (pop, plan.region_named(region).expect("a region"))
    };
    for (link, ms) in &state.backbone_ms {
        let (pop, region) = ends(link);
        live.set_backbone(pop, region, ms * 1_000);
    }
    for link in &state.cut {
        let (pop, region) = ends(link);
        live.set_cut(pop, region, true);
    }
}

fn measured(timed: &[Timed], plan: &Plan, live: &Live) -> Measured {
    let reports = timed.iter().map(|timed| Report {
        pop: plan.pop_named(&timed.pop).expect("a PoP"),
        prefix: timed.prefix,
        median: Median {
            rtt_us: timed.ms * 1_000,
            clients: timed.clients,
        },
        age_s: timed.age_s,
    });
    let facts = |address: IpAddr| {
        let of = timed.iter().find(|timed| timed.prefix.contains(&address));
        of.map_or_else(Facts::default, |timed| Facts {
            asn: timed.asn,
            country: timed.country,
            ..Facts::default()
        })
    };
    let gathered = gather(reports, facts, &plan.steering().measured);
    Memory::default().settle(&gathered, plan, live, 0)
}

fn client(who: &Who) -> Client {
    let place = |degrees: Option<[f64; 2]>, of| {
        degrees.map(|[north, east]| Place::new(north, east, of).expect("coordinates"))
    };
    let facts = Facts {
        country: who.country,
        continent: who.continent,
        location: place(who.city, PlaceOf::City).or_else(|| place(who.middle, PlaceOf::Country)),
        asn: who.asn,
    };
    Client::new(who.address, facts)
}

fn candidate<'a>(decision: &'a Decision, name: &str) -> Option<&'a Choosable> {
    let mut all = decision.regions.iter().chain(&decision.ingresses);
    all.find(|candidate| candidate.name == name)
}

fn shown_evidence(decision: &Decision) -> String {
    let ingress = decision.ingresses.first().expect("an ingress");
    let evidence = ingress.terms.iter().find_map(|term| match term {
        Term::Client { evidence, .. } => Some(*evidence),
        Term::Backbone { .. } | Term::PopLoad { .. } | Term::RegionLoad { .. } => None,
    });
    word(&serde_json::to_value(evidence).expect("evidence is JSON"))
}

fn shown_lost(decision: &Decision, name: &str) -> String {
    let Some(candidate) = candidate(decision, name) else {
        return "not there".to_owned();
    };
    let lost = serde_json::to_value(candidate.lost).expect("a reason is JSON");
    lost.get("reason")
        .map_or_else(|| "nothing".to_owned(), word)
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
