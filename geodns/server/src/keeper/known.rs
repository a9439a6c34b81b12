//! What the keeper knows of nodes and clients, in the terms of a plan: live state, and measured round trips held against noise. No
//! socket, no clock.
//!
//! ```text
//!  a reading of the store        live state; round trips of links enter averages once
//!  no reading (store dead)       nothing, for however long: what is held does not age either
//!  a look at medians             memory, and what is measured; a recompile if anything is chosen otherwise
//!  another plan                  both are carried over by name: what did not change keeps its evidence, what was told of a PoP that is
//!                                elsewhere now is left
//! ```
//!
//! What is not here: what nodes tell means (`crate::live`), and when a look is due to be shown (the keeper).

use std::collections::BTreeMap;
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
    heard: Heard,
    medians_due: Instant,
    /// Medians of these PoPs count only when they were told later: until then they were elsewhere, or not there. Of PoPs of the plan.
    left: BTreeMap<String, u64>,
}

/// A clock that stands while the store does not answer.
#[derive(Default)]
struct Heard {
    time: Duration,
    /// The last turn at which the store answered.
    at: Option<Instant>,
    /// Whether it did at the last turn.
    alive: bool,
    /// After a long silence: when what was told since has been read.
    settles: Option<Instant>,
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
            heard: Heard::default(),
            medians_due: now,
            left: BTreeMap::new(),
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

    /// Measurements are of another plan from here on. `states` is the latest reading.
    pub(super) fn replan(
        &mut self,
        states: &States,
        (from, to): (&Plan, &Plan),
        (now, unix_s): (Instant, u64),
    ) {
        self.memory = std::mem::take(&mut self.memory).carried(from, to);
        self.measured = Arc::new(self.memory.measured(self.heard.seconds()));
        self.medians_due = now;
        let left = std::mem::take(&mut self.left);
        let left = to.pops().filter_map(|pop| {
            let name = to.pop_name(pop);
            let told_unix_s = if to.is_same_pop(pop, from) {
                *left.get(name)?
            } else {
                // Its clock may be ahead of this one.
                let known = states.medians.get(name);
                known.map_or(unix_s, |known| known.told_unix_s.max(unix_s))
            };
            Some((name.to_owned(), told_unix_s))
        });
        self.left = left.collect();
    }

    /// Looks at medians when that is due. `plan` is the latest, `served` the one that live state is of.
    pub(super) fn look(
        &mut self,
        states: &States,
        (plan, served): (&Arc<Plan>, &Arc<Plan>),
        facts: impl Fn(IpAddr) -> Facts,
        (now, unix_s): (Instant, u64),
    ) -> Option<Look> {
        if self.heard.turn(states.alive, now) {
            self.memory.begin_anew();
        }
        let is_nothing = states.medians.is_empty() && self.memory.is_empty();
        let is_due = now >= self.medians_due && self.heard.settles.is_none_or(|at| now >= at);
        if is_nothing || !states.alive || !is_due {
            return None;
        }
        self.medians_due = now + MEDIANS_INTERVAL;
        let carried;
        let live = if Arc::ptr_eq(plan, served) {
            &*self.live
        } else {
            carried = self.live.carried(served, plan);
            &carried
        };
        let counts = |name: &str, told_unix_s| {
            let left = self.left.get(name);
            left.is_none_or(|left_unix_s| told_unix_s > *left_unix_s)
        };
        let reports = live::reports(states, plan, unix_s, counts);
        let gathered = gather(reports, facts, &plan.steering().measured);
        let now_s = self.heard.seconds();
        let measured = self.memory.settle(&gathered, plan, live, now_s);
        let moves = !measured.chooses_as(&self.measured);
        if measured != *self.measured {
            self.measured = Arc::new(measured);
        }
        Some(Look { gathered, moves })
    }
}

impl Heard {
    /// Goes on while the store answers. Whether it answers anew after a long silence.
    fn turn(&mut self, alive: bool, now: Instant) -> bool {
        let was_alive = std::mem::replace(&mut self.alive, alive);
        if !alive {
            return false;
        }
        let since = self.at.replace(now);
        let passed = since.map(|since| now.saturating_duration_since(since));
        if was_alive {
            self.time += passed.unwrap_or_default();
            return false;
        }
        let is_long = passed.is_some_and(|silence| silence >= MEDIANS_INTERVAL);
        if is_long {
            self.settles = Some(now + MEDIANS_INTERVAL);
        }
        is_long
    }

    const fn seconds(&self) -> u64 {
        self.time.as_secs()
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
            let times = (self.now(), UNIX_S + self.now_s);
            self.known.replan(&self.states, (&self.plan, &plan), times);
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
        // What it told before it moved was measured elsewhere.
        assert_eq!(world.read(true), (false, Some(false)));
        assert_eq!((world.median(a), world.median(b)), (Some(40_000), None));
        world.reload(|_| ());
        world.read(true);
        assert_eq!(world.median(b), None, "nor after another reload");
        world.now_s += 60;
        let at = usize::from(b.0);
        world.tell(at, false, 30_000, 70_000);
        assert_eq!(world.read(true).1, Some(true));
        assert_eq!(
            (world.median(a), world.median(b)),
            (Some(40_000), Some(70_000))
        );
    }

    #[test]
    fn a_pop_that_is_gone_and_comes_back_elsewhere_brings_nothing_along() {
        let mut world = told();
        let second = world.topology.pops[1].clone();
        world.reload(|topology| topology.pops.retain(|pop| pop.name != second.name));
        world.read(true);
        world.now_s += 60;
        world.reload(|topology| {
            let mut moved = second.clone();
            moved.location.as_mut().unwrap().latitude -= 20.0;
            topology.pops.push(moved);
        });
        world.read(true);
        let back = world.plan.pop_named(&second.name).unwrap();
        assert_eq!(world.median(back), None);
    }

    /// Longer than medians count.
    const LONG_S: u64 = 90_000;

    #[test]
    fn what_is_held_does_not_age_while_the_store_is_dead() {
        for reads in [1, 900] {
            let mut world = told();
            let measured = world.known.measured.clone();
            for _ in 0..reads {
                world.now_s += LONG_S / reads;
                assert_eq!(world.read(false), (false, None));
            }
            world.reload(|_| ());
            assert_eq!(world.known.measured, measured, "a reload");
            assert_eq!(world.read(true), (false, None), "it is back");
            world.reload(|_| ());
            assert_eq!(world.read(true), (false, None), "a reload hurries nothing");
            assert_eq!(world.known.measured, measured, "with old medians");
            world.now_s += 60;
            assert_eq!(world.read(true), (false, Some(false)), "and looked at");
            assert_eq!(world.known.measured, measured, "they are too old");
            assert_eq!(world.median(PopIx(0)), Some(40_000));
            for _ in 0..LONG_S / 60 {
                world.now_s += 60;
                world.read(true);
            }
            assert_eq!(world.median(PopIx(0)), None, "alive and silent");
        }
    }

    #[test]
    fn a_store_that_blinks_keeps_nobody_from_looking() {
        let mut world = told();
        let mut looks = 0;
        for second in 0..600_u32 {
            world.now_s += 1;
            let look = world.read(second % 10 != 0).1;
            looks += u32::from(look.is_some());
        }
        assert!((9..=10).contains(&looks), "{looks}");
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
