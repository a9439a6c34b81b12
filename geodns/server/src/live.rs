//! From what nodes tell (`runtime::store`) to what the policy decides by: conditions of PoPs and regions, backbone round trips, and
//! reports of measured round trips.
//!
//! ```text
//!  said of a node                        it is
//!  ─────────────────────────────────────────────────────────────
//!  nothing, ever                         as it was, at first well: silence is no news
//!  gone: the store answers, it does not  unhealthy
//!  not ready                             unhealthy
//!  draining, full                        believed
//! ```
//!
//! A region is as healthy as its best core relay and its best transceiver; its load is that of its transceivers that take sessions.
//!
//! What is not here: when a node is gone, and what stays when the store is dead (`runtime::store`); which evidence counts (`geodns_policy`).

use std::sync::Arc;

use geodns_policy::{Condition, Live, Median, Plan, PopIx, RegionIx, Report};
use runtime::store::{LinkState, Medians, NodeState, PopState, Role, States};
use topology::{Region, Topology};

/// Live state of all sites. What nothing is said of stays as it was `before`; that is also what a store that does not answer leaves. Round
/// trips enter averages: those that were read already with `taken` count no further time, unless nothing else is known of their link.
#[must_use]
pub fn live(
    states: &States,
    taken: &States,
    topology: &Topology,
    plan: &Plan,
    before: &Live,
) -> Live {
    let mut live = before.clone();
    for pop in &topology.pops {
        let Some(ix) = plan.pop_named(&pop.name) else {
            continue;
        };
        if let Some(known) = Known::of(states, &pop.name) {
            live.set_pop(ix, pop_condition(known));
        }
        let Some(told) = told_of_pop(states, &pop.name) else {
            continue;
        };
        let is_taken = is_taken(states, taken, &pop.name);
        for link in &told.links {
            if let Some(region) = plan.region_named(&link.region) {
                take_link(&mut live, (ix, region), link, is_taken);
            }
        }
    }
    for region in &topology.regions {
        if let Some(ix) = plan.region_named(&region.name)
            && let Some(condition) = region_condition(states, region)
        {
            live.set_region(ix, condition);
        }
    }
    live
}

fn take_link(live: &mut Live, (pop, region): (PopIx, RegionIx), link: &LinkState, is_taken: bool) {
    if !link.up {
        live.set_cut(pop, region, true);
        return;
    }
    let is_known = live.is_backbone_known(pop, region);
    if let Some(rtt_us) = link.rtt_us.filter(|_| !is_taken || !is_known) {
        live.set_backbone(pop, region, rtt_us);
    }
    live.set_cut(pop, region, false);
}

/// Whether what a node told last is what it had told before.
fn is_taken(states: &States, taken: &States, name: &str) -> bool {
    let [now, before] = [states, taken].map(|states| states.nodes.get(name)?.state.as_ref());
    now.zip(before)
        .is_some_and(|(now, before)| Arc::ptr_eq(now, before))
}

/// What PoPs report of client prefixes, as old as it is at `unix_s`. `counts` says of a PoP, and of when it was told (Unix time), whether it is
/// looked at.
pub fn reports(
    states: &States,
    plan: &Plan,
    unix_s: u64,
    counts: impl Fn(&str, u64) -> bool,
) -> impl Iterator<Item = Report> {
    let of_pop = move |(name, medians): (&String, &Arc<Medians>)| {
        let pop = plan.pop_named(name)?;
        if !counts(name, medians.told_unix_s) {
            return None;
        }
        let medians = Arc::clone(medians);
        // Clocks of nodes may differ: what comes from the future is of now.
        let age_s = unix_s.saturating_sub(medians.told_unix_s);
        let age_s = u32::try_from(age_s).unwrap_or(u32::MAX);
        let count = medians.prefixes.len();
        Some((0..count).filter_map(move |at| {
            let median = medians.prefixes.get(at)?;
            Some(Report {
                pop,
                prefix: median.prefix,
                median: Median {
                    rtt_us: median.rtt_us,
                    clients: median.clients,
                },
                age_s: age_s.saturating_add(median.age_s),
            })
        }))
    };
    states.medians.iter().filter_map(of_pop).flatten()
}

/// What is known of a node.
#[derive(Clone, Copy)]
struct Known<'a> {
    state: Option<&'a NodeState>,
    gone: bool,
}

impl<'a> Known<'a> {
    /// `None` of a node that nobody has asked the store for.
    fn of(states: &'a States, name: &str) -> Option<Self> {
        let seen = states.nodes.get(name)?;
        Some(Self {
            state: seen.state.as_deref(),
            gone: seen.gone,
        })
    }

    fn healthy(self) -> bool {
        !self.gone && self.state.is_none_or(|state| state.ready)
    }

    fn draining(self) -> bool {
        self.state.is_some_and(|state| state.draining)
    }
}

fn told_of_pop<'a>(states: &'a States, name: &str) -> Option<&'a PopState> {
    match &Known::of(states, name)?.state?.role {
        Role::Pop(pop) => Some(pop),
        Role::CoreRelay(_) | Role::Transceiver(_) | Role::GeoDns(_) => None,
    }
}

fn pop_condition(known: Known<'_>) -> Condition {
    let load = match known.state.map(|state| &state.role) {
        Some(Role::Pop(pop)) => (pop.flows, pop.flows_max),
        Some(Role::CoreRelay(_) | Role::Transceiver(_) | Role::GeoDns(_)) | None => (0, 0),
    };
    Condition {
        healthy: known.healthy(),
        draining: known.draining(),
        load_percent: percent(load),
    }
}

/// `None` when nothing is known of any core relay, or of any transceiver.
fn region_condition(states: &States, region: &Region) -> Option<Condition> {
    let relays = region.core_relays.iter().map(|relay| &relay.name);
    let transceivers = region.transceivers.nodes.iter().map(|node| &node.name);
    let healthy = |known: &Known<'_>| known.healthy();
    let relays: Vec<_> = relays.filter_map(|name| Known::of(states, name)).collect();
    let transceivers: Vec<_> = transceivers
        .filter_map(|name| Known::of(states, name))
        .collect();
    if relays.is_empty() || transceivers.is_empty() {
        return None;
    }
    let drains = |nodes: &[Known<'_>]| {
        let mut healthy = nodes.iter().copied().filter(healthy).peekable();
        healthy.peek().is_some() && healthy.all(Known::draining)
    };
    let takes_on = transceivers
        .iter()
        .filter(|known| known.healthy() && !known.draining());
    let load = takes_on.fold((0u64, 0u64), |sum, known| {
        match known.state.map(|state| &state.role) {
            Some(Role::Transceiver(told)) => (
                sum.0.saturating_add(told.sessions),
                sum.1.saturating_add(told.sessions_max),
            ),
            Some(Role::Pop(_) | Role::CoreRelay(_) | Role::GeoDns(_)) | None => sum,
        }
    });
    Some(Condition {
        healthy: relays.iter().any(|known| known.healthy())
            && transceivers.iter().any(|known| known.healthy()),
        draining: drains(&relays) || drains(&transceivers),
        load_percent: percent(load),
    })
}

/// Of nothing, nothing is used.
fn percent((used, capacity): (u64, u64)) -> u16 {
    let percent = used.saturating_mul(100).checked_div(capacity);
    u16::try_from(percent.unwrap_or_default()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use runtime::store::{CoreRelayState, PrefixMedian, Seen, TransceiverState, VERSION};

    const WORLD: &str = include_str!("../../../topology/samples/world.yaml");

    struct World {
        topology: Topology,
        plan: Plan,
        states: States,
        taken: States,
        live: Live,
    }

    impl World {
        /// Every node was asked for and has told nothing.
        fn new() -> Self {
            let topology = topology::load(WORLD, "world.yaml").unwrap();
            let plan = Plan::new(&topology);
            let mut states = States::default();
            for name in topology.node_names() {
                states.nodes.insert(name.to_owned(), Seen::default());
            }
            Self {
                live: Live::well(&plan),
                topology,
                plan,
                states,
                taken: States::default(),
            }
        }

        fn tell(&mut self, node: &str, (ready, draining): (bool, bool), role: Role) {
            let state = NodeState {
                version: VERSION,
                node: node.to_owned(),
                told_ms: 0,
                ready,
                draining,
                role,
            };
            self.states.nodes.insert(node.to_owned(), Seen::told(state));
        }

        fn gone(&mut self, node: &str) {
            self.states.nodes.entry(node.to_owned()).or_default().gone = true;
        }

        fn take(&mut self) {
            let (states, taken) = (&self.states, &self.taken);
            self.live = live(states, taken, &self.topology, &self.plan, &self.live);
            self.taken = self.states.clone();
        }

        fn pop(&mut self) -> Condition {
            self.take();
            self.live.pop(PopIx(0))
        }

        fn region(&mut self) -> Condition {
            self.take();
            self.live.region(RegionIx(0))
        }

        fn pop_name(&self) -> String {
            self.topology.pops[0].name.clone()
        }

        fn relays(&self) -> Vec<String> {
            let relays = &self.topology.regions[0].core_relays;
            relays.iter().map(|relay| relay.name.clone()).collect()
        }

        fn transceivers(&self) -> Vec<String> {
            let nodes = &self.topology.regions[0].transceivers.nodes;
            nodes.iter().map(|node| node.name.clone()).collect()
        }
    }

    fn condition(healthy: bool, draining: bool, load_percent: u16) -> Condition {
        Condition {
            healthy,
            draining,
            load_percent,
        }
    }

    fn pop(flows: u64, links: Vec<LinkState>) -> Role {
        Role::Pop(PopState {
            flows,
            flows_max: 200,
            links,
        })
    }

    fn sessions(sessions: u64) -> Role {
        Role::Transceiver(TransceiverState {
            sessions,
            sessions_max: 100,
        })
    }

    fn relay_role() -> Role {
        Role::CoreRelay(CoreRelayState::default())
    }

    #[test]
    fn what_a_pop_says_is_believed_and_silence_is_no_news() {
        let mut world = World::new();
        let name = world.pop_name();
        assert_eq!(world.pop(), condition(true, false, 0));
        world.tell(&name, (true, false), pop(150, Vec::new()));
        assert_eq!(world.pop(), condition(true, false, 75));
        world.tell(&name, (true, true), pop(200, Vec::new()));
        assert_eq!(world.pop(), condition(true, true, 100));
        world.tell(&name, (false, false), pop(0, Vec::new()));
        assert_eq!(world.pop(), condition(false, false, 0));
        world.tell(&name, (true, false), pop(0, Vec::new()));
        world.gone(&name);
        assert_eq!(world.pop(), condition(false, false, 0));
        // Somebody else's value under its key says nothing of its load.
        world.tell(&name, (true, false), relay_role());
        assert_eq!(world.pop(), condition(true, false, 0));
    }

    #[test]
    fn a_pop_that_never_told_while_the_store_is_alive_is_unhealthy() {
        let mut world = World::new();
        world.gone(&world.pop_name());
        assert_eq!(world.pop(), condition(false, false, 0));
    }

    #[test]
    fn a_region_lives_while_one_relay_and_one_transceiver_do() {
        let mut world = World::new();
        let (relays, transceivers) = (world.relays(), world.transceivers());
        assert!(
            relays.len() > 1 && transceivers.len() > 1,
            "a larger sample"
        );
        for relay in &relays[1..] {
            world.gone(relay);
        }
        for transceiver in &transceivers[1..] {
            world.gone(transceiver);
        }
        assert_eq!(world.region(), condition(true, false, 0));
        world.tell(&transceivers[0], (true, true), sessions(50));
        assert_eq!(world.region(), condition(true, true, 0));
        world.tell(&transceivers[0], (true, false), sessions(50));
        assert_eq!(world.region(), condition(true, false, 50));
        world.tell(&relays[0], (true, true), relay_role());
        assert_eq!(world.region(), condition(true, true, 50));
        world.tell(&relays[0], (false, false), relay_role());
        assert_eq!(world.region(), condition(false, false, 50));
        world.tell(&relays[0], (true, false), relay_role());
        world.gone(&transceivers[0]);
        assert_eq!(world.region(), condition(false, false, 0));
    }

    #[test]
    fn the_load_of_a_region_is_that_of_transceivers_that_take_sessions() {
        let mut world = World::new();
        let names = world.transceivers();
        world.tell(&names[0], (true, false), sessions(90));
        world.tell(&names[1], (true, false), sessions(30));
        assert_eq!(world.region().load_percent, 60);
        world.tell(&names[0], (true, true), sessions(90));
        assert_eq!(world.region(), condition(true, false, 30));
    }

    #[test]
    fn backbone_round_trips_are_those_of_links_and_a_cut_link_is_no_way() {
        let mut world = World::new();
        let name = world.pop_name();
        let region = world.topology.regions[0].name.clone();
        let link = |up, rtt_us| LinkState {
            region: region.clone(),
            up,
            rtt_us,
            owner_rtt_us: None,
        };
        let mut told = |links| {
            world.tell(&name, (true, false), pop(0, links));
            world.take();
            let live = &world.live;
            let (pop, region) = (PopIx(0), RegionIx(0));
            (live.backbone_ms(pop, region), live.is_cut(pop, region))
        };
        assert_eq!(told(vec![link(true, None)]), (None, false));
        assert_eq!(told(vec![link(true, Some(41_000))]), (Some(41), false));
        assert_eq!(told(vec![link(true, None)]), (Some(41), false));
        assert_eq!(told(Vec::new()), (Some(41), false));
        assert_eq!(told(vec![link(false, None)]), (Some(41), true));
        assert_eq!(told(Vec::new()), (Some(41), true), "no news");
        assert_eq!(told(vec![link(true, None)]), (Some(41), false));
        assert_eq!(told(vec![link(false, None)]), (Some(41), true));
        assert_eq!(told(vec![link(true, Some(60_000))]), (Some(60), false));
        // Up before it is measured: what it is then has nothing to do with what it was.
        assert_eq!(told(vec![link(false, None)]), (Some(60), true));
        assert_eq!(told(vec![link(true, None)]), (Some(60), false));
        assert_eq!(told(vec![link(true, Some(120_000))]), (Some(120), false));
        let other = LinkState {
            region: "nowhere".to_owned(),
            ..link(true, Some(1))
        };
        assert_eq!(told(vec![other]), (Some(120), false));
    }

    #[test]
    fn a_value_enters_the_average_once_however_often_it_is_read() {
        let mut world = World::new();
        let (name, region) = (world.pop_name(), world.topology.regions[0].name.clone());
        let tell = |world: &mut World, rtt_us| {
            let link = LinkState {
                region: region.clone(),
                up: true,
                rtt_us: Some(rtt_us),
                owner_rtt_us: None,
            };
            world.tell(&name, (true, false), pop(0, vec![link]));
            world.take();
        };
        tell(&mut world, 20_000);
        tell(&mut world, 60_000);
        let known = world.live.clone();
        assert_eq!(known.backbone_ms(PopIx(0), RegionIx(0)), Some(25));
        for _ in 0..1_000 {
            world.take();
        }
        assert_eq!(world.live, known);
        tell(&mut world, 60_000);
        assert_ne!(world.live, known, "told anew");
    }

    #[test]
    fn a_site_that_nobody_asks_for_any_more_stays_as_it_was() {
        let mut world = World::new();
        let (pop_name, region) = (world.pop_name(), world.topology.regions[0].clone());
        world.tell(&pop_name, (true, true), pop(0, Vec::new()));
        for relay in &region.core_relays {
            world.tell(&relay.name, (true, true), relay_role());
        }
        let (was_pop, was_region) = (world.pop(), world.region());
        assert!(was_pop.draining && was_region.draining);
        world.states.nodes.clear();
        assert_eq!((world.pop(), world.region()), (was_pop, was_region));
    }

    #[test]
    fn reports_are_as_old_as_the_telling_and_the_sample_together() {
        let mut world = World::new();
        let name = world.pop_name();
        let medians = |node: &str| {
            let prefix = PrefixMedian {
                prefix: "192.0.2.0/24".parse().unwrap(),
                rtt_us: 23_400,
                clients: 25,
                age_s: 60,
            };
            Arc::new(Medians {
                version: VERSION,
                node: node.to_owned(),
                told_unix_s: 1000,
                prefixes: vec![prefix],
            })
        };
        for name in [&name, "no-such-pop"] {
            world.states.medians.insert(name.to_owned(), medians(name));
        }
        let ages = |unix_s| {
            let all = reports(&world.states, &world.plan, unix_s, |_, _| true);
            all.map(|report| (report.pop, report.median.clients, report.age_s))
                .collect::<Vec<_>>()
        };
        assert_eq!(ages(1007), [(PopIx(0), 25, 67)]);
        assert_eq!(ages(900), [(PopIx(0), 25, 60)], "a clock that is behind");
        let later = |_: &str, told_unix_s| told_unix_s > 1000;
        assert_eq!(reports(&world.states, &world.plan, 1007, later).count(), 0);
    }
}
