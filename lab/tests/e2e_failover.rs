//! Calls through failures of a world with real BGP: the scenarios that say `always`, against the bounds that stand in them.

#![cfg(test)]

use lab::scenario::{Act, Must, Outcome, Scenario, run};

/// What this machine adds when something else runs on it is no fault of the network: a scenario has another try.
const TRIES: usize = 2;
/// Tries beside them in which the client itself stood still.
const DISTURBED_MAX: usize = 3;

fn holds(scenario: &Scenario) -> Outcome {
    let (mut tries, mut disturbed) = (0, 0);
    loop {
        let run = run(scenario).unwrap();
        let found = Outcome::new(scenario, std::slice::from_ref(&run));
        let name = &scenario.name;
        println!("{}", found.line());
        println!("    {:?} {:?}", found.broken, found.complaints);
        // Whatever the machine does, no call ends.
        assert_eq!(found.sessions_lost, 0, "{name}");
        if found.broken.is_empty() {
            return found;
        }
        if run.is_disturbed() && disturbed < DISTURBED_MAX {
            disturbed += 1;
            let ms = run.figures.standstill_ms;
            println!("    the client stood still for {ms:.0} ms: once more");
            continue;
        }
        tries += 1;
        assert!(tries < TRIES, "{name}: {:?}", found.broken);
    }
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
    assert!(matches!(scenario.faults[0].act, Act::World(_)));
    // Not even a call that nothing happened to is so quick, and before the fault none is there.
    scenario.must = Must {
        silence_up_ms: Some(10.0),
        path: Some(("fra".to_owned(), "fra".to_owned())),
        ..Must::default()
    };
    let found = run(&scenario).unwrap();
    assert_eq!(found.broken.len(), 2, "{:?}", found.broken);
    assert!(found.figures.up.lost > 0 && found.figures.down.lost > 0);
}
