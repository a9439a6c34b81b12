//! Worlds of any size under any conditions, with faults at any time. Nothing is said of how much arrives, only what must
//! hold whatever happens: every packet is accounted for, arrives intact at whom it is for, queues are bounded, and once the
//! faults have ended everything works again.

#![cfg(test)]

use std::time::Duration;

use lab::sim::random::Random;
use lab::sim::{Conditions, Loss, Plan, Rate, Site, Talk, Way, World, seed};

const MS: Duration = Duration::from_millis(1);
const WORLDS: u64 = 12;
const SPELLS: u64 = 4;

fn size(dice: &mut Random, from: u64, to: u64) -> usize {
    usize::try_from(from + dice.below(to - from + 1)).unwrap()
}

fn plan(number: u64, dice: &mut Random) -> Plan {
    Plan {
        clients: size(dice, 1, 200),
        pops: size(dice, 1, 2),
        regions: size(dice, 1, 2),
        relays: size(dice, 1, 2),
        transceivers: size(dice, 1, 2),
        delay: MS * u32::try_from(dice.below(100)).unwrap(),
        rate_mbps: if dice.chance(300_000) { 2 } else { 1000 },
        rtt_ms: 200,
        packet_len: 480,
        ..Plan::new(number)
    }
}

/// Conditions that a link survives now and then.
fn weather(dice: &mut Random) -> Conditions {
    let loss = match dice.below(4) {
        0 => Loss::Independent(u32::try_from(dice.below(200_000)).unwrap()),
        1 => Loss::Bursts {
            enter_ppm: 5_000,
            leave_ppm: 50_000,
            bad_ppm: 1_000_000,
            good_ppm: 0,
        },
        _ => Loss::None,
    };
    let rate = Rate {
        kbit_s: 500 + dice.below(20_000),
        queue: MS * u32::try_from(dice.below(200)).unwrap(),
    };
    Conditions {
        delay: MS * u32::try_from(dice.below(100)).unwrap(),
        jitter: MS * u32::try_from(dice.below(30)).unwrap(),
        reorders: dice.chance(500_000),
        loss,
        overtakes_ppm: if dice.chance(100_000) { 10_000 } else { 0 },
        duplicates_ppm: if dice.chance(300_000) { 50_000 } else { 0 },
        rate: dice.chance(300_000).then_some(rate),
        cut: dice.chance(150_000),
        packet_len_max: if dice.chance(100_000) {
            1300
        } else {
            usize::MAX
        },
    }
}

/// Other weather on every path, and perhaps a node that dies or starts again.
fn change(world: &mut World, plan: &Plan, spell: u64, dice: &mut Random) {
    let relays = plan.regions * plan.relays;
    for pop in 0..plan.pops {
        for relay in 0..relays {
            let (pop, relay) = (Site::Pop(pop), Site::Relay(relay));
            *world.net.conditions(pop, relay) = weather(dice);
            *world.net.conditions(relay, pop) = weather(dice);
        }
    }
    let relay = size(dice, 0, u64::try_from(relays - 1).unwrap());
    let pop = size(dice, 0, u64::try_from(plan.pops - 1).unwrap());
    match dice.below(5) {
        0 => world.kill_relay(relay),
        1 => {
            world.kill_relay(relay);
            world.start_relay(relay);
        }
        2 => {
            world.kill_pop(pop);
            world.start_pop(pop);
        }
        // Once: a hint lives for one rotation.
        3 if spell == 1 => world.rotate_keys(),
        _ => {}
    }
}

fn bounded(world: &mut World, plan: &Plan) {
    let relays = plan.regions * plan.relays;
    for pop in 0..plan.pops {
        let pop = world.pop(pop);
        // One that is over may linger beside the present one.
        assert!(
            pop.connections() <= 4 * relays,
            "{} connections",
            pop.connections()
        );
        assert!(pop.flows.stats().flows <= u64::try_from(world.clients.list.len()).unwrap());
    }
    for way in [Way::Up, Way::Down] {
        let tally = world.tally(way);
        // 10 ms of the rate or eight datagrams, what QUIC may hold of it, and one open datagram, for each link.
        let links = u64::try_from(2 * plan.pops * relays).unwrap();
        assert!(tally.waiting <= links * 8000, "{tally}");
        assert!(tally.is_balanced(), "{way:?}: {tally}");
    }
}

fn live_through(number: u64) -> (u64, u64) {
    let mut dice = Random::new(number, 2);
    let plan = plan(number, &mut dice);
    let mut world = World::new(plan.clone());
    for spell in 0..SPELLS {
        let talk = if dice.chance(700_000) {
            Talk::Both
        } else {
            Talk::Clients
        };
        world.start_talking(talk);
        change(&mut world, &plan, spell, &mut dice);
        world.run(MS * u32::try_from(200 + dice.below(1500)).unwrap());
        world.start_talking(Talk::Nobody);
        // What is in the air arrives; queues may still hold what no link takes.
        world.run(1000 * MS);
        bounded(&mut world, &plan);
    }
    recover(&mut world, &plan);
    world.net.trace()
}

/// Good weather, every node runs: all links come up, all clients connect, and all media arrives.
fn recover(world: &mut World, plan: &Plan) {
    for relay in 0..plan.regions * plan.relays {
        world.kill_relay(relay);
        world.start_relay(relay);
    }
    let delay = plan.delay;
    world.backbone(|path| {
        *path = Conditions {
            delay,
            ..Conditions::default()
        };
    });
    world.run(3000 * MS);
    let links = world.links_max();
    world.run_until("all links are up again", |world| world.links_up() == links);
    world.run_until("all clients have answers", |world| {
        world.clients.list.iter().all(|client| client.connected)
    });
    world.run(3500 * MS);
    bounded(world, plan);
    if plan.rate_mbps > 100 {
        for way in [Way::Up, Way::Down] {
            let tally = world.tally(way);
            assert_eq!(tally.waiting, 0, "{way:?}: {tally}");
        }
        let (up, down) = world.talk(Talk::Both, 300 * MS);
        assert_eq!(
            (up.delivered, down.delivered),
            (up.sent, down.sent),
            "{up}\n{down}"
        );
    }
}

#[test]
fn whatever_happens_nothing_is_lost_unaccounted_and_all_works_again() {
    let first = seed(1000);
    for number in first..first + WORLDS {
        let (packets, trace) = live_through(number);
        println!("{number}: {packets} packets, trace {trace:016x}");
    }
}

#[test]
fn the_same_seed_gives_the_same_packets_at_the_same_times() {
    let number = seed(1000);
    let first = live_through(number);
    assert!(first.0 > 1000);
    assert_eq!(first, live_through(number));
    assert_ne!(first.1, live_through(number + 1).1);
}
