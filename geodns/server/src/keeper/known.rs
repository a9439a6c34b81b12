//! What the keeper knows of nodes and clients, in the terms of a plan: live state, and measured round trips held against noise. No
//! socket, no clock.
//!
//! ```text
//!  a reading of the store        live state; round trips of links enter averages once
//!  no reading (store dead)       nothing, for however long
//!  a look at medians             memory, and what is measured; a recompile if anything is chosen otherwise
//!  another plan                  both are carried over by name: what did not change keeps its evidence
//! ```
//!
//! What is not here: what nodes tell means (`crate::live`), and when a look is due to be shown (the keeper).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use geodns_policy::{Facts, Gathered, Live, Measured, Memory, Plan, gather};
use runtime::store::States;
use topology::Topology;

use crate::live;

/// Between two looks at medians.
const MEDIANS_INTERVAL: Duration = Duration::from_secs(60);

/// See the module head.
pub(super) struct Known {
    live: Arc<Live>,
    /// The reading that `live` has taken.
    taken: Arc<States>,
    measured: Arc<Measured>,
    memory: Memory,
    began: Instant,
    medians_due: Instant,
}

/// A look at medians.
pub(super) struct Look {
    pub(super) gathered: Gathered,
    /// Whether anybody is sent elsewhere by what is measured.
    pub(super) moves: bool,
}

impl Known {
    /// Nothing but a plan: all is well.
    pub(super) fn new(plan: &Plan, now: Instant) -> Self {
        Self {
            live: Arc::new(Live::well(plan)),
            taken: Arc::default(),
            measured: Arc::default(),
            memory: Memory::default(),
            began: now,
            medians_due: now,
        }
    }

    /// Live state of the plan that is served.
    pub(super) const fn live(&self) -> &Arc<Live> {
        &self.live
    }

    /// What is measured, in terms of the latest plan.
    pub(super) const fn measured(&self) -> &Arc<Measured> {
        &self.measured
    }

    pub(super) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Takes a reading. Whether anything is chosen otherwise.
    pub(super) fn hear(&mut self, states: &Arc<States>, topology: &Topology, plan: &Plan) -> bool {
        if !states.alive {
            return false;
        }
        let live = live::live(states, &self.taken, topology, plan, &self.live);
        self.taken = Arc::clone(states);
        let changed = !live.chooses_as(&self.live);
        self.live = Arc::new(live);
        changed
    }

    /// Live state for a plan that is to be served in place of `from`.
    pub(super) fn live_for(&self, topology: &Topology, (from, to): (&Plan, &Plan)) -> Arc<Live> {
        let carried = self.live.carried(from, to);
        let taken = &self.taken;
        Arc::new(live::live(taken, taken, topology, to, &carried))
    }

    /// Another plan is served, with this live state.
    pub(super) fn served(&mut self, live: Arc<Live>) {
        self.live = live;
    }

    /// Measurements are of another plan from here on.
    pub(super) fn replan(&mut self, from: &Plan, to: &Plan, now: Instant) {
        self.memory = std::mem::take(&mut self.memory).carried(from, to);
        self.measured = Arc::new(self.memory.measured(self.seconds(now)));
        self.medians_due = now;
    }

    /// Looks at medians when that is due. `plan` is the latest, `served` the one that live state is of.
    pub(super) fn look(
        &mut self,
        states: &States,
        (plan, served): (&Arc<Plan>, &Arc<Plan>),
        facts: impl Fn(IpAddr) -> Facts,
        (now, unix_s): (Instant, u64),
    ) -> Option<Look> {
        let is_nothing = states.medians.is_empty() && self.memory.is_empty();
        if now < self.medians_due || is_nothing {
            return None;
        }
        self.medians_due = now + MEDIANS_INTERVAL;
        if !states.alive {
            self.memory.begin_anew();
            return None;
        }
        let carried;
        let live = if Arc::ptr_eq(plan, served) {
            &*self.live
        } else {
            carried = self.live.carried(served, plan);
            &carried
        };
        let reports = live::reports(states, plan, unix_s);
        let gathered = gather(reports, facts, &plan.steering().measured);
        let now_s = self.seconds(now);
        let measured = self.memory.settle(&gathered, plan, live, now_s);
        let moves = !measured.chooses_as(&self.measured);
        if measured != *self.measured {
            self.measured = Arc::new(measured);
        }
        Some(Look { gathered, moves })
    }

    /// Of a clock that does not go back.
    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use geodns_policy::{GroupKey, PopIx, RegionIx};
    use runtime::clock;
    use runtime::store::{
        LinkState, Medians, NodeState, PopState, PrefixMedian, Role, Seen, VERSION,
    };

    const WORLD: &str = include_str!("../../../../topology/samples/world.yaml");
    const PREFIX: &str = "192.0.2.0/24";
    const UNIX_S: u64 = 1_000_000;

    struct World {
        topology: Topology,
        plan: Arc<Plan>,
        states: States,
        known: Known,
        began: Instant,
        now_s: u64,
    }

    impl World {
        fn new() -> Self {
            let topology = topology::load(WORLD, "world.yaml").unwrap();
            let plan = Arc::new(Plan::new(&topology));
            let began = clock::now();
            Self {
                known: Known::new(&plan, began),
                topology,
                plan,
                states: States::default(),
                began,
                now_s: 0,
            }
        }

        fn now(&self) -> Instant {
            self.began + Duration::from_secs(self.now_s)
        }

        fn pop(&self, at: usize) -> String {
            self.topology.pops[at].name.clone()
        }

        /// A PoP tells what it thinks of its first region, and of one prefix of clients.
        fn tell(&mut self, at: usize, draining: bool, rtt_us: u32, median_us: u32) {
            let node = self.pop(at);
            let links = vec![LinkState {
                region: self.topology.regions[0].name.clone(),
                up: true,
                rtt_us: Some(rtt_us),
                owner_rtt_us: None,
            }];
            let told = NodeState {
                version: VERSION,
                node: node.clone(),
                told_ms: 0,
                ready: true,
                draining,
                role: Role::Pop(PopState {
                    flows: 0,
                    flows_max: 100,
                    links,
                }),
            };
            self.states.nodes.insert(node.clone(), Seen::told(told));
            let prefixes = vec![PrefixMedian {
                prefix: PREFIX.parse().unwrap(),
                rtt_us: median_us,
                clients: 30,
                age_s: 0,
            }];
            let medians = Medians {
                version: VERSION,
                node: node.clone(),
                told_unix_s: UNIX_S + self.now_s,
                prefixes,
            };
            self.states.medians.insert(node, Arc::new(medians));
        }

        fn read(&mut self, alive: bool) -> (bool, Option<bool>) {
            self.states.alive = alive;
            let states = Arc::new(self.states.clone());
            let changed = self.known.hear(&states, &self.topology, &self.plan);
            let (now, unix_s) = (self.now(), UNIX_S + self.now_s);
            let plans = (&self.plan, &self.plan);
            let look = self
                .known
                .look(&states, plans, |_| Facts::default(), (now, unix_s));
            (changed, look.map(|look| look.moves))
        }

        fn median(&self, pop: PopIx) -> Option<u32> {
            let measured = self.known.measured();
            let group = measured.group(&GroupKey::Prefix(PREFIX.parse().unwrap()))?;
            measured.median(group, pop).map(|median| median.rtt_us)
        }

        /// Another topology is read, compiled and served.
        fn reload(&mut self, change: impl Fn(&mut Topology)) {
            change(&mut self.topology);
            let plan = Arc::new(Plan::new(&self.topology));
            self.known.replan(&self.plan, &plan, self.now());
            let plans = (&*self.plan, &*plan);
            let live = self.known.live_for(&self.topology, plans);
            self.known.served(live);
            self.plan = plan;
        }
    }

    /// Two PoPs that have told enough to be told apart from their defaults.
    fn told() -> World {
        let mut world = World::new();
        world.tell(0, true, 20_000, 40_000);
        world.tell(1, false, 30_000, 90_000);
        assert_eq!(world.read(true), (true, Some(true)));
        world.tell(0, true, 60_000, 40_000);
        world.read(true);
        world
    }

    #[test]
    fn an_hour_without_a_store_changes_nothing() {
        let mut world = told();
        let (live, measured) = (world.known.live.clone(), world.known.measured.clone());
        // Each attempt to reach it shows the last state again.
        for second in 0..3_600 {
            world.now_s += 1;
            assert_eq!(world.read(false), (false, None), "second {second}");
            assert_eq!(world.known.live, live, "second {second}");
            assert!(Arc::ptr_eq(&world.known.measured, &measured));
        }
        assert_eq!(world.median(PopIx(0)), Some(40_000));
    }

    #[test]
    fn a_store_that_repeats_itself_adds_nothing_to_averages() {
        let mut world = told();
        let live = world.known.live.clone();
        for _ in 0..3_600 {
            world.now_s += 1;
            assert!(!world.read(true).0);
        }
        assert_eq!(world.known.live, live);
    }

    #[test]
    fn a_reload_that_changes_no_site_takes_nothing_away() {
        let mut world = told();
        let (live, measured) = (world.known.live.clone(), world.known.measured.clone());
        let moved = world.known.memory().moved();
        world.reload(|_| ());
        assert_eq!(world.known.live, live, "averages too");
        assert_eq!(world.known.measured, measured, "for the first compile too");
        assert_eq!(world.read(true), (false, Some(false)));
        assert_eq!(world.known.memory().moved(), moved);
    }

    #[test]
    fn of_a_reload_only_what_changed_begins_anew() {
        let mut world = told();
        let (first, second) = (world.pop(0), world.pop(1));
        // Another order, the second PoP elsewhere, one more site gone.
        world.reload(|topology| {
            topology.pops.reverse();
            topology.pops.remove(0);
            let moved = topology.pops.iter_mut().find(|pop| pop.name == second);
            moved.unwrap().location.as_mut().unwrap().latitude -= 20.0;
        });
        let [a, b] = [&first, &second].map(|name| world.plan.pop_named(name).unwrap());
        assert_ne!(a, PopIx(0), "another place in the plan");
        assert_eq!((world.median(a), world.median(b)), (Some(40_000), None));
        let live = world.known.live();
        assert!(live.pop(a).draining && !live.pop(b).draining);
        assert_eq!(live.backbone_ms(a, RegionIx(0)), Some(25), "its average");
        assert_eq!(
            live.backbone_ms(b, RegionIx(0)),
            Some(30),
            "what it last told"
        );
        // What it told before it moved is its own business: it is told again or it grows old.
        assert_eq!(world.read(true), (false, Some(true)));
    }

    #[test]
    fn noise_of_what_is_told_chooses_nothing_anew() {
        let mut world = told();
        for minute in 1..60_u32 {
            world.now_s += 60;
            let noise = minute % 3 * 1_000;
            world.tell(0, true, 24_000 + noise, 39_000 + noise);
            world.tell(1, false, 29_000 + noise, 89_000 + noise);
            let read = world.read(true);
            assert!(
                minute < 5 || read == (false, Some(false)),
                "{minute}: {read:?}"
            );
        }
    }
}
