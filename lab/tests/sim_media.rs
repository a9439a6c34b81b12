//! What a link does to voice: 1,001 clients, 50 packets of 160 bytes a second each, 80 ms between PoP and core relay. Each
//! test is a plan: conditions, traffic, check. The bar: what the path delivers is delivered, and 99 of 100 packets spend less
//! than 1 ms in programs.

#![cfg(test)]

use std::time::Duration;

use lab::sim::{Conditions, Congestion, Loss, Plan, Rate, Report, Talk, Way, World, seed};

const CLIENTS: usize = 1001;
const MS: Duration = Duration::from_millis(1);
const DEFAULTS: [Congestion; 3] = [Congestion::Cubic, Congestion::NewReno, Congestion::Bbr];

/// All clients are connected over a good path.
fn connected(number: u64, congestion: Congestion) -> World {
    let mut world = World::new(Plan {
        clients: CLIENTS,
        congestion,
        ..Plan::new(seed(number))
    });
    world.connect();
    world
}

/// Uplink under these conditions.
fn uplink(congestion: Congestion, duration: Duration, change: impl Fn(&mut Conditions)) -> Report {
    let mut world = connected(1, congestion);
    world.backbone(change);
    let (up, _) = world.talk(Talk::Clients, duration);
    println!("{congestion:?}: {up}");
    world.assert_balanced();
    up
}

/// Ours, both ways, under these conditions: the bar is met, nothing is dropped, and every packet that no path lost arrived.
fn ours_passes(number: u64, duration: Duration, change: impl Fn(&mut Conditions)) {
    let mut world = connected(number, Congestion::ConstantWindow);
    world.backbone(change);
    let (up, down) = world.talk(Talk::Both, duration);
    println!("up   {up}\ndown {down}");
    assert!(up.sent > 49_000 * u64::try_from(duration.as_millis()).unwrap() / 1000);
    assert_eq!((up.meets_bar(), down.meets_bar()), (Ok(()), Ok(())));
    for way in [Way::Up, Way::Down] {
        let tally = world.tally(way);
        assert!(tally.is_balanced(), "{way:?}: {tally}");
        assert_eq!((tally.dropped_total(), tally.waiting), (0, 0), "{tally}");
        assert_eq!(tally.unheard, 0, "{tally}");
    }
}

#[test]
fn a_good_path_delivers_all_at_once() {
    ours_passes(2, 1000 * MS, |_| {});
}

#[test]
fn losses_cost_what_was_lost_and_nothing_else() {
    for ppm in [1_000, 10_000, 50_000] {
        ours_passes(3, 1000 * MS, |path| path.loss = Loss::Independent(ppm));
    }
}

#[test]
fn losses_in_bursts_too() {
    ours_passes(4, 1000 * MS, |path| {
        path.loss = Loss::Bursts {
            enter_ppm: 2_000,
            leave_ppm: 200_000,
            bad_ppm: 1_000_000,
            good_ppm: 0,
        };
    });
}

#[test]
fn reordering_costs_nothing() {
    ours_passes(5, 1000 * MS, |path| {
        path.jitter = 5 * MS;
        path.reorders = true;
    });
}

#[test]
fn a_bottleneck_costs_what_it_loses_itself() {
    ours_passes(6, 1000 * MS, |path| {
        path.rate = Some(Rate {
            kbit_s: 60_000,
            queue: 100 * MS,
        });
    });
}

#[test]
fn a_burst_after_silence_passes_at_once() {
    let mut world = connected(7, Congestion::ConstantWindow);
    world.run(3000 * MS);
    let (up, _) = world.talk(Talk::Clients, 250 * MS);
    println!("{up}");
    assert_eq!((up.meets_bar(), up.delivered), (Ok(()), up.sent));
}

#[test]
fn controllers_that_react_to_loss_fail_at_one_percent() {
    for congestion in DEFAULTS {
        let up = uplink(congestion, 1000 * MS, |path| {
            path.loss = Loss::Independent(10_000)
        });
        assert!(up.meets_bar().is_err(), "{congestion:?}: {up}");
    }
}

#[test]
fn controllers_that_probe_fail_a_burst_after_silence() {
    for congestion in DEFAULTS {
        let mut world = connected(8, congestion);
        world.run(3000 * MS);
        let (up, _) = world.talk(Talk::Clients, 250 * MS);
        println!("{congestion:?}: {up}");
        assert!(up.meets_bar().is_err(), "{congestion:?}: {up}");
    }
}

#[test]
fn controllers_that_probe_fail_with_reordering() {
    for congestion in DEFAULTS {
        let up = uplink(congestion, 1000 * MS, |path| {
            path.jitter = 5 * MS;
            path.reorders = true;
        });
        assert!(up.meets_bar().is_err(), "{congestion:?}: {up}");
    }
}

/// More than a link is provisioned for: the oldest goes, each is counted, and what arrives is young.
#[test]
fn a_link_sheds_what_exceeds_its_rate_and_counts_it() {
    let mut world = World::new(Plan {
        clients: CLIENTS,
        rate_mbps: 30,
        rtt_ms: 80,
        ..Plan::new(seed(9))
    });
    world.connect();
    let (up, _) = world.talk(Talk::Clients, 1000 * MS);
    let tally = world.tally(Way::Up);
    println!("{up}\n{tally}");
    assert!(tally.is_balanced(), "{tally}");
    let shed = tally
        .drops
        .get("link_queue_full")
        .copied()
        .unwrap_or_default();
    assert_eq!(
        (tally.dropped_total(), tally.lost_total(), tally.unheard),
        (shed, 0, 0)
    );
    assert!((300_000..900_000).contains(&up.delivered_ppm()), "{up}");
    // The queue of 10 ms, and what QUIC took from it before the window was full.
    assert!(up.added_max < 60 * MS, "{up}");
    assert_eq!(tally.waiting, 0);
}
