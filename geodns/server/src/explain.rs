//! Why a client is sent where it is sent: one document for HTTP, the command line and DNS.
//!
//! It shows the client's /24 or /48, never its address.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use geodns_policy::compile::compile;
use geodns_policy::databases::Databases;
use geodns_policy::decision::{Choosable, Decision, Flip};
use geodns_policy::facts::cut;
use geodns_policy::policy::explore::EPOCH_S;
use geodns_policy::{Condition, Live, Plan, Request, RequestError, Snapshot};
use runtime::clock;
use runtime::metrics::Registry;
use serde::Serialize;
use serde_json::Value;
use topology::Topology;

use crate::databases::Files;
use crate::world::{Grounds, World};

/// Candidates of one kind that DNS names.
const LINES_CANDIDATES_MAX: usize = 8;
/// Things that would change the choice that DNS names.
const LINES_FLIPS_MAX: usize = 4;

/// A decision and what it rests on.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Which region and ingresses, and why.
    #[serde(flatten)]
    pub decision: Decision,
    /// What HTTP steering answers instead at the moment, so that it is measured; never DNS.
    pub exploration: Option<Exploration>,
    /// The network that DNS tells resolvers the answer holds for.
    pub scope: ipnet::IpNet,
    /// What is known of addresses, in order of trust.
    pub databases: Vec<DatabaseShown>,
    /// Since the state of the nodes was last read, in seconds; none: never.
    pub state_age_s: Option<u64>,
    /// What was not known to whoever decided, and a node may know.
    pub unknown: Vec<Unknown>,
}

/// A client of these explores.
#[derive(Clone, Debug, Serialize)]
pub struct Exploration {
    /// Where it is sent.
    pub region: String,
    /// By this PoP.
    pub ingress: String,
    /// Until then.
    pub until_unix_s: u64,
}

/// What a decision from files does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unknown {
    /// What PoPs measured.
    MeasuredRoundTrips,
    /// Health, drains, load, backbone: all is well and idle.
    LiveState,
}

/// A geolocation database.
#[derive(Clone, Debug, Serialize)]
pub struct DatabaseShown {
    /// What it calls itself.
    pub kind: String,
    /// When it was built, in seconds since the Unix epoch.
    pub built_unix_s: u64,
    /// Days since then.
    pub age_days: u64,
}

impl Explanation {
    /// Explains at `unix_s`, `state_age_s` after the state of the nodes was read.
    ///
    /// # Errors
    /// See [`RequestError`].
    pub fn new(
        grounds: &Grounds<'_>,
        address: IpAddr,
        (region, residency): (Option<&str>, Option<&str>),
        unix_s: u64,
        state_age_s: Option<u64>,
    ) -> Result<Self, RequestError> {
        let request = Request::new(&grounds.snapshot.plan, region, residency)?.explaining();
        let exploring = request.exploring_at(unix_s);
        let address = address.to_canonical();
        let decision = grounds.decide(address, &request);
        let scope = grounds.scope(address, decision.shared);
        let explored = grounds.decide(address, &exploring);
        let exploration = explored.explored_instead_of.is_some().then(|| Exploration {
            region: explored.region.clone(),
            ingress: first_name(&explored.ingresses),
            until_unix_s: (unix_s / EPOCH_S + 1) * EPOCH_S,
        });
        Ok(Self {
            scope: cut(address, scope, scope),
            decision,
            exploration,
            databases: databases(grounds.databases, unix_s),
            state_age_s,
            unknown: Vec::new(),
        })
    }

    /// The same in lines for DNS, the most important first.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let decision = &self.decision;
        let facts = &decision.facts;
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        let mut lines = vec![
            format!(
                "region={} client={} scope={}",
                decision.region, decision.prefix, self.scope
            ),
            format!(
                "country={} asn={} shared={}",
                or_unknown(facts.country.map(|country| country.code().to_owned())),
                or_unknown(facts.asn.map(|asn| asn.to_string())),
                decision.shared
            ),
        ];
        let rules = decision.rules.iter();
        lines.extend(rules.map(|said| format!("rule={} by={}", said.rule, word(&said.matched_by))));
        lines.extend(candidates("region", &decision.regions));
        lines.extend(candidates("ingress", &decision.ingresses));
        let exploration = self.exploration.iter();
        lines.extend(exploration.map(|tried| {
            format!(
                "http explores region={} ingress={}",
                tried.region, tried.ingress
            )
        }));
        let flips = decision.flips.iter().take(LINES_FLIPS_MAX);
        lines.extend(flips.map(|flip| format!("flip {}", flip_text(flip))));
        let age = self.databases.iter().map(|shown| shown.age_days).max();
        lines.push(format!(
            "database_age_days={} state_age_s={}",
            or_unknown(age.map(|days| days.to_string())),
            or_unknown(self.state_age_s.map(|age_s| age_s.to_string()))
        ));
        lines
    }
}

/// Explains from files, as a node with this topology and these databases would: all nodes are well and idle, or as `state` says, which
/// is what the `/state` of a node said.
///
/// # Errors
/// A database cannot be used, or what is asked for does not exist.
pub fn offline(
    topology: &Topology,
    geo_db: &[PathBuf],
    state: Option<&Value>,
    address: IpAddr,
    wanted: (Option<&str>, Option<&str>),
    unix_s: u64,
) -> anyhow::Result<Explanation> {
    let databases = Files::open(geo_db, &Registry::new("geodns", "explain"))?.databases();
    let mut snapshot = Snapshot::of(Plan::new(topology));
    if let Some(state) = state {
        snapshot.live = Arc::new(live_of(&snapshot.plan, state));
    }
    let compiled = compile(&snapshot, &databases)?;
    let grounds = Grounds {
        snapshot: &snapshot,
        databases: &databases,
        tables: &compiled.tables,
    };
    let mut explanation = Explanation::new(&grounds, address, wanted, unix_s, None)?;
    explanation.unknown.push(Unknown::MeasuredRoundTrips);
    if state.is_none() {
        explanation.unknown.push(Unknown::LiveState);
    }
    // Who explores is known; what is tried depends on what is measured.
    explanation.exploration = None;
    Ok(explanation)
}

fn first_name(candidates: &[Choosable]) -> String {
    candidates
        .first()
        .map_or_else(String::new, |first| first.name.clone())
}

/// What `/state` says of sites. What it does not say is as if all were well.
fn live_of(plan: &Plan, state: &Value) -> Live {
    let mut live = Live::well(plan);
    let sites = |kind: &str| {
        let list = state.get(kind).and_then(Value::as_array);
        list.map_or(&[][..], Vec::as_slice)
    };
    let name = |site: &Value, key: &str| {
        let name = site.get(key).and_then(Value::as_str);
        name.unwrap_or_default().to_owned()
    };
    for site in sites("regions") {
        if let Some(region) = plan.region_named(&name(site, "name")) {
            live.set_region(region, condition(site));
        }
    }
    for site in sites("pops") {
        let Some(pop) = plan.pop_named(&name(site, "name")) else {
            continue;
        };
        live.set_pop(pop, condition(site));
        let ways = site.get("backbone").and_then(Value::as_array);
        for way in ways.into_iter().flatten() {
            let region = plan.region_named(&name(way, "region"));
            let Some(region) = region else { continue };
            if let Some(rtt_ms) = way.get("rtt_ms").and_then(Value::as_u64) {
                let rtt_us = rtt_ms.saturating_mul(1_000);
                live.set_backbone(pop, region, u32::try_from(rtt_us).unwrap_or(u32::MAX));
            }
            let cut = way.get("cut").and_then(Value::as_bool);
            live.set_cut(pop, region, cut.unwrap_or_default());
        }
    }
    live
}

fn condition(site: &Value) -> Condition {
    let of = |key: &str| {
        site.get("condition")
            .and_then(|condition| condition.get(key))
    };
    let well = Condition::default();
    let flag = |key, otherwise| of(key).and_then(Value::as_bool).unwrap_or(otherwise);
    let load = of("load_percent").and_then(Value::as_u64);
    Condition {
        healthy: flag("healthy", well.healthy),
        draining: flag("draining", well.draining),
        load_percent: load.map_or(0, |load| u16::try_from(load).unwrap_or(u16::MAX)),
    }
}

/// Why the client at `address` is sent where it is sent by DNS, in lines.
#[must_use]
pub fn lines(world: &World, address: IpAddr) -> Vec<String> {
    let age_s = |at| clock::now().saturating_duration_since(at).as_secs();
    let age_s = world.heard_at.map(age_s);
    Explanation::new(
        &world.grounds(),
        address,
        (None, None),
        clock::unix_s(),
        age_s,
    )
    .map(|explanation| explanation.lines())
    .unwrap_or_default()
}

/// Databases as they are shown.
#[must_use]
pub fn databases(databases: &Databases, unix_s: u64) -> Vec<DatabaseShown> {
    let shown = databases.as_slice().iter().map(|database| {
        let about = database.about();
        DatabaseShown {
            age_days: unix_s.saturating_sub(about.built_unix_s) / 86_400,
            built_unix_s: about.built_unix_s,
            kind: about.kind.clone(),
        }
    });
    shown.collect()
}

fn candidates(kind: &str, list: &[Choosable]) -> Vec<String> {
    let shown = list.iter().take(LINES_CANDIDATES_MAX).map(|candidate| {
        let cost = candidate
            .cost_ms
            .map_or_else(|| "-".to_owned(), |ms| format!("{ms}ms"));
        let lost = candidate.lost.as_ref().map_or_else(
            || "chosen".to_owned(),
            |lost| word(&serde_json::json!(lost).get("reason")),
        );
        format!(
            "{kind}={} cost={cost} {} {lost}",
            candidate.name,
            word(&candidate.standing)
        )
    });
    shown.collect()
}

/// What would change the choice, in words.
#[must_use]
pub fn flip_text(flip: &Flip) -> String {
    match flip {
        Flip::NotUsable { chosen, then } => format!("{chosen} not usable: {then}"),
        Flip::Cost {
            chosen,
            then,
            by_ms,
        } => format!("{chosen} dearer by {by_ms} ms: {then}"),
        Flip::Load {
            chosen,
            then,
            at_percent,
        } => format!("{chosen} at {at_percent} % of its capacity: {then}"),
        Flip::WithoutRule { rule, then, .. } => format!("without rule {rule}: {then}"),
        Flip::WithoutMeasured { then, .. } => format!("without measurements: {then}"),
    }
}

/// A closed word of the policy, as JSON has it.
fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(text)) => text,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
