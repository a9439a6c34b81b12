//! `decide`: the whole decision for one client, with its reasons. DNS serves the same choice of a region from tables.

use ipnet::IpNet;
use thiserror::Error;

use crate::Snapshot;
use crate::decision::{Choosable, Decision, Gives, Lost, RuleSaid, Term};
use crate::facts::{Client, cut};
use crate::plan::{Plan, PopIx, RegionIx, ResidencyIx};
use crate::policy::explore::{self, Known, Way};
use crate::policy::measured::{floor_of, median_of};
use crate::policy::residency;
use crate::policy::rules::{Matched, Said};
use crate::rank::{Class, Ranking, classify, cost_of, rank};
use crate::rendezvous::{SHARE_PREFIX_V4, SHARE_PREFIX_V6, mix, slot_of};
use crate::select::{Candidate, Tier, equals, ingresses, ordered, regions};
use crate::{flips, live::Standing};

/// What is asked for a client, besides where it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    region: Option<RegionIx>,
    residency: Option<ResidencyIx>,
    unix_s: Option<u64>,
    explain: bool,
}

/// Why a request cannot be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestError {
    /// No region has this name.
    #[error("no such region")]
    UnknownRegion,
    /// No region has this residency.
    #[error("no region has this residency")]
    UnknownResidency,
    /// The region that is named is not of the residency that is named.
    #[error("the region is not of this residency")]
    RegionOutsideResidency,
}

impl Request {
    /// With a region that is fixed, a residency that is demanded, or neither.
    ///
    /// # Errors
    /// When the topology has no such region or residency, or the region is of another one.
    pub fn new(
        plan: &Plan,
        region: Option<&str>,
        residency: Option<&str>,
    ) -> Result<Self, RequestError> {
        let region = region
            .map(|name| plan.region_named(name).ok_or(RequestError::UnknownRegion))
            .transpose()?;
        let residency = residency
            .map(|name| {
                plan.residency_named(name)
                    .ok_or(RequestError::UnknownResidency)
            })
            .transpose()?;
        if region.is_some_and(|region| !residency::allows(plan, residency, region)) {
            return Err(RequestError::RegionOutsideResidency);
        }
        Ok(Self {
            region,
            residency,
            unix_s: None,
            explain: false,
        })
    }

    /// Lets the client explore, at this time: for media by HTTP, never for DNS.
    #[must_use]
    pub const fn exploring_at(mut self, unix_s: u64) -> Self {
        self.unix_s = Some(unix_s);
        self
    }

    /// Asks also for what would flip the choice, which costs several decisions more.
    #[must_use]
    pub const fn explaining(mut self) -> Self {
        self.explain = true;
        self
    }

    pub(crate) const fn pinned(&self) -> Option<RegionIx> {
        self.region
    }
}

/// Which region and ingresses a client gets, and why.
#[must_use]
pub fn decide(client: &Client, snapshot: &Snapshot, request: &Request) -> Decision {
    let class = classify(client, snapshot);
    let choice = choose(client, &class, snapshot, request);
    let flips = if request.explain {
        flips::flips(client, &class, snapshot, request, &choice)
    } else {
        Vec::new()
    };
    let choice = explored(client, &class, choice, snapshot, request);
    let plan = &snapshot.plan;
    let describe = Describe {
        class: &class,
        snapshot,
        choice: &choice,
    };
    let steering = plan.steering();
    Decision {
        prefix: client.prefix(),
        slot: slot_of(client.address()),
        facts: client.facts,
        rules: rules_said(plan, &class.said),
        residency: choice.demanded.map(|ix| plan.residency_name(ix).to_owned()),
        region: plan.region_name(choice.region).to_owned(),
        region_ix: choice.region,
        regions: describe.regions(request),
        ingresses: describe.ingresses(),
        shared: choice.shared,
        explored_instead_of: choice
            .explored
            .map(|(_, best)| plan.pop_name(best).to_owned()),
        flips,
        ttl_s: steering.ttl_s,
    }
}

/// The bare choice, in order, without reasons.
pub(crate) struct Chosen {
    pub(crate) demanded: Option<ResidencyIx>,
    pub(crate) region: RegionIx,
    pub(crate) regions: Vec<Candidate>,
    pub(crate) ingresses: Vec<Candidate>,
    pub(crate) shared: bool,
    /// The region and ingress that are best, when another ingress was put first to be measured.
    pub(crate) explored: Option<(RegionIx, PopIx)>,
}

pub(crate) fn choose(
    client: &Client,
    class: &Class,
    snapshot: &Snapshot,
    request: &Request,
) -> Chosen {
    let ranking = rank(class, snapshot);
    let demanded = match request.region {
        Some(_) => request.residency,
        None => request.residency.or(ranking.residency),
    };
    let candidates = regions(&ranking, demanded, snapshot);
    let slot = slot_of(client.address());
    let regions = ordered(&candidates, u64::from(slot), snapshot);
    let best = regions.first().map(|best| RegionIx(best.index));
    let region = request.region.or(best).unwrap_or(RegionIx(0));
    Chosen {
        demanded,
        region,
        shared: request.region.is_none() && equals(&candidates, snapshot).len() > 1,
        regions,
        ingresses: ingress_order(client, &ranking, region, snapshot),
        explored: None,
    }
}

fn ingress_order(
    client: &Client,
    ranking: &Ranking,
    region: RegionIx,
    snapshot: &Snapshot,
) -> Vec<Candidate> {
    let candidates = ingresses(ranking, region, snapshot);
    ordered(&candidates, ingress_group(client), snapshot)
}

/// Among ingresses a client chooses by its whole share prefix: no table needs few of them.
pub(crate) fn ingress_group(client: &Client) -> u64 {
    match cut(client.address(), SHARE_PREFIX_V4, SHARE_PREFIX_V6) {
        IpNet::V4(net) => mix(u64::from(u32::from(net.network()))),
        IpNet::V6(net) => {
            let address = u128::from(net.network()) >> 64;
            mix(!u64::try_from(address).unwrap_or_default())
        }
    }
}

/// Puts another plausible ingress first, for the few clients that explore.
fn explored(
    client: &Client,
    class: &Class,
    mut choice: Chosen,
    snapshot: &Snapshot,
    request: &Request,
) -> Chosen {
    let permille = snapshot.plan.steering.measured.explore_permille;
    let seed = request
        .unix_s
        .and_then(|unix_s| explore::drawn(client.prefix(), unix_s, permille));
    let Some((seed, best)) = seed.zip(choice.ingresses.first().copied()) else {
        return choice;
    };
    let ranking = rank(class, snapshot);
    let ways = ways(class, &ranking, &choice, snapshot, request);
    let Some(tried) = explore::pick(&best, ways, seed) else {
        return choice;
    };
    choice.explored = Some((choice.region, PopIx(best.index)));
    if tried.region != choice.region {
        choice.region = tried.region;
        choice.ingresses = ingress_order(client, &ranking, tried.region, snapshot);
    }
    // Stable: the one that is tried first, the others as they were.
    choice
        .ingresses
        .sort_by_key(|pop| pop.index != tried.pop.index);
    choice
}

/// Usable ingresses of the chosen region, then, if the region is not fixed, those that only other good regions have links to that are up.
fn ways(
    class: &Class,
    ranking: &Ranking,
    choice: &Chosen,
    snapshot: &Snapshot,
    request: &Request,
) -> Vec<Way> {
    let mut ways: Vec<Way> = Vec::new();
    let named = choice
        .regions
        .first()
        .is_some_and(|region| explore::is_named(region.tier));
    let others = choice.regions.iter().filter(|region| {
        request.region.is_none()
            && region.standing == Standing::Usable
            && region.tier <= Tier::Ordinary
            && (explore::is_named(region.tier) || !named)
    });
    let others = others.map(|region| RegionIx(region.index));
    for region in std::iter::once(choice.region).chain(others) {
        for pop in ingresses(ranking, region, snapshot) {
            let is_there = ways.iter().any(|way| way.pop.index == pop.index);
            if is_there || pop.standing != Standing::Usable {
                continue;
            }
            let known = known(class, snapshot, PopIx(pop.index));
            ways.push(Way { region, pop, known });
        }
    }
    ways
}

fn known(class: &Class, snapshot: &Snapshot, pop: PopIx) -> Known {
    let (measured, groups) = (&snapshot.measured, &class.groups);
    if median_of(measured, groups, pop).is_some() {
        Known::Measured
    } else if floor_of(measured, groups, pop).is_some() {
        Known::Before
    } else {
        Known::Never
    }
}

fn rules_said(plan: &Plan, said: &Said) -> Vec<RuleSaid> {
    let things = [
        (said.regions, Gives::Regions),
        (said.pops, Gives::Pops),
        (said.avoid, Gives::Avoid),
        (said.residency, Gives::Residency),
    ];
    let mut rules: Vec<(Matched, Vec<Gives>)> = Vec::new();
    for (matched, gives) in things {
        let Some(matched) = matched else { continue };
        match rules.iter_mut().find(|(known, _)| *known == matched) {
            Some((_, given)) => given.push(gives),
            None => rules.push((matched, vec![gives])),
        }
    }
    rules.sort_by_key(|(matched, _)| *matched);
    let shown = rules.into_iter().map(|(matched, gives)| RuleSaid {
        rule: plan
            .rules
            .effect(matched.rule)
            .map(|effect| effect.name.clone())
            .unwrap_or_default(),
        matched_by: matched.by,
        gives,
    });
    shown.collect()
}

/// Turns candidates into what is shown.
struct Describe<'a> {
    class: &'a Class,
    snapshot: &'a Snapshot,
    choice: &'a Chosen,
}

impl Describe<'_> {
    /// The chosen region, the others that may be chosen, those that residency excludes.
    fn regions(&self, request: &Request) -> Vec<Choosable> {
        let plan = &self.snapshot.plan;
        let all = rank(self.class, self.snapshot);
        let all = regions(&all, None, self.snapshot);
        let allowed = &self.choice.regions;
        let excluded = all
            .iter()
            .filter(|region| !allowed.iter().any(|other| other.index == region.index));
        let listed = allowed.iter().chain(excluded).copied();
        let mut listed: Vec<_> = listed.collect();
        // Stable: the chosen one first, the others as they were.
        listed.sort_by_key(|region| region.index != self.choice.region.0);
        let best = allowed.first().copied();
        let shown = listed.iter().map(|region| {
            let ix = RegionIx(region.index);
            let lost = if ix == self.choice.region {
                None
            } else if request.pinned().is_some() {
                Some(Lost::Pinned)
            } else if !residency::allows(plan, self.choice.demanded, ix) {
                Some(Lost::Residency)
            } else if self.choice.explored.is_some_and(|(best, _)| best == ix) {
                Some(Lost::Explored)
            } else {
                best.map(|best| self.lost(&best, allowed, region))
            };
            let pop = region.via;
            let mut terms = pop.map_or_else(Vec::new, |pop| self.way(region, pop, ix));
            if region.cost.region_load_ms > 0 {
                terms.push(Term::RegionLoad {
                    ms: region.cost.region_load_ms,
                    load_percent: self.snapshot.live.region(ix).load_percent,
                });
            }
            Choosable {
                via: pop.map(|pop| plan.pop_name(pop).to_owned()),
                ..choosable(plan.region_name(ix), region, terms, lost)
            }
        });
        shown.collect()
    }

    fn ingresses(&self) -> Vec<Choosable> {
        let plan = &self.snapshot.plan;
        let listed = &self.choice.ingresses;
        let explored = self.choice.explored.map(|(_, best)| best);
        // What is explored came before its turn: without it the first of the others is the best.
        let best = if explored.is_some() {
            listed.get(1)
        } else {
            listed.first()
        };
        let shown = listed.iter().enumerate().map(|(i, pop)| {
            let ix = PopIx(pop.index);
            let lost = best.filter(|_| i > 0).map(|best| {
                if explored == Some(ix) || best.index == pop.index {
                    Lost::Explored
                } else {
                    self.lost(best, listed, pop)
                }
            });
            let terms = self.way(pop, ix, self.choice.region);
            choosable(plan.pop_name(ix), pop, terms, lost)
        });
        shown.collect()
    }

    /// The first difference between a candidate and the one that is best of all `listed`.
    fn lost(&self, best: &Candidate, listed: &[Candidate], other: &Candidate) -> Lost {
        let within = self.snapshot.plan.steering.equal_within_ms;
        let by_ms = other.cost.total().saturating_sub(best.cost.total());
        if other.standing != best.standing {
            return Lost::Standing;
        }
        match (best.tier, other.tier) {
            (Tier::Ordinary, Tier::Ordinary) => {
                // Equals are those close to the cheapest, which need not be the one that was drawn.
                let same = listed
                    .iter()
                    .filter(|each| each.standing == best.standing && each.tier == Tier::Ordinary);
                let least = same.map(|each| each.cost.total()).min().unwrap_or_default();
                if other.cost.total() <= least.saturating_add(within) {
                    Lost::Share
                } else {
                    Lost::Farther { by_ms }
                }
            }
            (best, other) if best == other => Lost::Farther { by_ms },
            (_, Tier::Avoided) => Lost::Avoided,
            (_, Tier::Standby) => Lost::Standby,
            (_, Tier::Named(_) | Tier::Ordinary) => Lost::Order,
        }
    }

    /// Terms of the way through a PoP.
    fn way(&self, candidate: &Candidate, pop: PopIx, region: RegionIx) -> Vec<Term> {
        let snapshot = self.snapshot;
        let median = median_of(&snapshot.measured, &self.class.groups, pop);
        let mut terms = vec![
            Term::Client {
                ms: candidate.cost.client_ms,
                evidence: cost_of(self.class, snapshot, pop).1.into(),
                clients: median.map_or(0, |(_, median)| median.clients),
            },
            Term::Backbone {
                ms: candidate.cost.backbone_ms,
                measured: snapshot.live.backbone_ms(pop, region).is_some(),
                cut: snapshot.live.is_cut(pop, region),
            },
        ];
        if candidate.cost.pop_load_ms > 0 {
            terms.push(Term::PopLoad {
                ms: candidate.cost.pop_load_ms,
                load_percent: snapshot.live.pop(pop).load_percent,
            });
        }
        terms
    }
}

fn choosable(name: &str, candidate: &Candidate, terms: Vec<Term>, lost: Option<Lost>) -> Choosable {
    Choosable {
        name: name.to_owned(),
        index: candidate.index,
        cost_ms: (candidate.standing != Standing::Unlinked).then(|| candidate.cost.total()),
        terms,
        via: None,
        standing: candidate.standing,
        tier: candidate.tier,
        lost,
    }
}
