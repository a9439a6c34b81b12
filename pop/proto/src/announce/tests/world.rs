//! Several PoPs with one store of permits, under random trouble: worlds are made of a seed, and a failure prints it.

use super::super::permits::{Ask, Holder, PERMIT_TTL, Permits};
use super::*;

/// Time between two looks of the world.
const STEP_MS: u64 = 250;
const STEPS: u64 = 4 * 3600;

/// A store that can be gone, and can lose what it has.
struct Store {
    slots: Vec<Option<(usize, Instant)>>,
    up: bool,
}

struct Pop {
    announcer: Announcer,
    permits: Permits,
    stalled: bool,
    reach: Reach,
    /// When it last left `up` without an order.
    fell: Option<Instant>,
    falls: u32,
}

struct World {
    pops: Vec<Pop>,
    store: Store,
    random: u64,
    min_announced: u32,
}

impl Store {
    fn holder(&mut self, slot: u32, pop: usize, now: Instant) -> Holder {
        let place = &mut self.slots[usize::try_from(slot).unwrap()];
        if place.is_some_and(|(_, until)| now >= until) {
            *place = None;
        }
        match place {
            None => Holder::Nobody,
            Some((holder, _)) if *holder == pop => Holder::Own,
            Some(_) => Holder::Other,
        }
    }

    /// Answers like Redis: SET NX PX, PEXPIRE and GET, DEL.
    fn answer(&mut self, ask: Ask, pop: usize, permits: &mut Permits, now: Instant) -> bool {
        if !self.up {
            permits.handle_silence();
            return false;
        }
        let entry = Some((pop, now + PERMIT_TTL));
        match ask {
            Ask::Look => {
                let slots = permits.slots();
                let holders: Vec<_> = (0..slots).map(|slot| self.holder(slot, pop, now)).collect();
                permits.handle_look(&holders)
            }
            Ask::Take(slot) => {
                let mut holder = self.holder(slot, pop, now);
                if holder == Holder::Nobody {
                    self.slots[usize::try_from(slot).unwrap()] = entry;
                    holder = Holder::Own;
                }
                permits.handle_holder(slot, holder, now);
                false
            }
            Ask::Confirm(slot) => {
                let holder = self.holder(slot, pop, now);
                if holder == Holder::Own {
                    self.slots[usize::try_from(slot).unwrap()] = entry;
                }
                permits.handle_holder(slot, holder, now);
                false
            }
            Ask::Release(slot) => {
                self.slots[usize::try_from(slot).unwrap()] = None;
                false
            }
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            pops: Vec::new(),
            store: Store {
                slots: Vec::new(),
                up: true,
            },
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            min_announced: 0,
        };
        let pops = 2 + world.below(6);
        world.min_announced = 1 + u32::try_from(world.below(pops)).unwrap();
        let slots = usize::try_from(pops).unwrap() - usize::try_from(world.min_announced).unwrap();
        world.store.slots = vec![None; slots];
        let config = AnnounceConfig {
            min_announced: world.min_announced,
            ..CONFIG
        };
        for pop in 0..pops {
            let pop = u32::try_from(pop).unwrap();
            let all = u32::try_from(pops).unwrap();
            world.pops.push(Pop {
                announcer: Announcer::new(config, at(0)),
                permits: Permits::new(all, world.min_announced, pop),
                stalled: false,
                reach: ALL,
                fell: None,
                falls: 0,
            });
        }
        world
    }

    /// xorshift64.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Now and then something breaks or is mended; sometimes for all at once.
    fn trouble(&mut self) {
        match self.below(400) {
            0..=2 => self.store.up = !self.store.up,
            3..=5 => {
                let all = if self.below(2) == 0 { ALL } else { NOTHING };
                for pop in &mut self.pops {
                    pop.reach = all;
                }
            }
            6..=14 => {
                let pop = self.any();
                let reach = [ALL, NO_REGION, NOTHING][usize::try_from(self.below(3)).unwrap()];
                self.pops[pop].reach = reach;
            }
            15 => {
                let pop = self.any();
                self.pops[pop].stalled = true;
            }
            16..=20 => {
                let pop = self.any();
                self.pops[pop].stalled = false;
            }
            _ => {}
        }
    }

    fn any(&mut self) -> usize {
        let pops = u64::try_from(self.pops.len()).unwrap();
        usize::try_from(self.below(pops)).unwrap()
    }

    fn count(&self, which: Announce) -> usize {
        let announces = self.pops.iter().map(|pop| pop.announcer.announce());
        announces.filter(|announce| *announce == which).count()
    }

    /// Everybody looks around, asks and decides.
    fn live(&mut self, now: Instant) {
        for index in 0..self.pops.len() {
            let pop = &mut self.pops[index];
            let was = pop.announcer.announce();
            pop.announcer.handle_stalled(pop.stalled, now);
            pop.announcer.handle_reach(pop.reach, now);
            let wanted = pop.announcer.wants_permit();
            for _ in 0..3 {
                let ask = pop.permits.next(wanted, now);
                let more = ask.map(|ask| self.store.answer(ask, index, &mut pop.permits, now));
                if more != Some(true) {
                    break;
                }
            }
            let permit = pop.permits.permit(now);
            pop.announcer.handle_permit(permit, now);
            pop.note(was, now);
        }
    }

    fn check(&self, what: &str) {
        let away = self.pops.iter().filter(|pop| pop.announcer.is_away());
        let slots = self.store.slots.len();
        let away = away.count();
        assert!(away <= slots, "{what}: {away} away, {slots} may be");
        let broken = self.pops.iter().filter(|pop| pop.stalled).count();
        let shown = |pop: &&Pop| pop.announcer.announce() != Announce::Withdrawn;
        let announced = self.pops.iter().filter(shown).count();
        let min = usize::try_from(self.min_announced).unwrap();
        // Whoever has just been mended is on its way back.
        let proving = |pop: &&Pop| {
            let reason = pop.announcer.reason();
            !pop.announcer.is_away() && matches!(reason, Some(Reason::Unproven | Reason::Starting))
        };
        let proving = self.pops.iter().filter(proving).count();
        assert!(
            announced + broken + proving >= min,
            "{what}: {announced} announced, {broken} stalled, {proving} prove themselves, {min} must be"
        );
    }
}

impl Pop {
    /// Whether it comes up no sooner than damping allows.
    fn note(&mut self, was: Announce, now: Instant) {
        let announce = self.announcer.announce();
        if was == Announce::Up && announce != Announce::Up {
            self.fell = Some(now);
            self.falls += 1;
        }
        if was != Announce::Up
            && announce == Announce::Up
            && let Some(fell) = self.fell
        {
            let quiet = now.saturating_duration_since(fell);
            assert!(quiet >= CONFIG.up_after, "up {quiet:?} after a fall");
        }
    }
}

#[test]
fn soft_reasons_never_leave_fewer_than_the_minimum_and_nobody_flaps() {
    for seed in 1..=200 {
        let mut world = World::new(seed);
        for step in 0..STEPS / 20 {
            let now = at_ms(step * STEP_MS);
            world.trouble();
            world.live(now);
            world.check(&format!("seed {seed}, step {step}"));
        }
    }
    // One long world: falls within each hour are bounded by the time each way back takes.
    let mut world = World::new(777);
    let hours = 4;
    for step in 0..STEPS * hours {
        let now = at_ms(step * STEP_MS);
        world.trouble();
        world.live(now);
        world.check(&format!("the long one, step {step}"));
    }
    // 10 + 20 + 40 + 80 + 160 s, then 300 s each: 5 falls and 11 more in an hour.
    let bound = u32::try_from(hours).unwrap() * 17;
    for pop in &world.pops {
        assert!(pop.falls > 0 && pop.falls <= bound, "{} falls", pop.falls);
    }
}

#[test]
fn all_soft_at_once_leave_the_minimum_whatever_the_store_does() {
    for store_up in [true, false] {
        let mut world = World::new(5);
        let min = usize::try_from(world.min_announced).unwrap();
        assert!(min < world.pops.len(), "or it shows nothing");
        for step in 0..100 {
            world.live(at_ms(step * STEP_MS));
        }
        assert_eq!(world.count(Announce::Up), world.pops.len());
        world.store.up = store_up;
        for pop in &mut world.pops {
            pop.reach = NOTHING;
        }
        for step in 100..400 {
            world.live(at_ms(step * STEP_MS));
        }
        let away = world.count(Announce::Withdrawn);
        let slots = world.pops.len() - min;
        assert_eq!(away, if store_up { slots } else { 0 });
        assert_eq!(world.count(Announce::Draining), world.pops.len() - away);
    }
}
