//! The one place that reads clocks. Everything else is told the time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock read everybody else calls"
)]
pub fn now() -> Instant {
    Instant::now()
}

/// Seconds since the Unix epoch; 0 on a clock that is set before it.
#[must_use]
pub fn unix_s() -> u64 {
    unix().as_secs()
}

/// Milliseconds since the Unix epoch.
#[must_use]
pub fn unix_ms() -> u64 {
    u64::try_from(unix().as_millis()).unwrap_or(u64::MAX)
}

/// Time since the Unix epoch; none on a clock that is set before it.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "this is the clock read everybody else calls"
)]
pub fn unix() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
