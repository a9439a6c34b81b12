//! A killed program costs a call a moment, and no session: the far end knows every client by the address it had.

#![cfg(test)]

use lab::bench::recovery::{Case, run};

/// What nobody hangs up for; also what a dead peer of the backbone may cost. The time in which the program was away comes on top.
const SILENCE_MS_MAX: f64 = 1_000.0;
/// Clients check that often, in turn.
const CHECK_INTERVAL_MS: f64 = 2_500.0;

#[test]
fn a_kill_costs_a_moment_and_moves_nobody() {
    let found = run(&Case::ALL).unwrap();
    for row in &found.rows {
        println!("{row:?}");
        assert_eq!(
            row.moved,
            0,
            "{}: the far end sees another address",
            row.case.name()
        );
        let silence_max = match row.case {
            Case::PopUplinkOnly => CHECK_INTERVAL_MS + SILENCE_MS_MAX,
            Case::PopBothWays | Case::PopCache | Case::PopTakeover | Case::CoreRelay => {
                SILENCE_MS_MAX
            }
        };
        let longest = row
            .silence_up_ms
            .max(row.silence_down_ms.unwrap_or_default());
        let away = row.restart_ms.unwrap_or_default();
        // Below one beat nothing was killed at all.
        assert!(
            (20.0..away + silence_max).contains(&longest),
            "{}",
            row.case.name()
        );
        if row.case == Case::PopUplinkOnly {
            // Half of the clients have their turn later than this.
            let half = CHECK_INTERVAL_MS / 2.0;
            assert!(row.silence_up_ms_median > half * 0.8, "not by checks");
        }
    }
    assert_eq!(found.rows.len() + found.missing.len(), Case::ALL.len());
}
