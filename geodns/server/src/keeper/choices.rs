//! From lists to answers: what each list is answered with at the moment, and the bytes of every answer there is.
//!
//! Many lists share few answers. Which they are changes with health, drains, load and weights, and with nothing else.

use std::collections::BTreeMap;

use anyhow::Context as _;
use geodns_policy::{Choice, Ranking, RegionIx, Regions, Snapshot, select};
use geodns_proto::dnssec::Signer;
use geodns_proto::render::{AnswerId, Rendered};
use geodns_proto::select::{SLOTS, Selection};
use geodns_proto::zone::{Carried, Steered};
use geodns_proto::{Content, Zone};

/// What every list is answered with.
pub(super) struct Choices {
    pub(super) selection: Selection,
    pub(super) content: Content,
    pub(super) rendered: Rendered,
}

/// Signed records of answers, so that an answer that comes back is not signed again.
#[derive(Default)]
pub(super) struct Signed(BTreeMap<Carried, Steered>);

/// Chooses for every list. `zone` is signed if `signer` is there.
pub(super) fn choose(
    zone: &Zone,
    lists: &[Ranking],
    snapshot: &Snapshot,
    signing: Option<(&Signer<'_>, &mut Signed)>,
    seed: u64,
) -> anyhow::Result<Choices> {
    let mut answers = Answers {
        zone,
        ids: BTreeMap::new(),
    };
    // A list that is not there has the first answer: as if nothing were known of the client.
    let all: Box<[RegionIx]> = snapshot.plan.regions().collect();
    answers.id(&Regions {
        best: all.clone(),
        fill: all,
    })?;
    let mut selection = Selection::new();
    for list in lists {
        match select(list, snapshot) {
            Choice::One(regions) => selection.push(answers.id(&regions)?),
            Choice::Shared(slots) => {
                let mut ids = [AnswerId(0); SLOTS];
                for (id, regions) in ids.iter_mut().zip(&slots) {
                    *id = answers.id(regions)?;
                }
                selection.push_shared(ids);
            }
        }
    }
    let content = Content::new(zone.clone(), answers.records(signing)?);
    let rendered = content.render(seed)?;
    Ok(Choices {
        selection,
        content,
        rendered,
    })
}

/// Answers by the regions they carry.
struct Answers<'a> {
    zone: &'a Zone,
    ids: BTreeMap<Carried, u16>,
}

impl Answers<'_> {
    fn id(&mut self, regions: &Regions) -> anyhow::Result<AnswerId> {
        let positions = |regions: &[RegionIx]| regions.iter().map(|region| region.0).collect();
        let (best, fill): (Vec<u16>, Vec<u16>) =
            (positions(&regions.best), positions(&regions.fill));
        let carried = self.zone.carried(best, fill);
        if let Some(id) = self.ids.get(&carried) {
            return Ok(AnswerId(*id));
        }
        let id = u16::try_from(self.ids.len()).context("more than 65536 answers")?;
        self.ids.insert(carried, id);
        Ok(AnswerId(id))
    }

    /// By id.
    fn records(
        self,
        mut signing: Option<(&Signer<'_>, &mut Signed)>,
    ) -> anyhow::Result<Vec<Steered>> {
        let ids = self.ids.into_iter();
        let mut by_id: Vec<(u16, Carried)> = ids.map(|(carried, id)| (id, carried)).collect();
        by_id.sort_unstable();
        let mut records = Vec::with_capacity(by_id.len());
        let mut kept = BTreeMap::new();
        for (_, carried) in by_id {
            let Some((signer, signed)) = &mut signing else {
                records.push(self.zone.steered(&carried));
                continue;
            };
            let steered = match signed.0.remove(&carried) {
                Some(steered) => steered,
                None => {
                    let mut steered = self.zone.steered(&carried);
                    self.zone.sign_steered(&mut steered, signer)?;
                    steered
                }
            };
            kept.insert(carried, steered.clone());
            records.push(steered);
        }
        if let Some((_, signed)) = signing {
            signed.0 = kept;
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geodns_policy::{Condition, Live, Plan};
    use geodns_proto::answer::{Answer, SteeredType};
    use std::sync::Arc;

    const WORLD: &str = include_str!("../../../../topology/samples/world.yaml");

    #[test]
    fn lists_share_answers_and_a_region_that_drains_leaves_them() {
        let topology = topology::load(WORLD, "world.yaml").unwrap();
        let zone = Zone::new(&topology).unwrap();
        let mut snapshot = Snapshot::of(Plan::new(&topology));
        let first = |order: [u16; 4]| Ranking {
            regions_first: order.map(RegionIx).into(),
            ..Ranking::default()
        };
        let lists = [
            first([0, 1, 2, 3]),
            first([1, 0, 2, 3]),
            first([0, 2, 1, 3]),
        ];
        let addresses = |snapshot: &Snapshot| -> Vec<String> {
            let choices = choose(&zone, &lists, snapshot, None, 1).unwrap();
            assert_eq!(choices.selection.lists(), 3);
            let map = NoMap;
            let client = "192.0.2.1".parse().unwrap();
            (0..3)
                .map(|list| {
                    let place = geodns_proto::select::Place { list, scope: 0 };
                    let (id, _) = choices.selection.answer(place, client, &map);
                    id.0.to_string()
                })
                .collect()
        };
        assert_eq!(addresses(&snapshot), ["0", "1", "0"]);
        let mut live = Live::well(&snapshot.plan);
        live.set_region(
            RegionIx(0),
            Condition {
                draining: true,
                ..Condition::default()
            },
        );
        snapshot.live = Arc::new(live);
        let drained = addresses(&snapshot);
        assert_eq!(drained[0], drained[1], "the next in order");
        assert_ne!(drained[0], drained[2]);
    }

    /// The only healthy region speaks IPv6 alone: who drains gives IPv4 and no more, however many regions an answer may have.
    #[test]
    fn a_region_that_only_fills_in_is_not_among_the_answers() {
        let mut topology = topology::load(WORLD, "world.yaml").unwrap();
        topology.dns.as_mut().unwrap().answers_max = 3;
        topology.regions[0]
            .signaling_addresses
            .retain(std::net::IpAddr::is_ipv6);
        let zone = Zone::new(&topology).unwrap();
        let plan = Plan::new(&topology);
        let draining = Condition {
            draining: true,
            ..Condition::default()
        };
        let mut live = Live::well(&plan);
        (1..4).for_each(|region| live.set_region(RegionIx(region), draining));
        let snapshot = |live: Live| Snapshot {
            live: Arc::new(live),
            ..Snapshot::of(plan.clone())
        };
        let list = Ranking {
            regions_first: [0, 1].map(RegionIx).into(),
            ..Ranking::default()
        };
        let counts = |live: Live| {
            let choices =
                choose(&zone, std::slice::from_ref(&list), &snapshot(live), None, 1).unwrap();
            let place = geodns_proto::select::Place { list: 0, scope: 0 };
            let client = "192.0.2.1".parse().unwrap();
            let (id, _) = choices.selection.answer(place, client, &NoMap);
            let name = zone.steered_name().unwrap().as_wire();
            [SteeredType::A, SteeredType::Aaaa].map(|rtype| {
                let sections = choices
                    .content
                    .sections(Answer::Steered(rtype), name, id, false);
                sections.answers[0].set().rdata.len()
            })
        };
        assert_eq!(counts(live), [1, 1]);
        let well = counts(Live::well(&plan));
        assert_eq!(well, [2, 3], "three that are well, one without IPv4");
    }

    struct NoMap;

    impl geodns_proto::select::Locate for NoMap {
        fn locate_v4(&self, _: u32) -> geodns_proto::select::Place {
            Default::default()
        }
        fn locate_v6(&self, _: u128) -> geodns_proto::select::Place {
            Default::default()
        }
        fn first_word(&self, _: std::net::IpAddr) -> &u32 {
            &0
        }
        fn slot(&self, _: std::net::IpAddr) -> u8 {
            0
        }
    }
}
