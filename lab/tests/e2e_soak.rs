//! The soak of `cargo xtask bench soak`, short: what leaks a little per flow or per packet shows in it all the same.

#![cfg(test)]

use std::time::Duration;

use lab::bench::soak;

#[test]
fn memory_is_flat_and_nothing_is_lost_at_half_of_saturation() {
    let report = soak::run(Duration::from_secs(20)).unwrap();
    eprintln!("{}", serde_json::to_string_pretty(&report).unwrap());
    assert!(report.is_good());
    let churned = report.churn_per_s as f64 * report.seconds;
    assert!(
        report.flows_ended > churned * 0.8,
        "{} flows ended of {churned}",
        report.flows_ended
    );
    assert!(report.calls.sent as f64 > report.packets_per_s as f64 * report.seconds * 0.8);
}
