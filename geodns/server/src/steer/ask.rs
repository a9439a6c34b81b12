//! What is asked of steering and what is told. `docs/protocol/steering.md` is the contract.

use std::net::{IpAddr, SocketAddr};

use geodns_policy::decision::{Choosable, Decision};
use geodns_policy::live::Standing;
use geodns_policy::select::Tier;
use geodns_policy::{Request, RequestError};
use serde::{Deserialize, Serialize};
use topology::Topology;

use crate::explain::{DatabaseShown, databases};
use crate::world::World;

/// Longest question, in bytes.
pub(crate) const ASK_BYTES_MAX: usize = 4 * 1024;

/// The body of `POST /v1/steer`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask {
    /// The client's address.
    pub(crate) client: IpAddr,
    /// The region that has its session, or that it must get.
    #[serde(default)]
    pub(crate) region: Option<String>,
    /// Only regions of this residency.
    #[serde(default)]
    pub(crate) residency: Option<String>,
}

/// Never the client's address.
impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ask")
            .field("region", &self.region)
            .field("residency", &self.residency)
            .finish_non_exhaustive()
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told {
    /// The region for signaling and sessions.
    pub(crate) region: String,
    /// Where media enters, best first.
    pub(crate) ingress: Vec<Ingress>,
    /// How long the answer may be kept.
    pub(crate) ttl_s: u32,
    /// What it was chosen by.
    pub(crate) decision: Decision,
    /// What is known of addresses.
    pub(crate) databases: Vec<DatabaseShown>,
}

/// A way in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ingress {
    /// The PoP; none for the addresses that several share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pop: Option<String>,
    /// Its addresses, the first of each family first.
    pub(crate) addresses: Vec<SocketAddr>,
}

/// Answers.
///
/// # Errors
/// See [`RequestError`].
pub(crate) fn tell(world: &World, ask: &Ask, unix_s: u64) -> Result<Told, RequestError> {
    let plan = &world.snapshot.plan;
    let request = Request::new(plan, ask.region.as_deref(), ask.residency.as_deref())?;
    let decision = world
        .grounds()
        .decide(ask.client, &request.exploring_at(unix_s));
    Ok(Told {
        region: decision.region.clone(),
        ingress: ingress(&world.config.topology, &decision.ingresses),
        ttl_s: decision.ttl_s,
        databases: databases(&world.databases, unix_s),
        decision,
    })
}

/// The chosen PoP, the addresses that all share, then what else is as usable: `signaling.ingress_max` PoPs at most.
fn ingress(topology: &Topology, candidates: &[Choosable]) -> Vec<Ingress> {
    let best = candidates.first();
    let as_good = candidates.iter().filter(|candidate| {
        best.is_some_and(|best| is_as_good(candidate, best.standing, best.tier))
    });
    let most = usize::from(topology.network.signaling.ingress_max);
    let pops = as_good.take(most).filter_map(|candidate| {
        let pop = topology.pop_named(&candidate.name)?;
        Some(Ingress {
            pop: Some(pop.name.clone()),
            addresses: pop.advertised(),
        })
    });
    let mut list: Vec<_> = pops.collect();
    if !topology.network.vips.is_empty() {
        let vips = Ingress {
            pop: None,
            addresses: topology.network.vips.clone(),
        };
        list.insert(list.len().min(1), vips);
    }
    list
}

fn is_as_good(candidate: &Choosable, standing: Standing, tier: Tier) -> bool {
    candidate.standing == standing && (candidate.tier <= Tier::Ordinary || candidate.tier == tier)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORLD: &str = include_str!("../../../../topology/samples/world.yaml");

    fn choosable(name: &str, standing: Standing, tier: Tier) -> Choosable {
        Choosable {
            name: name.to_owned(),
            index: 0,
            cost_ms: None,
            terms: Vec::new(),
            via: None,
            standing,
            tier,
            lost: None,
        }
    }

    #[test]
    fn the_chosen_one_then_what_all_share_then_others_that_are_as_good() {
        let topology = topology::load(WORLD, "world.yaml").unwrap();
        let names = |candidates: &[Choosable]| -> Vec<String> {
            let list = ingress(&topology, candidates);
            let name = |one: &Ingress| one.pop.clone().unwrap_or_else(|| "vip".to_owned());
            list.iter().map(name).collect()
        };
        use Standing::{Draining, Usable};
        use Tier::{Avoided, Named, Ordinary, Standby};
        let of = |name, standing, tier| choosable(name, standing, tier);
        for (candidates, expected) in [
            (vec![], vec!["vip"]),
            (vec![of("ams", Usable, Ordinary)], vec!["ams", "vip"]),
            (
                vec![
                    of("mad", Usable, Named(0)),
                    of("ams", Usable, Ordinary),
                    of("lhr", Usable, Ordinary),
                    of("waw", Usable, Ordinary),
                ],
                vec!["mad", "vip", "ams", "lhr"],
            ),
            (
                vec![
                    of("ams", Usable, Ordinary),
                    of("lhr", Usable, Standby),
                    of("waw", Usable, Avoided),
                    of("mad", Draining, Ordinary),
                ],
                vec!["ams", "vip"],
            ),
            (
                vec![of("lhr", Draining, Standby), of("mad", Draining, Standby)],
                vec!["lhr", "vip", "mad"],
            ),
        ] {
            assert_eq!(names(&candidates), expected);
        }
    }

    #[test]
    fn what_is_asked_is_read_strictly_and_never_shown() {
        let ask = |text: &str| serde_json::from_str::<Ask>(text);
        let good = ask(r#"{"client":"198.51.100.7","region":"eu"}"#).unwrap();
        assert_eq!(good.client.to_string(), "198.51.100.7");
        assert!(!format!("{good:?}").contains("198.51"));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"client":"198.51.100.300"}"#,
            r#"{"client":"198.51.100.7:80"}"#,
            r#"{"client":"198.51.100.7","more":1}"#,
        ] {
            assert!(ask(bad).is_err(), "{bad}");
        }
    }
}
