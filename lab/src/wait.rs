//! Waiting for a condition, with a deadline and a name for it. Nothing in the lab sleeps for a fixed time.

use std::thread;
use std::time::Duration;

use anyhow::bail;
use runtime::clock;

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `probe` has something.
///
/// # Errors
/// It had nothing for `deadline`; the error names `what`.
pub fn until<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl FnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let end = clock::now() + deadline;
    loop {
        if let Some(found) = probe() {
            return Ok(found);
        }
        if clock::now() > end {
            bail!("waited {deadline:?} in vain for {what}");
        }
        thread::sleep(INTERVAL);
    }
}

/// Waits until `condition` holds.
///
/// # Errors
/// It did not hold for `deadline`; the error names `what`.
pub fn until_true(
    what: &str,
    deadline: Duration,
    mut condition: impl FnMut() -> bool,
) -> anyhow::Result<()> {
    until(what, deadline, || condition().then_some(()))
}
