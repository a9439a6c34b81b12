//! The half of a decision that changes with live state: from a ranking to the regions of each slot, and to the order of
//! ingresses.
//!
//! A candidate is placed by, in this order: its standing (usable, full, draining, down), its tier (named by a rule, ordinary,
//! weight 0, avoided), its cost, its place in the topology. Ordinary candidates close to the best of them are equals and are
//! ordered by rendezvous.

use serde::Serialize;

use crate::Snapshot;
use crate::live::Standing;
use crate::plan::{Families, PopIx, RegionIx, ResidencyIx};
use crate::policy::{health, load, residency};
use crate::rank::Ranking;
use crate::rendezvous::{SLOTS, draw};

/// Regions one answer carries, at most, beside one for each family of addresses that they lack.
pub const ANSWERS_MAX: usize = 8;

/// Regions of an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Regions {
    /// Those that clients are sent to, best first, at least one.
    pub best: Box<[RegionIx]>,
    /// Those that give a family of addresses which the best lack, and nothing else: they may be less usable.
    pub fill: Box<[RegionIx]>,
}

/// Regions for the clients of one ranking.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Choice {
    /// The same for all of them: nothing depends on the client's slot.
    One(Regions),
    /// By slot, [`SLOTS`] of them: equals share. An answer holds for a client's [`crate::SHARE_PREFIX_V4`] or
    /// [`crate::SHARE_PREFIX_V6`] bits at most.
    Shared(Box<[Regions]>),
}

/// Where a candidate stands among those that are as usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Named by a rule, or by the topology's order when nothing is known; with its place there.
    Named(u16),
    /// By cost.
    Ordinary,
    /// Weight 0: only when there is no other.
    Standby,
    /// Avoided.
    Avoided,
}

/// A candidate with all that places it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) index: u16,
    pub(crate) standing: Standing,
    pub(crate) tier: Tier,
    pub(crate) cost: Cost,
    /// Of a region: the ingress its cost is counted through.
    pub(crate) via: Option<PopIx>,
    pub(crate) weight: u16,
    pub(crate) key: u64,
}

/// The terms of a cost, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) client_ms: u32,
    pub(crate) backbone_ms: u32,
    pub(crate) pop_load_ms: u32,
    pub(crate) region_load_ms: u32,
}

impl Cost {
    pub(crate) const fn total(self) -> u32 {
        self.client_ms + self.backbone_ms + self.pop_load_ms + self.region_load_ms
    }
}

/// Regions for the clients of a ranking, as DNS answers with them.
#[must_use]
pub fn select(ranking: &Ranking, snapshot: &Snapshot) -> Choice {
    let candidates = regions(ranking, ranking.residency, snapshot);
    let answer = |slot: u8| answer(&candidates, slot, snapshot);
    let first = answer(0);
    if equals(&candidates, snapshot).len() < 2 {
        return Choice::One(first);
    }
    let slots: Box<[Regions]> = (0..SLOTS).map(answer).collect();
    if slots.iter().all(|regions| *regions == first) {
        Choice::One(first)
    } else {
        Choice::Shared(slots)
    }
}

/// The regions of one slot: those that stand as well as the best, without avoided and standby ones unless there are no others, and
/// without those that have no address, unless none has one: nobody could be told of them, and they would take the place of others. When
/// none of them has an address of one family, the next in order that has one follows, so that nobody's resolver learns that the
/// name has no such addresses because the best region has none.
fn answer(candidates: &[Candidate], slot: u8, snapshot: &Snapshot) -> Regions {
    let of = |region| {
        let region = snapshot.plan.region(region);
        region.map_or_else(Families::default, |region| region.families)
    };
    let mut ordered = ordered(candidates, u64::from(slot), snapshot);
    let has_address = |candidate: &Candidate| of(RegionIx(candidate.index)) != Families::default();
    if ordered.iter().any(has_address) {
        ordered.retain(has_address);
    }
    let Some(first) = ordered.first() else {
        return Regions::default();
    };
    let as_good = ordered.iter().take_while(|candidate| {
        candidate.standing == first.standing
            && (candidate.tier <= Tier::Ordinary || candidate.tier == first.tier)
    });
    let limit = snapshot.plan.answers_max.clamp(1, ANSWERS_MAX);
    let best: Box<[RegionIx]> = as_good
        .map(|candidate| RegionIx(candidate.index))
        .take(limit)
        .collect();
    let mut families = Families::default();
    for region in &best {
        families.add(of(*region));
    }
    let others = ordered.iter().map(|candidate| RegionIx(candidate.index));
    let fill = others.filter(|region| families.add(of(*region))).collect();
    Regions { best, fill }
}

/// Regions that may be chosen, placed by everything but the client's slot.
pub(crate) fn regions(
    ranking: &Ranking,
    demanded: Option<ResidencyIx>,
    snapshot: &Snapshot,
) -> Vec<Candidate> {
    let plan = &snapshot.plan;
    let allowed = plan
        .regions()
        .filter(|region| residency::allows(plan, demanded, *region));
    let mut candidates: Vec<_> = allowed
        .map(|region| region_candidate(ranking, region, snapshot))
        .collect();
    candidates.sort_by_key(placed);
    candidates
}

fn region_candidate(ranking: &Ranking, ix: RegionIx, snapshot: &Snapshot) -> Candidate {
    let condition = snapshot.live.region(ix);
    let constants = &snapshot.plan.steering.load;
    let standing = health::standing(condition, constants);
    let region = snapshot.plan.region(ix);
    let weight = region.map_or(0, |region| region.weight);
    let ways = region.map_or(&[][..], |region| &region.pops);
    let ways = ways
        .iter()
        .map(|pop| pop_candidate(ranking, *pop, ix, snapshot));
    let way = ways.min_by_key(placed);
    let mut cost = way.map_or_else(Cost::default, |way| way.cost);
    cost.region_load_ms = load::penalty_ms(condition.load_percent, constants);
    Candidate {
        index: ix.0,
        standing: standing.max(way.map_or(Standing::Unlinked, |way| way.standing)),
        tier: tier(&ranking.regions_first, &ranking.regions_last, &ix, weight),
        cost,
        via: way.map(|way| PopIx(way.index)),
        weight,
        key: region.map_or(0, |region| region.key),
    }
}

/// PoPs with links to a region, placed by everything but the client's prefix.
pub(crate) fn ingresses(
    ranking: &Ranking,
    region: RegionIx,
    snapshot: &Snapshot,
) -> Vec<Candidate> {
    let linked = snapshot.plan.region(region);
    let linked = linked.map_or(&[][..], |region| &region.pops);
    let mut candidates: Vec<_> = linked
        .iter()
        .map(|pop| pop_candidate(ranking, *pop, region, snapshot))
        .collect();
    candidates.sort_by_key(placed);
    candidates
}

fn pop_candidate(ranking: &Ranking, ix: PopIx, region: RegionIx, snapshot: &Snapshot) -> Candidate {
    let condition = snapshot.live.pop(ix);
    let constants = &snapshot.plan.steering.load;
    let pop = snapshot.plan.pop(ix);
    let weight = pop.map_or(0, |pop| pop.weight);
    let backbone_ms = snapshot.plan.backbone_ms(ix, region, &snapshot.live);
    let client_ms = ranking.rtt_ms.get(usize::from(ix.0)).copied();
    let cut = snapshot.live.is_cut(ix, region);
    Candidate {
        index: ix.0,
        standing: health::standing_of_way(condition, cut, constants),
        tier: tier(&ranking.pops_first, &ranking.pops_last, &ix, weight),
        cost: Cost {
            client_ms: u32::from(client_ms.unwrap_or_default()),
            backbone_ms: u32::from(backbone_ms.unwrap_or_default()),
            pop_load_ms: load::penalty_ms(condition.load_percent, constants),
            region_load_ms: 0,
        },
        via: None,
        weight,
        key: pop.map_or(0, |pop| pop.key),
    }
}

/// Candidates with the equals among them in the order of one group of clients.
pub(crate) fn ordered(candidates: &[Candidate], group: u64, snapshot: &Snapshot) -> Vec<Candidate> {
    let mut ordered = candidates.to_vec();
    let equals = equals(candidates, snapshot);
    if let Some(equals) = ordered.get_mut(equals) {
        equals.sort_by(|a, b| {
            let draws = [a, b].map(|candidate| draw(candidate.key, group, candidate.weight));
            let [a_draw, b_draw] = draws;
            a_draw.total_cmp(&b_draw).then(a.index.cmp(&b.index))
        });
    }
    ordered
}

/// Which of the placed candidates share clients: the ordinary ones close to the best of them that stands as well.
pub(crate) fn equals(candidates: &[Candidate], snapshot: &Snapshot) -> std::ops::Range<usize> {
    let within = snapshot.plan.steering.equal_within_ms;
    let standing = candidates.first().map(|best| best.standing);
    let mut ordinary = candidates.iter().enumerate().filter(|(_, candidate)| {
        Some(candidate.standing) == standing && candidate.tier == Tier::Ordinary
    });
    let Some((start, best)) = ordinary.next() else {
        return 0..0;
    };
    let limit = best.cost.total().saturating_add(within);
    let others = ordinary.take_while(|(_, candidate)| candidate.cost.total() <= limit);
    start..start + 1 + others.count()
}

/// What candidates are sorted by.
pub(crate) fn placed(candidate: &Candidate) -> (Standing, Tier, u32, u16) {
    (
        candidate.standing,
        candidate.tier,
        candidate.cost.total(),
        candidate.index,
    )
}

fn tier<T: PartialEq>(first: &[T], last: &[T], item: &T, weight: u16) -> Tier {
    if let Some(at) = first.iter().position(|named| named == item) {
        Tier::Named(crate::plan::index(at))
    } else if last.contains(item) {
        Tier::Avoided
    } else if weight == 0 {
        Tier::Standby
    } else {
        Tier::Ordinary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{Condition, Live};
    use crate::plan::Plan;
    use std::net::IpAddr;
    use std::sync::Arc;

    /// Region 0 has IPv6 alone, region 2 IPv4 alone, the others both; in the order of the topology where nothing is known.
    fn snapshot(answers_max: u8, down: &[u16]) -> Snapshot {
        snapshot_without(answers_max, down, &[])
    }

    /// And these regions have no address at all.
    fn snapshot_without(answers_max: u8, down: &[u16], silent: &[u16]) -> Snapshot {
        let text = include_str!("../../../topology/samples/world.yaml");
        let mut topology = topology::load(text, "world.yaml").unwrap();
        topology.dns.as_mut().unwrap().answers_max = answers_max;
        let [first, _, third, ..] = &mut topology.regions[..] else {
            panic!("three regions");
        };
        first.signaling_addresses.retain(IpAddr::is_ipv6);
        third.signaling_addresses.retain(IpAddr::is_ipv4);
        for region in silent {
            let region = topology.regions.get_mut(usize::from(*region)).unwrap();
            region.signaling_addresses.clear();
        }
        let mut snapshot = Snapshot::of(Plan::new(&topology));
        let mut live = Live::well(&snapshot.plan);
        for region in down {
            let condition = Condition {
                draining: true,
                ..Condition::default()
            };
            live.set_region(RegionIx(*region), condition);
        }
        snapshot.live = Arc::new(live);
        snapshot
    }

    fn ranked(order: [u16; 4]) -> Ranking {
        Ranking {
            regions_first: order.map(RegionIx).into(),
            ..Ranking::default()
        }
    }

    fn chosen(best: &[u16], fill: &[u16]) -> Choice {
        let list = |of: &[u16]| of.iter().copied().map(RegionIx).collect();
        Choice::One(Regions {
            best: list(best),
            fill: list(fill),
        })
    }

    #[test]
    fn a_family_that_the_best_lack_is_filled_in_and_nothing_else_is() {
        for (answers_max, order, down, best, fill) in [
            (1, [0, 1, 2, 3], &[][..], &[0][..], &[1][..]),
            (1, [0, 2, 1, 3], &[], &[0], &[2]),
            (1, [1, 0, 2, 3], &[], &[1], &[]),
            (1, [2, 3, 0, 1], &[], &[2], &[3]),
            (2, [0, 1, 2, 3], &[], &[0, 1], &[]),
            // Who does not stand as well is no second answer, and gives the family all the same.
            (2, [0, 1, 2, 3], &[1, 2, 3], &[0], &[1]),
            (3, [2, 0, 1, 3], &[0, 1, 3], &[2], &[0]),
            // One that stands as well comes first, wherever it is.
            (3, [0, 1, 2, 3], &[1, 2], &[0, 3], &[]),
        ] {
            let snapshot = snapshot(answers_max, down);
            assert_eq!(
                select(&ranked(order), &snapshot),
                chosen(best, fill),
                "{answers_max} of {order:?} without {down:?}"
            );
        }
    }

    #[test]
    fn a_region_without_an_address_takes_no_place() {
        for (answers_max, silent, down, best, fill) in [
            (2, &[0][..], &[][..], &[1, 2][..], &[][..]),
            (1, &[0, 1], &[], &[2], &[3]),
            // It stands better than all that have addresses.
            (2, &[0], &[1, 2, 3], &[1, 2], &[]),
            // There is nobody else to send clients to.
            (2, &[0, 1, 2, 3], &[], &[0, 1], &[]),
        ] {
            let snapshot = snapshot_without(answers_max, down, silent);
            assert_eq!(
                select(&ranked([0, 1, 2, 3]), &snapshot),
                chosen(best, fill),
                "{answers_max} without {silent:?}, {down:?} draining"
            );
        }
    }
}
