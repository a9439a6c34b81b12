//! Several PoPs with one store of permits, under random trouble: worlds are made of a seed, and a failure prints it.

use super::super::permits::{Ask, Holder, Look, PERMIT_TTL, Permits};
use super::*;

/// Time between two looks of the world.
const STEP_MS: u64 = 250;
const STEPS: u64 = 4 * 3600;
/// What a PoP tells the others counts so long.
const TELL_TTL: Duration = Duration::from_secs(4);
/// By then those that are away have seen what died, or that nobody can be asked.
const CALM: Duration = Duration::from_secs(12);

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
    /// It has had links since it began.
    linked: bool,
    died: Option<Instant>,
    /// When it last left `up` without an order.
    fell: Option<Instant>,
    falls: u32,
}

struct World {
    pops: Vec<Pop>,
    store: Store,
    random: u64,
    min_announced: u32,
    mortal: bool,
    /// When something died, stood still or began anew last.
    hard_at: Instant,
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

    fn holders(&mut self, pop: usize, now: Instant) -> Vec<Holder> {
        let slots = u32::try_from(self.slots.len()).unwrap();
        (0..slots).map(|slot| self.holder(slot, pop, now)).collect()
    }

    /// Others that do not announce, and hold no slot.
    fn gone(&self, announced: &[bool], pop: usize) -> u32 {
        let holds = |other: usize| {
            self.slots
                .iter()
                .flatten()
                .any(|(holder, _)| *holder == other)
        };
        let others = (0..announced.len()).filter(|other| *other != pop);
        let gone = others.filter(|other| !announced[*other] && !holds(*other));
        u32::try_from(gone.count()).unwrap()
    }

    /// Answers like Redis: SET NX PX, PEXPIRE and GET, DEL.
    fn answer(
        &mut self,
        ask: Ask,
        (pop, announced): (usize, &[bool]),
        permits: &mut Permits,
        now: Instant,
    ) -> bool {
        if !self.up {
            permits.handle_silence();
            return false;
        }
        let holders = &self.holders(pop, now);
        let gone = self.gone(announced, pop);
        let entry = Some((pop, now + PERMIT_TTL));
        let look = Look { holders, gone };
        match ask {
            Ask::Look => permits.handle_look(&look),
            Ask::Take(slot) => {
                let free = self.holder(slot, pop, now) == Holder::Nobody;
                if free {
                    self.slots[usize::try_from(slot).unwrap()] = entry;
                }
                permits.handle_taken(slot, free)
            }
            Ask::Confirm(slot) => {
                if self.holder(slot, pop, now) == Holder::Own {
                    self.slots[usize::try_from(slot).unwrap()] = entry;
                }
                permits.handle_confirmed(slot, &look, now)
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
            mortal: true,
            hard_at: at(0),
        };
        let pops = 2 + world.below(6);
        world.min_announced = 1 + u32::try_from(world.below(pops)).unwrap();
        let slots = usize::try_from(pops).unwrap() - usize::try_from(world.min_announced).unwrap();
        world.store.slots = vec![None; slots];
        world.pops = (0..pops).map(|_| Pop::new()).collect();
        for pop in 0..world.pops.len() {
            world.begin(pop, at(0));
        }
        world
    }

    /// It starts, or starts again.
    fn begin(&mut self, pop: usize, now: Instant) {
        let pops = u32::try_from(self.pops.len()).unwrap();
        let seed = u32::try_from(pop).unwrap();
        let config = AnnounceConfig {
            min_announced: self.min_announced,
            ..CONFIG
        };
        self.hard_at = now;
        let pop = &mut self.pops[pop];
        pop.announcer = Announcer::new(config, now);
        pop.permits = Permits::new(pops, self.min_announced, seed);
        (pop.stalled, pop.linked, pop.died, pop.fell) = (false, false, None, None);
    }

    fn kill(&mut self, pop: usize, now: Instant) {
        self.hard_at = now;
        self.pops[pop].died = Some(now);
    }

    /// xorshift64.
    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    /// Now and then something breaks or is mended; sometimes for all at once.
    fn trouble(&mut self, now: Instant) {
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
                self.hard_at = now;
            }
            16..=20 => {
                let pop = self.any();
                self.pops[pop].stalled = false;
                self.hard_at = now;
            }
            21 if self.mortal => {
                let pop = self.any();
                if self.pops[pop].died.is_none() {
                    self.kill(pop, now);
                }
            }
            22..=24 => {
                let pop = self.any();
                if self.pops[pop].died.is_some() {
                    self.begin(pop, now);
                }
            }
            _ => {}
        }
    }

    fn any(&mut self) -> usize {
        let pops = u64::try_from(self.pops.len()).unwrap();
        usize::try_from(self.below(pops)).unwrap()
    }

    fn count(&self, which: Announce) -> usize {
        let announces = self.pops.iter().map(Pop::announce);
        announces.filter(|announce| *announce == which).count()
    }

    /// Everybody looks around, asks and decides.
    fn live(&mut self, now: Instant) {
        for index in 0..self.pops.len() {
            let announced: Vec<_> = self
                .pops
                .iter()
                .map(|pop| pop.tells_announced(now))
                .collect();
            let pop = &mut self.pops[index];
            if pop.died.is_some() {
                continue;
            }
            let was = pop.announcer.announce();
            pop.announcer.handle_stalled(pop.stalled, now);
            pop.announcer.handle_reach(pop.reach, now);
            pop.linked |= pop.reach.backbone;
            let wanted = pop.announcer.wants_permit();
            for _ in 0..4 {
                let ask = pop.permits.next(wanted, now);
                let who = (index, &announced[..]);
                let more = ask.map(|ask| self.store.answer(ask, who, &mut pop.permits, now));
                if more != Some(true) {
                    break;
                }
            }
            let permit = pop.permits.permit(now);
            pop.announcer.handle_permit(permit, now);
            pop.note(was, now);
        }
    }

    fn check(&self, what: &str, now: Instant) {
        let alive = || self.pops.iter().filter(|pop| pop.died.is_none());
        let slots = self.store.slots.len();
        let away = alive().filter(|pop| pop.announcer.is_away()).count();
        assert!(away <= slots, "{what}: {away} away, {slots} may be");
        let announced = self.pops.len() - self.count(Announce::Withdrawn);
        // Whoever has just begun, or been mended, is on its way back.
        let proves = |pop: &&Pop| {
            let reason = pop.announcer.reason();
            let proves = matches!(reason, Some(Reason::Unproven | Reason::Starting));
            proves && !pop.announcer.is_away() && pop.announce() == Announce::Withdrawn
        };
        // Whoever has had no link yet is nobody's last resort.
        let able = |pop: &&Pop| !pop.stalled && pop.linked && !proves(pop);
        let able = alive().filter(able).count();
        let min = usize::try_from(self.min_announced).unwrap();
        if now >= self.hard_at + CALM {
            assert!(
                announced >= min.min(able),
                "{what}: {announced} announced of {able} that could be, {min} must be"
            );
        }
        let others = self.pops.len() - able;
        assert!(
            announced + others >= min,
            "{what}: {announced} announced, {others} cannot be, {min} must be"
        );
    }
}

impl Pop {
    fn new() -> Self {
        Self {
            announcer: Announcer::new(CONFIG, at(0)),
            permits: Permits::new(0, 0, 0),
            stalled: false,
            reach: ALL,
            linked: false,
            died: None,
            fell: None,
            falls: 0,
        }
    }

    fn announce(&self) -> Announce {
        let dead = self.died.is_some();
        if dead {
            Announce::Withdrawn
        } else {
            self.announcer.announce()
        }
    }

    /// What it told last counts for a while when it is dead.
    fn tells_announced(&self, now: Instant) -> bool {
        let counts = self.died.is_none_or(|died| now < died + TELL_TTL);
        counts && self.announcer.announce() != Announce::Withdrawn
    }

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
            world.trouble(now);
            world.live(now);
            world.check(&format!("seed {seed}, step {step}"), now);
        }
    }
    // One long world: falls within each hour are bounded by the time each way back takes.
    let mut world = World::new(777);
    world.mortal = false;
    let hours = 4;
    for step in 0..STEPS * hours {
        let now = at_ms(step * STEP_MS);
        world.trouble(now);
        world.live(now);
        world.check(&format!("the long one, step {step}"), now);
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

/// A world in which some may be away, and all are up.
fn all_up(seed: u64) -> (World, usize) {
    let mut world = World::new(seed);
    for step in 0..100 {
        world.live(at_ms(step * STEP_MS));
    }
    assert_eq!(world.count(Announce::Up), world.pops.len());
    let min = usize::try_from(world.min_announced).unwrap();
    (world, min)
}

#[test]
fn the_dead_count_whether_they_die_before_the_others_are_away_or_after() {
    let mut seen = 0;
    for seed in 1..=50 {
        // As many die as may be away: nobody else goes.
        let (mut world, min) = all_up(seed);
        let slots = world.pops.len() - min;
        (0..slots).for_each(|pop| world.kill(pop, at_ms(100 * STEP_MS)));
        for step in 100..200 {
            world.live(at_ms(step * STEP_MS));
        }
        world.pops.iter_mut().for_each(|pop| pop.reach = NOTHING);
        for step in 200..400 {
            world.live(at_ms(step * STEP_MS));
            assert_eq!(world.count(Announce::Withdrawn), slots, "seed {seed}");
        }
        // They are away, then others die: those that are away come back.
        let (mut world, min) = all_up(seed);
        world.pops.iter_mut().for_each(|pop| pop.reach = NOTHING);
        for step in 100..200 {
            world.live(at_ms(step * STEP_MS));
        }
        assert_eq!(world.count(Announce::Withdrawn), slots, "seed {seed}");
        let shown = |pop: &Pop| pop.announce() != Announce::Withdrawn;
        let shown = world.pops.iter().position(shown).unwrap();
        world.kill(shown, at_ms(200 * STEP_MS));
        for step in 200..400 {
            world.live(at_ms(step * STEP_MS));
        }
        let announced = world.pops.len() - world.count(Announce::Withdrawn);
        assert_eq!(announced, min.min(world.pops.len() - 1), "seed {seed}");
        seen += slots;
    }
    assert!(seen > 50, "or it shows nothing");
}
