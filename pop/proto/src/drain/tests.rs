//! A drain of a PoP that does as it is told, and of one whose upstream does not care.

use super::*;
use crate::announce::tests::start;

const CONFIG: DrainConfig = DrainConfig {
    anycast: true,
    linger: Duration::from_secs(30),
};
const LOOK: Duration = Duration::from_millis(50);

/// A PoP that does as it is told, 200 packets a second at first.
struct Pop {
    drain: Drain,
    now: Instant,
    sight: Sight,
    /// Packets in each look.
    rate: u64,
    /// Whether clients leave when preference says so, and when nothing is announced.
    obeys: (bool, bool),
}

impl Pop {
    fn new(config: DrainConfig) -> Self {
        let sight = Sight {
            flush: Flush::NoCache,
            announce: Announce::Up,
            vip_packets: 0,
            lost: 0,
            flows: 7,
        };
        let mut pop = Self {
            drain: Drain::new(config, start()),
            now: start(),
            sight,
            rate: 10,
            obeys: (true, true),
        };
        pop.run(Duration::from_secs(2));
        pop
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += LOOK;
            let (announce, moves) = match self.drain.order() {
                Order::Serve => (Announce::Up, false),
                Order::Drain => (Announce::Draining, self.obeys.0),
                Order::Withdraw => (Announce::Withdrawn, self.obeys.1),
            };
            self.sight.announce = announce;
            if !moves {
                self.sight.vip_packets += self.rate;
            }
            self.drain.handle_sight(self.sight, self.now);
        }
    }

    fn effects(&self) -> Vec<(Step, Effect)> {
        let passed = self.drain.passed().iter();
        passed.map(|it| (it.step, it.effect)).collect()
    }
}

#[test]
fn every_step_waits_for_its_effect() {
    let mut pop = Pop::new(CONFIG);
    assert_eq!(pop.drain.step(), Step::Serving);
    pop.sight.flush = Flush::Running { left: 0 };
    pop.drain.handle_drain(pop.now);
    assert_eq!(pop.drain.traffic_pps(pop.now), (200, 200));
    pop.run(Duration::from_secs(1));
    assert_eq!(
        (pop.drain.step(), pop.drain.order()),
        (Step::Flush, Order::Serve)
    );
    pop.sight.flush = Flush::Over { unstored: 0 };
    pop.run(LOOK);
    assert_eq!(
        (pop.drain.step(), pop.drain.order()),
        (Step::Shift, Order::Drain)
    );
    pop.run(Duration::from_millis(1900));
    assert_eq!(pop.drain.step(), Step::Shift, "routers get their time");
    pop.run(Duration::from_millis(200));
    assert_eq!(pop.drain.step(), Step::Withdraw);
    pop.run(Duration::from_secs(1));
    assert_eq!(
        (pop.drain.step(), pop.drain.order()),
        (Step::Linger, Order::Withdraw)
    );
    pop.run(Duration::from_secs(28));
    assert_eq!(pop.drain.step(), Step::Linger);
    pop.sight.lost = 3;
    pop.run(Duration::from_secs(2));
    assert_eq!(pop.drain.step(), Step::Done);
    let good = [
        (Step::Flush, Effect::Stored),
        (Step::Shift, Effect::Moved),
        (Step::Withdraw, Effect::Silent),
        (Step::Linger, Effect::Silent),
    ];
    assert_eq!(pop.effects(), good);
    let took: Duration = pop.drain.passed().iter().map(|it| it.took).sum();
    assert!(took >= Duration::from_secs(33), "{took:?}");
    assert_eq!((pop.drain.lost(), pop.drain.flows_left()), (3, 7));
}

#[test]
fn what_has_no_effect_is_told_and_the_next_rung_is_taken() {
    let mut pop = Pop::new(CONFIG);
    pop.obeys = (false, true);
    pop.sight.flush = Flush::Over { unstored: 5 };
    pop.drain.handle_drain(pop.now);
    pop.run(SHIFT_MAX - LOOK);
    assert_eq!(pop.drain.step(), Step::Shift);
    pop.run(Duration::from_secs(50));
    assert_eq!(pop.drain.step(), Step::Done);
    let effects: Vec<_> = pop.effects().iter().map(|(_, effect)| *effect).collect();
    let expected = [
        Effect::NotStored,
        Effect::Ignored,
        Effect::Silent,
        Effect::Silent,
    ];
    assert_eq!(effects, expected);
    assert_eq!(pop.drain.unstored(), 5);
    // Packets that come whatever is announced: a static route somewhere.
    let mut pop = Pop::new(CONFIG);
    pop.obeys = (false, false);
    pop.drain.handle_drain(pop.now);
    pop.run(Duration::from_secs(100));
    let effects: Vec<_> = pop.effects().iter().map(|(_, effect)| *effect).collect();
    let expected = [
        Effect::NoFlowCache,
        Effect::Ignored,
        Effect::StillArrives,
        Effect::StillArrives,
    ];
    assert_eq!(effects, expected);
}

#[test]
fn a_flow_cache_that_does_not_answer_holds_up_nothing_for_long() {
    let mut pop = Pop::new(CONFIG);
    pop.sight.flush = Flush::Running { left: 0 };
    pop.drain.handle_drain(pop.now);
    pop.run(FLUSH_MAX);
    assert_eq!(pop.effects(), [(Step::Flush, Effect::NotStored)]);
}

#[test]
fn it_is_idempotent_and_can_be_undone_at_any_step() {
    for after_s in [0, 1, 3, 5, 40] {
        let mut pop = Pop::new(CONFIG);
        pop.sight.flush = Flush::Over { unstored: 0 };
        if after_s == 0 {
            pop.sight.flush = Flush::Running { left: 0 };
        }
        pop.drain.handle_drain(pop.now);
        pop.run(LOOK + Duration::from_secs(after_s));
        let (step, passed) = (pop.drain.step(), pop.effects());
        pop.drain.handle_drain(pop.now);
        assert_eq!((pop.drain.step(), pop.effects()), (step, passed));
        pop.drain.handle_undrain(pop.now);
        assert_eq!(
            (pop.drain.step(), pop.drain.order()),
            (Step::Serving, Order::Serve)
        );
        let cut = pop
            .effects()
            .last()
            .map(|(_, effect)| *effect == Effect::Cut);
        assert_eq!(cut, Some(step != Step::Done), "{step:?}");
        let effects = pop.effects();
        pop.drain.handle_undrain(pop.now);
        assert_eq!(pop.effects(), effects);
        assert_eq!(pop.drain.unstored(), 0, "what was cut is not what failed");
        pop.run(Duration::from_secs(2));
        pop.drain.handle_drain(pop.now);
        pop.run(Duration::from_secs(45));
        assert_eq!(pop.drain.passed().len(), 4, "a drain of its own");
    }
}

#[test]
fn without_traffic_or_announcement_nothing_is_waited_for_in_vain() {
    let mut pop = Pop::new(CONFIG);
    pop.rate = 0;
    pop.run(Duration::from_secs(2));
    pop.drain.handle_drain(pop.now);
    pop.run(Duration::from_secs(3));
    assert!(pop.effects().contains(&(Step::Shift, Effect::Quiet)));
    let mut pop = Pop::new(CONFIG);
    pop.drain.handle_drain(pop.now);
    pop.sight.announce = Announce::Withdrawn;
    pop.drain.handle_sight(pop.sight, pop.now);
    assert!(pop.effects().contains(&(Step::Shift, Effect::NotAnnounced)));
}

#[test]
fn without_anycast_it_stores_and_lingers() {
    let mut pop = Pop::new(DrainConfig {
        anycast: false,
        ..CONFIG
    });
    pop.drain.handle_drain(pop.now);
    pop.run(Duration::from_secs(31));
    let steps = [
        (Step::Flush, Effect::NoFlowCache),
        (Step::Linger, Effect::Silent),
    ];
    assert_eq!(pop.effects(), steps);
}

#[test]
fn a_resumed_drain_never_announces() {
    let mut pop = Pop::new(CONFIG);
    pop.drain.handle_resumed(pop.now);
    assert_eq!(pop.drain.order(), Order::Withdraw);
    pop.run(Duration::from_secs(40));
    assert_eq!(pop.drain.step(), Step::Done);
    assert_eq!(pop.effects().len(), 2);
}

#[test]
fn names_are_distinct_and_every_effect_is_reached() {
    let mut names: Vec<_> = Effect::ALL.map(Effect::as_str).to_vec();
    names.extend(Step::ALL.map(Step::as_str));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Effect::ALL.len() + Step::ALL.len());
}

#[test]
fn a_flush_that_does_not_end_has_not_stored_everything() {
    for (left, unstored) in [(0, 1), (40, 40)] {
        let mut pop = Pop::new(CONFIG);
        pop.sight.flush = Flush::Running { left };
        pop.drain.handle_drain(pop.now);
        pop.run(FLUSH_MAX + LOOK);
        assert_eq!(pop.effects(), [(Step::Flush, Effect::NotStored)]);
        assert_eq!(pop.drain.unstored(), unstored);
    }
}
