//! A PoP dies while another is away by permit: the minimum holds, whichever of them it was.

use super::*;

/// By when whoever is away is back after a death: the dead one is believed to announce for 4 s after its last word, and the permit
/// is confirmed every second.
const BACK_WITHIN: Duration = Duration::from_secs(8);
/// Longer than a permit lives that nobody confirms.
const FORGOTTEN: Duration = Duration::from_secs(14);

/// The backbone is gone for all three PoPs of which two must stay: who is away by permit.
fn one_away(network: &mut Network, pops: &[Far]) -> usize {
    wait::until_true("all to be up", SOON, || census(pops) == (0, 0, 3)).unwrap();
    for relay in ["r1", "r2"] {
        network.kill(relay).unwrap();
    }
    wait_census(pops, (1, 2, 0), SOON);
    let away = pops.iter().position(|pop| pop.metrics() == NOTHING);
    let away = away.unwrap();
    assert_eq!(pops[away].state()["announce"]["permit"], "held");
    away
}

fn all_are_well_again(network: &mut Network, pops: &mut [Far], dead: usize) {
    pops[dead].start_again(network);
    for relay in ["r1", "r2"] {
        network.start_node(relay).unwrap();
    }
    wait::until_true("all to be up again", Duration::from_secs(40), || {
        census(pops) == (0, 0, 3)
    })
    .unwrap();
}

#[test]
fn one_that_is_away_comes_back_when_another_dies() {
    let what = "a death while another is away";
    figures(what, || in_namespace(one_dies_while_one_is_away)).unwrap();
}

fn one_dies_while_one_is_away() -> Figures {
    ip(&["address", "add", &format!("{REDIS}/32"), "dev", "lo"]);
    let redis = Redis::start_at(REDIS.parse().unwrap()).unwrap();
    let (mut network, mut pops) = three_pops(&redis);
    let away = one_away(&mut network, &pops);
    let (dies, stays) = ((away + 1) % 3, (away + 2) % 3);
    pops[dies].kill();
    let died = clock::now();
    wait::until_true("whoever is away to be back", SOON, || {
        assert_eq!(pops[stays].metrics(), announced(200), "nobody else goes");
        pops[away].metrics() == announced(200)
    })
    .unwrap();
    let back = clock::now() - died;
    eprintln!("back {back:?} after the death");
    // The slot is free, and the dead one counts.
    let later = clock::now() + FORGOTTEN;
    wait::until_true("nobody to go", 2 * FORGOTTEN, || {
        assert_eq!(pops[stays].metrics(), announced(200));
        assert_eq!(pops[away].metrics(), announced(200));
        clock::now() > later
    })
    .unwrap();
    for pop in [away, stays] {
        assert_eq!(pops[pop].state()["announce"]["permit"], "refused");
    }
    all_are_well_again(&mut network, &mut pops, dies);
    let mut found = Figures::default();
    found.below("back", back, BACK_WITHIN + SLACK);
    found
}

#[test]
fn the_place_of_a_permit_holder_that_dies_is_nobodys() {
    in_namespace(|| {
        ip(&["address", "add", &format!("{REDIS}/32"), "dev", "lo"]);
        let redis = Redis::start_at(REDIS.parse().unwrap()).unwrap();
        let (mut network, mut pops) = three_pops(&redis);
        let away = one_away(&mut network, &pops);
        pops[away].kill();
        let others = [(away + 1) % 3, (away + 2) % 3];
        let later = clock::now() + FORGOTTEN;
        wait::until_true("nobody to take its place", 2 * FORGOTTEN, || {
            for pop in others {
                assert_eq!(pops[pop].metrics(), announced(200), "p{}", pop + 1);
            }
            clock::now() > later
        })
        .unwrap();
        for pop in others {
            assert_eq!(pops[pop].state()["announce"]["permit"], "refused");
        }
        all_are_well_again(&mut network, &mut pops, away);
    });
}
