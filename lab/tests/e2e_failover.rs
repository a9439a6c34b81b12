//! Calls through failures of a world with real BGP: the scenarios that say `always`, against the bounds that stand in them.

#![cfg(test)]

use lab::scenario::{Act, Outcome, Scenario, run};

/// What this machine adds when something else runs on it is no fault of the network: a scenario has another try.
const TRIES: usize = 2;

fn holds(scenario: &Scenario) -> Outcome {
    let mut outcome = None;
    for _ in 0..TRIES {
        let found = run(scenario).unwrap();
        let found = Outcome::new(scenario, &[found]);
        println!("{}", found.line());
        println!("    {:?} {:?}", found.broken, found.complaints);
        // Whatever the machine does, no call ends.
        assert_eq!(found.sessions_lost, 0, "{}", scenario.name);
        let good = found.broken.is_empty();
        outcome = Some(found);
        if good {
            break;
        }
    }
    let outcome = outcome.expect("there is at least one try");
    assert!(
        outcome.broken.is_empty(),
        "{}: {:?}",
        scenario.name,
        outcome.broken
    );
    outcome
}

#[test]
fn calls_live_through_what_every_change_is_tested_with() {
    let mut scenarios = Scenario::all().unwrap();
    scenarios.retain(|scenario| scenario.always);
    assert!(scenarios.len() >= 6, "scenarios are missing");
    for scenario in &scenarios {
        let outcome = holds(scenario);
        let figures = &outcome.figures;
        // Somebody spoke, and was heard where it was said.
        assert_eq!(figures.path_before.get("lon"), Some(&figures.sessions));
        let trips = figures.rtt_before_ms.min(figures.rtt_after_ms);
        assert!(trips > 10.0, "{}: {trips} ms", scenario.name);
    }
}

#[test]
fn a_plan_that_does_not_hold_is_found_out() {
    let mut scenario = Scenario::find("kill-pop-noredis").unwrap();
    scenario.calls.count = 5;
    scenario.watch_s = 4;
    // Not even a call that nothing happened to is so quick.
    scenario.must.silence_up_ms = Some(10.0);
    scenario.must.path = Some(("fra".to_owned(), "fra".to_owned()));
    assert!(matches!(scenario.faults[0].act, Act::World(_)));
    let found = run(&scenario).unwrap();
    assert_eq!(found.broken.len(), 2, "{:?}", found.broken);
    assert!(found.figures.up.lost > 0 && found.figures.down.lost > 0);
}
