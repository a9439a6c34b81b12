//! From lists to answers: what each list is answered with at the moment, and the bytes of every answer there is.
//!
//! Many lists share few answers. Which they are changes with health, drains, load and weights, and with nothing else.

use std::collections::BTreeMap;

use anyhow::Context as _;
use geodns_policy::{Choice, Ranking, RegionIx, Snapshot, select};
use geodns_proto::dnssec::Signer;
use geodns_proto::render::{AnswerId, Rendered};
use geodns_proto::select::{SLOTS, Selection};
use geodns_proto::zone::Steered;
use geodns_proto::{Content, Zone};

/// What every list is answered with.
pub(super) struct Choices {
    pub(super) selection: Selection,
    pub(super) content: Content,
    pub(super) rendered: Rendered,
}

/// Signed records of answers, so that an answer that comes back is not signed again.
#[derive(Default)]
pub(super) struct Signed(BTreeMap<Vec<u16>, Steered>);

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
    answers.id(&snapshot.plan.regions().collect::<Vec<_>>())?;
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
    ids: BTreeMap<Vec<u16>, u16>,
}

impl Answers<'_> {
    fn id(&mut self, regions: &[RegionIx]) -> anyhow::Result<AnswerId> {
        let carried = self.zone.answered(regions.iter().map(|region| region.0));
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
        let mut by_id: Vec<(u16, Vec<u16>)> = self
            .ids
            .into_iter()
            .map(|(regions, id)| (id, regions))
            .collect();
        by_id.sort_unstable();
        let mut records = Vec::with_capacity(by_id.len());
        let mut kept = BTreeMap::new();
        for (_, regions) in by_id {
            let Some((signer, signed)) = &mut signing else {
                records.push(self.zone.steered(regions));
                continue;
            };
            let steered = match signed.0.remove(&regions) {
                Some(steered) => steered,
                None => {
                    let mut steered = self.zone.steered(regions.iter().copied());
                    self.zone.sign_steered(&mut steered, signer)?;
                    steered
                }
            };
            kept.insert(regions, steered.clone());
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
