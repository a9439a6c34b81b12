//! The soak of `cargo xtask bench soak`, short: what leaks a little per flow or per packet shows in it all the same.

#![cfg(test)]

use std::time::Duration;

use lab::bench::soak::{self, Growth};
use lab::standstill::{Figures, figures};

#[test]
fn memory_is_flat_and_nothing_is_lost_at_half_of_saturation() {
    figures("a soak", soaked).unwrap();
}

/// What memory and flows do holds each time; that nothing is lost is a matter of speed.
fn soaked() -> Figures {
    let report = soak::run(Duration::from_secs(20)).unwrap();
    let text = serde_json::to_string_pretty(&report).unwrap();
    eprintln!("{text}");
    assert!(report.growth.values().all(Growth::is_flat));
    let churned = report.churn_per_s as f64 * report.seconds;
    assert!(
        report.flows_ended > churned * 0.8,
        "{} flows ended of {churned}",
        report.flows_ended
    );
    let mut found = Figures::default();
    let (losses, lost) = (&report.losses, report.lost);
    found.holds(report.is_good(), || format!("lost: {lost}, {losses:?}"));
    let asked = report.packets_per_s as f64 * report.seconds;
    let sent = report.calls.sent as f64;
    found.holds(sent > asked * 0.8, || format!("{sent} sent of {asked}"));
    found
}
