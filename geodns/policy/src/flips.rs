//! What would flip a choice: found by deciding again with one thing changed.

use crate::Snapshot;
use crate::decide::{Chosen, Request, choose};
use crate::decision::Flip;
use crate::facts::Client;
use crate::live::Standing;
use crate::plan::{PopIx, RegionIx};
use crate::policy::load;
use crate::policy::measured::Groups;
use crate::policy::rules::Matched;
use crate::rank::Class;
use crate::rendezvous::{draw, slot_of};
use crate::select::{Candidate, Tier};

/// What would change the region, if it is not pinned, or the ingress.
pub(crate) fn flips(
    client: &Client,
    class: &Class,
    snapshot: &Snapshot,
    request: &Request,
    choice: &Chosen,
) -> Vec<Flip> {
    let plan = &snapshot.plan;
    let mut flips = Vec::new();
    if request.pinned().is_none() {
        let slot = u64::from(slot_of(client.address()));
        let names = |ix| plan.region_name(RegionIx(ix)).to_owned();
        let loads = |ix| snapshot.live.region(RegionIx(ix)).load_percent;
        among(&choice.regions, slot, snapshot, names, loads, &mut flips);
    }
    let group = crate::decide::ingress_group(client);
    let names = |ix| plan.pop_name(PopIx(ix)).to_owned();
    let loads = |ix| snapshot.live.pop(PopIx(ix)).load_percent;
    among(&choice.ingresses, group, snapshot, names, loads, &mut flips);
    without(client, class, snapshot, request, choice, &mut flips);
    flips
}

/// Health, cost and load of the first of `ordered` against the others.
fn among(
    ordered: &[Candidate],
    group: u64,
    snapshot: &Snapshot,
    name: impl Fn(u16) -> String,
    load_percent: impl Fn(u16) -> u16,
    flips: &mut Vec<Flip>,
) {
    let [chosen, others @ ..] = ordered else {
        return;
    };
    let Some(next) = others.first() else { return };
    let (chosen_name, constants) = (name(chosen.index), &snapshot.plan.steering.load);
    if next.standing != Standing::Unlinked {
        flips.push(Flip::NotUsable {
            chosen: chosen_name.clone(),
            then: name(next.index),
        });
    }
    let margins = others
        .iter()
        .filter(|other| other.standing == chosen.standing && other.tier == chosen.tier)
        .filter_map(|other| Some((margin(chosen, other, group, snapshot)?, other)));
    let nearest = margins.min_by_key(|(by_ms, _)| *by_ms);
    if let Some((by_ms, other)) = nearest {
        flips.push(Flip::Cost {
            chosen: chosen_name.clone(),
            then: name(other.index),
            by_ms,
        });
    }
    if chosen.standing == Standing::Usable && next.standing == Standing::Usable {
        let load = load_percent(chosen.index);
        let now = load::penalty_ms(load, constants);
        let enough = |percent: &u16| {
            let more = load::penalty_ms(*percent, constants).saturating_sub(now);
            load::is_full(*percent, constants) || nearest.is_some_and(|(by_ms, _)| more >= by_ms)
        };
        let at = (load.saturating_add(1)..=u16::MAX).find(enough);
        let by_cost = nearest.filter(|_| at.is_some_and(|at| !load::is_full(at, constants)));
        flips.push(Flip::Load {
            chosen: chosen_name,
            then: name(by_cost.map_or(next.index, |(_, other)| other.index)),
            at_percent: at.map_or(constants.full_percent, u32::from),
        });
    }
}

/// How much dearer the chosen one must get for the other to be chosen. `None` when cost decides nothing between them.
fn margin(chosen: &Candidate, other: &Candidate, group: u64, snapshot: &Snapshot) -> Option<u32> {
    let within = snapshot.plan.steering.equal_within_ms;
    let (mine, theirs) = (chosen.cost.total(), other.cost.total());
    match chosen.tier {
        Tier::Named(_) => None,
        Tier::Standby | Tier::Avoided => Some((theirs + 1).saturating_sub(mine)),
        Tier::Ordinary => {
            let drawn = |candidate: &Candidate| draw(candidate.key, group, candidate.weight);
            let wins_share = drawn(other) < drawn(chosen);
            Some(if wins_share {
                theirs.saturating_sub(within).saturating_sub(mine).max(1)
            } else {
                (theirs + within + 1).saturating_sub(mine)
            })
        }
    }
}

/// Decides again without each rule that said something, and without what is measured.
fn without(
    client: &Client,
    class: &Class,
    snapshot: &Snapshot,
    request: &Request,
    choice: &Chosen,
    flips: &mut Vec<Flip>,
) {
    let said = class.said;
    let mut rules: Vec<Matched> = [said.regions, said.pops, said.avoid, said.residency]
        .into_iter()
        .flatten()
        .collect();
    rules.sort_unstable();
    rules.dedup();
    for matched in rules {
        let said = snapshot.plan.rules.say_without(client, matched.rule);
        let other = choose(client, &Class { said, ..*class }, snapshot, request);
        if let Some((chosen, then)) = difference(snapshot, choice, &other) {
            let rule = snapshot.plan.rules.effect(matched.rule);
            flips.push(Flip::WithoutRule {
                rule: rule.map(|effect| effect.name.clone()).unwrap_or_default(),
                chosen,
                then,
            });
        }
    }
    if class.groups != Groups::default() {
        let groups = Groups::default();
        let other = choose(client, &Class { groups, ..*class }, snapshot, request);
        if let Some((chosen, then)) = difference(snapshot, choice, &other) {
            flips.push(Flip::WithoutMeasured { chosen, then });
        }
    }
}

/// The region, or else the ingress, in which two choices differ.
fn difference(snapshot: &Snapshot, a: &Chosen, b: &Chosen) -> Option<(String, String)> {
    let plan = &snapshot.plan;
    if a.region != b.region {
        let names = [a.region, b.region].map(|ix| plan.region_name(ix).to_owned());
        return Some(names.into());
    }
    let (a, b) = (a.ingresses.first()?.index, b.ingresses.first()?.index);
    let names = [a, b].map(|ix| plan.pop_name(PopIx(ix)).to_owned());
    (a != b).then(|| names.into())
}
